"""Files as pyarrow tables: csv and tsv, JSON (lines or a list), parquet, a folder of them, stdin; gzipped or not.

A TableSource is a table that is still to be read. `open_table` reads it; `pieces_of` cuts a large one into sources that
fit in memory: record batches of parquet, runs of lines of a csv.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from kway.errors import InputError
from kway.suggest import listing
from kway.tables.options import OPEN, TextForm
from kway.tables.sources.csv_files import EVERYTHING, LARGE, LoadedTable, TableRequest, read_csv, text_pieces
from kway.tables.sources.frames import as_table, is_date, is_number, is_text
from kway.tables.sources.text_form import HEAD, is_delimited

STDIN = "-"
PIECE_ROWS = 65_536  # of a large parquet file
LARGE_ARCHIVE = 8 * LARGE  # bytes to which a compressed file may always unpack
_TIMES_PACKED = 200  # beyond that size it may unpack to so many times its own: tables pack 3 to 30 times, a bomb 1,000

_TEXT = (".csv", ".tsv", ".tab")
_LINES = (".jsonl", ".ndjson", ".json")
_SVM = (".svm", ".libsvm")
_PACKED = tuple(s + gz for s in (*_TEXT, *_LINES, *_SVM) for gz in ("", ".gz"))
FILE_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz", ".npy", *(s for s in _PACKED if not s.startswith(".csv")))
_IMAGE = re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP|II\*\0|MM\0\*", re.DOTALL)  # how their files begin


class TableSource(NamedTuple):
    """A table to be read: its name in messages, its path or content, and the suffix that tells its format."""

    name: str
    content: Any  # a path, bytes, the table itself, or the csv files of a folder (a tuple)
    suffix: str  # "": a folder of parquet files

    @property
    def typed(self) -> bool:
        """Whether the format itself tells text from numbers."""
        return self.suffix not in _TEXT


def table_source(path: Path, asked: TextForm = OPEN) -> TableSource:
    """The file, folder or stdin ("-") as a source, unpacked; raises an error if it is empty."""
    if str(path) == STDIN:
        if sys.stdin is None:  # as `<&-` leaves it
            raise InputError("stdin is closed; pipe a table into it, or name a file")
        name, content = "stdin", sys.stdin.buffer.read()
        suffix, empty = _suffix_of_bytes(content), not content.strip()
    elif path.is_dir():
        parts = () if parquet_files(path) else tuple(csv_files(path))
        return TableSource(path.name, parts, ".csv") if parts else TableSource(path.name, path, "")
    else:
        name, content, suffix = path.name, path, suffix_of(path, asked)
        empty = path.stat().st_size < HEAD and not path.read_bytes().strip()
    if empty:
        raise InputError(f"{name} cannot be read: it is empty; give a file with a header and rows")
    if suffix.endswith(".gz"):
        return TableSource(name, gunzipped(content, name), suffix.removesuffix(".gz"))
    return TableSource(name, content, suffix)


def suffix_of(path: Path, asked: TextForm = OPEN) -> str:
    """The suffix that tells how to read the file; an unknown one is an error unless a separator was given."""
    known = [s for s in FILE_SUFFIXES if path.name.lower().endswith(s)]
    if known:
        return max(known, key=len)
    if asked.sep is not None or _is_table_of_text(path):
        return ".csv.gz" if path.name.lower().endswith(".gz") else ".csv"
    raise InputError(
        f"cannot tell the format of {path.name}; its name must end in {listing(FILE_SUFFIXES, 20)}, "
        "or say how its columns are separated: sep="
    )


def _is_table_of_text(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_delimited(file.read(HEAD))


def _suffix_of_bytes(content: bytes) -> str:
    """What stdin holds, by how it begins."""
    if content.startswith(b"PAR1"):
        return ".parquet"
    if content.startswith(b"\x1f\x8b"):
        return ".csv.gz"
    if _IMAGE.match(content):
        raise InputError("stdin holds an image, and only tables are read from it; name the image's file instead of -")
    return ".jsonl" if re.match(rb"\s*(\[\s*)?\{", content.removeprefix(b"\xef\xbb\xbf")) else ".csv"


def parquet_files(folder: Path) -> list[Path]:
    """Parquet files of a folder and its sub-folders by name, without hidden and _temporary ones."""
    inside = [p for p in sorted(folder.rglob("*.parquet")) if p.is_file()]
    return [p for p in inside if not any(part.startswith((".", "_")) for part in p.relative_to(folder).parts)]


def csv_files(folder: Path) -> list[Path]:
    """csv and tsv files of a folder by name, without hidden ones."""
    endings = tuple(s + gz for s in _TEXT for gz in ("", ".gz"))
    inside = (p for p in folder.glob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return sorted(p for p in inside if p.name.lower().endswith(endings))


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn errors of reading a file with this name into an InputError."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{name} is gone, and was there when the work began; put it back") from error
    except (pa.ArrowException, OSError, UnicodeError, EOFError, zlib.error) as error:  # EOFError would read as Ctrl-D
        why = str(error).splitlines()[0] if str(error) else "it ends too early"
        raise InputError(f"{name} cannot be read: {why}") from error


# ---- reading


def read_table(path: Path, words: Sequence[str] = ()) -> Any:
    """The file or folder as a pyarrow table; the columns `words` of a csv stay as they are written."""
    return open_table(table_source(path), TableRequest(words)).table


def open_table(source: TableSource, request: TableRequest = EVERYTHING) -> LoadedTable:
    """Read the source, as the request asks."""
    name, content, _ = source
    with readable(name):
        if isinstance(content, tuple):
            return _read_csv_folder(content, name, request)
        if source.suffix in _TEXT:
            return read_csv(content, name, request)
        if isinstance(content, Path) and source.suffix == "":
            table, lacking = _read_parquet_folder(content)
        else:
            table, lacking = _read_typed(source), {}
    return LoadedTable(table if request.only is None else table.select(list(request.only)), lacking=lacking)


def _read_typed(source: TableSource) -> Any:
    content = source.content
    if isinstance(content, pa.Table):
        return content
    if source.suffix in _LINES:
        return read_json(content if isinstance(content, bytes) else content.read_bytes(), source.name)
    return pq.read_table(pa.BufferReader(content) if isinstance(content, bytes) else content)


def read_json(content: bytes, name: str) -> Any:
    """One JSON object per line, or a list of them; keys are columns, in the order of their first appearance."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    rows = _json_list(content, name) if content.lstrip().startswith(b"[") else _json_lines(content, name)
    keys = dict.fromkeys(key for row in rows for key in row)
    return as_table({key: [row.get(key) for row in rows] for key in keys}, name)


def _json_list(content: bytes, name: str) -> list[Any]:
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON ({error}); write a list of objects, or one object per line") from error
    odd = next((row for row in rows if not isinstance(row, dict)), None)
    if odd is not None:
        raise InputError(f"{name} is a list with {odd!r:.60} in it; write a list of objects, each a row")
    return list(rows)


def _json_lines(content: bytes, name: str) -> list[Any]:
    rows = []
    for i, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {i} of {name} is not JSON ({error}); write one JSON object per line") from error
        if not isinstance(row, dict):
            kind = type(row).__name__
            raise InputError(f"line {i} of {name} is {kind}, not an object; write one JSON object per line")
        rows.append(row)
    return rows


# ---- folders


class FileTable(NamedTuple):
    """The table of one file, or of a piece of it, and the file's name in messages."""

    file: str
    table: Any


def _read_csv_folder(files: Sequence[Path], name: str, request: TableRequest) -> LoadedTable:
    """One table of all files, each read in the form of the first; the notes are those of the first."""
    first: LoadedTable | None = None
    parts: list[FileTable] = []
    for file in files:
        found = read_csv(table_source(file).content, f"{name}/{file.name}", request)
        parts.append(FileTable(f"{name}/{file.name}", found.table))
        if first is None:
            first = found
            request = request._replace(asked=found.form, words=[*request.words, *found.codes], find_codes=False)
    assert first is not None
    table, lacking = _join_files(parts, name)
    return LoadedTable(table, first.form, first.notes, first.codes, lacking)


def _read_parquet_folder(folder: Path) -> tuple[Any, Mapping[str, str]]:
    """One table of all files in the order of their names; sub-folders such as year=2024 become columns."""
    parts = []
    for file in parquet_files(folder):
        with readable(file.name):
            parts.append(FileTable(f"{folder.name}/{file.relative_to(folder)}", pq.read_table(file)))
    return _join_files(parts, folder.name)


def _join_files(parts: Sequence[FileTable], name: str) -> tuple[Any, Mapping[str, str]]:
    """The tables of the files as one, and one file for each column that not every file has."""
    lacking: dict[str, str] = {}
    every = list(dict.fromkeys(c for part in parts for c in part.table.column_names))
    for part in parts:
        own = set(part.table.column_names)
        lacking |= {c: part.file for c in every if c not in own and c not in lacking}
    try:
        return pa.concat_tables([part.table for part in parts], promote_options="permissive"), lacking
    except pa.ArrowException as error:
        for part in parts[1:]:
            refuse_other_kinds(parts[0], part, every)
        raise InputError(f"the files of {name} do not have the same columns: {error}") from error


def join_tables(tables: Sequence[Any], name: str) -> Any:
    """Tables of one source, one below the other."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"the parts of {name} do not have the same columns: {error}") from error


def refuse_lacking(columns: Sequence[str], lacking: Mapping[str, str]) -> None:
    """Raise an error that names the file if one lacks a column that is to be read."""
    for column in columns:
        if column in lacking:
            raise InputError(
                f"{lacking[column]} has no column {column!r}, which other files have; "
                "add it there, or drop it from all (drop=)"
            )


def refuse_other_kinds(first: FileTable, other: FileTable, columns: Sequence[str]) -> None:
    """Raise an error that names file and column if a column holds another kind of values than in the first file."""
    for column in columns:
        found = [
            _kind_in_words(p.table.schema.field(column).type) for p in (first, other) if column in p.table.column_names
        ]
        if len(found) == 2 and None not in found and found[0] != found[1]:
            raise InputError(
                f"column {column!r} holds {found[1]} in {other.file} and {found[0]} in {first.file}, so the files do "
                "not have the same columns; write it alike in all"
            )


def _kind_in_words(kind: Any) -> str | None:
    """What a column holds; None if it is empty."""
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if kinds.is_null(kind):
        return None
    names = {"numbers": is_number, "text": is_text, "dates": is_date, "true and false": kinds.is_boolean}
    return next((name for name, holds in names.items() if holds(kind)), "lists" if kinds.is_nested(kind) else str(kind))


# ---- pieces of a large table


class Pieces(NamedTuple):
    """The names of the columns (none for a csv without a header), and the pieces, one after another."""

    columns: tuple[str, ...]
    each: Iterator[TableSource]


def pieces_of(path: Path, asked: TextForm, before: TextForm = OPEN, columns: Sequence[str] = ()) -> Pieces | None:
    """The pieces of a file or folder; None if it is small, or of a format that is not cut."""
    files = [path] if path.is_file() else parquet_files(path) or csv_files(path)
    if sum(file.stat().st_size for file in files) < LARGE or len({suffix_of(f, asked) for f in files}) != 1:
        return None
    suffix = suffix_of(files[0], asked)
    if suffix == ".parquet":
        return _pieces_of_parquet(path, files)
    return _pieces_of_text(files, asked, before, columns) if suffix.removesuffix(".gz") in _TEXT else None


def pieces_of_csv(
    file: Path, asked: TextForm, before: TextForm = OPEN, columns: Sequence[str] = ()
) -> Iterator[TableSource]:
    """The pieces of one csv of any size; a single piece if its encoding does not let it be cut."""
    found = _pieces_of_text([file], asked, before, columns)
    return iter([table_source(file, asked)]) if found is None else found.each


def _pieces_of_parquet(path: Path, files: list[Path]) -> Pieces | None:
    if any("=" in str(file.relative_to(path).parent) for file in files if path.is_dir()):
        return None  # sub-folders such as year=2024 are columns

    def each() -> Iterator[TableSource]:
        for file in files:
            with readable(f"{file.parent.name}/{file.name}"), pq.ParquetFile(file) as opened:
                for batch in opened.iter_batches(PIECE_ROWS):
                    yield TableSource(file.name, pa.Table.from_batches([batch]), ".parquet")

    with readable(files[0].name):
        return Pieces(tuple(pq.read_schema(files[0]).names), each())


def _pieces_of_text(files: list[Path], asked: TextForm, before: TextForm, columns: Sequence[str]) -> Pieces | None:
    with readable(files[0].name):
        found = text_pieces(files, TableRequest(asked=asked, before=before, columns=columns))
    if found is None:
        return None

    def each() -> Iterator[TableSource]:
        for file in files:
            with readable(f"{file.parent.name}/{file.name}"):
                for content in found.of_file(file):
                    yield TableSource(file.name, content, ".csv")

    return Pieces(found.columns, each())


# ---- unpacking


def gunzipped(packed: bytes | Path, name: str) -> bytes:
    """The content of a gzip file."""
    size = len(packed) if isinstance(packed, bytes) else packed.stat().st_size
    blocks, total = [], 0
    try:
        with gzip.open(packed if isinstance(packed, Path) else io.BytesIO(packed)) as file:
            while block := file.read(HEAD):
                blocks.append(block)
                total += len(block)
                refuse_bomb(size, total, name)
    except (EOFError, OSError, zlib.error) as error:  # EOFError would read as Ctrl-D further out
        raise InputError(
            f"{name} cannot be read as gzip: {error or 'it ends too early'}; pack it again, or give it unpacked"
        ) from error
    return b"".join(blocks)


def refuse_bomb(packed: int, unpacked: int, name: str) -> None:
    """Raise an error if a file unpacks to far more bytes than a file of data would."""
    if unpacked > LARGE_ARCHIVE and unpacked > _TIMES_PACKED * max(packed, 1):
        raise InputError(
            f"{name} has {packed:,} bytes and unpacks to {unpacked:,} or more, over {_TIMES_PACKED} times as many, as "
            "no file of data does; unpack it yourself, if you trust it, and give that"
        )
