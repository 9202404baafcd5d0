"""Distances d(q, x) that the engine computes, and for each the space in which it is a norm.

    name         d(q, x)                       space (`place`)     norm (`gap`)    key of a scanned row
    euclidean    ||q - x||_2                   the rows            d               ||x||^2 / 2 - q.x
    manhattan    ||q - x||_1                   the rows, order 1   d               d, no product
    cosine       1 - q.x / (||q|| ||x||)       unit rows           sqrt(2 d)       -(q / ||q||).x / ||x||
    dot          -q.x                          none                               -q.x
    hamming      share of columns that differ  none                               columns that differ, no product
    haversine    angle of two places           points on a sphere  2 sin(d / 2)    -u.v

In the space, distances are norms of order 1 or 2 that increase with d, so a search in it (by a tree, cells or bounds)
finds the order of d. For each query, keys increase with d. Keys from products are scale_r * (q . x_r) + offset_r. A
zero row has cosine distance 1 to every row; it is placed at the origin, which is nearer than that.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels import distances as kernels
from kway.kernels.jit import frozen
from kway.search.power_scaling import scale_each_row

Matrix = Any  # NDArray or CSR

UNIT_SAFE = float(np.sqrt(np.finfo(np.float64).eps / np.finfo(np.float64).tiny))  # norms up to this have normal squares
# A squared distance below this share of ||a||^2 + ||b||^2 has lost digits and is computed again.
CANCELLED = 1e-4  # decided by the tests of pairwise


class KeyForm(NamedTuple):
    """Scale (n,) and offset (n,) that turn the products of rows into keys."""

    scale: NDArray
    offset: NDArray


@dataclass(frozen=True)
class Distance(ABC):
    """A distance and its space. The instances are EUCLIDEAN, MANHATTAN, COSINE, DOT, HAMMING and GREAT_CIRCLE."""

    name: ClassVar[str]
    code: ClassVar[int]  # the number of the distance in the kernels
    order: ClassVar[int] = 2  # order of the norm in the space; 0 if there is no space
    transforms_rows: ClassVar[bool] = False  # whether `place` changes rows
    product: ClassVar[bool] = True  # whether keys come from matrix products; if not, a tile contains the keys
    shifts: ClassVar[bool] = False  # whether a common vector may be subtracted from queries and rows
    wide: ClassVar[bool] = False  # whether keys need float64
    sparse: ClassVar[bool] = False  # whether CSR rows can be measured
    coded: ClassVar[bool] = True  # whether rows may be rounded to codes
    signed: ClassVar[bool] = False  # whether the distance may be negative
    bounded: ClassVar[bool] = False  # whether certified search has bounds for it
    scales: ClassVar[bool] = True  # whether squares or products of values may overflow (power_scaling.py)
    degree: ClassVar[int] = 1  # p if d(c q, c x) = c^p d(q, x) for factors c > 0
    by_angle: ClassVar[bool] = False  # whether only the direction of a row counts; `place` then scales it to length 1

    def __str__(self) -> str:
        return self.name

    @property
    def by_direction(self) -> bool:
        """Whether the length of a query does not change the order of rows, so that hyperplanes can hash them."""
        return self.degree != 1

    @property
    def by_products(self) -> bool:
        """Whether it is computed from products of the given rows, which bits estimate and a GPU computes."""
        return self.product and self.coded

    def place(self, rows: Matrix) -> Matrix:
        """Return rows (n, d) as points of the space (n, d')."""
        return rows

    def gap(self, distances: NDArray) -> NDArray:
        """Return the distances in the space of points at these distances."""
        return distances

    def query_side(self, queries: Matrix) -> Matrix:
        """Return queries (q, d) as they enter the keys."""
        return self.place(queries)

    def row_side(self, rows: Matrix) -> Matrix:
        """Return rows (n, d) as they enter the keys; unchanged, without a copy, if a scale is enough."""
        return rows

    def key_form(self, halves: NDArray[np.float64]) -> KeyForm:
        """Return scale and offset of rows whose ||row_side||^2 / 2 are `halves` (n,).

        Without products, the tiles are the keys.
        """
        return KeyForm(np.full_like(halves, -1 if self.product else 1), np.zeros_like(halves))

    def reach(self, halves: NDArray[np.float64], n_features: int) -> float:
        """Return the largest norm of a row, or another bound of the keys."""
        return float(np.sqrt(2.0 * halves.max(initial=0.0)))

    def tile(self, queries: NDArray, rows: NDArray) -> NDArray:
        """Return products q.x of queries and rows (m, c), in the type of the queries."""
        return np.asarray(queries @ rows.astype(queries.dtype, copy=False).T)

    def errors(self, rows: NDArray, decoded: NDArray) -> NDArray[np.float64]:
        """Return the distance (n,) in the space of each row to its decoded code."""
        gaps = self.place(rows.astype(np.float64)) - self.place(decoded.astype(np.float64))
        return np.abs(gaps).sum(axis=1) if self.order == 1 else np.sqrt(squares(gaps))

    @abstractmethod
    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Fill out (n, m) with d(a_i, b_j), each accurate to the last digits."""


@dataclass(frozen=True)
class EuclideanDistance(Distance):
    """||q - x||_2."""

    name = "euclidean"
    code = kernels.EUCLIDEAN
    bounded = True
    shifts = True
    sparse = True

    def key_form(self, halves: NDArray[np.float64]) -> KeyForm:
        """||x||^2 / 2 - q.x = (d^2 - ||q||^2) / 2."""
        return KeyForm(-np.ones_like(halves), halves)

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """||a||^2 + ||b||^2 - 2 a.b; pairs for which the subtraction cancels are computed again."""
        center = b.mean(axis=0)
        centered_a, centered_b = a - center, b - center  # far from the origin, squares would hide the differences
        aa, bb = squares(centered_a), squares(centered_b)
        np.matmul(centered_a, centered_b.T, out=out)
        out *= -2.0
        out += aa[:, None]
        out += bb
        np.maximum(out, 0.0, out=out)
        cancelled = out <= CANCELLED * (aa[:, None] + bb)
        np.sqrt(out, out=out)
        if cancelled.any():
            out[cancelled] = -1.0  # below the limit of -0.5, up to which `refine` computes pairs again
            kernels.refine(self.code, a, b, np.full(len(a), -0.5), np.zeros(len(b)), out)


@dataclass(frozen=True)
class ManhattanDistance(Distance):
    """||q - x||_1."""

    name = "manhattan"
    code = kernels.MANHATTAN
    bounded = True
    order = 1
    product = False

    def tile(self, queries: NDArray, rows: NDArray) -> NDArray:
        """||q - x||_1."""
        return _tile(kernels.manhattan_tile, queries, rows)

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """The tile is exact."""
        kernels.manhattan_tile(a, b, out)


@dataclass(frozen=True)
class CosineDistance(Distance):
    """1 - q.x / (||q|| ||x||)."""

    name = "cosine"
    code = kernels.COSINE
    bounded = True
    transforms_rows = True
    sparse = True
    degree = 0
    by_angle = True

    def place(self, rows: Matrix) -> Matrix:
        """Rows of length one."""
        return unit(rows)

    def gap(self, distances: NDArray) -> NDArray:
        """||u - v|| = sqrt(2 (1 - u.v))."""
        return np.sqrt(2.0 * np.maximum(distances, 0.0))

    def key_form(self, halves: NDArray[np.float64]) -> KeyForm:
        """-q.x / ||x|| = d - 1."""
        norms = np.sqrt(2.0 * halves)
        return KeyForm(-np.divide(1.0, norms, out=np.zeros_like(halves), where=norms > 0), np.zeros_like(halves))

    def errors(self, rows: NDArray, decoded: NDArray) -> NDArray[np.float64]:
        """Return the errors, plus 0.5 if a row is decoded as zero: its gap is then sqrt(2) instead of 1."""
        lost = (squares(decoded) == 0) & (squares(rows) > 0)
        return super().errors(rows, decoded) + 0.5 * lost

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """1 - u.v; pairs for which the subtraction cancels are computed again."""
        np.subtract(1.0, unit(a) @ unit(b).T, out=out)
        np.clip(out, 0.0, 2.0, out=out)
        kernels.refine(self.code, a, b, np.full(len(a), CANCELLED), np.zeros(len(b)), out)


@dataclass(frozen=True)
class DotDistance(Distance):
    """-q.x. It is no norm in any space: it may be negative, and a row need not be nearest to itself."""

    name = "dot"
    code = kernels.DOT
    order = 0
    sparse = True
    signed = True
    degree = 2

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """-a.b."""
        np.matmul(-a, b.T, out=out)


@dataclass(frozen=True)
class HammingDistance(Distance):
    """Share of columns in which two rows differ."""

    name = "hamming"
    code = kernels.HAMMING
    order = 0
    product = False
    coded = False  # different values may be rounded to the same code
    scales = False

    def reach(self, halves: NDArray[np.float64], n_features: int) -> float:
        """Return the number of columns, the largest key."""
        return float(n_features)

    def tile(self, queries: NDArray, rows: NDArray) -> NDArray:
        """Return the number of columns that differ."""
        return _tile(kernels.hamming_tile, queries, rows)

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """The tile is exact."""
        kernels.hamming_tile(a, b, out)
        out /= a.shape[1]


@dataclass(frozen=True)
class GreatCircleDistance(Distance):
    """Angle between two places (latitude, longitude) in radians."""

    name = "haversine"
    code = kernels.HAVERSINE
    transforms_rows = True
    wide = True
    coded = False  # the two columns are angles with different ranges
    scales = False

    def place(self, rows: NDArray) -> NDArray[np.float64]:
        """Points (n, 3) on the unit sphere."""
        return sphere(rows)

    def gap(self, distances: NDArray) -> NDArray:
        """The chord 2 sin(d / 2)."""
        return 2.0 * np.sin(0.5 * np.minimum(distances, np.pi))

    def row_side(self, rows: NDArray) -> NDArray[np.float64]:
        """Points on the sphere."""
        return sphere(rows)

    def fill(self, a: NDArray[np.float64], b: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Compute every pair directly."""
        out.fill(0.0)
        kernels.refine(self.code, a, b, np.zeros(len(a)), np.zeros(len(b)), out)


EUCLIDEAN, MANHATTAN, COSINE = EuclideanDistance(), ManhattanDistance(), CosineDistance()
DOT, HAMMING, GREAT_CIRCLE = DotDistance(), HammingDistance(), GreatCircleDistance()
DISTANCES: tuple[Distance, ...] = (EUCLIDEAN, MANHATTAN, COSINE, DOT, HAMMING, GREAT_CIRCLE)


def squares(rows: Matrix) -> NDArray[np.float64]:
    """Return ||x||^2 of each row, in float64."""
    if sp.issparse(rows):
        exact = rows.astype(np.float64)
        return np.asarray(exact.multiply(exact).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", rows, rows, dtype=np.float64)


def unit(rows: Matrix) -> Matrix:
    """Return rows of length one; zero rows stay zero."""
    norms = np.sqrt(squares(rows))
    if ((norms < 1 / UNIT_SAFE) | (norms > UNIT_SAFE)).any():  # usually zero rows
        rows = scale_each_row(rows)
        norms = np.sqrt(squares(rows))
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    if sp.issparse(rows):
        return sp.csr_matrix(sp.diags(inverse) @ rows)
    return rows * inverse[:, None]


def sphere(radians: NDArray) -> NDArray[np.float64]:
    """Return unit vectors (n, 3) of (latitude, longitude) in radians."""
    lat, lon = radians[:, 0], radians[:, 1]
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


def _tile(kernel: Any, queries: NDArray, rows: NDArray) -> NDArray:
    out = np.empty((len(queries), len(rows)), dtype=queries.dtype)
    kernel(queries, frozen(rows.astype(queries.dtype, copy=False)), out)
    return out
