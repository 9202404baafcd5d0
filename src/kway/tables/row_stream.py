"""Data of any size: rows in pieces, parts that several processes read, and the size of a file before it is read.

    row_stream(source)        pieces of the rows as LabeledRows. There is one piece with all rows if the source is
                              small, is not a table file (a built-in dataset, images, JSON lines, stdin), or has a
                              column `split`
    row_parts(path)           the parts of a file or folder in the order of the rows; each can be read on its own
    part_stream(part)         the rows of a part, in blocks that fit in memory
    measure_extent(source)    the number of rows, features and classes

A part is a csv file, or consecutive row groups of a parquet file, or consecutive rows of an npy file. A parquet file in
a folder such as year=2024 is one part, because its path gives values of columns.

The requirements of a model fix the columns and their kinds, so that every piece is read in the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp
from numpy.typing import NDArray

from kway import progress
from kway.errors import InputError
from kway.memory import rows_per_block
from kway.tables.datasets.arrays import map_arrays, npy_files, row_blocks
from kway.tables.labeled_rows import LabeledRows, RowRequirements, number_rows
from kway.tables.read_options import ReadOptions
from kway.tables.reading import DEFAULT_OPTIONS, NO_REQUIREMENTS, read_rows
from kway.tables.sources import csv_files, table_files
from kway.tables.sources.frames import text_columns
from kway.tables.sources.labels import NoLabelError, unlabeled_note
from kway.tables.sources.table_files import (
    FileTable,
    TableSource,
    csv_pieces,
    is_large,
    list_files,
    parquet_batches,
    readable,
    refuse_missing_columns,
    refuse_other_kinds,
    suffix_of,
    table_source,
)
from kway.tables.sources.text_form import TableRequest
from kway.tables.sources.values import are_codes, present, trimmed
from kway.tables.table_rows import table_rows
from kway.text_tables import printable

# ---- pieces


def row_stream(
    source: Any, options: ReadOptions = DEFAULT_OPTIONS, requirements: RowRequirements = NO_REQUIREMENTS
) -> Iterator[LabeledRows]:
    """Yield the rows of a source in pieces, in their order.

    `source`, `options` and `requirements` are those of `read_rows`.
    """
    path = Path(source) if isinstance(source, str | Path) else None
    if path is None or not path.exists():
        yield read_rows(source, options, requirements)
        return
    files = npy_files(path)
    if files:
        for rows, y in map_arrays(files, path.name).blocks():
            yield LabeledRows(path.name, rows, y)
        return
    if not is_large(path, options.form):
        yield read_rows(source, options, requirements)
        return
    yield from _piece_rows(path, options, requirements)


def _piece_rows(path: Path, options: ReadOptions, requirements: RowRequirements) -> Iterator[LabeledRows]:
    """Yield the pieces of a large file or folder; all are read in the form and with the kinds of the first."""
    first: FileTable | None = None
    unlabeled: NoLabelError | None = None
    n = 0
    for source in chain.from_iterable(_part_tables(part, options, requirements) for part in row_parts(path, options)):
        file = f"{path.name}/{source.name}" if path.is_dir() else path.name
        try:
            piece = replace(table_rows(source, file, options, requirements), name=path.name)
        except NoLabelError as error:
            unlabeled = error
            progress.note(printable(f"note: {file}: {unlabeled_note(error.rows)}"))
            continue
        table = FileTable(file, piece.rows)
        if first is None:
            has_split = piece.test_rows is not None or "split" in piece.rows.column_names
            if has_split and options.target is not None:  # the column `split` divides all rows, not those of a piece
                yield read_rows(path, options, requirements)
                return
            first = table
            earlier = requirements.earlier if requirements.columns is not None else piece.requirements().earlier
            options = replace(options.in_form(piece.form), types={**_code_types(piece.rows), **options.types})
        n += piece.n
        requirements = requirements._replace(earlier=earlier._replace(n_rows=n))
        if requirements.columns is None:
            _refuse_other_columns(first, table)
        yield piece
    if first is None and unlabeled is not None:
        raise unlabeled


def _code_types(table: Any) -> dict[str, str]:
    """Return the columns of codes such as 0052, which have to stay text in all pieces, as values of `types`."""
    return {c: "text" for c in text_columns(table) if are_codes(present(trimmed(table.column(c))))}


def _refuse_other_columns(first: FileTable, other: FileTable) -> None:
    """Raise InputError if only one of two pieces has a column, or if a column has values of another kind."""
    names, other_names = first.table.column_names, other.table.column_names
    if names == other_names and first.table.schema.equals(other.table.schema):
        return
    refuse_missing_columns(names, dict.fromkeys(set(names) - set(other_names), other.file))
    refuse_missing_columns(other_names, dict.fromkeys(set(other_names) - set(names), first.file))
    refuse_other_kinds(first, other, names)


# ---- parts


class RowPart(NamedTuple):
    """A part of a file: its row groups or rows [first, last), or the whole file.

    `kind` is "lines" (a csv file), "row groups", "rows" (of an npy file), or "whole" (a parquet file).
    """

    file: str
    kind: str
    first: int = 0
    last: int = 0


def row_parts(path: Path, options: ReadOptions) -> list[RowPart]:
    """Return the parts of a file or folder; raise InputError if it cannot be divided."""
    if not path.exists():
        raise InputError(f"there is no file or folder {path}; give one that every machine can read")
    arrays = npy_files(path)
    if arrays:
        map_arrays(arrays, path.name)  # checks that all have the same width
        return [part for file in arrays for part in _npy_parts(file)]
    files = list_files(path)
    formats = {suffix_of(file, options.form).removesuffix(".gz") for file in files}
    if formats == {".parquet"}:
        return [part for file in files for part in _parquet_parts(file, path)]
    if formats and formats <= {".csv", ".tsv", ".tab"}:
        return [RowPart(str(file.absolute()), "lines") for file in files]
    raise InputError(f"{path} cannot be divided into parts; give a parquet, csv or npy file, or a folder of them")


def _parquet_parts(file: Path, folder: Path) -> Iterator[RowPart]:
    with readable(file.name):
        metadata = pq.read_metadata(file)
    if folder.is_dir() and "=" in str(file.relative_to(folder).parent):
        yield RowPart(str(file.absolute()), "whole")
        return
    first, size = 0, 0
    for group in range(metadata.num_row_groups):
        size += metadata.row_group(group).total_byte_size
        if size >= table_files.LARGE or (size and group == metadata.num_row_groups - 1):
            yield RowPart(str(file.absolute()), "row groups", first, group + 1)
            first, size = group + 1, 0


def _npy_parts(file: Path) -> Iterator[RowPart]:
    if np.load(file, mmap_mode="r", allow_pickle=False).ndim < 2:  # labels
        return
    rows = map_arrays([file], file.name).parts[0]
    size = rows_per_block(rows[:1].nbytes, table_files.LARGE)
    for first in range(0, len(rows), size):
        yield RowPart(str(file.absolute()), "rows", first, min(first + size, len(rows)))


def part_stream(part: RowPart, options: ReadOptions, requirements: RowRequirements) -> Iterator[LabeledRows]:
    """Yield the rows of a part, one block at a time."""
    if part.kind == "rows":
        path = Path(part.file)
        rows = map_arrays([path], path.name).parts[0][part.first : part.last]
        yield from (LabeledRows(path.name, block) for block in row_blocks(rows))
    else:
        for source in _part_tables(part, options, requirements):
            yield table_rows(source, source.name, options, requirements)


def _part_tables(part: RowPart, options: ReadOptions, requirements: RowRequirements) -> Iterator[TableSource]:
    file = Path(part.file)
    if part.kind == "lines":
        names = requirements.columns or ()
        return csv_pieces(file, TableRequest((), options.form, requirements.form, names))
    if part.kind == "row groups":
        return parquet_batches(file, range(part.first, part.last))
    return iter([table_source(file)])


# ---- extent


class Extent(NamedTuple):
    """The number of rows, features and classes, and the share of values that are not zero (1 for dense rows)."""

    n: int
    d: int
    K: int
    density: float


def measure_extent(source: Any, options: ReadOptions) -> Extent:
    """Return the extent of a file, folder or built-in dataset with labels, without reading all of a large file.

    parquet and npy files give the number of rows in their headers. The rows of a csv file are estimated from the bytes
    per row of its first piece, and its classes by Chao's estimate.
    """
    first = next(row_stream(source, options))
    labels = first.required_labels()
    X = number_rows(first).rows
    path = Path(source)
    if path.exists() and npy_files(path):
        arrays = map_arrays(npy_files(path), path.name)
        return Extent(arrays.n, X.shape[1], _count_distinct(arrays.y), 1.0)
    if path.exists() and path.name and is_large(path, options.form):
        return _measure_files(path, first, X.shape[1], options)
    density = min(X.nnz / max(1, X.shape[0] * X.shape[1]), 1 - 1e-9) if sp.issparse(X) else 1.0
    return Extent(X.shape[0], X.shape[1], _count_distinct(labels), density)


def _measure_files(path: Path, first: LabeledRows, d: int, options: ReadOptions) -> Extent:
    """Return the extent of a file or folder that is read in pieces, given its first piece and number of features."""
    files = list_files(path)
    if not files[0].name.lower().endswith(".parquet"):
        text_bytes_per_byte = 3.0 if files[0].name.lower().endswith(".gz") else 1.0  # text shrinks to about a third
        sizes = [text_bytes_per_byte * file.stat().st_size for file in files]
        n = round(sum(sizes) * first.n / max(1.0, min(sizes[0], csv_files.PIECE_BYTES)))
        return Extent(n, d, _estimate_classes(first.required_labels()), 1.0)
    n, labels = 0, set[Any]()
    for file in files:
        with readable(file.name), pq.ParquetFile(file) as opened:
            n += opened.metadata.num_rows
            if options.target not in opened.schema_arrow.names:
                raise InputError(
                    f"{file.name} has no target column {options.target!r}, which other files of {path} have"
                )
            for batch in opened.iter_batches(columns=[options.target]):
                labels.update(batch.column(0).unique().to_pylist())
    return Extent(n, d, len(labels), 1.0)


def _estimate_classes(labels: NDArray) -> int:
    """Return Chao's estimate of the number of classes: K + f1^2 / (2 f2) for K classes in the rows.

    f1 and f2 are the numbers of classes with one row and with two rows.
    """
    counts = np.unique(labels, return_counts=True)[1]
    once, twice = int((counts == 1).sum()), int((counts == 2).sum())
    return len(counts) + (once * once) // (2 * max(1, twice))


def _count_distinct(labels: NDArray | None) -> int:
    return 0 if labels is None else len(np.unique(labels))
