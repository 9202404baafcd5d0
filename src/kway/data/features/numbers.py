"""Numbers made ready: gaps filled and flagged, centred and scaled.

    out[:, j]  = (x_j or fill_j where missing, minus mean_j) / spread_j        p columns
    out[:, p+] = 1 where x_j was missing, for columns with gaps in training    f columns

fill is the median of the training rows where they have gaps, the mean where they have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BLOCK_ROWS = 4096  # rows; the float64 copy of a block stays small beside the whole


@dataclass(frozen=True, eq=False)
class Numbers:
    """fill, mean, spread (p,) float64; flagged (f,) the columns with a flag; names (p,), or none for x0, x1, ..."""

    names: tuple[str, ...]
    fill: NDArray[np.float64]
    flagged: NDArray[np.int64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]

    def apply(self, X: NDArray) -> NDArray[np.float32]:
        """(n, p) -> (n, p + f)."""
        p = len(self.mean)
        out = np.empty((len(X), p + len(self.flagged)), np.float32)
        for a in range(0, len(X), _BLOCK_ROWS):
            block = np.array(X[a : a + _BLOCK_ROWS], np.float64)
            missing = np.isnan(block)
            out[a : a + _BLOCK_ROWS, p:] = missing[:, self.flagged]
            if missing.any():
                np.copyto(block, np.broadcast_to(self.fill, block.shape), where=missing)
            block -= self.mean
            block /= self.spread
            out[a : a + _BLOCK_ROWS, :p] = block
        return out

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        names = self.names or default_names(len(self.mean))
        return (*names, *(f"{names[j]} is missing" for j in self.flagged))


def default_names(p: int) -> tuple[str, ...]:
    """x0, x1, ...: columns of an array have no names."""
    return tuple(f"x{j}" for j in range(p))


def learn_numbers(X: NDArray, names: tuple[str, ...]) -> Numbers:
    """From training rows (n, p), NaN where missing."""
    missing = missing_counts(X)
    gaps = np.flatnonzero(missing)
    mean, spread = column_moments(X)
    fill = mean.copy()
    fill[gaps] = _medians(X[:, gaps])
    return Numbers(names, fill, gaps, mean, spread)


def unscaled(X: NDArray, names: tuple[str, ...], divisor: float = 1.0) -> Numbers:
    """Only gaps filled and flagged, and all divided by one number."""
    gaps = np.flatnonzero(missing_counts(X))
    p = X.shape[1]
    fill = np.zeros(p)
    fill[gaps] = _medians(X[:, gaps])
    return Numbers(names, fill, gaps, np.zeros(p), np.full(p, divisor))


def _medians(X: NDArray) -> NDArray[np.float64]:
    """Medians (p,) of what is there, 0 where nothing is."""
    X = np.array(X, np.float64)
    X[:, np.isnan(X).all(axis=0)] = 0.0
    return np.nanmedian(X, axis=0) if X.size else np.zeros(X.shape[1])


def missing_counts(X: NDArray) -> NDArray[np.int64]:
    """NaNs a column (p,)."""
    if X.dtype.kind != "f":
        return np.zeros(X.shape[1], np.int64)
    return sum(
        (np.isnan(X[a : a + _BLOCK_ROWS]).sum(axis=0) for a in range(0, len(X), _BLOCK_ROWS)), np.zeros(X.shape[1], int)
    )


def column_moments(X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation (p,) of what is there, in float64; a column without spread has 1.

    Columns whose squares overflow or vanish are looked at again in a unit of their own.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = _moments(X)
    odd = np.flatnonzero((spread == 0) | ~np.isfinite(spread))
    if odd.size:
        some = X[:, odd].astype(np.float64)
        unit = np.ldexp(1.0, np.frexp(np.nanmax(np.abs(some), axis=0, initial=0.0))[1] - 1)
        mean[odd], spread[odd] = (part * unit for part in _moments(some / unit))
    tiny = spread <= 1e-12 * np.abs(mean)  # rounding, not variation
    return mean, np.where(tiny, 1.0, spread)


def _moments(X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Two passes: the squares of numbers far from 0 (years, times) would cancel in one."""
    count = len(X) - missing_counts(X)
    blocks = [slice(a, a + _BLOCK_ROWS) for a in range(0, len(X), _BLOCK_ROWS)]
    total = sum((np.nansum(X[b], axis=0, dtype=np.float64) for b in blocks), np.zeros(X.shape[1]))
    mean = total / np.maximum(count, 1)
    squares = sum((np.nansum((X[b] - mean) ** 2, axis=0) for b in blocks), np.zeros(X.shape[1]))
    return mean, np.sqrt(squares / np.maximum(count, 1))
