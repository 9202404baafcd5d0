"""How far the values of a column usually lie from their mean: s_j = sqrt(mean_i (x_ij - mean_j)^2), dense or CSR."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 22  # values turned into float64 at a time


def spread(X: Any) -> NDArray[np.float64]:
    """Standard deviation (d,) of each column of X (n, d)."""
    n, d = X.shape
    step = max(1, _BLOCK // max(d, 1)) if not hasattr(X, "tocsr") else n
    first, second = np.zeros(d), np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, n, step):
            rows = X[begin : begin + step]
            squares = rows.multiply(rows) if hasattr(rows, "tocsr") else np.square(rows, dtype=np.float64)
            first += np.asarray(rows.sum(axis=0, dtype=np.float64)).ravel()
            second += np.asarray(squares.sum(axis=0, dtype=np.float64)).ravel()
        found = np.sqrt(np.maximum(0, second / n - (first / n) ** 2))
    return np.where(np.isnan(found), np.inf, found)  # squares beyond float64
