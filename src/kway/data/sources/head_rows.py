"""The first rows of a csv cell by cell, as they are written: 2.180e+02 and 0052, before they become numbers."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from kway.data.sources.csv_rows import csv_rows, head_text
from kway.data.sources.delimited import head_of
from kway.data.sources.table_files import TableSource
from kway.data.sources.text_form import TextForm, is_row

_ROWS = 100  # looked at for a word of each column


def head_rows(source: TableSource, form: TextForm, width: int) -> Iterator[list[str]]:
    """The rows of `width` cells among the first bytes, without the header; of a folder those of its first file."""
    content = source.content[0] if isinstance(source.content, tuple) else source.content
    if isinstance(content, Path) and content.name.lower().endswith(".gz"):
        return
    head = head_of(content)
    lines = io.StringIO(head_text(head, str(form.encoding)), newline="")
    rows = csv_rows(lines, str(form.sep), skipped=int(not is_row(head)))
    for _, cells in islice(rows, int(bool(form.header)), None):
        if len(cells) == width:
            yield cells


def first_words(source: TableSource, form: TextForm, columns: Sequence[str]) -> dict[str, str]:
    """The first word of each column that has one in the first rows."""
    found: dict[str, str] = {}
    for row in islice(head_rows(source, form, len(columns)), _ROWS):
        found |= {c: cell.strip() for c, cell in zip(columns, row) if c not in found and cell.strip()}
        if len(found) == len(columns):
            break
    return found
