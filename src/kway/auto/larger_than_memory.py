"""DATA larger than memory: a random sample of its rows is kept in memory.

`LargeData.blocks` reads all rows again, in pieces (row_stream.py), for the fit of the family that was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kway.auto.race.folds import FEW_ROWS
from kway.errors import InputError
from kway.memory import available_bytes
from kway.tables.datasets.arrays import npy_files
from kway.tables.features.columns import kind_of
from kway.tables.labeled_rows import LabeledRows, RowRequirements
from kway.tables.read_options import ReadOptions
from kway.tables.reading import read_rows
from kway.tables.row_stream import row_stream
from kway.tables.sources.frames import is_table
from kway.tables.sources.labels import joined_labels
from kway.tables.sources.table_files import is_large, join_tables, list_files

JOB_BYTES = 5.0  # bytes that a job needs per byte of rows: the rows, their features, folds and models
TEXT_BYTES = 22.0  # bytes of features per byte of text: words, pairs of words and n-grams of 2 to 5 letters
_PACKED, _UNPACKED_BYTES = (".parquet", ".gz"), 5.0  # compressed files, and bytes in memory per byte of such a file


class FileState(NamedTuple):
    """Path, size and modification time of a file, which show whether it has changed."""

    file: str
    size: int
    changed_ns: int


@dataclass(frozen=True, eq=False)
class LargeData:
    """DATA with n rows in files; `read` (m,) are the numbers of the training rows in memory.

    `blocks` leaves out the rows with the numbers `aside` (a,), the rows of `groups`, and all rows not before `order`.
    """

    data: Any
    how: ReadOptions
    like: RowRequirements
    n: int
    state: tuple[FileState, ...]
    read: NDArray[np.int64]
    aside: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    groups: NDArray | None = None
    order: Any = None
    classes: NDArray | None = None  # spelling of the labels, if labels are joined

    def without(self, rows: NDArray[np.int64], groups: NDArray | None, order: NDArray | None) -> LargeData:
        """Return the data without some of the rows in memory, their groups, and all rows after them in order."""
        if groups is not None:
            groups = np.union1d(groups[rows], groups[:0] if self.groups is None else self.groups)
        first = None if order is None else order[rows].min()  # calls accumulate: a second call leaves out more rows
        return replace(self, aside=np.concatenate([self.aside, self.read[rows]]), groups=groups, order=first)

    def blocks(self) -> Iterator[tuple[Any, NDArray]]:
        """Yield all rows that may be used for training, in pieces, with their labels (m,)."""
        self._check_state()
        first, left_out = 0, np.sort(self.aside)
        for piece in row_stream(self.data, self.how, self.like):
            is_kept = np.ones(piece.n, bool)
            is_kept[left_out[slice(*np.searchsorted(left_out, (first, first + piece.n)))] - first] = False
            if self.groups is not None and piece.groups is not None:
                is_kept &= ~np.isin(piece.groups, self.groups)
            if self.order is not None and piece.order is not None:
                is_kept &= piece.order < self.order
            first += piece.n
            remaining = piece.at(is_kept)
            y = remaining.required_labels()
            yield remaining.rows, y if self.classes is None else joined_labels(y, self.classes, self.how.hierarchy)
        self._check_state()

    def _check_state(self) -> None:
        """Raise InputError if the files have changed: row numbers could then mean test rows."""
        if _state_of(Path(self.data), self.how) != self.state:
            raise InputError(f"{self.data} changed while it was read; do not change it during a fit")


def read_what_fits(data: Any, reading: ReadOptions) -> tuple[LabeledRows, LargeData | None]:
    """Read all rows; if a job on them needs more memory than there is, return a sample with a note, and the data."""
    path = Path(data) if isinstance(data, str | Path) else None
    available = available_bytes()
    if path is None or not path.exists() or (needed := JOB_BYTES * _bytes_of(path, reading)) <= available:
        return read_rows(data, reading), None
    rng, share, state = np.random.default_rng(0), available / needed, _state_of(path, reading)
    samples, numbers, n_read = list[LabeledRows](), list[NDArray[np.int64]](), 0
    for piece in row_stream(data, reading):
        only_piece = None if samples else piece
        is_first = np.arange(n_read, n_read + piece.n) < FEW_ROWS
        selected = np.flatnonzero((rng.random(piece.n) < share) | is_first)
        samples.append(piece.at(selected))
        numbers.append(n_read + selected)
        n_read += piece.n
    if only_piece is not None:  # DATA was not read in pieces
        return only_piece, None
    sample = _joined(samples)
    note = (
        f"{sample.name} is larger than memory, so families were compared on {sample.n:,} of its {n_read:,} rows, drawn "
        "at random; the environment variable KWAY_MEMORY sets the memory that kway may use"
    )
    larger = LargeData(
        data, reading.in_form(sample.form), sample.requirements(), n_read, state, np.concatenate(numbers)
    )
    return replace(sample, notes=(*sample.notes, note), positions=larger.read), larger


def _bytes_of(path: Path, reading: ReadOptions) -> float:
    """Return the approximate bytes of the rows in memory, with features of text; 0 if DATA has no pieces."""
    files = _state_of(path, reading)
    size = sum(part.size * (_UNPACKED_BYTES if part.file.lower().endswith(_PACKED) else 1.0) for part in files)
    texts = _share_of_texts(next(row_stream(path, reading)).rows, reading) if files and not npy_files(path) else 0.0
    return size * (1 + TEXT_BYTES * texts)


def _state_of(path: Path, reading: ReadOptions) -> tuple[FileState, ...]:
    """Return the state of the files from which rows are read in pieces; empty if DATA cannot be read in pieces."""
    files = npy_files(path)
    if not files and is_large(path, reading.form):
        files = list_files(path)
    return tuple(FileState(str(file), (status := file.stat()).st_size, status.st_mtime_ns) for file in files)


def _share_of_texts(table: Any, reading: ReadOptions) -> float:
    """Return the share of the bytes of a table that is in columns of text."""
    columns = {name: table.column(name) for name in table.column_names}
    texts = [c.nbytes for name, c in columns.items() if reading.kinds.get(name, kind_of(c, name).name) == "text"]
    return sum(texts) / max(1, table.nbytes)


def _joined(parts: list[LabeledRows]) -> LabeledRows:
    """Return the pieces as one table."""
    first = parts[0]
    tables = [part.rows for part in parts]
    rows = join_tables(tables, first.name) if is_table(first.rows) else np.concatenate(tables)
    arrays: dict[str, Any] = {
        name: None if getattr(first, name) is None else np.concatenate([getattr(part, name) for part in parts])
        for name in ("y", "groups", "order", "weights")
    }
    if first.kept_columns:
        kept = join_tables([pa.table(dict(part.kept_columns)) for part in parts], first.name)
        arrays["kept_columns"] = dict(zip(kept.column_names, kept.columns))
    return replace(first, rows=rows, **arrays)
