"""Private names of other libraries: each with the reason and the versions it was tested with.

numba.core.caching.FunctionCache with _index_key and _py_func, and _cache of a dispatcher
    Reason: numba compiles a cached kernel again if the kernel's own file changes, but not if another file changes whose
    kernels it calls. There is no public way to add to the key of the cache.
    Tested with numba 0.68 (tests/kernels/test_jit.py).

The upper bounds in pyproject.toml are the newest versions that were tested.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def cache_on_disk(dispatcher: Any, stamp: Callable[[str], str]) -> None:
    """Keep what numba's dispatcher compiles on disk, under a key that contains `stamp(module of the function)`.

    Raises RuntimeError if numba finds no folder that it may write to.
    """
    dispatcher._cache = _stamped_cache(stamp)(dispatcher.py_func)


@functools.cache
def _stamped_cache(stamp: Callable[[str], str]) -> Any:
    from numba.core.caching import FunctionCache

    class StampedCache(FunctionCache):
        def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
            return (*super()._index_key(sig, codegen), stamp(self._py_func.__module__))

    return StampedCache
