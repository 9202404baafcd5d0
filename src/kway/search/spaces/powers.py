"""Rows (n, d), dense or CSR, times powers of two, which change no digit; how large their values are."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.threads import pmap, spans
from kway.data.blocks.row_blocks import FEW_VALUES

_BLOCK = 2**16  # values looked at in one go: they stay in the cache between the largest and the least


def peak(rows: Any) -> float:
    """The largest |value|."""
    if sp.issparse(rows):
        return float(np.abs(rows.data).max(initial=0.0))
    return max(float(rows.max(initial=0.0)), -float(rows.min(initial=0.0)))


def all_below(rows: Any, most: float) -> bool:
    """Whether every |value| is below most: one look at few of them, which do if their squares together do."""
    few = isinstance(rows, np.ndarray) and rows.size <= FEW_VALUES
    return (few and float(np.vdot(rows, rows)) < most * most) or peak(rows) < most


def row_peaks(rows: Any, n_jobs: int | None = None) -> NDArray[np.float64]:
    """The largest |value| of each row (n,)."""
    if sp.issparse(rows):
        return np.asarray(abs(rows).max(axis=1).toarray(), dtype=np.float64).ravel()
    peaks = np.empty(len(rows))

    def work(part: slice) -> None:
        high, low = rows[part].max(axis=1, initial=0.0), rows[part].min(axis=1, initial=0.0)
        peaks[part] = np.maximum(high, -low)

    pmap(work, spans(len(rows), max(64, _BLOCK // max(1, rows.shape[1]))), n_jobs)
    return peaks


def exponents(peaks: NDArray) -> NDArray[np.int64]:
    """e (n,) with 2^(e - 1) <= peak < 2^e; 0 for 0."""
    return np.asarray(np.frexp(peaks)[1], dtype=np.int64)


def by_power(rows: Any, powers: Any) -> Any:
    """Rows times 2^powers, one for all or one a row (n,), in their own type.

    >>> by_power(np.ones((2, 1)), np.array([1, -1])).ravel().tolist()
    [2.0, 0.5]
    """
    each = np.asarray(powers, dtype=np.int32)
    if sp.issparse(rows):
        each = np.repeat(each, np.diff(rows.indptr)) if each.ndim else each
        return sp.csr_matrix((np.ldexp(rows.data, each), rows.indices, rows.indptr), shape=rows.shape)
    return np.ldexp(rows, each[:, None] if each.ndim else each)


def near_one(rows: Any) -> Any:
    """Every row times its own power of two: the largest |value| from 1/2 to 1; zero rows stay zero."""
    return by_power(rows, -exponents(row_peaks(rows)))
