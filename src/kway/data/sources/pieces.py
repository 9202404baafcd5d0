"""A large table in pieces, each a TableSource that fits in memory: record batches of parquet, runs of lines of a csv.

parquet, a folder of it     PIECE_ROWS rows a piece
csv, tsv (.gz), a folder    about BYTES a piece, cut between rows: behind a line end with an even number of quotes
                            before it; every piece has the header
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from kway.data.sources.table_files import TableSource, csv_files, parquet_files, readable, suffix_of, table_source
from kway.data.sources.text_form import HEAD, OPEN, TextForm, is_row, settle_form

PIECE_ROWS = 65_536
BYTES = 2**25
LARGE = 2**27  # bytes of a file, or folder, from which it is read in pieces
_BY_BYTE = ("utf-8", "utf-8-sig", "ascii", "latin-1", "iso-8859-1", "cp1252", "windows-1252")  # a line end is one byte


class Pieces(NamedTuple):
    """The names of the columns, and the pieces, one after another."""

    columns: tuple[str, ...]
    each: Iterator[TableSource]


def pieces_of(path: Path, form: TextForm, before: TextForm = OPEN, columns: Sequence[str] = ()) -> Pieces | None:
    """The pieces of a file or folder; None where it is small, or of a kind that is not cut.

    `form`, `before` and `columns` are what is known of a csv, as `settle` takes it.
    """
    files = [path] if path.is_file() else parquet_files(path) or csv_files(path)
    if sum(file.stat().st_size for file in files) < LARGE or len({suffix_of(f, form) for f in files}) != 1:
        return None
    suffix = suffix_of(files[0], form)
    if suffix == ".parquet":
        return _of_parquet(path, files)
    return _of_text(files, form, before, columns) if suffix.removesuffix(".gz") in (".csv", ".tsv", ".tab") else None


def text_pieces(
    file: Path, form: TextForm, before: TextForm = OPEN, columns: Sequence[str] = ()
) -> Iterator[TableSource]:
    """The pieces of one csv, however small; in one where its encoding does not let it be cut."""
    found = _of_text([file], form, before, columns)
    return iter([table_source(file, form)]) if found is None else found.each


def _of_parquet(path: Path, files: list[Path]) -> Pieces | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if any("=" in str(file.relative_to(path).parent) for file in files if path.is_dir()):
        return None  # sub-folders such as year=2024 are columns

    def each() -> Iterator[TableSource]:
        for file in files:
            with readable(f"{file.parent.name}/{file.name}"), pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(PIECE_ROWS):
                    yield TableSource(file.name, pa.Table.from_batches([batch]), ".parquet")

    with readable(files[0].name):
        return Pieces(tuple(pq.read_schema(files[0]).names), each())


def _of_text(files: list[Path], form: TextForm, before: TextForm, columns: Sequence[str]) -> Pieces | None:
    with readable(files[0].name), _opened(files[0]) as file:
        settled = settle_form(file.read(HEAD), files[0].name, form, before, columns)
    if str(settled.form.encoding).lower() not in _BY_BYTE:
        return None
    header = bool(settled.form.header)

    def each() -> Iterator[TableSource]:
        for file in files:
            with readable(f"{file.parent.name}/{file.name}"):
                if not file.stat().st_size:
                    raise OSError("it is empty")
                with _opened(file) as opened:
                    if is_row(opened.readline()):
                        opened.seek(0)
                    first = opened.readline() if header else b""
                    for lines in _runs_of_lines(opened):
                        yield TableSource(file.name, first + lines, ".csv")

    return Pieces(settled.first if header else (), each())


def _opened(file: Path) -> BinaryIO:
    return gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb")  # type: ignore[return-value]


def _runs_of_lines(file: BinaryIO) -> Iterator[bytes]:
    """Runs of whole rows of about BYTES."""
    left = b""
    while more := file.read(BYTES):
        left += more
        end = _row_end(left)
        if end:
            yield left[:end]
            left = left[end:]
    if left.strip():
        yield left


def _row_end(text: bytes) -> int:
    """Behind the last line end that no quoted value goes on beyond; 0 where there is none."""
    end = text.rfind(b"\n") + 1
    quotes = text.count(b'"', 0, end)
    while end and quotes % 2:
        earlier = text.rfind(b"\n", 0, end - 1) + 1
        quotes -= text.count(b'"', earlier, end)
        end = earlier
    return end
