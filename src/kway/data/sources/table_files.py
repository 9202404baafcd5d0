"""Files as pyarrow tables: csv, tsv, JSON (lines or a list), gzipped or not, parquet, a folder of them; stdin."""

from __future__ import annotations

import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from kway.data.sources.delimited import OpenedTable, TextWishes, read_delimited, read_json_lines
from kway.data.sources.file_columns import FileTable, joined_files
from kway.data.sources.text_form import HEAD, OPEN, TextForm, is_delimited
from kway.data.sources.unpacking import gunzipped
from kway.data.suggest import listing
from kway.errors import InputError

STDIN = "-"
_TEXT = (".csv", ".tsv", ".tab")
_LINES = (".jsonl", ".ndjson", ".json")
_SVM = (".svm", ".libsvm")
_PACKED = tuple(s + gz for s in (*_TEXT, *_LINES, *_SVM) for gz in ("", ".gz"))
FILE_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz", ".npy", *(s for s in _PACKED if not s.startswith(".csv")))

_IMAGE = re.compile(rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP|II\*\0|MM\0\*", re.DOTALL)  # how their files begin


def suffix_of(path: Path, asked: TextForm = OPEN) -> str:
    """The ending that says how to read the file; an unknown one is an error, unless a separator was said."""
    known = [s for s in FILE_SUFFIXES if path.name.lower().endswith(s)]
    if known:
        return max(known, key=len)
    if asked.sep is not None or _reads_as_table(path):
        return ".csv.gz" if path.name.lower().endswith(".gz") else ".csv"
    raise InputError(
        f"cannot tell the format of {path.name}; its name must end in {listing(FILE_SUFFIXES, 20)}, "
        "or say how its columns are separated: --sep"
    )


def _reads_as_table(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_delimited(file.read(HEAD))


class TableSource(NamedTuple):
    """A table still to be read: its name in messages, where it lies or its unpacked bytes, and its ending."""

    name: str
    content: Any  # a path, bytes, the table itself, or the files of a folder (a tuple)
    suffix: str  # "" is a folder of parquet files

    @property
    def typed(self) -> bool:
        """Whether it says itself what is text and what is a number."""
        return self.suffix not in _TEXT


def table_source(path: Path, asked: TextForm = OPEN) -> TableSource:
    """The file, folder or stdin ("-"), unpacked where it is packed; an empty one is an error."""
    if str(path) == STDIN:
        if sys.stdin is None:  # as `<&-` leaves it
            raise InputError("stdin is closed; pipe a table into it, or name a file")
        name, content = "stdin", sys.stdin.buffer.read()
        suffix, empty = _suffix_of_bytes(content), not content.strip()
    elif path.is_dir():
        parts = () if parquet_files(path) else tuple(csv_files(path))
        return TableSource(path.name, parts, ".csv") if parts else TableSource(path.name, path, "")
    else:
        name, content, suffix, empty = path.name, path, suffix_of(path, asked), _is_blank(path)
    if empty:
        raise InputError(f"{name} cannot be read: it is empty; give a file with a header and rows")
    if suffix.endswith(".gz"):
        return TableSource(name, gunzipped(content, name), suffix.removesuffix(".gz"))
    return TableSource(name, content, suffix)


def _is_blank(path: Path) -> bool:
    """Whether a file holds nothing but blanks and line ends."""
    return path.stat().st_size < HEAD and not path.read_bytes().strip()


@contextmanager
def readable(name: str) -> Iterator[None]:
    """What is read from a file called so, inside; one that is broken, or gone, is said to be."""
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{name} is gone, and was there when the work began; put it back") from error
    except (pa.ArrowException, OSError, UnicodeError, EOFError, zlib.error) as error:  # EOFError would read as Ctrl-D
        why = str(error).splitlines()[0] if str(error) else "it ends too early"
        raise InputError(f"{name} cannot be read: {why}") from error


def joined_tables(tables: Sequence[Any], name: str) -> Any:
    """Tables of one source, one below the other."""
    import pyarrow as pa

    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"the parts of {name} do not have the same columns: {error}") from error


def read_table(path: Path, words: Sequence[str] = ()) -> Any:
    """The file, or folder of parquet files, as a pyarrow table; the columns `words` of a csv as they are written."""
    return open_table(table_source(path), words).table


def open_table(
    source: TableSource, words: Sequence[str] = (), asked: TextForm = OPEN, before: TextForm = OPEN,
    columns: Sequence[str] = (), only: Sequence[str] | None = None, skip_bad: bool = False,
) -> OpenedTable:  # fmt: skip
    """The table and the form that text was read by; TextWishes says what the arguments are."""
    wishes = TextWishes(words, asked, before, columns, only, skip_bad)
    name, content, _ = source
    with readable(name):
        if isinstance(content, tuple):
            return _joined_text(content, name, wishes)
        if source.suffix in _TEXT:
            return read_delimited(content, name, wishes)
        if isinstance(content, Path) and source.suffix == "":
            return _read_folder(content, only)
        table = _typed_table(source)
    return OpenedTable(table if only is None else table.select(list(only)))


def parquet_files(folder: Path) -> list[Path]:
    """Parquet files of a folder and its sub-folders, by name; hidden and _temporary ones left out."""
    inside = [p for p in sorted(folder.rglob("*.parquet")) if p.is_file()]
    return [p for p in inside if not any(part.startswith((".", "_")) for part in p.relative_to(folder).parts)]


def csv_files(folder: Path) -> list[Path]:
    """csv and tsv files of a folder, by name; hidden ones left out."""
    endings = tuple(s + gz for s in _TEXT for gz in ("", ".gz"))
    inside = (p for p in folder.glob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return sorted(p for p in inside if p.name.lower().endswith(endings))


def _suffix_of_bytes(content: bytes) -> str:
    """What stdin holds, by how it begins."""
    if content.startswith(b"PAR1"):
        return ".parquet"
    if content.startswith(b"\x1f\x8b"):
        return ".csv.gz"
    if _IMAGE.match(content):
        raise InputError(
            "stdin holds an image, and only tables are read from there; name the image's file in place of -"
        )
    return ".jsonl" if re.match(rb"\s*(\[\s*)?\{", content.removeprefix(b"\xef\xbb\xbf")) else ".csv"


def _typed_table(source: TableSource) -> Any:
    import pyarrow as pa
    import pyarrow.parquet

    content = source.content
    if isinstance(content, pa.Table):
        return content
    if source.suffix in _LINES:
        return read_json_lines(content if isinstance(content, bytes) else content.read_bytes(), source.name)
    return pyarrow.parquet.read_table(pa.BufferReader(content) if isinstance(content, bytes) else content)


def _joined_text(files: Sequence[Path], name: str, wishes: TextWishes) -> OpenedTable:
    """One table of all files, each read in the form of the first; notes are those of the first."""
    found: list[OpenedTable] = []
    for file in files:
        found.append(read_delimited(table_source(file).content, f"{name}/{file.name}", wishes))
        wishes = wishes._replace(asked=found[0].form)
    parts = [FileTable(f"{name}/{file.name}", part.table) for file, part in zip(files, found)]
    table, lacking = joined_files(parts, name)
    return OpenedTable(table, found[0].form, found[0].notes, lacking)


def _read_folder(folder: Path, only: Sequence[str] | None) -> OpenedTable:
    """One table of all files, in the order of their names; sub-folders such as year=2024 become columns."""
    import pyarrow.parquet

    parts = []
    for file in parquet_files(folder):
        with readable(file.name):
            parts.append(FileTable(f"{folder.name}/{file.relative_to(folder)}", pyarrow.parquet.read_table(file)))
    table, lacking = joined_files(parts, folder.name)
    return OpenedTable(table if only is None else table.select(list(only)), lacking=lacking)
