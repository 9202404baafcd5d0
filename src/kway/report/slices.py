"""What a classifier answers on a plane, as arrays: nothing here draws.

grid_over          a raster over rows (n, 2)
answers_around     the answers of a classifier of two features on the raster around its rows
principal_slice    a classifier of d features as one of the plane of the two principal components
projected_answers  the answers there, with the words of a figure of them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError

_GRID_NUMBERS = 1 << 22  # numbers of the grid's rows made at a time: 32 MB


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
        step = max(_GRID_NUMBERS // len(self.mean), 1)
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
