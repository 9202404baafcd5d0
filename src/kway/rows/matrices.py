"""Operations on a block of rows, dense or CSR, that passes and solvers share."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Rows = Any  # (m, d): an array or a CSR matrix


def dense_rows(X: Rows) -> NDArray[np.float64]:
    """Rows as a float64 array (m, d)."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)


def transposed_product(slope: NDArray, X: Rows) -> NDArray:
    """slope' X, (R, d)."""
    return np.asarray((X.T @ slope).T) if sp.issparse(X) else slope.T @ X


def rooted_rows(X: Rows, root: NDArray | None, dtype: np.dtype, bias: bool) -> NDArray:
    """diag(root) [X 1], dense, (m, D): its Gram matrix is [X 1]' diag(root^2) [X 1]."""
    X = X.toarray() if sp.issparse(X) else X
    out = np.empty((len(X), X.shape[1] + bias), dtype)
    out[:, : X.shape[1]] = X
    if bias:
        out[:, -1] = 1
    if root is not None:
        out *= root[:, None].astype(dtype)
    return out


def row_squares(X: Rows, dtype: Any = np.float64) -> NDArray:
    """||x_i||^2 (m,), added up in a float type."""
    if sp.issparse(X):
        return np.asarray(X.astype(dtype).power(2).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=dtype)
