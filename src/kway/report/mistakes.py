"""The wrong predictions of highest confidence with their nearest training rows.

find_mistakes    finds them in the result of a job
find_suspects    returns training rows whose label is probably wrong, in the same form
worst_mistakes   draws them if they are images; the page lists other rows as text
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import kway
from kway.auto.job import JobResult
from kway.auto.reasons import image_form
from kway.report import style
from kway.tables.features.parts import ColumnRecord
from kway.tables.sources.frames import is_table, take_rows
from kway.text_tables import one_line


class Mistake(NamedTuple):
    """A wrong prediction.

    Attributes
    ----------
    query : array of shape (n_features,) or str
        The row: pixels of an image, or a text.
    true, predicted : object
        The label and the prediction.
    neighbors : array of shape (k, n_features) or list of str
        The nearest training rows, nearest first.
    neighbor_labels : sequence of length k
        Their labels.
    distances : sequence of float
        Their distances, if known.
    confidence : float or None
        Probability of the predicted class.
    """

    query: Any
    true: Any
    predicted: Any
    neighbors: Any
    neighbor_labels: Sequence[Any]
    distances: Sequence[float] = ()
    confidence: float | None = None


def find_mistakes(result: JobResult, max_mistakes: int = 6, k: int = 4) -> list[Mistake]:
    """Return the wrong predictions of highest confidence, each with its k nearest training rows.

    If the model gives no probabilities, return its first mistakes.
    """
    y, predicted = result.data.test_y, result.evaluation.predicted
    wrong = np.flatnonzero(predicted != y)
    if result.evaluation.confidence is not None:
        wrong = wrong[np.argsort(-result.evaluation.confidence[wrong], kind="stable")]
    wrong = wrong[:max_mistakes]
    if not len(wrong):
        return []
    distances, nearest = _nearest_training_rows(result, result.test_X[wrong], min(k, result.data.n))
    confidence = None if result.evaluation.confidence is None else result.evaluation.confidence[wrong]
    neighbors = nearest, distances
    return _with_neighbors(result, result.data.test_rows, wrong, neighbors, y[wrong], predicted[wrong], confidence)


def find_suspects(result: JobResult, max_suspects: int = 6, k: int = 4) -> list[Mistake]:
    """Return the training rows whose label is most probably wrong: `true` is the label, `predicted` the suggestion."""
    assert result.wrong_labels is not None
    suspects = result.wrong_labels.suspects.at(slice(max_suspects))
    neighbors = result.wrong_labels.near[:max_suspects, :k], result.wrong_labels.distances[:max_suspects, :k]
    label, suggested = (result.data.labels.classes[codes] for codes in (suspects.label, suspects.suggested))
    return _with_neighbors(result, result.data.rows, suspects.rows, neighbors, label, suggested, suspects.p_suggested)


def _with_neighbors(
    result: JobResult,
    rows: Any,
    selected: NDArray,
    neighbors: tuple[NDArray, NDArray],
    true: NDArray,
    predicted: NDArray,
    confidence: NDArray | None,
) -> list[Mistake]:
    """Return mistakes on the selected rows, with the numbers and distances (m, k) of the nearest training rows."""
    nearest, distances = neighbors
    queries, drawn = _as_drawn(result, rows, selected, nearest)
    return [
        Mistake(
            queries[i],
            str(true[i]),
            str(predicted[i]),
            drawn[i],
            [str(label) for label in result.data.y[nearest[i]].tolist()],
            distances[i].tolist(),
            None if confidence is None else float(confidence[i]),
        )
        for i in range(len(selected))
    ]


def picture_shape(result: JobResult) -> tuple[int, ...] | None:
    """Return (h, w) or (h, w, 3) if the rows are images, or None."""
    form = image_form(result.features, result.data.rows)
    if form is None:
        return None
    return (form.height, form.width) if form.channels == 1 else tuple(form)


def _nearest_training_rows(result: JobResult, queries: Any, k: int) -> tuple[NDArray, NDArray]:
    """Return distances and row numbers (m, k) of the nearest training rows, in the winner's metric if it has one."""
    model = result.best.fitted
    if not hasattr(model, "kneighbors"):
        model = kway.NeighborsClassifier(k).fit(result.X, result.data.y)
    distances, rows = model.kneighbors(queries, k)
    return np.asarray(distances), np.asarray(rows)


def _as_drawn(result: JobResult, rows: Any, selected: NDArray, nearest: NDArray) -> tuple[Any, Any]:
    """Return the selected rows and their nearest training rows as pixels (m, d) and (m, k, d), or as texts."""
    train = result.data.rows
    if picture_shape(result) is not None:
        return rows[selected], train[nearest]
    records = result.features.records_
    queries = rows_as_text(take_rows(rows, selected), records)
    texts = rows_as_text(take_rows(train, nearest.ravel()), records)
    return queries, [texts[i * nearest.shape[1] : (i + 1) * nearest.shape[1]] for i in range(len(selected))]


def rows_as_text(rows: Any, records: Sequence[ColumnRecord] = (), columns: int = 6, length: int = 300) -> list[str]:
    """Return one line per row: its text if the table has one column, else its first columns, texts before others.

    `records` says which columns of a table are used and which of them are texts. A line has the values of at most
    `columns` columns, cut to `length` characters, and ", ..." if there are more columns. Line breaks become spaces.
    """
    if not is_table(rows):
        part = rows[:, :columns]
        dense = part.toarray() if hasattr(part, "toarray") else np.asarray(part)
        more = ", ..." if rows.shape[1] > columns else ""
        return [one_line(", ".join(map(_format_value, line)), length) + more for line in dense.tolist()]
    used = [r.column for r in sorted(records, key=lambda r: r.kind != "text") if r.used] or rows.column_names
    values = {name: rows.column(name).to_pylist() for name in used[:columns]}
    if len(used) == 1:
        return [one_line(v, length) for v in values[used[0]]]
    more = ", ..." if len(used) > columns else ""
    lines = (", ".join(f"{n} {_format_value(v)}" for n, v in zip(values, line)) for line in zip(*values.values()))
    return [one_line(line, length) + more for line in lines]


def _format_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def worst_mistakes(
    mistakes: Sequence[Mistake], shape: tuple[int, ...], title: str = "Worst mistakes and their nearest neighbors"
) -> Figure:
    """Draw mistakes that are images: neighbors with the label `true` are blue, those with `predicted` orange.

    Parameters
    ----------
    mistakes : sequence of Mistake
        Mistakes to draw, one per line; at least one.
    shape : tuple of int
        Height and width of the images, and 3 for color images.
    title : str
        Title of the figure.

    Returns
    -------
    matplotlib.figure.Figure
        The figure.
    """
    k = max(len(m.neighbor_labels) for m in mistakes)
    cell = min((style.FIGURE_WIDTH - 1.9) / (k + 1), 0.95)  # inches
    max_letters = int(cell / 0.07)  # of a title above an image, so that it does not run into the next one
    height = len(mistakes) * (cell * shape[0] / shape[1] + 0.32) + 0.75
    figure = style.figure(width=1.9 + cell * (k + 1), height=height)
    grid = figure.subplots(len(mistakes), k + 2, squeeze=False, width_ratios=[1.55 / cell, *[1] * (k + 1)])
    for line, mistake in zip(grid, mistakes):
        _draw_labels(line[0], mistake)
        _image(line[1], mistake.query, shape, "query", style.INK)
        for axes in line[2 + len(mistake.neighbor_labels) :]:
            axes.set_visible(False)
        for i, (axes, label) in enumerate(zip(line[2:], mistake.neighbor_labels)):
            side = {mistake.true: style.ACCENT, mistake.predicted: style.CONTRAST}.get(label, style.FAINT)
            _image(axes, mistake.neighbors[i], shape, _image_title(mistake, i, max_letters), side)
    style.headline(figure, title, "frames: blue has the true class, orange the predicted class; with the distance")
    return figure


def _image_title(mistake: Mistake, i: int, max_letters: int) -> str:
    """Return the label of a neighbor and its distance, in two lines if one would run into the next image."""
    label = str(mistake.neighbor_labels[i])
    if not len(mistake.distances):
        return style.shorten(label, max_letters)
    distance = f"({mistake.distances[i]:.3g})"
    if len(label) + len(distance) < max_letters:
        return f"{label} {distance}"
    return f"{style.shorten(label, max_letters)}\n{distance}"


def _draw_labels(axes: Any, mistake: Mistake) -> None:
    axes.set_axis_off()
    confidence = "" if mistake.confidence is None else f" ({mistake.confidence:.0%})"
    lines = [
        ("true", style.shorten(mistake.true, 18), style.ACCENT_INK),
        ("predicted", style.shorten(mistake.predicted, 18) + confidence, style.CONTRAST_INK),
    ]
    for i, (name, what, color) in enumerate(lines):
        y = 0.66 - 0.34 * i
        axes.text(0, y, name, fontsize=style.TEXT, color=style.MUTED, va="center", transform=axes.transAxes)
        axes.annotate(what, (0, y), xytext=(50, 0), xycoords="axes fraction", textcoords="offset points",
                      fontsize=style.TEXT, color=color, va="center", annotation_clip=False)  # fmt: skip


def _image(axes: Any, values: Any, shape: tuple[int, ...], title: str, color: str) -> None:
    picture = np.asarray(values, float).reshape(shape)
    low, high = float(picture.min()), float(picture.max())
    if len(shape) == 3:
        picture = picture / 255 if high > 1 else picture
        axes.imshow(np.clip(picture, 0, 1), interpolation="nearest")
    else:
        axes.imshow(picture, cmap="gray_r", vmin=min(low, 0), vmax=max(high, 1e-12), interpolation="nearest")
    style.bare(axes, title, style.TINY)
    for spine in axes.spines.values():
        spine.set(color=color, linewidth=1.8)
