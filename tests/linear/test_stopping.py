"""When a run may end: what tol is relative to, and separable classes without a penalty, which have no optimum."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from kway import LinearClassifier
from kway.linear.losses import LOSSES, Targets, gaps
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.linear.solvers.dual import Dual
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.stopping import SEPARABLE, separated, tol_scale


def problem(seed, K, loss, gap=0.0, ridge=0.0, lasso=0.0, weighted=False):
    """Classes `gap` apart along columns of their own; some rows count for nothing where they are `weighted`."""
    rng = np.random.default_rng(seed)
    codes = np.append(np.arange(K), rng.integers(K, size=60))
    X = rng.uniform(-1, 1, (len(codes), K + 2))
    X[np.arange(len(codes)), codes] += gap
    weight = rng.integers(0, 3, len(codes)) * 1.0 if weighted else None
    if weight is not None:
        weight[:K] = 1.0
        weight /= weight.mean()
    R = 1 if K == 2 else K
    form = LOSSES[loss].columns if R == 1 else LOSSES[loss].joint
    return Objective(X, Targets(codes), R, form, Penalty(ridge, lasso), True, weight)


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9))
def test_tol_is_relative_to_the_objective_or_to_what_is_least(value, least):
    scale = tol_scale(value, least)
    assert scale > 0
    assert scale == max(abs(value), least) or max(abs(value), least) < 1e-291


@pytest.mark.parametrize("solver", [LBFGS()], ids=lambda solver: solver.name)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("K", [2, 3, 5])
def test_separable_classes_without_a_penalty_have_no_optimum_to_whichever_solver(solver, weighted, K):
    for seed in range(3):
        objective = problem(seed, K, "softmax", gap=3.0, weighted=weighted)
        found = solver.solve(objective, objective.zeros(), Control())
        assert not found.converged
        assert found.advice == SEPARABLE
        assert found.rel_excess == np.inf
        overlapping = problem(seed, K, "softmax", weighted=weighted)
        assert solver.solve(overlapping, overlapping.zeros(), Control()).converged


@pytest.mark.parametrize("penalty", [{"ridge": 1e-9}, {"lasso": 1e-9}])
def test_with_a_penalty_there_is_an_optimum_however_well_classes_are_apart(penalty):
    assert separated(problem(0, 3, "softmax", gap=3.0), 1e-12)
    assert not separated(problem(0, 3, "softmax", gap=3.0, **penalty), 1e-12)
    assert not separated(problem(0, 3, "hinge", gap=3.0), 1e-12)  # a hinge ends at 0


@pytest.mark.parametrize("least", [0.0, 10.0])
def test_dual_measures_what_it_misses_by_what_tol_is_relative_to(least):
    objective = problem(1, 2, "rounded-hinge", ridge=1e-4)
    found = Dual().solve(objective, objective.zeros(), Control(tol=0.05, min_scale=least))
    assert found.converged
    assert found.rel_excess <= 0.05


@given(st.integers(0, 1 << 16), st.integers(2, 5), st.booleans())
def test_gaps_of_a_hinge_are_what_its_kernel_adds_up(seed, K, joint):
    rng = np.random.default_rng(seed)
    R = K if joint or K > 2 else 1
    loss, codes = getattr(LOSSES["hinge"], "joint" if joint else "columns"), rng.integers(K, size=7)
    scores = rng.normal(size=(7, R)) * 2
    found = np.maximum(gaps(loss, scores, codes), 0)
    if joint:
        found[np.arange(7), codes] = 0
    np.testing.assert_allclose(found.sum(axis=1), loss.value_gradient(scores, Targets(codes))[0], atol=1e-12)


@pytest.mark.parametrize("loss", ["softmax", "rounded-hinge", "squared", "logistic"])
@pytest.mark.parametrize("seed", range(8))
def test_a_tol_that_float32_cannot_tell_is_held_in_float64(loss, seed):
    rng = np.random.default_rng(seed)
    n, d, tol = int(rng.integers(20, 400)), int(rng.integers(1, 40)), float(10.0 ** -rng.integers(7, 10))
    X = (rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, d) + rng.choice([0, 30])).astype(np.float32)
    X = sp.csr_matrix(X * (rng.random((n, d)) < 0.4)) if rng.random() < 0.3 else X
    y = np.append(np.arange(3), rng.integers(0, 3, n - 3))
    weight = rng.uniform(0.1, 2, n) if rng.random() < 0.5 else None
    how = {"loss": loss, "alpha": 10.0 ** rng.uniform(-4, 0), "tol": tol}
    narrow = LinearClassifier(**how).fit(X, y, sample_weight=weight)
    wide = LinearClassifier(**how).fit(X.astype(np.float64), y, sample_weight=weight)
    assert narrow.coef_.dtype == narrow.intercept_.dtype == np.float32
    assert narrow.objective_ == pytest.approx(wide.objective_, rel=2 * tol)
    np.testing.assert_allclose(narrow.coef_, wide.coef_, atol=1e-5 * np.abs(wide.coef_).max())


def test_early_stopping_of_two_classes_with_one_validation_row():
    X = np.arange(10.0)[:, None]
    model = LinearClassifier(early_stopping=0.1).fit(X, X[:, 0] > 4)
    assert model.coef_.shape == (1, 1)
