"""A loss written in Python (kind OWN) gives what the compiled one gives, by every solver that could take it."""

from dataclasses import dataclass

import numpy as np
import pytest

from kway import LinearClassifier
from kway.linear.losses.loss import LOSSES, OWN, Forms, Loss, sigmoid, softmax


@dataclass(frozen=True)
class Columns(Loss):
    """log(1 + exp(-t)) of each column."""

    def value_gradient(self, scores, targets, gradient=None):
        own = targets.codes[:, None] == (1 if scores.shape[1] == 1 else np.arange(scores.shape[1]))
        value = np.logaddexp(0, np.where(own, -scores, scores)).sum(axis=1, dtype=np.float64)
        slope = (sigmoid(scores) - own).astype(scores.dtype)
        if gradient is None:
            return value, slope
        gradient[...] = slope
        return value, gradient

    def curvatures(self, scores, targets):
        return sigmoid(scores) * (1 - sigmoid(scores))


@dataclass(frozen=True)
class Joint(Loss):
    """log sum_c exp(f_c) - f_y."""

    def value_gradient(self, scores, targets, gradient=None):
        rows = np.arange(len(scores))
        p = softmax(scores)
        value = -np.log(p[rows, targets.codes]).astype(np.float64)
        p[rows, targets.codes] -= 1
        if gradient is None:
            return value, p
        gradient[...] = p
        return value, gradient

    def curvatures(self, scores, targets):
        return softmax(scores) * (1 - softmax(scores))


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    forms = Forms(Columns("own logistic", OWN, joint=False, curvature=0.25), Joint("own softmax", OWN, joint=True))
    monkeypatch.setitem(LOSSES, "own", forms)


def rows_of(n_classes, dtype, d=60):  # wide enough for the fused kernel
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=300)
    return (rng.normal(size=(300, d)) + 0.4 * np.eye(n_classes, d)[y]).astype(dtype), y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("penalty", ["l2", "l1"])
def test_the_optimum_is_the_compiled_losss(n_classes, dtype, penalty):
    X, y = rows_of(n_classes, dtype)
    mine, theirs = (LinearClassifier(loss, penalty, alpha=0.02, tol=1e-5).fit(X, y) for loss in ("own", "softmax"))
    assert mine.objective_ == pytest.approx(theirs.objective_, rel=1e-4)


@pytest.mark.parametrize("batch_size", [1, 16])
def test_an_epoch_of_sgd_is_the_compiled_losss(batch_size):
    X, y = rows_of(4, np.float64)
    mine, theirs = (
        LinearClassifier(loss, alpha=0.02, batch_size=batch_size, learning_rate=0.05, random_state=0).partial_fit(X, y)
        for loss in ("own", "softmax")
    )
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-10)
