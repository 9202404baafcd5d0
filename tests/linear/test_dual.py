"""The dual solver against SVC, LinearSVC, L-BFGS, itself by other ways, and margins known by hand."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_digits, load_iris
from sklearn.svm import SVC, LinearSVC
from tests.helpers.rows import blobs

from kway.errors import CombinationError, NotSeparableError
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers import dual
from kway.linear.solvers.base import Control, check_needs
from kway.linear.solvers.dual import Ascent, Dual, best_hinge_bias, least_violation, separating_plane
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.registry import fastest_solver, prepare

HINGE = LOSSES["hinge"].columns


def problem(X, y, ridge, fit_intercept=True, weight=None):
    y = np.asarray(y, np.int64)
    n_scores = 1 if y.max() == 1 else int(y.max()) + 1
    return Objective(X, Targets(y), n_scores, HINGE, Penalty(ridge=ridge), fit_intercept, weight)


def solve(objective, tol=1e-3, seed=0, max_iter=2000):
    control = Control(max_iter, tol, rng=np.random.default_rng(seed))
    return Dual().solve(objective, objective.zeros(), control)


def scaled(load):
    X, y = load(return_X_y=True)
    return np.ascontiguousarray((X - X.mean(0)) / (X.std(0) + 1e-9)), y.astype(np.int64)


def overlapping(n=200, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 2
    return X, (X[:, 0] - 2 + 0.7 * rng.normal(size=n) > 0.5).astype(np.int64)


@pytest.fixture(params=["interior points", "sweeps", "sweeps, then interior points", "Newton's method"])
def way(request, monkeypatch):
    """The solver's ways, which the size of a problem chooses between."""
    if request.param != "interior points":
        monkeypatch.setattr(dual, "QUICK_WORK", 0)
    if request.param.startswith("sweeps"):
        monkeypatch.setattr(dual, "NEWTON_FEATURES", 0)
    if request.param == "sweeps":
        monkeypatch.setattr(dual, "SLOW_SWEEPS", 1000)
    return request.param


# ---------------------------------------------------------------- soft margin


@pytest.mark.parametrize("intercept", [True, False])
def test_newton_closes_the_gap_without_sweeps_if_features_are_few(intercept, monkeypatch):
    monkeypatch.setattr(dual, "QUICK_WORK", 0)
    monkeypatch.setattr(Ascent, "sweep", lambda *_: pytest.fail("swept"))
    objective = problem(*overlapping(n=8000, d=12), 1e-4, intercept)
    found = solve(objective, 1e-3)
    assert found.converged
    assert found.n_iter < 20
    assert found.history == pytest.approx([objective.value(found.theta)])


@pytest.mark.parametrize("C", [0.01, 1.0])
def test_svc_finds_the_same_with_a_free_bias(C, way):
    X, y = scaled(load_breast_cancer)
    objective = problem(X, y, 1 / (len(y) * C))
    found = solve(objective, 1e-5)
    svc = SVC(kernel="linear", C=C, tol=1e-7).fit(X, y)
    other = np.hstack([svc.coef_, svc.intercept_[:, None]])
    assert found.converged
    assert objective.value(found.theta) == pytest.approx(objective.value(other), rel=2e-5)
    np.testing.assert_allclose(found.theta, other, atol=2e-2 * np.abs(other).max())


@pytest.mark.parametrize("C", [0.01, 1.0])
def test_linear_svc_finds_the_same_without_bias(C, way):
    X, y = overlapping()
    objective = problem(X, y, 1 / (len(y) * C), fit_intercept=False)
    found = solve(objective, 1e-6)
    other = LinearSVC(loss="hinge", C=C, fit_intercept=False, tol=1e-9, max_iter=10**6, random_state=0).fit(X, y)
    assert objective.value(found.theta) <= objective.value(np.hstack([other.coef_, [[0.0]]])) * (1 + 1e-6)
    assert not found.theta[:, -1].any()


def test_large_boxes_are_no_harder():
    X, y = scaled(load_breast_cancer)
    found = solve(problem(X, y, 1 / (len(y) * 1000)), 1e-6)
    assert found.converged
    assert found.n_iter < 50


def test_one_against_the_rest_is_a_machine_a_class(way):
    X, y = scaled(load_iris)
    found = solve(problem(X, y, 1e-2), 1e-6)
    for k in range(3):
        single = problem(X, y == k, 1e-2)
        expected = single.value(solve(single, 1e-7).theta)
        assert single.value(found.theta[k : k + 1]) == pytest.approx(expected, rel=3e-6)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_the_gap_is_a_proof(fit_intercept, way):
    X, y = load_digits(return_X_y=True)
    objective = problem(X[:600] / 16, y[:600], 1e-3, fit_intercept)
    optimum = objective.value(solve(objective, 1e-8).theta)
    for tol in (1e-1, 1e-2, 1e-3):
        found = solve(objective, tol)
        excess = objective.value(found.theta) / optimum - 1
        assert found.converged
        assert -1e-8 <= excess <= found.rel_excess + 1e-9
        assert found.rel_excess <= tol


def test_sample_weights_scale_the_box(way):
    X, y = overlapping(80)
    times = np.arange(80) % 3  # weight 0, 1, 2: left out, once, twice
    weighted = problem(X, y, 1e-2, weight=times / times.mean())
    repeated = problem(np.repeat(X, times, axis=0), np.repeat(y, times), 1e-2)
    a, b = solve(weighted, 1e-7).theta, solve(repeated, 1e-7).theta
    assert weighted.value(a) == pytest.approx(repeated.value(b), rel=1e-6)
    assert repeated.value(a) == pytest.approx(repeated.value(b), rel=1e-6)


def test_csr_rows_and_float32_find_the_same(way):
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300] % 3
    expected = problem(X, y, 1e-3).value(solve(problem(X, y, 1e-3), 1e-7).theta)
    for rows in (sp.csr_array(X), X.astype(np.float32), sp.csr_array(X.astype(np.float32))):
        found = solve(problem(rows, y, 1e-3), 1e-5)
        assert found.theta.dtype == rows.dtype
        assert problem(X, y, 1e-3).value(found.theta.astype(np.float64)) == pytest.approx(expected, rel=2e-5)


def test_the_seed_decides(monkeypatch):
    monkeypatch.setattr(dual, "QUICK_WORK", 0)
    objective = problem(*overlapping(), 1e-3)
    np.testing.assert_array_equal(solve(objective, seed=1).theta, solve(objective, seed=1).theta)


def test_stopping_short_is_reported(monkeypatch):
    monkeypatch.setattr(dual, "QUICK_WORK", 0)
    found = solve(problem(*overlapping(), 1e-5), tol=1e-9, max_iter=2)
    assert not found.converged
    assert found.rel_excess > 1e-9
    assert found.advice


def test_a_loss_or_penalty_it_cannot_work_with_is_refused():
    for loss, penalty in (
        (LOSSES["hinge"].joint, Penalty(1.0)),
        (LOSSES["softmax"].joint, Penalty(1.0)),
        (HINGE, Penalty(0, 1)),
    ):
        with pytest.raises(CombinationError, match="dual"):
            check_needs(Dual(), loss, penalty)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 12), st.integers(0, 10**6))
def test_best_bias_is_best(n, seed):
    rng = np.random.default_rng(seed)
    f, y, weight = rng.integers(-3, 4, n) / 2, rng.choice([-1.0, 1.0], n), rng.uniform(0, 1, n)

    def loss(b):
        return weight @ np.maximum(0, 1 - y * (f + b))

    turns = y - f
    assert loss(best_hinge_bias(turns, y, weight)) <= min(loss(b) for b in turns) + 1e-12


# ---------------------------------------------------------------- hard margin


def hard(X, y, fit_intercept=True, tol=1e-8):
    return solve(problem(np.asarray(X, np.float64), y, 0.0, fit_intercept), tol)


def test_two_points():
    found = hard([[0, 0], [2, 0]], [0, 1])
    np.testing.assert_allclose(found.theta, [[1, 0, -1]], atol=1e-7)


def test_a_margin_known_by_hand(way):
    """Nearest points (0, 0) and (3, 4), distance 5: margin 5/2 along (3, 4) / 5, the plane half way."""
    X = [[0, 0], [-1, -1], [-4, 3], [3, 4], [7, 1], [5, 5]]
    found = hard(X, [0, 0, 0, 1, 1, 1], tol=1e-6)
    w, b = found.theta[0, :2], found.theta[0, 2]
    assert found.converged
    assert 1 / np.linalg.norm(w) == pytest.approx(2.5, rel=1e-6)
    np.testing.assert_allclose(w, [0.24, 0.32], atol=1e-3)
    assert w @ [1.5, 2] + b == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_hard_margin_is_the_limit_of_large_boxes(fit_intercept):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = X @ [1, -1, 0.5] > 0
    X += 0.3 * np.outer(np.where(y, 1, -1), [1, -1, 0.5])
    found = hard(X, y, fit_intercept)
    soft = solve(problem(X, y, 1e-9, fit_intercept), 1e-9)
    np.testing.assert_allclose(found.theta, soft.theta, rtol=1e-3, atol=1e-4)
    assert (np.where(y, 1, -1) * (X @ found.theta[0, :-1] + found.theta[0, -1])).min() >= 1 - 1e-9


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6])
def test_thin_margins_are_not_refused(gap):
    """Two points a gap apart on the diagonal, the others behind them: a margin of half the gap, known exactly."""
    rng = np.random.default_rng(1)
    X, side = rng.normal(size=(300, 4)), np.repeat([-1.0, 1.0], 150)
    normal = np.ones(4) / 2
    X += np.outer(side * (np.abs(X @ normal) + gap / 2) - X @ normal, normal)
    X[0], X[-1] = -gap / 2 * normal, gap / 2 * normal
    w, b = separating_plane(X, side, True, "the two classes")
    assert (side * (X @ w + b)).min() >= 1 - 1e-6
    found = hard(X, side > 0, tol=1e-3)
    assert 1 / np.linalg.norm(found.theta[0, :-1]) == pytest.approx(gap / 2, rel=2e-3)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_interior_points_finish_a_hard_margin_from_a_poor_hyperplane(fit_intercept):
    X = np.array([[0.0, 0], [-1, -1], [-4, 3], [3, 4], [7, 1], [5, 5]]) + (0 if fit_intercept else [-1.5, -2])
    ascent = Ascent(problem(X, [0, 0, 0, 1, 1, 1], 0.0, fit_intercept))
    ascent.best.theta[0], ascent.best.values[0] = 1e6, 1e9
    ascent.finish_hard(Control(tol=1e-6))
    assert ascent.gap <= 1e-6 * ascent.best.values[0]
    assert 1 / np.linalg.norm(ascent.best.theta[0, :2]) == pytest.approx(2.5, rel=1e-6)


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[0, 0], [1, 1], [0, 1], [1, 0]], [0, 0, 1, 1]),  # exclusive or
        ([[0, 0], [1, 0], [1, 0], [2, 0]], [0, 0, 1, 1]),  # one point with two labels
        ([[0.0], [1.0], [2.0]], [0, 1, 0]),  # one class between the other
        (*[part.tolist() for part in overlapping()],),
    ],
    ids=["xor", "two labels", "between", "overlapping"],
)
def test_what_no_plane_separates_is_refused(X, y):
    with pytest.raises(NotSeparableError, match=rf"of {len(y)} rows are on the wrong side.*alpha > 0"):
        hard(X, y)


def test_without_a_bias_the_plane_goes_through_the_origin():
    X, y = [[1.0, 0], [2.0, 0]], [0, 1]
    assert hard(X, y).converged
    with pytest.raises(NotSeparableError, match="through the origin"):
        hard(X, y, fit_intercept=False)


def test_one_class_of_three_between_the_others_is_refused():
    X = [[0.0], [0.1], [1.0], [1.1], [2.0], [2.1]]
    with pytest.raises(NotSeparableError, match="class number 1 and the rest"):
        hard(X, [0, 0, 1, 1, 2, 2])


def test_rows_join_the_linear_program_until_it_decides():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(3000, 3))
    y = X.sum(axis=1) > 0
    side = np.where(y, 1.0, -1.0)
    w, b = separating_plane(X, side, True, "the two classes")
    assert (side * (X @ w + b)).min() >= 1 - 1e-6
    side[np.argsort(np.abs(X.sum(axis=1)))[-1]] *= -1
    with pytest.raises(NotSeparableError):
        separating_plane(X, side, True, "the two classes")


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 12), st.integers(1, 3), st.booleans(), st.integers(0, 10**6))
def test_the_least_violation_is_zero_or_at_least_one(n, d, bias, seed):
    """The decision never is close: on a small grid, labels at random, both answers occur."""
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, 3, (n, d)).astype(float), rng.choice([-1.0, 1.0], n)
    verdict = least_violation(X, y, bias)
    separated = (y * (X @ verdict.w + verdict.b)).min() > 0
    assert verdict.violation < 1e-6 if separated else verdict.violation >= 1 - 1e-6


def test_zero_weight_rows_do_not_count():
    X, y = np.array([[0.0], [1.0], [2.0], [3.0], [0.5]]), np.array([0, 0, 1, 1, 1])
    weight = np.array([1.0, 1, 1, 1, 0]) * 5 / 4
    found = solve(problem(X, y, 0.0, weight=weight), 1e-8)
    np.testing.assert_allclose(found.theta, [[2, -3]], atol=1e-5)


# ---------------------------------------------------------------- all classes at once on sparse rows


def sparse_problem(seed, n=300, d=80, K=7, C=1.0, intercept=True, weighted=False):
    rng = np.random.default_rng(seed)
    codes = rng.integers(K, size=n)
    codes[:K] = np.arange(K)
    likely = rng.random((K, d)) < 0.15
    X = sp.csr_matrix((rng.random((n, d)) < np.where(likely[codes], 0.5, 0.05)) * rng.lognormal(size=(n, d)))
    X = X.astype(np.float32)
    weight = rng.random(n).astype(np.float32) + 0.5 if weighted else None
    if weight is not None:
        weight /= weight.mean()
    form = LOSSES["hinge"].columns
    penalty = Penalty(ridge=1 / (n * C))
    return Objective(X, Targets(codes), K, form, penalty, intercept, weight)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("intercept", [True, False])
def test_same_optimum_as_one_at_a_time(seed, intercept):
    objective = sparse_problem(seed, K=4 + 5 * seed, C=10.0 ** (seed - 2), intercept=intercept, weighted=seed % 2 == 1)
    ascent = Ascent(objective)
    ascent.sweep(400)
    best = Dual().solve(objective, objective.zeros(), Control(tol=1e-6, max_iter=100_000))
    value, least = objective.value(ascent.theta()), objective.value(best.theta)
    assert least * (1 - 1e-5) <= value <= least * (1 + 2e-3)
    if intercept:
        assert max(float(np.abs(group.s).max() / (group.a.sum() + 1e-9)) for group in ascent.groups) < 1e-3
    else:
        assert not ascent.theta()[:, -1].any()


def test_goes_on_under_another_penalty():
    objective = sparse_problem(9, C=0.1)
    ascent = Ascent(objective)
    ascent.sweep(50)
    ascent.change_ridge(objective.penalty.ridge / 30)
    ascent.sweep(1500)
    fresh = Ascent(ascent.objective)
    fresh.sweep(1500)
    assert ascent.objective.value(ascent.theta()) == pytest.approx(fresh.objective.value(fresh.theta()), rel=2e-3)
    ascent.change_ridge(objective.penalty.ridge)  # back to smaller boxes
    ascent.sweep(100)
    assert all((group.a <= ascent.upper[:, None]).all() for group in ascent.groups)


def test_groups_do_not_change_the_answer(monkeypatch):
    objective = sparse_problem(3, K=11)
    solutions = []
    for n_groups in (1, 4):
        monkeypatch.setattr(dual, "workers", lambda n=n_groups: n)
        solutions.append(Ascent(objective))
        assert len(solutions[-1].groups) == n_groups
        solutions[-1].sweep(200)
    whole, cut = solutions
    np.testing.assert_allclose(cut.theta(), whole.theta(), atol=0.02 * np.abs(whole.theta()).max())


@pytest.mark.parametrize("K", [1, 5, 12])
@pytest.mark.parametrize("intercept", [True, False])
def test_sweeps_of_a_rounded_hinge_prove_how_near_the_optimum_of_lbfgs_they_are(K, intercept):
    """K = 1: two classes, whose one machine is the second's."""
    sharp = sparse_problem(K, K=max(2, K), C=10.0 ** (K % 3 - 1), intercept=intercept, weighted=K == 5)
    exact = replace(sharp, rows=sharp.X.astype(np.float64), n_scores=K)
    objective = exact.with_loss(LOSSES["rounded-hinge"].columns)
    least = LBFGS().solve(objective, objective.zeros(), Control(tol=1e-10, max_iter=5000))
    optimum = objective.value(least.theta)
    for tol in (1e-1, 1e-6):
        found = Dual().solve(objective, objective.zeros(), Control(tol=tol, max_iter=20_000))
        value = objective.value(found.theta)
        assert found.converged
        assert found.proved
        assert optimum * (1 - 1e-9) <= value <= optimum * (1 + tol)
        assert value * (1 - found.rel_excess) <= optimum * (1 + 1e-9)  # what is proved of the optimum is true


def test_sweeps_that_are_too_few_say_so():
    objective = sparse_problem(2, C=100.0).with_loss(LOSSES["rounded-hinge"].columns)
    found = Dual().solve(objective, objective.zeros(), Control(tol=1e-6, max_iter=5))
    assert not found.converged
    assert "max_iter" in found.advice


def test_auto_sweeps_rows_that_are_sparse_and_wide():
    wide = sparse_problem(0, n=2000, d=3000).with_loss(LOSSES["rounded-hinge"].columns)
    assert fastest_solver(wide).name == "dual"
    assert fastest_solver(replace(wide, rows=wide.X[:, :400])).name == "lbfgs"
    assert fastest_solver(replace(wide, rows=wide.X.toarray())).name == "lbfgs"
    assert fastest_solver(replace(wide, penalty=Penalty())).name == "lbfgs"
    assert fastest_solver(replace(wide, n_scores=1 << 18)).name == "lbfgs"  # two gigabytes of dual variables


def test_sparse_rows_that_are_swept_stay_sparse():
    """Fewer of them than columns: in the columns of their span they would be dense, and fits a hundred times dearer."""
    few = sparse_problem(0, n=600, d=3000).with_loss(LOSSES["rounded-hinge"].columns)
    work = prepare(few, "auto")
    assert work.solver.name == "dual"
    assert work.objective is few


def test_interior_points_take_over_from_long_sweeps(monkeypatch):
    """Weak penalties need thousands of sweeps; a step of interior points is too dear for an early change."""
    monkeypatch.setattr(dual, "MAX_WORK", 0)
    monkeypatch.setattr(dual, "QUICK_WORK", 0)
    monkeypatch.setattr(dual, "NEWTON_FEATURES", 0)
    X, y = blobs(n=300, d=40, K=3, distance=1.0)
    found = solve(problem(X.astype(np.float64), y, ridge=1e-7), max_iter=10_000)
    assert found.converged
    assert dual.PATIENCE * 40 < found.n_iter < dual.PATIENCE * 40 + 100
