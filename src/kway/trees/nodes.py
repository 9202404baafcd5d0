"""Trees: the nodes of all trees as arrays, the scores of rows, and the contributions of the columns to a score.

    f_s(x) = (baseline_s + sum over the trees of the value for score s in the leaf that x reaches) / divisor

The divisor is 1 for boosted trees, whose values are added, and the number of trees for a forest. Sums are in float64
and in the order of the trees, as in scikit-learn, so that the results are equal.

The contributions are path-dependent TreeSHAP values [1]_: at a split on a column outside the coalition, a row goes left
and right in the same proportion as the training rows.

References
----------
.. [1] S. Lundberg, G. Erion and S.-I. Lee (2018), Consistent individualized feature attribution for tree ensembles.
   arXiv:1802.03888.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway.base.contributions import Parts
from kway.errors import InputError, ModelFileError
from kway.kernels.jit import frozen
from kway.kernels.trees import WORDS, Nodes, add_leaves, add_shapley_values, expected_scores, fill_right_children
from kway.memory import CACHE_BYTES, rows_per_block
from kway.threads import even_spans, pmap

STORED = tuple(name for name in Nodes._fields if name != "right")  # arrays of a model file; `right` follows from them


@dataclass(frozen=True, eq=False)
class Trees:
    """The trees of a model: their nodes, the baseline (R,) of each score, and the divisor of the sum."""

    nodes: Nodes
    baseline: NDArray[np.float64]
    divisor: int = 1

    def scores(self, X: NDArray) -> NDArray[np.float64]:
        """Return the scores (n, R) of rows (n, d), float32 or float64, with NaN for missing values."""
        out = np.tile(self.baseline, (len(X), 1))
        X = frozen(X)

        def block(rows: slice) -> None:
            add_leaves(X[rows], self.nodes, out[rows])

        pmap(block, even_spans(len(X), self._rows_per_block(X)))
        if self.divisor > 1:
            out /= self.divisor
        return out

    def contributions(self, X: NDArray, chosen: NDArray[np.int64]) -> Parts:
        """Return the contributions (n, d) of the columns to the score chosen[i] of each row, and the baselines (n,)."""
        out = np.zeros(X.shape)
        X, chosen = frozen(X), frozen(chosen)

        def block(rows: slice) -> None:
            add_shapley_values(X[rows], chosen[rows], self.nodes, out[rows])

        pmap(block, even_spans(len(X), self._rows_per_block(X)))
        expected = self.baseline.copy()
        expected_scores(self.nodes, expected)
        return Parts(out / self.divisor, expected[chosen] / self.divisor)

    def _rows_per_block(self, X: NDArray) -> int:
        return rows_per_block(X.itemsize * X.shape[1] + 8 * len(self.baseline), CACHE_BYTES // 2)

    # ---- model files

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file."""
        return {**{name: getattr(self.nodes, name) for name in STORED}, "baseline": self.baseline}


def trees_of(arrays: dict[str, NDArray], divisor: int) -> Trees:
    """Return the trees of arrays named as in `Trees.arrays`; raise ModelFileError if they are not complete trees."""
    right = np.empty(len(arrays["column"]), np.int32)
    n_leaves = fill_right_children(frozen(arrays["starts"]), frozen(arrays["column"]), right)
    if n_leaves != len(arrays["leaf_starts"]) - 1:
        raise ModelFileError("the trees in the model file are not complete; save the model again")
    nodes = Nodes(**{name: frozen(arrays[name]) for name in STORED}, right=frozen(right))
    return Trees(nodes, np.asarray(arrays["baseline"], np.float64), divisor)


def as_float32(X: NDArray) -> NDArray[np.float32]:
    """Return rows in float32, in which forests compare values; raise InputError if a value overflows."""
    with np.errstate(over="ignore"):
        rows = X.astype(np.float32, copy=False)
    if rows is not X and np.isinf(rows).any():
        column = int(np.flatnonzero(np.isinf(rows).any(axis=0))[0])
        raise InputError(
            f"X contains {np.nanmax(np.abs(X[:, column])):.3g} in column {column}, which overflows float32; "
            'kind="extra" compares values in float32, so scale the column, or use kind="boosted"'
        )
    return rows


def no_categories(n_columns: int) -> dict[str, NDArray]:
    """Return the arrays for categories of trees without categorical columns."""
    no_sets = np.zeros((0, WORDS), np.uint32)
    return {"category_row": np.full(n_columns, -1, np.int32), "known_categories": no_sets, "left_categories": no_sets}
