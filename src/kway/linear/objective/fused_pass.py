"""One reading of some rows by a fused kernel: theta laid out as its tiles take it, and what adds up to a gradient."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.linear import fused
from kway.compute.kernels.product_tiles import MOST, Tile, tile_of


class FusedPass(NamedTuple):
    """weights (R, padded) and bias (16,) of a theta, `products` and `sums` of what goes back; a number a score."""

    weights: NDArray
    bias: NDArray
    products: NDArray
    sums: NDArray
    tile: Tile
    classes: tuple[np.floating, ...]

    @staticmethod
    def of(theta: NDArray, dtype: np.dtype) -> FusedPass:
        """Of theta (R, d + 1) over rows of a float type."""
        R, d = len(theta), theta.shape[1] - 1
        tile = tile_of(R, dtype.itemsize)
        weights = np.zeros((R, fused.padded_width(d, tile.lanes)), dtype)
        weights[:, :d] = theta[:, :-1]
        bias = np.full(MOST, fused.FAR, dtype)
        bias[:R] = theta[:, -1]
        return FusedPass(weights, bias, np.zeros_like(weights), np.zeros(MOST, dtype), tile, (dtype.type(0),) * R)

    def gradient(self, d: int) -> NDArray:
        """What came back, (R, d + 1)."""
        return np.column_stack((self.products[:, :d], self.sums[: len(self.weights)]))
