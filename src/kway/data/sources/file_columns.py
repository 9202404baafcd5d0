"""Files of one folder as one table: which of them lacks a column, or has another kind of values in it, by name.

What nobody asks for may differ from file to file: `lacking` is for whoever takes the columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kway.data.sources.arrow_types import is_date, is_number, is_text
from kway.errors import InputError


class FileTable(NamedTuple):
    """The table of one file, or of a piece of it, and the file's name as messages say it."""

    file: str
    table: Any


class FolderTable(NamedTuple):
    """All rows, and a file for each column that not every file has."""

    table: Any
    lacking: Mapping[str, str]


def joined_files(parts: Sequence[FileTable], name: str) -> FolderTable:
    """The tables of the files of a folder as one, in their order."""
    import pyarrow as pa

    lacking: dict[str, str] = {}
    everything = list(dict.fromkeys(c for part in parts for c in part.table.column_names))
    for part in parts:
        here = set(part.table.column_names)
        lacking |= {c: part.file for c in everything if c not in here and c not in lacking}
    try:
        table = pa.concat_tables([part.table for part in parts], promote_options="permissive")
    except pa.ArrowException as error:
        for part in parts[1:]:
            refuse_other_kinds(parts[0], part, everything)
        raise InputError(f"the files of {name} do not have the same columns: {error}") from error
    return FolderTable(table, lacking)


def refuse_lacking(columns: Sequence[str], lacking: Mapping[str, str]) -> None:
    """An error that names the file, where one lacks a column that is to be read."""
    for column in columns:
        if column in lacking:
            raise InputError(
                f"{lacking[column]} has no column {column!r}, which other files have; "
                "add it there, or drop it from all (--drop)"
            )


def refuse_other_kinds(first: FileTable, other: FileTable, columns: Sequence[str]) -> None:
    """An error that names file and column, where one of the columns holds another kind of values than at first."""
    for column in columns:
        kinds = [_kind(part.table.schema.field(column).type) for part in (first, other) if _has(part, column)]
        if len(kinds) == 2 and None not in kinds and kinds[0] != kinds[1]:
            raise InputError(
                f"column {column!r} holds {kinds[1]} in {other.file} and {kinds[0]} in {first.file}, so the files do "
                "not have the same columns; write it alike in all"
            )


def _has(part: FileTable, column: str) -> bool:
    return column in part.table.column_names


def _kind(kind: Any) -> str | None:
    """What a column holds, in a word; None where it is empty."""
    import pyarrow.types as kinds

    if kinds.is_dictionary(kind):
        kind = kind.value_type
    if kinds.is_null(kind):
        return None
    names = {"numbers": is_number, "text": is_text, "dates": is_date, "true and false": kinds.is_boolean}
    return next((name for name, holds in names.items() if holds(kind)), "lists" if kinds.is_nested(kind) else str(kind))
