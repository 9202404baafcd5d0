"""Hashes of the training rows in the model file, so that `kway evaluate` recognizes training rows.

    h_i = sum_j mix(v_ij) m_j mod 2^64        v_ij: value j of row i; m_j: an odd number drawn from the column's name

The label is one of the values. Numbers are converted to float64, so that 1 and 1.0 are equal. The file stores the top
40 bits of the MAX_HASHES lowest hashes in base64, which are 6.7 bytes per row and at most 134 kB. A new row whose hash
is not above the highest stored hash is a training row if and only if its hash is stored, except for a share of about
MAX_HASHES / 2^40 of false matches, because hashes are uniform. Rows with higher hashes are not compared, and the count
is scaled up.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from kway.errors import KwayError
from kway.tables.features.columns import as_numbers, as_words
from kway.tables.sources.frames import as_table, is_date, is_number, is_table, whole_column

ROWS = "rows"  # the note of a model file
MAX_HASHES = 20_000  # rows whose hashes are stored: 134 kB
_BITS = 40  # bits of each hash that are stored


def rows_note(rows: Any, y: NDArray) -> dict[str, Any] | None:
    """Return the hashes of training rows with labels y (n,) for the model file; None if they cannot be hashed."""
    try:
        hashes = np.unique(row_hashes(rows, y) >> np.uint64(64 - _BITS))[:MAX_HASHES]
    except (KwayError, pa.ArrowException):
        return None
    packed = hashes.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - _BITS // 8 :]
    columns = list(rows.column_names) if is_table(rows) else None
    has_all = len(hashes) < MAX_HASHES
    return {"hashes": base64.b64encode(packed.tobytes()).decode(), "columns": columns, "all": has_all}


class TrainedRows:
    """Counts the training rows of a model among new rows, by the hashes in its file."""

    def __init__(self, note: Any) -> None:
        self.hashes, self.columns, self.limit = np.empty(0, np.uint64), None, 0
        self.compared = self.known = 0
        try:
            packed = np.frombuffer(base64.b64decode(note["hashes"]), np.uint8).reshape(-1, _BITS // 8)
            padded = np.zeros((len(packed), 8), np.uint8)
            padded[:, 8 - _BITS // 8 :] = packed
            self.hashes = padded.view(">u8").ravel().astype(np.uint64)
            self.columns = note["columns"]
            self.limit = 2**_BITS if note["all"] else int(self.hashes[-1])
        except (TypeError, KeyError, ValueError, IndexError):  # an older file, or notes that kway did not write
            return

    def add(self, rows: Any, y: NDArray) -> None:
        """Compare rows with labels y (m,)."""
        if not len(self.hashes):
            return
        try:
            table = as_table(rows) if is_table(rows) else rows
            table_part = table.select(self.columns) if self.columns is not None else table
            hashes = row_hashes(table_part, y) >> np.uint64(64 - _BITS)
        except (KwayError, pa.ArrowException, KeyError, AttributeError):  # other columns
            return
        hashes = hashes[hashes <= self.limit]
        self.compared += len(hashes)
        self.known += int(np.isin(hashes, self.hashes).sum())

    def watch(self, blocks: Iterable[Any]) -> Iterator[Any]:
        """Yield blocks of rows X with labels y after comparing them."""
        for block in blocks:
            self.add(block.X, block.y)
            yield block

    def words(self, rows: int) -> str:
        """Return a clause that says how many of `rows` compared rows are training rows."""
        about = "" if self.limit == 2**_BITS else "about "
        return f"{about}{self.count(rows):,} of these {rows:,} rows are training rows of the model"

    def count(self, rows: int) -> int:
        """Return how many of `rows` compared rows are training rows; an estimate if the file has not all hashes."""
        return round(rows * self.known / self.compared) if self.compared else 0


def row_hashes(rows: Any, y: Any) -> NDArray[np.uint64]:
    """Return the hash (n,) of each row with its label."""
    total = _column_hashes(np.asarray(y).astype(str).tolist()) * _factor("label")
    if is_table(rows):
        for name in rows.column_names:
            total += _values_of(whole_column(rows.column(name)), name) * _factor(name)
        return total
    if hasattr(rows, "tocsr"):
        X = rows.tocsr()
        factors = np.array([_factor(f"x{j}") for j in range(X.shape[1])], np.uint64)
        cells = _mix(_bits(X.data)) * factors[X.indices]
        sums = np.concatenate([[np.uint64(0)], np.cumsum(cells, dtype=np.uint64)])
        return np.asarray(total + (sums[X.indptr[1:]] - sums[X.indptr[:-1]]))
    for j in range(rows.shape[1]):
        total += _mix(_bits(rows[:, j])) * _factor(f"x{j}")
    return total


def _values_of(column: Any, name: str) -> NDArray[np.uint64]:
    """Return the hashes of the values of a column."""
    if is_date(column.type) and not kinds.is_time(column.type):
        column = column.cast(pa.timestamp("us"), safe=False).cast("int64")
    if is_number(column.type) or kinds.is_boolean(column.type) or kinds.is_null(column.type):
        return _mix(_bits(as_numbers(column, name)))
    if kinds.is_nested(column.type) or kinds.is_binary(column.type):
        return np.zeros(len(column), np.uint64)
    words = as_words(column).dictionary_encode()
    hashes = np.append(_column_hashes(words.dictionary.to_pylist()), np.uint64(0))
    found: NDArray[np.uint64] = hashes[words.indices.fill_null(len(hashes) - 1).to_numpy()]
    return found


def _column_hashes(words: Iterable[str]) -> NDArray[np.uint64]:
    digests = b"".join(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest() for word in words)
    return np.frombuffer(digests, np.uint64).copy()


def _factor(name: str) -> np.uint64:
    """Return an odd number that depends on the name of a column."""
    return _column_hashes([name])[0] | np.uint64(1)


def _bits(values: Any) -> NDArray[np.uint64]:
    """Return the bits of numbers as float64; all missing values have the same bits, and those of 0 are 0."""
    floats = np.array(values, np.float64) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view(np.uint64)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well mixed bits (the finalizer of MurmurHash3); 0 stays 0."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(33))
