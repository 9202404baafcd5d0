import numpy as np
import pytest
import scipy.sparse as sp

from kway.errors import CombinationError
from kway.modelfile.values import decode_value, encode_value
from kway.search.codecs.bits import Bits
from kway.search.codecs.int8 import Int8
from kway.search.codecs.stores import FULL, GpuStoredRows, StoredRows
from kway.search.distances import COSINE, DISTANCES, EUCLIDEAN, HAMMING, MANHATTAN
from kway.search.metrics import METRICS, Gaussian, Haversine, Laplacian


def rows(n=200, d=9):
    rng = np.random.default_rng(0)
    return 5.0 + rng.normal(size=(n, d)) * rng.uniform(0.1, 10, size=(n, 1))


def test_codes_are_within_half_a_step():
    kept = Int8().encode(rows(), EUCLIDEAN)
    assert kept.codes.dtype == np.int8
    assert (np.abs(kept[:] - rows()) <= 0.5001 * kept.scale[:, None] + 1e-6).all()
    np.testing.assert_allclose(kept[np.array([3, 1])], kept[:][[3, 1]])


def test_errors_are_the_norms_of_what_is_lost():
    kept = Int8().encode(rows(), EUCLIDEAN)
    gaps = rows() - kept[:]
    np.testing.assert_allclose(kept.errors(rows(), EUCLIDEAN), np.linalg.norm(gaps, axis=1))
    np.testing.assert_allclose(kept.errors(rows(), MANHATTAN), np.abs(gaps).sum(axis=1))


def test_append_take_and_restore():
    kept = Int8().encode(rows()[:150], EUCLIDEAN)
    both = kept.join(kept.like(rows()[150:]))
    assert both.shape == (200, 9)
    np.testing.assert_array_equal(both.take(np.array([160, 2])).codes, both.codes[[160, 2]])
    np.testing.assert_array_equal(Int8().restore(both.arrays(), EUCLIDEAN)[:], both[:])


def test_equal_rows_lose_nothing():
    kept = Int8().encode(np.full((4, 3), 2.5), EUCLIDEAN)
    np.testing.assert_array_equal(kept[:], 2.5)


def test_rows_next_to_the_center_are_encoded_without_a_warning():
    given = np.array([[0.0, 0.0], [1e-44, 0.0], [1.0, 1.0], [-1.0, -1.0]], np.float32)
    with np.errstate(all="raise", under="ignore"):
        kept = Int8().encode(given, EUCLIDEAN)
    assert (kept.scale > 0).all()
    np.testing.assert_allclose(kept[:], given, atol=1e-6)


def test_errors_under_cosine_are_of_unit_rows():
    given = rows()
    kept = Int8().encode(given, COSINE)
    u, v = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in (given, kept[:].astype(float)))
    np.testing.assert_allclose(kept.errors(given, COSINE), np.linalg.norm(u - v, axis=1))


@pytest.mark.parametrize("distance", DISTANCES, ids=str)
def test_what_cannot_be_coded_is_refused(distance):
    if distance.coded:
        Int8().check(distance, sparse=False)
        with pytest.raises(CombinationError, match="sparse rows"):
            Int8().check(distance, sparse=True)
    else:
        with pytest.raises(CombinationError, match=distance.name):
            Int8().check(distance, sparse=False)
    assert not HAMMING.coded


@pytest.mark.parametrize("store", [FULL, Int8(), Int8(rerank=False)], ids=str)
def test_kept_rows_join_drop_and_come_back(store):
    given = rows().astype(np.float32)
    kept = store.keep(given[:150], EUCLIDEAN)
    both = kept.join(kept.like(given[150:])).drop(np.array([0, 199])).take(np.arange(198)[::-1])
    expected = given[1:199][::-1]
    if store is None or store.rerank:
        np.testing.assert_array_equal(both.best, expected)
    else:
        assert np.abs(both.best[:] - expected).max() < 0.3
    arrays = both.arrays()
    again = store.load(arrays.get("rows"), arrays, EUCLIDEAN)
    np.testing.assert_array_equal(again.scanned[:], both.scanned[:])
    assert again.nbytes == both.nbytes


def test_stores_and_metrics_survive_a_file():
    values = [Int8(), Int8(rerank=False), Bits(2, rerank=False), Bits(miss=0.01)]
    values += [*METRICS.values(), Haversine(degrees=True), Gaussian(0.5), Laplacian(2.0)]
    for value in values:
        assert decode_value(encode_value(value, "a value")) == value


def test_bytes_of_sparse_rows_are_those_of_their_arrays():
    kept = StoredRows(sp.random_array((30, 8), density=0.3, rng=0, format="csr"))
    assert kept.nbytes == kept.full.data.nbytes + kept.full.indices.nbytes + kept.full.indptr.nbytes
    assert kept.device_bytes() == 2 * kept.nbytes


def test_rows_on_a_gpu_are_not_copied_to_be_compared_or_printed():
    class Rows:
        def __array__(self, *args, **kwargs):
            raise AssertionError("the rows were copied")

    kept = GpuStoredRows(Rows())
    assert kept == kept
    assert kept != GpuStoredRows(Rows())
    assert "GpuStoredRows" in repr(kept)
