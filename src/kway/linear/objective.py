"""The objective: F(theta) = alpha R(W) + mean_i w_i loss(f_i, y_i), f = X W' + b, theta = [W b] of shape (R, d + 1).

R is 1 for two classes (class 0 has score 0) and K otherwise. The rows compute the sums over all rows, wherever they
live (rows/passes.py); the objective divides them by n and adds the penalty.
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
    """alpha R(W) + weighted mean loss; weights (n,) have mean 1 or are None.

    `rows` may be given as an array or a CSR matrix.
    """

    rows: RowPasses  # (n, d)
    targets: Targets  # codes (n,), soft (n, R) or None
    n_scores: int  # R
    loss: Loss
    penalty: Penalty  # alpha included
    fit_intercept: bool = True
    weight: NDArray | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", wrap_rows(self.rows))

    @property
    def X(self) -> Any:
        """The rows as solvers index them: an array, CSR, or an object that gives blocks of rows."""
        return self.rows.X

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.rows.n

    @property
    def d(self) -> int:
        """Number of features."""
        return self.rows.d

    @property
    def in_memory(self) -> bool:
        """Whether X is an array or a CSR matrix in the memory of this process."""
        return IN_MEMORY in self.rows.offers

    n_jobs = None  # the limit around each public call holds

    @cached_property
    def losses(self) -> RowLosses:
        """The losses of all rows, as passes take them."""
        return RowLosses(self.loss, self.targets, self.weight)

    # ---- other objectives

    def with_loss(self, loss: Loss) -> Objective:
        """The same problem with another loss."""
        return replace(self, loss=loss)

    def take(self, chosen: NDArray | slice) -> Objective:
        """The same problem on some of the rows (the mean is then theirs)."""
        weight = None if self.weight is None else self.weight[chosen]
        if weight is not None:
            weight = weight / weight.mean()
        return replace(self, rows=self.rows.take(chosen), targets=self.targets.of(chosen), weight=weight)

    def some(self, most: int) -> Objective:
        """The problem itself, or on `most` of its rows, drawn at random, if it has more."""
        sample = replace(self, rows=self.rows.sample())
        most = min(most, sample.rows.max_rows_in_memory)
        if sample.n <= most:
            return sample
        return sample.take(np.sort(np.random.default_rng(0).choice(sample.n, most, replace=False)))

    # ---- theta

    def zeros(self) -> NDArray:
        """theta = 0."""
        return self.laid_out(np.zeros((self.n_scores, self.d + 1), self.rows.dtype))

    def laid_out(self, theta: NDArray) -> NDArray:
        """theta in the memory order that the products read: Fortran order for CSR rows."""
        return self.rows.with_layout(theta)

    def centred(self, theta: NDArray) -> NDArray:
        """theta less its mean over the scores: if a shift is free the loss is the same, the penalty no larger."""
        return theta - theta.mean(axis=0)

    def shifted(self, theta: NDArray) -> NDArray:
        """theta less the row that leaves the least penalty, if a shift of all scores changes no loss."""
        if not self.loss.shift_free or len(theta) < 2:
            return theta
        return theta - np.append(self.penalty.shift(theta[:, :-1]), theta[:, -1].mean())

    # ---- passes over all rows

    def value(self, theta: NDArray) -> float:
        """F(theta), every part of the penalty included."""
        return self.rows.value(theta, self.losses) / self.n + self.penalty.value(theta[:, :-1])

    def value_gradient(self, theta: NDArray) -> tuple[float, NDArray]:
        """The smooth part, mean loss + ridge / 2 ||W||^2, with its gradient (R, d + 1)."""
        total, gradient = self.rows.value_gradient(theta, self.losses)
        return total / self.n + self.penalty.smooth_part.value(theta[:, :-1]), self._with_ridge(gradient, theta)

    def scores(self, theta: NDArray, rows: slice) -> NDArray:
        """f = X W' + b of some rows (m, R)."""
        return self.rows.scores(theta, rows)

    def hessian_at(self, theta: NDArray) -> ObjectiveHessian:
        """Products with the Hessian of the smooth part at theta."""
        return ObjectiveHessian(self, self.rows.hessian_at(theta, self.losses))

    def curvatures(self, theta: NDArray) -> NDArray:
        """Weighted second derivatives of each row's loss by each score at theta, (R, n)."""
        return self.rows.curvatures(theta, self.losses)

    def class_sums(self, theta: NDArray) -> ClassSums:
        """What the rows of a class add to the curvature of its score."""
        return self.rows.class_sums(theta, self.losses, self.fit_intercept)

    def gram(self, dtype: np.dtype) -> NDArray:
        """[X 1]' diag(weight) [X 1] / n, (D, D): upper triangle, in Fortran order."""
        return self.rows.gram(self.weight, self.fit_intercept, dtype)

    def mean_squares(self, h: NDArray | None = None) -> NDArray:
        """mean_i h_ki x_ij^2 (R, d); without h (R, n) the weights of the rows are used, (1, d)."""
        if h is None and self.weight is not None:
            h = self.weight[None, :]
        total = self.rows.squares(h)
        return total / total.dtype.type(self.n)

    # ---- blocks of rows

    def block_targets(self, rows: slice | NDArray) -> Targets:
        """Targets of some rows."""
        return self.targets.of(rows)

    def weighted_sum(self, values: NDArray, rows: slice | NDArray) -> float:
        """The weighted sum of one value (m,) per row, of some rows."""
        return self.losses.weighted_sum(values, rows)

    @property
    def fused(self) -> bool:
        """Whether gradients read each row once, by the fused kernel."""
        return self.rows.reads_once(self.losses, self.n_scores)

    def _with_ridge(self, sums: NDArray, theta: NDArray) -> NDArray:
        """A gradient, or a product with the Hessian, from its sum over the rows, which is overwritten."""
        sums /= sums.dtype.type(self.n)
        self.penalty.add_slope(sums[:, :-1], theta[:, :-1])
        if not self.fit_intercept:
            sums[:, -1] = 0
        return sums


@dataclass(frozen=True)
class ObjectiveHessian:
    """Products with the Hessian of the smooth part of an objective at one theta."""

    objective: Objective
    sums: HessianSums

    def product(self, V: NDArray) -> NDArray:
        """H V, (R, d + 1)."""
        return self.objective.laid_out(self.objective._with_ridge(self.sums.product(V), V))

    def advance(self, t: float) -> float:
        """Go t along the direction of the last product; returns the largest change of any score so far."""
        return self.sums.advance(t)
