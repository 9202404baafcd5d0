"""Pictures of what a model learned and of what it got wrong.

weight_templates   rows of coef_ (R, d) as images (h, w) or (h, w, 3), one scale for all
where_it_looks     what each part of an image costs when it is exchanged, over the mean of the images
worst_mistakes     each query with its nearest neighbours: images where the inputs are images, otherwise text
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.report import style
from kway.report.mistakes import Mistake


def weight_templates(
    coef: ArrayLike,
    shape: tuple[int, ...],
    labels: ArrayLike | None = None,
    title: str = "What each class looks for",
    most: int = 40,
    of: int | None = None,
) -> Figure:
    """Rows of `coef` (R, d) as images on one scale: orange pixels speak for the class, blue ones against it.

    At most `most` of them; `of` is how many there are, where these are the first.

    Two classes have one row, the second class against the first. Colour images (h, w, 3) are shown in colour around
    grey. The scale ends at the 99.5 % quantile of |w|, as single border pixels can be far larger than the rest.
    """
    w = np.atleast_2d(np.asarray(coef, float))
    if w.shape[1] != int(np.prod(shape)):
        raise InputError(f"coef has {w.shape[1]} features, an image of shape {shape} has {int(np.prod(shape))}")
    names = _template_names(labels, len(w))
    drawn = w[:most]
    scale = max(float(np.quantile(np.abs(drawn), 0.995)), 1e-12)
    columns = min(len(drawn), 5 if len(drawn) <= 10 else 8)
    rows = -(-len(drawn) // columns)
    cell = min((style.FIGURE_WIDTH - 0.9) / columns, 1.8)  # inches
    figure = style.figure(max(columns * cell + 0.9, 3.2), 0.6 + rows * (cell * shape[0] / shape[1] + 0.16))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(drawn) :]:
        axes.set_visible(False)
    for axes, row, name in zip(grid, drawn, names):
        image = _template(axes, row.reshape(shape), scale)
        style.bare(
            axes,
            style.shorten(name, max(int(cell / 0.066), 22 if len(w) == 1 else 0)),
            style.TINY if cell < 1 else style.SMALL,
        )
    every = of or len(w)
    more = f" (the first {len(drawn)} of {every})" if every > len(drawn) else ""
    style.headline(figure, title + more)
    if len(shape) == 2:
        bar = figure.colorbar(image, ax=list(grid), shrink=0.75, aspect=28, extend="both", pad=0.015)
        bar.ax.tick_params(labelsize=style.TINY, length=2)
        bar.outline.set_visible(False)
        bar.set_label("weight", fontsize=style.SMALL, color=style.INK)
    return figure


def _template(axes: Any, weights: NDArray, scale: float) -> Any:
    if weights.ndim == 2:
        return axes.imshow(weights, cmap=style.DIVERGING, vmin=-scale, vmax=scale, interpolation="nearest")
    return axes.imshow(np.clip(0.5 + 0.5 * weights / scale, 0, 1), interpolation="nearest")


def _template_names(labels: ArrayLike | None, n_rows: int) -> list[str]:
    names = style.names_of(labels, n_rows)
    if n_rows == 1 and len(names) == 2:
        return [f"{names[1]} against {names[0]}"]
    if len(names) != n_rows:
        raise InputError(f"{len(names)} labels were given for {n_rows} rows of weights; give one a class")
    return names


def where_it_looks(falls: ArrayLike, picture: ArrayLike, title: str = "Where it looks") -> Figure:
    """Falls of the accuracy (parts down, parts across) as orange panes over a grey `picture` (h, w), in points."""
    lost, seen = np.asarray(falls, float), np.asarray(picture, float)
    figure = style.figure(3.6, 3.3 * min(1.6, max(0.6, seen.shape[0] / seen.shape[1])) + 0.3)
    axes = figure.subplots()
    edges = (0, seen.shape[1], seen.shape[0], 0)
    axes.imshow(seen, cmap="gray_r", extent=edges, interpolation="nearest", alpha=0.55, aspect="auto")
    most = max(float(np.nanmax(lost, initial=0)), _FAINT_FALL)
    tints = style.ORANGES(0.75 * np.clip(np.nan_to_num(lost), 0, None) / most)
    tints[..., 3] = 0.75 * np.clip(np.nan_to_num(lost) / most, 0, 1)
    axes.imshow(tints, extent=edges, interpolation="nearest", aspect="auto")
    down, across = (np.cumsum([0, *map(len, np.array_split(np.arange(n), k))]) for n, k in zip(seen.shape, lost.shape))
    for (i, j), fall in np.ndenumerate(lost):
        words = "" if np.isnan(fall) else f"{-100 * fall:+.1f}".replace("-", "\N{MINUS SIGN}")
        words = "0" if words in ("+0.0", "\N{MINUS SIGN}0.0") else words
        axes.text((across[j] + across[j + 1]) / 2, (down[i] + down[i + 1]) / 2, words, ha="center", va="center",
                  fontsize=style.SMALL, color=style.INK)  # fmt: skip
    axes.set(xticks=across, yticks=down)
    axes.tick_params(labelsize=style.TINY, length=2)
    if title:
        style.headline(figure, title)
    return figure


def worst_mistakes(
    mistakes: Sequence[Mistake],
    shape: tuple[int, ...] | None = None,
    title: str = "Worst mistakes and their nearest neighbours",
) -> Figure:
    """A line a mistake: the query, then its neighbours: blue, of the true class; orange, of the predicted one.

    `shape` (h, w) or (h, w, 3) draws images; without it queries and neighbours are written.
    """
    mistakes = [Mistake(*mistake) for mistake in mistakes]  # plain lists where another process found them
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


_FAINT_FALL = 0.05  # of the accuracy: what costs less is drawn paler than what costs most
_HEADING = 62  # letters of a bold line that fit


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
    if len(whole) <= _HEADING:
        return [style.literal(whole)]
    room = _HEADING - len(f"was called {sure}")
    return [f"is {style.shorten(m.true, room)},", f"was called {style.shorten(m.predicted, room)}{sure}"]


def _labelled(label: str, words: str, colour: str) -> list[_Line]:
    parts = _wrapped(words)
    return [_Line(label if i == 0 else "", part, colour) for i, part in enumerate(parts)]


def _wrapped(text: str, width: int = 66, most: int = 3) -> list[str]:
    """The text in at most `most` lines of `width` characters."""
    return [style.literal(part) for part in textwrap.wrap(text, width, max_lines=most, placeholder=" …")] or [""]


def _in_words(row: Any) -> str:
    """A row as text: texts as they are, numbers in a list."""
    values = np.asarray(row)
    return ", ".join(f"{v:.3g}" for v in values.ravel()) if values.dtype.kind in "iuf" else str(row)
