"""Decorators that compile kernels with numba and cache them on disk.

Both decorators, `kernel` and `strict_kernel`, release the GIL, so that the worker pool runs kernels on all cores.
`kernel` also enables fastmath, so that sums are vectorized. Such a kernel must not rely on inf or nan; use BIG instead
of inf. Pass C-contiguous arrays. `frozen` returns a read-only view. Arrays of a memory-mapped model are read-only too,
so that numba compiles a kernel once for both.

The cache is in the folder that numba chooses: NUMBA_CACHE_DIR, next to the source, or the cache folder of the user. If
numba finds none that is writable, kway uses a folder of the user in the temporary folder. If that fails too, kway warns
once. The key of a cached kernel contains a digest of its module and of all kernel modules that it imports. numba checks
only the file of the kernel itself, and would run outdated code after an upgrade of a module that it imports.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from kway.private_names import cache_on_disk

BIG = np.float32(1e37)  # used instead of infinity, which fastmath does not allow
PACKAGE = "kway.kernels"  # the only package of kway from which kernels import
_IMPORTS = re.compile(rf"^from ({PACKAGE}\.[\w.]+)", re.MULTILINE)


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel with fastmath."""
    return _compile(function, True, *kernel_cache())


def strict_kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel without fastmath: floating-point operations keep the order in which they are written."""
    return _compile(function, False, *kernel_cache())


def frozen(array: NDArray) -> NDArray:
    """Return a C-contiguous, read-only view of an array; a copy if the array is not C-contiguous."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _compile(function: Callable[..., Any], fastmath: bool, cache: bool, folder: str | None) -> Any:
    """Return the compiled function, cached in `folder`, or where numba chooses if it is None.

    numba reads its setting CACHE_DIR when caching is enabled, so it is changed during that call only.
    """
    compiled = numba.njit(nogil=True, error_model="numpy", fastmath=fastmath)(function)
    if not cache or numba.config.DISABLE_JIT:
        return compiled
    previous = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = previous if folder is None else folder
    try:
        cache_on_disk(compiled, source_stamp)
    finally:
        numba.config.CACHE_DIR = previous
    return compiled


class KernelCache(NamedTuple):
    """Whether kernels are cached on disk, and the folder; None is the folder that numba chooses."""

    cache: bool
    folder: str | None


@functools.cache
def kernel_cache() -> KernelCache:
    """Return where kernels can be cached; warn if there is no writable folder."""

    def probe() -> None:
        """Do nothing. Enabling the cache for this function raises RuntimeError if numba finds no folder."""

    try:
        _compile(probe, fastmath=False, cache=True, folder=None)
    except RuntimeError:  # "cannot cache function: no locator available for file"
        folder = _user_folder()
        if folder is not None:
            return KernelCache(True, folder)
        warnings.warn(
            "kway found no writable folder for compiled kernels, so that every process compiles them again (a few "
            "seconds each); set NUMBA_CACHE_DIR to a writable folder",
            RuntimeWarning,
            stacklevel=2,
        )
        return KernelCache(False, None)
    return KernelCache(True, None)


def _user_folder() -> str | None:
    """Return a folder that only this user can access, as its files are executed; None if none can be created."""
    user = os.getuid() if hasattr(os, "getuid") else None
    try:
        path = Path(tempfile.gettempdir()) / f"kway-kernels-{'user' if user is None else user}"
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.lstat()
        private = user is None or (status.st_uid == user and not status.st_mode & 0o077)
        if not stat.S_ISDIR(status.st_mode) or not private:
            return None  # it belongs to another user, or others can access it
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return None
    return str(path)


@functools.cache
def source_stamp(module: str) -> str:
    """Return a digest of the source of a module and of all kernel modules that it imports, directly or not."""
    seen: set[str] = set()
    pending = [module]
    while pending:
        name = pending.pop()
        if name not in seen:
            seen.add(name)
            pending += _IMPORTS.findall(_source(name))
    return hashlib.sha256("\0".join(_source(name) for name in sorted(seen)).encode()).hexdigest()


@functools.cache
def _source(module: str) -> str:
    """Return the source of a loaded module; empty if it has no readable file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        return "" if file is None else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
