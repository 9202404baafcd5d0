"""Schema of TreesClassifier: T trees with m nodes, L leaves with e entries, c columns of categories, b sets of them.

The trees are in preorder. The right children are not stored: they follow from which nodes are leaves, and `_restore`
refuses nodes that are no complete trees. So a path cannot leave its tree or run in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kway.modelfile.schema import Array, Schema, StoredObject, Values, ascending, below, finite, offsets_to, one_of

_MOST = float(np.finfo(np.float32).max)  # largest sum of absolute values, so that no score overflows


def _none_or_below(size: str) -> Values:
    """Require -1 <= value < size."""

    def check(array: NDArray, sizes: Mapping[str, int]) -> str | None:
        low, high = int(array.min()), int(array.max())
        fits = low >= -1 and high < sizes[size]
        return None if fits else f"contains {low} to {high}, expected -1 to {sizes[size] - 1}"

    return check


def _shares(array: NDArray, _: Mapping[str, int]) -> str | None:
    return None if bool(((array >= 0) & (array <= 1)).all()) else "contains values that are not from 0 to 1"


def _thresholds(array: NDArray, _: Mapping[str, int]) -> str | None:
    return "contains NaN" if np.isnan(array).any() else None


def _bounded(array: NDArray, _: Mapping[str, int]) -> str | None:
    with np.errstate(over="ignore", invalid="ignore"):
        return None if np.abs(array).sum() <= _MOST else f"contains NaN, or values whose sum is above {_MOST:.3g}"


def _arrays(_: StoredObject) -> dict[str, Array]:
    from kway.kernels.trees import WORDS  # loads numba, as the model does

    return {
        "starts": Array(("int64",), ("starts of trees",), (ascending, offsets_to("m"))),
        "column": Array(("int32",), ("m",), (_none_or_below("d"),)),
        "threshold": Array(("float64",), ("m",), (_thresholds,)),
        "gap_left": Array(("bool",), ("m",)),
        "share_left": Array(("float32",), ("m",), (_shares,)),
        "leaf_starts": Array(("int64",), ("starts of leaves",), (offsets_to("e"),)),
        "scores": Array(("int32",), ("e",), (below("R"),)),
        "values": Array(("float64",), ("e",), (_bounded,)),
        "baseline": Array(("float64",), ("R",), (finite, _bounded)),
        "category_row": Array(("int32",), ("d",), (_none_or_below("c*"),)),
        "known_categories": Array(("uint32",), ("c*", WORDS)),
        "left_categories": Array(("uint32",), ("b*", WORDS)),
    }


def _sizes(stored: StoredObject) -> dict[str, int]:
    n_classes = stored.sizes["K"]
    return {"R": 1 if n_classes == 2 and stored.params["kind"] == "boosted" else n_classes}


def _leaves(stored: StoredObject) -> str | None:
    """Check that each leaf has its entries."""
    leaves, starts = int((stored.arrays["column"] < 0).sum()), stored.sizes["starts of leaves"]
    return None if starts == leaves + 1 else f"has {leaves:,} leaves, but entries of {starts - 1:,}"


def _category_splits(stored: StoredObject) -> str | None:
    """Check that nodes that compare categories name a set of categories."""
    column, threshold = stored.arrays["column"], stored.arrays["threshold"]
    inner = column >= 0
    sets = threshold[inner & (stored.arrays["category_row"][column] >= 0)]
    fits = bool(((sets >= 0) & (sets < stored.sizes["b*"]) & (sets == np.floor(sets))).all())
    return None if fits else "compares categories with a set that it does not contain"


TREES = Schema(
    facts={},
    arrays=_arrays,
    sizes=_sizes,
    rules=(_leaves, _category_splits),
    params={"kind": one_of("boosted", "extra")},
)
