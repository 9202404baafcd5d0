"""The objective of a linear model.

    F(theta) = alpha R(W) + mean_i w_i loss(f_i, y_i),   f = X W' + b,   theta = [W b] of shape (R, d + 1)

The number of scores R is 1 for two classes (class 0 has score 0) and K otherwise. The object `rows` computes the sums
over all rows, in memory, in files, on a GPU or on a cluster (rows/passes.py). The objective divides them by n and adds
the penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses import Loss, Targets
from kway.linear.penalties import Penalty
from kway.rows.passes import IN_MEMORY, ClassSums, HessianSums, RowLosses, RowPasses, wrap_rows


@dataclass(frozen=True)
class Objective:
    """alpha R(W) + weighted mean loss. The weights (n,) have mean 1; None means that each row has weight 1.

    `rows` may be an array or a CSR matrix, which is then wrapped. Objectives are immutable, and no method changes its
    arguments.
    """

    rows: RowPasses  # (n, d)
    targets: Targets  # codes (n,), soft (n, R) or None
    n_scores: int  # R
    loss: Loss
    penalty: Penalty  # includes alpha
    fit_intercept: bool = True
    weight: NDArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", wrap_rows(self.rows))

    @property
    def X(self) -> Any:
        """Return the rows: an array, a CSR matrix, or an object whose slices are blocks of rows."""
        return self.rows.X

    @property
    def n(self) -> int:
        """Return the number of rows."""
        return self.rows.n

    @property
    def d(self) -> int:
        """Return the number of features."""
        return self.rows.d

    @property
    def in_memory(self) -> bool:
        """Return whether X is an array or a CSR matrix in the memory of this process."""
        return IN_MEMORY in self.rows.offers

    @cached_property
    def losses(self) -> RowLosses:
        """Return the loss with the targets and weights of all rows, which each pass receives."""
        return RowLosses(self.loss, self.targets, self.weight)

    # ---- related objectives

    def with_loss(self, loss: Loss) -> Objective:
        """Return the same problem with another loss."""
        return replace(self, loss=loss)

    def take(self, chosen: NDArray | slice) -> Objective:
        """Return the problem on the chosen rows; their weights are scaled to mean 1."""
        weight = None if self.weight is None else self.weight[chosen]
        if weight is not None:
            weight = weight / weight.mean()
        return replace(self, rows=self.rows.take(chosen), targets=self.targets.of(chosen), weight=weight)

    def subsample(self, max_rows: int) -> Objective:
        """Return the problem on `max_rows` rows, drawn with a fixed seed, or on all rows if there are fewer."""
        sample = replace(self, rows=self.rows.sample())
        max_rows = min(max_rows, sample.rows.max_rows_in_memory)
        if sample.n <= max_rows:
            return sample
        return sample.take(np.sort(np.random.default_rng(0).choice(sample.n, max_rows, replace=False)))

    # ---- theta

    def zeros(self) -> NDArray:
        """Return theta = 0 in the memory layout of the products."""
        return self.rows.with_layout(np.zeros((self.n_scores, self.d + 1), self.rows.dtype))

    def center_scores(self, theta: NDArray) -> NDArray:
        """Return theta minus its mean over the scores, or theta itself if such a shift changes the loss.

        The objective stays the same, or falls under a ridge penalty.
        """
        return theta - theta.mean(axis=0) if self.loss.shift_free else theta

    def minimize_penalty_shift(self, theta: NDArray) -> NDArray:
        """Return theta minus one row (d + 1,) for all scores: the weights that minimize the penalty, and the mean bias.

        Return theta itself if such a shift changes the loss.
        """
        if not self.loss.shift_free or len(theta) < 2:
            return theta
        return theta - np.append(self.penalty.shift(theta[:, :-1]), theta[:, -1].mean())

    # ---- passes over all rows

    def value(self, theta: NDArray) -> float:
        """Return F(theta), including the L1 part of the penalty."""
        return self.rows.value(theta, self.losses) / self.n + self.penalty.value(theta[:, :-1])

    def value_gradient(self, theta: NDArray) -> tuple[float, NDArray]:
        """Return the smooth part, mean loss + ridge / 2 ||W||^2, and its gradient (R, d + 1)."""
        total, gradient = self.rows.value_gradient(theta, self.losses)
        return total / self.n + self.penalty.smooth_part.value(theta[:, :-1]), self._with_ridge(gradient, theta)

    def scores(self, theta: NDArray, rows: slice) -> NDArray:
        """Return f = X W' + b of the given rows, (m, R)."""
        return self.rows.scores(theta, rows)

    def hessian_at(self, theta: NDArray) -> ObjectiveHessian:
        """Return the operator that multiplies with the Hessian of the smooth part at theta."""
        return ObjectiveHessian(self, self.rows.hessian_at(theta, self.losses))

    def curvatures(self, theta: NDArray) -> NDArray:
        """Return the weighted second derivatives of each row's loss by each score at theta, (R, n)."""
        return self.rows.curvatures(theta, self.losses)

    def class_sums(self, theta: NDArray) -> ClassSums:
        """Return the sums of the curvatures per class at theta."""
        return self.rows.class_sums(theta, self.losses, self.fit_intercept)

    def gram(self, dtype: np.dtype) -> NDArray:
        """Return [X 1]' diag(weight) [X 1] / n (D, D) in Fortran order; only the upper triangle is valid."""
        return self.rows.gram(self.weight, self.fit_intercept, dtype)

    def mean_squares(self, h: NDArray | None = None) -> NDArray:
        """Return mean_i h_ki x_ij^2 (R, d) for h (R, n); without h, the mean with the weights of the rows (1, d)."""
        if h is None and self.weight is not None:
            h = self.weight[None, :]
        total = self.rows.squares(h)
        return total / total.dtype.type(self.n)

    # ---- blocks of rows

    def weighted_sum(self, values: NDArray, rows: slice | NDArray) -> float:
        """Return the weighted sum of one value (m,) per given row."""
        return self.losses.weighted_sum(values, rows)

    def _with_ridge(self, sums: NDArray, theta: NDArray) -> NDArray:
        """Divide a sum over the rows by n and add the gradient of the ridge at theta, in place; return `sums`.

        With the sums of a Hessian-vector product and its direction as theta, the result is the product.
        """
        sums /= sums.dtype.type(self.n)
        self.penalty.add_slope(sums[:, :-1], theta[:, :-1])
        if not self.fit_intercept:
            sums[:, -1] = 0
        return sums


@dataclass(frozen=True)
class ObjectiveHessian:
    """Hessian-vector products of the smooth part of an objective at one theta."""

    objective: Objective
    sums: HessianSums

    def product(self, V: NDArray) -> NDArray:
        """Return H V, (R, d + 1)."""
        return self.objective.rows.with_layout(self.objective._with_ridge(self.sums.product(V), V))
