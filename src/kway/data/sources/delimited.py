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

from kway.data.sources.column_names import refuse_repeated
from kway.data.sources.frames import as_table
from kway.data.sources.text_form import HEAD, OPEN, TextForm, encoding_note, not_utf8, plain_names, settle_form
from kway.data.sources.written import says_comma
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


def read_delimited(
    content: Path | bytes, name: str, words: Sequence[str] = (), asked: TextForm = OPEN, before: TextForm = OPEN,
    columns: Sequence[str] = (), only: Sequence[str] | None = None,
) -> OpenedTable:  # fmt: skip
    """A csv; `words` are columns kept as written, so that the label 007 does not become 7; `only` some are taken."""
    form, first, notes = settle_form(_head(content), name, asked, before, columns)
    table = _parse(content, replace(form, decimal=form.decimal or "."), first, words, only)
    if table is None:
        form = replace(form, encoding=not_utf8(before))
        notes = (*notes, encoding_note(str(form.encoding)))
        table = _parse(content, replace(form, decimal=form.decimal or "."), first, words, only)
        if table is None:
            raise InputError(f"{name} is neither UTF-8 nor {form.encoding}; say what it is with --encoding")
    refuse_repeated(table.column_names, name)
    if form.decimal is None:
        comma = says_comma(table, tuple(words))
        form = replace(form, decimal="," if comma else ".")
        if comma:
            notes = (*notes, "numbers have a decimal comma (--decimal . says otherwise)")
            table = _parse(content, form, first, words, only)
    return OpenedTable(table, form, notes)


def read_json_lines(content: bytes, name: str) -> Any:
    """One JSON object a line; keys are columns, in the order of their first appearance."""
    rows = []
    for i, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"line {i} of {name} is not JSON ({error}); write one JSON object a line") from error
        if not isinstance(row, dict):
            raise InputError(f"line {i} of {name} is {type(row).__name__}, not an object; write one JSON object a line")
        rows.append(row)
    keys = dict.fromkeys(key for row in rows for key in row)
    return as_table({key: [row.get(key) for row in rows] for key in keys}, name)


def _head(content: Path | bytes) -> bytes:
    if isinstance(content, bytes):
        return content[:HEAD]
    with content.open("rb") as file:
        return file.read(HEAD)


def _parse(
    content: Path | bytes, form: TextForm, first: Sequence[str], words: Sequence[str], only: Sequence[str] | None
) -> Any:
    """The table, None where it is not in the form's encoding."""
    import pyarrow as pa
    import pyarrow.csv as csv

    names = None if form.header else plain_names(len(first))
    convert = csv.ConvertOptions(
        column_types={c: pa.string() for c in words}, decimal_point=form.decimal, include_columns=only
    )
    parse = csv.ParseOptions(delimiter=form.sep, newlines_in_values=True)

    def read(**how: Any) -> Any:
        reading = csv.ReadOptions(encoding="utf8" if form.encoding == "utf-8" else form.encoding, **how)
        source = pa.BufferReader(content) if isinstance(content, bytes) else content
        if names is not None:
            reading.column_names = names
        return csv.read_csv(source, read_options=reading, parse_options=parse, convert_options=convert)

    try:
        table = read()
    except UnicodeDecodeError:
        return None
    except pa.ArrowInvalid as error:
        if "invalid UTF8" in str(error):
            return None
        if "conversion error" not in str(error):
            raise
        table = read(block_size=_WHOLE_FILE)  # a later row showed what the first ones did not
    if any(pa.types.is_binary(field.type) for field in table.schema):
        return None
    return table
