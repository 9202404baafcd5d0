"""Column frames: the same problem in columns that suit a solver better, and the way of theta (R, d + 1) there and back.

OwnUnits    every column divided by its size, for the perceptron, which adds rows to weights
Centering   rows about their mean, which a bias takes up
RowSpan     n < d: the same problem in as many columns as there are rows

**Own units.** z_ij = x_ij / unit_j, theta = [W unit, b]. Without it, a column measured in millionths would weigh a
million times as much as the others. The unit of a column is the root mean square of its nonzero entries.

**Centering.** f = W (x - mu) + c = W x + b, b = c - W mu. Stochastic steps from rows as they are go mostly along mu: on
the 784 pixels of Omniglot sampled softmax came to a loss of 4.79 in 20 epochs; about the mean, to 4.67 in 8.

**Row span.** X' = Q R, Q (d, n) orthonormal: f = X W' + b = R' V' + b, W = V Q', ||W|| = ||V||. Any part of W that is
orthogonal to all rows adds to an L2 penalty and changes no score, so the optimum has none. V (R, n) against R' is the
whole problem, exactly, for every loss.

If rows are far from depending on each other the factor of X X' = R' R serves, and
Q = X' R^-1 stays unwritten. Else Householder reflections: columns may be in units that are twenty orders of magnitude
apart, and reflections keep the digits of small columns next to large ones if rows are pivoted and the columns come in
order of size (Cox and Higham 1998).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray
from scipy.linalg.lapack import dormqr, dpocon, dpotrf

from kway.linear.distinct_rows import equal_keys
from kway.linear.objective import Objective
from kway.rows.dense import DenseRows
from kway.rows.matrices import dense_rows
from kway.rows.passes import wrap_rows
from kway.threads import single_blas

MOST_VALUES = 1 << 24  # of X as float64: 128 MB
_MOST_WORK = 2e10  # products of the factorisation: about a second
_WORTH = 0.8  # rows over columns up to which it pays
_ROUNDING = 1e-13  # of the largest value: columns of no more are none
_INDEPENDENT = 1e-6  # least over largest eigenvalue of the rows' correlations, about: 1e-10 is lost then
_SQUARED = 1e140  # lengths of rows whose squares keep all digits, and one over it
APART = 1e5  # sizes of columns this far from each other need pivots, which take twice as long


@dataclass(frozen=True)
class OwnUnits:
    """The problem in its columns' own units (d,), and the way there and back."""

    objective: Objective
    units: NDArray[np.float64]
    dtype: np.dtype

    def into(self, theta: NDArray) -> NDArray:
        """theta (R, d + 1) of the columns given, in their units."""
        return np.hstack([theta[:, :-1] * self.units, theta[:, -1:]]).astype(self.dtype)

    def back(self, theta: NDArray) -> NDArray:
        """theta of the columns given."""
        return np.hstack([theta[:, :-1] / self.units, theta[:, -1:]]).astype(self.dtype)


def in_own_units(objective: Objective) -> OwnUnits:
    """The same rows with every column divided by its unit."""
    rows = objective.rows
    units = rows.units()
    return OwnUnits(replace(objective, rows=rows.divided(units)), units, rows.dtype)


@dataclass(frozen=True)
class Centering:
    """A problem on centered rows, and the way of theta (R, d + 1) there and back, in place."""

    objective: Objective
    mean: NDArray

    def into(self, theta: NDArray) -> NDArray:
        """theta of the rows as they are -> of the centered ones."""
        theta[:, -1] += theta[:, :-1] @ self.mean
        return theta

    def back(self, theta: NDArray) -> NDArray:
        """And back."""
        theta[:, -1] -= theta[:, :-1] @ self.mean
        return theta


def centering(objective: Objective) -> Centering:
    """The problem about the mean of its rows; as it is if rows are sparse, or there is no bias to take the shift up."""
    rows = objective.rows
    if not objective.fit_intercept:
        return Centering(objective, np.zeros(objective.d, rows.dtype))
    mean = rows.mean()
    return Centering(replace(objective, rows=rows.less(mean)), mean)


class Basis(Protocol):
    """Q (d, n)."""

    def into(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """V = W Q, (R, n)."""
        ...

    def back(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """W = V Q', (R, d)."""
        ...


@dataclass(frozen=True)
class Reflections:
    """Q as Householder's vectors."""

    vectors: NDArray[np.float64]  # (d, n), below the diagonal
    scales: NDArray[np.float64]  # (n,) their factors
    order: NDArray[np.int64]  # (d,) columns by size

    def into(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """V = W Q."""
        return self._turned(np.asfortranarray(W.T[self.order]), "T")[: len(self.scales)].T

    def back(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """W = V Q'."""
        d, n = self.vectors.shape
        A = np.zeros((d, len(V)), order="F")
        A[:n] = V.T
        W = np.empty((d, len(V)))
        W[self.order] = self._turned(A, "N")
        return W.T

    def _turned(self, A: NDArray, how: str) -> NDArray:
        """Q A, or with how = "T" Q' A; A (d, R) in Fortran's order is overwritten."""
        work = max(1, 64 * A.shape[1])
        found, _, _ = dormqr("L", how, self.vectors, self.scales, A, work, overwrite_c=1)
        return found


@dataclass(frozen=True)
class RootOfGram:
    """Q = X' R^-1."""

    X: NDArray[np.float64]  # (n, d)
    root: NDArray[np.float64]  # R' (n, n), lower triangle

    def into(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """V = W X' R^-1."""
        return np.asarray(la.solve_triangular(self.root, self.X @ W.T, lower=True).T)

    def back(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """W = V R'^-1 X."""
        return np.asarray(la.solve_triangular(self.root, V.T, lower=True, trans="T").T @ self.X)


@dataclass(frozen=True)
class RowSpan:
    """A problem on n columns, and the way between its theta (R, n + 1) and that of all columns (R, d + 1)."""

    objective: Objective
    basis: Basis
    dtype: np.dtype

    def into(self, theta: NDArray) -> NDArray:
        """theta's part in the span."""
        with single_blas():
            return np.hstack([self.basis.into(theta[:, :-1].astype(np.float64)), theta[:, -1:].astype(np.float64)])

    def back(self, theta: NDArray) -> NDArray:
        """theta of all columns; reflections are small products, between which BLAS's own threads would wait."""
        with single_blas():
            return np.hstack([self.basis.back(theta[:, :-1]), theta[:, -1:]]).astype(self.dtype)


class Factors(NamedTuple):
    """X = short Q', short (n, n)."""

    short: NDArray[np.float64]
    basis: Basis


def row_span(objective: Objective) -> RowSpan | None:
    """The problem in the span of its rows; None where that is not smaller, not the same, or dear."""
    n, d = objective.n, objective.d
    same = objective.in_memory and objective.penalty.smooth and objective.penalty.ridge > 0 and n <= _WORTH * d
    if not same or n * d > MOST_VALUES or float(n) * n * d > _MOST_WORK:
        return None
    with single_blas():
        return _factored(objective)


def _factored(objective: Objective) -> RowSpan:
    X = dense_rows(objective.X)
    sizes = np.maximum(X.max(axis=0), -X.min(axis=0))
    used = sizes[sizes > 0]
    apart = len(used) > 0 and bool(used.max() > APART * used.min())
    root = None if apart else _root_of_gram(X)
    factors = Factors(root, RootOfGram(X, root)) if root is not None else _reflected(X, sizes, apart)
    reduced = replace(objective, rows=wrap_rows(factors.short), weight=_double(objective.weight))
    return RowSpan(reduced, factors.basis, objective.rows.dtype)


def _root_of_gram(X: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """R' (n, n) of X X' = R' R; None where rows nearly depend on each other and rounding would show."""
    with np.errstate(over="ignore"):
        gram = X @ X.T
    size = np.sqrt(np.diag(gram))
    if not (size.min() > 1 / _SQUARED and size.max() < _SQUARED):
        return None
    root, failed = dpotrf(gram / size / size[:, None], lower=1, clean=1)
    if failed or not dpocon(root, 1.0, uplo="L")[0] >= _INDEPENDENT:
        return None
    return np.ascontiguousarray(root * size[:, None])


def _reflected(X: NDArray[np.float64], sizes: NDArray[np.float64], apart: bool) -> Factors:
    """R' (n, n) and Q by reflections, pivoted where columns are far apart."""
    n, order = len(X), np.argsort(-sizes, kind="stable")
    if apart:
        (vectors, scales), triangle, turn = la.qr(X.T[order], mode="raw", pivoting=True, check_finite=False)
    else:
        (vectors, scales), triangle = la.qr(X.T[order], mode="raw", check_finite=False)
        turn = np.arange(n)
    short = np.empty((n, n))
    short[turn] = triangle[:n].T
    if not apart:
        short[:, np.abs(short).max(axis=0) <= _ROUNDING * sizes.max()] = 0  # of rows that others add up to
    return Factors(short[_first_equal(X)], Reflections(vectors[:, :n], scales[:n], order))


def _first_equal(X: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each row the first that is the same: rounding may not tell them apart, or it would be learned from."""
    _, first, which = np.unique(
        equal_keys(DenseRows(X)), return_index=True, return_inverse=True
    )  # of X itself: 15 times as long
    first = first[which]
    return np.where((X[first] == X).all(axis=1), first, np.arange(len(X)))


def _double(weight: NDArray | None) -> NDArray | None:
    return None if weight is None else weight.astype(np.float64)
