"""Saves that are killed: a child saves two models over each other for all time, and a signal ends it at any moment.

    python killed_saves.py 1000     counts; 1 where a file was neither the one nor the other, or drafts stayed

Whatever the moment, the file at the path is one of the two, whole, by its digest and by its answers, and a draft that
was left is gone after the next save.
"""

from __future__ import annotations

import argparse
import itertools
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import kway

SIGNALS = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
LONGEST = 0.03  # seconds of saving before the signal: several saves


@dataclass
class Counts:
    """Children ended, the files found, the drafts they left; and what is wrong."""

    ended: Counter[str] = field(default_factory=Counter)
    found: Counter[int] = field(default_factory=Counter)  # which of the two models was there
    drafts: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ended = ", ".join(f"{n:,} {name}" for name, n in sorted(self.ended.items()))
        drafts = ", ".join(f"{n:,} by {name}" for name, n in sorted(self.drafts.items())) or "none"
        files = " and ".join(f"{self.found[i]:,}" for i in range(2))
        return (
            f"{self.ended.total():,} saves ended ({ended}); files {files}; drafts left: {drafts}; {len(self.bad)} bad"
        )


def models() -> list[Any]:
    """Two whose files differ in length and whose answers differ."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 40)).astype(np.float32)
    y = X[:, :3].argmax(axis=1)
    return [kway.NeighborsClassifier(1, index="flat").fit(X[:n], 10 * n + y[:n]) for n in (1000, 4000)]


def end_a_save(path: Path, known: Sequence[Any], number: int, rng: np.random.Generator) -> None:
    """Fork a child that saves without end, and send it a signal after a while."""
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            os.write(tell, b".")
            for model in itertools.cycle(known):
                model.save(path)
        except KeyboardInterrupt:
            os._exit(0)
        finally:
            os._exit(9)  # a save that fails by itself
    os.read(ready, 1)
    time.sleep(rng.uniform(0, LONGEST))
    os.kill(child, number)
    status = os.waitpid(child, 0)[1]
    os.close(ready)
    os.close(tell)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 9:
        raise RuntimeError("a save failed before it was killed")


def check(path: Path, known: Sequence[Any], rows: np.ndarray) -> int:
    """Which model the file is; an error where it is neither."""
    answers = kway.load(path, verify=True, mmap=False).predict(rows)
    return [bool((model.predict(rows) == answers).all()) for model in known].index(True)


def run(n: int, seed: int = 0, seconds: float | None = None) -> Counts:
    """n children, or as many as the seconds allow."""
    counts, rng, start = Counts(), np.random.default_rng(seed), time.monotonic()
    known, rows = models(), np.random.default_rng(1).normal(size=(5, 40)).astype(np.float32)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.kway"
        known[0].save(path)
        for i in range(n):
            number = SIGNALS[i % len(SIGNALS)]
            said = signal.Signals(number).name
            try:
                end_a_save(path, known, number, rng)
                counts.found[check(path, known, rows)] += 1
            except Exception as error:
                counts.bad.append(f"child {i}, {said}: {type(error).__name__}: {error}")
            counts.ended[said] += 1
            counts.drafts[said] += len(list(path.parent.iterdir())) - 1
            known[i % 2].save(path)
            if [left.name for left in path.parent.iterdir()] != [path.name]:
                counts.bad.append(f"child {i}, {said}: drafts stayed after the next save")
            if seconds is not None and time.monotonic() - start > seconds:
                break
    return counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="killed_saves")
    parser.add_argument("n", type=int, help="children to end")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, help="stop after this long")
    given = parser.parse_args()
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: forks beside threads
    ends = run(given.n, given.seed, given.seconds)
    print(ends, *ends.bad, sep="\n")
    sys.exit(bool(ends.bad))
