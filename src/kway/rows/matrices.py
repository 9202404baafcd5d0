"""Operations on a block of rows (m, d), dense or CSR, and on symmetric matrices, that passes and solvers share.

Symmetric matrices are stored as their upper triangle in Fortran order, float32 or float64. `add_gram`, `invert` and
`multiply` call BLAS and LAPACK through the addresses that scipy publishes for Cython. Unlike scipy's own wrappers, they
release the GIL, so that two of them run on two threads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.memory import BLOCK_BYTES, rows_per_block

Rows = Any  # (m, d): an array or a CSR matrix
_POWER_ITERATIONS = 10  # products with the matrix; they give the eigenvalue well enough for a step size


def dense_rows(X: Rows) -> NDArray[np.float64]:
    """Return rows as a float64 array (m, d)."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)


def transposed_product(slope: NDArray, X: Rows) -> NDArray:
    """Return slope' X, of shape (R, d)."""
    return np.asarray((X.T @ slope).T) if sp.issparse(X) else slope.T @ X


def rooted_rows(X: Rows, root: NDArray | None, dtype: np.dtype, bias: bool) -> NDArray:
    """Return diag(root) [X 1], dense, (m, D): its Gram matrix is [X 1]' diag(root^2) [X 1]."""
    X = X.toarray() if sp.issparse(X) else X
    out = np.empty((len(X), X.shape[1] + bias), dtype)
    out[:, : X.shape[1]] = X
    if bias:
        out[:, -1] = 1
    if root is not None:
        out *= root[:, None].astype(dtype)
    return out


def row_squares(X: Rows, dtype: Any = np.float64) -> NDArray:
    """Return ||x_i||^2 (m,), summed in the given float type."""
    if sp.issparse(X):
        return np.asarray(X.astype(dtype).power(2).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", X, X, dtype=dtype)


def column_spread(X: Any) -> NDArray[np.float64]:
    """Return the standard deviation (d,) of each column of X (n, d); inf if the squares of a column overflow."""
    n, d = X.shape
    step = n if sp.issparse(X) else rows_per_block(8 * d, BLOCK_BYTES)
    first, second = np.zeros(d), np.zeros(d)
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, n, step):
            rows = X[begin : begin + step]
            squares = rows.multiply(rows) if sp.issparse(rows) else np.square(rows, dtype=np.float64)
            first += np.asarray(rows.sum(axis=0, dtype=np.float64)).ravel()
            second += np.asarray(squares.sum(axis=0, dtype=np.float64)).ravel()
        spread = np.sqrt(np.maximum(0, second / n - (first / n) ** 2))
    return np.where(np.isnan(spread), np.inf, spread)


# ---- symmetric matrices


def largest_eigenvalue(matvec: Callable[[NDArray], NDArray], start: NDArray) -> float:
    """Return the largest eigenvalue of a positive semidefinite matrix A within a few percent, by the power method.

    Parameters
    ----------
    matvec : callable
        Returns A v for an array v of the shape of `start`.
    start : array
        First vector. It must not be orthogonal to the eigenvector of the largest eigenvalue.
    """
    v, norm = start, float(np.linalg.norm(start))
    for _ in range(_POWER_ITERATIONS):
        if norm == 0:
            return 0.0
        v = matvec(v / v.dtype.type(norm))
        norm = float(np.linalg.norm(v))
    return norm


@functools.cache
def _load_routine(library: str, name: str, n_arguments: int) -> Callable[..., None]:
    from numba.extending import get_cython_function_address  # loading numba takes long, and not every caller needs it

    address = get_cython_function_address(f"scipy.linalg.cython_{library}", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)


def _call(library: str, name: str, dtype: np.dtype, *arguments: Any) -> list[Any]:
    """Call a Fortran routine with pointers to letters, integers, scalars of the matrix's type, and arrays."""
    prefix, real = ("s", ctypes.c_float) if dtype == np.float32 else ("d", ctypes.c_double)
    values: list[Any] = []  # also keeps what the pointers point to alive
    for value in arguments:
        if isinstance(value, bytes):
            values.append(ctypes.c_char(value))
        elif isinstance(value, int):
            values.append(ctypes.c_int(value))
        else:
            values.append(value if isinstance(value, np.ndarray) else real(value))
    pointers = [v.ctypes.data if isinstance(v, np.ndarray) else ctypes.addressof(v) for v in values]
    _load_routine(library, prefix + name, len(values))(*pointers)
    return values


def add_gram(A: NDArray, X: NDArray, scale: float) -> None:
    """Add scale X'X to A (d, d); X (n, d) is C-contiguous."""
    n, d = X.shape
    if n:
        _call("blas", "syrk", A.dtype, b"U", b"N", d, n, float(scale), X, d, 1.0, A, d)


def invert(A: NDArray) -> bool:
    """Invert A in place; return False, with A destroyed, if A is not positive definite."""
    d = len(A)
    stride = max(d, 1)  # LAPACK prints an error for 0, also if A is empty
    if _call("lapack", "potrf", A.dtype, b"U", d, A, stride, 0)[-1].value:
        return False
    _call("lapack", "potri", A.dtype, b"U", d, A, stride, 0)
    return True


def multiply(A: NDArray, x: NDArray, out: NDArray) -> None:
    """Write A x (d,) to out (d,)."""
    d = len(A)
    _call("blas", "symv", A.dtype, b"U", d, 1.0, A, d, x, 1, 0.0, out, 1)
