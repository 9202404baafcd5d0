"""Complement naive Bayes against scikit-learn's, and as a family of the comparison."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.naive_bayes import ComplementNB

import kway
from kway.auto.race.families import FAMILIES
from kway.auto.race.scoring import FoldedRows
from kway.errors import InputError


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), n_classes=st.integers(2, 7), smoothing=st.floats(1e-3, 10), sparse=st.booleans())
def test_answers_as_scikit_learn_does(seed, n_classes, smoothing, sparse):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.7, (50, 12)) * rng.uniform(0, 2, (50, 12))
    y, w = np.r_[np.arange(n_classes), rng.integers(0, n_classes, 50 - n_classes)], rng.uniform(0.5, 2, 50)
    rows = sp.csr_matrix(X) if sparse else X
    ours = kway.NaiveBayesClassifier(smoothing).fit(rows, y, sample_weight=w)
    theirs = ComplementNB(alpha=smoothing).fit(rows, y, sample_weight=w)
    np.testing.assert_allclose(ours.predict_proba(rows), theirs.predict_proba(rows), atol=1e-9)
    assert ours.coef_.shape == (1 if n_classes == 2 else n_classes, 12)


def test_what_it_refuses():
    with pytest.raises(InputError, match="smoothing"):
        kway.NaiveBayesClassifier(0.0).fit([[1.0], [2.0]], [0, 1])
    assert not hasattr(kway.NaiveBayesClassifier(), "partial_fit")
    X, y = np.array([[1.0, -3.0], [2.0, 1.0], [0.0, 2.0]]), [0, 0, 1]
    plain = kway.NaiveBayesClassifier().fit(np.maximum(X, 0), y)
    np.testing.assert_array_equal(kway.NaiveBayesClassifier().fit(X, y).coef_, plain.coef_)


def test_it_is_compared_on_counts_alone():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 12)
    chance = rng.dirichlet(np.full(400, 0.05), 4)  # words that classes use
    X = sp.csr_matrix(np.array([rng.multinomial(60, chance[c] * 0.1 + 0.9 / 400) for c in y]), dtype=np.float32)
    found = kway.compare(X, y, models=None, folds=2)
    assert "naive-bayes" in found.scans
    folds, family = np.arange(len(y)) % 5, FAMILIES["naive-bayes"]
    assert family.skip_reason(FoldedRows(X, y, folds)) == ""
    assert family.skip_reason(FoldedRows(X.toarray(), y, folds))
    assert family.skip_reason(FoldedRows(-X, y, folds))


@pytest.mark.parametrize("size", [1e-320, 1e-30, 1.0, 1e30, 1e308])
def test_counts_of_any_size_give_weights(size):
    """Sums that leave float64 gave NaN, and a refusal of any row at predict."""
    X, y = np.array([[1.0, 0, 0.5], [0.5, 0.9, 1], [0, 1, 1], [0, 0.8, 1]]) * size, [0, 0, 1, 2]
    model = kway.NaiveBayesClassifier(smoothing=size).fit(X, y)
    plain = kway.NaiveBayesClassifier().fit(X / size, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-2 if size < 1e-300 else 1e-9)
    heavy = kway.NaiveBayesClassifier().fit(X / size, y, sample_weight=np.full(4, 1e308))
    assert np.isfinite(heavy.coef_).all()
    tiny = kway.NaiveBayesClassifier(smoothing=5e-324).fit(X, y)
    assert np.isfinite(tiny.coef_).all()


def test_smoothing_is_a_finite_number():
    with pytest.raises(InputError, match="smoothing must be a number above 0"):
        kway.NaiveBayesClassifier(smoothing=np.inf).fit(np.eye(3), [0, 1, 2])


@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("n_classes", [2, 5])
def test_blocks_give_what_all_rows_give(sparse, n_classes):
    rng = np.random.default_rng(0)
    X, y = rng.poisson(0.3, (500, 40)).astype(np.float32), np.sort(rng.integers(0, n_classes, 500))  # classes come late
    X = sp.csr_matrix(X) if sparse else X
    whole = kway.NaiveBayesClassifier().fit(X, y)
    blocks = kway.NaiveBayesClassifier().fit_blocks((X[i : i + 60], y[i : i + 60]) for i in range(0, 500, 60))
    np.testing.assert_array_equal(blocks.classes_, whole.classes_)
    assert blocks.classes_.dtype == whole.classes_.dtype
    np.testing.assert_allclose(blocks.coef_, whole.coef_, rtol=1e-5, atol=1e-6)
    with pytest.raises(kway.errors.KwayError, match="class"):
        kway.NaiveBayesClassifier().fit_blocks([(X, np.zeros(500, int))])
