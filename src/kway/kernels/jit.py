"""`kernel`: numba's njit as kway uses it.

Kernels are compiled with nogil, so that the worker pool runs them on every core, and with fastmath, so that sums are
vectorized. With fastmath a kernel must not rely on inf or nan: use BIG. `strict_kernel` compiles without fastmath.
Pass C-contiguous arrays. `frozen` returns the read-only view that a memory-mapped model has, so that one compilation
serves both.

Compiled kernels are kept on disk: in the folder that numba chooses (NUMBA_CACHE_DIR, next to the source, the user's
cache), or else in a folder of the user below the temporary one. If none can be written, kway warns once. The key of a
kernel contains a digest of its module and of every kernel module that it imports. numba itself looks at the kernel's
own file only, and would run the old code of what an upgrade has changed in another file.
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

BIG = np.float32(1e37)  # stands for infinity, which fastmath may not see
PACKAGE = "kway.kernels"  # kernels import nothing else of kway
_IMPORTS = re.compile(rf"^from ({PACKAGE}\.[\w.]+)", re.MULTILINE)


def kernel(function: Callable[..., Any]) -> Any:
    """A kernel with fastmath."""
    return _compile(function, True, *kernel_cache())


def strict_kernel(function: Callable[..., Any]) -> Any:
    """A kernel whose sums are taken in the order in which they are written."""
    return _compile(function, False, *kernel_cache())


def frozen(array: NDArray) -> NDArray:
    """A C-contiguous, read-only view (a copy only if the order demands it)."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _compile(function: Callable[..., Any], fastmath: bool, cache: bool, folder: str | None) -> Any:
    """njit that caches in a folder, or where numba chooses if it is None; numba decides when it decorates."""
    made = numba.njit(nogil=True, error_model="numpy", fastmath=fastmath)(function)
    if not cache or numba.config.DISABLE_JIT:
        return made
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = before if folder is None else folder
    try:
        cache_on_disk(made, source_stamp)
    finally:
        numba.config.CACHE_DIR = before
    return made


class KernelCache(NamedTuple):
    """Whether kernels are kept on disk, and in which folder; None: in the one that numba chooses."""

    cache: bool
    folder: str | None


@functools.cache
def kernel_cache() -> KernelCache:
    """Where kernels can be kept."""

    def probe() -> None:
        """Nothing: it only asks numba whether it may cache."""

    try:
        _compile(probe, fastmath=False, cache=True, folder=None)
    except RuntimeError:  # "cannot cache function: no locator available for file"
        folder = _own_folder()
        if folder is not None:
            return KernelCache(True, folder)
        warnings.warn(
            "kway finds no folder to keep compiled kernels in, so every process compiles them again (a few seconds "
            "each); set NUMBA_CACHE_DIR to one that can be written",
            RuntimeWarning,
            stacklevel=2,
        )
        return KernelCache(False, None)
    return KernelCache(True, None)


def _own_folder() -> str | None:
    """A folder that only this user may write to, since what lies in it is run; None if there can be none."""
    user = os.getuid() if hasattr(os, "getuid") else None
    try:
        path = Path(tempfile.gettempdir()) / f"kway-kernels-{'user' if user is None else user}"
        path.mkdir(mode=0o700, exist_ok=True)
        held = path.lstat()
        if not stat.S_ISDIR(held.st_mode) or (user is not None and (held.st_uid != user or held.st_mode & 0o077)):
            return None  # another user's, or open to others
        tempfile.TemporaryFile(dir=path).close()
    except OSError:
        return None
    return str(path)


@functools.cache
def source_stamp(module: str) -> str:
    """A digest of the source of a module and of all kernel modules that it imports."""
    seen: set[str] = set()
    ahead = [module]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += _IMPORTS.findall(_source(name))
    return hashlib.sha256("\0".join(_source(name) for name in sorted(seen)).encode()).hexdigest()


@functools.cache
def _source(module: str) -> str:
    """The text of a loaded module; empty if it has no file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        return "" if file is None else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
