"""`kernel`: numba's njit as kway uses it.

nogil, so the worker pool runs kernels on every core; cached on disk, so a second process starts at once; fastmath,
so sums become vectors (a kernel must then not rely on inf or nan: use BIG). Hand kernels C-contiguous arrays;
`frozen` gives the read-only view that a memory-mapped model has anyway, so that one compilation serves both.

numba itself loads when a kernel is first called: with what it then reads from its cache it is half of the time until a
fresh process has its first answer. Where it is not loaded yet, `plainly` lets Python work through a few numbers.

Where compiled kernels are kept: where numba would (NUMBA_CACHE_DIR, beside the source, the user's cache); where it may
write to none of these (site-packages that are read-only, no HOME), in a folder of the user's own under the temporary
one; else nowhere, which is said once. They are kept under a stamp of their sources (source_stamp.py).
"""

from __future__ import annotations

import functools
import importlib
import os
import stat
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.source_stamp import source_stamp

BIG = np.float32(1e37)  # stands for infinity, which fastmath may not see
FEW = 2**16  # numbers that Python works through in a tenth of the time that numba takes to load

_calm = threading.RLock()


class _Mode(threading.local):
    """Of a thread: whether Python runs its kernels."""

    plain = False


class _Spent:
    """Numbers that Python has worked through in this process."""

    numbers = 0


class Kernel:
    """A function that numba compiles when it is first called, from Python or from another kernel."""

    def __init__(self, function: Callable[..., Any], fastmath: bool) -> None:
        functools.update_wrapper(self, function)
        self._function, self._fastmath = function, fastmath

    def __call__(self, *given: Any) -> Any:
        """Run it, compiled as a rule."""
        return self._function(*given) if _mode.plain else self.compiled(*given)

    @functools.cached_property
    def compiled(self) -> Any:
        """numba's dispatcher, one whichever thread asks first."""
        with _calm:
            return vars(self).get("compiled") or _compile(self._function, self._fastmath, *kernel_cache())

    @property
    def _numba_type_(self) -> Any:
        """What numba takes it for inside another kernel."""
        from numba import types

        return types.Dispatcher(self.compiled)


_mode = _Mode()


def kernel(function: Callable[..., Any]) -> Kernel:
    """A kernel with fastmath."""
    return Kernel(function, fastmath=True)


class LateKernel(Kernel):
    """A kernel that Python runs as it is written; the module that has it in machine instructions loads numba."""

    def __init__(self, function: Callable[..., Any], module: str, name: str) -> None:
        super().__init__(function, fastmath=False)
        self._home = module, name

    @functools.cached_property
    def compiled(self) -> Any:
        """The other module's."""
        module, name = self._home
        return getattr(importlib.import_module(module), name).compiled


def late_kernel(module: str, name: str) -> Callable[[Callable[..., Any]], Kernel]:
    """A kernel that has this name in that module, which is loaded when it is first called compiled."""
    return lambda function: LateKernel(function, module, name)


def strict_kernel(function: Callable[..., Any]) -> Kernel:
    """A kernel whose sums are taken as they are written."""
    return Kernel(function, fastmath=False)


class plainly:  # no generator, which takes three times as long: one query enters it twice
    """Kernels that this thread calls meanwhile are run by Python, for the first few numbers, until numba is loaded."""

    def __init__(self, numbers: int) -> None:
        self._numbers, self._before = numbers, _mode.plain

    def __enter__(self) -> bool:
        if not self._before and "numba" not in sys.modules:
            _Spent.numbers += self._numbers
            _mode.plain = _Spent.numbers <= FEW
        return _mode.plain

    def __exit__(self, *error: object) -> None:
        _mode.plain = self._before


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


def _compile(function: Callable[..., Any], fastmath: bool, cache: bool, folder: str | None) -> Any:
    """njit that caches in a folder; None: where numba chooses. It looks when it decorates, and not later."""
    import numba

    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = before if folder is None else folder
    try:
        made = numba.njit(nogil=True, error_model="numpy", fastmath=fastmath)(function)
        if cache:
            made._cache = _stamped_cache()(function)
        return made
    finally:
        numba.config.CACHE_DIR = before


@functools.cache
def _stamped_cache() -> Any:
    """numba's cache of a function, whose key knows the sources of what the function calls, too.

    To load a kernel it asks for numba's runtime, which what was compiled runs on, and not for all that numba can
    compile, 0.1 s of every process: a kernel that is compiled after all asks for that by itself.
    """
    from numba.core.caching import FunctionCache
    from numba.core.runtime import rtsys

    class StampedCache(FunctionCache):
        def load_overload(self, sig: Any, target_context: Any) -> Any:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)

        def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
            return (*super()._index_key(sig, codegen), source_stamp(self._py_func.__module__))

    return StampedCache


class KernelCache(NamedTuple):
    """Whether kernels are kept, and in which folder; None: numba's own choice."""

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
            "kway finds no folder to keep compiled kernels in, so every process compiles them anew (a few seconds "
            "each); set NUMBA_CACHE_DIR to one that can be written",
            RuntimeWarning,
            stacklevel=2,
        )
        return KernelCache(False, None)
    return KernelCache(True, None)


def frozen(array: NDArray) -> NDArray:
    """C-contiguous, read-only view (a copy only where the order demands it)."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
