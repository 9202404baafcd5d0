"""csv and other delimited text -> pyarrow Table.

pyarrow reads the file and finds the types of the columns. The file is read a second time if later rows require it:

    bytes that are not UTF-8       read again as cp1252
    a value of another type        read again in one block, so that all rows decide the types
    a cell of more than a block    read again in one block
    numbers with a decimal comma   read again with that mark
    codes such as 0052             read again with these columns as text, so that they keep their zeros

A large file is read in pieces that end between rows (`read_pieces`).
"""

from __future__ import annotations

import gzip
import io
import re
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.csv

from kway.errors import InputError
from kway.memory import BLOCK_BYTES
from kway.tables.read_options import UNKNOWN_FORM, TextForm
from kway.tables.sources.frames import refuse_repeated
from kway.tables.sources.text_form import (
    HEAD,
    CsvRow,
    FileForm,
    csv_rows,
    encoding_note,
    find_form,
    head_text,
    is_separator_line,
    not_utf8,
    plain_names,
)
from kway.tables.sources.values import are_codes, are_dotted_thousands, needs_comma, present, trimmed
from kway.text_tables import count

PIECE_BYTES = BLOCK_BYTES // 2  # bytes of a piece of a large file: it is held as text and as a table
_RELEASED = 5.0  # seconds to wait until Arrow's threads have released a handler; it takes microseconds (tests/tables)
_WHOLE_FILE = np.iinfo(np.int32).max  # bytes per block, the largest value that pyarrow accepts
_ONE_BYTE_LINE_ENDS = ("utf-8", "utf-8-sig", "ascii", "latin-1", "iso8859-1", "cp1252")
_LEADING_ZERO = re.compile(r"\s*0[0-9]+\s*$")


class TableRequest(NamedTuple):
    """Which columns of a table to read, and what is known about its text.

    words: columns of a csv that stay text, so that the label 007 does not become 7; asked: the form that the user gave;
    before: the form of earlier rows; columns: names that the header contains if there is one; only: the columns to
    return; skip_bad: leave out rows with more or fewer cells than the first; find_codes: keep codes as text.
    """

    words: Sequence[str] = ()
    asked: TextForm = UNKNOWN_FORM
    before: TextForm = UNKNOWN_FORM
    columns: Sequence[str] = ()
    only: Sequence[str] | None = None
    skip_bad: bool = False
    find_codes: bool = False


class LoadedTable(NamedTuple):
    """A table, the form of its text (UNKNOWN_FORM for formats with types), how it was read, and what was left out.

    codes: columns of a csv that stayed text because they are codes; lacking: for a folder, the columns that some file
    does not have, each with the name of such a file.
    """

    table: Any
    form: TextForm = UNKNOWN_FORM
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    codes: Sequence[str] = ()
    lacking: Mapping[str, str] = MappingProxyType({})


EVERYTHING = TableRequest()


def read_csv(content: Path | bytes, name: str, request: TableRequest) -> LoadedTable:
    """Read a csv."""
    found = find_form(head_of(content), name, request.asked, request.before, request.columns)
    file, form, notes = _CsvFile(content, name, found, request.skip_bad), found.form, found.notes
    words = list(request.words)
    table = file.parse(form, words, request.only)
    for encoding in (not_utf8(request.before), "latin-1"):  # latin-1 decodes every byte
        if table is None:
            form = replace(form, encoding=encoding)
            table = file.parse(form, words, request.only)
    if table is None:
        raise InputError(f"{name} is not text in UTF-8, cp1252 or latin-1; give its encoding with encoding=")
    if form.encoding != found.form.encoding:
        notes = (*notes, encoding_note(str(form.encoding)))
    refuse_repeated(table.column_names, name)
    if form.decimal is None:
        form = replace(form, decimal="," if needs_comma(table, tuple(words)) else ".")
        if form.decimal == ",":
            notes = (*notes, "numbers have a decimal comma (decimal='.' to change it)")
            table = file.parse_again(form, words, request.only)
        elif form.sep == ";":  # usual with a decimal comma
            notes = (*notes, *map(_thousands_note, _dotted_columns(table, file, form)))
    codes = _code_columns(table, file, form) if request.find_codes else []
    if codes:
        table = file.parse_again(form, [*words, *codes], request.only)
    left_out = (_ragged_note(len(file.bad)),) if file.bad else ()
    return LoadedTable(table, form, notes, left_out, codes)


def head_of(content: Path | bytes) -> bytes:
    """Return the first bytes of a file or of its content."""
    if isinstance(content, bytes):
        return content[:HEAD]
    with content.open("rb") as file:
        return file.read(HEAD)


class _CsvFile:
    """A csv with a known separator and header. `bad` are the ragged rows of the last parse."""

    def __init__(self, content: Path | bytes, name: str, found: FileForm, skip_bad: bool) -> None:
        self.content, self.name, self.found, self.skip_bad = content, name, found, skip_bad
        self.bad: list[Any] = []

    def parse(self, form: TextForm, words: Sequence[str], only: Sequence[str] | None) -> Any | None:
        """Return the table; None if the file is not in this encoding."""
        try:
            table = self._read(form, words, only)
        except UnicodeDecodeError:
            return None
        except pa.ArrowInvalid as error:
            if "invalid UTF8" in str(error):
                return None
            if self.bad:
                raise ragged_error(self.content, form, self.found, self.name) from error
            if not any(part in str(error) for part in ("conversion error", "straddling", "Empty CSV", "block size")):
                raise
            table = self._read(form, words, only, block_size=_WHOLE_FILE)  # types from all rows
        return None if any(pa.types.is_binary(field.type) for field in table.schema) else table

    def parse_again(self, form: TextForm, words: Sequence[str], only: Sequence[str] | None) -> Any:
        """Return the table; raise InputError if the file is not in this encoding."""
        table = self.parse(form, words, only)
        if table is None:
            raise InputError(f"{self.name} is not {form.encoding} text; give its encoding with encoding=")
        return table

    def _read(self, form: TextForm, words: Sequence[str], only: Sequence[str] | None, **options: Any) -> Any:
        self.bad = []

        def handle(row: Any) -> str:
            self.bad.append(row)
            return "skip" if self.skip_bad else "error"

        encoding = "utf8" if form.encoding == "utf-8" else form.encoding
        reading = pa.csv.ReadOptions(encoding=encoding, skip_rows=self.found.skipped, **options)
        if not form.header:
            reading.column_names = plain_names(len(self.found.first))
        parsing = pa.csv.ParseOptions(delimiter=form.sep, newlines_in_values=True, invalid_row_handler=handle)
        released: SimpleQueue[Any] = SimpleQueue()
        watch = weakref.ref(handle, released.put)
        try:
            return pa.csv.read_csv(
                pa.BufferReader(self.content) if isinstance(self.content, bytes) else self.content,
                read_options=reading,
                parse_options=parsing,
                convert_options=pa.csv.ConvertOptions(
                    column_types={c: pa.string() for c in words},
                    decimal_point=form.decimal or ".",
                    include_columns=only,
                ),
            )
        finally:
            del handle, parsing
            if watch() is not None:  # a thread of Arrow still has it, and would abort a process that ends now
                with suppress(Empty):
                    released.get(timeout=_RELEASED)


# ---- columns that are read again


def _dotted_columns(table: Any, file: _CsvFile, form: TextForm) -> list[str]:
    """Return the columns read as fractions that may be whole numbers with dots between thousands."""
    fractions = [c for c in table.column_names if _in_thousandths(table.column(c))]
    if not fractions:
        return []
    words = file.parse_again(form, fractions, fractions)
    return [c for c in fractions if are_dotted_thousands(present(trimmed(words.column(c))))]


def _in_thousandths(column: Any) -> bool:
    """Return whether a column has fractions, each with at most three digits."""
    if str(column.type) != "double":
        return False
    values = np.asarray(column.drop_null().to_numpy())
    thousandths = 1000 * values[values != np.floor(values)]
    return thousandths.size > 0 and np.allclose(thousandths, np.round(thousandths), rtol=0, atol=1e-6)


def _thousands_note(column: str) -> str:
    return (
        f"column {column!r} has three digits after every dot, read as decimals (decimal=',' if the dots separate "
        "thousands)"
    )


def _code_columns(table: Any, file: _CsvFile, form: TextForm) -> list[str]:
    """Return the columns of whole numbers that are written as codes such as 0052.

    Only columns with a leading zero in the first rows are read again.
    """
    whole = {c for c in table.column_names if str(table.schema.field(c).type) == "int64"}
    rows = head_rows(file.content, form, len(table.column_names)) if whole else ()
    padded = {c for row in rows for c, cell in zip(table.column_names, row) if c in whole and _LEADING_ZERO.match(cell)}
    maybe = [c for c in table.column_names if c in padded]
    words = file.parse_again(form, maybe, maybe) if maybe else None
    return [c for c in maybe if words is not None and are_codes(present(trimmed(words.column(c))))]


def head_rows(content: Path | bytes, form: TextForm, width: int) -> Iterator[list[str]]:
    """Yield the rows of `width` cells among the first bytes as text, without the header."""
    head = head_of(content)
    lines = io.StringIO(head_text(head, str(form.encoding)), newline="")
    skipped = (form.skip_rows or 0) + int(is_separator_line(head))
    for _, cells in islice(csv_rows(lines, str(form.sep), skipped), int(bool(form.header)), None):
        if len(cells) == width:
            yield cells


def first_words(content: Path | bytes, form: TextForm, columns: Sequence[str]) -> dict[str, str]:
    """Return the first word of each column as it is written, such as 2.180e+02."""
    found: dict[str, str] = {}
    for row in head_rows(content, form, len(columns)):
        found |= {c: cell.strip() for c, cell in zip(columns, row) if c not in found and cell.strip()}
    return found


# ---- rows with more or fewer cells than the first


def ragged_error(content: Path | bytes, form: TextForm, found: FileForm, name: str) -> InputError:
    """Return the error for the first row whose number of cells differs from that of the first row, with advice."""
    sep, first = str(form.sep), found.first
    with _open_text(content, str(form.encoding)) as text:
        rows = csv_rows(text, sep, found.skipped)
        line, cells = next((row for row in rows if len(row.cells) != len(first)), CsvRow(0, []))
    counts = f"line {line:,} has {count(len(cells), 'cell')}, but the first row has {len(first):,}"
    problem = f"{name} cannot be read: {counts}: {_short(sep.join(cells))}"
    if first[0].startswith("#"):
        return InputError(f"{problem}; remove lines that are not rows, such as the first: {_short(sep.join(first))}")
    if cells and cells[0].startswith("#"):
        advice = "remove comment lines"
    elif len(cells) > len(first):
        advice = f'put quotes around cells that contain {sep!r} ("a{sep} b"), or give the separator with sep='
    else:
        advice = "complete the row, remove lines that are not rows, or give the separator with sep="
    return InputError(f"{problem}; {advice}; skip_bad=True leaves such lines out")


def _ragged_note(rows: int) -> str:
    return f"{count(rows, 'line')} with more or fewer cells than the first row left out (skip_bad=True)"


def _short(row: str) -> str:
    return repr(row if len(row) <= 60 else f"{row[:60]}...")


def _open_text(content: Path | bytes, encoding: str) -> TextIO:
    if isinstance(content, Path):
        return content.open(encoding=encoding, errors="replace", newline="")
    return io.TextIOWrapper(io.BytesIO(content), encoding=encoding, errors="replace", newline="")


# ---- pieces of a large file


def read_pieces(file: Path, request: TableRequest) -> Iterator[Path | bytes]:
    """Yield pieces of about PIECE_BYTES that end between rows, each with the header.

    The file itself is yielded if a line end has several bytes in its encoding.
    """
    with _open_bytes(file) as opened:
        form = find_form(opened.read(HEAD), file.name, request.asked, request.before, request.columns).form
        if str(form.encoding).lower() not in _ONE_BYTE_LINE_ENDS:
            yield file
            return
        opened.seek(0)
        above = b"".join(opened.readline() for _ in range(form.skip_rows or 0))
        line = opened.readline()
        if not line:
            raise OSError("it is empty")
        if not is_separator_line(line):
            opened.seek(len(above))
        first, left = above + (opened.readline() if form.header else b""), b""
        while more := opened.read(PIECE_BYTES):
            left += more
            end = _last_row_end(left)
            if end:
                yield first + left[:end]
                left = left[end:]
        if left.strip():
            yield first + left


def _open_bytes(file: Path) -> BinaryIO:
    return gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb")  # type: ignore[return-value]


def _last_row_end(text: bytes) -> int:
    """Return the position after the last line end outside quotes; 0 if there is none."""
    end = text.rfind(b"\n") + 1
    quotes = text.count(b'"', 0, end)
    while end and quotes % 2:
        earlier = text.rfind(b"\n", 0, end - 1) + 1
        quotes -= text.count(b'"', earlier, end)
        end = earlier
    return end
