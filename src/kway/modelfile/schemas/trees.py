"""Schema of TreesClassifier.

Sizes: m nodes of all trees, e entries of all leaves (a leaf adds its entries to the scores), R scores per row, d
columns, of which c* have categories, and b* sets of categories, each a bit mask of WORDS 32-bit words. A size with a
star may be 0. The arrays are described in kernels/trees.py.

The nodes of a tree are stored in preorder. The right children are not stored: they follow from which nodes are leaves,
and `_restore` refuses nodes that are not complete trees. So a path cannot leave its tree or run in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kway.modelfile.schema import Array, Schema, StoredObject, ascending, finite, index_below, no_nan, offsets_to

_MAX_SUM = float(np.finfo(np.float32).max)  # of the absolute values of all leaves, so that no score overflows


def _from_0_to_1(array: NDArray, _: Mapping[str, int]) -> str | None:
    return None if bool(((array >= 0) & (array <= 1)).all()) else "contains values that are not from 0 to 1"


def _bounded_sum(array: NDArray, _: Mapping[str, int]) -> str | None:
    with np.errstate(over="ignore", invalid="ignore"):
        return None if np.abs(array).sum() <= _MAX_SUM else f"contains NaN, or values whose sum is above {_MAX_SUM:.3g}"


def _arrays(_: StoredObject) -> dict[str, Array]:
    from kway.kernels.trees import WORDS  # loads numba, as the model does

    return {
        "starts": Array(("int64",), ("starts of trees",), (ascending, offsets_to("m"))),
        "column": Array(("int32",), ("m",), (index_below("d", -1),)),
        "threshold": Array(("float64",), ("m",), (no_nan,)),
        "gap_left": Array(("bool",), ("m",)),
        "share_left": Array(("float32",), ("m",), (_from_0_to_1,)),
        "leaf_starts": Array(("int64",), ("starts of leaves",), (offsets_to("e"),)),
        "scores": Array(("int32",), ("e",), (index_below("R"),)),
        "values": Array(("float64",), ("e",), (_bounded_sum,)),
        "baseline": Array(("float64",), ("R",), (finite, _bounded_sum)),
        "category_row": Array(("int32",), ("d",), (index_below("c*", -1),)),
        "known_categories": Array(("uint32",), ("c*", WORDS)),
        "left_categories": Array(("uint32",), ("b*", WORDS)),
    }


def _sizes(stored: StoredObject) -> dict[str, int]:
    n_classes = stored.sizes["K"]
    return {"R": 1 if n_classes == 2 and stored.params["kind"] == "boosted" else n_classes}


def _leaves_have_entries(stored: StoredObject) -> str | None:
    """Require the start of the entries of each leaf, and the end of the last."""
    leaves, starts = int((stored.arrays["column"] < 0).sum()), stored.sizes["starts of leaves"]
    return None if starts == leaves + 1 else f"has {leaves:,} leaves, but the entries of {starts - 1:,} leaves"


def _category_splits(stored: StoredObject) -> str | None:
    """Require that nodes that split a column of categories name a set of categories.

    The threshold of such a node is the number of its set. `column` is -1 for leaves, whose lookup is masked.
    """
    column, threshold = stored.arrays["column"], stored.arrays["threshold"]
    has_categories = stored.arrays["category_row"][column] >= 0
    sets = threshold[(column >= 0) & has_categories]
    fits = bool(((sets >= 0) & (sets < stored.sizes["b*"]) & (sets == np.floor(sets))).all())
    return None if fits else "compares categories with a set that it does not contain"


TREES = Schema(facts={}, arrays=_arrays, sizes=_sizes, rules=(_leaves_have_entries, _category_splits))
