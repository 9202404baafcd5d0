"""Columns by name: those that are not there and those that are there twice, said in words."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kway.data.suggest import listing, nearest
from kway.errors import InputError, UsageError

_SEPARATORS = (";", "\t", "|", ",")


def refuse_repeated(columns: Sequence[str], name: str) -> None:
    """A header that names two columns alike leaves open which one is meant."""
    repeated = sorted({c for c in columns if columns.count(c) > 1}) if len(set(columns)) < len(columns) else []
    if repeated:
        raise InputError(f"{name} has more than one column named {listing(repeated)}; give each its own name")


def refuse_unknown(
    column: str, columns: Sequence[str], name: str, what: str, error: type[InputError] = UsageError
) -> None:
    """An error that offers the nearest name, or the option that would settle it, where there is no such column.

    By default it is one that a person named.
    """
    if column in columns:
        return
    said = f"{name} has no {what} column {column!r}"
    uncut = next((sep for sep in _SEPARATORS if len(columns) == 1 and sep in columns[0]), None)
    if uncut is not None:
        shown = "tab" if uncut == "\t" else f'"{uncut}"'
        raise error(f"{said}; its only column is {columns[0]!r}: is it to be cut, by --sep {shown}?")
    known = f"{said}{nearest(column, columns)}; its columns are {listing(columns)}"
    if re.fullmatch("c[0-9]+", column) and not all(re.fullmatch("c[0-9]+", c) for c in columns):
        raise error(f"{known}, as its first row says; where that is no header, say --no-header")
    raise error(known)
