"""L-BFGS against scipy and scikit-learn in float64, on easy and on nasty problems; and what it says when it fails."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from kway import datasets
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers import base, lbfgs, stopping
from kway.linear.solvers.base import Control, check_needs
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.registry import prepare

SMOOTH = [form for forms in LOSSES.values() for form in forms if form.smooth and form.convex]


def problem(X, codes, loss=LOSSES["softmax"].joint, alpha=1e-3, dtype=np.float64, R=None, **kwargs) -> Objective:
    R = int(codes.max()) + 1 if R is None else R
    return Objective(np.asarray(X, dtype), Targets(np.asarray(codes, np.int64)), R, loss, Penalty(alpha), **kwargs)


def in_double(objective: Objective) -> Objective:
    return replace(objective, rows=objective.X.astype(np.float64))


def optimum(objective: Objective) -> float:
    """The optimum by scipy, in float64."""
    exact = in_double(objective)
    shape = exact.zeros().shape

    def flat(v):
        value, gradient = exact.value_gradient(v.reshape(shape))
        return value, gradient.ravel()

    first = np.zeros(shape).ravel()
    options = {"maxiter": 2000, "maxcor": 50, "ftol": 1e-15, "gtol": 1e-9}
    return float(scipy.optimize.minimize(flat, first, jac=True, method="L-BFGS-B", options=options).fun)


def newton_optimum(objective: Objective) -> float:
    """The optimum of a joint softmax by damped Newton steps with the dense Hessian, in float64."""
    exact = in_double(objective)
    X, R, ridge = np.column_stack((exact.X, np.ones(exact.n))), exact.n_scores, exact.penalty.ridge
    theta, D = exact.zeros(), exact.d + 1
    penalised = np.tile(np.r_[np.full(exact.d, ridge), 1e-10], R)
    value, gradient = exact.value_gradient(theta)
    for _ in range(60):
        p = np.exp(X @ theta.T - (X @ theta.T).max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        H = np.zeros((R, D, R, D))
        for k in range(R):
            for c in range(R):
                H[k, :, c, :] = X.T @ (X * (p[:, k] * ((k == c) - p[:, c]))[:, None]) / exact.n
        step = np.linalg.solve(H.reshape(R * D, -1) + np.diag(penalised), gradient.ravel()).reshape(R, D)
        length = 1.0
        while exact.value_gradient(theta - length * step)[0] > value and length > 1e-8:
            length /= 2
        theta = theta - length * step
        before, (value, gradient) = value, exact.value_gradient(theta)
        if before - value < 1e-12 * value:
            break
    return min(before, value)


def excess(objective, solution, best=None) -> float:
    """Relative, over an optimum."""
    best = optimum(objective) if best is None else best
    return in_double(objective).value(solution.theta.astype(np.float64)) / best - 1


def blobs(n=400, d=10, K=4, seed=0, spread=1.5):
    rng = np.random.default_rng(seed)
    codes = np.r_[np.arange(K), rng.integers(0, K, n - K)]
    return rng.standard_normal((K, d))[codes] + spread * rng.standard_normal((n, d)), codes


SHAPES = [(loss, R) for loss in SMOOTH for R in (1, 4) if R > 1 or not loss.joint]


@pytest.mark.parametrize(("loss", "R"), SHAPES, ids=lambda v: getattr(v, "name", str(v)))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_convex_loss_reaches_the_optimum(loss, R, dtype):
    X, codes = blobs(K=max(R, 2))
    objective = problem(X, codes, loss, dtype=dtype, R=R, weight=np.random.default_rng(1).random(400) + 0.5)
    solution = LBFGS().solve(objective, objective.zeros(), Control())
    assert solution.converged
    assert solution.theta.dtype == dtype
    assert excess(objective, solution) < 1e-6


@pytest.mark.parametrize("name", ["softmax-squared", "softmax-absolute"])
@pytest.mark.parametrize("form", ["columns", "joint"])
def test_losses_that_are_not_convex_are_still_minimised(name, form):
    X, codes = blobs()
    objective = problem(X, codes, getattr(LOSSES[name], form))
    solution = LBFGS().solve(objective, objective.zeros(), Control())
    value, gradient = objective.value_gradient(solution.theta)
    assert value < 0.7 * objective.value(objective.zeros())
    assert np.abs(gradient).max() < 1e-3


def test_the_same_coefficients_as_scikit_learn():
    X, codes = load_iris(return_X_y=True)
    peer = LogisticRegression(C=1 / (len(X) * 1e-2), tol=1e-10, max_iter=10000).fit(X, codes)
    objective = problem(X, codes, alpha=1e-2)
    solution = LBFGS().solve(objective, objective.zeros(), Control())
    np.testing.assert_allclose(solution.theta[:, :-1], peer.coef_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(solution.theta[:, -1], peer.intercept_, rtol=1e-4, atol=1e-4)


def nasty():
    digits, wine, cancer = load_digits(return_X_y=True), load_wine(return_X_y=True), load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    X, codes = blobs(3000, 20, 5)
    yield "digits", digits[0][:600, ::2], digits[1][:600], 1e-4
    yield "digits tight", digits[0][:400, 1::3] / 16, digits[1][:400], 1e-5
    yield "wine unscaled", wine[0], wine[1], 1e-4
    yield "cancer unscaled", cancer[0], cancer[1], 1e-4
    yield "badly scaled", X * np.geomspace(1e-3, 1e3, 20), codes, 1e-4
    yield "far from zero", X + 1000, codes, 1e-4
    yield "duplicate columns", np.hstack((X, X, X[:, :3])), codes, 1e-5
    yield "constant columns", np.hstack((X, np.ones((3000, 2)), np.zeros((3000, 2)))), codes, 1e-4
    yield "five rows", X[:5], np.arange(5) % 3, 1e-3
    yield "more features than rows", rng.standard_normal((40, 200)), np.arange(40) % 4, 1e-3
    yield "rare features", (rng.random((3000, 60)) < 0.003) * 5.0, codes, 1e-4


@pytest.mark.parametrize(("name", "X", "codes", "alpha"), list(nasty()), ids=[case[0] for case in nasty()])
def test_default_tolerance_is_kept_on_nasty_data(name, X, codes, alpha, monkeypatch):
    best = newton_optimum(problem(X, codes, alpha=alpha))
    for work in (base.QUICK_WORK, 0):  # by whole Hessians if it is small, and as large problems are solved
        monkeypatch.setattr(base, "QUICK_WORK", work)
        for dtype in (np.float32, np.float64):
            objective = problem(X, codes, alpha=alpha, dtype=dtype)
            task = prepare(objective, "lbfgs")
            solution = task.solve(task.objective.zeros(), Control())
            assert solution.converged, solution.advice
            assert excess(objective, solution, best) < 1e-3


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6])
def test_a_sampled_start_keeps_the_tolerance(tol):
    X, codes = blobs(8000, 50, 5)
    best = optimum(problem(X, codes, alpha=1e-5))
    for dtype in (np.float32, np.float64):
        objective = problem(X, codes, alpha=1e-5, dtype=dtype)
        solution = LBFGS().solve(objective, objective.zeros(), Control(tol=tol))
        assert solution.converged
        assert excess(objective, solution, best) < tol


@pytest.mark.parametrize("alpha", [1e-2, 1e-6])
def test_many_rows_of_few_columns_and_many_classes_keep_the_tolerance(alpha):
    """Too large for Newton's steps as a proof, with small matrices of all classes at once: the steps of letter."""
    rng = np.random.default_rng(0)
    centres, codes = rng.standard_normal((20, 12)), rng.integers(0, 20, 20_000)
    X = centres[codes] + 0.9 * rng.standard_normal((20_000, 12)) * rng.exponential(1.0, (20_000, 1))
    objective = problem(X, codes, alpha=alpha, dtype=np.float32)
    best = LBFGS().solve(in_double(objective), np.zeros((20, 13)), Control(tol=1e-8, max_iter=2000)).history[-1]
    for tol in (1e-2, 1e-3, 1e-4):
        found = LBFGS().solve(objective, objective.zeros(), Control(tol=tol))
        assert found.converged
        assert in_double(objective).value(found.theta.astype(np.float64)) <= (1 + tol) * best


def test_tight_tolerance_in_double_precision_means_gradient_zero():
    X, codes = blobs()
    objective = problem(X, codes)
    solution = LBFGS().solve(objective, objective.zeros(), Control(tol=1e-14))
    assert np.abs(objective.value_gradient(solution.theta)[1]).max() < 1e-8


def test_weights_are_repetitions():
    X, codes = blobs(60, 5, 3)
    times = np.random.default_rng(1).integers(0, 4, 60)
    weight = times / times.mean()
    once = problem(X, codes, weight=weight)
    again = problem(np.repeat(X, times, axis=0), np.repeat(codes, times))
    a = LBFGS().solve(once, once.zeros(), Control()).theta
    b = LBFGS().solve(again, again.zeros(), Control()).theta
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-8)


def test_sparse_rows_and_soft_targets():
    X, codes = blobs(500, 12, 4)
    soft = np.full((500, 4), 0.02)
    soft[np.arange(500), codes] = 0.94
    dense = replace(problem(X, codes), targets=Targets(codes, soft))
    sparse = replace(dense, rows=sp.csr_matrix(X))
    solution = LBFGS().solve(sparse, sparse.zeros(), Control())
    assert excess(dense, solution) < 1e-6


def test_without_intercept():
    X, codes = blobs(500, 12, 4)
    objective = problem(X, codes, fit_intercept=False)
    solution = LBFGS().solve(objective, objective.zeros(), Control())
    assert not solution.theta[:, -1].any()
    assert excess(objective, solution) < 1e-6


def test_a_good_start_is_used_and_a_bad_one_survived():
    X, codes = blobs(20000, 60, 8)
    objective = problem(X, codes, dtype=np.float32)
    first = LBFGS().solve(objective, objective.zeros(), Control())
    assert LBFGS().solve(objective, first.theta, Control()).n_iter < 8
    wild = np.random.default_rng(0).standard_normal(first.theta.shape).astype(np.float32) * 10
    again = LBFGS().solve(objective, wild, Control())
    assert again.history[-1] == pytest.approx(first.history[-1], rel=1e-3)


def test_separable_data_without_a_penalty_is_named():
    X, codes = blobs(300, 10, 3, spread=0.01)
    for loss, R in ((LOSSES["softmax"].joint, 3), (LOSSES["logistic"].columns, 3), (LOSSES["logistic"].columns, 1)):
        objective = problem(X, np.minimum(codes, 1) if R == 1 else codes, loss, alpha=0.0, R=R)
        solution = LBFGS().solve(objective, objective.zeros(), Control(max_iter=500))
        assert not solution.converged
        assert "separable" in solution.advice
        assert "alpha > 0" in solution.advice
        assert solution.n_iter < 100


def test_no_penalty_on_data_that_overlap():
    X, codes = blobs(600, 5, 3, spread=4.0)
    objective = problem(X, codes, alpha=0.0)
    solution = LBFGS().solve(objective, objective.zeros(), Control())
    assert solution.converged
    assert excess(objective, solution) < 1e-6


def test_too_few_iterations_are_owned_up_to():
    X, codes = blobs(2000, 60, 8)
    objective = problem(X, codes, alpha=1e-5)
    solution = LBFGS().solve(objective, objective.zeros(), Control(max_iter=2))
    assert not solution.converged
    assert solution.n_iter == 2
    assert "max_iter" in solution.advice


def test_progress_sees_every_iteration_and_can_stop():
    X, codes = blobs()
    seen = []

    def progress(iteration, value):
        seen.append((iteration, value))
        return iteration == 3

    objective = problem(X, codes)
    solution = LBFGS().solve(objective, objective.zeros(), Control(progress=progress))
    assert [i for i, _ in seen] == [1, 2, 3]
    assert solution.history[1:] == [value for _, value in seen]
    assert solution.converged


@pytest.mark.parametrize("form", ["columns", "joint"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_hinges_reach_the_optimum_of_a_linear_programme_with_ridge(form, fit_intercept):
    X, codes = blobs(300, 6, 3)
    objective = problem(X, codes, getattr(LOSSES["hinge"], form), alpha=1e-2, fit_intercept=fit_intercept)
    rough = LBFGS().solve(objective, objective.zeros(), Control())
    fine = LBFGS().solve(objective, objective.zeros(), Control(tol=1e-6, max_iter=5000))
    assert rough.converged
    best = objective.value(fine.theta)
    assert objective.value(rough.theta) <= best * (1 + 1e-3)
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1e-2, 1e-1):  # no point nearby is lower: with convexity, none anywhere
        for _ in range(20):
            move = rng.standard_normal(fine.theta.shape) * scale
            move[:, -1] *= fit_intercept
            assert objective.value(fine.theta + move) >= best * (1 - 2e-6)


def test_one_against_all_hinge_agrees_with_liblinear():
    X, codes = blobs(500, 8, 3)
    alpha = 1e-2
    peer = LinearSVC(loss="hinge", C=1 / (500 * alpha), fit_intercept=False, tol=1e-8, max_iter=1_000_000).fit(X, codes)
    objective = problem(X, codes, LOSSES["hinge"].columns, alpha=alpha, fit_intercept=False)
    solution = LBFGS().solve(objective, objective.zeros(), Control())
    best = objective.value(np.column_stack((peer.coef_, np.zeros(3))))
    assert objective.value(solution.theta) <= best * (1 + 1e-3)


def test_what_it_needs():
    check_needs(LBFGS(), LOSSES["hinge"].joint, Penalty(1.0))
    with pytest.raises(ValueError, match="L1"):
        check_needs(LBFGS(), LOSSES["softmax"].joint, Penalty(0.0, 1.0))


def test_raw_pixels_that_are_separable_take_factors_where_the_rows_bend():
    """Curvature leaves nearly all rows on the way: with the factors of the start this takes 930 iterations."""
    digits, chosen = datasets.load("digits"), (3, 5, 8)
    kept = np.flatnonzero(np.isin(digits.y_train, chosen))[:700]
    X = digits.x_train[kept].reshape(-1, 28, 28)[:, 4:24, 4:24].reshape(len(kept), -1)  # 0 to 255
    raw = problem(X, np.searchsorted(chosen, digits.y_train[kept]), alpha=1e-4, dtype=np.float32)
    found = lbfgs.solve_smooth(raw, raw.zeros(), Control(), prove=True)
    assert found.proved
    assert found.converged
    assert found.n_iter <= 250
    assert excess(raw, found, best=3.1655214654e-06) <= found.rel_excess + 1e-6  # newton_optimum(raw), which takes 12 s


def test_bounds_that_fail_are_tried_again_only_from_time_to_time(monkeypatch):
    """A bound costs as much as many iterations. Tried in each of them, it once took most of the time of a fit."""
    digits = load_digits()
    X = np.hstack([digits.data, digits.data**2 / 16]) / 16
    images = problem(X, digits.target, alpha=1e-6)
    tried, decrement = [], stopping.decrement

    def useless(*arguments):
        tried.append(1)
        step = decrement(*arguments)
        return step._replace(direction=0.01 * step.direction, excess=np.inf)

    monkeypatch.setattr(stopping, "decrement", useless)
    monkeypatch.setattr(lbfgs.Schedule, "turn_exact", lambda *_: None)
    found = lbfgs.solve_smooth(images, images.zeros(), Control(max_iter=150), prove=True)
    assert not found.converged
    assert found.n_iter > 50
    assert 0 < len(tried) < found.n_iter / 4


def test_a_fit_that_ends_at_max_iter_needs_a_bound_to_count_as_converged(monkeypatch):
    """An estimate was enough, if the bound was not due at the last iteration."""
    digits = load_digits()
    X = np.hstack([digits.data, digits.data**2 / 16]) / 16
    images = problem(X, digits.target, alpha=1e-6)
    decrement = stopping.decrement
    monkeypatch.setattr(stopping, "decrement", lambda *arguments: decrement(*arguments)._replace(excess=np.inf))
    monkeypatch.setattr(lbfgs.Schedule, "turn_exact", lambda *_: None)
    for max_iter in (55, 60, 65):
        assert not lbfgs.solve_smooth(images, images.zeros(), Control(max_iter=max_iter), prove=True).converged
