"""Rows that stay as they are stored: queries read block by block, so that no second copy of all of them is made.

A million images of 784 bytes are 0.8 GB as they lie in a file and 3 GB as float32. Answers need a block at a time.

    Stored(values (n, d), dtype)[block] -> (m, d) C-contiguous floats
    Checked(rows)                          rows behind the gate, for whoever would pass it again
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

FEW_VALUES = 2**13  # whose squares are added up at a glance; of more, BLAS would wake its threads
BLOCK_BYTES = 2**26  # of a block as float64; a few blocks may be held at once


@dataclass(frozen=True)
class Stored:
    """Checked rows in the caller's memory, of any number type and order; a slice or positions give them as floats."""

    values: NDArray  # (n, d) integers, float16, or floats that are not C-contiguous; perhaps a memory map
    dtype: np.dtype  # float32 or float64: what a slice has

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.values.shape
        return n, d

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, where: Any) -> NDArray:
        return np.ascontiguousarray(self.values[where], dtype=self.dtype)


@dataclass(frozen=True)
class Checked:
    """Rows (n, d) that have passed the gate: whoever is handed them does not look at each value again."""

    rows: Any

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.rows.shape
        return n, d


def row_blocks(rows: Any, most: int | None = None) -> list[slice]:
    """Slices that cover the rows (n, d), dense or CSR, each of at most `most` rows and BLOCK_BYTES as float64."""
    n, d = rows.shape
    values = max(1, rows.nnz // max(1, n) if sp.issparse(rows) else d)  # a row
    size = max(1, min(BLOCK_BYTES // (8 * values), n if most is None else most))
    return [slice(start, min(n, start + size)) for start in range(0, n, size)]


def rows_at(X: Any, positions: NDArray[np.int64]) -> Any:
    """These rows of an array, a sparse matrix, a frame or a list, `Checked` where all are."""
    if isinstance(X, Checked):
        return Checked(X.rows[positions])
    if hasattr(X, "iloc"):  # pandas
        return X.iloc[positions]
    if hasattr(X, "column_names"):  # pyarrow
        return X.take(positions)
    if isinstance(X, list | tuple):
        return [X[i] for i in positions]
    return X[positions] if hasattr(X, "shape") else np.asarray(X)[positions]


def n_rows(X: Any) -> int:
    """The number of rows of an array, a sparse matrix, a frame or a list."""
    if getattr(X, "shape", None):
        return int(X.shape[0])
    return len(X) if hasattr(X, "__len__") else len(np.asarray(X))


def cut(X: Any, n: int, most: int) -> Iterator[Any]:
    """n rows of anything that `rows_at` takes, in blocks of at most `most`; X itself where one block is enough."""
    if n <= most:
        yield X
        return
    for start in range(0, n, most):
        yield rows_at(X, np.arange(start, min(n, start + most)))


def joined_rows(n: int, blocks: Iterable[NDArray]) -> NDArray:
    """Blocks, n rows in all, one behind the other as they come: never two copies of the whole."""
    parts = iter(blocks)
    first = next(parts)
    if len(first) == n:
        return first
    out, filled = np.empty((n, *first.shape[1:]), first.dtype), len(first)
    out[:filled] = first
    for part in parts:
        out[filled : filled + len(part)] = part
        filled += len(part)
    return out
