"""DATA larger than memory: as many of its pieces (kway.data.row_stream), drawn at random, as a part of memory holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from kway.data.reading import LabelledRows, ReadOptions, read_rows
from kway.data.row_stream import row_stream
from kway.data.sources.frames import is_table
from kway.data.sources.npy_files import npy_files
from kway.data.sources.pieces import pieces_of
from kway.data.sources.table_files import csv_files, parquet_files
from kway.planning.machine import available_bytes

PART = 0.2  # of the memory there is, for rows as they are read: features, folds and models come on top
GROWS = {".parquet": 4.0, ".gz": 6.0}  # bytes in memory a byte of a file, where they are packed; else 1


def read_fitting(data: Any, how: ReadOptions) -> LabelledRows:
    """All rows, or some of them with a note, where all would not fit."""
    path = Path(data) if isinstance(data, str | Path) else None
    if path is None or not path.exists() or (needed := _bytes_of(path, how)) <= (room := PART * available_bytes()):
        return read_rows(data, how)
    rng, share = np.random.default_rng(0), room / needed
    kept, rows = list[LabelledRows](), 0
    for piece in row_stream(data, how):
        rows += piece.n
        if not kept or rng.random() < share:
            kept.append(piece)
    found = _joined(kept)
    note = (
        f"{found.name} is larger than memory: {found.n:,} of its {rows:,} rows, in pieces drawn at random, were read; "
        "$KWAY_MEMORY sets what may be taken"
    )
    return replace(found, notes=(*found.notes, note))


def _bytes_of(path: Path, how: ReadOptions) -> float:
    """What the rows take in memory, about; 0 of what cannot be read in pieces."""
    files = npy_files(path)
    if not files and pieces_of(path, how.form) is not None:
        files = [path] if path.is_file() else parquet_files(path) or csv_files(path)
    return sum(GROWS.get(file.suffix.lower(), 1.0) * file.stat().st_size for file in files)


def _joined(parts: list[LabelledRows]) -> LabelledRows:
    """Pieces as one."""
    import pyarrow as pa

    first = parts[0]
    tables = [part.rows for part in parts]
    rows = pa.concat_tables(tables, promote_options="permissive") if is_table(first.rows) else np.concatenate(tables)
    each: dict[str, Any] = {
        name: None if getattr(first, name) is None else np.concatenate([getattr(part, name) for part in parts])
        for name in ("y", "groups", "order")
    }
    return replace(first, rows=rows, **each)
