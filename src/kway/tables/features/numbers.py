"""Numbers as input of a classifier: missing values filled and flagged, columns centered and scaled.

    out[:, j]  = (x_j - mean_j) / spread_j, with x_j = fill_j if it is missing           p columns
    out[:, p+] = 1 if x_j is missing, for columns with missing values in training       f columns

fill is the median of the training rows if values are missing, and otherwise the mean. The scaling of a matrix is

    scale="auto"      images and embeddings are not standardized (bytes are divided by 255), other columns are
    scale="none"      no column is changed
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
from kway.memory import CACHE_BYTES, rows_per_block
from kway.threads import spans

SCALES = ("auto", "none", "standard")
MANY_FEATURES = 50  # features from which columns of similar spread count as an embedding: GloVe has 50 (test_matrices)


@dataclass(frozen=True, eq=False)
class Numbers:
    """Filled, flagged and scaled columns.

    Attributes
    ----------
    names : tuple of str
        Names of the p columns; () for x0, x1, ...
    fill, mean, spread : ndarray of shape (p,)
        Value for missing ones, number to subtract, and divisor of each column.
    flagged : ndarray of shape (f,)
        Columns that get a flag, because they had missing values in training.
    """

    names: tuple[str, ...]
    fill: NDArray[np.float64]
    flagged: NDArray[np.int64]
    mean: NDArray[np.float64]
    spread: NDArray[np.float64]

    def apply(self, X: NDArray) -> NDArray[np.float32]:
        """Return (n, p + f) for rows (n, p)."""
        p = len(self.mean)
        out = np.empty((len(X), p + len(self.flagged)), np.float32)
        for rows in _blocks(X):
            block = np.array(X[rows], np.float64)
            missing = np.isnan(block)
            out[rows, p:] = missing[:, self.flagged]
            if missing.any():
                np.copyto(block, np.broadcast_to(self.fill, block.shape), where=missing)
            block -= self.mean
            block /= self.spread
            out[rows, :p] = block
        return out

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        names = self.names or default_names(len(self.mean))
        return (*names, *(f"{names[j]} is missing" for j in self.flagged))

    @property
    def sources(self) -> NDArray[np.int64]:
        """The column (p + f,) of the input that each column of the result is made of."""
        return np.concatenate([np.arange(len(self.mean)), self.flagged])


def _blocks(X: NDArray) -> list[slice]:
    """Return blocks of rows that stay in the cache as float64."""
    return spans(len(X), rows_per_block(8 * X.shape[1], CACHE_BYTES))


def default_names(p: int) -> tuple[str, ...]:
    """Return the names x0, x1, ... for the columns of an array."""
    return tuple(f"x{j}" for j in range(p))


def learn_numbers(X: NDArray, names: tuple[str, ...], divisor: float | None = None) -> Numbers:
    """Learn from training rows (n, p), with NaN for missing values.

    Columns are standardized, or all divided by one number if `divisor` is given.
    """
    p = X.shape[1]
    mean, spread = column_moments(X) if divisor is None else (np.zeros(p), np.full(p, divisor))
    flagged, fill = np.flatnonzero(missing_counts(X)), mean.copy()
    fill[flagged] = _medians(X[:, flagged])
    return Numbers(names, fill, flagged, mean, spread)


def _medians(X: NDArray) -> NDArray[np.float64]:
    """Return the medians (p,) without missing values, 0 for empty columns."""
    X = np.array(X, np.float64)
    X[:, np.isnan(X).all(axis=0)] = 0.0
    return np.nanmedian(X, axis=0) if X.size else np.zeros(X.shape[1])


def missing_counts(X: NDArray) -> NDArray[np.int64]:
    """Return the number of NaN per column (p,)."""
    if X.dtype.kind != "f":
        return np.zeros(X.shape[1], np.int64)
    return sum((np.isnan(X[rows]).sum(axis=0) for rows in _blocks(X)), np.zeros(X.shape[1], int))


def column_moments(X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation (p,) without missing values, in float64; 1 for constant columns.

    Columns whose squares overflow or underflow are scaled by a power of two and computed again.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = _moments(X)
    out_of_range = np.flatnonzero((spread == 0) | ~np.isfinite(spread))
    if out_of_range.size:
        columns = X[:, out_of_range].astype(np.float64)
        unit = np.ldexp(1.0, np.frexp(np.nanmax(np.abs(columns), axis=0, initial=0.0))[1] - 1)
        mean[out_of_range], spread[out_of_range] = (moment * unit for moment in _moments(columns / unit))
    is_rounding = spread <= 1e-12 * np.abs(mean)  # a constant column varies by rounding only
    return mean, np.where(is_rounding, 1.0, spread)


def _moments(X: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute mean and deviation in two passes, because large means (years, times) would cancel in one."""
    count, blocks = len(X) - missing_counts(X), _blocks(X)
    total = sum((np.nansum(X[b], axis=0, dtype=np.float64) for b in blocks), np.zeros(X.shape[1]))
    mean = total / np.maximum(count, 1)
    squares = sum((np.nansum((X[b] - mean) ** 2, axis=0) for b in blocks), np.zeros(X.shape[1]))
    return mean, np.sqrt(squares / np.maximum(count, 1))


# ---- scaling of a matrix


class Scaling(NamedTuple):
    """The scaling of a matrix: its encoder (None if no value changes), and a description for the user."""

    encoder: Numbers | SparseScaling | None
    done: str


@dataclass(frozen=True, eq=False)
class SparseScaling:
    """Sparse columns divided by their largest absolute value `max_abs` (p,), so that zeros stay zeros."""

    names: tuple[str, ...]
    max_abs: NDArray[np.float64]

    def apply(self, X: Any) -> sp.csr_matrix:
        """Return CSR (n, p) of float32 for CSR (n, p)."""
        return sp.csr_matrix(X).multiply(1.0 / self.max_abs).tocsr().astype(np.float32)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the columns of the result."""
        return self.names or default_names(len(self.max_abs))

    @property
    def sources(self) -> NDArray[np.int64]:
        """The column (p,) of the input that each column of the result is made of."""
        return np.arange(len(self.max_abs))


def choose_scaling(X: Any, names: tuple[str, ...], scale: str = "auto") -> Scaling:
    """Choose the scaling of training rows (n, d), dense or CSR."""
    if scale not in SCALES:
        raise InputError(f"scale is {scale!r}; it must be {', '.join(SCALES)}")
    if sp.issparse(X):
        return _choose_sparse_scaling(sp.csr_matrix(X), names, scale)
    has_missing = bool(X.dtype.kind == "f" and np.isnan(np.sum(X, dtype=np.float64)) and np.isnan(X).any())
    filled = ", missing values filled by the median and flagged" if has_missing else ""
    if scale == "standard":
        return Scaling(learn_numbers(X, names), "standardized" + filled)
    reason, divisor = ("as asked", 1.0) if scale == "none" else _reason_not_to_scale(_sample(X))
    if not reason:
        return Scaling(learn_numbers(X, names), "standardized (mean 0, standard deviation 1)" + filled)
    if divisor != 1.0:
        return Scaling(learn_numbers(X, names, divisor), f"{reason}: divided by {divisor:g}{filled}")
    return Scaling(learn_numbers(X, names, 1.0) if has_missing else None, f"left alone ({reason}){filled}")


def _sample(X: NDArray) -> NDArray:
    """Return rows that are evenly spaced, about one block of memory."""
    return X[:: max(1, len(X) // rows_per_block(8 * X.shape[1]))]


def _reason_not_to_scale(X: NDArray) -> tuple[str, float]:
    """Return the reason why these rows are not standardized, and the number to divide them by.

    The reason is "" if they are to be standardized.
    """
    low, high = float(np.nanmin(X)), float(np.nanmax(X))
    if X.dtype == np.uint8 and is_picture_size(X.shape[1]) and high > 1:
        return "bytes of images", 255.0 if high > 127 else high
    if X.dtype.kind != "f" or X.shape[1] < 2:
        return "", 1.0
    lengths = np.linalg.norm(X.astype(np.float64), axis=1)
    if (np.abs(lengths - 1) < 0.01).all():
        return "rows of length 1, as in embeddings", 1.0
    if X.shape[1] < MANY_FEATURES:
        return "", 1.0
    if low >= 0 and 0.5 < high <= 1:
        return "all values within 0 and 1", 1.0
    spread = column_moments(X)[1]
    if spread.max() < 10 * np.median(spread) and np.median(spread) < 10 * spread.min():
        return "many columns of similar spread, as in embeddings", 1.0
    return "", 1.0


def narrowed(X: NDArray) -> NDArray:
    """Return numbers of a table as bytes if they are whole numbers up to 255, else as float32."""
    if X.size and X.min() >= 0 and X.max() <= 255 and (np.floor(X) == X).all():  # NaN compares as False
        return X.astype(np.uint8)
    return X.astype(np.float32)


def is_picture_size(d: int) -> bool:
    """Return whether d values can be a square picture, gray or in color, of 8 x 8 or more pixels."""
    return any(d % c == 0 and d // c >= 64 and math.isqrt(d // c) ** 2 == d // c for c in (1, 3))


def _choose_sparse_scaling(X: sp.csr_matrix, names: tuple[str, ...], scale: str) -> Scaling:
    max_abs = np.abs(X).max(axis=0).toarray().ravel().astype(np.float64)
    if scale == "none" or (scale == "auto" and max_abs.max(initial=0.0) <= 1.0):
        return Scaling(None, f"left alone ({'as asked' if scale == 'none' else 'sparse, all values within -1 and 1'})")
    max_abs[max_abs == 0] = 1.0
    return Scaling(SparseScaling(names, max_abs), "sparse columns divided by their largest absolute value")
