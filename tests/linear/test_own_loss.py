"""A loss written in Python gives what the compiled one gives by every solver, however little it says of itself."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from kway import LinearClassifier
from kway.linear.losses import LOSSES, Forms, Loss, Targets, TargetScores, sigmoid, softmax
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.gradient_descent import GradientDescent
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.proximal import Proximal
from kway.linear.solvers.registry import prepare
from kway.linear.solvers.sgd import max_curvature


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


@dataclass(frozen=True)
class Distance(Loss):
    """factor ||Y - f||^2: all classes at once, and not the same after a shift of all scores."""

    factor: float = 1.0

    def value_gradient(self, scores, targets, gradient=None):
        miss = scores - np.eye(scores.shape[1], dtype=scores.dtype)[targets.codes]
        value = self.factor * np.square(miss, dtype=np.float64).sum(axis=1)
        gradient = np.empty_like(scores) if gradient is None else gradient
        gradient[...] = 2 * self.factor * miss
        return value, gradient


DISTANCES = {
    "distance": {},
    "frank distance": {"convex": True, "couples": False, "label_free_curvature": True, "max_curvature": 2.0},
    "squared distance": {"target_scores": TargetScores(own=1.0, other=0.0)},
}


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    forms = Forms(Columns("own logistic", joint=False, smooth=True), Joint("own softmax", joint=True, smooth=True))
    monkeypatch.setitem(LOSSES, "own", forms)
    steep = Distance("steep", joint=True, smooth=True, factor=300.0)
    monkeypatch.setitem(LOSSES, "steep", Forms(steep, steep))
    for name, facts in DISTANCES.items():
        distance = Distance(name, joint=True, smooth=True, **facts)
        monkeypatch.setitem(LOSSES, name, Forms(distance, distance))


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


@pytest.mark.parametrize("loss", DISTANCES)
@pytest.mark.parametrize("solver", ["auto", "lbfgs", "proximal"])
@pytest.mark.parametrize("shape", [(300, 8), (4000, 8), (300, 60)])  # small, from a sample, wide
def test_a_joint_loss_that_moves_with_a_shift_ends_at_least_squares(loss, solver, shape):
    rng = np.random.default_rng(1)
    y = rng.integers(3, size=shape[0])
    X = rng.normal(size=shape) + np.eye(3, shape[1])[y] + 2
    mine = LinearClassifier(loss, alpha=0.05, solver=solver, tol=1e-9, max_iter=20_000).fit(X, y)
    theirs = Ridge(alpha=shape[0] * 0.05 / 2).fit(X, np.eye(3)[y])
    assert solver == "auto" or mine.solver_ == solver
    np.testing.assert_allclose(mine.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(mine.intercept_, theirs.intercept_, atol=1e-3)


def test_an_own_loss_with_zeros_ends_where_the_compiled_one_does():
    X, y = rows_of(4, np.float64, d=12)
    mine, theirs = (LinearClassifier(loss, "l1", alpha=0.02, tol=1e-7).fit(X, y) for loss in ("distance", "squared"))
    assert mine.objective_ == pytest.approx(theirs.objective_, rel=1e-5)
    assert (mine.coef_ == 0).sum() > 5


@pytest.mark.parametrize("batch_size", [1, 16])
def test_sgd_takes_its_steps_from_the_bend_of_the_loss(batch_size):
    X, y = rows_of(4, np.float64, d=12)
    optimum = LinearClassifier("steep", alpha=0.02, tol=1e-8).fit(X, y).objective_
    by_chance = LinearClassifier("steep", alpha=0.02, solver="sgd", batch_size=batch_size, random_state=0, tol=1e-4)
    assert optimum <= by_chance.fit(X, y).objective_ < 1.05 * optimum


@pytest.mark.parametrize("solver", [LBFGS(), Proximal(), GradientDescent()])
@pytest.mark.parametrize("shape", [(300, 4), (3000, 30)])
def test_a_proof_needs_a_convex_loss(solver, shape):
    rng = np.random.default_rng(2)
    y = rng.integers(3, size=shape[0])
    X = rng.normal(size=shape) + np.eye(3, shape[1])[y]
    told = Columns("told", joint=False, smooth=True, convex=True, couples=False, hessian_change=1.0)
    for penalty in (Penalty(0.01), Penalty(0.01, 0.01)):
        if penalty.lasso and "penalty.smooth" in solver.needs:
            continue
        for form in (told, replace(told, hessian_change=None), replace(told, hessian_change=None, convex=False)):
            objective = Objective(X, Targets(y), 3, form, penalty)
            task = prepare(objective, solver)
            found = task.solve(task.objective.zeros(), Control(tol=1e-3, max_iter=5000))
            assert found.converged
            assert found.proved == form.convex


def test_a_curvature_that_is_not_declared_is_estimated():
    X, y = rows_of(4, np.float64, d=12)
    for name, expected in (("steep", 600.0), ("own", 0.5), ("frank distance", 2.0)):
        objective = Objective(X, Targets(y), 4, LOSSES[name].joint, Penalty())
        assert max_curvature(objective) == pytest.approx(expected, rel=0.15)
