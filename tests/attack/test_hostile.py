"""Hostile input, a short campaign that is the same every time; the long one is `make attack`."""

import numpy as np
import pytest
from hostile_input import MODELS, ONE_CELL, attack, draw, run

import kway
from kway.errors import InputError
from kway.search import Landmarks

pytestmark = pytest.mark.filterwarnings("ignore")


def rows_and_labels(scale, dtype=np.float64, n=200, d=5):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, n)
    return (scale * (4 * rng.normal(size=(4, d))[y] + rng.normal(size=(n, d)))).astype(dtype), y


def test_every_end_is_an_answer_or_a_sentence():
    counts = run(150, seed=3)
    assert not counts.bad, "\n".join(counts.bad)
    assert counts.total["answered"] > 4 * counts.total["refused"] > 0  # some problems have fewer rows than neighbors


@pytest.mark.slow
def test_ten_thousand():
    counts = run(10_000, seed=4)
    assert not counts.bad, "\n".join(counts.bad)
    assert set(counts.ends) == set(MODELS)


PAIRS = [  # landmarks search inner products
    (index, metric)
    for index in ("flat", "kdtree", "landmarks", "lsh")
    for metric in ("euclidean", "manhattan", "cosine")
    if (index, metric) != ("landmarks", "manhattan")
]


def test_a_problem_is_that_of_its_number():
    np.testing.assert_array_equal(draw(11).Q, draw(11).Q)
    assert attack(draw(0), "flat") == "answered"


@pytest.mark.parametrize(("index", "metric"), PAIRS)
@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e-30, 1e20, 1e150, 1e200, 1e300])
def test_size_changes_no_neighbor(metric, index, scale):
    dtype = np.float32 if 1e-35 < scale < 1e35 else np.float64
    X, y = rows_and_labels(scale, dtype)
    model = kway.NeighborsClassifier(3, metric=metric, index=index).fit(X, y)
    assert model.score(X, y) > 0.97
    distances, ids = model.kneighbors(X[:5])
    with np.errstate(all="ignore"):
        if metric == "euclidean" and scale > 1e-300:  # those of float64, scaled by hand
            near = (X[ids] / scale - X[:5, None] / scale).astype(np.float64)
            np.testing.assert_allclose(distances / scale, np.sqrt((near**2).sum(axis=2)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("index", "metric"), PAIRS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_wild_query_leaves_the_others_alone(index, metric, dtype):
    X, y = rows_and_labels(1.0, dtype)
    model = kway.NeighborsClassifier(3, metric=metric, index=index).fit(X, y)
    queries = X.astype(np.float64)
    queries[[3, 50], [1, 0]] = [1e39, -1e300]
    same = np.delete(np.arange(len(X)), [3, 50])
    np.testing.assert_array_equal(model.predict(queries)[same], model.predict(X)[same])
    assert np.isfinite(model.kneighbors(queries)[0]).all()


def test_centroids_at_the_edge_of_float32():
    X, y = rows_and_labels(1e20, np.float32)
    model = kway.CentroidClassifier().fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.score(X, y) > 0.97
    np.testing.assert_allclose(model.centroids_[0], X[y == 0].astype(np.float64).mean(axis=0), rtol=1e-5)


def test_one_row_in_one_cell_of_codes():
    model = kway.NeighborsClassifier(1, index=ONE_CELL).fit(np.full((1, 3), -5e37, np.float32), [7])
    assert model.predict(np.full((2, 3), -5e37, np.float32)).tolist() == [7, 7]


def test_what_no_unit_holds_is_refused_with_the_column_and_the_value():
    X = np.ones((20, 3))
    X[:, 1] = np.arange(20)
    X[4, 2] = 1e200
    with pytest.raises(InputError, match=r"1e\+200 in column 2 \(row 4\)"):
        kway.SoftmaxClassifier().fit(X, np.arange(20) % 2)
    X[4] = [0, 0, 1e200]
    with pytest.raises(InputError, match=r"1e\+200 in column 2 \(row 4\)"):
        kway.NeighborsClassifier().fit(X, np.arange(20) % 2)


@pytest.mark.parametrize("index", ["flat", "kdtree"])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("far", [1e10, 1e20, 1e28, 1e32, 1e37, 3e38])
def test_one_distant_row_of_float32_leaves_the_digits_of_the_others(tmp_path, far, metric, index):
    """float32 rows that need scaling are searched in float64, so no digit of the small rows is lost."""
    X, y = rows_and_labels(1e-3, np.float32)
    Z, labels = np.concatenate([X, np.full((1, 5), far, np.float32)]), np.append(y, 0)
    model = kway.NeighborsClassifier(3, metric=metric, index=index).fit(Z, labels)
    gaps = X[:, None].astype(np.float64) - Z[None]
    exact = np.sqrt((gaps**2).sum(axis=2)) if metric == "euclidean" else np.abs(gaps).sum(axis=2)
    nearest = np.argsort(exact.astype(np.float32), axis=1, kind="stable")[:, :3]
    distances, ids = model.kneighbors(X)
    np.testing.assert_array_equal(ids, nearest)
    np.testing.assert_array_equal(distances, np.take_along_axis(exact, nearest, axis=1).astype(np.float32))
    assert distances.dtype == model.kneighbors()[0].dtype == np.float32
    model.save(tmp_path / "m.kway")
    np.testing.assert_array_equal(kway.load(tmp_path / "m.kway").kneighbors(X)[0], distances)


@pytest.mark.parametrize("scale", [1.0, 1e-200, 1e200])
@pytest.mark.parametrize("index", ["flat", "kdtree", Landmarks(n_landmarks=4, probes=2)], ids=str)
def test_units_survive_the_file_and_more_rows(tmp_path, scale, index):
    X, y = rows_and_labels(scale)
    model = kway.NeighborsClassifier(3, index=index).fit(X[:150], y[:150])
    model.partial_fit(X[150:], y[150:])
    model.save(tmp_path / "m.kway")
    again = kway.load(tmp_path / "m.kway")
    np.testing.assert_array_equal(again.kneighbors(X)[0], model.kneighbors(X)[0])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.kneighbors()[1], model.kneighbors()[1])
