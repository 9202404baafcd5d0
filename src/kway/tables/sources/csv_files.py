"""csv and other delimited text -> pyarrow Table.

pyarrow reads the file and finds the types of the columns. The file is read again if the first pass shows that it is
needed:

    bytes that are not UTF-8       read as cp1252, then as latin-1, unless the user gave the encoding
    a value of another type        read in one block, so that all rows decide the types
    a cell longer than a block     read in one block
    numbers with a decimal comma   read with that mark
    codes such as 0052             read with these columns as text, so that they keep their zeros

A large file is read in pieces that end between rows (`read_pieces`).
"""

from __future__ import annotations

import csv
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
from kway.suggest import listing
from kway.tables.read_options import UNKNOWN_FORM, TextForm
from kway.tables.sources.frames import refuse_repeated
from kway.tables.sources.text_form import (
    HEAD,
    CsvRow,
    FileForm,
    TableRequest,
    csv_rows,
    encoding_note,
    fallback_encodings,
    find_form,
    head_text,
    is_separator_line,
    plain_names,
)
from kway.tables.sources.values import are_codes, are_dotted_thousands, needs_comma, present, trimmed
from kway.text_tables import count

PIECE_BYTES = BLOCK_BYTES // 2  # bytes of a piece of a large file: it is in memory as text and as a table
_WHOLE_FILE = np.iinfo(np.int32).max  # bytes per block, the largest value that pyarrow accepts
_HANDLER_TIMEOUT = 5.0  # seconds to wait for Arrow's threads to release the row handler; it takes microseconds
_ONE_BYTE_LINE_ENDS = ("utf-8", "utf-8-sig", "ascii", "latin-1", "iso8859-1", "cp1252")
_LEADING_ZERO = re.compile(r"\s*0[0-9]+\s*$")


class LoadedTable(NamedTuple):
    """A table as it was read.

    Parameters
    ----------
    table : pyarrow.Table
        The columns.
    form : TextForm
        The form of the text; UNKNOWN_FORM for formats that store types.
    notes, left_out : tuple of str
        How the file was read, and which rows were left out.
    codes : sequence of str
        Columns of a csv that stayed text because they are codes.
    missing_columns : mapping of str to str
        For a folder: columns that some file does not have, each with the name of such a file.
    """

    table: Any
    form: TextForm = UNKNOWN_FORM
    notes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    codes: Sequence[str] = ()
    missing_columns: Mapping[str, str] = MappingProxyType({})


def read_csv(content: Path | bytes, name: str, request: TableRequest) -> LoadedTable:
    """Read a delimited file; read it again with another encoding or decimal mark, or with codes as text, if needed."""
    detected = find_form(head_of(content), name, request)
    file = _CsvFile(content, name, detected, request)
    form, table = file.decode()
    notes = detected.notes
    if form.encoding != detected.form.encoding:
        notes = (*notes, encoding_note(str(form.encoding)))
    refuse_repeated(table.column_names, name)
    if form.decimal is None:
        has_comma = needs_comma(table, request.text_columns)
        form = replace(form, decimal="," if has_comma else ".")
        if has_comma:
            notes = (*notes, "numbers have a decimal comma (decimal='.' to change it)")
            table = file.read(form)
        elif form.sep == ";":  # usual with a decimal comma
            notes = (*notes, *map(_thousands_note, _dotted_columns(table, file, form)))
    codes = _code_columns(table, file, form) if request.find_codes else []
    if codes:
        table = file.read(form, text_columns=[*request.text_columns, *codes])
    left_out = f"{count(len(file.ragged), 'line')} with more or fewer cells than the first row left out (skip_bad=True)"
    return LoadedTable(table, form, notes, (left_out,) if file.ragged else (), codes)


def head_of(content: Path | bytes) -> bytes:
    """Return the first bytes of a file or of its content."""
    if isinstance(content, bytes):
        return content[:HEAD]
    with content.open("rb") as file:
        return file.read(HEAD)


class _CsvFile:
    """A csv with a known separator and header. `ragged` are the ragged rows of the last pass."""

    def __init__(self, content: Path | bytes, name: str, detected: FileForm, request: TableRequest) -> None:
        self.content, self.name = content, name
        self.detected, self.request = detected, request
        self.ragged: list[Any] = []

    def decode(self) -> tuple[TextForm, Any]:
        """Return the table in the detected encoding or the first fallback that fits, and the form with the encoding."""
        form = self.detected.form
        encodings = [form.encoding]
        if self.request.form.encoding is None:
            encodings += fallback_encodings(self.request.earlier_form)
        for encoding in dict.fromkeys(encodings):
            form = replace(form, encoding=encoding)
            table = self._try(form, self.request)
            if table is not None:
                return form, table
        raise InputError(f"{self.name} is not text in {listing(encodings)}; give its encoding with encoding=")

    def read(self, form: TextForm, **changes: Any) -> Any:
        """Return the table; `changes` replaces the text columns or the columns of the request."""
        table = self._try(form, self.request._replace(**changes))
        if table is None:
            raise InputError(f"{self.name} is not {form.encoding} text; give its encoding with encoding=")
        return table

    def _try(self, form: TextForm, request: TableRequest) -> Any | None:
        """Return the table; None if the file is not in this encoding.

        Arrow has one exception for all problems of a csv, so they are told apart by the beginning of its message.
        tests/tables/test_csv_rows.py has a file for each of these messages.
        """
        try:
            table = self._pass(form, request)
        except UnicodeDecodeError:
            return None
        except pa.ArrowInvalid as error:
            if "invalid UTF8" in str(error):
                return None
            if self.ragged:
                raise ragged_error(self.content, form, self.detected, self.name) from error
            if not any(part in str(error) for part in ("conversion error", "straddling", "Empty CSV", "block size")):
                raise
            table = self._pass(form, request, block_size=_WHOLE_FILE)  # types from all rows
        return None if any(pa.types.is_binary(field.type) for field in table.schema) else table

    def _pass(self, form: TextForm, request: TableRequest, **options: Any) -> Any:
        """Let pyarrow read the file once.

        Arrow's threads may still hold the row handler, a Python object, when `read_csv` returns. A thread that releases
        it while the process ends aborts the process, so this waits until the handler is released.
        """
        self.ragged = []

        def handle(row: Any) -> str:
            self.ragged.append(row)
            return "skip" if request.skip_bad else "error"

        encoding = "utf8" if form.encoding == "utf-8" else form.encoding
        reading = pa.csv.ReadOptions(encoding=encoding, skip_rows=self.detected.skipped, **options)
        if not form.header:
            reading.column_names = plain_names(len(self.detected.first_row))
        parsing = pa.csv.ParseOptions(delimiter=form.sep, newlines_in_values=True, invalid_row_handler=handle)
        conversion = pa.csv.ConvertOptions(
            column_types={column: pa.string() for column in request.text_columns},
            decimal_point=form.decimal or ".",
            include_columns=request.columns,
        )
        released: SimpleQueue[Any] = SimpleQueue()
        handler = weakref.ref(handle, released.put)
        source = pa.BufferReader(self.content) if isinstance(self.content, bytes) else self.content
        try:
            return pa.csv.read_csv(source, read_options=reading, parse_options=parsing, convert_options=conversion)
        finally:
            del handle, parsing
            if handler() is not None:
                with suppress(Empty):
                    released.get(timeout=_HANDLER_TIMEOUT)


# ---- columns that are read again


def _dotted_columns(table: Any, file: _CsvFile, form: TextForm) -> list[str]:
    """Return the columns of fractions that, by the first rows, may be whole numbers with dots between thousands."""
    fractions = {c for c in table.column_names if str(table.schema.field(c).type) == "double"}
    cells = zip(*_head_rows(file.content, form, len(table.column_names))) if fractions else ()
    columns = zip(table.column_names, map(pa.array, cells))
    return [c for c, words in columns if c in fractions and are_dotted_thousands(trimmed(words))]


def _thousands_note(column: str) -> str:
    return (
        f"column {column!r} has three digits after every dot, read as decimals (decimal=',' if the dots separate "
        "thousands)"
    )


def _code_columns(table: Any, file: _CsvFile, form: TextForm) -> list[str]:
    """Return the columns of whole numbers that are written as codes such as 0052.

    Only columns with a leading zero in the first rows are read again.
    """
    integers = {c for c in table.column_names if str(table.schema.field(c).type) == "int64"}
    rows = _head_rows(file.content, form, len(table.column_names)) if integers else ()
    padded = {
        column
        for row in rows
        for column, cell in zip(table.column_names, row)
        if column in integers and _LEADING_ZERO.match(cell)
    }
    candidates = [c for c in table.column_names if c in padded]
    if not candidates:
        return []
    as_text = file.read(form, text_columns=candidates, columns=candidates)
    return [c for c in candidates if are_codes(present(trimmed(as_text.column(c))))]


def _head_rows(content: Path | bytes, form: TextForm, width: int) -> Iterator[list[str]]:
    """Yield the rows of `width` cells among the first bytes as text, without the header."""
    head = head_of(content)
    lines = io.StringIO(head_text(head, str(form.encoding)), newline="")
    skipped = (form.skip_rows or 0) + int(is_separator_line(head))
    for _, cells in islice(csv_rows(lines, str(form.sep), skipped), int(bool(form.header)), None):
        if len(cells) == width:
            yield cells


# ---- rows with more or fewer cells than the first


def ragged_error(content: Path | bytes, form: TextForm, detected: FileForm, name: str) -> InputError:
    """Return the error for the first row whose number of cells differs from that of the first row, with advice."""
    sep, first = str(form.sep), detected.first_row
    with _open_text(content, str(form.encoding)) as text:
        rows = csv_rows(text, sep, detected.skipped)
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
        form = find_form(opened.read(HEAD), file.name, request).form
        if str(form.encoding).lower() not in _ONE_BYTE_LINE_ENDS:
            yield file
            return
        opened.seek(0)
        skipped = b"".join(opened.readline() for _ in range(form.skip_rows or 0))
        line = opened.readline()
        if not line:
            raise OSError("it is empty")  # the caller adds the name of the file
        if not is_separator_line(line):
            opened.seek(len(skipped))
        header = skipped + (_first_row(opened, str(form.sep)) if form.header else b"")
        rest = b""  # always begins with a row, outside quotes
        while block := opened.read(PIECE_BYTES):
            rest += block
            end = _last_row_end(rest)
            if end:
                yield header + rest[:end]
                rest = rest[end:]
        if rest.strip():
            yield header + rest


def _first_row(opened: BinaryIO, sep: str) -> bytes:
    """Read the lines of one row, whose quoted cells may contain line breaks."""
    lines = []

    def decoded_lines() -> Iterator[str]:
        while line := opened.readline():
            lines.append(line)
            yield line.decode("latin-1")  # ASCII characters are the same in all encodings with line ends of one byte

    with suppress(csv.Error):  # a cell without a closing quote; pyarrow refuses it
        next(csv.reader(decoded_lines(), delimiter=sep), None)
    return b"".join(lines)


def _open_bytes(file: Path) -> BinaryIO:
    return gzip.open(file) if file.name.lower().endswith(".gz") else file.open("rb")  # type: ignore[return-value]


def _last_row_end(text: bytes) -> int:
    """Return the position after the last line end outside quotes; 0 if there is none. `text` begins outside quotes."""
    end = text.rfind(b"\n") + 1
    quotes = text.count(b'"', 0, end)
    while end and quotes % 2:
        earlier = text.rfind(b"\n", 0, end - 1) + 1
        quotes -= text.count(b'"', earlier, end)
        end = earlier
    return end
