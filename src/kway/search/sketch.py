"""Sketches: a short and a longer summary of each row that never overstate a distance.

z = x - mean, V (d, M) the leading principal directions of a sample, p = V'z:

    short   [p_1 .. p_m, ||rest||]    (m + 1,)     the first filter, a matrix product
    long    [p_1 .. p_M, ||rest||]    (M + 1,)     the second, one row at a time; empty where d is small

||short(q) - short(x)|| <= ||q - x|| and short(q).short(x) >= q.x, likewise for long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.cells import centre_rows, fill_sketches
from kway.compute.kernels.jit import frozen
from kway.compute.threads import single_blas

SAMPLE = 4096  # rows, or six for each column, that the directions are learned from
SMALL = 24  # columns up to which a row is its own sketch
SHORT = 64  # the longest short one
SHARE = 0.95  # of a row's bytes that its short sketch, position and half square take: an index is within twice its rows
ENERGY = 0.85  # of the variance that the short sketch should hold
LONG = 192  # on images 48 to 96 short and 128 to 256 long coordinates take the same time within a tenth


class Sketched(NamedTuple):
    """short (n, m + 1), long (n, M + 1 or 0) float32 and norms (n,) float64 of centred rows."""

    short: NDArray[np.float32]
    long: NDArray[np.float32]
    norms: NDArray[np.float64]


@dataclass(frozen=True)
class Sketch:
    """mean (d,), basis (d, M) or (d, 0) where rows are their own sketch, and the length of the short one."""

    mean: NDArray[np.float64]
    basis: NDArray[np.float32]
    length: int

    def of(self, rows: NDArray) -> Sketched:
        """Sketches of rows (n, d)."""
        z, squares, width = np.empty(rows.shape, np.float32), np.empty(len(rows)), self.basis.shape[1]
        centre_rows(frozen(rows), frozen(self.mean), z, squares)
        p = z @ self.basis if width else z  # (n, M)
        short = np.empty((len(z), self.length + 1), dtype=np.float32)
        long = np.empty((len(z), width + 1 if width > self.length else 0), dtype=np.float32)
        fill_sketches(p, squares, short, long)
        return Sketched(short, long, np.sqrt(squares))


def sample(rows: NDArray, seed: int) -> NDArray:
    """As many rows as a sketch is learned from."""
    n, d = rows.shape
    size = max(SAMPLE, 6 * d)
    return rows if n <= size else rows[np.sort(np.random.default_rng(seed).choice(n, size, replace=False))]


def learn(rows: NDArray, centred: bool, seed: int) -> Sketch:
    """The sketch for rows like these (n, d), centred on their mean or on the origin."""
    d = rows.shape[1]
    exact = rows.astype(np.float64)
    mean = exact.mean(axis=0) if centred else np.zeros(d)
    if d <= SMALL:
        return Sketch(mean, np.empty((d, 0), dtype=np.float32), d)
    z = (exact - mean).astype(np.float32)
    spread = (z.T @ z).astype(np.float64)  # (d, d)
    most = LONG if d >= 1.5 * LONG else min(SHORT, int(SHARE * d) - 4)
    values, vectors = _leading(spread, most, np.random.default_rng(seed))
    held = np.cumsum(values) / max(np.trace(spread), 1e-300)
    length = next((m for m in (16, 24, 32, 48) if m <= most and held[m - 1] >= ENERGY), min(SHORT, most))
    kept = most if most > SHORT else length
    return Sketch(mean, frozen(vectors[:, :kept].astype(np.float32)), length)


def _leading(spread: NDArray, count: int, rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Leading eigenvalues (count,) and eigenvectors (d, count), nearly: subspace iteration, a tenth of a full `eigh`.

    Any orthonormal basis gives true bounds; one that is nearly the best gives bounds that are nearly as sharp.
    """
    with single_blas():
        basis = rng.standard_normal((len(spread), count))
        for _ in range(3):
            basis = np.linalg.qr(spread @ basis)[0]
        values, turn = np.linalg.eigh(basis.T @ spread @ basis)
    return np.maximum(values[::-1], 0.0), (basis @ turn)[:, ::-1]
