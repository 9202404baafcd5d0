"""`kernel`: numba's njit as kway uses it.

nogil, so the worker pool runs kernels on every core; cached on disk, so a second process starts at once; fastmath,
so sums become vectors (a kernel must then not rely on inf or nan: use BIG). Hand kernels C-contiguous arrays;
`frozen` gives the read-only view that a memory-mapped model has anyway, so that one compilation serves both.
"""

from __future__ import annotations

import numba
import numpy as np
from numpy.typing import NDArray

BIG = np.float32(1e37)  # stands for infinity, which fastmath may not see

kernel = numba.njit(nogil=True, fastmath=True, cache=True, error_model="numpy")
strict_kernel = numba.njit(nogil=True, fastmath=False, cache=True, error_model="numpy")


def frozen(array: NDArray) -> NDArray:
    """C-contiguous, read-only view (a copy only where the order demands it)."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
