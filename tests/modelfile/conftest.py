"""A tiny classifier that stands in for kway's own: the nearest class mean, so that it has arrays to store."""

from __future__ import annotations

import numpy as np
import pytest

import kway
from kway.base import Classifier
from kway.modelfile import schemas
from kway.modelfile.schema import Array, Schema
from kway.modelfile.value_checks import ValueCheck, whole_number

SCHEMA = Schema(
    facts={"n_iter": whole_number()},
    arrays=lambda _: {"means": Array(("float32", "float64"), ("K", "d"))},
    params={"weights": ValueCheck("any value", lambda _: True)},
)


class TinyClassifier(Classifier):
    def __init__(self, shrink=0.0, weights=None, seed=None):
        self.shrink = shrink
        self.weights = weights
        self.seed = seed

    def fit(self, X, y):
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.n_features_in_ = X.shape[1]
        self.means_ = np.stack([X[codes == c].mean(axis=0) for c in range(len(self.classes_))])
        self.n_iter_ = 3
        return self

    def predict(self, X):
        apart = ((X[:, None, :] - self.means_[None]) ** 2).sum(axis=2)
        return self.classes_[apart.argmin(axis=1)]

    def _fitted(self):
        return {"n_iter": self.n_iter_}, {"means": self.means_}

    def _restore(self, facts, arrays):
        self.n_iter_ = facts["n_iter"]
        self.means_ = arrays["means"]


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """TinyClassifier as if it were one of kway's public names."""
    monkeypatch.setattr(kway, "__all__", [*kway.__all__, "TinyClassifier"])
    monkeypatch.setattr(kway, "TinyClassifier", TinyClassifier, raising=False)
    monkeypatch.setitem(schemas.SCHEMAS, "TinyClassifier", SCHEMA)
    return TinyClassifier


@pytest.fixture
def fitted(tiny):
    rng = np.random.default_rng(0)
    return tiny(shrink=0.5).fit(rng.standard_normal((30, 4)), np.repeat(["ant", "bee", "wasp"], 10))


@pytest.fixture
def model(fitted, tmp_path):
    path = tmp_path / "model.kway"
    fitted.save(path)
    return path
