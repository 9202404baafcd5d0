import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers.neighbors import brute_distances

from kway.errors import InputError
from kway.search import Flat, Landmarks
from kway.search import block_scan as blocks
from kway.search.block_scan import BlockScan
from kway.search.codecs.stores import StoredRows
from kway.search.distances import DISTANCES, EUCLIDEAN

BY_NAME = {distance.name: distance for distance in DISTANCES}


def adversarial(kind, rng, n=700, d=16):
    """Data that defeats a careless bound."""
    rows = rng.normal(size=(n, d))
    if kind == "duplicates":
        rows = rows[rng.integers(5, size=n)]
    elif kind == "offset":
        rows = rows * 1e-2 + 1e4
    elif kind == "tiny":
        rows *= 1e-18
    elif kind == "huge":
        rows *= 1e17
    elif kind == "outlier":
        rows[3] *= 1e7
    elif kind == "line":
        rows[:, 1:] *= 1e-5
    elif kind == "integers":
        rows = np.rint(rows)
    return rows


@settings(deadline=None, max_examples=60)
@given(
    kind=st.sampled_from(["plain", "duplicates", "offset", "tiny", "huge", "outlier", "line", "integers"]),
    base=st.sampled_from(["euclidean", "manhattan", "dot", "hamming"]),
    dtype=st.sampled_from([np.float32, np.float64]),
    k=st.sampled_from([1, 4, 50]),
    seed=st.integers(0, 1000),
)
def test_scans_equal_brute_force(kind, base, dtype, k, seed):
    rng = np.random.default_rng(seed)
    rows = adversarial(kind, rng).astype(dtype)
    queries = np.concatenate([rows[:4], adversarial(kind, rng)[:9].astype(dtype)])
    ids, distances = BlockScan(StoredRows(rows), BY_NAME[base]).nearest(queries, k)
    expected = brute_distances(queries, rows, base)
    best = np.sort(expected, axis=1)[:, :k]
    size = np.abs(expected).max(axis=1, keepdims=True)
    np.testing.assert_allclose(
        distances, best, rtol=1e-12, atol=1e-14 * size.max() if base == "dot" else 1e-14 * best.max()
    )
    tied = np.diff(np.sort(expected, axis=1)[:, : k + 1], axis=1) <= 1e-12 * size
    sure = ~tied.any(axis=1)
    np.testing.assert_array_equal(ids[sure], np.argsort(expected, axis=1, kind="stable")[sure, :k])
    if kind in ("integers", "duplicates") and base != "dot":  # equal rows, equal distances: ties to the lower position
        np.testing.assert_array_equal(
            ids, np.lexsort((np.tile(np.arange(len(rows)), (len(queries), 1)), expected))[:, :k]
        )


@settings(deadline=None, max_examples=40)
@given(
    base=st.sampled_from(["euclidean", "cosine", "dot"]),
    n=st.sampled_from([3, 40, 700]),
    k=st.sampled_from([1, 4, 50]),
    tile=st.sampled_from([2**10, 2**19]),
    integers=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_sparse_scans_equal_brute_force_and_measure_few(base, n, k, tile, integers, seed):
    rng, k = np.random.default_rng(seed), min(k, n)
    rows = sp.random_array((n, 60), density=0.2, rng=rng, format="csr").toarray() + 0.0
    if integers:  # ties
        rows = np.rint(3 * rows)
    rows[:, 0] = 1.0  # the cosine of nothing is a matter of taste
    queries = np.concatenate([rows[:3], rows[rng.integers(n, size=9)] * 1.5])
    scan, before = BlockScan(StoredRows(sp.csr_matrix(rows)), BY_NAME[base]), blocks.TILE_KEYS
    blocks.TILE_KEYS = tile
    try:
        ids, distances = scan.nearest(sp.csr_matrix(queries), k)
    finally:
        blocks.TILE_KEYS = before
    expected = brute_distances(queries, rows, base)
    np.testing.assert_allclose(distances, np.sort(expected, axis=1)[:, :k], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(np.take_along_axis(expected, ids, axis=1), distances, rtol=1e-9, atol=1e-12)
    assert (np.diff(np.sort(ids, axis=1), axis=1) > 0).all()  # nobody twice
    if tile > 2**10 and not integers:  # all rows at once, none alike
        assert scan.touched <= k + 2


def test_few_queries_share_out_the_rows():
    rng = np.random.default_rng(0)
    rows, queries = rng.normal(size=(9000, 5)), rng.normal(size=(1, 5))
    scan = BlockScan(StoredRows(rows), EUCLIDEAN)
    assert (
        scan.nearest(queries, 9).ids[0].tolist()
        == np.argsort(brute_distances(queries, rows, "euclidean")[0])[:9].tolist()
    )
    assert scan.touched < 900


def test_tiles_do_not_change_the_answer(monkeypatch):
    rng = np.random.default_rng(0)
    rows, queries = rng.normal(size=(3000, 5)).astype(np.float32), rng.normal(size=(300, 5)).astype(np.float32)
    answers = []
    for tile in (2**10, 2**19):
        monkeypatch.setattr(blocks, "TILE_KEYS", tile)
        answers.append(BlockScan(StoredRows(rows), EUCLIDEAN).nearest(queries, 7))
    np.testing.assert_array_equal(answers[0].ids, answers[1].ids)
    np.testing.assert_array_equal(answers[0].distances, answers[1].distances)


@pytest.mark.parametrize("k", [0, -1, 2.0, "3", None, True, np.float64(1)])
def test_k_is_checked_with_one_sentence(k):
    index, rows = Landmarks(n_landmarks=2).build(np.eye(4)), np.eye(4)
    calls = (
        index.nearest,
        index.search,
        Flat().build(rows).nearest,
        lambda q, k: index.nearest_by_probes(q, k, [1, 2]),
    )
    for call in calls:
        with pytest.raises(InputError, match=r"k must be a whole number of at least 1, got"):
            call(rows, k)
