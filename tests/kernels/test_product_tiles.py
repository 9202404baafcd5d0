"""The register tiles against numpy, on any CPU: LLVM legalises their vectors where registers are shorter."""

import numpy as np
import pytest

from kway.kernels import lanes
from kway.kernels.linear.fused import backward_rows, forward_rows, padded_width
from kway.kernels.product_tiles import MAX_SCORES, in_registers, tile_of

SHAPES = [(1, 16, 1), (32, 50, 3), (17, 15, 10), (5, 100, 7), (30, 128, 16), (3, 3, 13)]


@pytest.mark.parametrize("number", [np.float32, np.float64])
@pytest.mark.parametrize(("rows", "features", "K"), SHAPES)
def test_both_products(rows, features, K, number):
    rng = np.random.default_rng(features)
    X, W = (rng.standard_normal(shape).astype(number) for shape in ((rows, features), (K, features)))
    tile, classes = tile_of(K, X.itemsize), (number(0),) * K
    T = np.zeros((K, padded_width(features, tile.lanes)), number)
    G, Z = np.zeros_like(T), np.zeros((rows, MAX_SCORES), number)
    T[:, :features] = W
    x, z = X.ctypes.data, Z.ctypes.data
    forward_rows(x, X.strides[0], rows, features, T, z, Z.strides[0], tile, classes)
    close = {"rtol": 1e-5, "atol": 1e-4} if number is np.float32 else {"rtol": 1e-13, "atol": 1e-12}
    np.testing.assert_allclose(Z[:, :K], X.astype(float) @ W.T.astype(float), **close)
    backward_rows(x, X.strides[0], rows, features, z, Z.strides[0], G, tile, classes)
    np.testing.assert_allclose(G[:, :features], Z[:, :K].T.astype(float) @ X, **close)


@pytest.mark.parametrize(("features", "registers"), [({"avx512f"}, 32), ({"avx2", "fma"}, 16)])
def test_a_tile_fits_the_registers(features, registers, monkeypatch):
    """Accumulators, the rows' values and a weight."""
    monkeypatch.setattr(lanes, "cpu_features", lambda: frozenset(features))
    for K in range(1, MAX_SCORES + 1):
        tile = tile_of(K, 4)
        assert tile.height * tile.group + tile.height + 1 <= registers
        assert tile.height >= 2
        assert tile_of(K, 8) == (tile.height, tile.lanes // 2, tile.group)


@pytest.mark.parametrize("features", [{"avx512f"}, {"avx2", "fma"}])
def test_portable_is_honoured(features, monkeypatch):
    monkeypatch.setattr(lanes, "cpu_features", lambda: frozenset(features))
    monkeypatch.delenv("KWAY_PORTABLE", raising=False)
    assert in_registers()
    monkeypatch.setenv("KWAY_PORTABLE", "1")
    assert not in_registers()
    monkeypatch.setenv("KWAY_PORTABLE", "0")
    assert in_registers()


def test_a_cpu_without_such_registers(monkeypatch):
    monkeypatch.setattr(lanes, "cpu_features", lambda: frozenset({"avx2"}))
    assert not in_registers()
