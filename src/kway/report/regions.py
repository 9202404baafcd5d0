"""What a classifier predicts everywhere on a plane.

decision_regions     a classifier of two features around its data
projected_regions    a classifier of any number of features, on the plane of the two principal components of its data
draw_regions         the predictions of answers_around on given axes
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.memory import BLOCK_BYTES, rows_per_block
from kway.report import style


def decision_regions(model: Any, X: ArrayLike, y: ArrayLike, title: str = "", resolution: int = 400) -> Any:
    """The answer of a fitted classifier everywhere around its 2-D data."""
    X, y = _plane_points(X), np.asarray(y)
    figure = style.figure(5.2, 5.9)
    axes = figure.subplots()
    draw_regions(axes, answers_around(model, X, y, resolution), len(model.classes_))
    style.bare(axes)
    style.class_legend(figure, model.classes_)
    if title:
        style.headline(figure, title)
    return figure


def projected_regions(
    model: Any, X: ArrayLike, y: ArrayLike, title: str = "", resolution: int = 240, most: int = 1000
) -> Figure:
    """What a classifier of any number of features answers on the plane of the two principal components of X.

    The plane is one slice through the mean; rows are shown by their shadow on it, so a row may lie on another class's
    colour and still be right. At most `most` rows are drawn, at even steps.
    """
    cut = projected_answers(model, X, y, resolution, most)
    return plane_regions(**cut, title=title or f"{type(model).__name__} on two principal components")


class Grid(NamedTuple):
    """A raster over the plane: points (h * w, 2), its shape (h, w), and the edges (left, right, bottom, top)."""

    points: NDArray[np.float64]
    shape: tuple[int, int]
    extent: tuple[float, float, float, float]


def grid_over(X: NDArray, resolution: int = 400, margin: float = 0.06) -> Grid:
    """A raster a little larger than the data (n, 2)."""
    low, high = X.min(axis=0), X.max(axis=0)
    half = (0.5 + margin) * max(float((high - low).max()), 1e-9)  # as wide as high: distances look as they are
    (left, bottom), (right, top) = (low + high) / 2 - half, (low + high) / 2 + half
    x, y = np.linspace(left, right, resolution), np.linspace(bottom, top, resolution)
    points = np.column_stack([axis.ravel() for axis in np.meshgrid(x, y)])
    return Grid(points, (resolution, resolution), (float(left), float(right), float(bottom), float(top)))


class Answers(NamedTuple):
    """Class codes (h, w) of a raster with its edges; rows (n, 2) and their codes (n,), K if their class is unknown."""

    codes: NDArray
    extent: tuple[float, float, float, float]
    rows: NDArray
    row_codes: NDArray


def answers_around(model: Any, X: NDArray, y: NDArray, resolution: int) -> Answers:
    """What a fitted classifier answers everywhere around its rows X (n, 2) with labels y (n,)."""
    grid, classes = grid_over(X, resolution), np.asarray(model.classes_)
    codes = np.searchsorted(classes, model.predict(grid.points.astype(X.dtype))).reshape(grid.shape)
    own = np.minimum(np.searchsorted(classes, y), len(classes) - 1)
    small = np.min_scalar_type(len(classes))
    own = np.where(classes[own] == y, own, len(classes))
    return Answers(codes.astype(small), grid.extent, X, own.astype(small))


def draw_regions(axes: Any, answers: Answers, n_classes: int) -> None:
    """Paint a classifier's answers in pale colours, their borders, and the data on top."""
    axes.imshow(
        answers.codes, origin="lower", extent=answers.extent, cmap=style.tints(n_classes), vmin=-0.5,
        vmax=n_classes - 0.5, interpolation="nearest",
    )  # fmt: skip
    for c, colour in enumerate(style.class_colours(n_classes)):
        own, rows = answers.codes == c, answers.rows[answers.row_codes == c]
        if own.any() and not own.all():
            axes.contour(own, levels=[0.5], colors=[colour], linewidths=0.9, extent=answers.extent)
        axes.scatter(
            *rows.T, s=13, c=colour, marker=style.class_marker(c), edgecolors="white", linewidths=0.5, zorder=3
        )


@dataclass(frozen=True, eq=False)
class Slice:
    """A classifier of d features as one of the plane mean + z @ axes: z (n, 2), axes (2, d)."""

    model: Any
    mean: NDArray
    axes: NDArray
    share: NDArray  # of the variance, on each axis

    @property
    def classes_(self) -> NDArray:
        """The model's classes."""
        return np.asarray(self.model.classes_)

    def project(self, X: NDArray) -> NDArray:
        """(n, d) -> (n, 2)."""
        return (np.asarray(X, float) - self.mean) @ self.axes.T

    def predict(self, points: NDArray) -> NDArray:
        """The model's labels at points (n, 2) of the plane, a block at a time."""
        step = rows_per_block(8 * len(self.mean), BLOCK_BYTES)
        starts = range(0, len(points), step)
        return np.concatenate([self.model.predict(self.mean + points[a : a + step] @ self.axes) for a in starts])


def principal_slice(model: Any, X: ArrayLike) -> Slice:
    """The plane through the mean of X (n, d) along its two principal components."""
    rows = np.asarray(X, float)
    if rows.ndim != 2 or rows.shape[1] < 2:
        raise InputError(f"two principal components need rows of at least 2 columns, got shape {rows.shape}")
    mean = rows.mean(axis=0)
    centred = rows - mean
    values, vectors = np.linalg.eigh(centred.T @ centred)  # ascending
    axes = vectors[:, :-3:-1].T  # (2, d)
    axes *= np.sign(axes[np.arange(2), np.abs(axes).argmax(axis=1)])[:, None]  # the same way up every time
    return Slice(model, mean, axes, values[:-3:-1] / max(values.sum(), 1e-300))


def projected_answers(model: Any, X: ArrayLike, y: ArrayLike, resolution: int, most: int) -> dict[str, Any]:
    """Answers on the principal slice of X (n, d), with at most `most` of the rows: what plane_regions draws."""
    plane = principal_slice(model, X)
    step = -(-len(np.asarray(y)) // most)
    found = answers_around(plane, plane.project(np.asarray(X)[::step]), np.asarray(y)[::step], resolution)
    names = [str(label) for label in plane.classes_.tolist()]
    return {**found._asdict(), "labels": names, "shares": plane.share.tolist(), "width": len(plane.mean)}


def plane_regions(
    codes: NDArray,
    extent: tuple[float, float, float, float],
    rows: NDArray,
    row_codes: NDArray,
    labels: Sequence[str],
    shares: Sequence[float],
    width: int,
    title: str,
) -> Figure:
    """Answers on the plane of two principal components of rows of so many columns: a share of the variance an axis."""
    figure = style.figure(5.2, 5.9)
    axes = figure.subplots()
    draw_regions(axes, Answers(codes, extent, rows, row_codes), len(labels))
    style.bare(axes)
    for axis, share, name in zip((axes.xaxis, axes.yaxis), shares, ("first", "second")):
        words = f"{name} principal component, {share:.0%} of the variance"
        axis.set_label_text(words, fontsize=style.LABEL, color=style.INK)
    style.class_legend(figure, labels)
    note = "a slice through the mean; rows are shown by their shadow on it" if width > 2 else ""
    style.headline(figure, title, note)
    return figure


def _plane_points(X: ArrayLike) -> NDArray:
    array = np.asarray(X, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(
            f"a picture of regions needs rows of 2 columns, got shape {array.shape}; choose or project two"
        )
    return array
