"""ExemplarClassifier: the solver reaches the minimum, scores are comparable, answers are near those of kNN."""

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

import kway
from kway.errors import BudgetError, InputError
from kway.neighbors import ExemplarClassifier
from kway.neighbors.exemplar import N_FOLDS, ExemplarProblem, folds_of, whitening_axes


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, random_state=0, stratify=y)


@pytest.fixture(scope="module")
def fitted(digits):
    X, _, y, _ = digits
    return ExemplarClassifier().fit(X, y)


def objective(w, rows, codes, folds, i, alpha, positive):
    """J_i by its definition, and its gradient."""
    f = rows @ w
    negative = (codes != codes[i]) & (folds != folds[i])
    over, miss = np.maximum(0, 1 + f) * negative / max(1, negative.sum()), max(0.0, 1 - f[i])
    value = alpha / 2 * w @ w + positive / 2 * miss**2 + 0.5 * over @ np.maximum(0, 1 + f)
    return value, alpha * w - positive * miss * rows[i] + over @ rows


def small_problem(alpha=1e-2, positive=1.0):
    """Digits along their own columns, so that the penalty is the same for all of them."""
    X, y = load_digits(return_X_y=True)
    X = X[:300] - X[:300].mean(axis=0)
    rows = X / np.sqrt(np.square(X).sum(axis=1).mean())
    return ExemplarProblem.of(rows, np.full(64, alpha), y[:300], alpha, positive)


def test_gradients_are_those_of_the_objective():
    problem, own = small_problem(), np.array([3, 77, 140])
    weights = np.random.default_rng(0).normal(size=(3, 65))
    value, slopes = problem.value_and_gradient(weights.ravel(), own, problem._negatives(own))
    each = [objective(w, problem.rows, problem.codes, problem.folds, i, 1e-2, 1.0) for w, i in zip(weights, own)]
    assert value == pytest.approx(sum(value for value, _ in each))
    np.testing.assert_allclose(slopes.reshape(3, 65), [slope for _, slope in each], atol=1e-10)


@pytest.mark.parametrize("alpha", [1e-3, 1e-2, 1e-1])
def test_every_exemplar_is_at_its_minimum(alpha):
    problem = small_problem(alpha)
    weights = problem.solve(slice(100, 110), max_iter=1000, tol=1e-7).weights
    for w, i in zip(weights, range(100, 110)):
        args = (problem.rows, problem.codes, problem.folds, i, alpha, problem.positive)
        best = minimize(objective, np.zeros(65), args, jac=True, method="L-BFGS-B", options={"maxiter": 5000}).fun
        assert objective(w, *args)[0] <= best * 1.01


def test_whitened_rows_and_their_penalty_have_unit_moments():
    X, _ = load_digits(return_X_y=True)
    X = X - X.mean(axis=0)
    axes = whitening_axes(X, 0.5)
    assert axes.matrix.shape == (64, 61)  # three pixels are always 0
    Z = X @ axes.matrix
    np.testing.assert_allclose(Z.T @ Z / len(Z) + np.diag(axes.ridge), np.eye(61), atol=1e-9)


def test_folds_spread_every_class():
    codes = np.repeat([0, 1, 2], [40, 9, 3])
    folds = folds_of(codes)
    for c in range(3):
        counts = np.bincount(folds[codes == c], minlength=N_FOLDS)
        assert counts.max() - counts.min() <= 1


def test_close_to_nearest_neighbors_on_digits(digits, fitted):
    X, Q, y, yq = digits
    nearest = KNeighborsClassifier().fit(X, y).score(Q, yq)  # 0.980
    assert fitted.score(Q, yq) > nearest - 0.015
    assert fitted.score(Q, yq) > 0.96


def test_calibrated_scores_are_probabilities_of_the_same_class(digits, fitted):
    """On unseen rows, of the exemplars that say 0.9, about nine in ten are of the row's class."""
    _, Q, y, yq = digits
    rows = fitted._scaled(Q)
    p = 1 / (1 + np.exp(-(rows @ fitted.exemplars_.T + fitted.offsets_)))  # (q, n)
    same = yq[:, None] == y
    for low, high in ((0.0, 0.1), (0.4, 0.6), (0.8, 1.0)):
        some = (p >= low) & (p <= high)
        assert abs(p[some].mean() - same[some].mean()) < 0.12


def test_voters_probabilities_and_topk_agree(digits, fitted):
    _, Q, y, _ = digits
    rows, shares = fitted.voters(Q)
    p = fitted.predict_proba(Q)
    for i in range(0, len(Q), 40):
        np.testing.assert_allclose(p[i], np.bincount(y[rows[i]], shares[i], 10), atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(Q), p.argmax(axis=1))
    np.testing.assert_array_equal(fitted.predict_topk(Q, 2).ids[:, 0], fitted.predict(Q))


def test_more_than_some_thousand_rows_are_refused():
    with pytest.raises(BudgetError, match="NeighborsClassifier"):
        ExemplarClassifier().fit(np.zeros((7000, 2)), np.arange(7000) % 2)


@pytest.mark.parametrize("bad", [{"n_exemplars": 0}, {"alpha": 0.0}])
def test_bad_parameters_are_named(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        ExemplarClassifier(**bad).fit([[0.0], [1.0]], [0, 1])


def test_a_model_file_gives_the_same_answers(digits, fitted, tmp_path):
    _, Q, _, _ = digits
    fitted.save(tmp_path / "model.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "model.kway").predict_proba(Q), fitted.predict_proba(Q))


def test_rows_that_are_all_the_same_and_queries_far_out():
    X = np.full((8, 2), [3.03e-161, -1.1e-161])
    model = ExemplarClassifier(max_iter=20).fit(X, np.arange(8) % 3)
    for Q in (X[:2], X[:2] * 1e100, np.full((2, 2), 3e38, np.float32)):
        np.testing.assert_allclose(model.predict_proba(Q).sum(axis=1), 1)
