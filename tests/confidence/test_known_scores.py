"""Scores of being known, each against its formula."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import kway
from kway.confidence.known_scores import Scorer, check_score, make_scorers, supported_scores
from kway.errors import CombinationError, InputError


def one(name, estimator, X, metric="euclidean", n_neighbors=5):
    return make_scorers([name], estimator, X, metric, n_neighbors)[0]


@pytest.fixture
def fitted(rng, blobs):
    X, y = blobs(rng, 200)
    return kway.SoftmaxClassifier().fit(X, y), X, blobs(rng, 40)[0]


def brute_distance(Q, X, k, skip=0):
    apart = np.sqrt(((Q[:, None, :] - X[None]) ** 2).sum(axis=2))
    return np.sort(apart, axis=1)[:, skip : skip + k].mean(axis=1)


def test_linear_scores(fitted):
    model, X, Q = fitted
    f = model.decision_function(Q)
    best = np.sort(f, axis=1)
    np.testing.assert_allclose(one("max-probability", model, X)(Q), model.predict_proba(Q).max(axis=1))
    np.testing.assert_allclose(one("energy", model, X)(Q), np.log(np.exp(f).sum(axis=1)))
    np.testing.assert_allclose(one("margin", model, X)(Q), best[:, -1] - best[:, -2])
    np.testing.assert_allclose(one("distance", model, X)(Q), -brute_distance(Q, X, 5))
    np.testing.assert_allclose(one("distance", model, X, n_neighbors=1)(Q), -brute_distance(Q, X, 1))
    spreads = logsumexp(model.decision_function(X), axis=1).std(), brute_distance(X, X, 5, skip=1).std()
    expected = logsumexp(f, axis=1) / spreads[0] - brute_distance(Q, X, 5) / spreads[1]
    np.testing.assert_allclose(one("joint", model, X)(Q), expected)


def test_two_classes_are_treated_alike(rng):
    X = rng.standard_normal((60, 2))
    y = X[:, 0] > 0
    model, mirror = kway.SoftmaxClassifier().fit(X, y), kway.SoftmaxClassifier().fit(X, ~y)
    f = model.decision_function(X)
    np.testing.assert_allclose(one("margin", model, X)(X), np.abs(f))
    for name in ("energy", "max-probability"):
        np.testing.assert_allclose(one(name, model, X)(X), one(name, mirror, X)(X), rtol=1e-3)


def test_neighbors_use_their_own_search(rng, blobs):
    X, y = blobs(rng, 100)
    for model in (kway.NeighborsClassifier(metric="manhattan"), KNeighborsClassifier(metric="manhattan")):
        scorer = one("distance", model.fit(X, y), None)
        assert scorer.index is None
        expected = -np.sort(np.abs(X[:7, None] - X[None]).sum(axis=2), axis=1)[:, :5].mean(axis=1)
        np.testing.assert_allclose(scorer(X[:7]), expected)


def test_probabilities_stand_in_where_there_are_no_scores(rng, blobs):
    X, y = blobs(rng, 100)
    model = GaussianNB().fit(X, y)
    assert "energy" not in supported_scores(model, X)
    p = np.sort(model.predict_proba(X), axis=1)
    np.testing.assert_allclose(one("margin", model, X)(X), p[:, -1] - p[:, -2])


def test_what_an_estimator_can_give(fitted):
    model, X, _ = fitted
    assert supported_scores(model, X) == ["max-probability", "energy", "margin", "distance", "joint"]
    assert supported_scores(model, None) == ["max-probability", "energy", "margin"]
    assert supported_scores(model, ["some", "text"]) == ["max-probability", "energy", "margin"]
    hinge = kway.SVMClassifier().fit(X, X[:, 0] > 0)
    assert supported_scores(hinge, X) == ["energy", "margin", "distance", "joint"]
    with pytest.raises(CombinationError, match="'max-probability' of SVMClassifier needs predict_proba"):
        one("max-probability", hinge, X)
    with pytest.raises(CombinationError, match="needs training rows that are numbers"):
        one("distance", model, None)
    with pytest.raises(InputError, match="score_by must be one of 'auto', 'max-probability'"):
        check_score("entropy")


def test_sparse_rows_and_blocks(fitted, monkeypatch):
    model, X, Q = fitted
    names = supported_scores(model, X)
    whole = [scorer(Q) for scorer in make_scorers(names, model, X, "euclidean", 3)]
    sparse = [scorer(sp.csr_matrix(Q)) for scorer in make_scorers(names, model, sp.csr_matrix(X), "euclidean", 3)]
    np.testing.assert_allclose(sparse, whole, rtol=1e-6)
    monkeypatch.setattr("kway.confidence.splits.BLOCK_BYTES", 160)
    parts = [scorer(Q) for scorer in make_scorers(names, model, X, "euclidean", 3)]
    np.testing.assert_allclose(parts, whole, rtol=1e-6)


def test_rows_far_from_all_others_are_less_known(fitted):
    model, X, Q = fitted
    assert (one("distance", model, X)(Q + 100) < one("distance", model, X)(Q)).all()
    assert isinstance(one("distance", model, X), Scorer)
