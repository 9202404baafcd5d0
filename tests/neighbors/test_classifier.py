"""NeighborsClassifier against scikit-learn, brute force, and what must not change its answers."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

import kway
from kway.errors import BudgetError, CombinationError, InputError
from kway.neighbors import NeighborsClassifier


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return train_test_split(X.astype(np.float32), y, random_state=0, stratify=y)


def clouds(seed, n=60, d=3, K=3):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, K, n)
    return rng.normal(size=(n, d)) + y[:, None], y


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "hamming"])
@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("k", [1, 4, 15])
def test_the_same_probabilities_as_scikit_learn(digits, metric, weights, k):
    X, Q, y, _ = digits
    theirs = KNeighborsClassifier(k, weights=weights, metric=metric, algorithm="brute").fit(X, y)
    ours = NeighborsClassifier(k, weights=weights, metric=metric, ties="smallest").fit(X, y)
    q = Q[:150]
    far = ours.kneighbors(q, k + 1)[0]
    clear = far[:, k] > far[:, k - 1] * (1 + 1e-6)  # else scikit-learn may take another row that is as far as the k-th
    assert clear.sum() > 5
    np.testing.assert_allclose(theirs.predict_proba(q)[clear], ours.predict_proba(q)[clear], atol=1e-5)
    np.testing.assert_array_equal(theirs.predict(q)[clear], ours.predict(q)[clear])


def test_predictions_are_the_argmax_of_probabilities_and_the_first_of_topk(digits):
    X, Q, y, _ = digits
    for ties in ("nearest", "smallest", "prior"):
        model = NeighborsClassifier(4, ties=ties).fit(X, y)
        labels, shares = model.predict_topk(Q, 10)
        p = model.predict_proba(Q)
        assert p.dtype == np.float32
        np.testing.assert_array_equal(model.predict(Q), labels[:, 0])
        np.testing.assert_array_equal(model.predict(Q), model.classes_[p.argmax(axis=1)])
        np.testing.assert_array_equal(model.decision_function(Q), p)
        np.testing.assert_allclose(np.sort(p, axis=1)[:, ::-1], shares, atol=1e-6)
        assert (np.sort(labels, axis=1) == np.arange(10)).all()  # every class once


def test_ties_go_to_the_class_that_the_rule_names():
    X, y = [[1.0], [-2.0], [-1.5], [3.0], [50.0]], ["z", "b", "m", "m", "b"]
    q = [[0.0]]  # nearest first: z (1), m (1.5), b (2), m (3): m has two votes; with three voters all tie
    answer = {t: NeighborsClassifier(3, ties=t).fit(X, y).predict(q)[0] for t in ("nearest", "smallest", "prior")}
    assert answer == {"nearest": "z", "smallest": "b", "prior": "b"}
    assert NeighborsClassifier(4, ties="nearest").fit(X, y).predict(q)[0] == "m"


def test_binary_decision_function_has_the_sign_of_the_answer_in_a_tie():
    model = NeighborsClassifier(2).fit([[0.0], [1.0]], ["a", "b"])
    np.testing.assert_array_equal(model.decision_function([[0.9], [0.1]]) > 0, [True, False])
    assert model.predict([[0.9], [0.1]]).tolist() == ["b", "a"]


def test_explain_is_one_search_and_adds_up(digits, monkeypatch):
    X, Q, y, _ = digits
    model = NeighborsClassifier(7, weights="distance", class_weight={3: 2.0}).fit(X, y)
    calls = []
    search = type(model.index_).nearest
    monkeypatch.setattr(type(model.index_), "nearest", lambda self, *a, **k: calls.append(1) or search(self, *a, **k))
    told = model.explain(Q)
    assert len(calls) == 1
    monkeypatch.undo()
    np.testing.assert_array_equal(told.labels, model.predict(Q))
    np.testing.assert_array_equal(told.voter_labels, y[told.voters])
    np.testing.assert_allclose(told.weights.sum(axis=1), 1)
    for i in range(0, len(Q), 50):
        share = told.weights[i][told.voter_labels[i] == told.labels[i]].sum()
        np.testing.assert_allclose(told.probabilities[i, 0], share)
        second = told.weights[i][told.voter_labels[i] == told.runner_up[i]].sum()
        np.testing.assert_allclose(told.gap[i], share - second)
    np.testing.assert_allclose(told.distances[0], model.kneighbors(Q[:1])[0][0])


@pytest.mark.parametrize("metric", [kway.Gaussian(0.05), kway.Laplacian(0.05)])
def test_kernels_far_below_underflow_still_vote(metric):
    model = NeighborsClassifier(3, weights="similarity", metric=metric).fit([[0.0], [100.0], [101.0]], ["a", "b", "b"])
    assert model.predict([[40.0]])[0] == "a"  # exp(-(40 / 0.05)^2) is 0 in every float type
    assert np.isfinite(model.predict_proba([[40.0]])).all()


def test_negative_similarities_do_not_vote():
    model = NeighborsClassifier(3, weights="similarity", metric="cosine").fit(
        [[1.0, 0], [-1, 0.1], [-1, -0.1]], [0, 1, 1]
    )
    np.testing.assert_allclose(model.predict_proba([[1.0, 0.0]]), [[1.0, 0.0]])


def test_a_distance_limit_leaves_far_rows_out():
    X, y = [[0.0], [1.0], [10.0]], ["a", "b", "b"]
    model = NeighborsClassifier(3, max_distance=2.0, outlier_label="none of these").fit(X, y)
    assert model.predict([[0.1], [10.0], [55.0]]).tolist() == ["a", "b", "none of these"]
    assert model.predict_proba([[55.0]]).tolist() == [[0.0, 0.0]]
    assert model.explain([[10.5]]).voters.tolist() == [[2, -1, -1]]
    assert NeighborsClassifier(3, max_distance=2.0, outlier_label=-1).fit(X, [0, 1, 1]).predict([[55.0]])[0] == -1
    strict = NeighborsClassifier(3, max_distance=2.0).fit(X, y)
    with pytest.raises(InputError, match="outlier_label"):
        strict.predict([[55.0]])


def test_a_row_without_voters_is_the_outlier_label_s_in_every_answer():
    X, y, far = [[0.0], [1.0], [10.0]], ["a", "b", "b"], [[0.1], [55.0]]
    model = NeighborsClassifier(3, max_distance=2.0, outlier_label="a").fit(X, y)
    assert model.predict(far).tolist() == ["a", "a"]
    assert model.predict_proba(far)[1].tolist() == [1.0, 0.0]
    ids, shares = model.predict_topk(far, 2)
    assert ids[1].tolist() == ["a", "b"]
    assert shares[1].tolist() == [1.0, 0.0]
    assert model.explain(far).labels.tolist() == ["a", "a"]
    strict = NeighborsClassifier(3, max_distance=2.0).fit(X, y)
    for answer in (strict.predict, strict.predict_proba, strict.predict_topk, strict.explain):
        with pytest.raises(InputError, match="row 1 of 2"):
            answer(far)


def test_sparse_rows_that_name_a_column_twice_count_their_sum():
    twice = sp.csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    model = NeighborsClassifier(1, index="flat").fit(twice, ["a", "b"])
    assert model.kneighbors(twice)[0].tolist() == [[0.0], [0.0]]
    assert model.kneighbors(sp.csr_matrix([[0.0, 3.0]]))[0].tolist() == [[0.0]]
    assert twice.nnz == 3  # the caller's matrix stays as it was


def test_class_weights_multiply_votes():
    X, y = [[0.0], [1.0], [1.1]], ["a", "b", "b"]
    weighted = NeighborsClassifier(3, class_weight={"a": 3.0}).fit(X, y)
    np.testing.assert_allclose(weighted.predict_proba([[0.9]]), [[0.6, 0.4]])
    balanced = NeighborsClassifier(3, class_weight="balanced").fit(X, y)
    np.testing.assert_allclose(balanced.predict_proba([[0.9]]), [[0.5, 0.5]])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(["uniform", "distance"]), st.integers(1, 9))
def test_a_weight_of_w_is_as_good_as_w_copies(seed, weights, k):
    X, y = clouds(seed, n=40)
    w = np.random.default_rng(seed).integers(0, 4, len(y))
    w[:9] += 1
    weighted = NeighborsClassifier(k, weights=weights).fit(X, y, sample_weight=w)
    repeated = NeighborsClassifier(k, weights=weights).fit(X.repeat(w, axis=0), y.repeat(w))
    q = np.random.default_rng(seed + 1).normal(size=(20, 3))
    if weighted.classes_.tolist() == repeated.classes_.tolist():
        np.testing.assert_allclose(weighted.predict_proba(q), repeated.predict_proba(q), atol=1e-12)


def test_weights_below_one_ask_for_more_rows_and_shares_are_refused():
    X, y = clouds(0, n=40)
    half = NeighborsClassifier(5).fit(X, y, sample_weight=np.full(40, 0.5))
    np.testing.assert_allclose(half.predict_proba(X), NeighborsClassifier(10).fit(X, y).predict_proba(X))
    with pytest.raises(InputError, match="mean is 1"):
        NeighborsClassifier(5).fit(X, y, sample_weight=np.full(40, 1 / 40))


@settings(deadline=None, max_examples=25)
@given(
    st.integers(0, 10**6), st.sampled_from(["uniform", "distance"]), st.sampled_from(["nearest", "smallest", "prior"])
)
def test_the_order_of_the_rows_does_not_matter(seed, weights, ties):
    X, y = clouds(seed)
    order = np.random.default_rng(seed).permutation(len(y))
    q = np.random.default_rng(seed + 1).normal(size=(30, 3))
    a = NeighborsClassifier(4, weights=weights, ties=ties).fit(X, y).predict(q)
    b = NeighborsClassifier(4, weights=weights, ties=ties).fit(X[order], y[order]).predict(q)
    np.testing.assert_array_equal(a, b)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_the_scale_of_the_votes_does_not_matter(seed, scale):
    X, y = clouds(seed)
    q = np.random.default_rng(seed + 1).normal(size=(30, 3))
    a = NeighborsClassifier(5, weights=lambda d: np.exp(-d)).fit(X, y).predict_proba(q)
    b = NeighborsClassifier(5, weights=lambda d: scale * np.exp(-d)).fit(X, y).predict_proba(q)
    np.testing.assert_allclose(a, b, rtol=1e-9)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10**6))
def test_twice_the_rows_and_twice_the_neighbors_vote_the_same(seed):
    X, y = clouds(seed)
    q = np.random.default_rng(seed + 1).normal(size=(30, 3))
    a = NeighborsClassifier(3).fit(X, y).predict_proba(q)
    b = NeighborsClassifier(6).fit(np.repeat(X, 2, axis=0), np.repeat(y, 2)).predict_proba(q)
    np.testing.assert_allclose(a, b)


@pytest.mark.parametrize("index", ["auto", "flat", "kdtree", kway.search.Flat()])
def test_rows_added_later_are_as_good_as_rows_fitted(digits, index):
    X, Q, y, _ = digits
    words = np.array([f"digit {v}" for v in y])
    grown = NeighborsClassifier(index=index)
    for part in np.array_split(np.argsort(y, kind="stable"), 5):  # classes come one after the other
        grown.partial_fit(X[part], words[part])
    order = np.argsort(y, kind="stable")
    whole = NeighborsClassifier(index=index).fit(X[order], words[order])
    np.testing.assert_array_equal(grown.classes_, whole.classes_)
    np.testing.assert_array_equal(grown.kneighbors(Q)[1], whole.kneighbors(Q)[1])
    np.testing.assert_array_equal(grown.predict_proba(Q), whole.predict_proba(Q))


def test_rows_of_weight_zero_may_come_later():
    X, y = clouds(0, n=60)
    w = np.arange(60) % 3
    grown = NeighborsClassifier(3).fit(X[:30], y[:30]).partial_fit(X[30:], y[30:], sample_weight=w[30:])
    whole = NeighborsClassifier(3).fit(X, y, sample_weight=np.r_[np.ones(30), w[30:]])
    np.testing.assert_array_equal(grown.predict_proba(X), whole.predict_proba(X))
    np.testing.assert_array_equal(grown.kneighbors()[1], whole.kneighbors()[1])


def test_named_classes_are_kept_and_others_refused():
    model = NeighborsClassifier(1).partial_fit([[0.0]], ["a"], classes=["c", "a", "b"])
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.predict_proba([[0.0]]).tolist() == [[1, 0, 0]]
    with pytest.raises(InputError, match="'z'"):
        model.partial_fit([[1.0]], ["z"], classes=["a", "b", "c"])
    assert model.partial_fit([[1.0]], ["z"]).classes_.tolist() == ["a", "b", "c", "z"]


def test_class_weights_of_unknown_labels_are_refused_by_fit_but_may_come_in_later_batches():
    X, y = [[0.0], [1.0]], ["ham", "spam"]
    model = NeighborsClassifier(1, class_weight={"Spam": 100})
    with pytest.raises(InputError, match=r"class_weight does not fit the labels: .*ham"):
        model.fit(X, y)
    with pytest.raises(InputError, match=r"class_weight does not fit the labels: .*ham"):
        model.fit_blocks([(np.array(X), np.array(y))])
    assert model.partial_fit(X, y).partial_fit([[2.0]], ["Spam"]).classes_.tolist() == ["Spam", "ham", "spam"]


@pytest.mark.parametrize("classes", [None, [0, 1]])
def test_weights_that_cannot_fill_the_neighbors_are_refused_in_the_first_batch(classes):
    X, y = clouds(0, n=30)
    with pytest.raises(InputError, match="sample_weight sums to 1"):
        NeighborsClassifier(3).partial_fit(X, y % 2, classes=classes, sample_weight=np.full(30, 1 / 30))


def test_neighbors_of_the_training_rows_are_others(digits):
    X, _, y, _ = digits
    X, y = X[:200], y[:200]
    ours = NeighborsClassifier(4).fit(X, y)
    theirs = KNeighborsClassifier(4, algorithm="brute").fit(X, y)
    np.testing.assert_allclose(ours.kneighbors()[0], theirs.kneighbors()[0], rtol=1e-4)
    assert (ours.kneighbors(return_distance=False) != np.arange(200)[:, None]).all()
    for mode in ("connectivity", "distance"):
        gap = ours.kneighbors_graph(mode=mode) - theirs.kneighbors_graph(mode=mode)
        assert abs(gap).max() < 1e-3
    with pytest.raises(InputError, match="n_neighbors = 201"):
        ours.kneighbors(X, 201)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
def test_sparse_rows_answer_as_dense_ones(metric):
    rng = np.random.default_rng(0)
    X = sp.random(200, 50, 0.2, format="csr", random_state=1, dtype=np.float64)
    y = rng.integers(0, 4, 200)
    dense = NeighborsClassifier(3, metric=metric).fit(X.toarray(), y)
    sparse = NeighborsClassifier(3, metric=metric, index=kway.search.Flat()).fit(X, y)
    np.testing.assert_allclose(dense.predict_proba(X.toarray()), sparse.predict_proba(X))
    np.testing.assert_allclose(dense.kneighbors()[0], sparse.kneighbors()[0], atol=1e-6)


def test_probabilities_above_the_budget_are_refused_and_topk_is_not(monkeypatch):
    X, y = np.arange(400.0)[:, None], np.arange(400) // 2
    model = NeighborsClassifier(2).fit(X, y)
    monkeypatch.setenv("KWAY_MEMORY", "1000")
    with pytest.raises(BudgetError, match="predict_topk"):
        model.predict_proba(X)
    assert model.predict_topk(X, 3).ids.shape == (400, 3)


def test_answers_do_not_depend_on_how_queries_are_cut_into_blocks(digits, monkeypatch):
    X, Q, y, _ = digits
    model = NeighborsClassifier(4).fit(X, y)
    whole = model.predict(Q), model.predict_proba(Q), *model.predict_topk(Q, 3)
    monkeypatch.setattr("kway.base.classifier.BLOCK_BYTES", 6400)
    for a, b in zip(whole, (model.predict(Q), model.predict_proba(Q), *model.predict_topk(Q, 3))):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"weights": "near"}, "unknown weights"),
        ({"metric": "euclidian"}, "did you mean 'euclidean'"),
        ({"index": "tree"}, "unknown index"),
        ({"ties": "coin"}, "unknown ties"),
        ({"max_distance": -1.0}, "max_distance"),
        ({"class_weight": "equal"}, "class_weight"),
        ({"device": "tpu"}, "device"),
    ],
)
def test_bad_parameters_are_named(params, message):
    with pytest.raises(InputError, match=message):
        NeighborsClassifier(**params).fit([[0.0], [1.0]], [0, 1])


def test_votes_and_metrics_that_do_not_fit_are_refused():
    with pytest.raises(CombinationError, match="no similarity"):
        NeighborsClassifier(weights="similarity").fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(CombinationError, match="negative"):
        NeighborsClassifier(weights="distance", metric="dot").fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize(
    "params", [{}, {"index": "kdtree"}, {"index": kway.search.Landmarks(probes=4)}, {"metric": "cosine"}]
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_model_file_gives_the_same_answers(digits, tmp_path, params, weighted):
    X, Q, y, _ = digits
    words = np.array([f"digit {v}" for v in y])
    w = np.arange(len(y)) % 3 if weighted else None
    model = NeighborsClassifier(**params).fit(X, words, w)
    model.save(tmp_path / "model.kway")
    again = kway.load(tmp_path / "model.kway")
    np.testing.assert_array_equal(again.predict_proba(Q), model.predict_proba(Q))
    np.testing.assert_array_equal(again.kneighbors()[1], model.kneighbors()[1])
    assert again.index_.why_ == model.index_.why_
    assert again.partial_fit(Q, np.full(len(Q), "digit x")).classes_[-1] == "digit x"


def test_haversine_and_sparse_models_come_back_from_their_files(tmp_path):
    rng = np.random.default_rng(0)
    places = np.column_stack([rng.uniform(25, 50, 300), rng.uniform(-120, -70, 300)])
    for X, params in (
        (places, {"metric": kway.Haversine(degrees=True)}),
        (sp.random(100, 30, 0.3, format="csr", random_state=0), {"metric": "cosine"}),
    ):
        model = NeighborsClassifier(3, **params).fit(X, rng.integers(0, 3, X.shape[0]))
        model.save(tmp_path / "model.kway")
        again = kway.load(tmp_path / "model.kway")
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        np.testing.assert_allclose(again.kneighbors()[0], model.kneighbors()[0])


def test_why_says_why_in_one_sentence(digits):
    X, _, y, _ = digits
    assert "flat" in NeighborsClassifier().fit(X, y).index_.why_
    few = np.random.default_rng(0).normal(size=(3000, 2))
    assert "KD-tree" in NeighborsClassifier().fit(few, few[:, 0] > 0).index_.why_
