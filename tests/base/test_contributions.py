"""Contributions add up to the score; sampled Shapley values agree with the sum over all sets of columns."""

from itertools import combinations
from math import factorial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import make_classification

import kway
from kway.base.contributions import BACKGROUND_ROWS, background_sample, shapley
from kway.errors import BudgetError

LINEAR = [kway.SoftmaxClassifier(), kway.SVMClassifier(), kway.LogisticClassifier(), kway.LeastSquaresClassifier()]


def problem(n_classes, d=6, seed=0, dtype=np.float64):
    X, y = make_classification(120, d, n_informative=4, n_redundant=1, n_classes=n_classes, random_state=seed)
    return X.astype(dtype), y


def decisions(model, X, codes):
    """The score of one class per row, from decision_function."""
    f = model.decision_function(X).astype(np.float64)
    return np.where(codes == 1, f, -f) if f.ndim == 1 else f[np.arange(len(X)), codes]


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("model", LINEAR, ids=lambda m: type(m).__name__)
def test_linear_contributions_add_up_to_the_score(model, dtype, n_classes):
    X, y = problem(n_classes, dtype=dtype)
    found = model.fit(X, y).explain(X)
    codes = np.searchsorted(model.classes_, found.labels)
    np.testing.assert_array_equal(found.labels, model.predict(X))
    np.testing.assert_allclose(found.details.scores, decisions(model, X, codes), rtol=1e-4, atol=1e-4)
    assert found.details.values.dtype == np.float64
    own, lead = found.details.values, np.take_along_axis(found.details.values, found.features, axis=1)
    assert own.shape == X.shape
    if n_classes == 2:  # the score of one of two classes is its lead over the other
        np.testing.assert_allclose(found.contributions, lead, rtol=1e-5)
        np.testing.assert_allclose(found.gaps, found.details.scores, rtol=1e-4, atol=1e-5)


def test_sparse_rows_have_sparse_contributions():
    X, y = problem(3)
    X[np.abs(X) < 0.5] = 0
    model = kway.SoftmaxClassifier().fit(X, y)
    dense, thin = model.explain(X), model.explain(sp.csr_matrix(X))
    assert thin.details.values.nnz == np.count_nonzero(X)
    np.testing.assert_allclose(thin.details.values.toarray(), dense.details.values, rtol=1e-12)
    np.testing.assert_allclose(thin.gaps, dense.gaps)
    assert "Contributions: 120 rows" in str(thin.details)


def test_names_of_a_frame_are_printed():
    from sklearn.datasets import load_iris

    X, y = load_iris(return_X_y=True, as_frame=True)
    found = kway.SoftmaxClassifier().fit(X, y).explain(X)
    assert "sepal width" in str(found)
    assert "petal length" in str(found.details)
    assert found.details.names == tuple(X.columns)


# ---- sampled Shapley values


def exact(score, x, code, background):
    """Shapley values by all sets of columns, and the mean score of the background."""
    d = len(x)

    def value(columns):
        mixed = background.copy()
        mixed[:, list(columns)] = x[list(columns)]
        return score(mixed, np.full(len(mixed), code)).mean()

    out = np.zeros(d)
    for j in range(d):
        others = [k for k in range(d) if k != j]
        for size in range(d):
            share = factorial(size) * factorial(d - size - 1) / factorial(d)
            out[j] += share * sum(value((*s, j)) - value(s) for s in combinations(others, size))
    return out, value(())


def bumpy(d, seed):
    """A score with interactions of all orders: two bumps and a product."""
    centers = np.random.default_rng(seed).normal(size=(2, d))

    def score(X, codes):
        apart = ((X[:, None] - centers) ** 2).sum(axis=2)
        return (codes + 1) * np.exp(-apart[:, 0] / d) - np.exp(-apart[:, 1] / d) + 0.2 * X[:, 0] * X[:, d - 1]

    return score


@pytest.mark.parametrize("d", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(3))
def test_shapley_values_agree_with_all_sets_of_columns(d, seed):
    rng = np.random.default_rng(seed)
    rows, background, codes = rng.normal(size=(2, d)), rng.normal(size=(6, d)), np.array([0, 1])
    score = bumpy(d, seed)
    found = shapley(score, rows, codes, background, orders=300)
    for i in range(2):
        values, baseline = exact(score, rows[i], codes[i], background)
        np.testing.assert_allclose(found.values[i], values, atol=1e-12 if d <= 2 else 0.01)
        np.testing.assert_allclose(found.baseline[i], baseline, atol=1e-12)


@pytest.mark.parametrize("d", [3, 8, 40])
def test_any_sample_adds_up_and_is_close_to_the_effect_of_the_columns(d):
    """The documented error of one order per background row: a tenth of the spread of the values."""
    rng = np.random.default_rng(d)
    rows, background, codes = rng.normal(size=(20, d)), rng.normal(size=(BACKGROUND_ROWS, d)), np.arange(20) % 2
    score = bumpy(d, 1)
    found = shapley(score, rows, codes, background)
    np.testing.assert_allclose(found.baseline + found.values.sum(axis=1), score(rows, codes), atol=1e-12)
    many = shapley(score, rows, codes, background, orders=40, seed=1)
    np.testing.assert_allclose(found.baseline, many.baseline, atol=1e-12)
    assert np.sqrt(((found.values - many.values) ** 2).mean()) < 0.1 * many.values.std()


def test_values_do_not_depend_on_other_rows_and_repeat():
    rng = np.random.default_rng(0)
    rows, background, codes = rng.normal(size=(5, 4)), rng.normal(size=(6, 4)), np.array([0, 1, 0, 1, 1])
    every, one = shapley(bumpy(4, 0), rows, codes, background), shapley(bumpy(4, 0), rows[3:4], codes[3:4], background)
    np.testing.assert_array_equal(every.values[3], one.values[0])


def test_columns_of_one_source_move_together():
    """Two copies of a column, of which the score reads one each: grouped, they are one column."""
    rng = np.random.default_rng(0)
    rows, background, codes = rng.normal(size=(3, 3)), rng.normal(size=(6, 3)), np.zeros(3, np.int64)
    twice = shapley(lambda Z, c: Z[:, 0] * Z[:, 3] + Z[:, 1], np.hstack([rows, rows[:, 2:]]), codes,
                    np.hstack([background, background[:, 2:]]), np.array([0, 1, 2, 2]), orders=50)  # fmt: skip
    once = shapley(lambda Z, c: Z[:, 0] * Z[:, 2] + Z[:, 1], rows, codes, background, orders=50)
    np.testing.assert_allclose(twice.values, once.values, atol=1e-12)


def test_background_rows_are_few_and_from_the_rows():
    rows = np.random.default_rng(0).normal(size=(100, 3))
    found = background_sample(rows)
    assert found.shape == (BACKGROUND_ROWS, 3)
    assert {tuple(row) for row in found} <= {tuple(row) for row in rows}
    np.testing.assert_array_equal(background_sample(rows[:5]), rows[:5])


def test_contributions_that_do_not_fit_raise_before_they_are_allocated(monkeypatch):
    X, y = problem(3)
    model = kway.SoftmaxClassifier().fit(X, y)
    monkeypatch.setenv("KWAY_MEMORY", "5KB")
    with pytest.raises(BudgetError, match="explain of 120 rows x 6 columns needs"):
        model.explain(X)


def test_a_model_without_contributions_has_no_explain():
    X, y = problem(3)
    model = kway.CentroidClassifier().fit(X, y)
    assert not hasattr(model, "explain")
    with pytest.raises(AttributeError, match="explain"):
        model.explain(X)
