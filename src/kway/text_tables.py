"""Printed tables: lines of cells as text, or as HTML for notebooks. Also values as JSON types.

model     accuracy       folds
softmax   0.912 ± 0.010  5
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple


class Table(NamedTuple):
    """A printed table.

    Attributes
    ----------
    title : str
        Line above the table.
    columns : sequence of str
        Names of the columns; a table without columns prints as its title.
    lines : sequence of sequence of str
        Cells of each row.
    more : str
        Line below the table, such as the number of rows that are not shown.
    """

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    more: str = ""

    def text(self, max_width: int = 40) -> str:
        """Return the table as aligned text, in which cells are cut to at most `max_width` characters.

        >>> print(Table("two", ("a", "b"), [("1", "x"), ("22", "y")]).text())
        two
          a   b
          1   x
          22  y
        """
        if not self.columns:
            return self.title
        cells = [[one_line(cell, max_width) for cell in line] for line in (self.columns, *self.lines)]
        widths = [max(map(len, column)) for column in zip(*cells)]
        rows = ["  " + "  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in cells]
        return "\n".join([self.title, *rows, *([f"  {self.more}"] if self.more else [])])

    def narrowed(self, width: int) -> Table:
        """Return the table with as many columns, at least two, as fit into `width` characters.

        >>> Table("three", ("a", "b", "c"), [("1", "x" * 9, "y" * 9)]).narrowed(18).columns
        ('a', 'b')
        """
        narrow = self._replace(title="\n".join(wrap(self.title, width)))
        while len(narrow.columns) > 2 and any(len(line) > width for line in narrow.text().splitlines()):
            narrow = narrow._replace(columns=narrow.columns[:-1], lines=[line[:-1] for line in narrow.lines])
        return narrow

    def html(self) -> str:
        """Return the table as HTML for notebooks, with cells in full, because a notebook scrolls wide tables."""
        head = "".join(f"<th>{escape(c)}</th>" for c in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in line)}</tr>" for line in self.lines)
        more = f"<p>{escape(self.more)}</p>" if self.more else ""
        return (
            f"<table><caption>{escape(self.title)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{more}"
        )


class Printed:
    """Base class of results that are shown as a table: text in a terminal, HTML in a notebook.

    A subclass defines `_table`.
    """

    __slots__ = ()

    def _table(self) -> Table:
        """Return the table to print."""
        raise NotImplementedError(f"{type(self).__name__} must define _table, which returns a Table")

    def __repr__(self) -> str:
        return self._table().text()

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def first_rows(
    title: str, n: int, columns: Sequence[str], cells: Callable[[int], Iterable[Any]], max_rows: int = 10
) -> Table:
    """Return a table of the first rows of a result of n rows.

    `cells(i)` returns the cells of row i, before which the number of the row is put.
    """
    shown = min(n, max_rows)
    lines = [(str(i), *map(str, cells(i))) for i in range(shown)]
    return Table(title, ("row", *columns), lines, f"… {n - shown:,} more rows" if n > shown else "")


def short_number(value: Any) -> str:
    """Return a number in few characters.

    >>> short_number(0.123456), short_number(12345678.0)
    ('0.1235', '1.235e+07')
    """
    return f"{float(value):.4g}"


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return a text with terminal control characters escaped, such as \\x1b; line breaks and tabs stay.

    >>> print(printable("a\x1b[31mred"))
    a\\x1b[31mred
    """
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def clipped(text: str, max_length: int) -> str:
    """Return a text that is cut to at most `max_length` characters, the last of which is then an ellipsis.

    >>> clipped("classification", 8)
    'classif…'
    """
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def one_line(text: object, max_length: int) -> str:
    """Return a text in one line of at most `max_length` characters, with control characters escaped."""
    return clipped(printable(" ".join(str(text).split())), max_length)


def count(n: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count(1, "column"), count(1200, "class"), count(2, "family"), count(2, "key"), count(0, "batch")
    ('1 column', '1,200 classes', '2 families', '2 keys', '0 batches')
    """
    return f"{n:,} {noun if n == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def plain(value: Any) -> Any:
    """Return a value as JSON types: arrays as lists, infinity and NaN as null, other objects as text."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if hasattr(value, "tolist"):  # numpy arrays and scalars
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value)
