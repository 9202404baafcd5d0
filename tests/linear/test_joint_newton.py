"""Newton's method on small joint hinges: against finite differences, a quadratic program, and gradients alone."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_iris, load_wine

from kway.linear.losses import LOSSES, Targets
from kway.linear.losses.hinge import centred_kink
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.svm import newton_joint as joint_newton
from kway.linear.solvers.svm.newton_joint import Valley

HINGE = LOSSES["hinge"].joint


def problem(X, y, ridge=1e-2, fit_intercept=True, weight=None):
    return Objective(X, Targets(np.asarray(y, np.int64)), int(max(y)) + 1, HINGE, Penalty(ridge), fit_intercept, weight)


def random_problem(n=30, d=3, R=4, **options):
    rng = np.random.default_rng(n)
    y = np.concatenate([np.arange(R), rng.integers(0, R, n - R)])
    return problem(rng.normal(size=(n, d)), y, **options)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_and_hessian(weighted):
    weight = np.linspace(0.5, 1.5, 30) if weighted else None
    objective = random_problem(weight=weight)
    smooth = objective.with_loss(centred_kink(HINGE, 0.5))
    theta, h = np.random.default_rng(1).normal(size=(4, 4)), 1e-6
    value, gradient = Valley.at(smooth, theta).gradient()
    assert value == pytest.approx(smooth.value(theta), rel=1e-12)
    step = np.random.default_rng(2).normal(size=(4, 4))
    near = [Valley.at(smooth, theta + sign * h * step).gradient() for sign in (1, -1)]
    assert np.sum(gradient * step) == pytest.approx((near[0][0] - near[1][0]) / (2 * h), rel=1e-5)
    along = (near[0][1] - near[1][1]) / (2 * h)
    found = Valley.at(smooth, theta).hessian() @ step.ravel()
    np.testing.assert_allclose(found.reshape(4, 4), along, rtol=1e-5, atol=1e-7)


def quadratic_program(objective):
    """ridge / 2 ||W||^2 + mean of the slacks, each at least its gap and 0."""
    X, y, R = objective.X, objective.targets.codes, objective.n_scores
    n, d = X.shape
    rows, others = np.nonzero(np.arange(R) != y[:, None])
    free = R * (d + 1)

    def gaps(theta):
        F = X @ theta[:, :-1].T + theta[:, -1]
        return 1 - F[rows, y[rows]] + F[rows, others]

    def value(v):
        return objective.penalty.ridge / 2 * np.sum(v[:free].reshape(R, d + 1)[:, :-1] ** 2) + v[free:].sum() / n

    start = np.concatenate([np.zeros(free), np.ones(len(rows))])
    room = {"type": "ineq", "fun": lambda v: v[free:] - gaps(v[:free].reshape(R, d + 1))}
    bounds = [(None, None)] * free + [(0, None)] * len(rows)
    found = minimize(value, start, bounds=bounds, constraints=[room], options={"maxiter": 1000, "ftol": 1e-10})
    assert found.success
    return found.fun


def test_a_quadratic_program_finds_the_same():
    objective = random_problem(14, 2, 3, ridge=0.1)
    found = LBFGS().solve(objective, objective.zeros(), Control(1000, 1e-5))
    assert found.converged
    assert objective.value(found.theta) == pytest.approx(quadratic_program(objective), rel=1e-4)


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_nearly_separable_classes_take_few_steps(load, fit_intercept, monkeypatch):
    X, y = load(return_X_y=True)
    X = (X - X.mean(0)) / (X.std(0) + 1e-9)
    objective = problem(X, y, 1e-4, fit_intercept)
    found = LBFGS().solve(objective, objective.zeros(), Control(1000))
    assert found.converged
    assert found.n_iter < 200
    assert fit_intercept or not found.theta[:, -1].any()
    monkeypatch.setattr(joint_newton, "MOST_NUMBERS", 0)
    other = LBFGS().solve(objective, objective.zeros(), Control(300))
    assert objective.value(found.theta) <= objective.value(other.theta) * (1 + 1e-3)
