"""Tables for people: lines of cells as text, or as HTML for notebooks.

model     accuracy       folds
softmax   0.912 ± 0.010  5
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from textwrap import wrap
from typing import Any, NamedTuple

_SHOWN = 10  # rows of an answer that are printed
_WIDEST = 40  # letters of a cell


class Table(NamedTuple):
    """A title, names of columns, and lines of cells; `more` says what is not shown."""

    title: str
    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    more: str = ""

    def text(self) -> str:
        """In columns of equal width.

        >>> print(Table("two", ("a", "b"), [("1", "x"), ("22", "y")]).text())
        two
          a   b
          1   x
          22  y
        """
        if not self.columns:
            return self.title
        cells = [[one_line(cell, _WIDEST) for cell in line] for line in (self.columns, *self.lines)]
        widths = [max(map(len, column)) for column in zip(*cells)]
        rows = ["  " + "  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip() for line in cells]
        return "\n".join([self.title, *rows, *([f"  {self.more}"] if self.more else [])])

    def narrowed(self, width: int) -> Table:
        """With as many of the columns, two at least, as a line of so many letters holds, and the title in such lines.

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
        """The same as a table of a notebook."""
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


def first_rows(title: str, n: int, columns: Sequence[str], line: Callable[[int], Iterable[Any]]) -> Table:
    """The first rows of an answer about n rows; `line(i)` gives the cells of row i after its number."""
    shown = min(n, _SHOWN)
    lines = [(str(i), *map(str, line(i))) for i in range(shown)]
    return Table(title, ("row", *columns), lines, f"… {n - shown:,} more rows" if n > shown else "")


def short_number(value: Any) -> str:
    """A number in few letters.

    >>> short_number(0.123456), short_number(12345678.0)
    ('0.1235', '1.235e+07')
    """
    return f"{float(value):.4g}"


def clipped(text: str, most: int) -> str:
    """A text of at most so many letters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def one_line(text: object, most: int) -> str:
    """The words of a text in one line of at most so many letters."""
    return clipped(" ".join(str(text).split()), most)
