import numpy as np

from kway.search.stores.int8 import code_errors, coded, coded_from


def rows(n=200, d=9):
    rng = np.random.default_rng(0)
    return 5.0 + rng.normal(size=(n, d)) * rng.uniform(0.1, 10, size=(n, 1))


def test_codes_are_within_half_a_step():
    kept = coded(rows())
    assert kept.codes.dtype == np.int8
    assert (np.abs(kept[:] - rows()) <= 0.5001 * kept.scale[:, None] + 1e-6).all()
    np.testing.assert_allclose(kept[np.array([3, 1])], kept[:][[3, 1]])


def test_errors_are_the_norms_of_what_is_lost():
    kept = coded(rows())
    gaps = rows() - kept[:]
    np.testing.assert_allclose(code_errors(rows(), kept, "euclidean"), np.linalg.norm(gaps, axis=1))
    np.testing.assert_allclose(code_errors(rows(), kept, "manhattan"), np.abs(gaps).sum(axis=1))


def test_append_take_and_restore():
    kept = coded(rows()[:150])
    both = kept.append(coded(rows()[150:], kept.centre))
    assert both.shape == (200, 9)
    np.testing.assert_array_equal(both.take(np.array([160, 2])).codes, both.codes[[160, 2]])
    np.testing.assert_array_equal(coded_from(both.arrays())[:], both[:])


def test_equal_rows_lose_nothing():
    kept = coded(np.full((4, 3), 2.5))
    np.testing.assert_array_equal(kept[:], 2.5)
