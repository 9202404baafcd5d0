"""Files as pyarrow tables: csv and tsv, JSON (lines or a list), parquet, folders of these, stdin; gzipped or not.

csv_files.py reads csv, and whole_files.py Excel, ARFF, Feather and SQLite.

A TableSource is a table that has not been read yet. `open_table` reads it. `parquet_batches` and `csv_pieces` divide a
large file into sources that fit in memory: record batches, or consecutive lines.
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
from kway.memory import expands_too_much, rows_per_block
from kway.suggest import listing
from kway.tables.read_options import UNKNOWN_FORM, TextForm
from kway.tables.sources import csv_files
from kway.tables.sources.csv_files import LoadedTable, read_csv, read_pieces
from kway.tables.sources.frames import (
    as_table,
    holds_text,
    is_date,
    is_number,
    is_text,
    plain_types,
    whole_column,
)
from kway.tables.sources.text_form import EVERYTHING, HEAD, TableRequest, is_delimited
from kway.tables.sources.whole_files import READERS, read_whole_file

STDIN = "-"
LARGE = 4 * csv_files.PIECE_BYTES  # bytes from which a file or folder is read in pieces
_TEXT = (".csv", ".tsv", ".tab")
_LINES = (".jsonl", ".ndjson", ".json")
_SVM = (".svm", ".libsvm")
_GZIPPED = tuple(s + gz for s in (*_TEXT, *_LINES, *_SVM) for gz in ("", ".gz"))  # formats that may be compressed
FILE_SUFFIXES = (*_GZIPPED[:2], ".parquet", ".npz", ".npy", *READERS, *_GZIPPED[2:])  # as messages list them
_IMAGE = re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP|II\*\0|MM\0\*", re.DOTALL)  # first bytes


class TableSource(NamedTuple):
    """A table to be read.

    Parameters
    ----------
    name : str
        Its name in messages.
    content : Path, bytes, pyarrow.Table or tuple of Path
        A file, its content, the table itself, or the csv files of a folder.
    suffix : str
        The suffix of its format; "" for a folder of parquet files.
    """

    name: str
    content: Any
    suffix: str

    @property
    def has_types(self) -> bool:
        """Whether the format stores types, so that the text "1" differs from the number 1."""
        return self.suffix not in _TEXT


def table_source(path: Path, form: TextForm = UNKNOWN_FORM) -> TableSource:
    """Return a file, folder or stdin ("-") as a source, decompressed; raise InputError if it is empty."""
    if str(path) == STDIN:
        if sys.stdin is None:  # closed by `<&-`
            raise InputError("stdin is closed; pipe a table into it, or name a file")
        name, content = "stdin", sys.stdin.buffer.read()
        suffix, empty = _suffix_of_bytes(content), not content.strip()
    elif path.is_dir():
        parts = () if parquet_files(path) else tuple(csv_folder_files(path))
        return TableSource(path.name, parts, ".csv") if parts else TableSource(path.name, path, "")
    else:
        name, content, suffix = path.name, path, suffix_of(path, form)
        empty = path.stat().st_size < HEAD and not path.read_bytes().strip()
    if empty:
        raise InputError(f"{name} cannot be read: it is empty; give a file with a header and rows")
    if suffix.endswith(".gz"):
        return TableSource(name, gunzipped(content, name), suffix.removesuffix(".gz"))
    return TableSource(name, content, suffix)


def suffix_of(path: Path, form: TextForm = UNKNOWN_FORM) -> str:
    """Return the suffix of the format of a file; raise InputError if it is unknown and no separator was given."""
    known = [s for s in FILE_SUFFIXES if path.name.lower().endswith(s)]
    if known:
        return max(known, key=len)
    if form.sep is not None or _is_table_of_text(path):
        return ".csv.gz" if path.name.lower().endswith(".gz") else ".csv"
    raise InputError(
        f"the format of {path.name} is not known; its name must end in {listing(FILE_SUFFIXES, 20)}, "
        "or give the column separator: sep="
    )


def _is_table_of_text(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_delimited(file.read(HEAD))


def _suffix_of_bytes(content: bytes) -> str:
    """Return the suffix of the format of the bytes of stdin."""
    if content.startswith(b"PAR1"):
        return ".parquet"
    if content.startswith(b"\x1f\x8b"):
        return ".csv.gz"
    if _IMAGE.match(content):
        raise InputError("stdin is an image, and only tables are read from stdin; name the image file instead of -")
    return ".jsonl" if re.match(rb"\s*(\[\s*)?\{", content.removeprefix(b"\xef\xbb\xbf")) else ".csv"


def parquet_files(folder: Path) -> list[Path]:
    """Return the parquet files of a folder and its sub-folders by name, without hidden and _temporary ones."""
    files = [p for p in sorted(folder.rglob("*.parquet")) if p.is_file()]
    return [p for p in files if not any(part.startswith((".", "_")) for part in p.relative_to(folder).parts)]


def csv_folder_files(folder: Path) -> list[Path]:
    """Return the csv and tsv files of a folder by name, without hidden ones."""
    endings = tuple(s + gz for s in _TEXT for gz in ("", ".gz"))
    files = (p for p in folder.glob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return sorted(p for p in files if p.name.lower().endswith(endings))


def list_files(path: Path) -> list[Path]:
    """Return the table files at a path: the file itself, or those of a folder."""
    return [path] if path.is_file() else parquet_files(path) or csv_folder_files(path)


@contextmanager
def readable(name: str) -> Iterator[None]:
    """Turn errors that reading a file raises into an InputError with its name."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{name} was deleted while it was being used; restore it and run again") from error
    except (pa.ArrowException, OSError, UnicodeError, EOFError, zlib.error) as error:
        why = str(error).splitlines()[0] if str(error) else "it ends too early"
        raise InputError(f"{name} cannot be read: {why}") from error


# ---- reading


def read_table(path: Path) -> Any:
    """Read a file or folder as a pyarrow table."""
    return open_table(table_source(path)).table


def open_table(source: TableSource, request: TableRequest = EVERYTHING) -> LoadedTable:
    """Read a source; `request` says which columns, and what is known about the text of a csv."""
    name, content, _ = source
    with readable(name):
        if isinstance(content, tuple):
            return _read_csv_folder(content, name, request)
        if source.suffix in _TEXT:
            return read_csv(content, name, request)
        if isinstance(content, Path) and source.suffix == "":
            table, missing_columns = _read_parquet_folder(content)
        else:
            table, missing_columns = _read_with_types(source, request.form), {}
        table = plain_types(table)
    selected = table if request.columns is None else table.select(list(request.columns))
    return LoadedTable(selected, missing_columns=missing_columns)


def _read_with_types(source: TableSource, form: TextForm) -> Any:
    content = source.content
    if isinstance(content, pa.Table):
        return content
    if source.suffix in READERS:
        return read_whole_file(content, source.suffix, form)
    if source.suffix in _LINES:
        return read_json(content if isinstance(content, bytes) else content.read_bytes(), source.name)
    if isinstance(content, Path):
        refuse_parquet_bomb(content)
    return pq.read_table(pa.BufferReader(content) if isinstance(content, bytes) else content)


def read_json(content: bytes, name: str) -> Any:
    """Read one JSON object per line, or a list of objects; keys are columns, in the order of their first appearance."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    if content.lstrip().startswith(b"["):
        rows = _json_value(content, name)
        other = next((row for row in rows if not isinstance(row, dict)), None)
        if other is not None:
            raise InputError(f"{name} is a list that contains {other!r:.60}; write a list of objects, one per row")
        return as_table(rows or {}, name)
    rows = []
    for i, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        row = _json_value(line, f"line {i} of {name}")
        if not isinstance(row, dict):
            raise InputError(f"line {i} of {name} is a JSON {type(row).__name__}; write one JSON object per line")
        rows.append(row)
    return as_table(rows or {}, name)


def _json_value(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{where} is not JSON ({error}); write one JSON object per line, or a list of objects"
        ) from error


# ---- folders


class FileTable(NamedTuple):
    """The table of one file, or of a piece of it, and the file's name in messages."""

    file: str
    table: Any


def _read_csv_folder(files: Sequence[Path], name: str, request: TableRequest) -> LoadedTable:
    """Read all files as one table, each in the form of the first; only the notes on the first file are kept."""
    first: LoadedTable | None = None
    parts, left_out = list[FileTable](), list[str]()
    for file in files:
        loaded = read_csv(table_source(file).content, f"{name}/{file.name}", request)
        parts.append(FileTable(f"{name}/{file.name}", loaded.table))
        left_out += [f"{file.name}: {note}" for note in loaded.left_out]
        if first is None:
            first = loaded
            text_columns = [*request.text_columns, *loaded.codes]
            request = request._replace(form=loaded.form, text_columns=text_columns, find_codes=False)
    assert first is not None
    table, missing_columns = _join_files(parts, name)
    return LoadedTable(table, first.form, first.notes, tuple(left_out), first.codes, missing_columns)


def _read_parquet_folder(folder: Path) -> tuple[Any, Mapping[str, str]]:
    """Read all files as one table in the order of their names; sub-folders such as year=2024 become columns."""
    parts = []
    for file in parquet_files(folder):
        with readable(file.name):
            refuse_parquet_bomb(file)
            parts.append(FileTable(f"{folder.name}/{file.relative_to(folder)}", pq.read_table(file)))
    return _join_files(parts, folder.name)


def _join_files(parts: Sequence[FileTable], name: str) -> tuple[Any, Mapping[str, str]]:
    """Return the tables of the files as one, and for each column that some file lacks the name of such a file."""
    missing_columns: dict[str, str] = {}
    names = list(dict.fromkeys(c for part in parts for c in part.table.column_names))
    for part in parts:
        present = set(part.table.column_names)
        missing_columns |= {c: part.file for c in names if c not in present and c not in missing_columns}
        refuse_other_kinds(parts[0], part, names)
    return join_tables([part.table for part in parts], name), missing_columns


def join_tables(tables: Sequence[Any], name: str) -> Any:
    """Concatenate the tables of one source."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"the parts of {name} do not have the same columns: {error}") from error


def refuse_missing_columns(columns: Sequence[str], missing_columns: Mapping[str, str]) -> None:
    """Raise InputError if a file lacks one of `columns`; `missing_columns` maps columns to files without them."""
    for column in columns:
        if column in missing_columns:
            raise InputError(
                f"{missing_columns[column]} has no column {column!r}, which other files have; "
                "add it to this file, or drop it from all files (drop=)"
            )


def refuse_other_kinds(first: FileTable, other: FileTable, columns: Sequence[str]) -> None:
    """Raise InputError if a column has values of another kind than in the first file."""
    for column in columns:
        if not all(column in part.table.column_names for part in (first, other)):
            continue
        kind = _kind_in_words(first.table.schema.field(column).type)
        other_kind = _kind_in_words(other.table.schema.field(column).type)
        if kind and other_kind and kind != other_kind:
            raise InputError(
                f"column {column!r} has {other_kind} in {other.file} and {kind} in {first.file}, so the files do "
                "not have the same columns; give it the same kind of values in all files"
            )


def _kind_in_words(kind: Any) -> str | None:
    """Return the kind of values of a column in words; None if it is empty."""
    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if kinds.is_null(kind):
        return None
    names = {"numbers": is_number, "text": is_text, "dates": is_date, "true and false": kinds.is_boolean}
    return next((name for name, holds in names.items() if holds(kind)), "lists" if kinds.is_nested(kind) else str(kind))


# ---- pieces of a large table


def is_large(path: Path, form: TextForm = UNKNOWN_FORM) -> bool:
    """Return whether a file or folder is read in pieces, because it is large and of a format that can be divided."""
    files = list_files(path)
    if sum(file.stat().st_size for file in files) < LARGE:
        return False
    suffixes = {suffix_of(file, form) for file in files}
    return len(suffixes) == 1 and suffixes.pop().removesuffix(".gz") in (".parquet", *_TEXT)


def csv_pieces(file: Path, request: TableRequest) -> Iterator[TableSource]:
    """Yield the rows of a csv in pieces, or the whole file if its encoding does not allow dividing it."""
    with readable(f"{file.parent.name}/{file.name}"):
        for piece in read_pieces(file, request):
            yield table_source(file, request.form) if piece is file else TableSource(file.name, piece, ".csv")


def parquet_batches(file: Path, groups: Sequence[int] | None = None) -> Iterator[TableSource]:
    """Yield the rows of a parquet file, or of these row groups, in batches of about PIECE_BYTES."""
    with readable(f"{file.parent.name}/{file.name}"), pq.ParquetFile(file) as opened:
        metadata = opened.metadata
        stored = sum(metadata.row_group(g).total_byte_size for g in range(metadata.num_row_groups))
        # stored dictionaries take less memory than their values, so 8 bytes per value are the least
        row_bytes = max(8 * metadata.num_columns, stored / max(1, metadata.num_rows))
        for batch in opened.iter_batches(rows_per_block(row_bytes, csv_files.PIECE_BYTES), row_groups=groups):
            yield TableSource(file.name, pa.Table.from_batches([batch]), ".parquet")


# ---- unpacking


def gunzipped(packed: bytes | Path, name: str) -> bytes:
    """Return the content of a gzip file."""
    size = len(packed) if isinstance(packed, bytes) else packed.stat().st_size
    blocks, total = [], 0
    try:
        with gzip.open(packed if isinstance(packed, Path) else io.BytesIO(packed)) as file:
            while block := file.read(HEAD):
                blocks.append(block)
                total += len(block)
                refuse_bomb(size, total, name)
    except (EOFError, OSError, zlib.error) as error:  # typer would take an EOFError for Ctrl-D
        raise InputError(
            f"{name} cannot be read as gzip: {error or 'it ends too early'}; compress it again, or give it uncompressed"
        ) from error
    return b"".join(blocks)


def refuse_parquet_bomb(file: Path, sample: int = 16) -> None:
    """Raise InputError if the text of a parquet file takes far more memory than the file, judged by its first rows.

    A parquet file stores a text that occurs in many rows once.
    """
    with pq.ParquetFile(file) as opened:
        first = next(opened.iter_batches(sample), None)
        if first is None:
            return
        texts = [whole_column(column) for column in first.columns if holds_text(column)]
        per_row = sum(column.nbytes for column in texts) / max(1, first.num_rows)
        refuse_bomb(file.stat().st_size, round(per_row * opened.metadata.num_rows), file.name)


def refuse_bomb(packed: int, unpacked: int, name: str) -> None:
    """Raise InputError if a compressed file has far more content than data files of its size have."""
    if expands_too_much(packed, unpacked):
        raise InputError(
            f"{name} has {packed:,} bytes and {unpacked:,} bytes or more after decompression, far more than a data "
            "file of this size has; if you trust it, decompress it yourself and give the result"
        )
