"""Hashes of rows, which show whether rows are training rows. A model file keeps those of its training rows.

    h_i = sum_j mix(v_ij) m_j mod 2^64        v_ij: value j of row i; m_j: an odd number drawn from the column's name

Numbers in columns are converted to float64, so that 1 and 1.0 are equal. In a model file the label, as text, is one of
the values. The file stores the top 40 bits of the MAX_HASHES lowest hashes in base64, which are 6.7 bytes per row and
at most 134 kB.

Only new rows whose hash is at most the largest stored hash are compared. Such a row counts as a training row if its
hash is stored. Hashes are uniform, so about N / 2^40 of the other rows match by chance, with N distinct training rows.
The count is scaled up to all rows.

Model files contain these hashes, so a change of the functions below makes older files useless for this purpose.
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

from kway.errors import InputError, KwayError
from kway.tables.features.columns import as_numbers, as_vectors, as_words
from kway.tables.sources.frames import as_table, is_date, is_number, is_table, is_vector, whole_column

ROWS = "rows"  # key of the hashes in a model file
MAX_HASHES = 20_000  # rows whose hashes are stored: 134 kB
_HASH_BITS = 40  # bits of each hash that are stored


def rows_note(rows: Any, y: NDArray) -> dict[str, Any] | None:
    """Return the hashes of training rows with labels y (n,) for the model file; None if they cannot be hashed."""
    try:
        hashes = np.unique(row_hashes(rows, y) >> np.uint64(64 - _HASH_BITS))[:MAX_HASHES]
    except (KwayError, pa.ArrowException):
        return None
    packed = hashes.astype(">u8").view(np.uint8).reshape(-1, 8)[:, 8 - _HASH_BITS // 8 :]
    columns = list(rows.column_names) if is_table(rows) else None
    has_all = len(hashes) < MAX_HASHES
    return {"hashes": base64.b64encode(packed.tobytes()).decode(), "columns": columns, "all": has_all}


class TrainedRows:
    """Counts the training rows of a model among new rows, by the hashes in its file."""

    def __init__(self, note: Any) -> None:
        self.hashes, self.columns, self.limit = np.empty(0, np.uint64), None, 0
        self.compared = self.known = 0
        try:
            packed = np.frombuffer(base64.b64decode(note["hashes"]), np.uint8).reshape(-1, _HASH_BITS // 8)
            padded = np.zeros((len(packed), 8), np.uint8)
            padded[:, 8 - _HASH_BITS // 8 :] = packed
            self.hashes = padded.view(">u8").ravel().astype(np.uint64)
            self.columns = note["columns"]
            self.limit = 2**_HASH_BITS if note["all"] else int(self.hashes[-1])
        except (TypeError, KeyError, ValueError, IndexError):  # an older file, or notes that kway did not write
            return

    def add(self, rows: Any, y: NDArray) -> None:
        """Compare rows with labels y (m,); rows without the columns of the training rows are skipped."""
        if not len(self.hashes):
            return
        try:
            table = as_table(rows) if is_table(rows) else rows
            table_part = table.select(self.columns) if self.columns is not None else table
            hashes = row_hashes(table_part, y) >> np.uint64(64 - _HASH_BITS)
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
        """Return a clause that says how many of `rows` rows are training rows, extrapolated from the rows compared."""
        about = "" if self.limit == 2**_HASH_BITS else "about "
        return f"{about}{self.count(rows):,} of these {rows:,} rows are training rows of the model"

    def count(self, rows: int) -> int:
        """Return how many of `rows` rows are training rows.

        This is an estimate if the file does not contain all hashes, or if some blocks could not be compared.
        """
        return round(rows * self.known / self.compared) if self.compared else 0


def count_known(rows: Any, known_rows: Any) -> int:
    """Return how many rows equal a known row in every column; 0 if they cannot be compared."""
    try:
        comparable = rows.select(known_rows.column_names) if is_table(known_rows) else rows
        return int(np.isin(_value_hashes(comparable), _value_hashes(known_rows)).sum())
    except (KwayError, pa.ArrowException, KeyError, AttributeError):  # other columns
        return 0


def row_hashes(rows: Any, y: Any) -> NDArray[np.uint64]:
    """Return the hash (n,) of each row with its label."""
    return _value_hashes(rows) + _text_hashes(np.asarray(y).astype(str).tolist()) * _factor("label")


def _value_hashes(rows: Any) -> NDArray[np.uint64]:
    """Return the hash (n,) of the values of each row."""
    if is_table(rows):
        total = np.zeros(rows.num_rows, np.uint64)
        for name in rows.column_names:
            total += _column_hashes(whole_column(rows.column(name)), name) * _factor(name)
        return total
    if hasattr(rows, "tocsr"):
        X = rows.tocsr()
        factors = np.array([_factor(f"x{j}") for j in range(X.shape[1])], np.uint64)
        cells = _mix(_float_bits(X.data)) * factors[X.indices]
        sums = np.concatenate([[np.uint64(0)], np.cumsum(cells, dtype=np.uint64)])
        return np.asarray(sums[X.indptr[1:]] - sums[X.indptr[:-1]])
    total = np.zeros(len(rows), np.uint64)
    for j in range(rows.shape[1]):
        total += _mix(_float_bits(rows[:, j])) * _factor(f"x{j}")
    return total


def _column_hashes(column: Any, name: str) -> NDArray[np.uint64]:
    """Return the hashes of the values of a column."""
    if is_vector(column.type):
        return _value_hashes(as_vectors(column, name))
    if is_date(column.type) and not kinds.is_time(column.type):
        column = column.cast(pa.timestamp("us"), safe=False).cast("int64")
    if is_number(column.type) or kinds.is_boolean(column.type) or kinds.is_null(column.type):
        return _mix(_float_bits(as_numbers(column, name)))
    if kinds.is_nested(column.type) or kinds.is_binary(column.type):
        raise InputError(f"rows of column {name!r} cannot be compared, because its type is {column.type}")
    words = as_words(column).dictionary_encode()
    word_hashes = np.append(_text_hashes(words.dictionary.to_pylist()), np.uint64(0))  # 0 for a missing value
    row_codes = words.indices.fill_null(len(word_hashes) - 1).to_numpy()
    return np.asarray(word_hashes[row_codes])


def _text_hashes(words: Iterable[str]) -> NDArray[np.uint64]:
    digests = b"".join(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest() for word in words)
    return np.frombuffer(digests, np.uint64).copy()


def _factor(name: str) -> np.uint64:
    """Return an odd number that depends on the name of a column."""
    return _text_hashes([name])[0] | np.uint64(1)


def _float_bits(values: Any) -> NDArray[np.uint64]:
    """Return the bits of numbers as float64; all missing values have the same bits, and those of 0 are 0."""
    floats = np.array(values, np.float64) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view(np.uint64)


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return well mixed bits (the finalizer of MurmurHash3); 0 stays 0."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        bits = (bits ^ (bits >> np.uint64(33))) * np.uint64(factor)
    return bits ^ (bits >> np.uint64(33))
