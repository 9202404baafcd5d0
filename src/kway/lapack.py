"""Symmetric routines of BLAS and LAPACK that let go of the GIL, as scipy's own wrappers do not.

Symmetric matrices are kept as their upper triangle in Fortran order, (d, d), float32 or float64. The addresses are
those that scipy publishes for Cython; called through ctypes, two of them run on two threads.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba.extending import get_cython_function_address
from numpy.typing import NDArray


@functools.cache
def _routine(library: str, name: str, n_arguments: int) -> Callable[..., None]:
    address = get_cython_function_address(f"scipy.linalg.cython_{library}", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * n_arguments)(address)


def _call(library: str, name: str, dtype: np.dtype, *arguments: Any) -> list[Any]:
    """Everything by address: Fortran's way. Letters, integers, scalars of the matrix's type, and arrays."""
    prefix, real = ("s", ctypes.c_float) if dtype == np.float32 else ("d", ctypes.c_double)
    kept: list[Any] = []
    for value in arguments:
        if isinstance(value, bytes):
            kept.append(ctypes.c_char(value))
        elif isinstance(value, int):
            kept.append(ctypes.c_int(value))
        else:
            kept.append(value if isinstance(value, np.ndarray) else real(value))
    places = [v.ctypes.data if isinstance(v, np.ndarray) else ctypes.addressof(v) for v in kept]
    _routine(library, prefix + name, len(kept))(*places)
    return kept


def add_gram(A: NDArray, X: NDArray, scale: float) -> None:
    """A += scale X^T X, X (n, d) C-contiguous."""
    n, d = X.shape
    if n:
        _call("blas", "syrk", A.dtype, b"U", b"N", d, n, float(scale), X, d, 1.0, A, d)


def invert(A: NDArray) -> bool:
    """A -> its inverse, in place; False (A is then spoilt) where A is not positive definite."""
    d = len(A)
    if _call("lapack", "potrf", A.dtype, b"U", d, A, d, 0)[-1].value:
        return False
    _call("lapack", "potri", A.dtype, b"U", d, A, d, 0)
    return True


def multiply(A: NDArray, x: NDArray, out: NDArray) -> None:
    """out (d,) = A x (d,)."""
    d = len(A)
    _call("blas", "symv", A.dtype, b"U", d, 1.0, A, d, x, 1, 0.0, out, 1)
