"""Neighborhood components: the slope against brute force, and what is learned of columns that tell nothing."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import approx_fprime

from kway.tables.features.components import ColumnMap, _vote_loss, learn_mixtures, learn_scales
from kway.threads import at_most


def brute_loss(X, codes, A, q):
    """-mean_i log sum_{j of i's class} softmax_j(-|z_i - z_j|^2), a row at a time in float64."""
    Z = X * A if A.ndim == 1 else X @ A.T
    total = 0.0
    for i in range(q):
        others = np.arange(len(X)) != i
        w = np.exp(-((Z[i] - Z[others]) ** 2).sum(axis=1))
        total -= np.log(w[codes[others] == codes[i]].sum() / w.sum())
    return total / q


@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_slope_is_that_of_the_loss(seed, mixed):
    rng = np.random.default_rng(seed)
    n, d, q = int(rng.integers(20, 150)), int(rng.integers(1, 6)), int(rng.integers(1, 20))
    X, codes = rng.normal(size=(n, d)).astype(np.float32), np.r_[np.arange(3), np.arange(3), rng.integers(0, 3, n - 6)]
    A = rng.normal(size=(d, d)) if mixed else rng.normal(size=d)
    found = _vote_loss(X, codes, A, q)
    wide = X.astype(np.float64)
    assert found.loss == pytest.approx(brute_loss(wide, codes, A, q), rel=1e-4)
    slope = approx_fprime(A.ravel(), lambda a: brute_loss(wide, codes, a.reshape(A.shape), q), 1e-6)
    np.testing.assert_allclose(found.gradient.ravel(), slope, atol=2e-4 * max(1, np.abs(slope).max()))


def test_a_row_alone_of_its_class_moves_nothing():
    X, codes = np.random.default_rng(0).normal(size=(6, 2)).astype(np.float32), np.array([0, 1, 1, 1, 1, 1])
    found = _vote_loss(X, codes, np.ones(2), 1)
    assert not found.gradient.any()


def test_threads_change_nothing():
    rng = np.random.default_rng(1)
    X, codes = rng.normal(size=(400, 5)), rng.integers(0, 3, 400)
    with at_most(1):
        alone = learn_scales(X, codes).scale
    with at_most(2):
        np.testing.assert_array_equal(learn_scales(X, codes).scale, alone)


@pytest.mark.parametrize("unit", [1.0, 1e-120, 1e140])
def test_columns_of_noise_count_for_little(unit):
    rng = np.random.default_rng(2)
    X, codes = rng.normal(size=(3000, 12)), rng.integers(0, 3, 3000)
    X[:, :2] += 2 * np.stack([np.cos(2.1 * codes), np.sin(2.1 * codes)], axis=1)
    learned = learn_scales(X * unit, codes)
    weight = np.abs(learned.scale)
    assert weight[:2].min() > 2 * np.sqrt(np.mean(weight[2:] ** 2))
    assert np.isfinite(learned.apply(X * unit)).all()


def test_mixtures_find_a_direction_across_columns():
    rng = np.random.default_rng(3)
    X, codes = rng.normal(size=(2000, 6)), rng.integers(0, 2, 2000)
    X[:, 0] = X[:, 1] + 0.3 * (codes - 0.5) + 0.1 * rng.normal(size=2000)  # only the difference tells
    mixed = learn_mixtures(X, codes)
    u, v = np.array([1.0, -1, 0, 0, 0, 0]), np.array([1.0, 1, 0, 0, 0, 0])
    turned = mixed.rotation * mixed.scale
    assert np.linalg.norm(turned @ u) > 1.5 * np.linalg.norm(turned @ v)  # far along the difference, near along the sum


@pytest.mark.parametrize("rows", [2, 3, 5])
def test_very_few_rows_and_constant_columns(rows):
    X = np.zeros((rows, 3))
    X[:, 0] = np.arange(rows)
    learned = learn_mixtures(X, np.arange(rows) % 2)
    assert np.isfinite(learned.apply(X)).all()


def test_a_map_of_sparse_rows_is_that_of_dense_ones():
    X = sp.random(30, 8, 0.3, "csr", np.float32, random_state=0)
    learned = ColumnMap(np.arange(8.0))
    np.testing.assert_allclose(learned.apply(X).toarray(), learned.apply(X.toarray()), rtol=1e-6)
    assert learned.apply(X).dtype == np.float32
