"""Private names of other libraries: each with the reason and the versions it was tested with.

numba.core.caching.FunctionCache with _index_key and _py_func, and _cache of a dispatcher
    Reason: numba compiles a cached kernel again if the kernel's own file changes, but not if another file changes whose
    kernels it calls. There is no public way to add to the key of the cache.
    Tested with numba 0.68 (tests/kernels/test_jit.py).

_baseline_prediction and _predictors of sklearn.ensemble.HistGradientBoostingClassifier, with nodes and
raw_left_cat_bitsets of a predictor; missing_go_to_left of a tree_ of sklearn.ensemble.ExtraTreesClassifier
    Reason: a model file keeps trees as arrays, and there is no public way to read the nodes of boosted trees. The other
    arrays of a tree_ are public.
    Tested with scikit-learn 1.6.1 and 1.9.1 (tests/trees).

The upper bounds in pyproject.toml are the newest versions that were tested.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple


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
