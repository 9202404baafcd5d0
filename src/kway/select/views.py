"""Views: the same rows as other numbers, for a family that is the better for it.

Neighbours count every column alike, so a text of a thousand hashes beside a few telling numbers can drown them; a
linear model learns to ignore it. Where a table has text and other columns, neighbours are also scored without the text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from kway.data.features.features import Features
from kway.select.families import FAMILIES, NeighborsFamily

NO_TEXT = "-no-text"  # ending of the names of families that are given rows without text


class View(NamedTuple):
    """Features and what they make of the training rows, X (n, d)."""

    features: Features
    X: Any


def without_text(whole: Features, rows: Any) -> View | None:
    """The rows without their text; None where there is none, or nothing else."""
    if not whole.is_table_:
        return None
    features = whole.without("text")
    return None if features is None else View(features, features.fit_transform(rows))


def families_without_text() -> list[NeighborsFamily]:
    """Neighbours under names of their own."""
    return [replace(f, name=f.name + NO_TEXT) for f in FAMILIES.values() if isinstance(f, NeighborsFamily)]
