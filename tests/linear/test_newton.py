"""Newton's method against finite differences, scipy, linear and quadratic programs, and its own proofs."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.datasets import load_iris, load_wine, make_blobs
from tests.helpers.linear import draw_objective

from kway import LogisticClassifier, PerceptronClassifier, SoftmaxClassifier, SVMClassifier
from kway.linear.classifier import LinearClassifier
from kway.linear.equivalent import row_span, standard_columns
from kway.linear.losses import LOSSES, Targets, centered_kink
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers import base
from kway.linear.solvers.base import MAX_WORK, Control, Point, Solution, is_small
from kway.linear.solvers.interior_point import solve_lasso
from kway.linear.solvers.lbfgs import LBFGS, solve_smooth
from kway.linear.solvers.preconditioners import factor_at, quick_moments
from kway.linear.solvers.proximal import ProximalRun
from kway.linear.solvers.registry import Task, prepare
from kway.linear.solvers.smoothing import cost_of_rounding, solve_smoothed
from kway.linear.solvers.stopping import decrement, newton_step

FORMS = [(name, form) for name in ("softmax", "hinge", "squared") for form in ("joint", "columns")]
SMOOTH = [(name, form) for name, form in FORMS if name != "hinge"]
PENALTIES = [Penalty(ridge=0.02), Penalty(lasso=0.02), Penalty(ridge=0.01, lasso=0.01)]


def problem(loss="softmax", form="joint", penalty=PENALTIES[0], n=40, R=3, **kwargs):
    return draw_objective(loss, form, penalty, n, K=R, **{"d": 3, **kwargs})


def solve(objective, tol=1e-9):
    task = prepare(objective, "lbfgs" if objective.penalty.smooth else "proximal")
    return task.solve(task.objective.zeros(), Control(2000, tol))


# ---------------------------------------------------------------- steps


@pytest.mark.parametrize(("loss", "form"), SMOOTH)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_step_solves_the_hessian_of_finite_differences(loss, form, weighted):
    objective = standard_columns(problem(loss, form, weighted=weighted)).objective
    theta, h = np.random.default_rng(1).normal(size=(3, 4)), 1e-4
    point = Point.centered_at(objective, theta)
    step = newton_step(objective, point.theta, point.gradient).direction
    up, down = (objective.value_gradient(point.theta + sign * h * step)[1] for sign in (1, -1))
    np.testing.assert_allclose((up - down) / (2 * h), point.gradient, rtol=1e-5, atol=1e-7)


def test_products_with_the_hessian_are_those_of_finite_differences():
    for (loss, form), sparse in itertools.product(FORMS, [False, True]):
        objective = problem(loss, form, weighted=True)
        if objective.loss.hinge:
            objective = objective.with_loss(centered_kink(objective.loss, 3.0))
        if sparse:
            objective = replace(objective, rows=sp.csr_matrix(objective.X))
        rng, h = np.random.default_rng(2), 1e-6
        theta, V = (objective.rows.with_layout(rng.normal(size=(3, 4)) * s) for s in (0.1, 1.0))
        found = objective.hessian_at(theta).product(V)
        up, down = (objective.value_gradient(objective.rows.with_layout(theta + s * h * V))[1] for s in (1, -1))
        np.testing.assert_allclose(found, (up - down) / (2 * h), rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------- optima


@pytest.mark.parametrize(("loss", "form"), FORMS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("bias", [True, False])
def test_the_optimum_is_that_of_a_general_method(loss, form, penalty, bias):
    objective = problem(loss, form, penalty, n=25, bias=bias)
    found = solve(objective, 1e-7)
    assert found.converged
    assert found.proved
    assert bias or not found.theta[:, -1].any()
    value = objective.value(found.theta)
    for seed in range(3):  # derivative-free and rough: it must not find anything lower
        start = found.theta + 0.02 * np.random.default_rng(seed).normal(size=found.theta.shape)
        rough = {"method": "Powell", "options": {"maxiter": 10}}
        other = minimize(lambda v: objective.value(v.reshape(3, 4) * [1, 1, 1, bias]), start.ravel(), **rough)
        assert value <= other.fun * (1 + 1e-6)


@pytest.mark.parametrize("load", [load_iris, load_wine])
@pytest.mark.parametrize("bias", [True, False])
def test_nearly_separable_classes_take_few_steps(load, bias):
    X, y = load(return_X_y=True)
    X = (X - X.mean(0)) / (X.std(0) + 1e-9)
    objective = Objective(X, Targets(y.astype(np.int64)), 3, LOSSES["hinge"].joint, Penalty(1e-4), bias)
    found = solve(objective, 1e-3)
    assert found.converged
    assert found.n_iter < 100
    other = LBFGS().solve(objective, objective.zeros(), Control(300))
    assert objective.value(found.theta) <= objective.value(other.theta) * (1 + 1e-3)


def test_zeros_of_l1_are_zeros():
    objective = problem("softmax", "joint", Penalty(lasso=0.05), n=200, d=20)
    found = solve(objective, 1e-3).theta[:, :-1]
    exact = solve(objective, 1e-10).theta[:, :-1]
    assert 5 < (found == 0).sum() < found.size - 5
    assert ((found == 0) != (np.abs(exact) < 1e-6)).sum() <= 2


@pytest.mark.parametrize("loss", ["softmax", "hinge", "squared"])
@pytest.mark.parametrize("sparse", [False, True])
def test_l1_on_more_columns_than_rows(loss, sparse):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 120)), np.arange(20) % 3
    X[np.arange(20), y] += 2
    objective = Objective(sp.csr_matrix(X) if sparse else X, Targets(y), 3, LOSSES[loss].joint, Penalty(lasso=0.05))
    found = solve(objective, 1e-5)
    assert found.converged
    assert found.proved
    assert 0 < (found.theta[:, :-1] != 0).sum() < 60


@pytest.mark.parametrize(("loss", "form"), SMOOTH)
@pytest.mark.parametrize("penalty", PENALTIES[1:])
@pytest.mark.parametrize("bias", [True, False])
def test_interior_points_agree_with_proximal_steps_under_l1(loss, form, penalty, bias):
    objective = problem(loss, form, penalty, n=80, d=6, bias=bias)
    inside = solve_lasso(objective, objective.zeros(), Control(200, 1e-7))
    steps = ProximalRun(objective, Control(5000, 1e-7)).go(objective.zeros())
    assert inside.converged
    assert inside.proved
    assert objective.value(inside.theta) == pytest.approx(objective.value(steps.theta), rel=2e-7)


def test_without_a_penalty_separable_classes_are_refused_in_words():
    objective = problem("softmax", "joint", Penalty(), n=10, d=12)
    found = solve(objective, 1e-3)
    assert not found.converged
    assert "separable" in found.advice


def test_what_float32_cannot_hold_is_said():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(200, 3)) + 1e6).astype(np.float32)
    y = (X[:, 0] > 1e6).astype(np.int64)
    objective = Objective(X, Targets(y), 1, LOSSES["softmax"].columns, Penalty(1e-6))
    found = solve(objective, 1e-6)
    assert not found.converged
    assert "float64" in found.advice


# ---------------------------------------------------------------- proofs for large problems


@pytest.mark.parametrize("loss", ["softmax", "squared"])
def test_a_decrement_bounds_the_excess(loss):
    objective = problem(loss, "joint", Penalty(1e-3), n=300, d=8)
    best = objective.value(solve(objective, 1e-12).theta)
    for scale in (0.1, 0.5, 0.9, 0.99, 1.001):
        theta = scale * solve(objective, 1e-12).theta
        point = Point.at(objective, theta)
        found = decrement(objective, point, quick_moments(objective, None).shared())
        assert point.value - best <= found.excess * (1 + 1e-9)


def test_a_gradient_that_is_not_finite_has_no_bound():
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(3000, 60)), rng.integers(0, 9, 3000)
    objective = Objective(X, Targets(codes), 9, LOSSES["softmax"].joint, Penalty(ridge=1e-3), True)
    assert not is_small(objective)
    point = Point.at(objective, objective.zeros())
    point.gradient[0, 0] = np.nan
    assert decrement(objective, point, lambda gradient: gradient).excess == np.inf


def test_rows_that_hardly_bend_do_not_hide_those_that_do(monkeypatch):
    """A Hessian of drawn rows, each of which stands for 1 / chance: seed 753 ended 1.5 tol above its optimum."""
    monkeypatch.setattr(base, "QUICK_WORK", 0)
    rng = np.random.default_rng(0)
    for seed in range(8):
        given = problem(n=6000, d=4, penalty=Penalty(1e-4), seed=seed)
        objective = replace(given, rows=given.X * rng.lognormal(0, 1.5, (6000, 1)))
        theta = objective.center_scores(4 * rng.normal(size=(3, 5)))
        point = Point.at(objective, theta)
        found = decrement(objective, point, factor_at(objective, theta))
        exact = newton_step(objective, theta, point.gradient)
        assert found.slope == pytest.approx(exact.slope, rel=0.3)


def test_lbfgs_proves_what_newton_cannot_afford():
    objective = problem("softmax", "joint", Penalty(1e-5), n=1200, d=150, R=4)
    best = objective.value(solve(objective, 1e-10).theta)
    found = LBFGS().solve(objective, objective.zeros(), Control(1000, 1e-3))
    assert found.proved
    assert objective.value(found.theta) <= best * (1 + 1e-3)


def test_rounded_hinges_bound_their_own_excess():
    objective = problem("hinge", "joint", Penalty(1e-3), n=200, d=5)
    best = objective.value(solve(objective, 1e-9).theta)
    for width in (2.0, 0.5, 0.1):
        smooth = objective.with_loss(centered_kink(objective.loss, width))
        theta = solve_smooth(smooth, objective.zeros(), Control(1000, 1e-10)).theta
        excess = objective.value(theta) - best
        assert 0 <= excess <= cost_of_rounding(objective, smooth, theta) * (1 + 1e-6) + 1e-9 * best
    found = solve_smoothed(objective, objective.zeros(), Control(2000, 1e-3), solve_smooth)
    assert found.converged
    assert objective.value(found.theta) <= best * (1 + 1e-3)


# ---------------------------------------------------------------- fewer rows than columns


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("units", ["equal", "any", "tiny"])
@pytest.mark.parametrize("dependent", [False, True])
def test_the_span_of_the_rows_is_the_whole_problem(sparse, units, dependent):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 100)) * {"equal": 1, "any": 10.0 ** rng.uniform(-9, 9, 100), "tiny": 1e-160}[units]
    X[7] *= 1e3
    if dependent:
        X[5] = X[3] + X[4]
    rows = sp.csr_matrix(X) if sparse else X
    objective = Objective(rows, Targets(np.arange(20) % 3), 3, LOSSES["softmax"].joint, Penalty(1e-2))
    span = row_span(objective)
    assert (span.root is not None) == (units == "equal" and not dependent)
    theta = rng.normal(size=(3, 21))
    back = span.back(theta)
    assert back.shape == (3, 101)
    scores = span.objective.X @ theta[:, :-1].T
    np.testing.assert_allclose(X @ back[:, :-1].T, scores, rtol=1e-8, atol=1e-9 * np.abs(scores).max())
    np.testing.assert_allclose(np.sum(back[:, :-1] ** 2), np.sum(theta[:, :-1] ** 2))
    np.testing.assert_allclose(span.into(back), theta, rtol=1e-9, atol=1e-9)
    assert objective.value(back) == pytest.approx(span.objective.value(theta), rel=1e-9)


def test_equal_rows_stay_equal_in_their_span():
    X = np.random.default_rng(0).normal(size=(10, 200))[np.arange(20) % 10] * 1e10
    objective = Objective(X, Targets(np.arange(20) // 10), 1, LOSSES["squared"].columns, Penalty(1e-5))
    span = row_span(objective)
    np.testing.assert_array_equal(span.objective.X[:10], span.objective.X[10:])
    assert span.objective.value(solve(span.objective).theta) == pytest.approx(1)  # -1 and +1 of the same rows


def test_a_span_is_for_l2_and_few_rows_only():
    targets = Targets(np.arange(20) % 3)
    for X, penalty in (
        (np.ones((20, 10)), Penalty(1e-2)), (np.ones((20, 100)), Penalty(lasso=1e-2)), (np.ones((20, 100)), Penalty()),
    ):  # fmt: skip
        assert row_span(Objective(X, targets, 3, LOSSES["softmax"].joint, penalty)) is None


@pytest.mark.parametrize("model", [SoftmaxClassifier, LogisticClassifier, SVMClassifier])
def test_wide_rows_reach_the_optimum_and_warm_starts_stay_there(model):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3000)), np.arange(40) % 3
    wide = model(warm_start=True).fit(X, y)
    small = row_span(Objective(X, Targets(y), 3, wide._form(), Penalty(1e-4))).objective
    best = small.value(solve(small, 1e-9).theta)
    assert wide.objective_ <= best * (1 + 1e-3)
    again = wide.fit(X, y)
    assert again.objective_ <= best * (1 + 1e-3)


# ---------------------------------------------------------------- what was once missed


def test_separable_blobs_have_support_rows():
    X, y = make_blobs(300, centers=4, n_features=10, random_state=0)
    found = SVMClassifier().fit(X, y)
    assert found.objective_ <= SVMClassifier(tol=1e-8).fit(X, y).objective_ * (1 + 1e-3)
    assert len(found.support_) >= 10


def test_the_bias_alone_is_learned_under_a_strong_l1():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), np.where(rng.random(80) < 0.8, 1, 0)
    found = SVMClassifier(penalty="l1", alpha=1.0).fit(X, y)
    assert not found.coef_.any()
    assert found.intercept_[0] == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("penalty", ["l1", "elasticnet", "l2"])
def test_sparse_rows_far_from_zero_learn_as_dense_ones_do(penalty):
    X, y = np.array([[100.1], [99.5], [100.9], [99.9], [101.3], [98.8]]), [0, 1, 2, 0, 2, 1]
    fits = [SoftmaxClassifier(penalty, alpha=1e-4).fit(rows, y).objective_ for rows in (X, sp.csr_matrix(X))]
    assert fits[0] == pytest.approx(fits[1], rel=1e-3)
    assert fits[0] < 0.05


def test_many_units_do_not_break_a_joint_machine():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)), rng.integers(0, 3, 200)
    found = SVMClassifier(alpha=1e-5, tol=1e-8).fit(X * [1, 10, 0.01, 0.001, 1000], y)
    assert found.objective_ == pytest.approx(found.history_[-1], rel=1e-9)
    for unit in (1e-12, 3e5, 1e12):
        assert np.isfinite(SVMClassifier().fit(X * unit, y).objective_)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_perceptron_answers_the_same_in_any_units(sparse):
    X, y = make_blobs(200, centers=4, n_features=5, random_state=1)
    rows = (lambda Z: sp.csr_matrix(Z)) if sparse else (lambda Z: Z)
    plain = PerceptronClassifier(random_state=0).fit(rows(X), y)
    units = 10.0 ** np.array([-12, 6, 0, 12, -6])
    scaled = PerceptronClassifier(random_state=0).fit(rows(X * units), y)
    np.testing.assert_array_equal(plain.predict(rows(X)), scaled.predict(rows(X * units)))
    np.testing.assert_allclose(scaled.coef_ * units, plain.coef_, rtol=1e-6)


def test_what_is_small():
    assert is_small(problem())
    assert not is_small(problem("perceptron"))
    assert not is_small(problem("softmax-squared"))
    assert not is_small(replace(problem(n=2000), rows=np.zeros((2000, 3000), np.float32)))
    assert not is_small(problem(n=2000, d=40, R=10))
    assert is_small(problem(n=2000, d=40, R=10), MAX_WORK)
    with pytest.raises(ValueError, match="solver must be"):
        LinearClassifier("softmax", solver="newton").fit([[0.0], [1.0], [2.0]], [0, 1, 2])


@pytest.mark.parametrize("said", [True, False])
def test_what_the_last_iteration_hoped_for_is_not_believed_without_a_proof(said):
    """A solver that ran out of iterations where its estimate happened to be under tol (seed 1736 of the campaign)."""

    class Hopeful(LBFGS):
        def solve(self, objective, theta, control):
            return Solution(theta, control.max_iter, said)

    objective = problem(n=200, d=6, R=4, penalty=Penalty(ridge=1e-6))
    found = Task(objective, Hopeful()).solve(objective.zeros(), Control(max_iter=3, tol=1e-6))
    assert not found.converged
    assert found.n_iter <= 4


def test_a_bound_of_more_than_the_objective_is_put_in_words():
    theta = np.zeros((1, 2))
    assert Solution(theta, 1, False, 0.012).distance == ", about 0.012 of the objective above the optimum"
    assert Solution(theta, 1, False, 0.012, proved=True).distance.startswith(", at most 0.012")
    assert Solution(theta, 1, False, 6.9e16).distance == ", at an unknown distance from the optimum"
    assert Solution(theta, 1, False, np.inf).distance == ""
