"""How a table is written as text, told from the first megabyte: separator, encoding, decimal mark, header.

asked     what a person has said: obeyed
before    what the training file was like: taken where the file leaves it open (a single row says little)
else      a byte-order mark, UTF-8 that decodes, the separator that cuts every row alike, a first row unlike the others
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kway.data.sources.csv_rows import csv_rows, head_text
from kway.errors import InputError

HEAD = 1 << 20  # bytes looked at
_ROWS = 50  # rows of the head looked at
_UNIT = r"(?:%|[$€£¥₹]|[A-Z]{3})?"
_MEASURE = re.compile(rf"[-+−]?\s*{_UNIT}\s*[0-9][0-9.,'’/:\s-]*{_UNIT}$")  # 5,13 €   49 %   31.12.2024   12:30
_SEPARATORS = (",", ";", "\t", "|")
_SAID_SEPARATOR = re.compile(r'"?sep=(?P<sep>[,;\t|])"?\r?\n', re.IGNORECASE)  # the first line that Excel knows
_NAMED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|"}
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


@dataclass(frozen=True)
class TextForm:
    """sep, encoding and decimal mark of a table of text, and whether its first row names the columns; None: open."""

    sep: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    header: bool | None = None

    @classmethod
    def asked(cls, sep: str | None, encoding: str | None, decimal: str | None, header: bool | None) -> TextForm:
        """As a person says it: tab and \\t are names of separators; what cannot be meant is an error."""
        sep = None if sep is None else _NAMED.get(sep.lower(), sep)
        if sep is not None and (len(sep) != 1 or ord(sep) > 127 or sep in '\r\n"'):
            raise InputError(f"--sep is {sep!r}; it must be one character, such as , ; | or tab")
        if decimal not in (None, ".", ","):
            raise InputError(f"--decimal is {decimal!r}; it may be . or ,")
        try:
            return cls(sep, None if encoding is None else codecs.lookup(encoding).name, decimal, header)
        except LookupError as error:
            raise InputError(f"--encoding {encoding!r} is not known; such as utf-8, latin-1, cp1252, utf-16") from error


OPEN = TextForm()


class Settled(NamedTuple):
    """A form with nothing left open but perhaps the decimal mark, the cells of the first row, and notes in words.

    skipped: lines before that row, which say how to read the others.
    """

    form: TextForm
    first: tuple[str, ...]
    notes: tuple[str, ...]
    skipped: int = 0


def settle_form(
    head: bytes, name: str, asked: TextForm, before: TextForm = OPEN, columns: Sequence[str] = ()
) -> Settled:
    """The form of a file by its first bytes; `columns` are names that its header, if it has one, should hold."""
    encoding, notes = _encoding(head, asked, before)
    try:
        text = head_text(head, encoding, "strict", final=len(head) < HEAD)
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not {encoding} text ({error.reason}); say what it is with --encoding") from error
    said = _SAID_SEPARATOR.match(text)
    text = text[said.end() :] if said else text
    sep = asked.sep or (said["sep"] if said else _separator(text, len(head) >= HEAD, name, before, columns))
    rows = _rows(text, sep, len(head) >= HEAD)
    first = tuple(rows[0]) if rows else ()
    header, told = _header(rows, asked, before, columns)
    form = TextForm(sep, encoding, asked.decimal or before.decimal, header)
    return Settled(form, first, (*notes, *told), int(said is not None))


def is_delimited(head: bytes) -> bool:
    """Whether a file that begins so is a table of text: one separator cuts all of its rows alike."""
    if b"\0" in head and not head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    encoding, _ = _encoding(head, OPEN, OPEN)
    text = head_text(head, encoding)
    cut = len(head) >= HEAD
    return _SAID_SEPARATOR.match(text) is not None or (bool(_even(text, cut)) and len(_rows(text, ",", cut)) > 1)


def is_row(line: bytes) -> bool:
    """Whether the first line of a file is a row, and not one that only says the separator, as Excel writes it."""
    return _SAID_SEPARATOR.match(line.removeprefix(codecs.BOM_UTF8).decode("latin-1")) is None


def plain_names(n: int) -> list[str]:
    """c1, c2, ...: columns of a file without a header."""
    return [f"c{j + 1}" for j in range(n)]


def not_utf8(before: TextForm) -> str:
    """The encoding of bytes that are not UTF-8: as before, else what Windows writes in western Europe."""
    return before.encoding if before.encoding not in (None, "utf-8") else "cp1252"


def encoding_note(encoding: str) -> str:
    """What is said where an encoding had to be guessed."""
    return f"not UTF-8: read as {encoding} (--encoding says otherwise)"


def _encoding(head: bytes, asked: TextForm, before: TextForm) -> tuple[str, tuple[str, ...]]:
    if asked.encoding is not None:
        return asked.encoding, ()
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, () if encoding == "utf-8" else (f"read as {encoding}, as its byte-order mark says",)
    for encoding, place in (("utf-16-le", 1), ("utf-16-be", 0)):
        zeros = head[place:2000:2]
        if len(zeros) > 3 and zeros.count(0) > 0.7 * len(zeros) and head[1 - place : 2000 : 2].count(0) == 0:
            return encoding, (encoding_note(encoding),)
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < HEAD)
        return "utf-8", ()
    except UnicodeDecodeError:
        encoding = not_utf8(before)
    try:
        head.decode(encoding)
    except UnicodeDecodeError:
        encoding = "latin-1"  # every byte is a letter of it
    return encoding, (encoding_note(encoding),)


def _separator(text: str, cut: bool, name: str, before: TextForm, columns: Sequence[str]) -> str:
    first = {sep: _rows(text, sep, cut)[:1] for sep in (*_SEPARATORS, *([before.sep] if before.sep else []))}
    if before.sep and columns and set(columns) <= set(first[before.sep][0] if first[before.sep] else ()):
        return before.sep
    even = _even(text, cut)
    tabs = Path(name).name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    if tabs and (not even or len(first["\t"][0] if first["\t"] else ()) > 1):
        return "\t"
    if even:
        return max(even, key=lambda sep: even[sep])  # of equals the first
    in_header = {sep: len(row[0]) if row else 0 for sep, row in first.items()}
    return max(_SEPARATORS, key=lambda sep: in_header[sep])


def _even(text: str, cut: bool) -> dict[str, int]:
    """The separators that cut every row alike, and into how many cells."""
    widths = {sep: {len(row) for row in _rows(text, sep, cut)} for sep in _SEPARATORS}
    return {sep: min(w) for sep, w in widths.items() if len(w) == 1 and min(w) > 1}


def _rows(text: str, sep: str, cut: bool) -> list[list[str]]:
    """The first rows; the last is left out where the text was cut inside it."""
    lines = io.StringIO(text, newline="")
    found = [row.cells for row in islice(csv_rows(lines, sep), _ROWS)]
    return found[:-1] if cut and len(found) > 1 and not lines.read(1) else found


def _header(
    rows: list[list[str]], asked: TextForm, before: TextForm, columns: Sequence[str]
) -> tuple[bool, tuple[str, ...]]:
    if asked.header is not None:
        return asked.header, ()
    if not rows or set(columns) & set(rows[0]):
        return True, ()
    if before.header is not None:
        return before.header, ()
    numbers = [_is_number(cell) for cell in rows[0]]
    if not any(numbers) and _all_come_again(rows):
        return False, (_no_header_note(len(rows[0])),)
    if not any(numbers) or len(rows) < 2 or not _numbers_below(rows[1:], numbers):
        return True, ()
    if all(numbers):
        alike = len(set(rows[0])) < len(rows[0]) or any("." in cell or "," in cell for cell in rows[0])
    else:
        words = [j for j, number in enumerate(numbers) if not number and rows[0][j].strip()]
        alike = any(rows[0][j] in {row[j] for row in rows[1:] if j < len(row)} for j in words)
    if alike:
        return False, (_no_header_note(len(rows[0])),)
    if all(numbers):
        return True, ("its first row, all numbers, was taken for names of columns (--no-header says otherwise)",)
    return True, ()


def _no_header_note(n: int) -> str:
    return f"no header: its columns are called c1 to {plain_names(n)[-1]} (--header says otherwise)"


def _all_come_again(rows: list[list[str]]) -> bool:
    """Whether every word of the first row is there again below it: a name of a column is not among its values."""
    below = [{row[j] for row in rows[1:] if j < len(row)} for j in range(len(rows[0]))]
    return len(rows[0]) > 1 and all(cell.strip() and cell in words for cell, words in zip(rows[0], below))


def _numbers_below(rows: list[list[str]], numbers: list[bool]) -> bool:
    """Whether under every number of the first row there are mostly numbers or gaps."""
    for j, number in enumerate(numbers):
        cells = [row[j] for row in rows if j < len(row)]
        if number and sum(_is_number(c) or not c.strip() for c in cells) < 0.8 * len(cells):
            return False
    return True


def _is_number(cell: str) -> bool:
    """A number, also as people write it (5,13 €; 49 %), a day or a time."""
    if _MEASURE.match(cell.strip()):
        return True
    try:
        float(cell.strip().replace(",", "."))
    except ValueError:
        return False
    return cell.strip().lower() not in ("nan", "inf", "infinity")
