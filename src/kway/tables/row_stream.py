"""DATA of any size: in pieces, one after the other, or in parts that other processes read.

    row_stream(source)      LabelledRows of some rows each; one with all rows if the source is small or of another kind
                            (a known set, images, JSON lines, stdin), or has a column `split`
    row_parts(path)         the parts of a file or folder, in the order of the rows; each can be read again alone
    part_stream(part)       the rows of a part, in blocks that fit in memory

parquet    a run of row groups of a file, PART_ROWS rows or more    csv, tsv (.gz)    a file
npy        a run of rows of a file                                  year=2024/...     a file: its place names columns

What a model asks for (`like`) fixes the columns and what they are, so that every piece is read alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from kway import progress
from kway.errors import InputError
from kway.tables.datasets.arrays import FILE_BLOCK, map_arrays, npy_files
from kway.tables.labelled_rows import LabelledRows, RowRequirements
from kway.tables.options import ReadOptions
from kway.tables.reading import ANY_ROWS, AS_IT_IS, read_rows, table_rows
from kway.tables.sources import table_files
from kway.tables.sources.frames import text_columns
from kway.tables.sources.labels import NoLabelError, unlabeled_note
from kway.tables.sources.table_files import (
    FileTable,
    Pieces,
    TableSource,
    csv_files,
    parquet_files,
    pieces_of,
    readable,
    refuse_lacking,
    refuse_other_kinds,
    suffix_of,
)
from kway.tables.sources.values import are_codes, present, trimmed

PART_ROWS = 2**20  # of parquet: half a minute of work, and no more is lost with a worker
PART_VALUES = 16 * FILE_BLOCK  # of npy: 1 GB in float32


def row_stream(source: Any, how: ReadOptions = AS_IT_IS, like: RowRequirements = ANY_ROWS) -> Iterator[LabelledRows]:
    """Rows in pieces, in their order."""
    path = Path(source) if isinstance(source, str | Path) else None
    if path is None or not path.exists():
        yield read_rows(source, how, like)
        return
    files = npy_files(path)
    if files:
        for rows, y in map_arrays(files, path.name).blocks():
            yield LabelledRows(path.name, rows, y)
        return
    pieces = _pieces(path, how, like)
    if pieces is None:
        yield read_rows(source, how, like)
        return
    first: FileTable | None = None
    lacking: NoLabelError | None = None
    for piece in pieces.each:
        file = f"{path.name}/{piece.name}" if path.is_dir() else path.name
        try:
            found = replace(table_rows(piece, file, how, like), name=path.name)
        except NoLabelError as error:  # of this piece
            lacking = error
            progress.note(f"note: {file}: {unlabeled_note(error.rows)}")
            continue
        if first is None:  # what follows is written as the first piece was
            codes = {c: "text" for c in text_columns(found.rows) if are_codes(present(trimmed(found.rows.column(c))))}
            how = replace(how.in_form(found.form), types={**codes, **how.types})
        here = FileTable(file, found.rows)
        first = first or here
        if like.columns is None:  # else the model says what it makes of them
            _refuse_other_columns(first, here)
        yield found
    if first is None and lacking is not None:
        raise lacking


def _refuse_other_columns(first: FileTable, here: FileTable) -> None:
    """Columns that only one of two pieces has, or that hold other kinds of values in them."""
    names = [part.table.column_names for part in (first, here)]
    if names[0] == names[1] and first.table.schema.equals(here.table.schema):
        return
    for mine, theirs, file in ((names[0], names[1], here.file), (names[1], names[0], first.file)):
        refuse_lacking(mine, {column: file for column in mine if column not in theirs})
    refuse_other_kinds(first, here, names[0])


def _pieces(path: Path, how: ReadOptions, like: RowRequirements) -> Pieces | None:
    """The pieces of a table; None where one of them could not tell what belongs together."""
    pieces = pieces_of(path, how.form, like.form, like.columns or ())
    if pieces is None:
        return None
    taken = pieces.columns if like.columns is None else like.columns
    return None if "split" in taken and how.target is not None else pieces


class RowPart(NamedTuple):
    """A run [first, last) of a file: of row groups, of rows, or all of it."""

    file: str
    kind: str
    first: int = 0
    last: int = 0


def row_parts(path: Path, how: ReadOptions) -> list[RowPart]:
    """The parts of a file or folder; what cannot be cut is an error."""
    if not path.exists():
        raise InputError(f"no file or folder {path}; parts are read from files that every machine sees")
    arrays = npy_files(path)
    if arrays:
        map_arrays(arrays, path.name)  # all of one width
        return [part for file in arrays for part in _npy_parts(file)]
    files = [path] if path.is_file() else parquet_files(path) or csv_files(path)
    kinds = {suffix_of(file, how.form).removesuffix(".gz") for file in files}
    if kinds == {".parquet"}:
        return [part for file in files for part in _parquet_parts(file, path)]
    if kinds and kinds <= {".csv", ".tsv", ".tab"}:
        return [RowPart(str(file.absolute()), "lines") for file in files]
    raise InputError(f"{path} cannot be cut into parts; give parquet, csv or npy, a file or a folder of them")


def _parquet_parts(file: Path, folder: Path) -> Iterator[RowPart]:
    import pyarrow.parquet as pq

    with readable(file.name):
        about = pq.read_metadata(file)
    if folder.is_dir() and "=" in str(file.relative_to(folder).parent):
        yield RowPart(str(file.absolute()), "whole")
        return
    first, rows = 0, 0
    for group in range(about.num_row_groups):
        rows += about.row_group(group).num_rows
        if rows >= PART_ROWS or (rows and group == about.num_row_groups - 1):
            yield RowPart(str(file.absolute()), "row groups", first, group + 1)
            first, rows = group + 1, 0


def _npy_parts(file: Path) -> Iterator[RowPart]:
    import numpy as np

    if np.load(file, mmap_mode="r", allow_pickle=False).ndim < 2:  # labels
        return
    rows = map_arrays([file], file.name).parts[0]
    size = max(1, PART_VALUES // max(1, rows.shape[1]))
    for first in range(0, len(rows), size):
        yield RowPart(str(file.absolute()), "rows", first, min(first + size, len(rows)))


def part_stream(part: RowPart, how: ReadOptions, like: RowRequirements) -> Iterator[LabelledRows]:
    """The rows of a part, a block at a time."""
    return _READERS[part.kind](part, how, like)


def _row_groups(part: RowPart, how: ReadOptions, like: RowRequirements) -> Iterator[LabelledRows]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with readable(Path(part.file).name), pq.ParquetFile(part.file) as opened:
        for batch in opened.iter_batches(table_files.PIECE_ROWS, row_groups=range(part.first, part.last)):
            source = TableSource(Path(part.file).name, pa.Table.from_batches([batch]), ".parquet")
            yield table_rows(source, source.name, how, like)


def _whole(part: RowPart, how: ReadOptions, like: RowRequirements) -> Iterator[LabelledRows]:
    import pyarrow.parquet as pq

    with readable(name := Path(part.file).name):
        source = TableSource(name, pq.read_table(part.file), ".parquet")
    yield table_rows(source, source.name, how, like)


def _lines(part: RowPart, how: ReadOptions, like: RowRequirements) -> Iterator[LabelledRows]:
    for source in table_files.pieces_of_csv(Path(part.file), how.form, like.form, like.columns or ()):
        yield table_rows(source, source.name, how, like)


def _rows(part: RowPart, how: ReadOptions, like: RowRequirements) -> Iterator[LabelledRows]:
    path = Path(part.file)
    rows = map_arrays([path], path.name).parts[0][part.first : part.last]
    size = max(1, FILE_BLOCK // max(1, rows.shape[1]))
    for first in range(0, len(rows), size):
        yield LabelledRows(path.name, rows[first : first + size])


_READERS: dict[str, Callable[[RowPart, ReadOptions, RowRequirements], Iterator[LabelledRows]]] = {
    "row groups": _row_groups,
    "whole": _whole,
    "lines": _lines,
    "rows": _rows,
}
