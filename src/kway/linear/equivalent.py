"""Equivalent problems: the same optimum on fewer rows or in other columns, and theta (R, d + 1) in both.

merge_equal_rows   equal rows with equal targets become one row, their weights added
ScaledColumns      every column divided by its size, for the perceptron, which adds rows to weights
CenteredRows       rows minus their mean, which the bias absorbs
RowSpan            n < d: the same problem in n columns

**Equal rows.** A weight of 2 is exactly the same as a row given twice, and the result does not depend on the order of
the rows.

**Scaled columns.** z_ij = x_ij / unit_j, theta = [W unit, b]. Without it, a column measured in millionths would weigh a
million times as much as the others. The unit of a column is the root mean square of its nonzero entries.

**Centered rows.** f = W (x - mu) + c = W x + b, b = c - W mu. Without it, stochastic steps go mostly along mu.

**Row span.** X' = Q R, Q (d, n) orthonormal: f = X W' + b = R' V' + b, W = V Q', ||W|| = ||V||. Any part of W that is
orthogonal to all rows adds to an L2 penalty and changes no score, so the optimum has none. V (R, n) against R' is the
whole problem, exactly, for every loss.

If the rows are far from linearly dependent, R comes from the Cholesky factor of X X' = R' R, and Q = X' R^-1 is never
formed. Otherwise Q is a product of Householder reflections. Columns may differ in size by twenty orders of magnitude;
reflections keep the digits of small columns if the rows are pivoted and the columns are sorted by size [1]_.

.. [1] Cox and Higham (1998), Stability of Householder QR factorization for weighted least squares problems.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray
from scipy.linalg.lapack import dormqr, dpocon, dpotrf

from kway.linear.objective import Objective
from kway.memory import BLOCK_BYTES, CACHE_BYTES
from kway.rows.dense import DenseRows
from kway.rows.matrices import dense_rows
from kway.rows.passes import DISTINCT, RowPasses, wrap_rows
from kway.threads import single_blas

_MAX_SPAN_WORK = 2e10  # multiplications of the factorization, about a second (row T4d, wide texts)
_MAX_ROW_SHARE = 0.8  # rows relative to columns up to which the span saves time (tests/linear/test_row_span.py)
# Smallest reciprocal condition number of the correlations of the rows for Cholesky. The relative error of the scores is
# then about eps / 1e-6 = 2e-10 (eps = 2e-16 is the rounding of float64).
_MIN_CONDITION = 1e-6
_SIZE_RATIO = 1e5  # ratio of column sizes above which rows are pivoted, which takes twice as long (test_row_span.py)
_EPS = np.finfo(np.float64).eps
_SAFE_LENGTH = np.finfo(np.float64).max ** 0.45  # squares of lengths up to this, or down to its inverse, are finite


# ---- equal rows


class DistinctRows(NamedTuple):
    """One row of each group of equal rows, and the groups' weights (n,) at those rows, mean 1 over them."""

    rows: NDArray[np.int64]
    weight: NDArray


def merge_equal_rows(objective: Objective) -> Objective:
    """Return the objective on distinct rows, or as it is if it is so large that sorting costs more than it saves."""
    rows = objective.rows
    if DISTINCT not in rows.offers or rows.n * rows.d * rows.dtype.itemsize > 4 * CACHE_BYTES:
        return objective
    chosen, weight = distinct_rows(objective)
    weight = weight[chosen]
    return replace(
        objective,
        rows=rows.take(chosen),
        targets=objective.targets.of(chosen),
        weight=None if (weight == 1).all() else weight,
    )


def distinct_rows(objective: Objective) -> DistinctRows:
    """Find groups of equal rows by sorting a hash of their values."""
    X, (codes, soft) = objective.rows, objective.targets
    keys = hash_rows(X)
    target_keys = codes if soft is None else soft @ np.arange(1.0, soft.shape[1] + 1)
    order = _sort_by_target_and_key(target_keys, keys)
    start = np.ones(len(order), bool)  # whether a group of equal rows starts here
    candidates = np.flatnonzero((np.diff(keys[order]) == 0) & (np.diff(target_keys[order]) == 0))
    start[candidates + 1] = ~_are_equal(X, soft, order[candidates], order[candidates + 1])
    weight = np.ones(len(order)) if objective.weight is None else objective.weight.astype(np.float64)
    groups = np.add.reduceat(weight[order], np.flatnonzero(start))
    rows = order[start]
    merged = np.zeros(len(order), X.dtype)
    merged[rows] = groups / groups.mean()
    return DistinctRows(rows[groups > 0], merged)


def _sort_by_target_and_key(target_keys: NDArray, keys: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the order by target, then key; the radix sort of int16 codes takes half the time of `lexsort`."""
    order = np.argsort(keys)
    if target_keys.dtype.kind == "i" and target_keys.max(initial=0) <= np.iinfo(np.int16).max:
        target_keys = target_keys.astype(np.int16)
    return order[np.argsort(target_keys[order], kind="stable")]


def hash_rows(rows: RowPasses) -> NDArray[np.float64]:
    """Return one number per row (n,); equal rows have equal numbers."""
    return rows.keys(np.random.default_rng(0).standard_normal(rows.d))


def _are_equal(X: RowPasses, soft: NDArray | None, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
    same = X.equal(a, b)
    return same if soft is None else same & (soft[a] == soft[b]).all(axis=1)


# ---- other columns


@dataclass(frozen=True)
class ScaledColumns:
    """A problem with every column divided by its unit (d,)."""

    objective: Objective
    units: NDArray[np.float64]
    dtype: np.dtype

    def into(self, theta: NDArray) -> NDArray:
        """Return theta (R, d + 1) for the scaled columns."""
        return np.hstack([theta[:, :-1] * self.units, theta[:, -1:]]).astype(self.dtype)

    def back(self, theta: NDArray) -> NDArray:
        """Return theta for the original columns."""
        return np.hstack([theta[:, :-1] / self.units, theta[:, -1:]]).astype(self.dtype)


def scale_columns(objective: Objective) -> ScaledColumns:
    """Divide every column by its unit."""
    rows = objective.rows
    column_units = rows.units()
    return ScaledColumns(replace(objective, rows=rows.scale_columns(column_units)), column_units, rows.dtype)


@dataclass(frozen=True)
class CenteredRows:
    """A problem on centered rows; theta (R, d + 1) is converted in place."""

    objective: Objective
    mean: NDArray

    def into(self, theta: NDArray) -> NDArray:
        """Return theta for the centered rows."""
        theta[:, -1] += theta[:, :-1] @ self.mean
        return theta

    def back(self, theta: NDArray) -> NDArray:
        """Return theta for the original rows."""
        theta[:, -1] -= theta[:, :-1] @ self.mean
        return theta


def center_rows(objective: Objective) -> CenteredRows:
    """Subtract the mean row; sparse rows, or rows without a bias to absorb the shift, stay as they are."""
    rows = objective.rows
    if not objective.fit_intercept:
        return CenteredRows(objective, np.zeros(objective.d, rows.dtype))
    mean = rows.mean()
    return CenteredRows(replace(objective, rows=rows.subtract_mean(mean)), mean)


# ---- the span of the rows


class Basis(Protocol):
    """Q (d, n)."""

    def into(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return V = W Q, (R, n)."""
        ...

    def back(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return W = V Q', (R, d)."""
        ...


@dataclass(frozen=True)
class Reflections:
    """Q as Householder vectors."""

    vectors: NDArray[np.float64]  # (d, n), below the diagonal
    scales: NDArray[np.float64]  # (n,) their factors
    order: NDArray[np.int64]  # (d,) columns by size

    def into(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return V = W Q."""
        return self._multiply(np.asfortranarray(W.T[self.order]), "T")[: len(self.scales)].T

    def back(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return W = V Q'."""
        d, n = self.vectors.shape
        A = np.zeros((d, len(V)), order="F")
        A[:n] = V.T
        W = np.empty((d, len(V)))
        W[self.order] = self._multiply(A, "N")
        return W.T

    def _multiply(self, A: NDArray, transpose: str) -> NDArray:
        """Return Q A, or Q' A if transpose is "T"; A (d, R) in Fortran order is overwritten."""
        work = max(1, 64 * A.shape[1])
        product, _, _ = dormqr("L", transpose, self.vectors, self.scales, A, work, overwrite_c=1)
        return product


@dataclass(frozen=True)
class CholeskyBasis:
    """Q = X' R^-1."""

    X: NDArray[np.float64]  # (n, d)
    root: NDArray[np.float64]  # R' (n, n), lower triangle

    def into(self, W: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return V = W X' R^-1."""
        return np.asarray(la.solve_triangular(self.root, self.X @ W.T, lower=True).T)

    def back(self, V: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return W = V R'^-1 X."""
        return np.asarray(la.solve_triangular(self.root, V.T, lower=True, trans="T").T @ self.X)


@dataclass(frozen=True)
class RowSpan:
    """A problem in n columns. Its theta has shape (R, n + 1), that of the original problem (R, d + 1)."""

    objective: Objective
    basis: Basis
    dtype: np.dtype

    def into(self, theta: NDArray) -> NDArray:
        """Return the part of theta in the span."""
        with single_blas():
            return np.hstack([self.basis.into(theta[:, :-1].astype(np.float64)), theta[:, -1:].astype(np.float64)])

    def back(self, theta: NDArray) -> NDArray:
        """Return theta of all columns."""
        with single_blas():  # threads of BLAS only add overhead to the small products of reflections
            return np.hstack([self.basis.back(theta[:, :-1]), theta[:, -1:]]).astype(self.dtype)


def row_span(objective: Objective) -> RowSpan | None:
    """Return the problem in the span of its rows; None if it is not smaller, not equivalent, or too expensive."""
    n, d, penalty = objective.n, objective.d, objective.penalty
    equivalent = objective.in_memory and penalty.smooth and penalty.ridge > 0 and n <= _MAX_ROW_SHARE * d
    if not equivalent or 8 * n * d > 2 * BLOCK_BYTES or float(n) * n * d > _MAX_SPAN_WORK:
        return None
    with single_blas():
        X = dense_rows(objective.X)
        sizes = np.maximum(X.max(axis=0), -X.min(axis=0))
        nonzero = sizes[sizes > 0]
        pivoted = len(nonzero) > 0 and bool(nonzero.max() > _SIZE_RATIO * nonzero.min())
        root = None if pivoted else _cholesky_of_gram(X)
        coordinates, basis = (root, CholeskyBasis(X, root)) if root is not None else _reflect(X, sizes, pivoted)
    weight = None if objective.weight is None else objective.weight.astype(np.float64)
    return RowSpan(replace(objective, rows=wrap_rows(coordinates), weight=weight), basis, objective.rows.dtype)


def _cholesky_of_gram(X: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return R' (n, n) of X X' = R' R; None if the rows are nearly dependent and rounding would show."""
    with np.errstate(over="ignore"):
        gram = X @ X.T
    size = np.sqrt(np.diag(gram))
    if not (size.min() > 1 / _SAFE_LENGTH and size.max() < _SAFE_LENGTH):
        return None
    root, failed = dpotrf(gram / size / size[:, None], lower=1, clean=1)
    if failed or not dpocon(root, 1.0, uplo="L")[0] >= _MIN_CONDITION:
        return None
    return np.ascontiguousarray(root * size[:, None])


def _reflect(X: NDArray[np.float64], sizes: NDArray[np.float64], pivoted: bool) -> tuple[NDArray, Basis]:
    """Return R' (n, n) and Q by Householder reflections, with pivoting if the columns differ much in size."""
    n, order = len(X), np.argsort(-sizes, kind="stable")
    if pivoted:
        (vectors, scales), triangle, permutation = la.qr(X.T[order], mode="raw", pivoting=True, check_finite=False)
    else:
        (vectors, scales), triangle = la.qr(X.T[order], mode="raw", check_finite=False)
        permutation = np.arange(n)
    coordinates = np.empty((n, n))
    coordinates[permutation] = triangle[:n].T
    if not pivoted:  # coordinates of rows that depend on others are rounding, a few hundred eps of the largest value
        coordinates[:, np.abs(coordinates).max(axis=0) <= 500 * _EPS * sizes.max()] = 0
    return coordinates[_first_equal(X)], Reflections(vectors[:, :n], scales[:n], order)


def _first_equal(X: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the first equal row for each row, so that equal rows get equal coordinates and no rounding is learned."""
    _, first, group = np.unique(hash_rows(DenseRows(X)), return_index=True, return_inverse=True)
    first = first[group]
    return np.where((X[first] == X).all(axis=1), first, np.arange(len(X)))
