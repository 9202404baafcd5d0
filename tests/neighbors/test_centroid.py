"""CentroidClassifier against scikit-learn's NearestCentroid and its own definition."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestCentroid

import kway
from kway.errors import CombinationError, ModelFileError
from kway.neighbors import CentroidClassifier
from kway.search import Bits, Flat, Landmarks


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X, y, random_state=0, stratify=y)


def test_the_same_means_and_answers_as_scikit_learn(digits):
    X, Q, y, _ = digits
    X, Q = X[:, X.std(axis=0) > 1], Q[:, X.std(axis=0) > 1]  # scikit-learn warns of columns that do not vary
    ours, theirs = CentroidClassifier().fit(X, y), NearestCentroid().fit(X, y)
    np.testing.assert_allclose(ours.centroids_, theirs.centroids_, atol=1e-12)
    np.testing.assert_array_equal(ours.predict(Q), theirs.predict(Q))


def test_cosine_means_are_of_unit_rows(digits):
    X, Q, y, _ = digits
    model = CentroidClassifier("cosine").fit(X, y)
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = np.stack([units[y == c].mean(axis=0) for c in range(10)])
    np.testing.assert_allclose(model.centroids_, means, atol=1e-12)
    cosines = Q @ means.T / np.linalg.norm(means, axis=1)
    np.testing.assert_array_equal(model.predict(Q), cosines.argmax(axis=1))


def test_probabilities_are_those_of_round_clouds(digits):
    X, Q, y, _ = digits
    model = CentroidClassifier().fit(X, y)
    width = np.mean(np.square(X - model.centroids_[y]))
    z = -np.square(Q[:, None] - model.centroids_).sum(axis=2) / (2 * width)
    p = np.exp(z - z.max(axis=1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(Q), p / p.sum(axis=1, keepdims=True), atol=1e-9)
    labels, scores = model.predict_topk(Q, 3)
    np.testing.assert_allclose(scores, np.sort(model.predict_proba(Q), axis=1)[:, :-4:-1], atol=1e-9)
    np.testing.assert_array_equal(labels[:, 0], model.predict(Q))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_taken_in_parts_are_as_good_as_at_once(digits, metric, dtype):
    X, Q, y, _ = digits
    X, Q = X.astype(dtype), Q.astype(dtype)
    grown = CentroidClassifier(metric)
    for part in np.array_split(np.argsort(y, kind="stable"), 7):
        grown.partial_fit(X[part], y[part])
    whole = CentroidClassifier(metric).fit(X, y)
    np.testing.assert_allclose(grown.centroids_, whole.centroids_, rtol=1e-5, atol=1e-6)
    assert grown.scale_ == pytest.approx(whole.scale_, rel=1e-9 if dtype == np.float64 else 1e-6)
    np.testing.assert_allclose(grown.predict_proba(Q), whole.predict_proba(Q), atol=1e-5)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_sparse_rows_answer_as_dense_ones(digits, metric):
    X, Q, y, _ = digits
    dense = CentroidClassifier(metric).fit(X, y)
    sparse = CentroidClassifier(metric).fit(sp.csr_matrix(X), y)
    np.testing.assert_allclose(dense.predict_proba(Q), sparse.predict_proba(sp.csr_matrix(Q)), atol=1e-9)


def test_a_large_common_offset_costs_no_digits(digits):
    X, Q, y, _ = digits
    near = CentroidClassifier().fit(X.astype(np.float32), y).predict(Q.astype(np.float32))
    far = CentroidClassifier().fit((X + 4096).astype(np.float32), y).predict((Q + 4096).astype(np.float32))
    np.testing.assert_array_equal(near, far)


def test_a_class_named_without_rows_never_wins():
    model = CentroidClassifier().partial_fit([[1.0], [2.0]], ["a", "b"], classes=["a", "b", "c"])
    assert set(model.predict([[0.0], [5.0], [-100.0]])) == {"a", "b"}
    assert model.predict_proba([[0.0]])[0, 2] == 0


def test_other_metrics_are_refused():
    with pytest.raises(CombinationError, match="metric must be"):
        CentroidClassifier("manhattan").fit([[0.0], [1.0]], [0, 1])


def test_a_model_file_gives_the_same_answers_and_goes_on_learning(digits, tmp_path):
    X, Q, y, yq = digits
    model = CentroidClassifier().fit(X, y)
    model.save(tmp_path / "model.kway")
    again = kway.load(tmp_path / "model.kway")
    np.testing.assert_array_equal(again.predict_proba(Q), model.predict_proba(Q))
    np.testing.assert_allclose(again.partial_fit(Q, yq).centroids_, model.partial_fit(Q, yq).centroids_)


def test_many_classes_by_top_k():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(20_000, 8)).astype(np.float32)
    model = CentroidClassifier().fit(np.repeat(centers, 2, axis=0), np.repeat(np.arange(20_000), 2))
    labels, scores = model.predict_topk(centers[:500], 3)
    np.testing.assert_array_equal(labels[:, 0], np.arange(500))
    assert (np.diff(scores, axis=1) <= 0).all()


def many_classes(n_classes=600, d=48, more=3, seed=0):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_classes, d))
    y = np.concatenate([np.arange(n_classes).repeat(2), rng.integers(0, n_classes, more * n_classes)])
    X = (centers[y] + 0.5 * rng.normal(size=(len(y), d))).astype(np.float32)
    return X[1::2], y[1::2], X[: 2 * n_classes : 2], y[: 2 * n_classes : 2]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize(
    "index", [Flat(), Landmarks(probes=12, store=Bits(1)), Flat(store=Bits(4, rerank=False))], ids=str
)
def test_means_are_found_by_an_index(metric, index, tmp_path):
    X, y, Q, _ = many_classes()
    keep = y != 17  # a class that is named and has no rows
    names = np.array([f"class {i:04d}" for i in range(600)])
    scored = CentroidClassifier(metric).partial_fit(X[keep], names[y[keep]], classes=names)
    found = CentroidClassifier(metric, index=index).partial_fit(X[keep], names[y[keep]], classes=names)
    same = scored.predict(Q) == found.predict(Q)
    assert same.mean() >= (1.0 if index.exact else 0.97)
    best, listed = scored.predict_topk(Q, 5), found.predict_topk(Q, 5)
    if index.exact:
        np.testing.assert_array_equal(best.ids, listed.ids)
        np.testing.assert_allclose(best.scores, listed.scores, atol=2e-3)  # shares of 64 classes, not of all
    assert listed.scores.dtype == np.float32
    whole = found.predict_topk(Q[:3], 600)
    assert all(sorted(labels) == names.tolist() for labels in whole.ids)
    assert (whole.ids[:, -1] == names[17]).all()
    found.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway")
    assert "index_" in vars(again)  # read, not built again
    np.testing.assert_array_equal(again.predict(Q), found.predict(Q))
    grown = found.partial_fit(Q[17:18], names[17:18])
    assert grown.predict(Q[17:18]).tolist() == [names[17]]


def test_wrappers_stand_around_an_index():
    X, y, Q, yq = many_classes(100, more=20)
    model = CentroidClassifier(index=Landmarks(probes=12, store=Bits(1)))
    half = np.arange(len(y)) % 2 == 0
    model.fit(X[half], y[half])
    known = np.isin(y, model.classes_) & ~half
    sets = kway.ConformalClassifier(model, cv="prefit", coverage=0.9).fit(X[known], y[known])
    seen = np.isin(yq, model.classes_)
    covered = [label in labels for label, labels in zip(yq[seen], sets.predict_set(Q[seen]).to_lists())]
    assert np.mean(covered) > 0.9
    gate = kway.OpenSetClassifier(CentroidClassifier(index=Flat(store=Bits(1)))).fit(X, y)
    far = np.random.default_rng(3).normal(size=(100, X.shape[1])).astype(np.float32) * 3
    assert (gate.predict(far) == gate.unknown_).mean() > 0.85


def test_rows_are_never_copied_as_a_whole(tmp_path):
    """A memory map of 100 MB is learned from in blocks; sums of one block stay within a fixed room."""
    import tracemalloc

    rows = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (200_000, 128))
    rows[:] = np.random.default_rng(0).normal(size=(2000, 128)).repeat(100, axis=0)
    y = np.arange(200_000) % 50
    CentroidClassifier().fit(rows[:100], y[:100])
    tracemalloc.start()
    model = CentroidClassifier().fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_allclose(model.centroids_[3], rows[3::50].mean(axis=0, dtype=np.float64), rtol=1e-5)
    assert peak < 2.2 * 8 * 65_536 * 128 + 8 * 200_000 * 4


def test_means_are_kept_as_the_rows_are():
    X, y, _, _ = many_classes(100)
    for kind in (np.float32, np.float64):
        model = CentroidClassifier().fit(X.astype(kind), y)
        assert model._means.dtype == kind
        expected = np.stack([X[y == c].mean(axis=0, dtype=np.float64) for c in model.classes_])
        np.testing.assert_allclose(model.centroids_, expected, rtol=1e-6, atol=1e-6)


def test_a_file_whose_index_does_not_fit_is_refused(tmp_path):
    X, y, _, _ = many_classes(100)
    model = CentroidClassifier(index=Flat()).fit(X, y)
    model.index_ = Flat().build(X[:50])
    model.save(tmp_path / "m.kway")
    with pytest.raises(ModelFileError, match="50 rows in its index"):
        kway.load(tmp_path / "m.kway")


@pytest.mark.parametrize("index", [Landmarks(300, 8, store=Bits(1, rerank=False)), Flat(store=Bits(1, rerank=False))])
def test_sets_and_unknowns_of_a_hundred_thousand_classes_stay_in_memory(index):
    """Sets ask for the best classes alone; the margin is taken of the scores of a block of rows at a time.

    500 rows against 100,000 classes would be 400 MB.
    """
    import tracemalloc

    K, d, rng = 100_000, 64, np.random.default_rng(0)
    places = rng.normal(size=(K, d)).astype(np.float32)
    model = CentroidClassifier("cosine", index=index, n_jobs=2).fit(places, np.arange(K))  # every thread holds a block
    classes = rng.integers(K, size=1000)
    rows = places[classes] + 0.3 * rng.normal(size=(1000, d)).astype(np.float32)
    known, asked = slice(0, 500), slice(500, 1000)
    model.predict(rows[:2])
    tracemalloc.start()
    sets = kway.ConformalClassifier(model, cv="prefit", coverage=0.9).fit(rows[known], classes[known])
    covered = [label in found for label, found in zip(classes[asked], sets.predict_set(rows[asked]).to_lists())]
    few = tracemalloc.get_traced_memory()[1]
    gate = kway.OpenSetClassifier(model, score_by="margin", cv="prefit").fit(rows[:200], classes[:200])
    strange = rng.normal(size=(200, d)).astype(np.float32)
    unknown = gate.predict(strange) == gate.unknown_
    mine = gate.predict(rows[asked]) == classes[asked]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert few < 20e6
    assert peak < 260e6
    assert np.mean(covered) > 0.95
    assert unknown.mean() > 0.95
    assert mine.mean() > 0.93


def test_an_approximate_index_gives_one_answer_to_all_questions():
    """Landmarks that are asked for one mean look into fewer cells than for many, and may miss the nearest."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(600, 6)), np.arange(600) % 200
    model = CentroidClassifier(index=Landmarks(n_landmarks=20, probes=1)).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), model.predict_topk(X, 3).ids[:, 0])
