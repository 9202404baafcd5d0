"""The one order of answers: by the distance given, then by the lower position, and every distance is that of its id."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kway
from kway.errors import CombinationError
from kway.search import LSH, Flat, Int8, KDTree, Landmarks, Sharded
from kway.search.pairwise import pairwise


def pixels(n=60, d=64, total=8000, seed=0):
    """Rows of different pixels with one of three sums; over 255 the sums differ in the eighth digit."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(60, 190, (n, d))
    wanted = total + 255 * rng.integers(0, 3, n)
    while (left := wanted - rows.sum(axis=1)).any():
        column = rng.integers(0, d, n)
        step = np.clip(rows[np.arange(n), column] + left, 0, 255) - rows[np.arange(n), column]
        rows[np.arange(n), column] += step
    return rows


def tied(total):
    """Pixels, and the same over 255, if their three sums are three numbers in float32 and many in float64."""
    rows = pixels(total=total)
    x = (rows / np.float32(255)).astype(np.float32)
    sums = x.astype(np.float64).sum(axis=1)
    return (rows, x) if len(np.unique(sums)) > 10 and len(np.unique(sums.astype(np.float32))) == 3 else None


@pytest.mark.parametrize("recipe", [Flat(), KDTree(), LSH()], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("k", [1, 4, 25, 60])
def test_pixels_divided_by_255(recipe, k):
    rows, x = next(found for found in map(tied, range(8000, 8100)) if found is not None)
    found = recipe.build(x, "manhattan").nearest(np.zeros((2, rows.shape[1]), np.float32), k)
    expected = np.lexsort((np.arange(len(rows)), rows.sum(axis=1)))[:k]
    np.testing.assert_array_equal(found.ids, np.stack([expected] * 2))
    assert (np.diff(found.distances, axis=1) >= 0).all()


def test_float64_keeps_its_own_digits():
    rows = np.array([[1.0 + 1e-12], [1.0]])
    assert Flat().build(rows).nearest(np.zeros((1, 1)), 1).ids.tolist() == [[1]]
    assert Flat().build(rows.astype(np.float32)).nearest(np.zeros((1, 1), np.float32), 1).ids.tolist() == [[0]]


RECIPES = [Flat(), Flat(store=Int8()), Flat(store=Int8(rerank=False)), KDTree(), Landmarks(6, probes=6), LSH()]
RECIPES += [Landmarks(6, probes=6, store=Int8())]


def drawn(kind, dtype, rng, n, d):
    """Rows whose distances tie, in float32 if not in float64."""
    if kind == "offset":  # 1000.00006 and 1000 are two float32 numbers, and equally far from -30
        rows = 1000 + 6e-5 * rng.integers(0, 3, size=(n, d))
    elif kind == "integers":
        rows = rng.integers(-2, 3, size=(n, d)).astype(float)
    elif kind == "pixels":
        rows = rng.integers(0, 256, size=(n, d)) / np.float32(255)
    else:
        rows = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
    return rows.astype(dtype)


@settings(deadline=None, max_examples=60)
@given(
    recipe=st.sampled_from(RECIPES),
    metric=st.sampled_from(["euclidean", "manhattan", "cosine", "dot"]),
    kind=st.sampled_from(["offset", "integers", "pixels", "plain"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    k=st.sampled_from([1, 3, 20]),
    seed=st.integers(0, 1000),
)
def test_ids_and_distances_agree_in_every_index(recipe, metric, kind, dtype, k, seed):
    try:
        recipe.check(kway.search.pick_metric(metric))
    except CombinationError:
        return
    rng = np.random.default_rng(seed)
    rows = drawn(kind, dtype, rng, 120, 3)
    queries = np.concatenate([drawn(kind, dtype, rng, 5, 3), np.full((1, 3), -30, dtype)])
    index = recipe.build(rows, metric)
    found = index.nearest(queries, k)
    store = getattr(recipe, "store", None)
    kept = rows if store is None or store.rerank else index.rows[:]
    true = pairwise(queries, kept, metric)  # (q, n) float64
    mine = np.take_along_axis(true, found.ids, axis=1)
    size = np.abs(true).max()
    np.testing.assert_allclose(found.distances, mine, rtol=np.finfo(dtype).eps, atol=1e-12 * size + 1e-15)
    steps = np.diff(found.distances, axis=1)
    assert (steps >= 0).all()
    assert (np.diff(found.ids, axis=1)[steps == 0] > 0).all()
    everything = index.nearest(queries, len(rows))  # all rows in order: k of them are its first k
    if recipe.name != "lsh":
        np.testing.assert_array_equal(found.ids, everything.ids[:, :k])
        np.testing.assert_array_equal(found.distances, everything.distances[:, :k])


@pytest.mark.parametrize("recipe", RECIPES[:2] + RECIPES[3:], ids=str)
def test_what_float32_cannot_tell_apart_goes_by_position(recipe):
    rows = np.array([[1000.00006], [1000.0]] * 3, np.float32)
    found = recipe.build(rows, "euclidean").nearest(np.array([[-30.0]], np.float32), 4)
    assert found.ids.tolist() == [[0, 1, 2, 3]]
    assert found.distances.tolist() == [[1030.0] * 4]


def test_beyond_the_range_of_float32():
    rows = np.array([[3e38, 3e38], [-3e38, -3e38], [0, 0]], np.float32)
    found = Flat().build(rows, "manhattan").nearest(np.array([[3e38, 3e38]], np.float32), 3)
    assert found.ids.tolist() == [[0, 2, 1]]  # in the order of float64
    assert (found.distances[0, 1:] == np.finfo(np.float32).max).all()


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_every_way_to_an_answer_has_the_same_digits(metric):
    """Distances that are equal on paper, in float64: bounds and blocks added them up in two orders, so that an index
    gave other neighbors once it had been written and read, or where a copy of a row had been added later."""
    rng = np.random.default_rng(3)
    rows = np.clip(np.cumsum(rng.integers(-1, 2, (3000, 196)), axis=1), 0, 4) * 0.1
    rows[1500:1600], queries = rows[:100], rows[:60] + 0.1 * (rng.random((60, 196)) < 0.2)
    whole = Flat().build(rows, metric)
    assert "certified" in whole.why_
    found = whole.nearest(queries, 7)
    grown = Flat().build(rows[:2900], metric)
    grown.add(rows[2900:])
    others = {
        "read again": Flat.restore(*whole.parts()),
        "grown": grown,
        "tree": KDTree().build(rows, metric),
        "shards": Sharded(Flat(), shards=4).build(rows, metric),  # too few rows each for bounds
    }
    if metric == "euclidean":
        others["cells"] = Landmarks(n_landmarks=9, probes=9).build(rows, metric)
    for name, index in others.items():
        again = index.nearest(queries, 7)
        np.testing.assert_array_equal(again.distances, found.distances, err_msg=name)
        np.testing.assert_array_equal(again.ids, found.ids, err_msg=name)
