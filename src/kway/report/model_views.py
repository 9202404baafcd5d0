"""Figures of a fitted model.

weight_templates     rows of coef_ (R, d) as images (h, w) or (h, w, 3), all on one scale
where_it_looks       drop in accuracy if part of the image is replaced (occlusion), drawn over the mean image
projected_regions    the predictions of a classifier on the plane of the two principal components of its data
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.memory import BLOCK_BYTES, rows_per_block
from kway.report import style
from kway.threads import spans

if TYPE_CHECKING:
    from sklearn.decomposition import PCA


def weight_templates(
    coef: ArrayLike,
    shape: tuple[int, ...],
    labels: ArrayLike | None = None,
    title: str = "What each class looks for",
    max_classes: int = 40,
) -> Figure:
    """Draw the weights of a linear classifier of images.

    Orange pixels are evidence for the class, blue ones against it.

    The scale ends at the 99.5% quantile of |w|, because single border pixels can be much larger than the rest. Color
    images are drawn in color around gray.

    Parameters
    ----------
    coef : array-like of shape (n_classes, n_features)
        Weights. Two classes may have one row, which is the second class against the first.
    shape : tuple of int
        Height and width of the images, and 3 for color images.
    labels : array-like of shape (n_classes,), default=None
        Names of the classes; by default, their numbers.
    title : str
        Title of the figure.
    max_classes : int, default=40
        Maximum number of classes to draw.

    Returns
    -------
    matplotlib.figure.Figure
        The drawn figure.
    """
    w = np.atleast_2d(np.asarray(coef, float))
    if w.shape[1] != int(np.prod(shape)):
        raise InputError(f"coef has {w.shape[1]} features, an image of shape {shape} has {int(np.prod(shape))}")
    names = _template_names(labels, len(w))
    drawn = w[:max_classes]
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
            style.TINY if cell < 1 else style.TEXT,
        )
    more = f" (the first {len(drawn)} of {len(w)})" if len(w) > len(drawn) else ""
    style.headline(figure, title + more)
    if len(shape) == 2:
        bar = figure.colorbar(image, ax=list(grid), shrink=0.75, aspect=28, extend="both", pad=0.015)
        bar.ax.tick_params(labelsize=style.TINY, length=2)
        bar.outline.set_visible(False)
        bar.set_label("weight", fontsize=style.TEXT, color=style.INK)
    return figure


def _template(axes: Any, weights: NDArray, scale: float) -> Any:
    if weights.ndim == 2:
        return axes.imshow(weights, cmap=style.DIVERGING, vmin=-scale, vmax=scale, interpolation="nearest")
    return axes.imshow(np.clip(0.5 + 0.5 * weights / scale, 0, 1), interpolation="nearest")


def _template_names(labels: ArrayLike | None, n_rows: int) -> list[str]:
    names = style.class_names(labels, n_rows)
    if n_rows == 1 and len(names) == 2:
        return [f"{names[1]} against {names[0]}"]
    if len(names) != n_rows:
        raise InputError(f"{len(names)} labels were given for {n_rows} rows of weights; give one per class")
    return names


def where_it_looks(drops: ArrayLike, picture: ArrayLike, min_scale: float = 0.05) -> Figure:
    """Draw which parts of the images the accuracy depends on.

    Parameters
    ----------
    drops : array-like of shape (n_down, n_across)
        Drop in accuracy if this part of the images is replaced; NaN if it was not measured.
    picture : array-like of shape (height, width)
        A gray image to draw behind the drops, such as the mean image.
    min_scale : float, default=0.05
        The color scale ends at the largest drop, or at this drop if all are smaller.

    Returns
    -------
    matplotlib.figure.Figure
        The figure, with the drops in percentage points.
    """
    drops, image = np.asarray(drops, float), np.asarray(picture, float)
    height, width = image.shape
    figure = style.figure(3.6, 3.3 * min(1.6, max(0.6, height / width)) + 0.3)
    axes = figure.subplots()
    extent = (0, width, height, 0)
    axes.imshow(image, cmap="gray_r", extent=extent, interpolation="nearest", alpha=0.55, aspect="auto")
    scale = max(float(np.nanmax(drops, initial=0)), min_scale)
    strength = np.clip(np.nan_to_num(drops) / scale, 0, 1)
    tints = style.ORANGES(0.75 * strength)
    tints[..., 3] = 0.75 * strength
    axes.imshow(tints, extent=extent, interpolation="nearest", aspect="auto")
    down, across = (_part_edges(*sizes) for sizes in zip(image.shape, drops.shape))
    for (i, j), drop in np.ndenumerate(drops):
        x, y = (across[j] + across[j + 1]) / 2, (down[i] + down[i + 1]) / 2
        axes.text(x, y, _percentage_points(-drop), ha="center", va="center", fontsize=style.TEXT, color=style.INK)
    axes.set(xticks=across, yticks=down)
    axes.tick_params(labelsize=style.TINY, length=2)
    return figure


def _part_edges(n_pixels: int, n_parts: int) -> NDArray[np.int64]:
    """Return the first pixel of each part, and the end of the last one."""
    return np.cumsum([0, *map(len, np.array_split(np.arange(n_pixels), n_parts))])


def _percentage_points(change: float) -> str:
    """Return a change of a share, such as "+1.2"; "0" if it rounds to zero, and nothing for NaN."""
    if np.isnan(change):
        return ""
    text = f"{100 * change:+.1f}"
    return "0" if text in ("+0.0", "-0.0") else text.replace("-", "\N{MINUS SIGN}")


# ---- decision regions


def projected_regions(
    model: Any, X: ArrayLike, y: ArrayLike, title: str = "", resolution: int = 240, max_rows: int = 1000
) -> Figure:
    """Draw the predictions of a classifier on the plane of the two principal components of X.

    The plane is a slice through the mean of X. Rows are projected onto it, so a row may lie on the color of another
    class and still be predicted correctly.

    Parameters
    ----------
    model : fitted classifier
        Classifier whose predictions are drawn.
    X : array-like of shape (n_rows, n_features)
        Rows that give the plane.
    y : array-like of shape (n_rows,)
        Their labels.
    title : str, default=""
        Title of the figure; by default, the class of the model.
    resolution : int, default=240
        Points of the raster per side.
    max_rows : int, default=1000
        Maximum number of rows to draw, at even steps.

    Returns
    -------
    matplotlib.figure.Figure
        The drawn figure.
    """
    cut = principal_slice(model, X)
    step = -(-len(np.asarray(y)) // max_rows)
    rows = cut.plane.transform(np.asarray(X, float)[::step])
    figure = style.figure(5.2, 5.9)
    axes = figure.subplots()
    regions = predict_around(cut, rows, np.asarray(y)[::step], resolution)
    draw_regions(axes, regions, len(cut.classes_))
    style.bare(axes)
    style.class_legend(figure, cut.classes_)
    shares = cut.plane.explained_variance_ratio_
    for axis, share, name in zip((axes.xaxis, axes.yaxis), shares, ("first", "second")):
        text = f"{name} principal component, {share:.0%} of the variance"
        axis.set_label_text(text, fontsize=style.TEXT, color=style.INK)
    notes = ["a slice through the mean; rows are projected onto it"] if np.shape(X)[1] > 2 else []
    if (regions.row_codes == len(cut.classes_)).any():
        notes.append("labels that the model does not know are gray")
    style.headline(figure, title or f"{type(model).__name__} on two principal components", "; ".join(notes))
    return figure


class Grid(NamedTuple):
    """A raster over the plane: points (h * w, 2), shape (h, w), and edges (left, right, bottom, top)."""

    points: NDArray[np.float64]
    shape: tuple[int, int]
    extent: tuple[float, float, float, float]


def grid_over(X: NDArray, resolution: int = 400, margin: float = 0.06) -> Grid:
    """Return a square raster that is a little larger than the data (n, 2)."""
    low, high = X.min(axis=0), X.max(axis=0)
    half = (0.5 + margin) * max(float((high - low).max()), 1e-9)  # a square, so that distances are not distorted
    (left, bottom), (right, top) = (low + high) / 2 - half, (low + high) / 2 + half
    x, y = np.linspace(left, right, resolution), np.linspace(bottom, top, resolution)
    points = np.column_stack([axis.ravel() for axis in np.meshgrid(x, y)])
    return Grid(points, (resolution, resolution), (float(left), float(right), float(bottom), float(top)))


class Regions(NamedTuple):
    """Predicted class codes (h, w) of a raster with its edges; rows (n, 2) and their codes (n,), K if unknown."""

    codes: NDArray
    extent: tuple[float, float, float, float]
    rows: NDArray
    row_codes: NDArray


def predict_around(model: Any, X: NDArray, y: NDArray, resolution: int) -> Regions:
    """Predict a raster around the rows X (n, 2), which have labels y (n,)."""
    grid, classes = grid_over(X, resolution), np.asarray(model.classes_)
    codes = np.searchsorted(classes, model.predict(grid.points.astype(X.dtype))).reshape(grid.shape)
    own = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    return Regions(codes, grid.extent, X, np.where(classes[own] == y, own, len(classes)))


def draw_regions(axes: Any, regions: Regions, n_classes: int) -> None:
    """Paint the predictions in pale colors with their borders, and draw the rows on top, gray if unknown."""
    axes.imshow(
        regions.codes, origin="lower", extent=regions.extent, cmap=style.tints(n_classes), vmin=-0.5,
        vmax=n_classes - 0.5, interpolation="nearest",
    )  # fmt: skip
    for c, color in enumerate([*style.class_colors(n_classes), style.MUTED]):
        own, rows = regions.codes == c, regions.rows[regions.row_codes == c]
        if own.any() and not own.all():
            axes.contour(own, levels=[0.5], colors=[color], linewidths=0.9, extent=regions.extent)
        axes.scatter(*rows.T, s=13, c=color, marker=style.class_marker(c), edgecolors="white", linewidths=0.5, zorder=3)


@dataclass(frozen=True, eq=False)
class Slice:
    """A classifier of d features, restricted to the plane of the two principal components of some rows."""

    model: Any
    plane: PCA

    @property
    def classes_(self) -> NDArray:
        """Return the classes of the model."""
        return np.asarray(self.model.classes_)

    def predict(self, points: NDArray) -> NDArray:
        """Predict the labels at points (n, 2) of the plane, in blocks."""
        blocks = spans(len(points), rows_per_block(8 * self.plane.n_features_in_, BLOCK_BYTES))
        return np.concatenate([self.model.predict(self.plane.inverse_transform(points[block])) for block in blocks])


def principal_slice(model: Any, X: ArrayLike) -> Slice:
    """Return the plane through the mean of X (n, d) along its two principal components."""
    rows = np.asarray(X, float)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise InputError(f"two principal components need rows of at least 2 columns, got shape {rows.shape}")
    from sklearn.decomposition import PCA

    return Slice(model, PCA(2, svd_solver="randomized", iterated_power=10, random_state=0).fit(rows))
