"""`kernel`: numba's njit as kway uses it.

nogil, so the worker pool runs kernels on every core; cached on disk, so a second process starts at once; fastmath,
so sums become vectors (a kernel must then not rely on inf or nan: use BIG). Hand kernels C-contiguous arrays;
`frozen` gives the read-only view that a memory-mapped model has anyway, so that one compilation serves both.

Where compiled kernels are kept: where numba would (NUMBA_CACHE_DIR, beside the source, the user's cache); where it may
write to none of these (site-packages that are read-only, no HOME), in a folder of the user's own under the temporary
one; else nowhere, which is said once.
"""

from __future__ import annotations

import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

BIG = np.float32(1e37)  # stands for infinity, which fastmath may not see


def _own_folder() -> str | None:
    """A folder that this user alone may write to, since what lies in it is run; None where there can be none."""
    user = os.getuid() if hasattr(os, "getuid") else None
    try:
        path = Path(tempfile.gettempdir()) / f"kway-kernels-{'user' if user is None else user}"
        path.mkdir(mode=0o700, exist_ok=True)
        held = path.lstat()
        if not stat.S_ISDIR(held.st_mode) or (user is not None and (held.st_uid != user or held.st_mode & 0o077)):
            return None  # somebody else's, or open to others
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return None
    return str(path)


def _compiled(options: dict[str, Any], folder: str | None) -> Callable[[Any], Any]:
    """njit that caches in a folder; None: where numba chooses. It looks when it decorates, and not later."""

    def decorate(function: Any) -> Any:
        before = numba.config.CACHE_DIR
        numba.config.CACHE_DIR = before if folder is None else folder
        try:
            return numba.njit(nogil=True, error_model="numpy", **options)(function)
        finally:
            numba.config.CACHE_DIR = before

    return decorate


class _Place(NamedTuple):
    """Whether kernels are kept, and in which folder; None: numba's own choice."""

    cache: bool
    folder: str | None


def _place() -> _Place:
    """Where kernels can be kept."""

    def probe() -> None:
        """Nothing: it only asks numba whether it may cache."""

    try:
        _compiled({"cache": True}, None)(probe)
    except RuntimeError:  # "cannot cache function: no locator available for file"
        folder = _own_folder()
        if folder is not None:
            return _Place(True, folder)
        warnings.warn(
            "kway finds no folder to keep compiled kernels in, so every process compiles them anew (a few seconds "
            "each); set NUMBA_CACHE_DIR to one that can be written",
            RuntimeWarning,
            stacklevel=2,
        )
        return _Place(False, None)
    return _Place(True, None)


_PLACE = _place()
kernel = _compiled({"fastmath": True, "cache": _PLACE.cache}, _PLACE.folder)
strict_kernel = _compiled({"fastmath": False, "cache": _PLACE.cache}, _PLACE.folder)


def frozen(array: NDArray) -> NDArray:
    """C-contiguous, read-only view (a copy only where the order demands it)."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
