"""Forks while other threads predict: three threads ask a model for all time, and every forked child asks it too.

python forked_answers.py 20     seconds that forks took; 1 where an answer differs or a child fails or hangs
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
import warnings
from typing import NamedTuple

import numpy as np

import kway

THREADS = 3
PATIENCE = 60  # seconds until a child that hangs is ended


class Forks(NamedTuple):
    """How long each fork took, how each child ended (0: it answered), and how often the threads were answered."""

    seconds: list[float]
    statuses: list[int]
    answered: int
    wrong: int


def run(n: int) -> Forks:
    """n forks."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 30)).astype(np.float32)  # products of this size use all of BLAS's threads where they may
    model = kway.NeighborsClassifier(3, index="flat").fit(X, X[:, :3].argmax(axis=1))
    expected = model.predict(X)
    rights: list[bool] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            rights.append(bool((model.predict(X) == expected).all()))

    threads = [threading.Thread(target=ask) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    seconds, statuses = [], []
    for _ in range(n):
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            signal.alarm(PATIENCE)
            os._exit(0 if (model.predict(X) == expected).all() else 1)
        seconds.append(time.monotonic() - start)
        statuses.append(os.waitpid(child, 0)[1])
    over.set()
    for thread in threads:
        thread.join()
    return Forks(seconds, statuses, len(rights), rights.count(False))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="forked_answers")
    parser.add_argument("n", type=int, help="forks")
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: forks beside threads
    forks = run(parser.parse_args().n)
    failed = sum(status != 0 for status in forks.statuses)
    print(
        f"{len(forks.statuses):,} forks beside {THREADS} threads that were answered {forks.answered:,} times: "
        f"{failed} children failed, {forks.wrong} answers wrong, the longest fork {max(forks.seconds):.2f} s"
    )
    sys.exit(bool(failed or forks.wrong))
