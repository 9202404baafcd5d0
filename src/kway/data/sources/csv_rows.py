"""Rows of csv text, cell by cell: the one place that decodes a head, drops a byte-order mark, and stops where csv does.

head_text   bytes -> text without its mark
csv_rows    lines of text -> rows that are not empty, each with the line it begins in
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import NamedTuple

_MARK = "\ufeff"


class CsvRow(NamedTuple):
    """The cells of a row that begins in `line`, from 1."""

    line: int
    cells: list[str]


def head_text(head: bytes, encoding: str, errors: str = "replace", final: bool = False) -> str:
    """The first bytes of a file as text; not `final`: a letter that is cut at their end is left out."""
    return codecs.getincrementaldecoder(encoding)(errors).decode(head, final).removeprefix(_MARK)


def csv_rows(lines: Iterable[str], sep: str = ",", skipped: int = 0) -> Iterator[CsvRow]:
    """The rows behind `skipped` lines, up to a cell beyond csv's limit: what comes before that is enough."""
    left = iter(lines)
    first = (line.removeprefix(_MARK) for line in islice(left, 1))
    rows = csv.reader(islice(chain(first, left), skipped, None), delimiter=sep)
    begun = skipped + 1
    try:
        for cells in rows:
            if cells:
                yield CsvRow(begun, cells)
            begun = skipped + rows.line_num + 1
    except csv.Error:
        return
