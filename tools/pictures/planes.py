"""Classifiers on two features: lines, regions and the segments between classes.

decision_lines       two classes: the line w.x + b = 0 of each fitted model, one panel per scene
linear_boundaries    K classes: the regions of each fitted linear model and the exact segments between its classes
neighbor_regions     k nearest neighbors: k across, metrics down
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

import kway
from kway.report import style
from kway.report.model_views import draw_regions, grid_over, predict_around

_NAMES = {"euclidean": "L2", "manhattan": "L1"}


class Scene(NamedTuple):
    """A panel: data (n, 2) with two classes, and fitted linear models by name."""

    title: str
    X: NDArray
    y: NDArray
    models: Mapping[str, Any]


class Planes(NamedTuple):
    """Weights (K, d) and biases (K,) of K classes: the class with the largest W x + b is predicted."""

    weights: NDArray
    biases: NDArray


def class_rows(model: Any) -> Planes:
    """Return one row of weights per class of a fitted linear model.

    Some models have a single row: with two classes, or for regression on the class number. In the second case, rounding
    the score f to the nearest of 0 to K - 1 is the same as choosing the class c with the largest 2 c f - c^2, which is
    linear in x.
    """
    w, b = np.asarray(model.coef_, float), np.atleast_1d(np.asarray(model.intercept_, float))
    if len(w) > 1:
        return Planes(w, b)
    if getattr(model, "targets", "") == "number":
        c = np.arange(len(model.classes_), dtype=float)
        return Planes(2 * c[:, None] * w, 2 * c * b - c**2)
    return Planes(np.vstack([-w, w]) / 2, np.concatenate([-b, b]) / 2)


class BoundarySegment(NamedTuple):
    """The ends (2, 2) of a segment on which classes `first` and `second` share the largest score."""

    first: int
    second: int
    ends: NDArray


def boundary_segments(rows: Planes, extent: tuple[float, float, float, float]) -> list[BoundarySegment]:
    """Return the segments between the regions of K linear scores, inside (left, right, bottom, top).

    The scores of classes a and b are equal on a line p + t u. Every other class, and every side of the extent,
    restricts t to an interval. The segment is the intersection of these intervals.
    """
    left, right, bottom, top = extent
    sides = np.array([[1.0, 0], [-1, 0], [0, 1], [0, -1]]), np.array([-left, right, -bottom, top])
    found = []
    for a in range(len(rows.biases)):
        for b in range(a + 1, len(rows.biases)):
            normal, offset = rows.weights[a] - rows.weights[b], rows.biases[a] - rows.biases[b]
            if not normal.any():
                continue
            p, u = -offset * normal / (normal @ normal), np.array([-normal[1], normal[0]])
            others = np.delete(np.arange(len(rows.biases)), [a, b])
            planes = np.vstack([rows.weights[a] - rows.weights[others], sides[0]])
            t = _interval(planes @ u, planes @ p + np.append(rows.biases[a] - rows.biases[others], sides[1]))
            if t is not None:
                found.append(BoundarySegment(a, b, p + np.outer(t, u)))
    return found


def _interval(slopes: NDArray, heights: NDArray) -> tuple[float, float] | None:
    """Return the interval of all t with slopes * t + heights >= 0, or None if it is empty."""
    level = np.abs(slopes) < 1e-15
    if (heights[level] < 0).any():
        return None
    roots = -heights[~level] / slopes[~level]
    low = float(roots[slopes[~level] > 0].max(initial=-np.inf))
    high = float(roots[slopes[~level] < 0].min(initial=np.inf))
    return (low, high) if low < high else None


def decision_lines(scenes: Sequence[Scene], title: str = "") -> Figure:
    """Draw one panel per scene, all with the same scale: points of two classes and the line of each linear model."""
    whole = np.concatenate([np.asarray(scene.X, float) for scene in scenes])
    extent = grid_over(whole, 2).extent
    names = list(dict.fromkeys(name for scene in scenes for name in scene.models))
    looks = dict(zip(names, zip((style.INK, *style.PALETTE[2:]), ("-", (0, (5, 2)), (0, (1, 1.2)), "-.", ":"))))
    figure = style.figure(height=0.95 + (style.FIGURE_WIDTH - 0.4) / max(len(scenes), 2))
    for axes, scene in zip(figure.subplots(1, len(scenes), squeeze=False)[0], scenes):
        _points(axes, np.asarray(scene.X, float), np.asarray(scene.y))
        for name, model in scene.models.items():
            color, dashes = looks[name]
            for segment in boundary_segments(class_rows(model), extent):
                axes.plot(*segment.ends.T, color=color, linestyle=dashes, linewidth=1.8, label=name, zorder=4)
        axes.set(xlim=extent[:2], ylim=extent[2:], aspect="equal")
        style.bare(axes, scene.title, style.TEXT)
    _line_legend(figure, looks)
    if title:
        style.headline(figure, title)
    return figure


def _points(axes: Any, X: NDArray, y: NDArray) -> None:
    classes = np.unique(y)
    for c, color in enumerate(style.class_colors(len(classes))):
        rows = X[y == classes[c]]
        axes.scatter(*rows.T, s=15, c=color, marker=style.class_marker(c), edgecolors="white", linewidths=0.4)


def _line_legend(figure: Figure, looks: Mapping[str, tuple[str, Any]]) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=c, linestyle=d, linewidth=1.8, label=name) for name, (c, d) in looks.items()]
    figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=style.TEXT)


def linear_boundaries(models: Mapping[str, Any], X: ArrayLike, y: ArrayLike, title: str = "") -> Figure:
    """Draw the same data (n, 2) for each fitted linear model, with its regions, boundaries and accuracy."""
    rows, labels = np.asarray(X, float), np.asarray(y)
    columns = min(3, len(models))
    lines = -(-len(models) // columns)
    figure = style.figure(height=0.9 + lines * ((style.FIGURE_WIDTH - 0.3) / columns + 0.2))
    grid = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes in grid[len(models) :]:
        axes.set_visible(False)
    extent = grid_over(rows, 2).extent
    for axes, (name, model) in zip(grid, models.items()):
        draw_regions(axes, predict_around(model, rows, labels, 200), len(model.classes_))
        for segment in boundary_segments(class_rows(model), extent):
            axes.plot(*segment.ends.T, color=style.INK, linewidth=1.2, zorder=2)
        accuracy = np.mean(model.predict(rows) == labels)
        style.bare(axes, f"{name}: {accuracy:.1%} correct", style.TEXT)
    style.class_legend(figure, np.unique(labels))
    if title:
        style.headline(figure, title)
    return figure


def neighbor_regions(
    X: ArrayLike,
    y: ArrayLike,
    ks: Sequence[int] = (1, 3, 15),
    metrics: Sequence[str] = ("euclidean", "manhattan"),
    resolution: int = 400,
) -> Any:
    """Draw the regions of k nearest neighbors, with one column per k and one row per metric."""
    X, y = np.asarray(X, float), np.asarray(y)
    figure = style.figure(height=0.7 + len(metrics) * ((style.FIGURE_WIDTH - 0.3) / len(ks) + 0.2))
    table = figure.subplots(len(metrics), len(ks), squeeze=False)
    for row, metric in zip(table, metrics):
        for axes, k in zip(row, ks):
            model = kway.NeighborsClassifier(k, metric=metric).fit(X, y)
            draw_regions(axes, predict_around(model, X, y, resolution), len(model.classes_))
            style.bare(axes, f"k = {k}, {_NAMES.get(metric, metric)}", style.TEXT)
    style.class_legend(figure, np.unique(y))
    style.headline(figure, "Prediction of k nearest neighbors at each point")
    return figure


def model_regions(models: Mapping[str, Any], X: ArrayLike, y: ArrayLike, columns: int = 2) -> Figure:
    """Draw the regions of fitted models of two features; the names are the titles of the panels."""
    X, y = np.asarray(X, float), np.asarray(y)
    rows = -(-len(models) // columns)
    figure = style.figure(height=0.7 + rows * ((style.FIGURE_WIDTH - 0.3) / columns + 0.1))
    panels = figure.subplots(rows, columns, squeeze=False)
    for axes, (name, model) in zip(panels.flat, models.items()):
        draw_regions(axes, predict_around(model, X, y, 300), len(model.classes_))
        style.bare(axes, name, style.TEXT)
    style.class_legend(figure, np.unique(y))
    return figure
