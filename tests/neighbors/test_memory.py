"""Memory: a fitted model holds its rows at most twice, and predicting needs little beyond index and answers."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kway
from kway.neighbors import NeighborsClassifier

DATA = os.environ.get("KWAY_DATA")


@pytest.mark.parametrize("index", ["flat", kway.search.Landmarks(probes=4), kway.search.LSH(probes=4)])
def test_rows_are_not_held_beside_the_index(index):
    X = np.random.default_rng(0).normal(size=(3000, 64)).astype(np.float32)
    model = NeighborsClassifier(index=index).fit(X, np.arange(3000) % 10)
    model.partial_fit(X[:100], np.arange(100) % 10)
    assert model._training.blocks is None
    np.testing.assert_array_equal(model.kneighbors()[1].shape, (3100, 5))


MEASURE = """
import resource, sys
import numpy as np
from kway.neighbors import NeighborsClassifier

def peak():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmHWM")).split()[1]) / 1024

def now():
    return int(next(l for l in open("/proc/self/status") if l.startswith("VmRSS")).split()[1]) / 1024

z = np.load(sys.argv[1])
X = z["x_train"].reshape(60000, -1).astype(np.float32) / 255
Q = z["x_test"].reshape(10000, -1).astype(np.float32) / 255
model = NeighborsClassifier(index=sys.argv[2]).fit(X, z["y_train"].astype(int))
model.predict(Q[:100])
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
before = now()
model.predict_proba(Q)
model.predict(Q)
print(peak() - before, model.index_.nbytes / X.nbytes)
"""


@pytest.mark.slow
@pytest.mark.skipif(not DATA or not sys.platform.startswith("linux"), reason="needs KWAY_DATA and /proc")
@pytest.mark.parametrize("index", ["flat", "landmarks"])
def test_predicting_all_of_mnist_stays_within_256_megabytes(index):
    command = [sys.executable, "-c", MEASURE, str(Path(DATA) / "mnist.npz"), index]
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ).stdout.split()
    more, ratio = map(float, told)
    assert more < 256
    assert ratio <= 2
