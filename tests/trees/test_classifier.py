"""TreesClassifier answers as scikit-learn's estimators do, in memory and from a file."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import ThreadpoolController, threadpool_limits

import kway
from kway.errors import InputError
from kway.threads import at_most
from kway.trees.learn import few_openmp_threads

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")


@pytest.fixture(scope="module", autouse=True)
def one_openmp_thread():
    """Limit scikit-learn's fits, whose threads wait for each other for minutes on a busy machine."""
    with threadpool_limits(1, user_api="openmp"):
        yield


def drawn(seed, n=None, n_classes=None):
    """Rows with gaps, columns of categories (mask), labels, weights or None, and queries with unseen values."""
    rng = np.random.default_rng(seed)
    n, d = n or int(rng.integers(40, 500)), int(rng.integers(1, 9))
    n_classes = n_classes or int(rng.choice([2, 2, 3, 5, 20]))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-4, 5, d)
    categories = rng.random(d) < 0.4
    for column in np.flatnonzero(categories):
        X[:, column] = rng.choice(rng.integers(0, 255, rng.integers(1, 60)), n)
    signal = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-12)
    y = np.argsort(np.argsort(signal.sum(axis=1) + (X[:, 0] % 3))) * n_classes // n
    y = np.where(rng.random(n) < 0.2, rng.integers(0, n_classes, n), y)
    y[: 2 * n_classes] = np.arange(2 * n_classes) % n_classes
    share = rng.choice([0.0, 0.1, 0.5])
    X[rng.random((n, d)) < share] = np.nan
    Q = np.concatenate([X, rng.permuted(X, axis=0)])
    Q[rng.random(Q.shape) < 0.05] = np.nan
    Q[:9, 0] = [-1, 300, 256, 255, 2.5, 1e30, -1e30, 0, 1][: len(Q[:9])]
    weight = rng.choice([0.0, 0.5, 1.0, 7.0], n) if rng.random() < 0.4 else None
    if weight is not None:
        weight[: 2 * n_classes] = 1.0
    return X, y, categories, weight, Q


SETTINGS = [
    {},
    {"l2_regularization": 1.0, "max_leaf_nodes": 5, "learning_rate": 0.05},
    {"early_stopping": True, "n_iter_no_change": 2},
]


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**9), st.sampled_from(SETTINGS), st.booleans())
def test_boosted_probabilities_equal_those_of_scikit_learn(seed, setting, balanced):
    X, y, categories, weight, Q = drawn(seed)
    setting = setting | ({"class_weight": "balanced"} if balanced and weight is None else {})
    own = kway.TreesClassifier(n_trees=6, categorical_features=categories, random_state=1, **setting)
    reference = HistGradientBoostingClassifier(
        max_iter=6, categorical_features=categories if categories.any() else None, random_state=1, **setting
    )
    try:
        reference.fit(X, y, weight)
    except ValueError:  # the classes have too few rows to hold some out
        reference.set_params(validation_fraction=None).fit(X, y, weight)
    own.fit(X, y, weight)
    assert own.n_trees_ == reference.n_iter_
    np.testing.assert_allclose(own.predict_proba(Q), reference.predict_proba(Q), rtol=0, atol=1e-12)
    np.testing.assert_allclose(own.decision_function(Q), reference.decision_function(Q), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(own.predict(Q), reference.predict(Q))


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**9), st.booleans())
def test_the_probabilities_of_a_forest_equal_those_of_scikit_learn(seed, balanced):
    X, y, _, weight, Q = drawn(seed)
    class_weight = "balanced" if balanced and weight is None else None
    own = kway.TreesClassifier("extra", n_trees=9, class_weight=class_weight, random_state=2).fit(X, y, weight)
    reference = ExtraTreesClassifier(9, class_weight=class_weight, random_state=2).fit(X, y, weight)
    assert own.n_trees_ == 9
    np.testing.assert_allclose(own.predict_proba(Q), reference.predict_proba(Q), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(own.predict(Q), reference.predict(Q))


def test_a_forest_that_grows_in_parts_is_the_same(monkeypatch):
    X, y, _, _, Q = drawn(6, n=300, n_classes=5)
    whole = kway.TreesClassifier("extra", n_trees=11, random_state=3).fit(X, y)
    monkeypatch.setattr("kway.trees.learn.rows_per_block", lambda _: 4)
    parts = kway.TreesClassifier("extra", n_trees=11, random_state=3).fit(X, y)
    np.testing.assert_array_equal(parts.predict_proba(Q), whole.predict_proba(Q))


@pytest.mark.parametrize("kind", ["boosted", "extra"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int32, "fortran"])
def test_dtypes(kind, dtype):
    X, y, _, _, _ = drawn(5, n=300, n_classes=4)
    X = np.nan_to_num(X)
    X = np.asfortranarray(X) if dtype == "fortran" else (X / np.abs(X).max(axis=0) * 1000).astype(dtype)
    model = kway.TreesClassifier(kind, n_trees=5).fit(X, y)
    plain = kway.TreesClassifier(kind, n_trees=5).fit(X.astype(np.float64), y)
    p = model.predict_proba(X)
    wide = X.dtype == np.float64
    assert p.dtype == (np.float64 if wide else np.float32)
    np.testing.assert_allclose(p, plain.predict_proba(X.astype(np.float64)), atol=1e-12 if wide else 1e-6)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X.astype(np.float64)))
    np.testing.assert_array_equal(model.predict(X), model.classes_[p.argmax(axis=1)])


def test_blocks_of_rows_give_the_same_answers(monkeypatch):
    X, y, _, _, Q = drawn(3, n=400, n_classes=3)
    model = kway.TreesClassifier(n_trees=5).fit(X, y)
    whole = model.predict_proba(Q), model.predict_topk(Q, 2)
    monkeypatch.setattr("kway.base.classifier.BLOCK_BYTES", 8 * 3 * 7)  # seven rows
    monkeypatch.setattr("kway.trees.nodes.CACHE_BYTES", 2)
    np.testing.assert_array_equal(model.predict_proba(Q), whole[0])
    for found, expected in zip(model.predict_topk(Q, 2), whole[1]):
        np.testing.assert_array_equal(found, expected)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10**9), st.sampled_from(["boosted", "extra"]))
def test_a_loaded_model_answers_the_same(tmp_path_factory, seed, kind):
    X, y, categories, weight, Q = drawn(seed)
    labels = np.array([f"class {c}" for c in range(20)])[y]
    model = kway.TreesClassifier(kind, n_trees=6, categorical_features=np.flatnonzero(categories)).fit(
        X, labels, weight
    )
    path = tmp_path_factory.mktemp("model") / "trees.kway"
    model.save(path)
    loaded = kway.load(path, verify=True)
    np.testing.assert_array_equal(loaded.predict_proba(Q), model.predict_proba(Q))
    np.testing.assert_array_equal(loaded.predict(Q), model.predict(Q))
    assert loaded.n_trees_ == model.n_trees_
    for one, other in zip(loaded._trees.nodes, model._trees.nodes):
        np.testing.assert_array_equal(one, other)


def test_a_loaded_model_needs_no_trees_of_scikit_learn(tmp_path):
    X, y, _, _, _ = drawn(1, n=100)
    kway.TreesClassifier(n_trees=3).fit(X, y).save(tmp_path / "trees.kway")
    code = (
        f"import sys, kway; model = kway.load({str(tmp_path / 'trees.kway')!r}); "
        f"model.predict_proba([[0.5] * {X.shape[1]}]); "
        "sys.exit('sklearn.ensemble' in sys.modules or 'sklearn.tree' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_frames_with_names_and_gaps():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "b": rng.integers(0, 3, 60)})
    frame.loc[::5, "a"] = None
    y = frame["b"] > 1
    model = kway.TreesClassifier("extra", n_trees=5).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.predict(frame), y)
    with pytest.raises(InputError, match="feature names"):
        model.predict(frame[["b", "a"]])


@pytest.mark.parametrize("kind", ["boosted", "extra"])
@pytest.mark.parametrize("n_values", [0, 1])
def test_a_column_without_values_does_not_end_a_fit_or_change_it(kind, n_values):
    X, y, _, _, _ = drawn(2, n=200, n_classes=3)
    X[:, -1] = np.nan
    X[:n_values, -1] = 1.0
    weight = np.ones(200)
    weight[:n_values] = 0.0
    model = kway.TreesClassifier(kind, n_trees=5, early_stopping=True)
    for weights in (None, weight):
        p = model.fit(X, y, weights).predict_proba(X)
        assert np.isnan(X[-1, -1])
        if kind == "boosted":  # a forest draws columns at random
            filled = np.column_stack([X[:, :-1], np.zeros(200)])
            np.testing.assert_array_equal(model.fit(filled, y, weights).predict_proba(X), p)


def test_one_value_does_not_end_a_fit_if_it_is_held_out():
    X = np.array([np.arange(40.0), np.full(40, np.nan)]).T
    X[0, 1] = 1.0
    for seed in range(30):
        kway.TreesClassifier(n_trees=1, early_stopping=True, random_state=seed).fit(X, np.arange(40) % 2)


def test_a_class_with_one_row_does_not_end_a_fit():
    X, y, _, _, _ = drawn(2, n=200, n_classes=3)
    y[0] = 7
    model = kway.TreesClassifier(n_trees=5, early_stopping=True).fit(X, y)
    assert 7 in model.classes_


def test_the_same_seed_gives_the_same_trees():
    X, y, _, _, _ = drawn(4, n=200)
    fits = [
        kway.TreesClassifier("extra", n_trees=4, random_state=s).fit(X, y).predict_proba(X * 1.3) for s in (None, 0, 1)
    ]
    np.testing.assert_array_equal(fits[0], fits[1])
    assert (fits[0] != fits[2]).any()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"kind": "bagged"}, "kind must be one of 'boosted', 'extra'"),
        ({"n_trees": 0}, "n_trees must be"),
        ({"categorical_features": [3]}, "categorical_features must be indices of columns from 0 to 1"),
        ({"categorical_features": [0]}, r"categorical column 0 contains -1\.0, 0\.5"),
        ({"categorical_features": ["a"]}, "categorical_features must be"),
    ],
)
def test_what_fit_refuses(parameters, text):
    X = np.array([[0.5, 1.0], [-1.0, 2.0], [3.0, 0.0]])
    with pytest.raises(InputError, match=text):
        kway.TreesClassifier(**parameters).fit(X, [0, 1, 1])


@pytest.mark.parametrize("kind", ["boosted", "extra"])
def test_infinity_is_refused_and_a_value_too_large_for_a_forest(kind):
    X, y = np.array([[0.0], [1.0], [np.inf]]), [0, 1, 1]
    with pytest.raises(InputError, match="infinity"):
        kway.TreesClassifier(kind).fit(X, y)
    X[2] = 1e300
    if kind == "extra":
        with pytest.raises(InputError, match="1e\\+300 in column 0"):
            kway.TreesClassifier(kind).fit(X, y)
    else:
        kway.TreesClassifier(kind).fit(X, y)


def test_scikit_learns_checks_of_a_forest():
    weak = "the leaves of a forest are pure, so that class weights change few predictions"
    expected = {"check_class_weight_classifiers": weak}
    results = check_estimator(
        kway.TreesClassifier("extra", n_trees=20), on_fail=None, on_skip=None, expected_failed_checks=expected
    )
    assert not [r for r in results if r["status"] == "failed"]


def test_openmp_uses_one_thread_if_told_to_or_if_the_machine_is_busy(monkeypatch):
    def threads():
        libraries = ThreadpoolController().select(user_api="openmp").lib_controllers
        return {library.num_threads for library in libraries}

    kway.TreesClassifier(n_trees=1).fit([[0.0], [1.0]], [0, 1])  # loads OpenMP
    monkeypatch.setattr("kway.threads.cores", lambda: 4)
    monkeypatch.setattr("kway.trees.learn.cores", lambda: 4)
    monkeypatch.setattr("os.getloadavg", lambda: (1.0, 1.0, 1.0))
    with few_openmp_threads(10**9):
        assert threads() == {4}
    with at_most(2), few_openmp_threads(10**9):
        assert threads() == {2}
    with few_openmp_threads(10):
        assert threads() == {1}
    monkeypatch.setattr("os.getloadavg", lambda: (9.0, 1.0, 1.0))
    with few_openmp_threads(10**9):
        assert threads() == {1}


def test_threads_are_limited_on_systems_that_do_not_report_their_load(monkeypatch):
    monkeypatch.delattr("os.getloadavg", raising=False)
    with few_openmp_threads(10**9):
        pass
