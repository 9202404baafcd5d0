"""Cells: rows grouped by nearest centre, near cells near in memory.

    centres (c, w) float32, ids (n,) row numbers sorted by cell, start (c + 1,) where each cell begins in ids

Cells only order the work (where to look first, which rows lie together); no answer depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.certified.warm import nearest_cells
from kway.compute.kernels.jit import frozen
from kway.search.cells.kmeans import in_cell_order, kmeans_sample, nearest_centres, place_centres

_ROUNDS = 3  # of k-means; twice as many, or four times the rows, leave the search as fast as it is
ROWS_A_CELL = 16  # that k-means sees
_POWER = 3  # rounds of the power method, for an axis that only decides an order


@dataclass(frozen=True)
class CellOrder:
    """Centres with their squared norms (c,), and the rows of each."""

    centres: NDArray[np.float32]
    norms: NDArray[np.float32]
    ids: NDArray[np.int32]
    start: NDArray[np.int64]

    def nearest(self, coarse: NDArray[np.float32], probes: int) -> NDArray[np.int32]:
        """The nearest cells (b, probes) of each row of coarse (b, w)."""
        near = np.empty((len(coarse), probes), np.int32)
        nearest_cells(coarse @ self.centres.T, self.norms, near)
        return near

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.centres.nbytes + self.norms.nbytes + self.ids.nbytes + self.start.nbytes


def make_cells(coarse: NDArray[np.float32], rng: np.random.Generator, n_jobs: int | None = None) -> CellOrder:
    """About sqrt(n) cells of coarse (n, w) by k-means on a sample."""
    n = len(coarse)
    count = max(8, int(n**0.5))
    centres = place_centres(kmeans_sample(coarse, count, rng, ROWS_A_CELL), count, rng, n_jobs, rounds=_ROUNDS)
    centres = frozen(centres[_tree_order(centres, np.arange(count))])
    norms = frozen(np.einsum("ij,ij->i", centres, centres))
    cell = nearest_centres(coarse, centres, n_jobs).centres
    ids = in_cell_order(cell, count).astype(np.int32)
    start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=count))])
    return CellOrder(centres, norms, frozen(ids), frozen(start))


def _tree_order(centres: NDArray[np.float32], which: NDArray[np.int64]) -> NDArray[np.int64]:
    """Centres in the order of a bisection along principal axes, so that neighbours in memory are near in space."""
    if len(which) <= 8:
        return which
    spread = centres[which] - centres[which].mean(axis=0)
    axis = spread[np.einsum("ij,ij->i", spread, spread).argmax()]
    for _ in range(_POWER):
        axis = spread.T @ (spread @ axis)
    order = which[np.argsort(spread @ axis, kind="stable")]
    half = len(order) // 2
    return np.concatenate([_tree_order(centres, order[:half]), _tree_order(centres, order[half:])])
