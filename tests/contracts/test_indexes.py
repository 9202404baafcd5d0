"""One battery over every index x distance x dtype: brute force in float64 is the oracle.

Exact indexes must give its ids and distances, and so must approximate ones that look everywhere; with their default
probes these must recall most of it. Where only codes are kept, the rows are what the codes say. All must be sorted,
free of duplicates, right about distances, and give -1 only where fewer than k rows exist. Metrics that share a distance
(kernels, degrees) are told apart only where they differ: in distances and scores.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from tests.helpers.neighbors import brute_distances

from kway.errors import CombinationError, InputError
from kway.search import (
    INDEXES,
    LSH,
    Bits,
    Flat,
    Gaussian,
    Haversine,
    Int8,
    KDTree,
    Landmarks,
    Laplacian,
    Sharded,
    pick_metric,
    restore,
)
from kway.search.distances import COSINE

DISTANCES = ["euclidean", "manhattan", "cosine", "dot", "hamming", "haversine"]
METRICS = [*DISTANCES, Haversine(degrees=True), Gaussian(2.0), Laplacian(3.0)]
RECIPES = [Flat(), Flat(store=Int8()), Flat(store=Int8(rerank=False)), KDTree(), Landmarks(), LSH()]
RECIPES += [Sharded(Flat(), 3)]
RECIPES += [Landmarks(store=Int8()), Landmarks(store=Int8(rerank=False)), Landmarks(store=Bits())]
RECIPES += [Flat(store=Bits()), Flat(store=Bits(4))]
ESTIMATES = [Flat(store=Bits(4, rerank=False))]  # distances to no row: how near they are is tests/search/test_bits.py's
RECALL = {"landmarks": 0.99, "lsh": 0.9, "flat": 0.99}  # of default probes, over these rows; flat: of bits


def works(recipe, metric):
    try:
        recipe.check(pick_metric(metric))
    except CombinationError:
        return False
    return True


def label(recipe):
    return f"{recipe.name}-{getattr(recipe, 'store', None)}"


def pairs_of(recipes, metrics):
    cases = [pytest.param(r, m, id=f"{label(r)}-{m}") for r in recipes for m in metrics if works(r, m)]
    return pytest.mark.parametrize(("recipe", "metric"), cases)


measured, every_metric = pairs_of(RECIPES, DISTANCES), pairs_of(RECIPES, METRICS)
pairs = pairs_of(RECIPES + ESTIMATES, DISTANCES)
each_recipe = pytest.mark.parametrize("recipe", RECIPES + ESTIMATES, ids=label)


def clustered(metric, n=500, d=12, q=40, seed=0):
    """Rows in clusters, with duplicates and, beside haversine, a zero row; queries near them and some on them."""
    rng = np.random.default_rng(seed)
    base = pick_metric(metric).distance.name
    d = 2 if base == "haversine" else d
    centers = rng.normal(size=(12, d)) * 3
    rows = centers[rng.integers(12, size=n)] + rng.normal(size=(n, d))
    queries = centers[rng.integers(12, size=q)] + rng.normal(size=(q, d))
    if base == "hamming":
        rows, queries = np.rint(rows), np.rint(queries)
    if base == "haversine":
        rows, queries = rows / 10, queries / 10
    rows[n // 2 : n // 2 + 20] = rows[:20]
    queries[:5] = rows[:5]
    return rows, queries


def in_order(distances, kind):
    """Positions (q, n) by (distance as given, position); libraries differ in the last two digits of equal distances."""
    size = np.abs(distances).max()
    given = (np.round(distances / size, 13) * size).astype(kind)
    return np.lexsort((np.broadcast_to(np.arange(given.shape[1]), given.shape), given), axis=1)


def kept_rows(index, rows):
    """The rows that the index knows: those given, or what its codes say."""
    store = getattr(index.recipe, "store", None)
    return rows if store is None or store.rerank else index.rows[:]


def everywhere(index):
    """How to search all rows: exact indexes do, landmarks look into every cell, hash tables cannot."""
    return {"probes": index.n_landmarks} if index.recipe.name == "landmarks" else {}


def recall(ids, best):
    return np.mean([len(set(a) & set(b)) / best.shape[1] for a, b in zip(ids, best)])


@every_metric
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_answers_are_those_of_brute_force(recipe, metric, dtype):
    rows, queries = (a.astype(dtype) for a in clustered(metric))
    index = recipe.build(rows, metric)
    expected = brute_distances(queries, kept_rows(index, rows), metric)
    kind = np.float64 if pick_metric(metric).distance.name == "haversine" else dtype
    best = in_order(expected, kind)[:, :6]
    found = index.nearest(queries, 6)
    if recipe.exact:
        np.testing.assert_array_equal(found.ids, best)
    else:
        assert recall(found.ids, best) >= RECALL[recipe.name]
    if everywhere(index):
        np.testing.assert_array_equal(index.nearest(queries, 6, **everywhere(index)).ids, best)
    mine = np.take_along_axis(expected, found.ids, axis=1)
    np.testing.assert_allclose(found.distances, mine, rtol=1e-12 if kind == np.float64 else 1.2e-7, atol=1e-7)
    assert (np.diff(found.distances, axis=1) >= 0).all()
    assert all(len(set(ids)) == 6 for ids in found.ids)
    assert found.ids.dtype == np.int64
    assert found.distances.dtype == kind
    assert np.isfinite(index.touched_)
    assert index.why_


@every_metric
def test_search_scores_are_the_metrics(recipe, metric):
    rows, queries = clustered(metric)
    index = recipe.build(rows, metric)
    scores, distances = index.search(queries, 4).scores, index.nearest(queries, 4).distances
    np.testing.assert_array_equal(scores, pick_metric(metric).score(distances))
    assert (np.diff(scores, axis=1) <= 0).all()


@pairs
def test_more_neighbors_than_rows(recipe, metric):
    rows, queries = clustered(metric, n=50)
    index = recipe.build(rows[:3], metric)
    found = index.nearest(queries, 5)
    assert (np.sort(found.ids[:, :3], axis=1) == np.arange(3)).all()
    assert (found.ids[:, 3:] == -1).all()
    assert np.isinf(found.distances[:, 3:]).all()
    assert np.isneginf(index.search(queries, 5).scores[:, 3:]).all()


@pairs
def test_one_row_and_one_query(recipe, metric):
    rows, queries = clustered(metric)
    index = recipe.build(rows[:1], metric)
    assert index.n_rows == 1
    assert index.nearest(queries[0], 1).ids.tolist() == [[0]]
    assert index.nearest(queries[:0], 2).ids.shape == (0, 2)


@pairs
def test_every_row_can_be_found(recipe, metric):
    """A search that sees too few rows looks further before it gives up."""
    rows, queries = clustered(metric, n=200)
    ids = recipe.build(rows, metric).nearest(queries, 200).ids
    assert (np.sort(ids, axis=1) == np.arange(200)).all()


@each_recipe
def test_ids_of_the_caller(recipe):
    rows, queries = clustered("euclidean")
    names = np.random.default_rng(1).permutation(len(rows)) * 7 + 10**12
    plain, named = recipe.build(rows), recipe.build(rows, ids=names)
    np.testing.assert_array_equal(named.nearest(queries, 4).ids, names[plain.nearest(queries, 4).ids])


@measured
def test_add_then_remove(recipe, metric):
    rows, queries = clustered(metric)
    index = recipe.build(rows[:450], metric)
    index.add(rows[450:])
    assert index.n_rows == 500
    with pytest.raises(InputError, match="999"):
        index.remove([3, 999])
    assert index.remove([3, 400, 460]) == 3
    left = np.delete(np.arange(500), [3, 400, 460])
    expected = brute_distances(queries, kept_rows(index, rows[left]), metric)
    best = left[in_order(expected, np.float64)[:, :5]]
    found = index.nearest(queries, 5, **everywhere(index)).ids
    if recipe.exact or everywhere(index):
        np.testing.assert_array_equal(found, best)
    else:
        assert np.isin(found, left).all()
        assert recall(found, best) >= RECALL[recipe.name]
    with pytest.raises(InputError, match="already"):
        index.add(rows[:1], ids=[7])
    assert index.remove(index.ids) == 497
    assert index.nearest(queries, 2).ids.tolist() == [[-1, -1]] * len(queries)
    again = restore(*index.parts())
    for emptied in (index, again):
        emptied.add(rows[:40], ids=np.arange(40))
        expected = brute_distances(queries, kept_rows(emptied, rows[:40]), metric)
        found = emptied.nearest(queries, 40).ids  # all there are: every index looks everywhere
        np.testing.assert_array_equal(found, in_order(expected, np.float64))


@pairs
def test_parts_restore_read_only(recipe, metric):
    rows, queries = clustered(metric)
    index = recipe.build(rows, metric, ids=np.arange(500)[::-1])
    facts, arrays = index.parts()
    for array in arrays.values():
        array.flags.writeable = False
    again = restore(facts, arrays)
    assert type(again) is type(index)
    assert again.metric == index.metric
    assert again.recipe == index.recipe
    before, after = index.nearest(queries, 5), again.nearest(queries, 5)
    np.testing.assert_array_equal(before.ids, after.ids)
    np.testing.assert_allclose(before.distances, after.distances, rtol=1e-6)


@each_recipe
def test_indexes_pickle(recipe):
    rows, queries = clustered("euclidean")
    index = recipe.build(rows)
    again = pickle.loads(pickle.dumps(index))
    np.testing.assert_array_equal(again.nearest(queries, 5).ids, index.nearest(queries, 5).ids)


@pairs
def test_threads_do_not_change_the_answer(recipe, metric):
    rows, queries = clustered(metric)
    index = recipe.build(rows, metric)
    one, all_of_them = index.nearest(queries, 5, n_jobs=1), index.nearest(queries, 5)
    np.testing.assert_array_equal(one.ids, all_of_them.ids)
    singles = np.concatenate([index.nearest(q, 5).ids for q in queries])
    np.testing.assert_array_equal(singles, all_of_them.ids)


@each_recipe
def test_number_types_and_layouts(recipe):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, size=(300, 10)).astype(np.uint8)
    queries = rng.integers(0, 256, size=(20, 10)).astype(np.uint8)
    expected = recipe.build(rows.astype(np.float32)).nearest(queries, 4)
    for given in (rows, rows.astype(np.float16), np.asfortranarray(rows), np.repeat(rows, 2, axis=1)[:, ::2]):
        found = recipe.build(given).nearest(queries.astype(given.dtype), 4)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.distances, expected.distances)


@pytest.mark.parametrize("recipe", [r for r in RECIPES if COSINE in r.distances], ids=label)
def test_zero_vectors_under_cosine(recipe):
    rows, queries = clustered("cosine")
    rows[7] = 0
    queries[3] = 0
    index = recipe.build(rows, "cosine")
    found = index.nearest(queries, 4)
    assert np.isfinite(found.distances).all()
    np.testing.assert_array_equal(found.distances[3], 1.0)
    if recipe.exact:
        assert found.ids[3].tolist() == [0, 1, 2, 3]
    everything = index.nearest(queries[:3], 500)
    if kept_rows(index, rows) is rows:  # codes of a zero row are nearly zero, and have a direction
        assert (everything.distances[everything.ids == 7] == 1.0).all()


@pytest.mark.parametrize("recipe", [r for r in RECIPES if r.exact], ids=label)
def test_ties_go_to_the_lower_position(recipe):
    rows = np.tile(np.arange(6.0)[:, None] % 3, (200, 2))  # three distinct points, 400 copies of each
    found = recipe.build(rows).nearest([[0.0, 0.0], [2.0, 2.0]], 5)
    assert found.ids.tolist() == [[0, 3, 6, 9, 12], [2, 5, 8, 11, 14]]


@pytest.mark.parametrize("name", list(INDEXES))
def test_bad_input_is_refused(name):
    recipe = INDEXES[name]()
    with pytest.raises(InputError, match="at least one row"):
        recipe.build(np.empty((0, 3)))
    with pytest.raises(InputError, match="NaN"):
        recipe.build([[np.nan, 1.0]])
    with pytest.raises(InputError, match="more than once"):
        recipe.build(np.eye(3), ids=[1, 1, 2])
    with pytest.raises(InputError, match="whole numbers"):
        recipe.build(np.eye(3), ids=[0.5, 1, 2])
    index = recipe.build(np.eye(3))
    with pytest.raises(InputError, match="columns"):
        index.nearest(np.eye(2), 1)
    with pytest.raises(InputError, match="2 columns"):
        Flat().build(np.eye(3), "haversine")


@pytest.mark.parametrize("recipe", [KDTree(), Landmarks(), LSH()], ids=label)
def test_impossible_combinations_say_so(recipe):
    with pytest.raises(CombinationError, match="hamming"):
        recipe.build(np.eye(3), "hamming")
    with pytest.raises(CombinationError, match="sparse"):
        recipe.build(sp.csr_matrix(np.eye(3)))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot", Gaussian(1.0)], ids=str)
def test_sparse_rows(metric):
    rows = sp.random(400, 60, density=0.1, format="csr", random_state=0)
    queries = sp.random(30, 60, density=0.1, format="csr", random_state=1)
    index = Flat().build(rows, metric)
    expected = brute_distances(queries.toarray(), rows.toarray(), metric)
    best = in_order(expected, np.float64)[:, :5]
    for given in (queries, queries.toarray()):
        np.testing.assert_array_equal(index.nearest(given, 5).ids, best)
    dense = Flat().build(rows.toarray(), metric)
    np.testing.assert_allclose(dense.nearest(queries, 5).distances, index.nearest(queries, 5).distances, atol=1e-12)
    index.add(rows[:3])
    assert index.remove([400]) == 1
    assert index.n_rows == 402
    again = restore(*index.parts())
    np.testing.assert_array_equal(again.nearest(queries, 5).ids, index.nearest(queries, 5).ids)
    with pytest.raises(CombinationError, match="dense rows"):
        Flat().build(rows, "manhattan")


def duplicated(matrix):
    """The same matrix with every stored value in two halves, and columns out of order."""
    coo = matrix.tocoo()
    order = np.random.default_rng(0).permutation(2 * coo.nnz)
    row, col, half = (np.concatenate([v, v])[order] for v in (coo.row, coo.col, coo.data / 2))
    order = np.argsort(row, kind="stable")
    starts = np.searchsorted(row[order], np.arange(matrix.shape[0] + 1))
    return sp.csr_matrix((half[order], col[order], starts), shape=matrix.shape)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "dot"])
def test_sparse_rows_with_duplicates(metric):
    """Values stored in two parts are their sum, wherever they come in; equal rows tie."""
    rows = sp.random(300, 40, density=0.25, format="csr", random_state=0)
    rows = sp.csr_matrix(sp.vstack([rows, rows[:50]]))
    queries = sp.csr_matrix(sp.vstack([rows[:20], sp.random(20, 40, density=0.25, format="csr", random_state=1)]))
    twice, asked = duplicated(rows), duplicated(queries)
    assert not twice.has_canonical_format
    data = twice.data.copy()
    plain, index = Flat().build(rows[:280], metric), Flat().build(twice[:280], metric)
    for one, given in ((plain, rows), (index, twice)):
        one.add(given[280:])
    expected = plain.nearest(queries, 6)
    best = in_order(brute_distances(queries.toarray(), rows.toarray(), metric), np.float64)[:, :6]
    np.testing.assert_array_equal(expected.ids, best)
    for given in (queries, asked):
        found = index.nearest(given, 6)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.distances, expected.distances)
    np.testing.assert_array_equal(twice.data, data)  # the caller's matrix stays as it is
