"""Equivalent problems: the same optimum on fewer rows or in other columns, and theta (R, d + 1) in both.

merge_equal_rows   equal rows with equal targets become one row, their weights added
StandardColumns    columns minus their centers, divided by their units
RowSpan            n < d: the same problem in n columns

**Equal rows.** A weight of 2 is exactly the same as a row given twice, and the result does not depend on the order of
the rows.

**Standard columns.** z_ij = (x_ij - center_j) / unit_j, theta = [W unit, b + W center]. With ridge_j = ridge / unit_j^2
and lasso_j = lasso / unit_j, the minimum does not change. Small problems are solved in float64 with the root mean
square of each centered column as its unit, rounded to a power of two, so that dividing by it is exact. The perceptron,
which adds rows to weights, has no centers, and its units are the root mean squares of the nonzero entries. Without
them, a column measured in millionths would weigh a million times as much as the others.

**Row span.** X' = Q R, Q (d, n) orthonormal: f = X W' + b = R' V' + b, W = V Q', ||W|| = ||V||. Any part of W that is
orthogonal to all rows adds to an L2 penalty and changes no score, so the optimum has none. V (R, n) against R' is the
whole problem, exactly, for every loss.

If the rows are far from linearly dependent, R comes from the Cholesky factor of X X' = R' R, and Q = X' R^-1 is never
formed. Otherwise Q comes from Householder reflections. Columns may differ in size by twenty orders of magnitude;
reflections keep the digits of small columns if the rows are pivoted and the columns are sorted by size [1]_.

.. [1] Cox and Higham (1998), Stability of Householder QR factorization for weighted least squares problems.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dpocon, dpotrf

from kway.linear.losses import Targets
from kway.linear.objective import Objective
from kway.memory import BLOCK_BYTES, CACHE_BYTES
from kway.rows.dense import DenseRows
from kway.rows.matrices import dense_rows
from kway.rows.passes import DISTINCT, RowPasses, wrap_rows
from kway.threads import single_blas

Floats = NDArray[np.float64]

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


def _sort_by_target_and_key(target_keys: NDArray, keys: Floats) -> NDArray[np.int64]:
    """Return the order by target, then key; the radix sort of int16 codes takes half the time of `lexsort`."""
    order = np.argsort(keys)
    if target_keys.dtype.kind == "i" and target_keys.max(initial=0) <= np.iinfo(np.int16).max:
        target_keys = target_keys.astype(np.int16)
    return order[np.argsort(target_keys[order], kind="stable")]


def hash_rows(rows: RowPasses) -> Floats:
    """Return one number per row (n,); equal rows have equal numbers."""
    return rows.keys(np.random.default_rng(0).standard_normal(rows.d))


def _are_equal(X: RowPasses, soft: NDArray | None, a: NDArray[np.int64], b: NDArray[np.int64]) -> NDArray[np.bool_]:
    same = X.equal(a, b)
    return same if soft is None else same & (soft[a] == soft[b]).all(axis=1)


# ---- other columns


@dataclass(frozen=True)
class Units:
    """The center and the unit of each column, (d,) each."""

    center: Floats
    unit: Floats

    def into(self, theta: NDArray) -> Floats:
        """Convert theta (R, d + 1) from the original to standard columns."""
        W, b = theta[:, :-1].astype(np.float64), theta[:, -1].astype(np.float64)
        return np.column_stack([W * self.unit, b + W @ self.center])

    def back(self, theta: NDArray) -> Floats:
        """Convert theta (R, d + 1) from standard to the original columns."""
        W = theta[:, :-1] / self.unit
        return np.column_stack([W, theta[:, -1] - W @ self.center])


@dataclass(frozen=True)
class StandardColumns:
    """A problem in standard columns, with the conversion of theta (R, d + 1)."""

    objective: Objective
    units: Units
    dtype: np.dtype

    def into(self, theta: NDArray) -> NDArray:
        """Convert theta from the original to standard columns and their float type."""
        return self.units.into(theta).astype(self.objective.rows.dtype)

    def back(self, theta: NDArray) -> NDArray:
        """Convert theta from standard to the original columns and their float type."""
        return self.units.back(theta).astype(self.dtype)


def scale_columns(objective: Objective) -> StandardColumns:
    """Divide every column by the root mean square of its nonzero entries."""
    rows = objective.rows
    units = Units(np.zeros(objective.d), rows.units())
    return StandardColumns(replace(objective, rows=rows.scale_columns(units.unit)), units, rows.dtype)


def standard_columns(objective: Objective) -> StandardColumns:
    """Return a small problem in standard columns, in float64; columns are centered if there is a bias."""
    o = objective
    X = np.array(o.X.toarray() if sp.issparse(o.X) else o.X, np.float64, order="C")
    weight = None if o.weight is None else o.weight.astype(np.float64)
    units = standardize(X, np.ones(o.n) if weight is None else weight, o.fit_intercept)
    soft = None if o.targets.soft is None else o.targets.soft.astype(np.float64)
    penalty = replace(o.penalty, scale=1 / units.unit if o.penalty.scale is None else o.penalty.scale / units.unit)
    problem = replace(o, rows=wrap_rows(X), weight=weight, targets=Targets(o.targets.codes, soft), penalty=penalty)
    return StandardColumns(problem, units, o.rows.dtype)


def standardize(X: Floats, weight: Floats, center: bool) -> Units:
    """Standardize rows X (n, d) in place and return the units."""
    centers = column_centers(X, weight) if center else np.zeros(X.shape[1])
    X -= centers
    unit = _powers_of_two(X)
    X /= unit
    return Units(centers, unit)


def column_centers(X: Floats, weight: Floats) -> Floats:
    """Return the weighted mean of each column; of a constant column exactly its value."""
    if not len(X):
        return np.zeros(X.shape[1])
    with np.errstate(over="ignore"):
        means = weight @ X / weight.sum()
    return np.where((X[0] == X).all(axis=0) | ~np.isfinite(means), X[0], means)


def _powers_of_two(X: Floats) -> Floats:
    """Return the power of two nearest to the root mean square of each column; 1 for a column of zeros."""
    largest = np.abs(X).max(axis=0, initial=0.0)
    largest[largest == 0] = 1.0
    size = largest * np.sqrt(np.mean(np.square(X / largest), axis=0))  # squares of X itself could overflow
    size[size == 0] = 1.0
    # at least about 1e-123, because the penalty of a column contains 1 / unit^2, which must be finite
    smallest = np.finfo(np.float64).tiny ** 0.4
    return np.exp2(np.round(np.log2(np.maximum(size, smallest))))


# ---- the span of the rows


@dataclass(frozen=True)
class RowSpan:
    """A problem in n columns. Its theta has shape (R, n + 1), that of the original problem (R, d + 1).

    Q' is root^-1 X, with the rows X and the lower triangle root = R'. Without a root, X is Q' itself.
    """

    objective: Objective
    X: Floats  # (n, d)
    root: Floats | None  # (n, n)
    dtype: np.dtype

    def into(self, theta: NDArray) -> NDArray:
        """Return the part of theta in the span: V' = Q' W'."""
        with single_blas():
            V = self.X @ theta[:, :-1].T.astype(np.float64)  # (n, R)
            V = V if self.root is None else la.solve_triangular(self.root, V, lower=True)
            return np.hstack([V.T, theta[:, -1:].astype(np.float64)])

    def back(self, theta: NDArray) -> NDArray:
        """Return theta of all columns: W = V Q'."""
        with single_blas():  # threads of BLAS only add overhead to small products
            V = theta[:, :-1].T
            V = V if self.root is None else la.solve_triangular(self.root, V, lower=True, trans="T")
            return np.hstack([V.T @ self.X, theta[:, -1:]]).astype(self.dtype)


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
        coordinates, basis = (root, X) if root is not None else _reflect(X, sizes, pivoted)
    weight = None if objective.weight is None else objective.weight.astype(np.float64)
    return RowSpan(replace(objective, rows=wrap_rows(coordinates), weight=weight), basis, root, objective.rows.dtype)


def _cholesky_of_gram(X: Floats) -> Floats | None:
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


def _reflect(X: Floats, sizes: Floats, pivoted: bool) -> tuple[Floats, Floats]:
    """Return R' (n, n) and Q' (n, d) by Householder reflections, with pivoting if the columns differ much in size."""
    n, order, permutation = len(X), np.argsort(-sizes, kind="stable"), np.arange(len(X))
    if pivoted:
        Q, triangle, permutation = la.qr(X.T[order], mode="economic", pivoting=True, check_finite=False)
    else:
        Q, triangle = la.qr(X.T[order], mode="economic", check_finite=False)
    coordinates, basis = np.empty((n, n)), np.empty(X.shape)
    coordinates[permutation], basis[:, order] = triangle.T, Q.T
    if not pivoted:  # coordinates of rows that depend on others are rounding, a few hundred eps of the largest value
        coordinates[:, np.abs(coordinates).max(axis=0) <= 500 * _EPS * sizes.max()] = 0
    return coordinates[_first_equal(X)], basis


def _first_equal(X: Floats) -> NDArray[np.int64]:
    """Return the first equal row for each row, so that equal rows get equal coordinates and no rounding is learned."""
    _, first, group = np.unique(hash_rows(DenseRows(X)), return_index=True, return_inverse=True)
    first = first[group]
    return np.where((X[first] == X).all(axis=1), first, np.arange(len(X)))
