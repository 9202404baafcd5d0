"""Fewer rows than columns: the same problem in as many columns as there are rows.

    X' = Q R, Q (d, n) orthonormal:   f = X W' + b = R' V' + b,   W = V Q',   ||W|| = ||V||

Any part of W that is orthogonal to all rows adds to an L2 penalty and changes no score, so the optimum has none: V (R,
n) against R' is the whole problem, exactly, for every loss. One factorisation replaces d columns by n.

Columns may be in units that are twenty orders of magnitude apart. Householder's reflections keep the digits of small
columns next to large ones if rows are pivoted and the columns come in order of size (Cox and Higham 1998).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dormqr

from kway.compute.threads import single_blas
from kway.data.gate import Rows
from kway.linear.objective.distinct_rows import equal_keys
from kway.linear.objective.objective import Objective

MOST_VALUES = 1 << 24  # of X as float64: 128 MB
_MOST_WORK = 2e10  # products of the factorisation: about a second
_WORTH = 0.8  # rows over columns up to which it pays
_ROUNDING = 1e-13  # of the largest value: columns of no more are none
APART = 1e5  # sizes of columns this far from each other need pivots, which take twice as long


@dataclass(frozen=True)
class RowSpan:
    """A problem on n columns, and the way between its theta (R, n + 1) and that of all columns (R, d + 1)."""

    objective: Objective
    reflections: NDArray[np.float64]  # (d, n), Householder vectors below the diagonal
    scales: NDArray[np.float64]  # (n,) their factors
    order: NDArray[np.int64]  # (d,) columns by size
    dtype: np.dtype

    def into(self, theta: NDArray) -> NDArray:
        """theta's part in the span: V = W Q."""
        W = np.asfortranarray(theta[:, :-1].T[self.order], np.float64)  # (d, R)
        V = self._turned(W, "T")[: len(self.scales)].T
        return np.hstack([V, theta[:, -1:].astype(np.float64)])

    def back(self, theta: NDArray) -> NDArray:
        """theta of all columns: W = V Q'."""
        d, n = self.reflections.shape
        V = np.zeros((d, len(theta)), order="F")
        V[:n] = theta[:, :-1].T
        W = np.empty((d, len(theta)))
        W[self.order] = self._turned(V, "N")
        return np.hstack([W.T, theta[:, -1:]]).astype(self.dtype)

    def _turned(self, A: NDArray, how: str) -> NDArray:
        """Q A, or with how = "T" Q' A; A (d, R) in Fortran's order is overwritten."""
        work = max(1, 64 * A.shape[1])
        found, _, _ = dormqr("L", how, self.reflections, self.scales, A, work, overwrite_c=1)
        return found


def row_span(objective: Objective) -> RowSpan | None:
    """The problem in the span of its rows; None where that is not smaller, not the same, or dear."""
    n, d = objective.n, objective.d
    same = objective.rows_here and objective.penalty.smooth and objective.penalty.ridge > 0 and n <= _WORTH * d
    if not same or n * d > MOST_VALUES or float(n) * n * d > _MOST_WORK:
        return None
    with single_blas():
        return _factored(objective)


def _factored(objective: Objective) -> RowSpan:
    n, X = objective.n, _dense(objective.X)
    sizes = np.abs(X).max(axis=0)
    order = np.argsort(-sizes, kind="stable")
    used = sizes[sizes > 0]
    if len(used) and used.max() > APART * used.min():
        (reflections, scales), triangle, turn = la.qr(X.T[order], mode="raw", pivoting=True, check_finite=False)
    else:
        (reflections, scales), triangle = la.qr(X.T[order], mode="raw", check_finite=False)
        turn = np.arange(n)
    short = np.empty((n, n))
    short[turn] = triangle[:n].T
    if len(used) and used.max() <= APART * used.min():
        short[:, np.abs(short).max(axis=0) <= _ROUNDING * used.max()] = 0  # of rows that others add up to
    reduced = replace(objective, X=short[_first_equal(X)], turned=[], weight=_double(objective.weight))
    return RowSpan(reduced, reflections[:, :n], scales[:n], order, objective.X.dtype)


def _first_equal(X: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each row the first that is the same: rounding may not tell them apart, or it would be learned from."""
    _, first, which = np.unique(equal_keys(X), return_index=True, return_inverse=True)  # of X itself: 15 times as long
    first = first[which]
    return np.where((X[first] == X).all(axis=1), first, np.arange(len(X)))


def _dense(X: Rows) -> NDArray[np.float64]:
    return np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)


def _double(weight: NDArray | None) -> NDArray | None:
    return None if weight is None else weight.astype(np.float64)
