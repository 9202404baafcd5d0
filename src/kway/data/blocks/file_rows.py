"""Rows larger than memory: they lie in files that are mapped, and are read some at a time; their labels are here.

a folder of .npy, or one file     mapped where they lie
parquet, csv, blocks of (X, y)    written once, as floats, to a temporary file, which goes when nobody holds it
"""

from __future__ import annotations

import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.data.blocks.labelled_blocks import dense_blocks
from kway.data.blocks.row_stream import row_stream
from kway.data.labelled_rows import ReadOptions
from kway.data.labels import joined
from kway.data.number_rows import number_rows
from kway.data.sources.npy_files import map_arrays, npy_files
from kway.data.sources.table_files import csv_files, parquet_files
from kway.errors import InputError

RUN_BYTES = 2**16  # bytes of rows that follow each other and are read together
MIXED_BYTES = 2**26  # bytes of the runs that are mixed: as much of the files is read at a time


class PassingRows(ABC):
    """Rows (n, d) of which a few are in memory at a time: a slice or positions give them."""

    @abstractmethod
    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """All rows in a new order (n,) that is quick to read."""


def row_order(X: Any, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of any kind in a new order (n,)."""
    return X.shuffled(rng) if isinstance(X, PassingRows) else rng.permutation(X.shape[0])


@dataclass(frozen=True)
class FileRows(PassingRows):
    """Rows (n, d) in mapped parts; a slice or positions give them as floats. `mark` tells them from others."""

    parts: tuple[NDArray, ...]
    dtype: np.dtype
    mark: str

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each part, and n."""
        return np.cumsum([0, *map(len, self.parts)])

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return int(self.starts[-1]), int(self.parts[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def rows_in(self, n_bytes: int) -> int:
        """How many rows take so many bytes."""
        return n_bytes // (self.dtype.itemsize * self.shape[1])

    def __getitem__(self, where: slice | NDArray[np.int64]) -> NDArray:
        if isinstance(where, slice) and (run := self._run(*where.indices(len(self)))) is not None:
            return run
        rows = np.arange(*where.indices(len(self))) if isinstance(where, slice) else np.asarray(where)
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        part = np.searchsorted(self.starts, rows, side="right") - 1
        for i in np.unique(part):
            here = part == i
            found[here] = self.parts[i][rows[here] - self.starts[i]]
        return found

    def _run(self, first: int, stop: int, step: int) -> NDArray | None:
        """Rows that follow each other in one part, where they lie if they are floats of this type; else None."""
        i = int(np.searchsorted(self.starts, first, side="right")) - 1
        if step != 1 or first >= stop or stop > self.starts[i + 1]:
            return None
        run = self.parts[i][first - self.starts[i] : stop - self.starts[i]]
        return np.asarray(run).astype(self.dtype, copy=False)

    def shuffled(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """An order that reads the files in runs: runs at random, rows mixed among many runs."""
        n, d = self.shape
        size = d * self.dtype.itemsize
        if n * size <= MIXED_BYTES:
            return rng.permutation(n)
        run = max(1, RUN_BYTES // size)
        starts = run * rng.permutation(-(-n // run))
        together = max(1, MIXED_BYTES // RUN_BYTES)
        groups = [
            np.concatenate([np.arange(s, min(n, s + run)) for s in starts[i : i + together]])
            for i in range(0, len(starts), together)
        ]
        return np.concatenate([rng.permutation(group) for group in groups])


class LabelledFiles(NamedTuple):
    """Rows in files, and the label of each (n,)."""

    X: FileRows
    y: NDArray


def rows_of_folder(folder: str | Path, target: str | None) -> LabelledFiles:
    """The rows of a folder, or of one file, of .npy, parquet or csv."""
    path = Path(folder)
    files = npy_files(path) or ([path] if path.is_file() else parquet_files(path) or csv_files(path))
    if not files:
        raise InputError(f"{str(folder)!r} has neither .npy nor parquet nor csv files; give a folder of one kind")
    about = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    mark = repr((about, target))
    if not npy_files(path):
        pieces = (number_rows(piece) for piece in row_stream(path, ReadOptions(target=target)))
        X, y = rows_of_blocks((piece.rows, piece.required_labels()) for piece in pieces)
        return LabelledFiles(FileRows(X.parts, X.dtype, mark), y)
    found = map_arrays(files, path.name)
    y = found.required_labels(path.name)
    narrow = all(part.dtype in (np.float32, np.float16, np.int16, np.int8, np.uint16, np.uint8) for part in found.parts)
    return LabelledFiles(FileRows(found.parts, np.dtype(np.float32 if narrow else np.float64), mark), y)


def rows_of_blocks(blocks: Iterable[tuple[Any, Any]]) -> LabelledFiles:
    """Rows that come as blocks of (X, y), written as they come; in the float type of the first."""
    labels, digest, width = list[NDArray](), 0, 0
    kind: np.dtype = np.dtype(np.float32)
    with tempfile.TemporaryFile(prefix="kway-rows-") as out:  # without a name: a fit that is killed leaves nothing
        for X, y in dense_blocks(blocks):
            if not labels:
                width, kind = X.shape[1], np.dtype(np.float64 if X.dtype.itemsize > 4 else np.float32)
            data = np.ascontiguousarray(X, kind)
            digest = zlib.crc32(data.data, digest)
            out.write(data.data)
            labels.append(y)
        y = joined(labels)
        out.flush()
        parts = (np.memmap(out, kind, "r", shape=(len(y), width)),)
        return LabelledFiles(FileRows(parts, kind, f"{digest}"), y)
