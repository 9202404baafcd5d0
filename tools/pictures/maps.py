"""Which rows an index compares: cells of landmarks on a map, boxes of a KD-tree, buckets of hash tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.patches import Circle, Rectangle
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

import kway
from kway.report import style
from kway.report.model_views import Grid

_SHADES = tuple(style.PALETTE[i] for i in (0, 2, 3, 5, 8, 6))  # six that stay apart as small dots


def landmark_cells(
    points: ArrayLike,
    n_landmarks: int = 80,
    query: tuple[float, float] | None = None,
    probes: int = 4,
    box: tuple[float, float, float, float] = (-125.5, -66.0, 24.0, 50.0),
) -> Any:
    """Draw places (n, 2) in degrees, colored by cell, and highlight the cells that a query probes.

    `box` is the part of the map that is shown: (west, east, south, north). The landmarks are those of all places.
    """
    places = np.asarray(points, float)
    index: Any = kway.search.Landmarks(n_landmarks=n_landmarks).build(places, metric=kway.Haversine(degrees=True))
    marks = _degrees(index.landmarks_)
    grid = _map_grid(box)
    nearest = _unit(grid.points) @ _unit(marks).T  # (h * w, c) cosines of angles
    owner = nearest.argmax(axis=1).reshape(grid.shape)
    shades = _shades(owner, len(marks))
    figure = style.figure(height=4.1)
    axes = figure.subplots()
    probed = np.zeros(len(marks), bool)
    if query is not None:
        probed[np.argsort(-(_unit(np.array([query])) @ _unit(marks).T)[0])[:probes]] = True
    _draw_cells(axes, grid, owner, probed)
    _draw_places(axes, places, index.cells_, shades, probed, query is not None)
    _draw_marks(axes, marks, query, box)
    seen = probed[index.cells_].sum()
    asked = f"the query probes {probes} cells with {seen:,} places" if query is not None else ""
    style.bare(axes)
    style.headline(figure, f"{len(places):,} places in the cells of {len(marks)} landmarks", asked)
    return figure


def _draw_cells(axes: Any, grid: Grid, owner: NDArray, probed: NDArray[np.bool_]) -> None:
    """Draw the borders of the cells, and fill the probed ones."""
    if probed.any():
        shade = style.tint(style.PALETTE[1], 0.35)
        axes.contourf(probed[owner].astype(float), levels=[0.5, 1.5], colors=[shade], extent=grid.extent)
    edges = np.zeros(owner.shape, bool)
    edges[:-1] |= owner[:-1] != owner[1:]
    edges[:, :-1] |= owner[:, :-1] != owner[:, 1:]
    ink = np.zeros((*owner.shape, 4))
    ink[edges] = (0.25, 0.25, 0.25, 0.75)
    axes.imshow(ink, origin="lower", extent=grid.extent, aspect="auto", interpolation="bilinear", zorder=3)


def _draw_places(
    axes: Any, places: NDArray, cells: NDArray, shades: NDArray, probed: NDArray[np.bool_], faint: bool
) -> None:
    for s, shade in enumerate(_SHADES):
        for inside in (False, True):
            some = (shades[cells] == s) & (probed[cells] == inside)
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
    """Return a shade per cell. Neighboring cells get different shades if there are enough."""
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
    """Convert latitude and longitude (n, 2) to points (n, 3) on the unit sphere."""
    lat, lon = np.radians(degrees).T
    return np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


def _degrees(points: NDArray) -> NDArray[np.float64]:
    """Convert points (n, 3) in space to latitude and longitude (n, 2)."""
    x, y, z = points.T
    return np.degrees(np.column_stack([np.arctan2(z, np.hypot(x, y)), np.arctan2(y, x)]))


def tree_boxes(points: ArrayLike, query: ArrayLike, k: int = 5, leaf_size: int = 12) -> Any:
    """Draw the boxes of a KD-tree over points (n, 2), and highlight those that a search visits."""
    rows, q = np.asarray(points, float), np.asarray(query, float)
    tree = cKDTree(rows, leafsize=leaf_size)
    radius = float(tree.query(q, k)[0][-1])
    figure = style.figure(height=4.6)
    axes = figure.subplots()
    low, high = rows.min(axis=0), rows.max(axis=0)
    leaves = list(_leaves(tree.tree, low, high))
    visited = [(a, b) for a, b in leaves if np.linalg.norm(np.maximum(0, np.maximum(a - q, q - b))) <= radius]
    for a, b in leaves:
        axes.add_patch(Rectangle(a, *(b - a), fill=False, edgecolor=style.FAINT, linewidth=0.8))
    for a, b in visited:
        shade = style.tint(style.PALETTE[1], 0.35)
        axes.add_patch(Rectangle(a, *(b - a), facecolor=shade, edgecolor=style.INK, linewidth=0.9))
    axes.scatter(*rows.T, s=5, c=style.MUTED, linewidths=0, zorder=3)
    axes.add_patch(Circle(q, radius, fill=False, edgecolor=style.CONTRAST, linewidth=1.2, zorder=4))
    axes.scatter(*q, s=110, c=style.CONTRAST, marker="*", edgecolors="white", zorder=5)
    style.bare(axes)
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    axes.set_aspect("equal", adjustable="box")
    circle = f"the circle through its {k} nearest rows"
    note = f"the query compares the rows of {len(visited)} boxes; the others lie outside {circle}"
    style.headline(figure, f"{len(rows):,} rows in {len(leaves)} boxes of a KD-tree", note)
    return figure


def _leaves(node: Any, low: NDArray, high: NDArray) -> Iterator[tuple[NDArray, NDArray]]:
    """Yield the lower and upper corners of the leaves below a node."""
    if node.split_dim < 0:
        yield low, high
        return
    below, above = high.copy(), low.copy()
    below[node.split_dim] = above[node.split_dim] = node.split
    yield from _leaves(node.lesser, low, below)
    yield from _leaves(node.greater, above, high)


def hash_buckets(points: ArrayLike, query: ArrayLike, n_bits: int = 6, seed: int = 0) -> Any:
    """Draw two hash tables of points (n, 2), and highlight the bucket of the query in each."""
    rows, q = np.asarray(points, float), np.asarray(query, float)
    rng = np.random.default_rng(seed)
    middle, reach = rows.mean(axis=0), float(np.abs(rows - rows.mean(axis=0)).max())
    found = np.zeros(len(rows), bool)
    nearest = int(((rows - q) ** 2).sum(axis=1).argmin())
    figure = style.figure(height=3.9)
    panels = figure.subplots(1, 2)
    for number, axes in enumerate(panels):
        normals = rng.standard_normal((n_bits, 2))
        normals /= np.linalg.norm(normals, axis=1, keepdims=True)
        offsets = rng.uniform(-0.3, 0.3, n_bits) * reach
        own = (((rows - middle) @ normals.T > offsets) == ((q - middle) @ normals.T > offsets)).all(axis=1)
        found |= own
        for normal, offset in zip(normals, offsets):
            foot, along = middle + offset * normal, np.array([-normal[1], normal[0]])
            ends = foot + np.outer([-3 * reach, 3 * reach], along)
            axes.plot(*ends.T, color=style.FAINT, linewidth=1)
        axes.scatter(*rows[~own].T, s=5, c=style.FAINT, linewidths=0)
        axes.scatter(*rows[own].T, s=9, c=style.PALETTE[1], linewidths=0)
        axes.scatter(*rows[nearest], s=60, facecolors="none", edgecolors=style.INK, linewidths=1)
        axes.scatter(*q, s=110, c=style.CONTRAST, marker="*", edgecolors="white", zorder=5)
        axes.set(xlim=rows[:, 0][[rows[:, 0].argmin(), rows[:, 0].argmax()]], ylim=(rows[:, 1].min(), rows[:, 1].max()))
        style.bare(axes, f"table {number + 1}: {own.sum()} rows share the query's {n_bits} bits")
    note = "the nearest row is circled" + ("" if found[nearest] else "; both tables miss it")
    style.headline(figure, f"The query compares {found.sum()} of {len(rows):,} rows", note)
    return figure
