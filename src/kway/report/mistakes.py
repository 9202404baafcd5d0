"""The wrong test rows of highest confidence, with their nearest training rows, as images or in words.

find_mistakes    looks for them in the result of a job
worst_mistakes   draws them
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import kway
from kway.auto.job import JobResult
from kway.report import style
from kway.tables.sources.frames import is_table, take_rows

MISTAKES_SHOWN, NEIGHBORS_SHOWN = 6, 4
_COLUMNS, _LETTERS = 6, 90  # of a row in words
_LINE = 62  # letters of a line of the figure that fit


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
    y, predicted = found.data.test_y, found.evaluation.predicted
    wrong = np.flatnonzero(predicted != y)
    if found.evaluation.confidence is not None:
        wrong = wrong[np.argsort(-found.evaluation.confidence[wrong], kind="stable")]
    wrong = wrong[:most]
    distances, near = _nearest_training_rows(found, found.test_X[wrong], min(k, found.data.n))
    queries, around = _shown(found, wrong, near)
    sure = found.evaluation.confidence
    return [
        Mistake(
            queries[i],
            str(y[row]),
            str(predicted[row]),
            around[i],
            [str(label) for label in found.data.y[near[i]].tolist()],
            distances[i].tolist(),
            None if sure is None else float(sure[row]),
        )
        for i, row in enumerate(wrong)
    ]


def picture_shape(found: JobResult) -> tuple[int, ...] | None:
    """(h, w) or (h, w, 3) where the rows are images: known to be, or bytes that fill a square."""
    form = found.data.image
    rows = found.data.rows
    if form is not None:
        shape: tuple[int, ...] = (form.height, form.width) if form.channels == 1 else tuple(form)
        return shape if rows.shape[1] == math.prod(shape) else None
    side = math.isqrt(rows.shape[1]) if getattr(rows, "dtype", None) == np.uint8 else 0
    return (side, side) if side >= 8 and side * side == rows.shape[1] else None


def _nearest_training_rows(found: JobResult, queries: Any, k: int) -> tuple[NDArray, NDArray]:
    """Distances and row numbers (m, k) of the nearest training rows, in the winner's metric where it has one."""
    model = found.best.fitted
    if not hasattr(model, "kneighbors"):
        model = kway.NeighborsClassifier(k).fit(found.X, found.data.y)
    distances, rows = model.kneighbors(queries, k)
    return np.asarray(distances), np.asarray(rows)


def _shown(found: JobResult, wrong: NDArray, near: NDArray) -> tuple[Any, Any]:
    """Queries and neighbours as they are drawn: pixels (m, d) and (m, k, d), or words."""
    train, test = found.data.rows, found.data.test_rows
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


def worst_mistakes(
    mistakes: Sequence[Mistake],
    shape: tuple[int, ...] | None = None,
    title: str = "Worst mistakes and their nearest neighbours",
) -> Figure:
    """A line a mistake: the query, then its neighbours: blue, of the true class; orange, of the predicted one.

    `shape` (h, w) or (h, w, 3) draws images; without it queries and neighbours are written.
    """
    if not mistakes:
        figure = style.figure(height=1.6)
        style.say_empty(style.bare(figure.subplots(), ""), "no mistakes")
        style.headline(figure, title)
        return figure
    return _as_text(mistakes, title) if shape is None else _as_images(mistakes, shape, title)


def _side(label: Any, mistake: Mistake, true: str, predicted: str, other: str) -> str:
    """The colour of a neighbour: whose side its label takes."""
    return true if label == mistake.true else predicted if label == mistake.predicted else other


def _as_images(mistakes: Sequence[Mistake], shape: tuple[int, ...], title: str) -> Figure:
    k = max(len(m.neighbor_labels) for m in mistakes)
    cell = min((style.FIGURE_WIDTH - 1.9) / (k + 1), 0.95)  # inches
    letters = int(cell / 0.07)  # that stand above an image without running into the next
    height = len(mistakes) * (cell * shape[0] / shape[1] + 0.32) + 0.75
    figure = style.figure(width=1.9 + cell * (k + 1), height=height)
    grid = figure.subplots(len(mistakes), k + 2, squeeze=False, width_ratios=[1.55 / cell, *[1] * (k + 1)])
    for line, mistake in zip(grid, mistakes):
        _draw_answer(line[0], mistake)
        _image(line[1], mistake.query, shape, "query", style.INK)
        for axes in line[2 + len(mistake.neighbor_labels) :]:
            axes.set_visible(False)
        for i, (axes, label) in enumerate(zip(line[2:], mistake.neighbor_labels)):
            side = _side(label, mistake, style.ACCENT, style.CONTRAST, style.FAINT)
            _image(axes, mistake.neighbors[i], shape, _above(mistake, i, letters), side)
    style.headline(figure, title, "frames: blue, of the true class; orange, of the predicted one; with the distance")
    return figure


def _above(mistake: Mistake, i: int, letters: int) -> str:
    """The label of a neighbour and its distance, in two lines where one would run into the next image."""
    label = str(mistake.neighbor_labels[i])
    if not len(mistake.distances):
        return style.shorten(label, letters)
    far = f"({mistake.distances[i]:.3g})"
    return f"{label} {far}" if len(label) + len(far) < letters else f"{style.shorten(label, letters)}\n{far}"


def _draw_answer(axes: Any, mistake: Mistake) -> None:
    axes.set_axis_off()
    sure = "" if mistake.confidence is None else f" ({mistake.confidence:.0%} sure)"
    lines = [
        ("is", style.shorten(mistake.true, 18), style.ACCENT_INK),
        ("called", style.shorten(mistake.predicted, 18) + sure, style.CONTRAST_INK),
    ]
    for i, (verb, what, colour) in enumerate(lines):
        y = 0.66 - 0.34 * i
        axes.text(0, y, f"{verb} ", fontsize=style.SMALL, color=style.MUTED, va="center", transform=axes.transAxes)
        axes.annotate(what, (0, y), xytext=(36, 0), xycoords="axes fraction", textcoords="offset points",
                      fontsize=style.LABEL, color=colour, va="center", annotation_clip=False)  # fmt: skip


def _image(axes: Any, values: Any, shape: tuple[int, ...], title: str, colour: str) -> None:
    picture = np.asarray(values, float).reshape(shape)
    low, high = float(picture.min()), float(picture.max())
    if len(shape) == 3:
        picture = picture / 255 if high > 1 else picture
        axes.imshow(np.clip(picture, 0, 1), interpolation="nearest")
    else:
        axes.imshow(picture, cmap="gray_r", vmin=min(low, 0), vmax=max(high, 1e-12), interpolation="nearest")
    style.bare(axes, title, style.TINY)
    for spine in axes.spines.values():
        spine.set(color=colour, linewidth=1.8)


class _Line(NamedTuple):
    """A line of the written form: a label to the left, words to the right; a heading has no label."""

    label: str
    words: str
    colour: str = style.MUTED
    heading: bool = False


def _as_text(mistakes: Sequence[Mistake], title: str) -> Figure:
    """Each mistake as a paragraph: the verdict, the query, then a line a neighbour."""
    lines = [line for mistake in mistakes for line in _paragraph(mistake)][:-1]
    figure = style.figure(height=0.75 + 0.185 * len(lines))
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set(xlim=(0, 1), ylim=(len(lines), 0))
    # lines are cut to fit the axes: measuring each took half of the drawing
    within: dict[str, Any] = {"va": "top", "in_layout": False}
    for row, line in enumerate(lines):
        if line.heading:
            axes.text(0, row, line.words, fontsize=style.LABEL, color=style.INK, fontweight="bold", **within)
            continue
        axes.text(0.27, row, line.label, fontsize=style.SMALL, ha="right", color=line.colour, **within)
        axes.text(0.29, row, line.words, fontsize=style.SMALL, color=style.INK, **within)
    style.headline(figure, title, "labels: blue, of the true class; orange, of the predicted one; with the distance")
    return figure


def _paragraph(m: Mistake) -> list[_Line]:
    sure = "" if m.confidence is None else f", {m.confidence:.0%} sure"
    lines = [_Line("", words, heading=True) for words in _verdict(m, sure)]
    lines += _labelled("query", _in_words(m.query), style.MUTED)
    for i, label in enumerate(m.neighbor_labels):
        far = f"  ({m.distances[i]:.3g})" if len(m.distances) else ""
        side = _side(label, m, style.ACCENT_INK, style.CONTRAST_INK, style.MUTED)
        lines += _labelled(style.shorten(label, 22), f"{_in_words(m.neighbors[i])}{far}", side)
    return [*lines, _Line("", "")]


def _verdict(m: Mistake, sure: str) -> list[str]:
    """One line, or two where the names of the classes are long."""
    whole = f"is {m.true}, was called {m.predicted}{sure}"
    if len(whole) <= _LINE:
        return [style.literal(whole)]
    room = _LINE - len(f"was called {sure}")
    return [f"is {style.shorten(m.true, room)},", f"was called {style.shorten(m.predicted, room)}{sure}"]


def _labelled(label: str, words: str, colour: str) -> list[_Line]:
    parts = _wrapped(words)
    return [_Line(label if i == 0 else "", part, colour) for i, part in enumerate(parts)]


def _wrapped(text: str, most: int = 3) -> list[str]:
    """The text in at most `most` lines."""
    return [style.literal(part) for part in textwrap.wrap(text, _LINE, max_lines=most, placeholder=" …")] or [""]


def _in_words(row: Any) -> str:
    """A row as text: texts as they are, numbers in a list."""
    values = np.asarray(row)
    return ", ".join(f"{v:.3g}" for v in values.ravel()) if values.dtype.kind in "iuf" else str(row)
