"""A problem in standard columns: centred where a bias takes that up, in units of about their own size, in float64.

    z_ij = (x_ij - centre_j) / unit_j,   theta = [W unit, b + W centre],   ridge_j = ridge / unit_j^2,
    lasso_j = lasso / unit_j

The minimum is that of the problem given, whatever the units of its columns; units are powers of two, so that dividing
by them is exact. The bias is a last column of ones, without a penalty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.linear.losses import Loss, Targets
from kway.linear.objective.objective import Objective

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StandardProblem:
    """Z (n, D) with targets, weights (n,) of sum 1 and penalties (D,); D = d + 1, or d without a bias."""

    Z: Floats
    targets: Targets
    n_scores: int
    loss: Loss
    weight: Floats
    ridge: Floats
    lasso: Floats
    centre: Floats  # (d,)
    unit: Floats  # (d,)
    bias: bool
    n_jobs: int | None = None

    @staticmethod
    def of(objective: Objective) -> StandardProblem:
        """The objective's own problem."""
        X = np.array(objective.X.toarray() if sp.issparse(objective.X) else objective.X, np.float64, order="C")
        weight = np.ones(len(X)) if objective.weight is None else objective.weight.astype(np.float64)
        weight = weight / objective.n
        centre = column_centres(X, weight) if objective.fit_intercept else np.zeros(X.shape[1])
        X -= centre
        unit = _units(X)
        X /= unit
        penalty = objective.penalty
        ridge, lasso = penalty.ridge / unit**2, penalty.lasso / unit
        if objective.fit_intercept:
            X = np.column_stack([X, np.ones(len(X))])
            ridge, lasso = np.append(ridge, 0.0), np.append(lasso, 0.0)
        soft = None if objective.targets.soft is None else objective.targets.soft.astype(np.float64)
        return StandardProblem(
            X, Targets(objective.targets.codes, soft), objective.n_scores, objective.loss, weight, ridge, lasso,
            centre, unit, objective.fit_intercept, objective.n_jobs,
        )  # fmt: skip

    def into(self, theta: NDArray) -> Floats:
        """theta (R, d + 1) of the columns given as (R, D)."""
        W, b = theta[:, :-1].astype(np.float64), theta[:, -1:].astype(np.float64)
        return np.hstack([W * self.unit, b + (W @ self.centre)[:, None]]) if self.bias else W * self.unit

    def back(self, theta: Floats) -> Floats:
        """theta (R, D) as (R, d + 1) of the columns given."""
        W = theta[:, : len(self.unit)] / self.unit
        b = theta[:, -1] - W @ self.centre if self.bias else np.zeros(len(theta))
        return np.hstack([W, b[:, None]])


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
