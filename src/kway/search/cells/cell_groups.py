"""Pairs of a query and a cell that it looks into, grouped so that each group is one matrix product.

cells (q, p)                        the p cells of each query
groups: starts (g + 1,), cells (g,), pairs (m,)    queries pairs[starts[i]:starts[i + 1]] look into cells[i]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.cells import UNSURE, pass_over
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import EMPTY
from kway.search.cells.projection import Projected
from kway.search.spaces.distances import Distance


class CellGroups(NamedTuple):
    """Queries pairs[starts[i]:starts[i + 1]] look into cells[i]."""

    starts: NDArray[np.int64]
    cells: NDArray[np.int64]
    pairs: NDArray[np.int64]


def one_by_one(cells: NDArray[np.int64]) -> CellGroups:
    """Groups of one pair each, nearest cells first."""
    q, probes = cells.shape
    return CellGroups(np.arange(q * probes + 1), cells.ravel(), np.repeat(np.arange(q), probes))


def by_cell(cells: NDArray[np.int64], n_cells: int) -> CellGroups:
    """Groups of the pairs of each cell; pairs with cells from n_cells on, which there are not, are left out.

    >>> starts, _, pairs = by_cell(np.array([[0, 1], [1, 2]]), n_cells=2)
    >>> pairs[starts[1] : starts[2]]
    array([0, 1])
    """
    flat = np.minimum(cells.ravel(), n_cells)  # nobody (NOBODY) is no cell either
    narrow = flat.astype(np.uint16) if n_cells < 2**16 else flat  # 16 bits sort by radix, five times faster
    ends = np.cumsum(np.bincount(flat, minlength=n_cells)[:n_cells])
    pairs = np.argsort(narrow, kind="stable")[: ends[-1]] // max(1, cells.shape[1])
    return CellGroups(np.concatenate([[0], ends]), np.arange(n_cells), pairs)


def nearest_first(keys: NDArray[np.float32]) -> NDArray[np.int64]:
    """Cells (q, c) in the order of their keys (q, c), equal ones by number.

    Key and number make one integer, since sorting integers takes a fifth of the time of `argsort`.

    >>> nearest_first(np.array([[0.5, -2.0, -1.0, 0.5]], np.float32))
    array([[1, 2, 0, 3]])
    """
    both = keys.view(np.int32).astype(np.int64)
    both ^= (both >> 63) & 0x7FFFFFFF  # bits of negative floats grow the wrong way
    both <<= 32
    both |= np.arange(keys.shape[1])
    both.sort(axis=1)
    both &= 0xFFFFFFFF
    return both


@dataclass(frozen=True)
class CellBounds:
    """What tells which cells hold nothing near: landmarks (c, m) and the largest distance (c,) of a row to its own.

    reach: the largest norm of a row; nearest: whether rows are in the cell of their nearest landmark.
    """

    distance: Distance
    landmarks: NDArray[np.float32]
    radii: NDArray[np.float32]
    reach: float
    nearest: bool

    def near(
        self, ring: slice, cells: NDArray[np.int64], keys: NDArray, queries: Projected, worst: NDArray
    ) -> NDArray[np.int64]:
        """Of each query's cells (q, any), nearest first, those of a ring; c where no row is within worst (q,).

        keys (q, any): ||m||^2 / 2 - q.m of their landmarks; worst, under the distance, is EMPTY where there is none.
        """
        sure = worst + UNSURE if self.distance.by_angle else worst  # 1 - cos loses digits where rows nearly coincide
        gaps = np.where(worst < EMPTY, np.minimum(self.distance.gap(sure), 1e100), 1e100)  # squares without overflow
        squares = np.einsum("ij,ij->i", queries.lead, queries.lead)
        blurs = 1e-5 * (queries.norms + self.reach) ** 2
        left = np.ascontiguousarray(cells[:, ring])
        wide = [np.ascontiguousarray(array, np.float64) for array in (keys[:, ring], keys[:, 0], squares)]
        pass_over(left, wide[0], frozen(cells[:, 0]), *wide[1:], gaps, blurs, self.landmarks, self.radii, self.nearest)
        return left
