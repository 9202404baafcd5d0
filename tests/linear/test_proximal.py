"""Proximal Newton against optimality conditions, scikit-learn's saga, linear programs and itself."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression

import kway
from kway import datasets
from kway.kernels.linear.coordinate import minimize_model
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers import proximal
from kway.linear.solvers.base import Control, Point
from kway.linear.solvers.proximal import Proximal
from kway.linear.solvers.stopping import duality_gap

SMOOTH = [name for name, forms in LOSSES.items() if forms.joint.smooth and name != "logistic"]


def scaled(load):
    X, y = load(return_X_y=True)
    return np.ascontiguousarray((X - X.mean(0)) / (X.std(0) + 1e-9)), y.astype(np.int64)


def problem(X, y, penalty, loss="softmax", form=None, **kwargs):
    n_scores = 1 if y.max() == 1 else int(y.max()) + 1
    form = form or ("columns" if n_scores == 1 else "joint")
    return Objective(X, Targets(y), n_scores, getattr(LOSSES[loss], form), penalty, **kwargs)


def solve(objective, tol=1e-3, max_iter=5000, start=None):
    return Proximal().solve(objective, objective.zeros() if start is None else start, Control(max_iter, tol))


def blobs(n=120, d=6, classes=3, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    X = rng.normal(size=(n, d)) + 1.2 * rng.normal(size=(classes, d))[y]
    return X.astype(dtype), y.astype(np.int64)


def kkt_residual(objective, theta):
    """Largest violation of 0 in g + lasso d|w|, the bias free."""
    gradient = objective.value_gradient(theta)[1]
    W, g, lasso = theta[:, :-1], gradient[:, :-1], objective.penalty.lasso
    residual = np.where(W == 0, np.maximum(np.abs(g) - lasso, 0), np.abs(g + lasso * np.sign(W)))
    return max(residual.max(), np.abs(gradient[:, -1]).max())


# ---------------------------------------------------------------- the inner problem


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 12), st.floats(0, 1), st.floats(0, 2), st.integers(0, 10**6))
def test_descent_minimizes_its_model(d, ridge, lasso, seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(d + 4, d + 1))
    M, g, v = root.T @ root / d + 0.1 * np.eye(d + 1), rng.normal(size=d + 1), rng.normal(size=d + 1)
    ridges, lassos = np.append(np.full(d, ridge), 0.0), np.append(np.full(d, lasso), 0.0)
    u, fall = minimize_model(M, g, v, ridges, lassos, 20000, 1e-28)

    def model(x):
        step = x - v
        return g @ step + step @ M @ step / 2 + ridge / 2 * step[:d] @ step[:d] + lasso * np.abs(x[:d]).sum()

    slope = g + M @ (u - v)
    slope[:d] += ridge * (u - v)[:d]
    off = np.where(u[:d] == 0, np.maximum(np.abs(slope[:d]) - lasso, 0), np.abs(slope[:d] + lasso * np.sign(u[:d])))
    assert max(off.max(), abs(slope[d])) < 1e-8
    assert fall == pytest.approx(model(v) - model(u), abs=1e-9)


# ---------------------------------------------------------------- optimality


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("form", ["columns", "joint"])
@pytest.mark.parametrize("penalty", [Penalty(lasso=0.02), Penalty(ridge=0.01, lasso=0.01)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_optimality_conditions(loss, form, penalty, fit_intercept):
    X, y = blobs()
    weight = np.random.default_rng(1).uniform(0.2, 2, len(y))
    objective = problem(X, y, penalty, loss, form, fit_intercept=fit_intercept, weight=weight / weight.mean())
    found = solve(objective, tol=1e-13)
    assert found.converged
    assert kkt_residual(objective, found.theta) < 1e-5
    assert fit_intercept or not found.theta[:, -1].any()
    assert objective.value(found.theta) < objective.value(objective.zeros())
    assert np.all(np.diff(found.history[:-1]) <= 0), "the best value never rises"


def test_soft_targets():
    X, y = blobs()
    soft = np.eye(3)[y] * 0.8 + 0.2 / 3
    for form in ("joint", "columns"):
        objective = Objective(X, Targets(y, soft), 3, getattr(LOSSES["softmax"], form), Penalty(lasso=0.01))
        assert kkt_residual(objective, solve(objective, 1e-13).theta) < 1e-6


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer])
@pytest.mark.parametrize("l1_ratio", [1.0, 0.5])
def test_saga_finds_the_same(load, l1_ratio):
    X, y = scaled(load)
    alpha = 0.02
    objective = problem(X, y, Penalty(ridge=alpha * (1 - l1_ratio), lasso=alpha * l1_ratio))
    found = solve(objective, tol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # scikit-learn is renaming these parameters
        saga = LogisticRegression(
            solver="saga", penalty="elasticnet", l1_ratio=l1_ratio, C=1 / (len(y) * alpha), tol=1e-10, max_iter=20000
        ).fit(X, y)
    other = np.hstack([saga.coef_, saga.intercept_[:, None]])
    assert objective.value(found.theta) == pytest.approx(objective.value(other), rel=1e-5)
    assert ((found.theta == 0) == (np.abs(other) < 1e-7)).mean() >= 0.99


@pytest.mark.parametrize("classes", [2, 3])
def test_above_the_critical_lasso_every_weight_is_zero(classes):
    X, y = blobs(classes=classes, n=101)
    blank = problem(X, y, Penalty(lasso=1e3))
    prior = solve(blank, 1e-12).theta
    assert not prior[:, :-1].any()
    critical = np.abs(blank.value_gradient(prior)[1][:, :-1]).max()
    above = solve(problem(X, y, Penalty(lasso=1.001 * critical)))
    below = solve(problem(X, y, Penalty(lasso=0.95 * critical)), 1e-8)
    assert not above.theta[:, :-1].any()
    assert below.theta[:, :-1].any()


def test_zeros_are_exact_and_grow_with_lasso():
    X, y = scaled(load_digits)
    shares = [(solve(problem(X, y, Penalty(lasso=a))).theta[:, :-1] == 0).mean() for a in (1e-3, 1e-2, 1e-1)]
    assert 0.3 < shares[0] < shares[1] < shares[2] < 1


# ---------------------------------------------------------------- what the tolerance means


@pytest.mark.parametrize("load", [load_iris, load_wine, load_breast_cancer, load_digits])
@pytest.mark.parametrize("lasso", [1e-1, 1e-2, 1e-3])
@pytest.mark.parametrize("ridge", [0.0, 1e-2])
def test_tolerance_and_miss_are_true(load, lasso, ridge):
    X, y = scaled(load)
    objective = problem(X, y, Penalty(ridge, lasso))
    optimum = objective.value(solve(objective, 1e-13).theta)
    for tol in (1e-3, 1e-6):
        found = solve(objective, tol)
        excess = objective.value(found.theta) / optimum - 1
        assert found.converged
        assert excess <= tol
        assert excess <= 2 * found.rel_excess + 1e-12


@pytest.mark.parametrize("loss", ["softmax", "squared"])
@pytest.mark.parametrize("penalty", [Penalty(lasso=0.05), Penalty(ridge=0.02, lasso=0.02)])
@pytest.mark.parametrize("spread", [1e-3, 0.1, 2.0])
def test_the_gap_bounds_the_excess_anywhere(loss, penalty, spread):
    objective = problem(*blobs(), penalty, loss, fit_intercept=False)
    best = solve(objective, 1e-13).theta
    rng = np.random.default_rng(0)
    for _ in range(5):
        theta = best + spread * rng.normal(size=best.shape) * [*np.ones(objective.d), 0]
        point = Point.at(objective, theta)
        assert duality_gap(objective, point) >= objective.value(theta) - objective.value(best)


def test_stopping_short_is_reported():
    X, y = scaled(load_wine)
    found = solve(problem(X, y, Penalty(lasso=1e-3)), tol=1e-10, max_iter=3)
    assert not found.converged
    assert found.rel_excess > 1e-10
    assert "max_iter" in found.advice


def test_warm_start_is_short():
    X, y = scaled(load_wine)
    objective = problem(X, y, Penalty(lasso=1e-2))
    cold = solve(objective, 1e-8)
    again = solve(objective, 1e-6, start=cold.theta)
    assert again.n_iter < cold.n_iter / 2
    assert objective.value(again.theta) <= objective.value(cold.theta) * (1 + 1e-9)


# ---------------------------------------------------------------- other ways through the same problem


def test_float32_reaches_the_float64_optimum():
    X, y = scaled(load_digits)
    exact = problem(X, y, Penalty(lasso=1e-2))
    single = problem(X.astype(np.float32), y, Penalty(lasso=1e-2))
    found = solve(single, 1e-6)
    assert found.theta.dtype == np.float32
    assert exact.value(found.theta.astype(np.float64)) <= exact.value(solve(exact, 1e-10).theta) * (1 + 2e-6)


@pytest.mark.parametrize("sparse", [True, False])
def test_the_diagonal_metric_finds_the_same(sparse, monkeypatch):
    X, y = blobs(d=10)
    X[np.abs(X) < 0.5] = 0
    expected = problem(X, y, Penalty(1e-3, 1e-2)).value(solve(problem(X, y, Penalty(1e-3, 1e-2)), 1e-12).theta)
    if not sparse:
        monkeypatch.setattr(proximal, "MAX_FACTOR_FEATURES", 5)
    objective = problem(sp.csr_array(X) if sparse else X, y, Penalty(1e-3, 1e-2))
    found = solve(objective, 1e-7)
    assert found.converged
    assert objective.value(found.theta) == pytest.approx(expected, rel=1e-7)


def test_sampled_metrics_find_the_same(monkeypatch):
    X, y = blobs(n=6000, d=12)
    X[:, 3] = 0
    X[5, 3] = 1  # a feature that a sample misses
    objective = problem(X, y, Penalty(lasso=1e-3))
    sampled = solve(objective, 1e-8)
    monkeypatch.setattr(proximal, "sample_rows", lambda objective: None)
    monkeypatch.setattr(proximal.LocalModels, "_sampled_block", lambda self, h, *_: self._exact_block(h))
    assert objective.value(sampled.theta) == pytest.approx(objective.value(solve(objective, 1e-10).theta), rel=1e-8)


def test_badly_scaled_features():
    X, y = blobs(n=300)
    objective = problem(X * np.array([1e-3, 1, 1, 1, 1e3, 1]), y, Penalty(lasso=1e-3))
    found = solve(objective, 1e-9)
    assert found.converged
    assert kkt_residual(objective, found.theta) < 1e-3


@pytest.mark.parametrize("classes", [2, 3])
def test_hinge_against_a_linear_program(classes):
    """min mean xi + lasso (u + v), w = u - v: the L1 machine is a linear program; one class against the rest."""
    X, y = blobs(n=60, d=4, classes=classes, seed=3)
    lasso, n, d = 0.05, 60, 4
    total = 0.0
    for k in [1] if classes == 2 else range(classes):
        s = np.where(y == k, 1.0, -1.0)[:, None]
        cost = np.r_[np.full(2 * d, lasso), 0, 0, np.full(n, 1 / n)]
        rows = np.hstack([-s * X, s * X, -s, s, -np.eye(n)])
        total += linprog(cost, A_ub=rows, b_ub=-np.ones(n), bounds=(0, None)).fun
    objective = problem(X, y, Penalty(lasso=lasso), "hinge", "columns")
    found = solve(objective, 1e-3)
    assert objective.value(found.theta) <= total * (1 + 1e-3)
    assert objective.value(found.theta) >= total * (1 - 1e-9)


@pytest.mark.slow
@pytest.mark.skipif("mnist" not in datasets.names(), reason="needs mnist.npz in KWAY_DATA")
@pytest.mark.parametrize("lasso", [1e-3, 1e-4])
def test_mnist_within_the_tolerance(lasso):
    mnist = datasets.load("mnist")
    X = np.ascontiguousarray(mnist.x_train[:20000].reshape(20000, -1) / 255, np.float32)
    objective = problem(X, mnist.y_train[:20000].astype(np.int64), Penalty(lasso=lasso))
    optimum = objective.value(solve(objective, 1e-6).theta)
    assert objective.value(solve(objective).theta) <= optimum * (1 + 1e-3)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6, 1e9])
def test_units_change_nothing(unit):
    """The same problem in other units; a bias of ones beside columns of 1e6 was taken for a column of zeros."""
    Z = np.random.default_rng(0).normal(size=(40, 2))
    y = (Z[:, 0] > 1).astype(int)
    found = kway.LinearClassifier("rounded-hinge", "l1", 1e-3 * unit).fit(Z * unit, y)
    assert found.objective_ == pytest.approx(0.0097241, rel=1e-3)


@pytest.mark.parametrize("penalty", [Penalty(1.0), Penalty(lasso=1.0), Penalty(0.7, 0.3), Penalty(1e-3, 1.0)])
@pytest.mark.parametrize("n_classes", [2, 5, 8])
def test_no_other_shift_has_less_penalty(penalty, n_classes):
    W = np.random.default_rng(n_classes).normal(size=(n_classes, 6))
    best = penalty.value(W - penalty.shift(W))
    for by in np.linspace(-2, 2, 401):
        for j in range(6):
            other = penalty.shift(W)
            other[j] += by
            assert best <= penalty.value(W - other) + 1e-12


@pytest.mark.parametrize("alpha", [1e-3, 1e-4])
def test_many_classes_of_related_columns_are_within_tol(alpha):
    """Weights of a feature that all classes share drifted so slowly that the end came at 3.5 times tol."""
    rng = np.random.default_rng(5)
    scales = 10.0 ** rng.uniform(-1, 1, 100)
    X = rng.normal(size=(8000, 100)) @ (rng.normal(size=(100, 100)) / 10) * scales
    y = (X @ rng.normal(size=(10, 100)).T / scales.mean() + rng.normal(size=(8000, 10))).argmax(axis=1)
    found = kway.LinearClassifier("softmax", "l1", alpha).fit(X, y)
    exact = kway.LinearClassifier("softmax", "l1", alpha, tol=1e-6, max_iter=4000).fit(X, y)
    assert found.objective_ <= exact.objective_ * (1 + found.tol)
