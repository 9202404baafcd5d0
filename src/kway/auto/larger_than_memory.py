"""DATA larger than memory: a random sample of its rows is kept in memory.

The others are not lost: `LargeData.blocks` reads all rows again, a piece at a time (row_stream.py), for the fit of the
family that was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.memory import available_bytes
from kway.tables.datasets.arrays import npy_files
from kway.tables.features.columns import kind_of
from kway.tables.labeled_rows import LabeledRows, RowRequirements
from kway.tables.options import ReadOptions
from kway.tables.reading import read_rows
from kway.tables.row_stream import row_stream
from kway.tables.sources.frames import is_table, take_rows
from kway.tables.sources.table_files import join_tables, list_files, pieces_of

JOB_BYTES = 5.0  # bytes that a job needs per byte of the rows as read: rows, features, folds and models
UNPACKED_BYTES = {".parquet": 4.0, ".gz": 6.0}  # bytes in memory per byte of a packed file; else 1
TEXT_BYTES = 22.0  # bytes of features per byte of text: its words, pairs of them and pieces of 2 to 5 letters
_LEAST_ROWS = 100  # the first rows of DATA, which are always kept


class FileState(NamedTuple):
    """Path, size and time of the last change of a file, which show whether it has changed."""

    file: str
    size: int
    changed_ns: int


class LabelledBlock(NamedTuple):
    """Some rows of DATA as they were read, and their labels (m,)."""

    rows: Any
    y: NDArray


@dataclass(frozen=True, eq=False)
class LargeData:
    """DATA of n rows in files; the rows with numbers `read` (m,) are the training rows in memory.

    `blocks` leaves out the rows with numbers `aside` (a,), the rows of `groups`, and the rows from `order` on.
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

    def without(self, rows: NDArray[np.int64], groups: NDArray | None, order: NDArray | None) -> LargeData:
        """Leave out some of the rows in memory, the rest of their groups, and what comes later in order."""
        if groups is not None:
            groups = np.union1d(groups[rows], groups[:0] if self.groups is None else self.groups)
        first = None if order is None else order[rows].min()  # a second call leaves out more
        return replace(self, aside=np.concatenate([self.aside, self.read[rows]]), groups=groups, order=first)

    def blocks(self) -> Iterator[LabelledBlock]:
        """All rows that may be learned from, a piece at a time."""
        self._check_state()
        begun, aside = 0, np.sort(self.aside)
        for piece in row_stream(self.data, self.how, self.like):
            kept = np.ones(piece.n, bool)
            kept[aside[slice(*np.searchsorted(aside, (begun, begun + piece.n)))] - begun] = False
            if self.groups is not None and piece.groups is not None:
                kept &= ~np.isin(piece.groups, self.groups)
            if self.order is not None and piece.order is not None:
                kept &= piece.order < self.order
            begun += piece.n
            yield LabelledBlock(take_rows(piece.rows, kept), piece.required_labels()[kept])
        self._check_state()

    def _check_state(self) -> None:
        """Raise if the files have changed: row numbers would be those of other rows, test rows among them."""
        if _state_of(Path(self.data), self.how) != self.state:
            raise InputError(f"{self.data} changed while it was read; leave it as it is until the fit has ended")


def read_what_fits(data: Any, how: ReadOptions) -> tuple[LabeledRows, LargeData | None]:
    """All rows; or, if a job on them needs more memory than there is, some of them with a note, and all of DATA."""
    path = Path(data) if isinstance(data, str | Path) else None
    available = available_bytes()
    if path is None or not path.exists() or (needed := JOB_BYTES * _bytes_of(path, how)) <= available:
        return read_rows(data, how), None
    rng, share, state = np.random.default_rng(0), available / needed, _state_of(path, how)
    kept, places, rows = list[LabeledRows](), list[NDArray[np.int64]](), 0
    for piece in row_stream(data, how):
        whole = None if kept else piece
        chosen = np.flatnonzero((rng.random(piece.n) < share) | (np.arange(rows, rows + piece.n) < _LEAST_ROWS))
        kept.append(_some(piece, chosen))
        places.append(rows + chosen)
        rows += piece.n
    if whole is not None:  # this kind of DATA is not read in pieces
        return whole, None
    found = _joined(kept)
    note = (
        f"{found.name} is larger than memory: {found.n:,} of its {rows:,} rows, drawn at random, were compared on; "
        "$KWAY_MEMORY sets what may be taken"
    )
    larger = LargeData(data, how.in_form(found.form), found.requirements(), rows, state, np.concatenate(places))
    return replace(found, notes=(*found.notes, note)), larger


def _bytes_of(path: Path, how: ReadOptions) -> float:
    """Approximate bytes of the rows in memory, with the features of text; 0 if DATA cannot be read in pieces."""
    files = _state_of(path, how)
    size = sum(UNPACKED_BYTES.get(Path(part.file).suffix.lower(), 1.0) * part.size for part in files)
    texts = _share_of_texts(next(row_stream(path, how)).rows, how) if files and not npy_files(path) else 0.0
    return size * (1 + TEXT_BYTES * texts)


def _state_of(path: Path, how: ReadOptions) -> tuple[FileState, ...]:
    """The files that rows are read from in pieces; none if they cannot be."""
    files = npy_files(path)
    if not files and pieces_of(path, how.form) is not None:
        files = list_files(path)
    return tuple(FileState(str(file), (now := file.stat()).st_size, now.st_mtime_ns) for file in files)


def _share_of_texts(table: Any, how: ReadOptions) -> float:
    """Share of the bytes of a table that is in columns of text."""
    columns = {name: table.column(name) for name in table.column_names}
    texts = [c.nbytes for name, c in columns.items() if how.kinds.get(name, kind_of(c, name).name) == "text"]
    return sum(texts) / max(1, table.nbytes)


def _some(piece: LabeledRows, chosen: NDArray[np.int64]) -> LabeledRows:
    """Some rows of a piece, with their labels, groups and order."""
    each: dict[str, Any] = {
        name: None if getattr(piece, name) is None else getattr(piece, name)[chosen]
        for name in ("y", "groups", "order")
    }
    return replace(piece, rows=take_rows(piece.rows, chosen), **each)


def _joined(parts: list[LabeledRows]) -> LabeledRows:
    """The pieces as one."""
    first = parts[0]
    tables = [part.rows for part in parts]
    rows = join_tables(tables, first.name) if is_table(first.rows) else np.concatenate(tables)
    each: dict[str, Any] = {
        name: None if getattr(first, name) is None else np.concatenate([getattr(part, name) for part in parts])
        for name in ("y", "groups", "order")
    }
    return replace(first, rows=rows, **each)
