"""Standard columns of a small problem: centered if there is a bias, divided by their root mean square, in float64.

    z_ij = (x_ij - center_j) / unit_j,   theta = [W unit, b + W center],   ridge_j = ridge / unit_j^2,
    lasso_j = lasso / unit_j

The minimum does not change. Units are powers of two, so that dividing by them is exact.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.linear.losses import Targets
from kway.linear.objective import Objective
from kway.rows.passes import wrap_rows

Floats = NDArray[np.float64]


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
    """A small problem in standard columns, with the conversion of theta (R, d + 1)."""

    objective: Objective
    units: Units
    dtype: np.dtype

    def into(self, theta: NDArray) -> Floats:
        """Convert theta from the original to standard columns."""
        return self.units.into(theta)

    def back(self, theta: NDArray) -> NDArray:
        """Convert theta from standard to the original columns and their float type."""
        return self.units.back(theta).astype(self.dtype)


def standard_columns(objective: Objective) -> StandardColumns:
    """Return a small problem in standard columns."""
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
