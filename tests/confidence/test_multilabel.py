import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss

import kway
from kway.confidence.multilabel import (
    LinearPath,
    MultilabelClassifier,
    base_rates,
    best_threshold,
    calibrate,
    calibrated,
    choose_thresholds,
    known_labels,
    label_matrix,
)
from kway.errors import InputError
from kway.pipelines import FeaturedClassifier
from kway.tables.features.features import Features
from kway.tables.sources.labels import joined_sets, label_sets


def drawn(n=300, d=6, K=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = X @ rng.normal(size=(d, K)) + rng.normal(size=(n, K)) > 1
    return X, np.array([";".join(np.array(list("abcdefgh"))[:K][row]) for row in Y]), Y.astype(float)


@pytest.mark.parametrize("K", [1, 2, 5])
def test_the_linear_fit_is_that_of_scikit_learn_label_by_label(K):
    X, _, Y = drawn(K=K)
    path = LinearPath(X, Y, tol=1e-8)
    for alpha in (1.0, 0.1, 0.01):
        weights, biases = path.fit(alpha)
        for j in range(K):
            alone = LogisticRegression(C=1 / (len(X) * alpha), tol=1e-10, max_iter=5000).fit(X, Y[:, j])
            np.testing.assert_allclose(weights[j], alone.coef_[0], atol=1e-5)
            np.testing.assert_allclose(biases[j], alone.intercept_[0], atol=1e-5)


def test_a_label_of_all_or_no_rows_keeps_its_rate():
    X, _, Y = drawn()
    Y = np.column_stack([Y, np.ones(len(Y)), np.zeros(len(Y))])
    weights, biases = LinearPath(X, Y).fit(0.1)
    assert not weights[-2:].any()
    np.testing.assert_allclose(1 / (1 + np.exp(-biases[-2:])), [300.5 / 301, 0.5 / 301])


def test_neighbors_vote_for_every_label():
    X, y, Y = drawn()
    model = MultilabelClassifier("neighbors", n_neighbors=7).fit(X[:200], y[:200])
    near = ((X[200:, None] - X[None, :200]) ** 2).sum(axis=2).argsort(axis=1)[:, :7]
    expected = (Y[:200][near].sum(axis=1) + base_rates(Y[:200])) / 8
    np.testing.assert_allclose(model.predict_proba(X[200:]), expected, rtol=1e-9)


def test_calibration_reaches_the_optimum_of_scikit_learn():
    rng = np.random.default_rng(0)
    z, Y = rng.normal(size=(400, 3)) * 3, rng.random((400, 3)) < [0.2, 0.4, 0.7]
    Y = (Y | (z > 2)).astype(float)
    rates = base_rates(Y)
    found = calibrate(z, Y, rates)
    features = np.column_stack([z.ravel(), np.tile(np.log(rates / (1 - rates)), 400)])
    best = LogisticRegression(C=1e9, tol=1e-10, max_iter=5000).fit(features, Y.ravel())
    np.testing.assert_allclose(found, [*best.coef_[0], best.intercept_[0]], atol=1e-3)
    assert log_loss(Y.ravel(), calibrated(z, rates, found).ravel()) < log_loss(Y.ravel(), 1 / (1 + np.exp(-z.ravel())))


def test_thresholds_are_the_best_of_all():
    rng = np.random.default_rng(0)
    p = rng.integers(0, 20, (150, 3)) / 20
    Y = (rng.random((150, 3)) < p).astype(float)
    every = [f1_score(Y.ravel(), (p >= t).ravel()) for t in np.arange(20) / 20]
    t, f1 = best_threshold(p, Y)
    assert f1 == pytest.approx(max(every)) == f1_score(Y.ravel(), (p >= t).ravel())
    macro = f1_score(Y, p >= choose_thresholds(p, Y, True), average="macro")
    assert macro >= f1_score(Y, p >= choose_thresholds(p, Y, False), average="macro")
    assert best_threshold(p, np.zeros_like(p)) == (1.0, 0.0)


def test_sparse_rows_have_the_best_labels_of_dense_ones():
    X, y, _ = drawn()
    dense = MultilabelClassifier().fit(X, y)
    model = MultilabelClassifier().fit(sp.csr_matrix(X), y)
    assert model.predict_topk(sp.csr_matrix(X), 2).ids.tolist() == dense.predict_topk(X, 2).ids.tolist()


@pytest.mark.parametrize("kind", ["linear", "neighbors"])
def test_a_saved_model_predicts_the_same(kind, tmp_path):
    X, y, _ = drawn()
    features = Features()
    inner = MultilabelClassifier(kind).fit(features.fit_transform(X), y)
    inner.set_decisions(np.array([0.9, 0.1, -0.2]), np.full(4, 0.4))
    model = FeaturedClassifier.of(features, inner)
    model.save(tmp_path / "m.kway")
    loaded = kway.load(tmp_path / "m.kway")
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.predict(X).tolist() == model.predict(X).tolist()
    labels, scores = loaded.predict_topk(X, 2)
    p = model.predict_proba(X)
    np.testing.assert_array_equal(scores, -np.sort(-p, axis=1)[:, :2])
    assert labels[:, 0].tolist() == model.classes_[p.argmax(axis=1)].tolist()
    assert loaded.score(X, y) == model.score(X, [text.split(";") for text in y])


def test_sets_of_labels_as_text():
    assert label_sets(["b;a", " b ; b", "", None, float("nan"), ["c", "a"], ("a",)], ";").tolist() == [
        "a;b", "b", "", "", "", "a;c", "a",
    ]  # fmt: skip
    with pytest.raises(InputError, match="multilabel="):
        label_sets([["a;b"]], ";")
    assert joined_sets(np.array(["A;b", "a;b", "a", "B"]), ";").tolist() == ["a;b", "a;b", "a", "b"]
    y = np.array(["a;b", "", "b;z"])
    assert known_labels(y, ";").tolist() == ["a", "b", "z"]
    assert label_matrix(y, np.array(["a", "b"]), ";").tolist() == [[1, 1], [0, 0], [0, 1]]
    with pytest.raises(InputError, match="no row has a label"):
        known_labels(np.array(["", ""]), ";")
