"""Rows that are read block by block, so that there is never a second copy of all of them.

    row_blocks(rows)            slices of at most BLOCK_BYTES
    ConvertedRows(values)[a:b]  rows of any number type, converted to floats when a block is read
    ValidatedRows(rows)         rows that have been validated and need no second check
    labeled_blocks(blocks)      pairs (X, y) of an iterable, such as a generator, checked as they come

A million images of 784 bytes take 0.8 GB as uint8 and 3 GB as float32, but a prediction needs only a block at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.labels import check_width, column, joined, refuse_masked
from kway.memory import BLOCK_BYTES
from kway.rows.gpu.device import on_host

SAMPLE_ROWS = 4096  # rows of a sample that represents all rows when centers, projections and bounds are chosen
FEW_VALUES = 2**13  # values up to which one dot product shows whether all are finite; above, BLAS starts threads


@dataclass(frozen=True)
class ConvertedRows:
    """Validated rows in the caller's memory; a slice or an array of positions returns them as floats."""

    values: NDArray  # (n, d) integers, float16, or floats that are not C-contiguous; may be a memory map
    dtype: np.dtype  # float32 or float64: the type of the returned rows

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, d) of the rows."""
        n, d = self.values.shape
        return n, d

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, where: Any) -> NDArray:
        return np.ascontiguousarray(self.values[where], dtype=self.dtype)


@dataclass(frozen=True)
class ValidatedRows:
    """Rows (n, d) that `kway.validation` has checked; functions that receive them do not check the values again."""

    rows: Any

    @property
    def shape(self) -> tuple[int, int]:
        """Shape (n, d) of the rows."""
        n, d = self.rows.shape
        return n, d


def row_blocks(rows: Any, max_rows: int | None = None) -> list[slice]:
    """Return slices that split rows (n, d), dense or CSR, into blocks of at most `max_rows` and BLOCK_BYTES."""
    n, d = rows.shape
    values = max(1, rows.nnz // max(1, n) if sp.issparse(rows) else d)  # per row
    size = max(1, min(BLOCK_BYTES // (8 * values), n if max_rows is None else max_rows))
    return [slice(start, min(n, start + size)) for start in range(0, n, size)]


def take_rows(X: Any, positions: NDArray[np.int64]) -> Any:
    """Return these rows of an array, a sparse matrix, a frame, a list or `ValidatedRows`, in the same type."""
    if isinstance(X, ValidatedRows):
        return ValidatedRows(X.rows[positions])
    if hasattr(X, "iloc"):  # pandas
        return X.iloc[positions]
    if hasattr(X, "column_names"):  # pyarrow
        return X.take(positions)
    if isinstance(X, list | tuple):
        return [X[i] for i in positions]
    return X[positions] if hasattr(X, "shape") else np.asarray(X)[positions]


def count_rows(X: Any) -> int:
    """Return the number of rows of an array, a sparse matrix, a frame or a list."""
    if getattr(X, "shape", None):
        return int(X.shape[0])
    return len(X) if hasattr(X, "__len__") else len(np.asarray(X))


def split_rows(X: Any, n: int, max_rows: int) -> Iterator[Any]:
    """Yield the n rows of X in blocks of at most `max_rows`; X itself if one block is enough."""
    if n <= max_rows:
        yield X
        return
    for start in range(0, n, max_rows):
        yield take_rows(X, np.arange(start, min(n, start + max_rows)))


def concatenate_rows(n: int, blocks: Iterable[NDArray]) -> NDArray:
    """Return blocks of n rows in total as one array; each block is copied as it comes, and need not be kept."""
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


# ---- blocks of rows with labels, for every `fit_blocks`


class LabeledRows(NamedTuple):
    """Rows X (m, d), m > 0, and their labels y (m,)."""

    X: Any
    y: NDArray


def labeled_blocks(blocks: Iterable[tuple[Any, Any]]) -> Iterator[LabeledRows]:
    """Yield the blocks that have rows, with checked labels; raise InputError if there is none."""
    first: NDArray | None = None
    for X, y in _check_pairs(blocks):
        refuse_masked(X, "X of a block")
        if len(np.shape(X)) != 2:
            raise InputError(f"blocks must be (X, y): X of shape (rows, features), got shape {np.shape(X)}")
        labels, n = column(on_host(y)), np.shape(X)[0]
        if len(labels) != n:
            raise InputError(f"a block has {n:,} rows and {len(labels):,} labels; give one label per row")
        if not n:
            continue
        first = labels[:1].copy() if first is None else first
        joined([first, labels[:1]])  # raises now, not after all blocks, if text and numbers are mixed
        yield LabeledRows(X, labels.copy())  # a generator may fill the same array again
    if first is None:
        raise InputError("there is nothing to learn from: no block has rows")


def dense_blocks(blocks: Iterable[tuple[Any, Any]]) -> Iterator[LabeledRows]:
    """Yield `labeled_blocks` with X as an array (m, d) of numbers; all blocks must have the same width."""
    width = None
    for X, y in labeled_blocks(blocks):
        rows = np.asarray(on_host(X))
        if rows.dtype.kind not in "fiub":
            got = "a sparse matrix" if sp.issparse(X) else f"{type(X).__name__} of {rows.dtype}"
            raise InputError(f"blocks must be (X, y): X dense numbers, got {got}")
        width = check_width(rows, width)
        yield LabeledRows(rows, y)


def _check_pairs(blocks: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(blocks, str | bytes | dict) or not isinstance(blocks, Iterable):
        raise InputError(f"blocks must be an iterable of pairs (X, y), got {blocks!r:.60}")
    for block in blocks:
        if not isinstance(block, tuple | list) or len(block) != 2 or block[1] is None:
            raise InputError(f"blocks must be pairs (X, y), rows and one label per row; got a {type(block).__name__}")
        yield block[0], block[1]
