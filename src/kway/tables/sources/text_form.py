"""Detect the form of a text table (encoding, separator and header) from the first 64 kB of the file.

The options of the user come first, then the form of the training file if the file itself does not decide (a single row
shows little), and otherwise:

    encoding    by a byte-order mark; UTF-16 by its zero bytes; UTF-8 if it decodes; cp1252 if not
    separator   by a first line sep=; as Excel writes it; or the one that divides every row into the same number of
                cells; or the most frequent one in the first row
    header      there is none if the first row looks like the rows below it

Libraries do worse on the messy files of the tests: charset-normalizer takes cp1252 for cp1250 or cp775, and clevercsv
recognizes 6 of 9 headers and needs 0.2 s per 20 kB.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from kway.errors import InputError
from kway.tables.read_options import UNKNOWN_FORM, TextForm
from kway.tables.sources.values import MOSTLY

HEAD = 1 << 16  # bytes at the start of a file that are examined; enough rows for the messy files of the tests
_BYTE_ORDER_MARK = "\ufeff"
_UNIT = r"(?:%|[$€£¥₹]|[A-Z]{3})?"
_MEASURE = re.compile(rf"[-+−]?\s*{_UNIT}\s*[0-9][0-9.,'’/:\s-]*{_UNIT}$")  # 5,13 €   49 %   31.12.2024   12:30
_SEPARATORS = (",", ";", "\t", "|")
_SEPARATOR_LINE = re.compile(r'"?sep=(?P<sep>[,;\t|])"?\r?\n', re.IGNORECASE)
_ENCODING_OF_MARK = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class TableRequest(NamedTuple):
    """Which columns of a table to read, and what is known about its text.

    Parameters
    ----------
    text_columns : sequence of str
        Columns of a csv that stay text, so that the label 007 does not become 7.
    form : TextForm
        The form that the user gave.
    earlier_form : TextForm
        The form of the training file, for what the file itself does not decide.
    expected_names : sequence of str
        Names of columns. A first row that contains one of them is a header.
    columns : sequence of str or None
        The columns to return; None for all.
    skip_bad : bool
        Whether to leave out rows with more or fewer cells than the first.
    find_codes : bool
        Whether to detect columns of codes and keep them as text.
    """

    text_columns: Sequence[str] = ()
    form: TextForm = UNKNOWN_FORM
    earlier_form: TextForm = UNKNOWN_FORM
    expected_names: Sequence[str] = ()
    columns: Sequence[str] | None = None
    skip_bad: bool = False
    find_codes: bool = False


EVERYTHING = TableRequest()


class FileForm(NamedTuple):
    """The form of a file, as far as its first bytes show it.

    Parameters
    ----------
    form : TextForm
        The form; only its decimal mark may be None.
    first_row : tuple of str
        The cells of the first row, which may be the header.
    notes : tuple of str
        Notes for the user about guesses.
    skipped : int
        Number of lines before the first row.
    """

    form: TextForm
    first_row: tuple[str, ...]
    notes: tuple[str, ...]
    skipped: int = 0


def find_form(head: bytes, name: str, request: TableRequest = EVERYTHING) -> FileForm:
    """Detect the form of a file from its first bytes; `name` is the name of the file in messages."""
    requested = request.form
    encoding, notes = _find_encoding(head, request)
    cut = len(head) >= HEAD
    try:
        text = head_text(head, encoding, "strict", final=not cut)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not {encoding} text ({error.reason}); give its encoding with encoding=") from error
    skip = requested.skip_rows or 0
    for _ in range(skip):
        text = text.partition("\n")[2]
    line = _SEPARATOR_LINE.match(text)
    text = text[line.end() :] if line else text
    sep = requested.sep or (line["sep"] if line else _find_separator(text, cut, name, request))
    rows = _first_rows(text, sep, cut)
    header, note = _find_header(rows, request)
    form = TextForm(sep, encoding, requested.decimal or request.earlier_form.decimal, header, requested.skip_rows)
    return FileForm(form, tuple(rows[0]) if rows else (), (*notes, *note), skip + int(line is not None))


def is_delimited(head: bytes) -> bool:
    """Return whether one separator divides all rows of a file that begins with `head` into equally many cells."""
    if b"\0" in head and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    text = head_text(head, _find_encoding(head, EVERYTHING)[0])
    cut = len(head) >= HEAD
    if _SEPARATOR_LINE.match(text):
        return True
    return bool(_even_separators(text, cut)) and len(_first_rows(text, ",", cut)) > 1


def is_separator_line(line: bytes) -> bool:
    """Return whether the first line of a file only gives the separator, as Excel writes it."""
    return _SEPARATOR_LINE.match(line.removeprefix(codecs.BOM_UTF8).decode("latin-1")) is not None


def plain_names(n: int) -> list[str]:
    """Return the names c1, c2, ... for the columns of a file without a header."""
    return [f"c{j + 1}" for j in range(n)]


# ---- rows of csv text


class CsvRow(NamedTuple):
    """The cells of a row and the line in which it begins (counted from 1)."""

    line: int
    cells: list[str]


def head_text(head: bytes, encoding: str, errors: str = "replace", final: bool = False) -> str:
    """Decode the first bytes of a file; an incomplete character at the end is left out unless `final`."""
    return codecs.getincrementaldecoder(encoding)(errors).decode(head, final).removeprefix(_BYTE_ORDER_MARK)


def csv_rows(lines: Iterable[str], sep: str = ",", skipped: int = 0) -> Iterator[CsvRow]:
    """Yield the non-empty rows after `skipped` lines, up to a cell that exceeds the limit of the csv module."""
    remaining = iter(lines)
    first = (line.removeprefix(_BYTE_ORDER_MARK) for line in islice(remaining, 1))
    rows = csv.reader(islice(chain(first, remaining), skipped, None), delimiter=sep)
    line = skipped + 1
    try:
        for cells in rows:
            if cells:
                yield CsvRow(line, cells)
            line = skipped + rows.line_num + 1
    except csv.Error:
        return


def _first_rows(text: str, sep: str, cut: bool) -> list[list[str]]:
    """Return the first rows; if the text was cut, its last row is incomplete and left out."""
    rows = [row.cells for row in csv_rows(io.StringIO(text, newline=""), sep)]
    return rows[:-1] if cut and len(rows) > 1 else rows


# ---- encoding


def encoding_note(encoding: str) -> str:
    """Return the note about a guessed encoding."""
    return f"not UTF-8: read as {encoding} (encoding= to change it)"


def fallback_encodings(earlier: TextForm) -> list[str]:
    """Return the encodings to try if bytes are not UTF-8.

    The first is that of earlier rows, or cp1252 (western Windows). The last is latin-1, which decodes every byte.
    """
    encoding = earlier.encoding
    return ["cp1252" if encoding is None or encoding == "utf-8" else encoding, "latin-1"]


def _find_encoding(head: bytes, request: TableRequest) -> tuple[str, tuple[str, ...]]:
    """Return the encoding and notes."""
    if request.form.encoding is not None:
        return request.form.encoding, ()
    for mark, encoding in _ENCODING_OF_MARK.items():
        if head.startswith(mark):
            return encoding, () if encoding == "utf-8" else (f"read as {encoding} because of its byte-order mark",)
    even, odd = head[:2000:2], head[1:2000:2]
    for encoding, zeros, others in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
        if len(zeros) > 3 and zeros.count(0) > 0.7 * len(zeros) and others.count(0) == 0:  # mostly ASCII
            return encoding, (encoding_note(encoding),)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
        return "utf-8", ()
    except UnicodeDecodeError:
        encoding, last = fallback_encodings(request.earlier_form)
    try:
        head.decode(encoding)
    except UnicodeDecodeError:
        encoding = last
    return encoding, (encoding_note(encoding),)


# ---- separator


def _find_separator(text: str, cut: bool, name: str, request: TableRequest) -> str:
    earlier, names = request.earlier_form.sep, set(request.expected_names)
    candidates = (*_SEPARATORS, *([earlier] if earlier else []))
    first = {sep: next(iter(_first_rows(text, sep, cut)), []) for sep in candidates}
    if earlier and names and names <= set(first[earlier]):
        return earlier
    even = _even_separators(text, cut)
    is_tsv = Path(name).name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    if is_tsv and (not even or len(first["\t"]) > 1):
        return "\t"
    if even:
        return max(even, key=lambda sep: even[sep])  # max returns the first of equals
    return max(_SEPARATORS, key=lambda sep: len(first[sep]))


def _even_separators(text: str, cut: bool) -> dict[str, int]:
    """Return the separators that divide all rows into equally many cells (at least 2), with the number of cells."""
    widths = {sep: {len(row) for row in _first_rows(text, sep, cut)} for sep in _SEPARATORS}
    return {sep: min(w) for sep, w in widths.items() if len(w) == 1 and min(w) > 1}


# ---- header


def _find_header(rows: list[list[str]], request: TableRequest) -> tuple[bool, tuple[str, ...]]:
    """Return whether the first row names the columns, and a note if that is uncertain."""
    if request.form.header is not None:
        return request.form.header, ()
    if not rows or set(request.expected_names) & set(rows[0]):
        return True, ()
    if request.earlier_form.header is not None:
        return request.earlier_form.header, ()
    numbers = [_is_number(cell) for cell in rows[0]]
    if _first_row_is_data(rows, numbers):
        last = plain_names(len(rows[0]))[-1]
        return False, (f"no header: its columns are called c1 to {last} (header=True to change it)",)
    if all(numbers) and _numbers_below(rows[1:], numbers):
        return True, ("its first row, all numbers, was used as the names of the columns (header=False to change it)",)
    return True, ()


def _first_row_is_data(rows: list[list[str]], numbers: list[bool]) -> bool:
    """Return whether the first row looks like the rows below; `numbers` marks its cells that are numbers."""
    first = rows[0]
    below = [{row[j] for row in rows[1:] if j < len(row)} for j in range(len(first))]
    if not any(numbers):  # words that all occur again: the name of a column is not one of its values
        return len(first) > 1 and all(cell.strip() and cell in words for cell, words in zip(first, below))
    if not _numbers_below(rows[1:], numbers):
        return False
    if all(numbers):  # names such as 2019 are distinct whole numbers
        return len(set(first)) < len(first) or any("." in cell or "," in cell for cell in first)
    return any(cell.strip() and cell in words for cell, words, number in zip(first, below, numbers) if not number)


def _numbers_below(rows: list[list[str]], numbers: list[bool]) -> bool:
    """Return whether most cells below every number of the first row are numbers or empty."""
    for j, number in enumerate(numbers):
        cells = [row[j] for row in rows if j < len(row)]
        if number and sum(_is_number(c) or not c.strip() for c in cells) < MOSTLY * len(cells):
            return False
    return len(rows) > 0


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number, possibly with a unit (5,13 €; 49 %), a day or a time."""
    if _MEASURE.match(cell.strip()):
        return True
    try:
        float(cell.strip().replace(",", "."))
    except ValueError:
        return False
    return cell.strip().lower() not in ("nan", "inf", "infinity")
