import numpy as np
import pytest
from tests.helpers.neighbors import brute_neighbors

from kway.errors import InputError
from kway.search import Flat, Int8, restore
from kway.search.certified import BoundedScan
from kway.search.flat import BOUNDS_AFTER


def structured(n, seed=0, d=64):
    """Rows of few directions, where bounds can rule out most of them."""
    rng = np.random.default_rng(seed)
    basis = np.random.default_rng(5).normal(size=(6, d))
    return (rng.normal(size=(n, 6)) @ basis + 0.01 * rng.normal(size=(n, d))).astype(np.float32)


@pytest.fixture(scope="module", params=["euclidean", "manhattan", "cosine"])
def certified(request):
    rows = structured(20_000)
    index = Flat().build(rows, request.param)
    assert isinstance(index._main, BoundedScan), index.why_
    return index, rows, request.param


def test_certified_search_is_brute_force(certified):
    index, rows, metric = certified
    queries = np.concatenate([structured(60, seed=1), rows[:20]])
    np.testing.assert_array_equal(index.nearest(queries, 5).ids, brute_neighbors(queries, rows, metric, 5))
    assert index.touched_ < 2000
    np.testing.assert_array_equal(
        index.nearest(queries[:2], 20_000).ids[:, :50], brute_neighbors(queries[:2], rows, metric, 50)
    )


def test_added_and_removed_rows_beside_the_certified_ones(certified):
    index, rows, metric = certified
    index = restore(*index.parts())
    index.nearest(structured(BOUNDS_AFTER, seed=3), 5)  # and so its bounds are built again
    more, queries = structured(300, seed=2), structured(40, seed=1)
    index.add(more)
    first = index.nearest(queries, 5).ids
    both = np.concatenate([rows, more])
    np.testing.assert_array_equal(first, brute_neighbors(queries, both, metric, 5))
    gone = np.unique(np.concatenate([first[:10, 0], [20_005]]))
    assert index.remove(gone) == len(gone)
    assert isinstance(index._main, BoundedScan)  # a few are left out of the answers, nothing is built again
    left = np.delete(np.arange(len(both)), gone)
    np.testing.assert_array_equal(index.nearest(queries, 5).ids, left[brute_neighbors(queries, both[left], metric, 5)])
    index.remove(left[:200])
    left = left[200:]
    np.testing.assert_array_equal(index.nearest(queries, 5).ids, left[brute_neighbors(queries, both[left], metric, 5)])
    assert index.rows.shape == (len(left), 64)


@pytest.mark.parametrize("ids", [[1.5], ["a"], [None], 2.0])
def test_ids_to_remove_are_whole_numbers(ids):
    index = Flat().build(np.eye(4), "euclidean")
    with pytest.raises(InputError, match="whole numbers"):
        index.remove(ids)
    assert index.remove([]) == 0
    assert index.remove(2) == 1


def test_an_index_from_a_file_scans_for_few_queries_before_it_builds_bounds_again(certified):
    index, rows, metric = certified
    again, queries = restore(*index.parts()), structured(BOUNDS_AFTER, seed=4)
    few = [again.nearest(queries[i : i + 1], 5).ids[0] for i in range(3)]
    assert not isinstance(again._main, BoundedScan)
    assert again.why_ == index.why_
    np.testing.assert_array_equal(few, brute_neighbors(queries[:3], rows, metric, 5))
    np.testing.assert_array_equal(again.nearest(queries, 5).ids, index.nearest(queries, 5).ids)
    assert isinstance(again._main, BoundedScan)
    assert again.why_ == index.why_


def test_duplicates_defeat_no_proof_under_cosine():
    rows = np.repeat(structured(500), 20, axis=0)
    found = Flat().build(rows, "cosine").nearest(rows[:200:20], 25)
    np.testing.assert_array_equal(found.ids[:, :20], np.arange(200).reshape(10, 20))
    np.testing.assert_array_equal(found.distances[:, :20], 0.0)


def test_bytes_are_a_quarter():
    rows = structured(3000)
    assert Flat(store=Int8(rerank=False)).build(rows).nbytes < 0.3 * rows.nbytes + 4 * 3 * 3000
    assert "approximate" in Flat(store=Int8(rerank=False)).build(rows).why_
    assert "exact" in Flat(store=Int8()).build(rows).why_


def test_added_rows_in_many_small_steps():
    rows, queries = structured(800), structured(20, seed=1)
    index = Flat().build(rows[:100])
    for start in range(100, 800, 37):
        index.add(rows[start : start + 37])
    np.testing.assert_array_equal(index.nearest(queries, 5).ids, brute_neighbors(queries, rows, "euclidean", 5))
