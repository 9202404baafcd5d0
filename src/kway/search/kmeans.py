"""k-means: landmarks (c, d) such that rows lie near their nearest one. Lloyd's iterations on a sample.

    assign   each row to argmin_c ||x - m_c||^2 = argmax_c (x . m_c - ||m_c||^2 / 2), one blocked matrix product
    update   each landmark to the mean of its rows; an empty one to a row far from its landmark

Seeding takes distinct random rows in two rounds: the second draws with probability growing with the distance to the
first (the idea of k-means++, without its one pass a landmark).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.search.blocks import top_products


class Cells(NamedTuple):
    """Landmarks (c, d) and the nearest landmark (n,) of each row."""

    landmarks: NDArray[np.float32]
    nearest: NDArray[np.int64]


def kmeans(
    rows: NDArray[np.float32], n_cells: int, *, seed: int = 0, iterations: int = 8, verbose: bool = False
) -> Cells:
    """Landmarks of rows (n, d) float32 and the cell of every row; n_cells <= n."""
    rng = np.random.default_rng(seed)
    n = len(rows)
    size = min(n, max(32 * n_cells, 4096))  # 32 rows a landmark place it well; more only cost time
    sample = rows if size == n else rows[np.sort(rng.choice(n, size, replace=False))]
    landmarks = _seed(sample, n_cells, rng)
    for _ in _progress(iterations, verbose):
        landmarks = _means(sample, landmarks, rng)
    return Cells(landmarks, assign(rows, landmarks))


def assign(rows: NDArray[np.float32], landmarks: NDArray[np.float32]) -> NDArray[np.int64]:
    """The nearest landmark (n,) of each row."""
    return top_products(rows, landmarks, 1, offset=_minus_half_squares(landmarks)).ids[:, 0]


def _seed(sample: NDArray, n_cells: int, rng: np.random.Generator) -> NDArray[np.float32]:
    first = sample[rng.choice(len(sample), max(1, n_cells // 2), replace=False)]
    if len(first) == n_cells:
        return first
    more = _far_rows(sample, _nearest(sample, first).gaps, n_cells - len(first), rng)
    if len(more) < n_cells - len(first):  # few distinct rows: any will do
        more = sample[rng.choice(len(sample), n_cells - len(first), replace=False)]
    return np.concatenate([first, more])


def _means(sample: NDArray, landmarks: NDArray, rng: np.random.Generator) -> NDArray[np.float32]:
    """One iteration: the means of the cells, and rows far from their landmark where a cell is empty."""
    nearest, gaps = _nearest(sample, landmarks)
    counts = np.bincount(nearest, minlength=len(landmarks))
    filled, empty = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    starts = np.cumsum(counts) - counts
    new = landmarks.copy()
    ordered = sample[np.argsort(nearest, kind="stable")]
    new[filled] = np.add.reduceat(ordered, starts[filled], axis=0, dtype=np.float64) / counts[filled, None]
    far = _far_rows(sample, gaps, len(empty), rng)
    new[empty[: len(far)]] = far
    return new


class _Nearest(NamedTuple):
    cells: NDArray[np.int64]  # (n,)
    gaps: NDArray[np.float64]  # (n,) squared distances


def _nearest(sample: NDArray, landmarks: NDArray) -> _Nearest:
    found = top_products(sample, landmarks, 1, offset=_minus_half_squares(landmarks))
    squares = np.einsum("ij,ij->i", sample, sample, dtype=np.float64)
    gaps = squares - 2.0 * found.scores[:, 0]
    return _Nearest(found.ids[:, 0], np.where(gaps > 1e-6 * squares.max(), gaps, 0.0))  # below it is rounding


def _far_rows(sample: NDArray, gaps: NDArray, count: int, rng: np.random.Generator) -> NDArray:
    """Up to `count` rows, drawn with probability in proportion to their squared distance."""
    far = np.flatnonzero(gaps)
    if not len(far):
        return sample[:0]
    return sample[rng.choice(far, min(count, len(far)), replace=False, p=gaps[far] / gaps[far].sum())]


def _minus_half_squares(landmarks: NDArray) -> NDArray:
    return -0.5 * np.einsum("ij,ij->i", landmarks, landmarks)


def _progress(iterations: int, verbose: bool) -> Iterable[int]:
    if not verbose:
        return range(iterations)
    from rich.progress import track

    return track(range(iterations), description="landmarks")
