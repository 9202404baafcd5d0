"""Distances that are equal on paper are ties in float32, and go to the lower position."""

import numpy as np
import pytest

from kway.search import Flat, KDTree, Landmarks


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


@pytest.mark.parametrize("recipe", [Flat(), KDTree(), Landmarks(8, probes=8)], ids=lambda r: type(r).__name__)
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
