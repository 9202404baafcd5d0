"""Small fits against the plan: loosely, as other work may share the machine; `kway bench --only plan` is strict."""

import functools
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


TRIES = 3  # others may take the cores between the calibration and the fit; a plan that is wrong stays so


@pytest.fixture(scope="module")
def rates():
    """Those of each try, measured once."""
    return functools.cache(lambda number: calibrate())


def test_every_rate_is_measured(rates):
    assert all(value > 0 for name, value in rates(0).record().items() if name not in GPU_NAMES)


@pytest.mark.parametrize(("way", "n", "d", "n_classes"), SIZES)
def test_seconds_within_a_factor(way, n, d, n_classes, rates):
    X, y = structured_rows(n, d, n_classes=n_classes), np.arange(n) % n_classes
    MODELS[way]().fit(X[:2000], y[:2000])  # kernels are loaded
    slack, seen = 0.1, []  # seconds that are not the plan's business
    for number in range(TRIES):
        planned = kway.plan(n, d, n_classes, rates=rates(number))[way].fit_seconds
        started = time.perf_counter()
        MODELS[way]().fit(X, y)
        seen.append((time.perf_counter() - started, planned))
        if planned / 5 - slack < seen[-1][0] < 5 * planned + slack:
            return
    pytest.fail(f"seconds taken and planned: {seen}")
