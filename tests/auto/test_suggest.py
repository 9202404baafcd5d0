"""Rows to label next: the choice against gradients that are written out, and labels that help more than random ones."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import kway
from kway.auto.suggest import choose_rows, suggest_rows
from kway.errors import InputError, KwayError


def test_the_products_are_those_of_the_gradients():
    """The same draws from gradients (m, K (d + 1)) in memory; sparse rows give the same."""
    rng = np.random.default_rng(0)
    p, X = rng.dirichlet(np.ones(3), 50), rng.normal(size=(50, 4))
    a = p - np.eye(3)[p.argmax(axis=1)]
    scaled = np.hstack([X / np.sqrt(np.square(X).sum(axis=1).mean()), np.ones((50, 1))])
    g = np.einsum("nk,nd->nkd", a, scaled).reshape(50, -1)
    draws, chosen = np.random.default_rng(7), [int(np.square(g).sum(axis=1).argmax())]
    while len(chosen) < 8:
        away = np.square(g[:, None] - g[None, chosen]).sum(axis=2).min(axis=1)
        chosen.append(int(draws.choice(50, p=away / away.sum())))
    assert choose_rows(p, X, 8, 7).tolist() == chosen
    assert choose_rows(p, sp.csr_matrix(X), 8, 7).tolist() == chosen


def pool(seed, n=600):
    """Eight classes in 20 dimensions, of which some are rare."""
    rng = np.random.default_rng(seed)
    centers = 1.3 * np.random.default_rng(99).normal(size=(8, 20))
    y = rng.choice(8, n, p=np.array([8, 6, 4, 3, 2, 1, 0.6, 0.4]) / 25)
    return rng.normal(size=(n, 20)) + centers[y], y


def test_suggested_rows_help_more_than_random_rows():
    """Mean accuracy on other rows over 12 pools, after 30 more labels."""
    gains, fresh = [], lambda: kway.SoftmaxClassifier(alpha=0.1)
    for seed in range(12):
        (X, y), (new, truth) = pool(seed), pool(1000 + seed)
        rng = np.random.default_rng(seed)
        first = rng.choice(len(y), 20, replace=False)
        rest = np.setdiff1d(np.arange(len(y)), first)
        start = fresh().fit(X[first], y[first])
        accuracy = []
        for more in (rest[suggest_rows(start, X[rest], 30, seed).rows], rng.choice(rest, 30, replace=False)):
            rows = np.concatenate([first, more])
            accuracy.append(fresh().fit(X[rows], y[rows]).score(new, truth))
        gains.append(accuracy[0] - accuracy[1])
    assert np.mean(gains) > 2 * np.std(gains, ddof=1) / np.sqrt(len(gains))


def test_duplicates_are_chosen_once_while_there_are_others():
    X = np.repeat(np.array([[0.0, 1.0], [1.0, 0.0], [0.4, 0.5]]), 30, axis=0)
    model = kway.SoftmaxClassifier(alpha=0.1).fit(X, np.arange(90) % 2)
    rows = suggest_rows(model, X, 3).rows
    assert len({tuple(X[row]) for row in rows}) == 3
    assert sorted(suggest_rows(model, X, 200).rows.tolist()) == list(range(90))


def test_bad_input():
    X, y = pool(0, 60)
    model = kway.SoftmaxClassifier().fit(X, y)
    found = suggest_rows(model, X, 4)
    p = np.sort(model.predict_proba(X[found.rows]), axis=1)
    np.testing.assert_allclose(found.margins, p[:, -1] - p[:, -2])
    np.testing.assert_array_equal(found.predicted, model.predict(X[found.rows]))
    assert "Rows to label next" in str(found)
    with pytest.raises(KwayError, match="n must be"):
        suggest_rows(model, X, 0)
    with pytest.raises(InputError, match="gives no probabilities"):
        suggest_rows(kway.PerceptronClassifier().fit(X, y), X)


def test_sparse_rows_of_a_model_without_features():
    X, y = pool(0, 60)
    model = kway.SoftmaxClassifier().fit(sp.csr_matrix(X), y)
    dense = suggest_rows(model, X, 5).rows
    for rows in (sp.csr_matrix(X), sp.csc_matrix(X), sp.coo_matrix(X)):
        assert suggest_rows(model, rows, 5).rows.tolist() == dense.tolist()


def test_the_model_inside_a_result_is_checked():
    X, y = pool(0, 60)
    fitted = SimpleNamespace(model=kway.PerceptronClassifier().fit(X, y), predict_proba=None)
    with pytest.raises(InputError, match="PerceptronClassifier gives no probabilities"):
        suggest_rows(fitted, X)
