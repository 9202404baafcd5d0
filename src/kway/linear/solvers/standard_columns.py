"""A problem in standard columns: centred where a bias takes that up, in units of about their own size, in float64.

    z_ij = (x_ij - centre_j) / unit_j,   theta = [W unit, b + W centre],   ridge_j = ridge / unit_j^2,
    lasso_j = lasso / unit_j

The minimum is that of the problem given, whatever the units of its columns; units are powers of two, so that dividing
by them is exact. The bias is a last column of ones, without a penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.linear.losses import Loss, Targets
from kway.linear.objective import Objective
from kway.rows.matrices import rooted_rows
from kway.rows.passes import wrap_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class DenseProblem:
    """Z = [X 1] (n, D) with targets, weights (n,) of sum 1 and penalties (D,); D = d + 1, or d without a bias."""

    Z: Floats
    targets: Targets
    n_scores: int
    loss: Loss
    weight: Floats
    ridge: Floats
    lasso: Floats
    bias: bool

    @staticmethod
    def of(objective: Objective) -> DenseProblem:
        """Return the problem of an objective in the columns that it has."""
        o = objective
        Z = rooted_rows(o.X, None, np.dtype(np.float64), o.fit_intercept)
        weight = np.full(o.n, 1 / o.n) if o.weight is None else o.weight.astype(np.float64) / o.n
        free = [0.0] if o.fit_intercept else []
        ridge, lasso = np.append(o.penalty.ridges(o.d), free), np.append(o.penalty.lassos(o.d), free)
        soft = None if o.targets.soft is None else o.targets.soft.astype(np.float64)
        targets = Targets(o.targets.codes, soft)
        return DenseProblem(Z, targets, o.n_scores, o.loss, weight, ridge, lasso, o.fit_intercept)

    def into(self, theta: NDArray) -> Floats:
        """Return theta (R, d + 1) as (R, D)."""
        return theta[:, : len(self.ridge)].astype(np.float64)

    def back(self, theta: Floats) -> Floats:
        """Return theta (R, D) as (R, d + 1)."""
        return theta if self.bias else np.column_stack([theta, np.zeros(len(theta))])


@dataclass(frozen=True)
class StandardColumns:
    """A small problem in standard columns, and the way of theta (R, d + 1) there and back."""

    objective: Objective
    center: Floats  # (d,)
    unit: Floats  # (d,)
    dtype: np.dtype

    def into(self, theta: NDArray) -> Floats:
        """Return theta of the columns given, in standard ones."""
        W, b = theta[:, :-1].astype(np.float64), theta[:, -1].astype(np.float64)
        return np.column_stack([W * self.unit, b + W @ self.center])

    def back(self, theta: NDArray) -> NDArray:
        """Return theta of standard columns, in those given."""
        W = theta[:, :-1] / self.unit
        return np.column_stack([W, theta[:, -1] - W @ self.center]).astype(self.dtype)


def standard_columns(objective: Objective) -> StandardColumns:
    """Return a small problem in standard columns."""
    o = objective
    X = np.array(o.X.toarray() if sp.issparse(o.X) else o.X, np.float64, order="C")
    weight = None if o.weight is None else o.weight.astype(np.float64)
    center = column_centres(X, np.ones(o.n) if weight is None else weight) if o.fit_intercept else np.zeros(o.d)
    X -= center
    unit = _units(X)
    X /= unit
    soft = None if o.targets.soft is None else o.targets.soft.astype(np.float64)
    penalty = replace(o.penalty, scale=1 / unit if o.penalty.scale is None else o.penalty.scale / unit)
    problem = replace(o, rows=wrap_rows(X), weight=weight, targets=Targets(o.targets.codes, soft), penalty=penalty)
    return StandardColumns(problem, center, unit, o.rows.dtype)


def column_centres(X: Floats, weight: Floats) -> Floats:
    """Weighted means; of a column that is the same in every row that value, so that nothing of it is left."""
    if not len(X):
        return np.zeros(X.shape[1])
    with np.errstate(over="ignore"):
        means = weight @ X / weight.sum()
    return np.where((X[0] == X).all(axis=0) | ~np.isfinite(means), X[0], means)


def _units(X: Floats) -> Floats:
    """Powers of two next to the columns' root mean squares; 1 for a column of zeros."""
    top = np.abs(X).max(axis=0, initial=0.0)
    top[top == 0] = 1.0
    size = top * np.sqrt(np.mean(np.square(X / top), axis=0))
    size[size == 0] = 1.0
    return np.exp2(np.round(np.log2(size)))
