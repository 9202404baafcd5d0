"""Small fits against the plan: loosely, as other work may share the machine; `kway bench --only plan` is strict."""

import time

import numpy as np
import pytest

import kway
from kway.planning.calibrate import calibrate, structured_rows
from kway.planning.rates import GPU_NAMES

SIZES = [
    ("softmax", 20_000, 100, 10),
    ("softmax", 5_000, 300, 20),
    ("kNN flat", 60_000, 64, 10),
    ("centroids", 60_000, 100, 50),
]
MODELS = {
    "softmax": kway.SoftmaxClassifier,
    "kNN flat": kway.NeighborsClassifier,
    "centroids": kway.CentroidClassifier,
}


@pytest.fixture(scope="module")
def rates():
    found = calibrate()
    assert all(value > 0 for name, value in found.record().items() if name not in GPU_NAMES)
    return found


@pytest.mark.parametrize(("way", "n", "d", "n_classes"), SIZES)
def test_seconds_within_a_factor(way, n, d, n_classes, rates):
    X, y = structured_rows(n, d, n_classes=n_classes), np.arange(n) % n_classes
    MODELS[way]().fit(X[:2000], y[:2000])  # kernels are loaded
    started = time.perf_counter()
    MODELS[way]().fit(X, y)
    took = time.perf_counter() - started
    planned = kway.plan(n, d, n_classes, rates=rates)[way].fit_seconds
    slack = 0.1  # seconds that are not the plan's business
    assert planned / 5 - slack < took < 5 * planned + slack, (took, planned)
