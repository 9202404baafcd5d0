"""Weights that are larger than memory: zeros (K, d + 1) in a file that is mapped, of which few rows a step are touched.

a folder        weights.npy in it, made anew; it stays when the fit has ended
None            memory where the weights fit into it, else a file of the system's folder for such, which has no name
                any more while it is used, so that it goes when nobody holds the weights
"""

from __future__ import annotations

import os
import tempfile

import numpy as np
from numpy.typing import DTypeLike, NDArray

from kway.errors import InputError
from kway.linear.solvers.many_classes.checkpoints import made_folder
from kway.planning.guard import has_room

_FILE = "weights.npy"


def mapped_zeros(shape: tuple[int, int], dtype: DTypeLike, folder: str | None) -> NDArray | None:
    """Zeros in a file; None where no folder is given and memory has room for them."""
    kind = np.dtype(dtype)
    if folder is not None:
        file = made_folder("weights", folder) / _FILE
        try:
            return np.asarray(np.lib.format.open_memmap(file, mode="w+", dtype=kind, shape=shape))
        except OSError as error:
            raise InputError(f"{str(file)!r} cannot be written ({error}); give another folder: weights=...") from error
    if has_room(shape[0] * shape[1] * kind.itemsize):
        return None
    handle, name = tempfile.mkstemp(prefix="kway-weights-")
    try:
        os.ftruncate(handle, shape[0] * shape[1] * kind.itemsize)  # zeros that take no disk until they are written
        return np.asarray(np.memmap(name, dtype=kind, mode="r+", shape=shape))
    finally:
        os.close(handle)
        os.unlink(name)
