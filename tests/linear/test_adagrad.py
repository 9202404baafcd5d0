"""SGD(adagrad=True): a rate for each class, as a plain loop has it; the optimum is approached."""

import numpy as np
import pytest

from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.sampled import FIRST_GAIN
from kway.linear.solvers.schedules import Constant
from kway.linear.solvers.sgd import SGD


def problem(n=64, d=5, K=4, penalty=None):
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, n)
    X = rng.standard_normal((K, d))[y] * 2 + rng.standard_normal((n, d))
    return Objective(X, Targets(y), K, LOSSES["softmax"].joint, penalty or Penalty(0.02, 0.01))


def test_one_batch_is_the_formula():
    o = problem()
    start = np.random.default_rng(1).standard_normal((4, 6))
    control = Control(batch_size=o.n, learning_rate=Constant(), max_iter=1)
    found = SGD(adagrad=True).epoch(o, start, control, 0)
    f = o.X @ start[:, :-1].T + start[:, -1]
    p = np.exp(f - f.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    g = (p - np.eye(4)[o.targets.codes]).T @ np.hstack([o.X, np.ones((o.n, 1))]) / o.n
    size = np.mean(o.X**2)
    t = FIRST_GAIN / (5 * np.sqrt(size)) / np.sqrt(size / o.n**2 + (g**2).mean(axis=1, keepdims=True))
    wanted = start - t * g
    W = wanted[:, :-1]
    wanted[:, :-1] = np.sign(W) * np.maximum(np.abs(W) - t * 0.01, 0) / (1 + t * 0.02)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


@pytest.mark.parametrize("batch", [1, 8])
def test_epochs_come_near_the_optimum(batch):
    o = problem(400, penalty=Penalty(0.01))
    best = LBFGS().solve(o, o.zeros(), Control(tol=1e-8)).history[-1]
    found = SGD(adagrad=True).solve(o, o.zeros(), Control(batch_size=batch, max_iter=60, tol=1e-5))
    assert o.value(found.theta) == pytest.approx(best, rel=0.02)
