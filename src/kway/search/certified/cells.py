"""Cells: rows grouped by nearest centre, near cells near in memory.

    centres (c, w) float32, ids (n,) row numbers sorted by cell, start (c + 1,) where each cell begins in ids

Cells only order the work (where to look first, which rows lie together); no answer depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.jit import frozen
from kway.compute.kernels.warm import nearest_cells
from kway.compute.threads import pmap, spans

ROUNDS = 6  # of k-means
SAMPLE = 64  # rows a cell that k-means sees


@dataclass(frozen=True)
class Cells:
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


def make_cells(coarse: NDArray[np.float32], rng: np.random.Generator, n_jobs: int | None = None) -> Cells:
    """About sqrt(n) cells of coarse (n, w) by k-means on a sample."""
    n = len(coarse)
    count = max(8, int(n**0.5))
    sample = coarse[rng.choice(n, min(n, SAMPLE * count), replace=False)]
    centres = sample[:count].copy()
    for _ in range(ROUNDS):
        centres = _means(sample, _assign(sample, centres, n_jobs), centres)
    centres = centres[_tree_order(centres, np.arange(count))]
    cell = _assign(coarse, centres, n_jobs)
    ids = np.argsort(cell, kind="stable").astype(np.int32)
    start = np.searchsorted(cell[ids], np.arange(count + 1)).astype(np.int64)
    return Cells(frozen(centres), frozen(_norms(centres)), frozen(ids), frozen(start))


def _norms(centres: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.einsum("ij,ij->i", centres, centres)


def _assign(points: NDArray[np.float32], centres: NDArray[np.float32], n_jobs: int | None) -> NDArray[np.int32]:
    """Number of the nearest centre (n,)."""
    norms, cell = frozen(_norms(centres)), np.empty((len(points), 1), np.int32)

    def assign(part: slice) -> None:
        nearest_cells(points[part] @ centres.T, norms, cell[part])

    pmap(assign, spans(len(points), 4096), n_jobs)
    return cell[:, 0]


def _means(points: NDArray, cell: NDArray, centres: NDArray[np.float32]) -> NDArray[np.float32]:
    """Mean of the points of each cell; an empty cell keeps its centre."""
    order, size = np.argsort(cell, kind="stable"), np.bincount(cell, minlength=len(centres))
    start = np.minimum(np.cumsum(size) - size, len(points) - 1)
    sums = np.add.reduceat(points[order], start, axis=0)
    return np.where(size[:, None] > 0, sums / np.maximum(size, 1)[:, None], centres).astype(np.float32)


def _tree_order(centres: NDArray[np.float32], which: NDArray[np.int64]) -> NDArray[np.int64]:
    """Centres in the order of a bisection along principal axes, so that neighbours in memory are near in space."""
    if len(which) < 3:
        return which
    spread = centres[which] - centres[which].mean(axis=0)
    axis = np.linalg.svd(spread, full_matrices=False)[2][0]
    order = which[np.argsort(spread @ axis, kind="stable")]
    half = len(order) // 2
    return np.concatenate([_tree_order(centres, order[:half]), _tree_order(centres, order[half:])])
