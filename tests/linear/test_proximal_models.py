"""Local models: a step goes to the minimum of the model that it states, whichever weights are in its matrices."""

import numpy as np
import pytest

from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Point
from kway.linear.solvers.proximal import LocalModels, soft_thresholds


def images_like(seed, n=6000, d=60, K=4, lasso=0.02, bias=True, ridge=0.0):
    """Columns of which few matter, in units of their own."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 10.0 ** rng.uniform(-1, 1, d)
    y = (X[:, :6] @ rng.standard_normal((6, K)) + rng.gumbel(size=(n, K))).argmax(axis=1)
    return Objective(X, Targets(y), K, LOSSES["softmax"].joint, Penalty(ridge, lasso), bias)


def second(objective):
    """A model at a point with some weights, and the point."""
    models = LocalModels(objective, np.random.default_rng(0))
    start = Point.at(objective, objective.zeros())
    theta = models.at(start).step(start.theta, start.gradient, 8.0, objective.penalty).theta
    point = Point.at(objective, theta)
    return models.at(point), point


@pytest.mark.parametrize("ridge", [0.0, 0.01])
@pytest.mark.parametrize("seed", range(3))
def test_a_step_is_the_minimum_of_the_model(seed, ridge):
    objective = images_like(seed, ridge=ridge)
    model, point = second(objective)
    rng = np.random.default_rng(seed)
    slopes = point.gradient * rng.uniform(0.5, 3, point.gradient.shape)
    found = model.step(point.theta, slopes, 1.5, objective.penalty)
    lasso = np.append(np.full(objective.d, objective.penalty.lasso), 0)
    ridges = np.append(np.full(objective.d, ridge), 0)
    for block, old, new, slope in zip(model.blocks, point.theta, found.theta, slopes):
        M = 1.5 * block + np.diag(ridges)
        at_end = slope + M @ (new - old)  # plus lasso times a sign, or within it where the weight is zero
        scale = 1e-2 * np.abs(slope).max()  # sweeps end where they gain little
        assert (np.abs(at_end + lasso * np.sign(new))[new != 0] < scale).all()
        assert (np.abs(at_end)[new == 0] <= lasso[new == 0] + scale).all()


def test_thresholded_is_the_minimum_entry_by_entry():
    rng = np.random.default_rng(0)
    theta, slope, h = rng.normal(size=50), rng.normal(size=50), rng.uniform(0.1, 3, 50)
    new, falls = soft_thresholds(theta, slope, h, np.float64(0.3))

    def value(u):
        return slope * (u - theta) + h / 2 * (u - theta) ** 2 + 0.3 * np.abs(u)

    around = new + np.linspace(-1, 1, 2001)[:, None]
    assert (value(new) <= value(around).min(axis=0) + 1e-12).all()
    np.testing.assert_allclose(falls, value(theta) - value(new), atol=1e-12)
