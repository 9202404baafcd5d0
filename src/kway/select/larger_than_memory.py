"""DATA larger than memory: as many of its rows, drawn at random, as a part of memory holds.

The others are not lost: `Larger.blocks` reads all rows again, a piece at a time (blocks/row_stream.py), for the fit
of what was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.data.blocks.row_stream import row_stream
from kway.data.features.column_kinds import kind_of
from kway.data.labelled_rows import LabelledRows, ReadOptions
from kway.data.reading import read_rows
from kway.data.sources.frames import is_table, take_rows
from kway.data.sources.npy_files import npy_files
from kway.data.sources.pieces import pieces_of
from kway.data.sources.requirements import RowRequirements
from kway.data.sources.table_files import csv_files, joined_tables, parquet_files
from kway.errors import InputError
from kway.planning.machine import available_bytes

MEMORY_SHARE = 0.2  # of the memory there is, for rows as they are read: features, folds and models come on top
GROWS = {".parquet": 4.0, ".gz": 6.0}  # bytes in memory a byte of a file, where they are packed; else 1
TEXT_GROWS = 22.0  # bytes of entries a byte of text: its words, pairs of them and pieces of 2 to 5 letters
_LEAST = 100  # of the first rows, read in any case


class FileState(NamedTuple):
    """What tells a file from what it was before: its place, bytes and time of its last change."""

    file: str
    size: int
    changed_ns: int


class SomeLabelled(NamedTuple):
    """Some rows of DATA as they came, and their labels (m,)."""

    rows: Any
    y: NDArray


@dataclass(frozen=True, eq=False)
class Larger:
    """DATA of n rows in files of some `state`; those at the places `read` (m,) are the training rows in memory.

    Rows at the places `aside` (a,), those of `groups`, and those of an order not before `order` are not given.
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

    def without(self, rows: NDArray[np.int64], groups: NDArray | None, order: NDArray | None) -> Larger:
        """But for some of the rows in memory, by number, and whatever `groups` and `order` (m,) say goes with them."""
        if groups is not None:
            groups = np.union1d(groups[rows], groups[:0] if self.groups is None else self.groups)
        first = None if order is None else order[rows].min()  # of a second call it is the earlier one
        return replace(self, aside=np.concatenate([self.aside, self.read[rows]]), groups=groups, order=first)

    def blocks(self) -> Iterator[SomeLabelled]:
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
            yield SomeLabelled(take_rows(piece.rows, kept), piece.required_labels()[kept])
        self._check_state()

    def _check_state(self) -> None:
        """Refuse files that are others now: places would be those of other rows, of the test among them."""
        if _state_of(Path(self.data), self.how) != self.state:
            raise InputError(f"{self.data} changed while it was read; leave it as it is until the fit has ended")


class Fitting(NamedTuple):
    """Rows that fit into memory; `larger` where DATA has more of them."""

    found: LabelledRows
    larger: Larger | None = None


def read_fitting(data: Any, how: ReadOptions) -> Fitting:
    """All rows, or some of them with a note, where all would not fit."""
    path = Path(data) if isinstance(data, str | Path) else None
    room = MEMORY_SHARE * available_bytes()
    if path is None or not path.exists() or (needed := _bytes_of(path, how)) <= room:
        return Fitting(read_rows(data, how))
    rng, share, state = np.random.default_rng(0), room / needed, _state_of(path, how)
    kept, places, rows = list[LabelledRows](), list[NDArray[np.int64]](), 0
    for piece in row_stream(data, how):
        whole = None if kept else piece
        chosen = np.flatnonzero((rng.random(piece.n) < share) | (np.arange(rows, rows + piece.n) < _LEAST))
        kept.append(_some(piece, chosen))
        places.append(rows + chosen)
        rows += piece.n
    if whole is not None:  # of a kind that does not come in pieces
        return Fitting(whole)
    found = _joined(kept)
    note = (
        f"{found.name} is larger than memory: {found.n:,} of its {rows:,} rows, drawn at random, were compared on; "
        "$KWAY_MEMORY sets what may be taken"
    )
    larger = Larger(data, replace(how, form=found.form), found.requirements(), rows, state, np.concatenate(places))
    return Fitting(replace(found, notes=(*found.notes, note)), larger)


def _bytes_of(path: Path, how: ReadOptions) -> float:
    """What the rows take in memory, about, texts as what is made of them; 0 of what cannot be read in pieces."""
    files = _state_of(path, how)
    size = sum(GROWS.get(Path(part.file).suffix.lower(), 1.0) * part.size for part in files)
    texts = _share_of_texts(next(row_stream(path, how)).rows, how) if files and not npy_files(path) else 0.0
    return size * (1 + TEXT_GROWS * texts)


def _state_of(path: Path, how: ReadOptions) -> tuple[FileState, ...]:
    """The files that rows are read from in pieces; none where they cannot be."""
    files = npy_files(path)
    if not files and pieces_of(path, how.form) is not None:
        files = [path] if path.is_file() else parquet_files(path) or csv_files(path)
    return tuple(FileState(str(file), (now := file.stat()).st_size, now.st_mtime_ns) for file in files)


def _share_of_texts(table: Any, how: ReadOptions) -> float:
    """Of the bytes of a table, those in columns that are read for their words."""
    columns = {name: table.column(name) for name in table.column_names}
    texts = [c.nbytes for name, c in columns.items() if how.kinds.get(name, kind_of(c, name).name) == "text"]
    return sum(texts) / max(1, table.nbytes)


def _some(piece: LabelledRows, chosen: NDArray[np.int64]) -> LabelledRows:
    """Some rows of a piece, with what goes with them."""
    each: dict[str, Any] = {
        name: None if getattr(piece, name) is None else getattr(piece, name)[chosen]
        for name in ("y", "groups", "order")
    }
    return replace(piece, rows=take_rows(piece.rows, chosen), **each)


def _joined(parts: list[LabelledRows]) -> LabelledRows:
    """Pieces as one."""
    first = parts[0]
    tables = [part.rows for part in parts]
    rows = joined_tables(tables, first.name) if is_table(first.rows) else np.concatenate(tables)
    each: dict[str, Any] = {
        name: None if getattr(first, name) is None else np.concatenate([getattr(part, name) for part in parts])
        for name in ("y", "groups", "order")
    }
    return replace(first, rows=rows, **each)
