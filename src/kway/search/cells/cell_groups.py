"""Pairs of a query and a cell that it looks into, grouped so that each group is one matrix product.

cells (q, p)                        the p cells of each query
groups: starts (g + 1,), cells (g,), pairs (m,)    queries pairs[starts[i]:starts[i + 1]] look into cells[i]
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.cells import UNSURE
from kway.compute.kernels.topk import EMPTY
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


def too_far(gaps: NDArray, radii: NDArray, worst: NDArray, blur: NDArray, distance: Distance) -> NDArray[np.bool_]:
    """Whether no row of a cell can be nearer than a query's worst so far: |q - x| >= |q - m| - |m - x|.

    gaps (q, p): squared distances |q - m| to landmarks m in the distance's space, blur (q,) their rounding; radii
    (q, p): the largest |m - x|; worst (q,) under the distance, EMPTY where there is none yet.
    """
    sure = worst + UNSURE if distance.degree == 0 else worst  # 1 - cos loses digits where rows nearly coincide
    known = np.where(worst < EMPTY, np.minimum(distance.gap(sure), 1e100), 1e100)  # squares without overflow
    return np.asarray(gaps > np.square(known[:, None] + radii) * 1.0001 + blur[:, None])
