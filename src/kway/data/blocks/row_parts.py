"""DATA in parts that other processes read apart from each other, so that each can be done, and done again, alone.

parquet    a run of row groups of a file, PART_ROWS rows or more    csv, tsv (.gz)    a file
npy        a run of rows of a file                                  year=2024/...     a file: its place names columns

Parts are in the order of the rows, and each is read in blocks that fit in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kway.data.labelled_rows import LabelledRows, ReadOptions
from kway.data.reading import table_rows
from kway.data.sources import pieces
from kway.data.sources.npy_files import FILE_BLOCK, map_arrays, npy_files
from kway.data.sources.requirements import RowRequirements
from kway.data.sources.table_files import TableSource, csv_files, parquet_files, readable, suffix_of
from kway.errors import InputError

PART_ROWS = 2**20  # of parquet: half a minute of work, and no more is lost with a worker
PART_VALUES = 16 * FILE_BLOCK  # of npy: 1 GB in float32


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
        for batch in opened.iter_batches(pieces.PIECE_ROWS, row_groups=range(part.first, part.last)):
            source = TableSource(Path(part.file).name, pa.Table.from_batches([batch]), ".parquet")
            yield table_rows(source, source.name, how, like)


def _whole(part: RowPart, how: ReadOptions, like: RowRequirements) -> Iterator[LabelledRows]:
    import pyarrow.parquet as pq

    with readable(name := Path(part.file).name):
        source = TableSource(name, pq.read_table(part.file), ".parquet")
    yield table_rows(source, source.name, how, like)


def _lines(part: RowPart, how: ReadOptions, like: RowRequirements) -> Iterator[LabelledRows]:
    for source in pieces.text_pieces(Path(part.file), how.form, like.form, like.columns or ()):
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
