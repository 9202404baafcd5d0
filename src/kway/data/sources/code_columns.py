"""Columns of a csv that hold codes such as 0052: told before they become numbers, and lose their zeros."""

from __future__ import annotations

import re
from typing import Any

from kway.data.sources.head_rows import head_rows
from kway.data.sources.table_files import TableSource, open_table
from kway.data.sources.text_form import TextForm
from kway.data.sources.word_gaps import present, trimmed
from kway.data.sources.written_values import are_codes


def code_columns(source: TableSource, table: Any, form: TextForm, skip_bad: bool) -> list[str]:
    """Of a table as it was read, the columns of whole numbers that are codes where they are written."""
    whole = [c for c in table.column_names if str(table.schema.field(c).type) == "int64"]
    padded = _with_zeros(source, form, table.column_names) if whole else set()
    maybe = [c for c in whole if c in padded]
    if not maybe:
        return []
    words = open_table(source, maybe, form, only=maybe, skip_bad=skip_bad).table
    return [c for c in maybe if are_codes(present(trimmed(words.column(c))))]


def _with_zeros(source: TableSource, form: TextForm, columns: list[str]) -> set[str]:
    """The columns that have a leading zero in the first rows: few files have one, and only these are read again."""
    rows = head_rows(source, form, len(columns))
    return {name for row in rows for name, cell in zip(columns, row) if _ZERO.match(cell)}


_ZERO = re.compile(r"\s*0[0-9]+\s*$")
