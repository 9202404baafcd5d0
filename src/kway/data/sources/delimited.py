"""Tables of text -> pyarrow Table: csv and its kin by their form (text_form), JSON lines by their keys.

A csv is parsed again where later rows show what the head did not: bytes that are not UTF-8, a decimal comma.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from kway.data.sources.column_names import refuse_repeated
from kway.data.sources.frames import as_table
from kway.data.sources.ragged import RaggedRow, first_ragged, ragged_error, ragged_note
from kway.data.sources.text_form import (
    HEAD,
    OPEN,
    Settled,
    TextForm,
    encoding_note,
    not_utf8,
    plain_names,
    settle_form,
)
from kway.data.sources.word_gaps import present, trimmed
from kway.data.sources.written_values import are_dotted_thousands, says_comma
from kway.errors import InputError

_WHOLE_FILE = 2**31 - 1  # bytes a block: types are then told from all rows, not from the first megabyte


class OpenedTable(NamedTuple):
    """The table, the form it was read by (OPEN where a file has its own types), and notes in words.

    lacking: of a folder, a file for each column that not every file has.
    """

    table: Any
    form: TextForm = OPEN
    notes: tuple[str, ...] = ()
    lacking: Mapping[str, str] = MappingProxyType({})


class TextWishes(NamedTuple):
    """How a table of text is to be read.

    words: columns kept as written, so that the label 007 does not become 7; asked, before: its form, as a person says
    it and as that of earlier rows was; columns: names that its header, if it has one, holds; only: those taken;
    skip_bad: rows with more or fewer cells than the first are left out.
    """

    words: Sequence[str] = ()
    asked: TextForm = OPEN
    before: TextForm = OPEN
    columns: Sequence[str] = ()
    only: Sequence[str] | None = None
    skip_bad: bool = False


def read_delimited(content: Path | bytes, name: str, wishes: TextWishes) -> OpenedTable:
    """A csv."""
    settled = settle_form(head_of(content), name, wishes.asked, wishes.before, wishes.columns)
    form, notes = settled.form, settled.notes
    source = _Csv(content, name, settled, wishes)
    found = source.parse(replace(form, decimal=form.decimal or "."))
    if found is None:
        form = replace(form, encoding=not_utf8(wishes.before))
        notes = (*notes, encoding_note(str(form.encoding)))
        found = source.parse(replace(form, decimal=form.decimal or "."))
        if found is None:
            raise InputError(f"{name} is neither UTF-8 nor {form.encoding}; say what it is with --encoding")
    table, skipped = found
    refuse_repeated(table.column_names, name)
    if form.decimal is None:
        comma = says_comma(table, tuple(wishes.words))
        form = replace(form, decimal="," if comma else ".")
        if comma:
            notes = (*notes, "numbers have a decimal comma (--decimal . says otherwise)")
            table = source.parse_again(form).table
        elif form.sep == ";":  # where the comma is the mark, as a rule
            notes = (*notes, *(_thousands_note(c) for c in _dotted_columns(table, source, form)))
    return OpenedTable(table, form, (*notes, *([ragged_note(skipped)] if skipped else [])))


def read_json_lines(content: bytes, name: str) -> Any:
    """One JSON object a line, or a list of them; keys are columns, in the order of their first appearance."""
    content = content.removeprefix(b"\xef\xbb\xbf")
    rows = _json_list(content, name) if content.lstrip().startswith(b"[") else _json_rows(content, name)
    keys = dict.fromkeys(key for row in rows for key in row)
    return as_table({key: [row.get(key) for row in rows] for key in keys}, name)


def _json_list(content: bytes, name: str) -> list[Any]:
    try:
        rows = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{name} is not JSON ({error}); write a list of objects, or one object a line") from error
    odd = next((row for row in rows if not isinstance(row, dict)), None)
    if odd is not None:
        raise InputError(f"{name} is a list with {odd!r:.60} in it; write a list of objects, each a row")
    return list(rows)


def _json_rows(content: bytes, name: str) -> list[Any]:
    rows = []
    for i, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {i} of {name} is not JSON ({error}); write one JSON object a line") from error
        if not isinstance(row, dict):
            raise InputError(f"line {i} of {name} is {type(row).__name__}, not an object; write one JSON object a line")
        rows.append(row)
    return rows


def head_of(content: Path | bytes) -> bytes:
    """The first bytes of a file, or of what it held."""
    if isinstance(content, bytes):
        return content[:HEAD]
    with content.open("rb") as file:
        return file.read(HEAD)


def _dotted_columns(table: Any, source: _Csv, form: TextForm) -> list[str]:
    """Columns read as fractions that may be whole numbers with dots between thousands."""
    fractions = [c for c in table.column_names if _in_thousandths(table.column(c))]
    if not fractions:
        return []
    words = source.parse_again(form, fractions, fractions).table
    return [c for c in fractions if are_dotted_thousands(present(trimmed(words.column(c))))]


def _in_thousandths(column: Any) -> bool:
    """Whether fractions are there and each has at most three digits: told without reading the file again."""
    if str(column.type) != "double":
        return False
    values = np.asarray(column.drop_null().to_numpy())
    thousandths = 1000 * values[values != np.floor(values)]
    return thousandths.size > 0 and bool(np.abs(thousandths - np.round(thousandths)).max() < 1e-6)


def _thousands_note(column: str) -> str:
    return (
        f"column {column!r} has three digits behind every dot, read as decimals (--decimal , says that they are "
        "thousands)"
    )


class _Parsed(NamedTuple):
    table: Any
    skipped: int  # rows left out


class _Csv(NamedTuple):
    """A csv whose form is settled but for its encoding and decimal mark."""

    content: Path | bytes
    name: str
    settled: Settled
    wishes: TextWishes

    def parse(
        self, form: TextForm, words: Sequence[str] | None = None, only: Sequence[str] | None = None
    ) -> _Parsed | None:
        """The table, None where it is not in the form's encoding."""
        import pyarrow as pa
        import pyarrow.csv as csv

        words, only = self.wishes.words if words is None else words, self.wishes.only if only is None else only
        convert = csv.ConvertOptions(
            column_types={c: pa.string() for c in words}, decimal_point=form.decimal, include_columns=only
        )
        bad: list[Any] = []

        def seen(row: Any) -> str:
            bad.append(row)
            return "skip" if self.wishes.skip_bad else "error"

        parse = csv.ParseOptions(delimiter=form.sep, newlines_in_values=True, invalid_row_handler=seen)

        def read(**how: Any) -> Any:
            bad.clear()
            encoding = "utf8" if form.encoding == "utf-8" else form.encoding
            reading = csv.ReadOptions(encoding=encoding, skip_rows=self.settled.skipped, **how)
            source = pa.BufferReader(self.content) if isinstance(self.content, bytes) else self.content
            if not form.header:
                reading.column_names = plain_names(len(self.settled.first))
            return csv.read_csv(source, read_options=reading, parse_options=parse, convert_options=convert)

        try:
            table = read()
        except UnicodeDecodeError:
            return None
        except pa.ArrowInvalid as error:
            if "invalid UTF8" in str(error):
                return None
            if bad:
                raise self._ragged(form, bad[0]) from error
            if "conversion error" not in str(error):
                raise
            table = read(block_size=_WHOLE_FILE)  # a later row showed what the first ones did not
        if any(pa.types.is_binary(field.type) for field in table.schema):
            return None
        return _Parsed(table, len(bad))

    def parse_again(
        self, form: TextForm, words: Sequence[str] | None = None, only: Sequence[str] | None = None
    ) -> _Parsed:
        """The table in an encoding that it is known to be in."""
        found = self.parse(form, words, only)
        if found is None:
            raise InputError(f"{self.name} is not {form.encoding} text; say what it is with --encoding")
        return found

    def _ragged(self, form: TextForm, row: Any) -> InputError:
        found = first_ragged(self.content, str(form.encoding), str(form.sep), self.settled.skipped)
        found = found or RaggedRow(row.number or 0, row.actual_columns, row.expected_columns, row.text)
        return ragged_error(self.name, found, str(form.sep))
