"""k-means (Lloyd 1982): centers (c, d) with small distances of rows to their nearest center.

The centers are learned from a sample of the rows, in a few rounds of two steps:

    assign   each row to argmin_c ||x - m_c||^2 = argmax_c (x . m_c - ||m_c||^2 / 2), one blocked matrix product
    update   each center to the mean of its rows; an empty one to a row far from its center

Seeding draws distinct random rows in two rounds, the second with probability in proportion to the squared distance to
the first. This is the idea of k-means++ (Arthur and Vassilvitskii 2007), without its pass per center.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.cells import nearest_center
from kway.kernels.jit import frozen
from kway.memory import CACHE_BYTES, rows_per_block
from kway.progress import Tell
from kway.rows.blocks import SAMPLE_ROWS
from kway.threads import pmap, spans, spans_of

# Decided by the landmarks benchmark (T3).
ROUNDS = 4  # rounds on the sample; with 8, the recall of landmarks changes less than between seeds
ROWS_PER_CENTER = 32  # rows of the sample per center; more rows do not improve the recall


class NearestCenter(NamedTuple):
    """The nearest center (n,) of each row, and half their squared distance (n,)."""

    centers: NDArray[np.int64]
    gaps: NDArray[np.float32]


def kmeans_sample(rows: Any, n_centers: int, rng: np.random.Generator) -> Any:
    """Return a sample of rows that is large enough to place n_centers centers."""
    n, size = len(rows), max(ROWS_PER_CENTER * n_centers, SAMPLE_ROWS)
    return rows[:] if n <= size else rows[np.sort(rng.choice(n, size, replace=False))]


def place_centers(
    sample: NDArray[np.float32],
    n_centers: int,
    rng: np.random.Generator,
    *,
    rounds: int = ROUNDS,
    tell: Tell | None = None,
) -> NDArray[np.float32]:
    """Return centers (n_centers, d) for rows like the sample (n, d) float32.

    `tell` is called before each round, if it is given.
    """
    sample = np.ascontiguousarray(sample)
    centers = _seeds(sample, n_centers, rng)
    for done in range(rounds):
        if tell is not None:
            tell(done, f"round {done + 1} of {rounds}")
        centers = _update(sample, centers, rng)
    return centers


def nearest_centers(rows: NDArray[np.float32], centers: NDArray[np.float32]) -> NearestCenter:
    """Return the nearest center of each row (n, d); ties go to the first."""
    result = NearestCenter(np.empty(len(rows), np.int64), np.empty(len(rows), np.float32))
    row_halves, halves = half_squares(rows), half_squares(centers)
    tile = max(16, rows_per_block(4 * len(centers), CACHE_BYTES // 4))

    def work(span: slice) -> None:
        buffer = np.empty((min(tile, len(rows)), len(centers)), np.float32)
        for part in spans_of(span, tile):  # the products of a tile stay in the cache
            block = rows[part]
            products = np.matmul(block, centers.T, out=buffer[: len(block)])  # (m, c)
            nearest_center(
                products, products.view(np.int32), halves, row_halves[part], result.centers[part], result.gaps[part]
            )

    pmap(work, spans(len(rows), rows_per_block(4 * rows.shape[1], CACHE_BYTES)))
    return result


def half_squares(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ||x||^2 / 2 of each row (n,)."""
    return frozen(0.5 * np.einsum("ij,ij->i", rows, rows))


def _seeds(rows: NDArray[np.float32], n_centers: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return the first centers: rows drawn at random, then rows far from these."""
    first = rows[rng.choice(len(rows), max(1, n_centers // 2), replace=False)]
    n_more = n_centers - len(first)
    if not n_more:
        return first
    more = _distant_rows(rows, nearest_centers(rows, first).gaps, n_more, rng)
    if len(more) < n_more:  # there are few distinct rows
        more = rows[rng.choice(len(rows), n_more, replace=False)]
    return np.concatenate([first, more])


def _update(rows: NDArray[np.float32], centers: NDArray, rng: np.random.Generator) -> NDArray[np.float32]:
    """Run one round: return the mean of the rows of each center, or a row far from its center for one without rows."""
    near, gaps = nearest_centers(rows, centers)
    counts = np.bincount(near, minlength=len(centers))
    filled, starts = np.flatnonzero(counts), np.cumsum(counts) - counts
    new, empty = centers.copy(), np.flatnonzero(counts == 0)
    sums = np.add.reduceat(rows[in_cell_order(near, len(centers))], starts[filled], axis=0)
    new[filled] = sums / counts[filled, None].astype(np.float32)
    if len(empty):
        far = _distant_rows(rows, gaps, len(empty), rng)
        new[empty[: len(far)]] = far
    return new


def in_cell_order(cells: NDArray[np.int64], n_cells: int) -> NDArray[np.int64]:
    """Return positions (n,) ordered by cell, then by position."""
    narrow = cells.astype(np.uint16) if n_cells <= 2**16 else cells  # 16 bits sort by radix, five times faster
    return np.argsort(narrow, kind="stable")


def _distant_rows(rows: NDArray, halves: NDArray, count: int, rng: np.random.Generator) -> NDArray:
    """Draw up to `count` rows with probability in proportion to their squared distance, given half of it (n,)."""
    gaps = 2.0 * halves.astype(np.float64)
    gaps[gaps <= 2e-6 * half_squares(rows).max()] = 0.0  # the rounding of float32 products
    far = np.flatnonzero(gaps)
    if not len(far):
        return rows[far]
    return rows[rng.choice(far, min(count, len(far)), replace=False, p=gaps[far] / gaps[far].sum())]
