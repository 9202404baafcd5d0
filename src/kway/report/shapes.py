"""The shape of a column: how the probabilities change if the column is set to other values (partial dependence).

    f_c(v) = mean_i p_c(x_i with column j set to v)        over a sample of test rows i [1]_

The values of a number are quantiles of the test rows; those of a category are its most frequent levels.

References
----------
.. [1] J. Friedman (2001), Greedy function approximation: a gradient boosting machine. Annals of Statistics 29.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kway.auto.race.folds import FEW_ROWS
from kway.report import style
from kway.rows.blocks import take_rows
from kway.tables.sources.frames import n_rows

_MAX_VALUES = 10  # values per column: enough to show a step, and as many levels as fit on an axis


class Shape(NamedTuple):
    """Values (v,) of a column, and mean probabilities (v, K)."""

    column: str
    values: NDArray
    p: NDArray[np.float64]

    @property
    def is_number(self) -> bool:
        """Whether the values lie on a line."""
        return self.values.dtype.kind in "fiu"


def column_shapes(model: Any, rows: Any, columns: list[str]) -> list[Shape]:
    """Return the shapes of the named columns of a table, or of x0, x1, ... of a matrix."""
    rows = take_rows(rows, np.arange(n_rows(rows))[:: max(1, n_rows(rows) // FEW_ROWS)])
    shapes = []
    for column in columns:
        values = _values(_column(rows, column))
        if len(values) > 1:
            p = [np.asarray(model.predict_proba(_with(rows, column, v)), float).mean(axis=0) for v in values.tolist()]
            shapes.append(Shape(column, values, np.array(p)))
    return shapes


def _column(rows: Any, column: str) -> NDArray:
    if not hasattr(rows, "column_names"):
        return np.asarray(rows[:, int(column[1:])])
    return np.asarray(rows.column(column).drop_null().to_pylist())


def _values(column: NDArray) -> NDArray:
    """Return quantiles of a column of numbers, or the most frequent levels of a category."""
    if column.dtype.kind in "fiu":
        column = column[np.isfinite(column)]
        levels = np.quantile(column, np.linspace(0.02, 0.98, _MAX_VALUES), method="nearest") if len(column) else column
        return np.unique(levels)
    levels, counts = np.unique(column.astype(str), return_counts=True) if column.dtype.kind in "OU" else ([], [])
    return np.asarray(levels)[np.argsort(-np.asarray(counts), kind="stable")[:_MAX_VALUES]]


def _with(rows: Any, column: str, value: Any) -> Any:
    """Return the rows with a column set to one value."""
    if not hasattr(rows, "column_names"):
        changed = np.array(rows)
        changed[:, int(column[1:])] = value
        return changed
    import pyarrow as pa

    index = rows.column_names.index(column)
    constant = pa.array([value] * rows.num_rows).cast(rows.column(column).type)
    return rows.set_column(index, column, constant)


def draw_shapes(shapes: list[Shape], classes: NDArray, max_classes: int = 4) -> Figure:
    """Draw one panel per column, with one line for each of the classes whose probabilities change most."""
    change = np.max([shape.p.max(axis=0) - shape.p.min(axis=0) for shape in shapes], axis=0)  # (K,)
    drawn = np.sort(np.argsort(-change, kind="stable")[:max_classes])
    figure = style.figure(width=2.6 * len(shapes) + 0.6, height=3.0)
    panels = np.atleast_1d(figure.subplots(1, len(shapes), sharey=True))
    for axes, shape in zip(panels, shapes):
        style.dress(axes, style.shorten(shape.column), "", "probability" if axes is panels[0] else "", grid="y")
        x = shape.values if shape.is_number else np.arange(len(shape.values))
        for color, c in zip(style.PALETTE, drawn):
            axes.plot(x, shape.p[:, c], color=color, marker="o", markersize=3, label=style.shorten(classes[c], 16))
        if not shape.is_number:
            axes.set_xticks(x, [style.shorten(level, 12) for level in shape.values], rotation=30, ha="right")
        axes.set_ylim(0, None)
    style.legend(panels[-1])
    return figure
