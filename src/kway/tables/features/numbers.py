"""Numbers made ready for a classifier: gaps filled and flagged, centered and scaled.

    out[:, j]  = (x_j, or fill_j if missing, minus mean_j) / spread_j          p columns
    out[:, p+] = 1 if x_j was missing, for columns with gaps in training      f columns

fill is the median of the training rows if they have gaps, else the mean. Rows that are a matrix already are scaled by

    scale="auto"      images and embeddings are left alone (bytes divided by their top), other columns standardized
    scale="none"      left alone
    scale="standard"  mean 0 and standard deviation 1
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError

SCALES = ("auto", "none", "standard")
MANY_FEATURES = 50  # features from which columns of similar spread are taken for an embedding
_BLOCK_ROWS = 4096  # rows copied to float64 at a time, and examined to find out what the numbers are


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


# ---- scaling of a matrix


class Scaling(NamedTuple):
    """What is done to a matrix: an encoder, None for nothing at all, and the reason in words."""

    encoder: Numbers | SparseScaling | None
    done: str


@dataclass(frozen=True, eq=False)
class SparseScaling:
    """Sparse columns divided by their largest absolute value (p,): zeros stay zeros."""

    names: tuple[str, ...]
    most: NDArray[np.float64]

    def apply(self, X: Any) -> sp.csr_matrix:
        """CSR (n, p) -> CSR (n, p) of float32."""
        return sp.csr_matrix(X).multiply(1.0 / self.most).tocsr().astype(np.float32)

    @property
    def made(self) -> tuple[str, ...]:
        """Names of the columns that come out."""
        return self.names or default_names(len(self.most))


def choose_scaling(X: Any, names: tuple[str, ...], scale: str = "auto") -> Scaling:
    """The scaling of training rows (n, d), dense or CSR."""
    if scale not in SCALES:
        raise InputError(f"scale is {scale!r}; it may be {', '.join(SCALES)}")
    if sp.issparse(X):
        return _sparse(sp.csr_matrix(X), names, scale)
    gaps = bool(X.dtype.kind == "f" and np.isnan(np.sum(X, dtype=np.float64)) and np.isnan(X).any())
    filled = ", gaps filled by the median and flagged" if gaps else ""
    if scale == "standard":
        return Scaling(learn_numbers(X, names), "standardized" + filled)
    reason, divisor = ("as asked", 1.0) if scale == "none" else _leave_alone(X[:: max(1, len(X) // _BLOCK_ROWS)])
    if not reason:
        return Scaling(learn_numbers(X, names), "standardized (mean 0, standard deviation 1)" + filled)
    if divisor != 1.0:
        return Scaling(unscaled(X, names, divisor), f"{reason}: divided by {divisor:g}{filled}")
    return Scaling(unscaled(X, names) if gaps else None, f"left alone ({reason}){filled}")


def _leave_alone(X: NDArray) -> tuple[str, float]:
    """Why these rows need no scaling and what they are divided by, ("", 1) where they do need it."""
    low, high = float(np.nanmin(X)), float(np.nanmax(X))
    if X.dtype == np.uint8 and is_picture_size(X.shape[1]) and high > 1:
        return "bytes of images", 255.0 if high > 127 else high
    if X.dtype.kind != "f" or X.shape[1] < 2:
        return "", 1.0
    lengths = np.linalg.norm(X.astype(np.float64), axis=1)
    if (np.abs(lengths - 1) < 0.01).all():
        return "rows of length 1, as embeddings are", 1.0
    if X.shape[1] < MANY_FEATURES:
        return "", 1.0
    if low >= 0 and 0.5 < high <= 1:
        return "all values within 0 and 1", 1.0
    spread = column_moments(X)[1]
    if spread.max() < 10 * np.median(spread) and np.median(spread) < 10 * spread.min():
        return "many columns of like spread, as embeddings have", 1.0
    return "", 1.0


def narrowed(X: NDArray) -> NDArray:
    """The same numbers as bytes where they can be, as float32 otherwise: a table does not say what they were."""
    if X.size and X.min() >= 0 and X.max() <= 255 and (np.floor(X) == X).all():  # NaN compares as False
        return X.astype(np.uint8)
    return X.astype(np.float32)


def is_picture_size(d: int) -> bool:
    """Whether d values can be a square picture, grey or in colour, of 8 x 8 or more."""
    return any(d % c == 0 and d // c >= 64 and math.isqrt(d // c) ** 2 == d // c for c in (1, 3))


def _sparse(X: sp.csr_matrix, names: tuple[str, ...], scale: str) -> Scaling:
    most = np.abs(X).max(axis=0).toarray().ravel().astype(np.float64)
    if scale == "none" or (scale == "auto" and most.max(initial=0.0) <= 1.0):
        return Scaling(None, f"left alone ({'as asked' if scale == 'none' else 'sparse, all values within -1 and 1'})")
    most[most == 0] = 1.0
    return Scaling(SparseScaling(names, most), "sparse columns divided by their largest absolute value")
