"""Private names of other libraries: each with the reason and the versions it was tested with.

numba.core.caching.FunctionCache with _index_key and _py_func, and _cache of a dispatcher
    Reason: numba compiles a cached kernel again if the kernel's own file changes, but not if another file changes whose
    kernels it calls. There is no public way to add to the key of the cache.

numba.core.caching.IndexDataCacheFile with _dump, _load_data and _data_path; _cache_file, _cache_path, _impl of a cache
    Reason: an empty, truncated or altered file of the cache makes every call of the kernel raise an error, or runs
    damaged code. A digest at the end of each file detects that, and the kernel is compiled again.
    Tested with numba 0.68 (tests/kernels/test_jit.py).

_baseline_prediction and _predictors of sklearn.ensemble.HistGradientBoostingClassifier, with nodes and
raw_left_cat_bitsets of a predictor; missing_go_to_left of a tree_ of sklearn.ensemble.ExtraTreesClassifier
    Reason: a model file keeps trees as arrays, and there is no public way to read the nodes of boosted trees. The other
    arrays of a tree_ are public.
    Tested with scikit-learn 1.6.1 and 1.9.1 (tests/trees).

_skl_callbacks of an estimator, sklearn.callback.CallbackSupportMixin._init_callback_context, and
sklearn.callback._callback_support.callback_management_context
    Reason: scikit-learn's guide tells authors of estimators to begin a fit with this method, but it has no public name.
    The context manager behind its decorator `with_callbacks` needs no function of its own.
    Only fits of estimators with callbacks use it, so others do not import the package.
    Tested with scikit-learn 1.9.1 (tests/linear/test_callbacks.py); 1.6 has no callbacks.

The upper bounds in pyproject.toml are the newest versions that were tested.
"""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple


def cache_on_disk(dispatcher: Any, stamp: Callable[[str], str]) -> None:
    """Keep what numba's dispatcher compiles on disk, under a key that contains `stamp(module of the function)`.

    Raises RuntimeError if numba finds no folder that it may write to.
    """
    dispatcher._cache = _stamped_cache(stamp)(dispatcher.py_func)


@functools.cache
def _stamped_cache(stamp: Callable[[str], str]) -> Any:
    from numba.core.caching import FunctionCache, IndexDataCacheFile

    class DigestedFile(IndexDataCacheFile):
        def _dump(self, obj: Any) -> bytes:
            data: bytes = super()._dump(obj)
            return data + hashlib.sha256(data).digest()

        def _load_data(self, name: str) -> Any:
            content = Path(self._data_path(name)).read_bytes()
            data = content[: -hashlib.sha256().digest_size]
            if content != data + hashlib.sha256(data).digest():
                raise ValueError(f"{name} is damaged")
            return super()._load_data(name)  # numba reads the same file; what follows its data is ignored

    class StampedCache(FunctionCache):
        def __init__(self, py_func: Any) -> None:
            super().__init__(py_func)
            stamp = self._impl.locator.get_source_stamp()
            self._cache_file = DigestedFile(self._cache_path, self._impl.filename_base, stamp)

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                return super().load_overload(sig, target_context)
            except Exception:  # a damaged file raises errors of any type; None: numba compiles the kernel
                with suppress(OSError):
                    self.flush()
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            try:
                super().save_overload(sig, data)
            except Exception as error:
                warnings.warn(
                    f"kway could not store a compiled kernel in {self._cache_path} ({error}), so that every process "
                    "compiles it again (a few seconds each); free space on the disk, or set NUMBA_CACHE_DIR to another "
                    "folder",
                    RuntimeWarning,
                    stacklevel=2,
                )

        def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
            return (*super()._index_key(sig, codegen), stamp(self._py_func.__module__))

    return StampedCache


def has_callbacks(model: Any) -> bool:
    """Return whether callbacks were set on an estimator."""
    return bool(getattr(model, "_skl_callbacks", ()))


@contextmanager
def callback_context(model: Any, task: str) -> Iterator[Any]:
    """Yield the context of a fit with callbacks; the number of subtasks is not known."""
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback._callback_support import callback_management_context

    with callback_management_context(model):
        yield CallbackSupportMixin._init_callback_context(model, task_name=task, max_subtasks=None)


class BoostedTrees(NamedTuple):
    """The baseline (R,) of boosted trees and, per tree, its nodes (a record array) and sets of categories (b, 8)."""

    baseline: Any
    trees: list[tuple[Any, Any]]


def boosted_trees(model: Any) -> BoostedTrees:
    """Return the trees of a fitted HistGradientBoostingClassifier, iteration by iteration."""
    trees = [(tree.nodes, tree.raw_left_cat_bitsets) for trees in model._predictors for tree in trees]
    return BoostedTrees(model._baseline_prediction.ravel(), trees)


def forest_trees(forest: Any) -> list[Any]:
    """Return the tree_ of each tree of a fitted forest; they have missing_go_to_left."""
    return [each.tree_ for each in forest.estimators_]
