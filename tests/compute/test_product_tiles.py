"""The register tiles against numpy, on any CPU: LLVM legalises their vectors where registers are shorter."""

import numpy as np
import pytest

from kway.compute.kernels import lanes
from kway.compute.kernels.linear.fused import backward_rows, forward_rows, padded_width
from kway.compute.kernels.product_tiles import LANES, tile_height, wide


@pytest.mark.parametrize(("rows", "features", "K"), [(1, 16, 1), (32, 50, 3), (17, 15, 10), (30, 128, 16)])
def test_both_products(rows, features, K):
    rng = np.random.default_rng(features)
    X, W = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, features), (K, features)))
    T, G = np.zeros((K, padded_width(features)), np.float32), np.zeros((K, padded_width(features)), np.float32)
    T[:, :features] = W
    Z = np.zeros((rows, LANES), np.float32)
    x, z, height, classes = X.ctypes.data, Z.ctypes.data, tile_height(K), (0,) * K
    forward_rows(x, X.strides[0], rows, features, T, z, Z.strides[0], height, classes)
    np.testing.assert_allclose(Z[:, :K], X.astype(float) @ W.T.astype(float), rtol=1e-5, atol=1e-4)
    backward_rows(x, X.strides[0], rows, features, z, Z.strides[0], G, height, classes)
    np.testing.assert_allclose(G[:, :features], Z[:, :K].T.astype(float) @ X, rtol=1e-4, atol=1e-3)


def test_portable_is_honoured(monkeypatch):
    monkeypatch.setattr(lanes, "cpu_features", lambda: frozenset({"avx512f"}))
    monkeypatch.delenv("KWAY_PORTABLE", raising=False)
    assert wide()
    monkeypatch.setenv("KWAY_PORTABLE", "1")
    assert not wide()
    monkeypatch.setenv("KWAY_PORTABLE", "0")
    assert wide()
