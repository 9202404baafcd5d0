"""Rows from a counter: row c is a hash of (c, feature), so that a hundred million of them are never stored.

The numbers are those of the GPU's generator (counter.py): one byte of the hash less 127.5, so that rows lie
in all directions alike.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel


@kernel
def _mix(h):
    """A hash of uint32; numba's products of uint32 are wider and have to be cut."""
    h = np.uint32(h ^ (h >> np.uint32(16)))
    h = np.uint32(h * np.uint32(0x7FEB352D))
    h = np.uint32(h ^ (h >> np.uint32(15)))
    h = np.uint32(h * np.uint32(0x846CA68B))
    return np.uint32(h ^ (h >> np.uint32(16)))


@kernel
def fill_counted(classes, out):
    """out (m, d) float32: the rows of classes (m,)."""
    for i in range(len(classes)):
        seed = _mix(np.uint32(classes[i] + 12345))
        for j in range(out.shape[1]):
            feature = np.uint32(np.uint32(j) * np.uint32(0x9E3779B1))
            out[i, j] = np.float32(_mix(np.uint32(seed ^ feature)) >> np.uint32(24)) - np.float32(127.5)
