"""A column that is the same in every row says nothing, whatever its size: the answers without it, or a sentence."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.errors import KwayError

MODELS = {
    "softmax": kway.SoftmaxClassifier,
    "softmax l1": lambda: kway.SoftmaxClassifier(penalty="l1", alpha=1e-3),
    "softmax lbfgs": lambda: kway.SoftmaxClassifier(solver="lbfgs"),
    "logistic": kway.LogisticClassifier,
    "svm": kway.SVMClassifier,
    "svm l1": lambda: kway.SVMClassifier(penalty="l1", alpha=1e-3),
    "svm one-vs-all": lambda: kway.SVMClassifier(multiclass="one-vs-all"),
    "svm dual": lambda: kway.SVMClassifier(multiclass="one-vs-all", solver="dual"),
    "perceptron": kway.PerceptronClassifier,
    "least squares": kway.LeastSquaresClassifier,
    "centroid": kway.CentroidClassifier,
}
SIZES = [1e6, 3e12, 1e15, 1.1e17, 7e20, 1e30, 1e60, 1e100]


def drawn(seed: int, n_classes: int):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(20, 120))
    y = np.arange(n) % n_classes
    return rng.normal(size=(n, 3)) + 3 * np.eye(3)[y], y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", MODELS)
def test_a_constant_of_any_size_changes_no_answer(name, dtype):
    wrong = []
    for seed, n_classes in ((0, 2), (1, 3)):
        X, y = drawn(seed, n_classes)
        plain = MODELS[name]().fit(X.astype(dtype), y).predict(X.astype(dtype))
        for size in SIZES if dtype == np.float64 else [*SIZES[:6], 1e36]:
            Z = np.column_stack([X, np.full(len(X), size)]).astype(dtype)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                try:
                    alike = (MODELS[name]().fit(Z, y).predict(Z) == plain).mean()
                except KwayError:
                    continue
            if alike < 0.95 and not said:
                wrong.append((n_classes, size, alike))
    assert not wrong


def test_naive_bayes_tells_a_share_of_nearly_one_from_one():
    """The exact logarithm of the largest share, by whole numbers: -log(N_j / sum N) = log1p(others / N_j)."""
    X = np.array([[3, 1, 1e17], [1, 2, 1e17], [0, 5, 1e17], [2, 2, 1e17]])
    W = kway.NaiveBayesClassifier().fit(X, [0, 0, 1, 1]).coef_
    others = [2 + 0 + 2 + 5 + 2, 2 + 3 + 1 + 1 + 2]  # of class 0: rows 2 and 3; of class 1: rows 0 and 1
    np.testing.assert_allclose(W[0, 2], others[1] / 2e17 - others[0] / 2e17, rtol=1e-6)


@pytest.mark.parametrize("form", ["dense", "sparse", "parts", "index", "file"])
@pytest.mark.parametrize("size", [1e12, 1e18, 1e23, 1e30, 1e36])
@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e4])
def test_class_means_of_float32_beside_a_constant_are_those_of_float64(form, size, unit, tmp_path):
    """Shares too: float32 lost the squares of what lies beside a constant of 1e22, sparse rows their spread at 1e8."""
    X, y = drawn(2, 3)
    plain = (unit * np.column_stack([X, np.ones(len(X))])).astype(np.float32)
    Z = plain.copy()
    Z[:, -1] = size
    rows = sp.csr_matrix(Z) if form == "sparse" else Z
    model = kway.CentroidClassifier(index="flat" if form == "index" else None)
    first = 7 if form == "parts" else len(y)
    weights = np.random.default_rng(3).uniform(0.1, 2, len(y))
    try:
        model.partial_fit(rows[:first], y[:first], [0, 1, 2, 3], weights[:first])  # of class 3 there are no rows
        if first < len(y):
            model.partial_fit(rows[first:], y[first:], sample_weight=weights[first:])
    except KwayError:
        assert size / unit > 1e33  # beyond what float32 holds at once
        return
    if form == "file":
        model.save(tmp_path / "m.kway")
        model = kway.load(tmp_path / "m.kway")
    wide = plain.astype(np.float64)
    expected = kway.CentroidClassifier().fit(wide, y, sample_weight=weights)
    found = model.predict_proba(rows)
    np.testing.assert_allclose(found[:, :3], expected.predict_proba(wide), atol=2e-3)
    np.testing.assert_array_equal(model.predict(rows), expected.predict(wide))
    assert found.dtype == model.decision_function(rows).dtype == np.float32
    assert not found[:, 3:].any()


@pytest.mark.parametrize("unit", [1e-100, 1e-160, 1e-300])
@pytest.mark.parametrize("model", [kway.SoftmaxClassifier, kway.SVMClassifier])
def test_columns_in_tiny_units_leave_the_biases(unit, model):
    """1 / unit^2 was infinite: the fit ended with NaN inside, and every row got the first class."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(300) < 0.8, 3, rng.integers(0, 4, 300))
    X = rng.normal(size=(300, 8)) * unit
    found = model().fit(X, y)
    assert found.score(X, y) >= (y == 3).mean()
    assert np.isfinite(found.coef_).all()
