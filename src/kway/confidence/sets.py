"""Sets of labels, one a row, kept end to end: row i has ids[indptr[i]:indptr[i + 1]], most probable first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.tables import Printed, Table, first_rows


@dataclass(frozen=True, eq=False, repr=False)
class PredictionSets(Printed):
    """indptr (n + 1,) int64 and the labels ids (m,).

    >>> sets = PredictionSets(np.array([0, 1, 3]), np.array(["a", "b", "a"]))
    >>> sets.to_lists(), sets.sizes.tolist(), sets.covers(["b", "b"]).tolist()
    ([['a'], ['b', 'a']], [1, 2], [False, True])
    """

    indptr: NDArray[np.int64]
    ids: NDArray

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> NDArray:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} sets")
        row %= len(self)
        return self.ids[self.indptr[row] : self.indptr[row + 1]]

    def __iter__(self) -> Iterator[NDArray]:
        return (self[row] for row in range(len(self)))

    def _table(self) -> Table:
        sizes = self.sizes
        mean = f", {sizes.mean():.2f} labels on average, {int((sizes == 0).sum()):,} empty" if len(self) else ""
        listed = lambda i: (str(sizes[i]), ", ".join(map(str, self[i].tolist())) or "–")  # noqa: E731
        return first_rows(f"PredictionSets: {len(self):,} rows{mean}", len(self), ("size", "labels"), listed)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Labels in each set (n,)."""
        return np.diff(self.indptr)

    def covers(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether each row's set holds its label (n,)."""
        labels = np.asarray(y)
        if labels.shape != (len(self),):
            raise InputError(f"covers takes one label a set: {len(self)} sets, y of shape {labels.shape}")
        row = np.repeat(np.arange(len(self)), self.sizes)  # (m,)
        return np.bincount(row, self.ids == labels[row], minlength=len(self)) > 0

    def to_lists(self) -> list[list[Any]]:
        """The labels of each row as a list."""
        return [labels.tolist() for labels in self]


def collect(rows: list[NDArray[np.int64]], codes: list[NDArray[np.int64]], n: int, classes: NDArray) -> PredictionSets:
    """Sets from pieces: class codes[i] belong to rows[i]; the order within a row is that of the pieces."""
    row = np.concatenate([np.empty(0, np.int64), *rows])
    code = np.concatenate([np.empty(0, np.int64), *codes])
    order = np.argsort(row, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int64)
    return PredictionSets(indptr, classes[code[order]])
