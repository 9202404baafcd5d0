"""Classifiers whose probabilities are known, so that every promise can be held against the truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from tests.helpers.rows import draw_labels

from kway.search.results import TopK


class Stated(ClassifierMixin, BaseEstimator):
    """States softmax(sharpness * X) as its probabilities; nothing is learned."""

    def __init__(self, sharpness=1.0):
        self.sharpness = sharpness

    def fit(self, X, y=None):
        self.classes_ = np.arange(X.shape[1])
        return self

    def decision_function(self, X):
        return self.sharpness * X

    def predict_proba(self, X):
        return softmax(self.sharpness * X, axis=1)

    def predict(self, X):
        return X.argmax(axis=1)


class Listed(Stated):
    """The same through lists of the k best; remembers how long they were."""

    def predict_topk(self, X, k):
        self.asked_ = [*getattr(self, "asked_", []), (len(X), k)]
        p = self.predict_proba(X)
        order = np.argsort(-p, axis=1, kind="stable")[:, :k]
        return TopK(order, np.take_along_axis(p, order, axis=1))


def drawn(rng, n, n_classes=6, truth=1.0):
    """Scores (n, K), and labels drawn from softmax(truth * scores)."""
    X = 2 * rng.standard_normal((n, n_classes))
    return X, draw_labels(softmax(truth * X, axis=1), rng)


def clouds(rng, n, n_classes=3, d=4, spread=1.0):
    """Round clouds around corners 3 apart."""
    y = rng.integers(0, n_classes, n)
    X = 3.0 * np.eye(max(d, n_classes))[y][:, :d] + spread * rng.standard_normal((n, d))
    return X, y


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(name="Stated")
def stated():
    return Stated


@pytest.fixture(name="Listed")
def listed():
    return Listed


@pytest.fixture
def draw():
    return drawn


@pytest.fixture
def blobs():
    return clouds
