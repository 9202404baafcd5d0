"""T8: how fast kway starts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from ..race import Row


def seconds(code: list[str], rounds: int, env: dict[str, str] | None = None) -> list[float]:
    """Wall time of a child process, several times."""
    out = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, *code], check=True, capture_output=True, env={**os.environ, **(env or {})})
        out.append(time.perf_counter() - start)
    return out


FIRST_FIT = """
import kway
digits = kway.datasets.load("digits")
kway.SoftmaxClassifier().fit(digits.x_train.reshape(5000, -1), digits.y_train)
"""


def t8(rounds: int, quick: bool) -> list[Row]:
    """`import kway`, `kway --help`, and a first fit with an empty kernel cache; the peer is the limit in seconds."""
    bare = float(np.median(seconds(["-c", "pass"], rounds)))
    with tempfile.TemporaryDirectory() as cache:
        cold = seconds(["-c", FIRST_FIT], 1, {"NUMBA_CACHE_DIR": cache})
    found = {
        "import kway": (seconds(["-c", "import kway"], rounds), 0.3),
        "kway --help": (seconds(["-c", "from kway.cli import main; main()", "--help"], rounds), 0.5),
        "first fit, cold kernels": (cold, 10.0),
    }
    rows = []
    for job, (times, limit) in found.items():
        quality = f"limit {limit} s (python itself starts in {bare:.3f} s)"
        rows.append(Row("T8", job, "-", "limit", float(np.median(times)), limit, 1, quality, True, {"kway": times}))
    return rows
