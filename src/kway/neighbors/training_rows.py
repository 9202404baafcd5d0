"""Training data that a neighbors classifier stores next to its index, and new classes of later rows.

codes (n,)     class of every row that was passed to fit and partial_fit, so that ids are positions in these data
weights (n,)   sample weights; None if all are 1. Rows of weight 0 are not in the index
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.labels import Labels, encode, encode_as, joined
from kway.search.codecs.stores import Codes, row_arrays, rows_of_arrays
from kway.search.metrics import Metric


class MergedClasses(NamedTuple):
    """Known classes merged with the classes of more rows."""

    classes: NDArray  # (K,)
    codes: NDArray[np.int64]  # (m,) of the new rows
    moved: NDArray[np.int64]  # (known classes,) new code of each known class


@dataclass(frozen=True)
class TrainingRows:
    """The training rows, with their class codes and weights.

    The blocks are None if the index stores the same rows in the same order, or if only codes are stored, so that no row
    is stored twice.
    """

    blocks: tuple[Any, ...] | None  # rows (m, d) of each call of fit or partial_fit
    codes: NDArray[np.int64]  # (n,)
    weights: NDArray[np.float64] | None  # (n,)
    counts: NDArray[np.float64]  # (K,) sum of the weights of each class

    @staticmethod
    def of(rows: Any, codes: NDArray[np.int64], weights: NDArray | None, n_classes: int) -> TrainingRows:
        """Return the data of one block of rows."""
        weights = None if weights is None or (weights == 1).all() else weights.astype(np.float64)
        counts = np.bincount(codes, weights, n_classes).astype(np.float64)
        return TrainingRows((rows,), codes, weights, counts)

    @property
    def n_rows(self) -> int:
        """Number of rows, including those of weight 0."""
        return len(self.codes)

    def rows(self, index: Any = None) -> Any:
        """Return all rows (n, d); from the index if it stores them, decoded if it stores codes."""
        if self.blocks is None:
            return index.rows[:] if isinstance(index.rows, Codes) else index.rows
        if len(self.blocks) == 1:
            return self.blocks[0]
        return sp.csr_matrix(sp.vstack(self.blocks)) if sp.issparse(self.blocks[0]) else np.concatenate(self.blocks)

    @property
    def all_vote(self) -> bool:
        """Whether no row has weight 0."""
        return self.weights is None or bool((self.weights > 0).all())

    def voting_rows(self, index: Any = None) -> tuple[Any, NDArray[np.int64] | None]:
        """Return the rows that may vote, and their positions (None: all)."""
        if self.all_vote:
            return self.rows(index), None
        ids = np.flatnonzero(self.weights > 0)  # type: ignore[operator]
        return self.rows(index)[ids], ids

    def kept_by(self, index: Any) -> TrainingRows:
        """Return the data without the rows if the index stores all of them unchanged, or stores only codes."""
        if self.blocks is None:
            return self
        as_given = type(index.metric).prepare is Metric.prepare
        dtype = self.blocks[0].dtype
        store = getattr(index.recipe, "store", None)
        unscaled = index.unit.plain and index.unit.stored_type(dtype) == dtype
        same = self.all_vote and as_given and unscaled and (store is None or not store.rerank)
        return replace(self, blocks=None) if same else self

    def known(self, index: Any) -> bool:
        """Return whether the full rows are stored, so that an index can be built again."""
        return self.blocks is not None or getattr(index.recipe, "store", None) is None

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays that a model file stores next to the index."""
        weights = {} if self.weights is None else {"weights": self.weights}
        return {"codes": self.codes} | weights | ({} if self.blocks is None else row_arrays(self.rows()))

    @staticmethod
    def from_arrays(arrays: dict[str, NDArray], n_features: int, n_classes: int) -> TrainingRows:
        """Return the data that `arrays` described."""
        codes, weights = arrays["codes"], arrays.get("weights")
        rows = rows_of_arrays(arrays, len(codes), n_features)
        counts = np.bincount(codes, weights, n_classes).astype(np.float64)
        return TrainingRows(None if rows is None else (rows,), codes, weights, counts)

    def weights_of(self, ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the row weights of ids (q, k); 0 for id -1."""
        weights = np.ones(self.n_rows) if self.weights is None else self.weights
        return np.where(ids >= 0, weights[np.maximum(ids, 0)], 0.0)

    def extended(self, rows: Any, merged: MergedClasses, weights: NDArray | None) -> TrainingRows:
        """Return the data with more rows appended."""
        codes = np.concatenate([merged.moved[self.codes], merged.codes])
        both = None
        if self.weights is not None or weights is not None:
            new = np.ones(len(merged.codes)) if weights is None else weights
            both = np.concatenate([np.ones(self.n_rows) if self.weights is None else self.weights, new])
        counts = np.bincount(codes, both, len(merged.classes)).astype(np.float64)
        blocks = None if self.blocks is None else (*self.blocks, rows)
        return TrainingRows(blocks, codes, both, counts)

    def check_weights(self, k: int) -> None:
        """Raise InputError if the weights sum to less than k, as shares do: then every row would vote."""
        if self.weights is None:
            return
        total, voting = float(self.weights.sum()), int((self.weights > 0).sum())
        if total < min(k, voting) * (1 - 1e-6):
            raise InputError(
                f"sample_weight sums to {total:.4g} over {voting} rows, which cannot fill n_neighbors={k}: a row of "
                f"weight w counts as w rows; multiply the weights by {voting / total:.4g} so that their mean is 1"
            )


def named_classes(classes: Any) -> NDArray:
    """Return the sorted classes of a first partial_fit."""
    if np.ndim(classes) != 1 or not len(classes):
        raise InputError(f"classes must be a list of labels, got shape {np.shape(classes)}")
    return encode(classes).classes


def merge_classes(known: NDArray, labels: Labels, fixed: bool) -> MergedClasses:
    """Merge known classes with those of new labels; `fixed` raises an error for unknown labels."""
    if fixed or (len(labels.classes) and np.isin(labels.classes, known).all()):
        return MergedClasses(known, encode_as(labels.classes, known)[labels.codes], np.arange(len(known)))
    classes = np.unique(joined([known, labels.classes]))
    return MergedClasses(classes, encode_as(labels.classes, classes)[labels.codes], encode_as(known, classes))
