"""Printed tables: lines of cells as text, or as HTML for notebooks.

model     accuracy       folds
softmax   0.912 ± 0.010  5
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple


class Table(NamedTuple):
    """A title, names of columns, and lines of cells; `more` says what is not shown."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    more: str = ""

    def text(self, widest: int = 40) -> str:
        """Return the table in columns of equal width; cells have at most `widest` characters.

        >>> print(Table("two", ("a", "b"), [("1", "x"), ("22", "y")]).text())
        two
          a   b
          1   x
          22  y
        """
        if not self.columns:
            return self.title
        cells = [[one_line(cell, widest) for cell in line] for line in (self.columns, *self.lines)]
        widths = [max(map(len, column)) for column in zip(*cells)]
        rows = ["  " + "  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in cells]
        return "\n".join([self.title, *rows, *([f"  {self.more}"] if self.more else [])])

    def narrowed(self, width: int) -> Table:
        """Return the table with as many columns, at least two, as fit into `width` characters.

        >>> Table("three", ("a", "b", "c"), [("1", "x" * 9, "y" * 9)]).narrowed(18).columns
        ('a', 'b')
        """
        title, kept = "\n".join(wrap(self.title, width)), len(self.columns)
        narrow = self._replace(title=title)
        while kept > 2 and any(len(line) > width for line in narrow.text().splitlines()):
            kept -= 1
            narrow = Table(title, self.columns[:kept], [line[:kept] for line in self.lines], self.more)
        return narrow

    def html(self) -> str:
        """Return the table as HTML, for notebooks."""
        head = "".join(f"<th>{escape(c)}</th>" for c in self.columns)
        body = "".join(f"<tr>{''.join(f'<td>{escape(c)}</td>' for c in line)}</tr>" for line in self.lines)
        more = f"<p>{escape(self.more)}</p>" if self.more else ""
        return (
            f"<table><caption>{escape(self.title)}</caption><thead><tr>{head}</tr></thead>"
            f"<tbody>{body}</tbody></table>{more}"
        )


class Printed:
    """Prints as its `_table()`, in a terminal and in a notebook."""

    __slots__ = ()

    def _table(self) -> Table:
        raise NotImplementedError(f"{type(self).__name__} has no _table")

    def __repr__(self) -> str:
        return self._table().text()

    def __str__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def first_rows(
    title: str, n: int, columns: Sequence[str], line: Callable[[int], Iterable[Any]], most: int = 10
) -> Table:
    """Return a table of the first rows of a result of n rows; `line(i)` returns the cells of row i after its number."""
    shown = min(n, most)
    lines = [(str(i), *map(str, line(i))) for i in range(shown)]
    return Table(title, ("row", *columns), lines, f"… {n - shown:,} more rows" if n > shown else "")


def short_number(value: Any) -> str:
    """Return a number in few characters.

    >>> short_number(0.123456), short_number(12345678.0)
    ('0.1235', '1.235e+07')
    """
    return f"{float(value):.4g}"


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return a text in which characters that control a terminal are spelled, such as \\x1b; line breaks and tabs stay.

    >>> print(printable("a\x1b[31mred"))
    a\\x1b[31mred
    """
    return _CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


def clipped(text: str, most: int) -> str:
    """Return a text of at most `most` characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(text: object, most: int) -> str:
    """Return a text in one line of at most `most` characters."""
    return clipped(printable(" ".join(str(text).split())), most)


def count(n: int, noun: str) -> str:
    """Return a number with its noun.

    >>> count(1, "column"), count(1200, "class")
    ('1 column', '1,200 classes')
    """
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + ("es" if noun.endswith("s") else "s")
    return f"{n:,} {noun if n == 1 else plural}"
