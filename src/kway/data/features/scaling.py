"""Rows that are numbers already: which scaling, if any, and why, in words.

scale="auto"      images and embeddings are left alone (bytes divided by their top), other columns standardised
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

from kway.data.features.numbers import Numbers, column_moments, default_names, learn_numbers, unscaled
from kway.errors import InputError

SCALES = ("auto", "none", "standard")
_SAMPLED_ROWS = 2000  # rows looked at to tell what the numbers are
MANY_FEATURES = 50  # features from which columns of like spread are read as an embedding
_UNIT_SLACK = 0.01  # float16 rows of length 1 are off by this much


class Scaling(NamedTuple):
    """What is done to a matrix: an encoder, None for nothing at all, and the reason in words."""

    encoder: Numbers | Divided | None
    done: str


@dataclass(frozen=True, eq=False)
class Divided:
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
        return Scaling(learn_numbers(X, names), "standardised" + filled)
    reason, divisor = ("as asked", 1.0) if scale == "none" else _leave_alone(X[:: max(1, len(X) // _SAMPLED_ROWS)])
    if not reason:
        return Scaling(learn_numbers(X, names), "standardised (mean 0, standard deviation 1)" + filled)
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
    if (np.abs(lengths - 1) < _UNIT_SLACK).all():
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
    return Scaling(Divided(names, most), "sparse columns divided by their largest absolute value")
