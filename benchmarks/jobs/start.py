"""T8: start-up time."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

import numpy as np

from ..child import as_installed
from ..race import Row


def seconds(code: list[str], rounds: int, env: dict[str, str] | None = None) -> list[float]:
    """Measure the wall time of a child process several times."""
    out = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, *code], check=True, capture_output=True, env={**os.environ, **(env or {})})
        out.append(time.perf_counter() - start)
    return out


FIRST_FIT = """
import sys, kway
digits = kway.datasets.load("digits")
kway.SoftmaxClassifier().fit(digits.x_train.reshape(5000, -1) / float(sys.argv[1]), digits.y_train)
"""

FITTED = """
import sys, kway
digits = kway.datasets.load("digits")
X, y = digits.x_train.reshape(5000, -1) / 255, digits.y_train
kway.SoftmaxClassifier(alpha=1e-2).fit(X, y).save(sys.argv[1])
kway.NeighborsClassifier(5).fit(X, y).save(sys.argv[2])
"""

FIRST_PREDICTION = """
import sys, numpy, kway
kway.load(sys.argv[1]).predict(numpy.zeros((1, 784)))
"""


def first_predictions(rounds: int) -> dict[str, list[float]]:
    """Time a new process that loads a model and predicts one row, with compiled kernels."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: os.path.join(folder, f"{name}.kway") for name in ("softmax", "neighbors")}
        seconds(["-c", FITTED, *paths.values()], 1)
        for path in paths.values():
            seconds(["-c", FIRST_PREDICTION, path], 1)  # compiles
        return {name: seconds(["-c", FIRST_PREDICTION, path], rounds) for name, path in paths.items()}


def cold_fit(most: float) -> list[float]:
    """Time a first fit with an empty kernel cache, of pixels from 0 to 255 / most.

    Raw pixels (most = 1) are separable at the default alpha: two hundred iterations, a fit of some seconds by itself.
    """
    with tempfile.TemporaryDirectory() as cache:
        return seconds(["-c", FIRST_FIT, str(most)], 1, {"NUMBA_CACHE_DIR": cache})


def t8(rounds: int, quick: bool) -> list[Row]:
    """Imports, help, a first fit with an empty kernel cache, first predictions; the peer is the limit in seconds."""
    as_installed()
    bare = float(np.median(seconds(["-c", "pass"], rounds)))
    allowed = round(float(np.median(seconds(["-c", "import sklearn.linear_model"], rounds))) + 0.6, 3)
    found = {
        "import kway": (seconds(["-c", "import kway"], rounds), 0.1),
        "kway --help": (seconds(["-m", "kway", "--help"], rounds), 0.6),
        "first fit, cold kernels": (cold_fit(1), 8.0),
        "first fit, cold kernels, pixels in 0..1": (cold_fit(255), 8.0),
        **{f"first prediction, {name}": (times, allowed) for name, times in first_predictions(rounds).items()},
    }
    rows = []
    for job, (times, limit) in found.items():
        quality = f"limit {limit} s (python itself starts in {bare:.3f} s)"
        rows.append(Row("T8", job, "-", "limit", float(np.median(times)), limit, 1, quality, True, {"kway": times}))
    return rows
