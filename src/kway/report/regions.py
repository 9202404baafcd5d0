"""Regions: what a classifier answers everywhere in the plane, and the cells of landmarks on the map.

    decision_regions(model, X, y)      one fitted classifier on 2-D data
    neighbor_regions(X, y)             k = 1, 3, 15 across, L2 and L1 down
    landmark_cells(points)             places on earth, the landmarks of their index, the cells that a query looks into

Each returns a matplotlib Figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.report import style
from kway.report.slices import Answers, Grid, answers_around
from kway.search.spaces.distances import sphere

_NAMES = {"euclidean": "L2", "manhattan": "L1"}
_SHADES = tuple(style.PALETTE[i] for i in (0, 2, 3, 5, 8, 6))  # six that stay apart as small dots


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


def neighbor_regions(
    X: ArrayLike,
    y: ArrayLike,
    ks: Sequence[int] = (1, 3, 15),
    metrics: Sequence[str] = ("euclidean", "manhattan"),
    resolution: int = 400,
) -> Any:
    """Regions of k nearest neighbours: k across, metrics down."""
    from kway.neighbors import NeighborsClassifier

    X, y = _plane_points(X), np.asarray(y)
    figure = style.figure(height=0.7 + len(metrics) * ((style.FIGURE_WIDTH - 0.3) / len(ks) + 0.2))
    table = figure.subplots(len(metrics), len(ks), squeeze=False)
    for row, metric in zip(table, metrics):
        for axes, k in zip(row, ks):
            model = NeighborsClassifier(k, metric=metric).fit(X, y)
            draw_regions(axes, answers_around(model, X, y, resolution), len(model.classes_))
            style.bare(axes, f"k = {k}, {_NAMES.get(metric, metric)}", style.LABEL)
    style.class_legend(figure, np.unique(y))
    style.headline(figure, "The answer of the k nearest rows, everywhere in the plane")
    return figure


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


def landmark_cells(
    points: ArrayLike,
    n_landmarks: int = 80,
    query: tuple[float, float] | None = None,
    probes: int = 4,
    box: tuple[float, float, float, float] = (-125.5, -66.0, 24.0, 50.0),
) -> Any:
    """Places (n, 2) in degrees, coloured by the cell of their landmark; a query's nearest cells stand out.

    `box` is (west, east, south, north): what of the earth is shown; the landmarks are those of all places.
    """
    from kway.search import Landmarks
    from kway.search.spaces.metrics import Haversine

    places = _plane_points(points)
    index: Any = Landmarks(n_landmarks=n_landmarks).build(places, metric=Haversine(degrees=True))
    marks = _degrees(index.landmarks_)
    grid = _map_grid(box)
    nearest = _unit(grid.points) @ _unit(marks).T  # (h * w, c) cosines of angles
    owner = nearest.argmax(axis=1).reshape(grid.shape)
    shades = _shades(owner, len(marks))
    figure = style.figure(height=4.1)
    axes = figure.subplots()
    looked = np.zeros(len(marks), bool)
    if query is not None:
        looked[np.argsort(-(_unit(np.array([query])) @ _unit(marks).T)[0])[:probes]] = True
    _draw_cells(axes, grid, owner, looked)
    _draw_places(axes, places, index.cells_, shades, looked, query is not None)
    _draw_marks(axes, marks, query, box)
    seen = looked[index.cells_].sum()
    asked = f"the query looks into {probes} cells: {seen:,} places" if query is not None else ""
    style.bare(axes)
    style.headline(figure, f"{len(places):,} places in the cells of {len(marks)} landmarks", asked)
    return figure


def _draw_cells(axes: Any, grid: Grid, owner: NDArray, looked: NDArray[np.bool_]) -> None:
    """Borders of the cells; those that are looked into filled."""
    if looked.any():
        shade = style.tint(style.PALETTE[1], 0.35)
        axes.contourf(looked[owner].astype(float), levels=[0.5, 1.5], colors=[shade], extent=grid.extent)
    edges = np.zeros(owner.shape, bool)
    edges[:-1] |= owner[:-1] != owner[1:]
    edges[:, :-1] |= owner[:, :-1] != owner[:, 1:]
    ink = np.zeros((*owner.shape, 4))
    ink[edges] = (0.25, 0.25, 0.25, 0.75)
    axes.imshow(ink, origin="lower", extent=grid.extent, aspect="auto", interpolation="bilinear", zorder=3)


def _draw_places(
    axes: Any, places: NDArray, cells: NDArray, shades: NDArray, looked: NDArray[np.bool_], faint: bool
) -> None:
    for s, shade in enumerate(_SHADES):
        for inside in (False, True):
            some = (shades[cells] == s) & (looked[cells] == inside)
            size, alpha = (1.5, 0.95) if inside else (0.8, 0.45 if faint else 0.7)
            axes.scatter(places[some, 1], places[some, 0], s=size, c=shade, alpha=alpha, linewidths=0, zorder=2)


def _draw_marks(axes: Any, marks: NDArray, query: tuple[float, float] | None, box: tuple[float, ...]) -> None:
    west, east, south, north = box
    look: dict[str, Any] = {"edgecolors": "white", "zorder": 4}
    axes.scatter(marks[:, 1], marks[:, 0], s=14, c=style.INK, linewidths=0.7, label="landmark", **look)
    if query is not None:
        axes.scatter(query[1], query[0], s=130, c=style.CONTRAST, marker="*", linewidths=0.9, label="query", **look)
    style.legend(axes, loc="lower left")
    axes.set_xlim(west, east)
    axes.set_ylim(south, north)
    axes.set_aspect(1.0 / np.cos(np.radians((south + north) / 2)))


def _map_grid(box: tuple[float, float, float, float], height: int = 500) -> Grid:
    west, east, south, north = box
    width = int(height * (east - west) / (north - south))
    lon, lat = np.meshgrid(np.linspace(west, east, width), np.linspace(south, north, height))
    return Grid(np.column_stack([lat.ravel(), lon.ravel()]), (height, width), box)


def _shades(owner: NDArray, n_cells: int) -> NDArray[np.int64]:
    """A shade for each cell, so that cells that touch on the map differ where that is possible."""
    touching: list[set[int]] = [set() for _ in range(n_cells)]
    for a, b in ((owner[:-1], owner[1:]), (owner[:, :-1], owner[:, 1:])):
        for i, j in np.unique(np.column_stack([a.ravel(), b.ravel()])[(a != b).ravel()], axis=0):
            touching[i].add(int(j))
            touching[j].add(int(i))
    shades = np.full(n_cells, -1, np.int64)
    for cell in sorted(range(n_cells), key=lambda c: -len(touching[c])):
        used = {int(shades[other]) for other in touching[cell]}
        shades[cell] = next((s for s in range(len(_SHADES)) if s not in used), cell % len(_SHADES))
    return shades


def _unit(degrees: NDArray) -> NDArray[np.float64]:
    """(n, 2) latitude and longitude -> (n, 3) points on the unit sphere."""
    return sphere(np.radians(degrees))


def _degrees(points: NDArray) -> NDArray[np.float64]:
    """(n, 3) points in space -> (n, 2) latitude and longitude."""
    x, y, z = points.T
    return np.degrees(np.column_stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)]))


def _plane_points(X: ArrayLike) -> NDArray:
    array = np.asarray(X, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise InputError(
            f"a picture of regions needs rows of 2 columns, got shape {array.shape}; choose or project two"
        )
    return array
