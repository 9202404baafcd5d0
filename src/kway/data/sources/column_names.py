"""Columns by name: those that are not there and those that are there twice, said in words."""

from __future__ import annotations

from collections.abc import Sequence

from kway.data.suggest import listing, nearest
from kway.errors import InputError, UsageError


def refuse_repeated(columns: Sequence[str], name: str) -> None:
    """A header that names two columns alike leaves open which one is meant."""
    repeated = sorted({c for c in columns if columns.count(c) > 1}) if len(set(columns)) < len(columns) else []
    if repeated:
        raise InputError(f"{name} has more than one column named {listing(repeated)}; give each its own name")


def refuse_unknown(
    column: str, columns: Sequence[str], name: str, what: str, error: type[InputError] = UsageError
) -> None:
    """An error that offers the nearest name, where a table has no such column; by default one that a person named."""
    if column not in columns:
        raise error(
            f"{name} has no {what} column {column!r}{nearest(column, columns)}; its columns are {listing(columns)}"
        )
