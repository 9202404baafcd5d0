"""Extent: how many rows, features and classes DATA has, without reading all of a large file.

parquet     rows from the footer, features from the first piece, classes from the target column alone
npy         rows and features from the headers, classes from the labels
csv         by its first piece: rows are bytes / (bytes a row); classes by Chao's estimate, seen + f1^2 / (2 f2),
            f1 and f2 the classes seen once and twice, for some are still to come
others      read
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.tables.datasets.arrays import map_arrays, npy_files
from kway.tables.labelled_rows import LabelledRows, number_rows
from kway.tables.options import ReadOptions
from kway.tables.row_stream import row_stream
from kway.tables.sources.table_files import csv_files, parquet_files, pieces_of, readable


class Extent(NamedTuple):
    """Rows, features, classes, and the share of numbers that are not zero (1 of dense rows)."""

    n: int
    d: int
    K: int
    density: float


def extent_of(source: Any, how: ReadOptions) -> Extent:
    """Of a file, folder or known set with labels."""
    first = next(row_stream(source, how))
    labels = first.required_labels()
    found = number_rows(first)
    path = Path(source)
    if path.exists() and npy_files(path):
        arrays = map_arrays(npy_files(path), path.name)
        return Extent(arrays.n, found.rows.shape[1], _distinct(arrays.y), 1.0)
    if path.exists() and path.name and pieces_of(path, how.form) is not None:
        return _of_large(path, found, labels, how)
    X = found.rows
    density = min(X.nnz / max(1, X.shape[0] * X.shape[1]), 1 - 1e-9) if sp.issparse(X) else 1.0
    return Extent(X.shape[0], X.shape[1], _distinct(labels), density)


def _of_large(path: Path, first: LabelledRows, labels: NDArray, how: ReadOptions) -> Extent:
    """Of a file or folder that is cut into pieces, the first of which is here."""
    import pyarrow.parquet as pq

    files = [path] if path.is_file() else parquet_files(path) or csv_files(path)
    d = first.rows.shape[1]
    if not files[0].name.lower().endswith(".parquet"):
        piece = next(pieces_of(path, how.form).each)  # type: ignore[union-attr]  # whoever asks has seen it
        packed = 3.0 if files[0].name.lower().endswith(".gz") else 1.0  # text shrinks to about a third
        rows = packed * sum(file.stat().st_size for file in files) / max(1.0, len(piece.content) / first.n)
        return Extent(round(rows), d, _estimated(labels), 1.0)
    n, seen = 0, set[Any]()
    for file in files:
        with readable(file.name), pq.ParquetFile(file) as opened:
            n += opened.metadata.num_rows
            if how.target not in opened.schema_arrow.names:
                raise InputError(f"{file.name} has no target column {how.target!r}, which other files of {path} have")
            for batch in opened.iter_batches(columns=[how.target]):
                seen.update(batch.column(0).unique().to_pylist())
    return Extent(n, d, len(seen), 1.0)


def _estimated(labels: NDArray) -> int:
    counts = np.unique(labels, return_counts=True)[1]
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    return len(counts) + (once * once) // (2 * max(1, twice))


def _distinct(labels: NDArray | None) -> int:
    return 0 if labels is None else len(np.unique(labels))
