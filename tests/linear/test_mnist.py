"""All of MNIST, found through KWAY_DATA: what each linear classifier reaches on the official test set."""

import numpy as np
import pytest

import kway
from kway import datasets

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("mnist" not in datasets.names(), reason="needs mnist.npz in KWAY_DATA"),
]


@pytest.fixture(scope="module")
def mnist():
    data = datasets.load("mnist")
    flat = lambda a: a.reshape(len(a), -1).astype(np.float32) / 255  # noqa: E731
    return flat(data.x_train), data.y_train, flat(data.x_test), data.y_test


@pytest.mark.parametrize(
    ("model", "least", "most"),
    [
        (kway.SoftmaxClassifier(alpha=1e-4), 0.925, 1.0),
        (kway.SVMClassifier(alpha=1e-4), 0.92, 1.0),
        (kway.LeastSquaresClassifier(multiclass="one-vs-all"), 0.85, 0.87),
    ],
    ids=["softmax", "joint hinge", "one-vs-all least squares"],
)
def test_accuracy(mnist, model, least, most):
    x_train, y_train, x_test, y_test = mnist
    assert least <= model.fit(x_train, y_train).score(x_test, y_test) <= most
