"""Interior points against linear programs, scikit-learn, and optima known by hand."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.svm import SVC
from tests.helpers.linear import draw_objective

import kway
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.interior_point import (
    KinkedProblem,
    is_small_with_kinks,
    joint_work,
    solve_small,
)


def problem(form, penalty, **kwargs):
    return draw_objective("hinge", form, penalty, **kwargs)


def l1_optimum(o):
    """min lasso sum (u + v) + mean of slacks; W = u - v, slack >= 1 + f_c - f_y, or 1 - y f for one class at a time."""
    X, y, R = np.column_stack([o.X, np.ones(o.n)]), o.targets.codes, o.n_scores
    rows = []
    for i in range(o.n):
        for c in range(R):
            row = np.zeros((R, X.shape[1]))
            if o.loss.joint and c != y[i]:
                row[y[i]], row[c] = X[i], -X[i]
            elif not o.loss.joint:
                row[c] = X[i] if y[i] == (1 if R == 1 else c) else -X[i]
            else:
                continue
            rows.append(row.ravel())
    A = np.array(rows)
    weight = np.tile(np.append(np.full(o.d, o.penalty.lasso), 0.0), R)
    cost = np.concatenate([weight, weight, np.full(len(A), 1 / o.n)])
    return linprog(cost, A_ub=np.hstack([-A, A, -np.eye(len(A))]), b_ub=-np.ones(len(A)), method="highs").fun


@pytest.mark.parametrize("form", ["joint", "columns"])
def test_the_optimum_of_a_linear_program(form):
    o = problem(form, Penalty(lasso=0.02))
    found = solve_small(o, Control(1000, 1e-8))
    assert found.converged
    assert found.proved
    assert o.value(found.theta) == pytest.approx(l1_optimum(o), rel=1e-7)


def test_weights_that_l1_takes_out_are_exactly_zero():
    found = solve_small(problem("joint", Penalty(lasso=0.2)), Control(1000, 1e-6))
    assert (found.theta[:, :-1] == 0).mean() > 0.3


@pytest.mark.parametrize("C", [0.01, 100.0])
@pytest.mark.parametrize("units", [1.0, 1e6, np.array([1e-4, 1.0, 1e3, 1e5])], ids=["1", "1e6", "apart"])
def test_units_of_the_columns_do_not_matter(C, units):
    o = problem("columns", Penalty(ridge=1 / (60 * C)), K=2, units=units)
    found = solve_small(o, Control(1000, 1e-8))
    assert found.converged
    if np.ndim(units) == 0 and units == 1:
        svc = SVC(kernel="linear", C=C, tol=1e-9).fit(o.X, o.targets.codes)
        other = o.value(np.hstack([svc.coef_, [svc.intercept_]]))
        assert other * (1 - 1e-4) <= o.value(found.theta) <= other * (1 + 1e-8)


@pytest.mark.parametrize("penalty", [Penalty(ridge=1e-6), Penalty(ridge=1e-3, lasso=1e-3)])
@pytest.mark.parametrize("bias", [True, False])
def test_no_point_nearby_is_better(penalty, bias):
    o = problem("joint", penalty, bias=bias)
    found = solve_small(o, Control(1000, 1e-9))
    best, rng = o.value(found.theta), np.random.default_rng(1)
    for size in (1e-4, 1e-2):
        for _ in range(20):
            step = size * rng.normal(size=found.theta.shape)
            step[:, -1] *= bias
            assert o.value(found.theta + step) >= best * (1 - 1e-8)


def test_sparse_rows_and_rows_without_weight():
    o = problem("columns", Penalty(ridge=1e-2))
    weight = np.ones(60)
    weight[-10:] = 0
    some = Objective(o.X[:50], Targets(o.targets.codes[:50]), 3, o.loss, Penalty(ridge=1e-2))
    given = Objective(sp.csr_matrix(o.X), o.targets, 3, o.loss, o.penalty, True, weight / weight.mean())
    expected, found = (solve_small(p, Control(1000, 1e-9)) for p in (some, given))
    np.testing.assert_allclose(found.theta, expected.theta, atol=1e-5)


def test_large_problems_and_other_losses_are_left_to_other_methods():
    assert is_small_with_kinks(problem("joint", Penalty(1e-2)))
    assert not is_small_with_kinks(problem("joint", Penalty(1e-2)), max_work=1e3)
    assert not is_small_with_kinks(problem("joint", Penalty()))
    assert not is_small_with_kinks(problem("joint", Penalty(1e-2)).with_loss(LOSSES["rounded-hinge"].joint))


@pytest.mark.parametrize("penalty", [Penalty(0.02), Penalty(0.0, 0.02)], ids=["l2", "l1"])
@pytest.mark.parametrize("bias", [True, False])
def test_both_ways_to_factor_a_joint_problem_give_the_same_optimum(penalty, bias, monkeypatch):
    o = problem("joint", penalty, K=20, n=20, d=9, bias=bias)
    by_rows = solve_small(o, Control(1000, 1e-6))
    monkeypatch.setattr(KinkedProblem, "_factor_by_rows", KinkedProblem._factor_dense)
    whole = solve_small(o, Control(1000, 1e-6))
    assert joint_work(20, 20, 10).by_rows < joint_work(20, 20, 10).dense
    assert by_rows.converged
    assert by_rows.value == pytest.approx(whole.value, rel=1e-6)


def test_as_many_classes_as_rows():
    """L-BFGS took 15 s for 10,000 iterations and ended far above this optimum."""
    rng = np.random.default_rng(128)
    X = np.abs(rng.normal(size=(64, 64)))
    X[:, 0] += 3 * np.arange(64)
    found = kway.SVMClassifier().fit(X, np.arange(64))
    assert found.objective_ == pytest.approx(0.00014937, rel=1e-3)  # 14 steps with the whole matrix, gap 1e-4


@pytest.mark.parametrize(("max_iter", "advice"), [(2, "raise max_iter or tol"), (1000, "raise tol")])
def test_advice_names_max_iter_only_if_it_ended_the_fit(monkeypatch, max_iter, advice):
    monkeypatch.setattr("kway.linear.solvers.interior_point._MAX_STEPS", 3)
    X = np.random.default_rng(0).normal(size=(40, 3))
    objective = Objective(X, Targets((X[:, 0] > 0).astype(int)), 1, LOSSES["hinge"].columns, Penalty(ridge=0.1), True)
    solution = solve_small(objective, Control(max_iter=max_iter, tol=1e-9))
    assert not solution.converged
    assert solution.advice.startswith(advice)
