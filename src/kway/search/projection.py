"""Projections: a short and a longer summary of each row that never overstate a distance, for landmark cells.

z = x - mean, V (d, M) the leading principal directions of a sample, p = V'z:

    short   [p_1 .. p_m, ||rest||]        (m + 1,)       the first filter, a matrix product
    long    [p_m+1 .. p_M, ||rest||]      (M - m + 1,)   the second, one row at a time; empty where d is small

||short(q) - short(x)|| <= ||q - x|| and short(q).short(x) >= q.x, likewise for [p_1 .. p_m, long].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.cells import centre_rows, fill_sketches
from kway.kernels.jit import frozen
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.kmeans import SAMPLE_ROWS
from kway.threads import single_blas

_SMALL = 24  # columns up to which a row is its own projection (T3)
_SHORT = 64  # the longest short one (T3)
_SHARE = 0.95  # of a row's bytes that its short one, position and half square take: an index is within twice its rows
ENERGY = 0.85  # of the variance that the short one should hold (T3)
_LONG = 192  # on images 48 to 96 short and 128 to 256 long take the same time within a tenth (T3)


class Projected(NamedTuple):
    """short (n, m + 1), long (n, M - m + 1 or 0) float32 and norms (n,) float64 of centred rows."""

    short: NDArray[np.float32]
    long: NDArray[np.float32]
    norms: NDArray[np.float64]

    @property
    def lead(self) -> NDArray[np.float32]:
        """(n, m): the coordinates of the short one alone, among which landmarks live."""
        return self.short[:, :-1]

    def part(self, where: slice) -> Projected:
        """Those of some rows, sharing memory."""
        return Projected(self.short[where], self.long[where], self.norms[where])


@dataclass(frozen=True)
class Projection:
    """mean (d,), basis (d, M) or (d, 0) where rows are their own, and the length of the short one."""

    mean: NDArray[np.float64]
    basis: NDArray[np.float32]
    length: int

    def room(self, n: int, long: bool = True) -> Projected:
        """Room for the projections of n rows, without the long ones where nobody reads them."""
        width = self.basis.shape[1]
        more = width - self.length + 1 if long and width > self.length else 0
        return Projected(np.empty((n, self.length + 1), np.float32), np.empty((n, more), np.float32), np.empty(n))

    def fill(self, rows: NDArray, out: Projected) -> None:
        """Projections of rows (n, d) into room for n."""
        z = np.empty(rows.shape, np.float32)
        centre_rows(frozen(rows), frozen(self.mean), z, out.norms)  # squares, so far
        width = self.basis.shape[1] if out.long.shape[1] else self.length
        p = z @ self.basis[:, :width] if self.basis.shape[1] else z  # (n, M)
        fill_sketches(p, out.norms, out.short, out.long)
        np.sqrt(out.norms, out=out.norms)

    def of(self, rows: NDArray, long: bool = True) -> Projected:
        """Projections of rows (n, d)."""
        out = self.room(len(rows), long)
        self.fill(rows, out)
        return out


def projection_sample(rows: Any, seed: int) -> Any:
    """As many rows (n, d), decoded, as a projection is learned from; where they are."""
    n, d = rows.shape
    size = max(SAMPLE_ROWS, 6 * d)
    return rows[:] if n <= size else rows[np.sort(np.random.default_rng(seed).choice(n, size, replace=False))]


def learn_projection(rows: NDArray | TensorRows, centred: bool, seed: int) -> Projection:
    """The projection for rows like these (n, d), centred on their mean or on the origin."""
    d = rows.shape[1]
    mean = rows.mean(axis=0, dtype=np.float64) if centred else np.zeros(d)
    if d <= _SMALL:
        return Projection(mean, np.empty((d, 0), dtype=np.float32), d)
    spread = _spread(rows, mean)
    most = _LONG if d >= 1.5 * _LONG else min(_SHORT, int(_SHARE * d) - 4)
    values, vectors = _leading(spread, most, np.random.default_rng(seed))
    held = np.cumsum(values) / max(np.trace(spread), 1e-300)
    length = next((m for m in (16, 24, 32, 48) if m <= most and held[m - 1] >= ENERGY), min(_SHORT, most))
    kept = most if most > _SHORT else length
    return Projection(mean, frozen(vectors[:, :kept].astype(np.float32)), length)


def _spread(rows: NDArray | TensorRows, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """z'z (d, d) of z = x - mean, added up in float32."""
    if isinstance(rows, TensorRows):
        return rows.less(mean).gram(None, False, np.dtype(np.float32)).astype(np.float64)
    z = (rows - mean).astype(np.float32)
    return (z.T @ z).astype(np.float64)


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
