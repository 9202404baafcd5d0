"""k-means: centres (c, d) such that rows lie near their nearest one. Lloyd's rounds on a sample, then one pass.

    assign   each row to argmin_c ||x - m_c||^2 = argmax_c (x . m_c - ||m_c||^2 / 2), one blocked matrix product
    update   each centre to the mean of its rows; an empty one to a row far from its centre

Seeding takes distinct random rows in two rounds: the second draws with probability growing with the distance to the
first (the idea of k-means++, without its one pass a centre).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.cells import nearest_centre
from kway.compute.kernels.jit import frozen
from kway.compute.threads import pmap, spans

_ROUNDS = (
    4  # recall of 24 probes of 60,000 rows, two sets: .9956, .9997 after 4, .9961, .9999 after 8; seeds vary by .001
)
A_CENTRE = 32  # rows of the sample for each centre: they place it well, more only cost time
_TILE = 2**17  # products at a time: 512 kB


class Clustering(NamedTuple):
    """Centres (c, d) float32 and the nearest centre (n,) int64 of each row."""

    centres: NDArray[np.float32]
    nearest: NDArray[np.int64]


class NearestCentre(NamedTuple):
    """The nearest centre (n,) of each row, and half their squared distance (n,)."""

    centres: NDArray[np.int64]
    gaps: NDArray[np.float32]


def kmeans(
    rows: NDArray[np.float32],
    n_centres: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    *,
    rounds: int = _ROUNDS,
    a_centre: int = A_CENTRE,
    verbose: bool = False,
) -> Clustering:
    """Centres of rows (n, d) float32, n_centres <= n, and the nearest of every row; columns may be a view."""
    sample = kmeans_sample(rows, n_centres, rng, a_centre)
    centres = place_centres(sample, n_centres, rng, n_jobs, rounds=rounds, verbose=verbose)
    return Clustering(centres, nearest_centres(rows, centres, n_jobs).centres)


def kmeans_sample(rows: NDArray, n_centres: int, rng: np.random.Generator, a_centre: int = A_CENTRE) -> NDArray:
    """As many rows as place so many centres."""
    n, size = len(rows), max(a_centre * n_centres, 4096)
    return rows[:] if n <= size else rows[np.sort(rng.choice(n, size, replace=False))]


def place_centres(
    sample: NDArray[np.float32],
    n_centres: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    *,
    rounds: int = _ROUNDS,
    verbose: bool = False,
) -> NDArray[np.float32]:
    """Centres (n_centres, d) for rows like the sample (n, d) float32."""
    sample = np.ascontiguousarray(sample)
    centres = _seeds(sample, n_centres, rng, n_jobs)
    for _ in _watched(rounds, verbose):
        centres = _means(sample, centres, rng, n_jobs)
    return centres


def nearest_centres(
    rows: NDArray[np.float32], centres: NDArray[np.float32], n_jobs: int | None = None
) -> NearestCentre:
    """The nearest centre of each row (n, d); of equally near ones the first."""
    found = NearestCentre(np.empty(len(rows), np.int64), np.empty(len(rows), np.float32))

    def work(part: slice) -> None:
        assign_centres(rows[part], centres, found.centres[part], found.gaps[part])

    pmap(work, spans(len(rows), max(64, 2**20 // max(1, rows.shape[1]))), n_jobs)
    return found


def assign_centres(rows: NDArray, centres: NDArray, near: NDArray, gaps: NDArray) -> None:
    """`nearest_centres` of one thread, into near (n,) and gaps (n,)."""
    halves, half, tile = half_squares(rows), half_squares(centres), max(16, _TILE // len(centres))
    room = np.empty((min(tile, len(rows)), len(centres)), np.float32)
    for part in spans(len(rows), tile):
        block = rows[part]
        products = np.matmul(block, centres.T, out=room[: len(block)])  # (m, c)
        nearest_centre(products, products.view(np.int32), half, halves[part], near[part], gaps[part])


def half_squares(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """||x||^2 / 2 of each row (n,)."""
    return frozen(0.5 * np.einsum("ij,ij->i", rows, rows))


def _seeds(sample: NDArray, n_centres: int, rng: np.random.Generator, n_jobs: int | None) -> NDArray[np.float32]:
    first = sample[rng.choice(len(sample), max(1, n_centres // 2), replace=False)]
    wanted = n_centres - len(first)
    if not wanted:
        return first
    gaps = _gaps(sample, nearest_centres(sample, first, n_jobs))
    more = _far_rows(sample, gaps, wanted, rng)
    if len(more) < wanted:  # few distinct rows: any will do
        more = sample[rng.choice(len(sample), wanted, replace=False)]
    return np.concatenate([first, more])


def _means(sample: NDArray, centres: NDArray, rng: np.random.Generator, n_jobs: int | None) -> NDArray[np.float32]:
    """One round: the means of the rows of each centre, and rows far from their centre where one has none."""
    nearest = nearest_centres(sample, centres, n_jobs)
    counts = np.bincount(nearest.centres, minlength=len(centres))
    filled, empty = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    starts = np.cumsum(counts) - counts
    new = centres.copy()
    ordered = sample[in_cell_order(nearest.centres, len(centres))]
    sums = np.add.reduceat(ordered, starts[filled], axis=0)
    new[filled] = sums / counts[filled, None].astype(np.float32)
    if len(empty):
        far = _far_rows(sample, _gaps(sample, nearest), len(empty), rng)
        new[empty[: len(far)]] = far
    return new


def in_cell_order(cells: NDArray[np.int64], n_cells: int) -> NDArray[np.int64]:
    """Positions (n,) ordered by cell, then by position."""
    narrow = cells.astype(np.uint16) if n_cells <= 2**16 else cells  # 16 bits sort by radix, five times faster
    return np.argsort(narrow, kind="stable")


def _gaps(sample: NDArray, nearest: NearestCentre) -> NDArray[np.float64]:
    """How far (n,) each row is from its centre, squared; what is rounding is 0."""
    gaps = 2.0 * nearest.gaps.astype(np.float64)
    return np.where(gaps > 2e-6 * half_squares(sample).max(), gaps, 0.0)


def _far_rows(sample: NDArray, gaps: NDArray, count: int, rng: np.random.Generator) -> NDArray:
    """Up to `count` rows, drawn with probability in proportion to their squared distance."""
    far = np.flatnonzero(gaps)
    if not len(far):
        return sample[:0]
    return sample[rng.choice(far, min(count, len(far)), replace=False, p=gaps[far] / gaps[far].sum())]


def _watched(rounds: int, verbose: bool) -> Iterable[int]:
    if not verbose:
        return range(rounds)
    from rich.progress import track

    return track(range(rounds), description="landmarks")
