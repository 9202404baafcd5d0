"""One engine, every estimator: what labels, lists, probabilities and scores owe each other."""

import inspect
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import kway
from kway import validation
from kway.errors import InputError
from kway.pipelines import FeaturedClassifier
from kway.rows.blocks import ValidatedRows

ESTIMATORS = [
    kway.LinearClassifier(max_iter=50),
    kway.SoftmaxClassifier(max_iter=50, temperature=0.3),
    kway.LogisticClassifier(max_iter=50),
    kway.LogisticClassifier(multiclass="joint", max_iter=50),
    kway.SVMClassifier(max_iter=50),
    kway.SVMClassifier(multiclass="one-vs-all", max_iter=50),
    kway.PerceptronClassifier(max_iter=5),
    kway.LeastSquaresClassifier(),
    kway.LeastSquaresClassifier(targets="number"),
    kway.NeighborsClassifier(4),
    kway.NeighborsClassifier(4, ties="prior", class_weight="balanced"),
    kway.NeighborsClassifier(4, ties="smallest", weights="distance", metric="manhattan"),
    kway.CentroidClassifier(),
    kway.CentroidClassifier("cosine"),
    kway.ExemplarClassifier(4, max_iter=10),
    kway.MappedClassifier(kway.NeighborsClassifier(4), "mixtures"),
    kway.TreesClassifier(n_trees=5),
    kway.TreesClassifier("extra", n_trees=5),
    kway.TemperatureScaledClassifier(kway.NeighborsClassifier(4), cv=0.3),
    kway.TemperatureScaledClassifier(kway.SVMClassifier(max_iter=50), cv=0.3),
    kway.ConformalClassifier(kway.NeighborsClassifier(4), cv=0.3),
    kway.ConformalClassifier(LogisticRegression(), cv=0.3),
    kway.OpenSetClassifier(kway.CentroidClassifier(), score_by="margin", class_groups=0, false_rejects=1e-6),
    FeaturedClassifier(kway.CentroidClassifier()),
    FeaturedClassifier(KNeighborsClassifier(3)),
]
every = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: str(e).replace("\n", "")[:60])


def learned(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.__class__(**estimator.get_params(deep=False)).fit(X, y)


def drawn(seed, n_classes, whole, dtype):
    """Rows and queries; whole numbers give exact ties, equal rows and votes that draw."""
    rng = np.random.default_rng(seed)
    X, Q = (rng.integers(0, 3, (m, 3)) if whole else rng.normal(size=(m, 3)) for m in (40, 60))
    y = np.r_[np.arange(n_classes), np.arange(n_classes), rng.integers(0, n_classes, 40 - 2 * n_classes)]
    labels = np.array([f"class {i}" for i in range(n_classes)])
    return X.astype(dtype), labels[y], Q.astype(dtype)


@every
@settings(deadline=None, max_examples=12)
@given(st.integers(0, 10**6), st.sampled_from([2, 3, 7]), st.booleans(), st.sampled_from([np.float32, np.float64]))
def test_the_label_is_the_first_of_the_list_and_the_most_probable(estimator, seed, n_classes, whole, dtype):
    X, y, Q = drawn(seed, n_classes, whole, dtype)
    model = learned(estimator, X, y)
    labels = model.predict(Q)
    ids, scores = model.predict_topk(Q, n_classes)
    np.testing.assert_array_equal(labels, ids[:, 0])
    assert (np.sort(ids, axis=1) == model.classes_).all()  # every class once
    assert (np.diff(scores, axis=1) <= 1e-7).all()
    if hasattr(model, "predict_proba"):
        p = model.predict_proba(Q)
        np.testing.assert_array_equal(labels, model.classes_[p.argmax(axis=1)])
        np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
        np.testing.assert_allclose(scores, -np.sort(-p, axis=1), atol=2e-5)
    if hasattr(model, "decision_function"):
        f = model.decision_function(Q)
        assert f.shape == ((60,) if n_classes == 2 else (60, n_classes))
        chosen = (f > 0).astype(int) if n_classes == 2 else f.argmax(axis=1)
        np.testing.assert_array_equal(labels, model.classes_[chosen])


@every
def test_k_is_clipped_to_the_classes_and_anything_else_is_one_sentence(estimator):
    X, y, Q = drawn(0, 3, False, np.float64)
    model = learned(estimator, X, y)
    assert inspect.signature(model.predict_topk).parameters["k"].default == 5
    few, all_of_them = model.predict_topk(Q), model.predict_topk(Q, 50)
    assert few.ids.shape == all_of_them.ids.shape == all_of_them.scores.shape == (60, 3)
    assert np.isfinite(all_of_them.scores).all()
    np.testing.assert_array_equal(np.sort(all_of_them.ids, axis=1), np.tile(model.classes_, (60, 1)))
    np.testing.assert_array_equal(model.predict_topk(Q, np.int64(2)).ids, few.ids[:, :2])
    for k in (0, -1, 2.5, "a", True, None):
        with pytest.raises(InputError) as caught:
            model.predict_topk(Q, k)
        assert str(caught.value) == f"k must be a whole number of at least 1, got {k!r}"


DEVICES = [getattr(kway, name) for name in kway.__all__ if name.endswith("Classifier")]
DEVICES = [e for e in DEVICES if "device" in inspect.signature(e.__init__).parameters]


@pytest.mark.parametrize("device", ["tpu", None, 0])
@pytest.mark.parametrize("estimator", DEVICES, ids=lambda e: e.__name__)
def test_a_device_that_does_nothing_is_refused(estimator, device):
    with pytest.raises(InputError) as caught:
        estimator(device=device).fit([[0.0], [1.0]], [0, 1])
    assert str(caught.value).startswith("device must be ")
    assert str(caught.value).endswith(f"got {device!r}")
    assert len(DEVICES) == 8


@pytest.mark.parametrize(
    ("estimator", "names"),
    [
        (kway.SoftmaxClassifier, ["alpha", "l1_ratio", "temperature", "max_iter", "tol", "batch_size", "n_jobs"]),
        (kway.LinearClassifier, ["label_smoothing", "early_stopping", "loss", "multiclass"]),
        (kway.NeighborsClassifier, ["n_neighbors", "max_distance", "n_jobs"]),
        (kway.CentroidClassifier, ["n_jobs"]),
        (kway.ExemplarClassifier, ["n_exemplars", "alpha", "positive", "max_iter", "tol", "n_jobs"]),
        (kway.ConformalClassifier, ["coverage"]),
        (kway.OpenSetClassifier, ["false_rejects", "class_groups", "n_neighbors"]),
    ],
)
def test_a_parameter_of_the_wrong_kind_is_named_in_one_sentence(estimator, names):
    for name in names:
        for value in ("x", [1], 0.5j, float("nan")):
            with pytest.raises(InputError, match=f"^{name} must be .*, got ") as caught:
                estimator(**{name: value}).fit([[0.0], [1.0]], [0, 1])
            assert repr(value) in str(caught.value)


@pytest.fixture
def passes(monkeypatch):
    """The functions that checked rows, each time that rows came which had not been checked before."""
    seen = []

    def counted(check):
        def count(*args, **kwargs):
            if not any(isinstance(value, ValidatedRows) for value in args):
                seen.append(check.__name__)
            return check(*args, **kwargs)

        return count

    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "kway"]
    for check in (validation.rows, validation.plain_rows):
        for module in modules:  # some import the function itself
            if vars(module).get(check.__name__) is check:
                monkeypatch.setattr(module, check.__name__, counted(check))
    return seen


@pytest.mark.parametrize("rows", ["dense", "sparse", "bytes"])
@pytest.mark.parametrize(
    "estimator",
    [
        kway.SoftmaxClassifier(),
        kway.CentroidClassifier(),
        kway.NeighborsClassifier(3, index="flat"),
        kway.NeighborsClassifier(3, index="kdtree"),
        kway.NeighborsClassifier(3, index=kway.search.Landmarks(n_landmarks=4)),
        kway.ExemplarClassifier(),
        kway.TreesClassifier(n_trees=3),
    ],
    ids=lambda e: str(e)[:60],
)
def test_the_gate_is_passed_once_a_call(estimator, rows, passes):
    X, y, Q = drawn(0, 3, True, np.float64)
    if rows == "sparse":
        if not estimator.__sklearn_tags__().input_tags.sparse:
            pytest.skip("takes dense rows only")
        X, Q = sp.csr_matrix(X), sp.csr_matrix(Q)
    elif rows == "bytes":
        X, Q = X.astype(np.uint8), Q.astype(np.uint8)
    model = learned(estimator, X, y)
    assert len(passes) == 1, ("fit", passes)
    calls = ["predict", "predict_proba", "decision_function", "predict_topk", "explain", "voters", "kneighbors"]
    for name in [name for name in calls if hasattr(model, name)]:
        passes.clear()
        getattr(model, name)(Q)
        assert len(passes) == 1, (name, passes)
    if hasattr(model, "partial_fit"):
        passes.clear()
        model.partial_fit(X, y)
        assert len(passes) == 1, ("partial_fit", passes)


WRAPPED = [
    kway.TemperatureScaledClassifier(kway.SoftmaxClassifier()),
    kway.ConformalClassifier(kway.NeighborsClassifier(3)),
    kway.ConformalClassifier(kway.TemperatureScaledClassifier(kway.CentroidClassifier())),
    *(kway.OpenSetClassifier(score_by=score, class_groups=0) for score in ("energy", "margin", "distance", "joint")),
    kway.OpenSetClassifier(kway.NeighborsClassifier(3), score_by="distance", class_groups=0),
    kway.OpenSetClassifier(
        kway.TemperatureScaledClassifier(kway.ExemplarClassifier()), score_by="max-probability", class_groups=0
    ),
]


@pytest.mark.parametrize("rows", ["dense", "sparse", "bytes", "frame"])
@pytest.mark.parametrize("estimator", WRAPPED, ids=lambda e: f"{type(e).__name__}-{getattr(e, 'score_by', '')}")
@pytest.mark.filterwarnings("ignore:predict_set")
def test_the_gate_is_passed_once_a_call_of_a_wrapper(estimator, rows, passes):
    X, y, Q = drawn(0, 3, True, np.float64)
    if rows == "sparse":
        if not estimator.__sklearn_tags__().input_tags.sparse:
            pytest.skip("takes dense rows only")
        X, Q = sp.csr_matrix(X), sp.csr_matrix(Q)
    elif rows == "bytes":
        X, Q = X.astype(np.uint8), Q.astype(np.uint8)
    elif rows == "frame":
        X, Q = (pd.DataFrame(part, columns=[f"c{i}" for i in range(part.shape[1])]) for part in (X, Q))
    model = learned(estimator, X, y)
    calls = ["predict", "predict_proba", "decision_function", "predict_topk", "predict_set", "known_score", "explain"]
    for name in [name for name in calls if hasattr(model, name)]:
        passes.clear()
        getattr(model, name)(Q)
        assert len(passes) == 1, (name, passes)


class Counting(np.ndarray):
    """An array that counts the numbers its matrix products make."""

    made = 0

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        plain = [np.asarray(value) for value in inputs]
        result = getattr(ufunc, method)(*plain, **({"out": tuple(map(np.asarray, out))} if out else {}), **kwargs)
        if ufunc is np.matmul:
            Counting.made += result.size
        return result


@pytest.mark.parametrize("multiclass", ["joint", "one-vs-all"])
@pytest.mark.parametrize("n_classes", [5, 9000])
def test_a_list_with_probabilities_multiplies_once(n_classes, multiclass):
    rng = np.random.default_rng(0)
    model = kway.LinearClassifier(multiclass=multiclass, temperature=0.7)
    model.classes_, model.n_features_in_ = np.arange(n_classes), 6
    W, b = rng.normal(size=(n_classes, 6)), rng.normal(size=n_classes)
    model.coef_, model.intercept_ = W.view(Counting), b
    X = rng.normal(size=(70, 6))
    Counting.made = 0
    ids, p = model.predict_topk(X, 4)
    assert Counting.made == 70 * n_classes
    model.coef_ = W
    table = model.predict_proba(X)
    np.testing.assert_array_equal(ids, np.argsort(-table, axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(p, np.take_along_axis(table, ids, axis=1), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), ids[:, 0])


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("n_classes", [2, 3, 40, 9001])
def test_the_best_class_rows_are_those_of_a_sorted_table(n_classes, k):
    from kway.base.class_rows import best_classes
    from kway.probabilities import Shares

    rng = np.random.default_rng(n_classes + k)
    X, W = rng.integers(-2, 3, (50, 4)).astype(float), rng.integers(-2, 3, (n_classes, 4)).astype(float)  # many ties
    b, k = rng.integers(0, 2, n_classes).astype(float), min(k, n_classes)
    table = X @ W.T + b
    order = np.argsort(-table, axis=1, kind="stable")[:, :k]
    for rows in (X, sp.csr_matrix(X)):
        codes, scores = best_classes(rows, W, b, k)
        np.testing.assert_array_equal(codes, order)
        np.testing.assert_array_equal(scores, np.take_along_axis(table, order, axis=1))
        codes, shares = best_classes(rows, W, b, k, Shares(3.0))
        weights = np.exp(3 * (table - table.max(axis=1, keepdims=True)))
        np.testing.assert_array_equal(codes, order)
        wanted = np.take_along_axis(weights / weights.sum(axis=1, keepdims=True), order, axis=1)
        np.testing.assert_allclose(shares, wanted, rtol=1e-12)
