"""The test rows of which a model was surest and wrong, with their nearest training rows, as images or in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import kway
from kway.data.sources.frames import is_table, take_rows

if TYPE_CHECKING:  # whoever draws mistakes needs none of what finds them
    from kway.select.job import JobResult

MISTAKES_SHOWN, NEIGHBORS_SHOWN = 6, 4
_COLUMNS, _LETTERS = 6, 90  # of a row in words


class Mistake(NamedTuple):
    """A row that was called wrongly, with its nearest training rows, the nearest first.

    query (d,) and neighbors (k, d) are numbers where inputs are images, and strings where they are texts.
    """

    query: Any
    true: Any
    predicted: Any
    neighbors: Any
    neighbor_labels: Sequence[Any]
    distances: Sequence[float] = ()
    confidence: float | None = None


def find_mistakes(found: JobResult, most: int = MISTAKES_SHOWN, k: int = NEIGHBORS_SHOWN) -> list[Mistake]:
    """The `most` wrong rows of highest confidence (the first ones where the model has none), the surest first."""
    y, predicted = found.parts.test_y, found.evaluation.predicted
    wrong = np.flatnonzero(predicted != y)
    if found.evaluation.confidence is not None:
        wrong = wrong[np.argsort(-found.evaluation.confidence[wrong], kind="stable")]
    wrong = wrong[:most]
    distances, near = _nearest_training_rows(found, found.test_X[wrong], min(k, found.parts.n))
    queries, around = _shown(found, wrong, near)
    sure = found.evaluation.confidence
    return [
        Mistake(
            queries[i],
            str(y[row]),
            str(predicted[row]),
            around[i],
            [str(label) for label in found.parts.y[near[i]].tolist()],
            distances[i].tolist(),
            None if sure is None else float(sure[row]),
        )
        for i, row in enumerate(wrong)
    ]


def picture_shape(found: JobResult) -> tuple[int, ...] | None:
    """(h, w) or (h, w, 3) where the rows are images: known to be, or bytes that fill a square."""
    form = found.parts.image
    rows = found.parts.rows
    if form is not None:
        shape: tuple[int, ...] = (form.height, form.width) if form.channels == 1 else tuple(form)
        return shape if rows.shape[1] == math.prod(shape) else None
    side = math.isqrt(rows.shape[1]) if getattr(rows, "dtype", None) == np.uint8 else 0
    return (side, side) if side >= 8 and side * side == rows.shape[1] else None


def _nearest_training_rows(found: JobResult, queries: Any, k: int) -> tuple[NDArray, NDArray]:
    """Distances and row numbers (m, k) of the nearest training rows, in the winner's metric where it has one."""
    model = found.best.model
    if not hasattr(model, "kneighbors"):
        model = kway.NeighborsClassifier(k).fit(found.X, found.parts.y)
    distances, rows = model.kneighbors(queries, k)
    return np.asarray(distances), np.asarray(rows)


def _shown(found: JobResult, wrong: NDArray, near: NDArray) -> tuple[Any, Any]:
    """Queries and neighbours as they are drawn: pixels (m, d) and (m, k, d), or words."""
    train, test = found.parts.rows, found.parts.test_rows
    if picture_shape(found) is not None:
        return test[wrong], train[near]
    asked = rows_in_words(take_rows(test, wrong))
    flat = rows_in_words(take_rows(train, near.ravel()))
    return asked, [flat[i * near.shape[1] : (i + 1) * near.shape[1]] for i in range(len(wrong))]


def rows_in_words(rows: Any) -> list[str]:
    """A line a row: its text where the table is one column, else its first columns."""
    if is_table(rows):
        columns = {name: rows.column(name).to_pylist() for name in rows.column_names[:_COLUMNS]}
        if rows.num_columns == 1:
            return [_first_letters(str(v)) for v in next(iter(columns.values()))]
        more = ", ..." if rows.num_columns > _COLUMNS else ""
        lines = zip(*columns.values())
        return [
            _first_letters(", ".join(f"{n} {_value_in_words(v)}" for n, v in zip(columns, line))) + more
            for line in lines
        ]
    some = rows[:, :_COLUMNS]
    dense = some.toarray() if hasattr(some, "toarray") else np.asarray(some)
    more = ", ..." if rows.shape[1] > _COLUMNS else ""
    return [", ".join(_value_in_words(v) for v in line) + more for line in dense.tolist()]


def _value_in_words(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _first_letters(text: str) -> str:
    return text if len(text) <= _LETTERS else text[: _LETTERS - 3] + "..."
