"""Preconditioners against dense inverses of the Hessian's main part, and on matrices that cannot be inverted."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from kway.linear.losses import LOSSES, Targets, softmax
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers import lbfgs
from kway.linear.solvers import preconditioners as precondition
from kway.linear.solvers.base import Control
from kway.linear.solvers.preconditioners import Diagonal, moments, quick_moments, safe_inverse, sample_rows
from kway.linear.solvers.stopping import newton_step
from kway.rows.matrices import invert

RIDGE = 0.05


def problem(n=300, d=7, R=4, dtype=np.float64, form="joint", ridge=RIDGE, **kwargs) -> Objective:
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((n, d)) * np.geomspace(0.1, 10, d)).astype(dtype)
    return Objective(X, Targets(rng.integers(0, R, n)), R, LOSSES["softmax"]._asdict()[form], Penalty(ridge), **kwargs)


def gram(objective, weight=None):
    X = np.column_stack((objective.X, np.ones(objective.n))) if objective.fit_intercept else objective.X
    return X.T @ (X * (1.0 if weight is None else weight[:, None])) / objective.n


def ridged(A, objective):
    out = A + objective.penalty.ridge * np.eye(len(A))
    if objective.fit_intercept:
        out[-1, -1] -= objective.penalty.ridge
    return out


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_shared_is_the_inverse_at_zero(fit_intercept, weighted):
    weight = np.random.default_rng(1).random(300) * 2 if weighted else None
    objective = problem(fit_intercept=fit_intercept, weight=weight)
    gradient = np.random.default_rng(2).standard_normal((4, 8))
    found = moments(objective).shared()(gradient)
    D = 7 + fit_intercept
    expected = np.linalg.solve(ridged(gram(objective, weight) / 4, objective), gradient[:, :D].T).T
    np.testing.assert_allclose(found[:, :D], expected, rtol=1e-6)
    assert fit_intercept or not found[:, -1].any()


@pytest.mark.parametrize("form", ["columns", "joint"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_own_is_the_inverse_of_the_shared_matrix_and_the_means_of_the_classes(form, fit_intercept, weighted, sparse):
    weight = np.random.default_rng(1).random(300) * 2 if weighted else None
    dense = problem(form=form, fit_intercept=fit_intercept, weight=weight)
    objective = replace(dense, rows=sp.csr_matrix(dense.X)) if sparse else dense
    theta, D = np.random.default_rng(3).standard_normal((4, 8)) * 0.3, 7 + fit_intercept
    gradient = np.random.default_rng(2).standard_normal((4, 8))
    if form == "joint":
        gradient -= gradient.mean(axis=0)
    found = moments(objective).with_class_means(objective, theta)(gradient)
    scores = dense.X @ theta[:, :-1].T + theta[:, -1]
    p = softmax(scores) if form == "joint" else 1 / (1 + np.exp(-scores))
    h = p * (1 - p) * (1 if weight is None else weight[:, None])
    own = dense.targets.codes[:, None] == np.arange(4)
    shared = np.where(own, 0, h).sum(axis=0).mean() / 300 * gram(dense, weight)
    Z = np.column_stack((dense.X, np.ones(300)))[:, :D]
    expected = np.zeros((4, 8))
    for k in range(4):
        mean, mass = np.average(Z[own[:, k]], axis=0, weights=h[own[:, k], k]), h[own[:, k], k].sum() / 300
        expected[k, :D] = np.linalg.solve(ridged(shared, dense) + mass * np.outer(mean, mean), gradient[k, :D])
    if form == "joint":
        expected -= expected.mean(axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)


def clustered(n, d, R, seed=0):
    """Rows of unit length around the centres of their classes, fewer a class than columns: as embeddings lie."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, R, n)
    X = (rng.standard_normal((R, d))[codes] + 1.5 * rng.standard_normal((n, d))) * np.geomspace(1, 0.05, d)
    X = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    return Objective(X, Targets(codes), R, LOSSES["softmax"].joint, Penalty(1e-5))


def test_the_means_of_small_classes_save_steps(monkeypatch):
    objective = clustered(6_000, 100, 80)
    with_means = lbfgs.solve_smooth(objective, objective.zeros(), Control(), prove=True)
    monkeypatch.setattr(precondition.Moments, "suits_class_means", lambda self, rows: False)
    monkeypatch.setattr(precondition.Moments, "cost_per_class", lambda self, rows: np.inf)
    without = lbfgs.solve_smooth(objective, objective.zeros(), Control(), prove=True)
    assert with_means.converged
    assert with_means.proved
    assert with_means.n_iter <= 0.8 * without.n_iter


def test_per_class_weighs_rows_by_their_curvature():
    objective = problem(form="columns")
    theta = np.random.default_rng(3).standard_normal((4, 8)) * 0.3
    gradient = np.random.default_rng(2).standard_normal((4, 8))
    known = moments(objective)
    found = known.per_class(objective, theta)(gradient)
    p = 1 / (1 + np.exp(-(objective.X @ theta[:, :-1].T + theta[:, -1])))
    for k in range(4):
        h = p[:, k] * (1 - p[:, k])
        A = 0.9 * gram(objective, h) + 0.1 * h.mean() * gram(objective)
        np.testing.assert_allclose(found[k], np.linalg.solve(ridged(A, objective), gradient[k]), rtol=1e-6)


def test_newton_is_the_inverse_hessian():
    objective = problem()
    theta = objective.center_scores(np.random.default_rng(3).standard_normal((4, 8)) * 0.2)
    gradient = objective.center_scores(np.random.default_rng(2).standard_normal((4, 8)))
    step = newton_step(objective, theta, gradient).direction
    h = 1e-6
    _, up = objective.value_gradient(theta + h * step)
    _, down = objective.value_gradient(theta - h * step)
    np.testing.assert_allclose((up - down) / (2 * h), gradient, atol=1e-5)  # Hessian times step


def test_newton_weighs_rows():
    objective = problem(weight=np.random.default_rng(1).random(300) * 2)
    assert softmax(np.zeros((1, 4)))[0, 0] == 0.25
    step = newton_step(objective, objective.zeros(), objective.center_scores(np.eye(4, 8))).direction
    _, up = objective.value_gradient(1e-6 * step)
    _, down = objective.value_gradient(-1e-6 * step)
    np.testing.assert_allclose((up - down) / 2e-6, objective.center_scores(np.eye(4, 8)), atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_singular_matrices_do_not_raise(dtype):
    A = np.ones((6, 6), dtype, order="F")
    assert np.isfinite(np.triu(safe_inverse(A, np.zeros(6)))).all()
    assert np.isfinite(np.triu(safe_inverse(np.zeros((6, 6), dtype, order="F"), np.zeros(6)))).all()
    indefinite = np.asfortranarray(-np.ones((3, 3)) + 1.5 * np.eye(3)).astype(dtype, order="F")
    assert np.isfinite(np.triu(safe_inverse(indefinite, np.zeros(3)))).all()


def test_wide_sparse_rows_get_a_diagonal(monkeypatch):
    objective = problem(form="columns")
    dense = moments(objective)
    monkeypatch.setattr(precondition, "MAX_SPARSE_FEATURES", 3)
    sparse = Objective(sp.csr_matrix(objective.X), objective.targets, 4, objective.loss, objective.penalty)
    known = moments(sparse)
    factor = known.shared()
    assert isinstance(factor, Diagonal)
    np.testing.assert_allclose(known.gram, np.diag(dense.gram), rtol=1e-12)
    np.testing.assert_allclose(factor(np.ones((4, 8)))[0, :-1], 1 / (np.diag(dense.gram)[:-1] / 4 + RIDGE), rtol=1e-12)
    assert known.cost_per_class(sparse) == 1


def test_diagonals_of_each_class_are_those_of_the_hessian(monkeypatch):
    weight = np.random.default_rng(1).random(300) * 2
    objective = problem(form="columns", weight=weight)
    objective = replace(objective, rows=sp.csr_matrix(objective.X))
    monkeypatch.setattr(precondition, "MAX_SPARSE_FEATURES", 5)
    monkeypatch.setattr(precondition, "PLAIN_SHARE", 0.0)
    theta = np.random.default_rng(3).standard_normal((4, 8)) * 0.3
    found = moments(objective).per_class(objective, theta)(np.ones((4, 8)))
    X = np.column_stack((objective.X.toarray(), np.ones(300)))
    p = 1 / (1 + np.exp(-X @ theta.T))  # (n, R)
    expected = (p * (1 - p) * weight[:, None]).T @ X**2 / 300 + RIDGE * (np.arange(8) < 7)
    np.testing.assert_allclose(found, 1 / expected, rtol=1e-9)


def test_a_sample_keeps_each_features_mean_square():
    objective = problem(n=4000, R=2)
    X = objective.X.copy()
    X[:, 3] = 0
    X[17, 3] = 100.0  # a feature that a sample will miss
    objective = Objective(X, objective.targets, 2, objective.loss, objective.penalty)
    sample = sample_rows(objective)
    assert sample is not None
    assert sample.n == 8 * 7 + 1000
    quick = moments(sample, objective.mean_squares()[0])
    assert quick.gram[3, 3] >= 100.0**2 / 4000 * 0.999
    assert quick_moments(objective, None).gram[3, 3] == pytest.approx(100.0**2 / 4000)


def test_curvatures_of_many_rows_and_classes_are_those_of_some_rows(monkeypatch):
    """What is held of all rows and classes has a limit; factors of some rows are much like those of all."""
    objective = problem(n=20_000, form="columns")
    theta = np.random.default_rng(3).standard_normal((4, 8)) * 0.3
    gradient = np.random.default_rng(2).standard_normal((4, 8))
    whole = moments(objective).per_class(objective, theta)(gradient)
    monkeypatch.setattr(precondition, "MAX_FACTOR_BYTES", 8 * 4 * 4000)
    seen = []
    curvatures = Objective.curvatures
    monkeypatch.setattr(Objective, "curvatures", lambda rows, at: seen.append(rows.n) or curvatures(rows, at))
    some = moments(objective).per_class(objective, theta)(gradient)
    assert seen == [4000]
    assert np.linalg.norm(some - whole) < 0.1 * np.linalg.norm(whole)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_factors_per_class_are_inverses_of_weighted_matrices(dtype, fit_intercept):
    weight = np.random.default_rng(1).random(300) * 2
    objective = problem(R=12, form="columns", dtype=dtype, weight=weight.astype(dtype), fit_intercept=fit_intercept)
    theta = np.random.default_rng(3).standard_normal((12, 8)).astype(dtype) * dtype(0.1)
    theta[:, 7] *= fit_intercept
    g = np.random.default_rng(4).standard_normal((12, 8)).astype(dtype)
    found = moments(objective).per_class(objective, theta)(g)
    h, share = objective.curvatures(theta).astype(float), precondition.PLAIN_SHARE
    D = 8 if fit_intercept else 7
    for k in range(12):
        A = (1 - share) * gram(objective, h[k]) + precondition.plain_mass(h)[k] * gram(objective, weight)
        expected = np.linalg.solve(ridged(A, objective), g[k, :D].astype(float))
        np.testing.assert_allclose(found[k, :D], expected, rtol=2e-3, atol=1e-4 * np.abs(expected).max())
    assert found.dtype == dtype


def test_small_classes_that_cannot_be_inverted_get_a_factor_all_the_same():
    objective = problem(R=9, form="columns", ridge=0.0)
    objective = replace(objective, rows=np.repeat(objective.X[:, :1], 7, axis=1))  # seven times the same column
    found = moments(objective).per_class(objective, objective.zeros())(np.ones((9, 8)))
    assert np.isfinite(found).all()


@pytest.mark.parametrize("D", [1, 2, 63, 64, 65, 130])
def test_an_upper_triangle_is_mirrored_whatever_lies_below_it(D):
    rng = np.random.default_rng(D)
    whole = rng.standard_normal((D, D))
    whole += whole.T
    upper = np.asfortranarray(np.triu(whole) + np.tril(rng.standard_normal((D, D)), -1))
    kept = upper.copy()
    assert np.array_equal(precondition.mirrored(upper), whole)
    assert np.array_equal(upper, kept)


def test_an_empty_matrix_is_inverted_without_a_word(capfd):
    """LAPACK printed an error for each of a dozen attempts: classes without free weights have empty matrices."""
    assert invert(np.empty((0, 0), order="F"))
    assert capfd.readouterr() == ("", "")
