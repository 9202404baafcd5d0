"""What a model looks for, as images.

weight_templates   rows of coef_ (R, d) as images (h, w) or (h, w, 3), all on one scale
where_it_looks     what each part of an image costs if it is exchanged, over the mean of the images
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.report import style

_FAINT_FALL = 0.05  # of the accuracy: what costs less is drawn paler than what costs most


def weight_templates(
    coef: ArrayLike,
    shape: tuple[int, ...],
    labels: ArrayLike | None = None,
    title: str = "What each class looks for",
    most: int = 40,
) -> Figure:
    """Rows of `coef` (R, d) as images on one scale: orange pixels speak for the class, blue ones against it.

    At most `most` of them are drawn.

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
    more = f" (the first {len(drawn)} of {len(w)})" if len(w) > len(drawn) else ""
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
