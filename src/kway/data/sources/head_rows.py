"""The first rows of a csv cell by cell, as they are written: 2.180e+02 and 0052, before they become numbers."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

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
    text = codecs.getincrementaldecoder(str(form.encoding))("replace").decode(head).removeprefix("\ufeff")
    text = text if is_row(head) else text.partition("\n")[2]
    rows = (row for row in csv.reader(io.StringIO(text, newline=""), delimiter=str(form.sep)) if row)
    with suppress(csv.Error):  # a cell beyond its limit: what came before is enough
        for row in islice(rows, int(bool(form.header)), None):
            if len(row) == width:
                yield row


def first_words(source: TableSource, form: TextForm, columns: Sequence[str]) -> dict[str, str]:
    """The first word of each column that has one in the first rows."""
    found: dict[str, str] = {}
    for row in islice(head_rows(source, form, len(columns)), _ROWS):
        found |= {c: cell.strip() for c, cell in zip(columns, row) if c not in found and cell.strip()}
        if len(found) == len(columns):
            break
    return found
