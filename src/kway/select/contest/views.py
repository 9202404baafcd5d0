"""Views: the same rows as other numbers, for a family that is the better for it.

Neighbours count every column alike, so a text of a thousand hashes beside a few telling numbers can drown them; a
linear model learns to ignore it. Where a table has text and other columns, neighbours are also scored without the text.

Where rows are images, and not too many, their edges and patches are scored as well: by least squares, which is as good
as softmax there and quicker (digits 0.97, pixels 0.95), or by softmax where probabilities decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from kway.data.features.features import Features
from kway.select.contest.families import FAMILIES, LinearFamily, NeighborsFamily

NO_TEXT = "-no-text"  # ending of the names of families that are given rows without text
SHAPES = "-shapes"  # and of those that are given shapes instead of pixels
_SHARES_OF_SQUARES = (3e-3, 1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6)  # of alphas: columns of shapes are many and alike
_SHARES_OF_SOFTMAX = (1e-3, 1e-4, 1e-5)
_MOST_VALUES = 1.5e7  # pixels of all images: shapes of 10,000 images of 28 x 28 take 3 s
_MOST_SCORES = 2e6  # rows x classes: a pass over 2,000 columns then takes 0.1 s


class View(NamedTuple):
    """Features and what they make of the training rows, X (n, d)."""

    features: Features
    X: Any


class OtherView(NamedTuple):
    """A view, the ending of the names of its families, and these families."""

    ending: str
    view: View
    families: list[Any]


def other_views(whole: Features, rows: Any, n_classes: int, stated: bool) -> Iterator[OtherView]:
    """The views beside the whole one, each made when it is asked for; `stated`: probabilities decide."""
    no_text = without_text(whole, rows)
    if no_text is not None:
        yield OtherView(NO_TEXT, no_text, families_without_text())
    shapes = of_shapes(whole, rows, n_classes)
    if shapes is not None:
        yield OtherView(SHAPES, shapes, families_of_shapes(stated))


def of_shapes(whole: Features, rows: Any, n_classes: int) -> View | None:
    """Edges and patches of images; None where rows are none, or too many."""
    if whole.is_table_ or rows.size > _MOST_VALUES or rows.shape[0] * n_classes > _MOST_SCORES:
        return None
    features = whole.of_shapes(rows)
    return None if features is None else View(features, features.fit_transform(rows))


def families_of_shapes(stated: bool) -> list[LinearFamily]:
    """The linear family for a few thousand dense columns."""
    plain, shares = ("softmax", _SHARES_OF_SOFTMAX) if stated else ("least-squares", _SHARES_OF_SQUARES)
    return [replace(FAMILIES[plain], name=plain + SHAPES, shares=shares)]


def without_text(whole: Features, rows: Any) -> View | None:
    """The rows without their text; None where there is none, or nothing else."""
    if not whole.is_table_:
        return None
    features = whole.without("text")
    return None if features is None else View(features, features.fit_transform(rows))


def families_without_text() -> list[NeighborsFamily]:
    """Neighbours under names of their own."""
    return [replace(f, name=f.name + NO_TEXT) for f in FAMILIES.values() if isinstance(f, NeighborsFamily)]
