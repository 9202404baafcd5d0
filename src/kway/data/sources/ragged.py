"""Rows of a csv that have more or fewer cells than the others: the first of them, by its line, and what to do."""

from __future__ import annotations

import io
from pathlib import Path
from typing import NamedTuple, TextIO

from kway.data.sources.csv_rows import csv_rows
from kway.errors import InputError

_LONGEST = 60  # letters of a row that are shown


class RaggedRow(NamedTuple):
    """A row of `cells` cells that begins in `line`, from 1; the `first` row has `expected` of them."""

    line: int
    cells: int
    expected: int
    text: str
    first: str = ""


def first_ragged(content: Path | bytes, encoding: str, sep: str, skipped: int = 0) -> RaggedRow | None:
    """The first row unlike the first one; `skipped` lines before that one are no rows."""
    with _opened(content, encoding) as text:
        first: list[str] = []
        for line, cells in csv_rows(text, sep, skipped):
            first = first or cells
            if len(cells) != len(first):
                return RaggedRow(line, len(cells), len(first), sep.join(cells), sep.join(first))
    return None


def ragged_error(name: str, row: RaggedRow, sep: str) -> InputError:
    """What is wrong with the row, and what helps."""
    said = f"{name} cannot be read: line {row.line:,} has {_counted(row.cells, 'cell')} where the first row has"
    said = f"{said} {row.expected:,}: {_short(row.text)}"
    if row.first.startswith("#"):
        return InputError(f"{said}; take out lines that are no rows, such as the first: {_short(row.first)}")
    if row.text.startswith("#"):
        advice = "take out lines that are comments"
    elif row.cells > row.expected:
        advice = f'put quotes around cells that hold {sep!r} ("a{sep} b"), or say what is between columns with --sep'
    else:
        advice = "fill it up, take out lines that are no rows, or say what is between columns with --sep"
    return InputError(f"{said}; {advice}; --skip-bad leaves such lines out")


def _short(row: str) -> str:
    return repr(row if len(row) <= _LONGEST else f"{row[:_LONGEST]}...")


def ragged_note(rows: int) -> str:
    """What is said where rows were left out."""
    return f"{_counted(rows, 'line')} with more or fewer cells than the first row left out, as --skip-bad asks"


def _counted(n: int, what: str) -> str:
    return f"1 {what}" if n == 1 else f"{n:,} {what}s"


def _opened(content: Path | bytes, encoding: str) -> TextIO:
    if isinstance(content, Path):
        return content.open(encoding=encoding, errors="replace", newline="")
    return io.TextIOWrapper(io.BytesIO(content), encoding=encoding, errors="replace", newline="")
