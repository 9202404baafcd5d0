"""Small problems with kinks (hinges, L1): Newton's method with whole Hessians on rounded kinks, to a duality gap.

Kinks are rounded over e = 0.3, 0.04, ... (rounded_objective.py) until the duality gap is under tol. L1 on many columns:
the same on a set of columns that grows as it must. A column whose weights are all zero stays out of the optimum while
its slope is under the penalty, |g_j| <= lasso_j; columns outside the set whose slope is too steep join, the steepest
first, until there are none. What is still too steep by a factor of 1 / s costs at most 1 - s of the objective: s times
the dual variables are feasible, and their bound is at least s times as high.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses import Loss
from kway.linear.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.certificates import LEAST_FALL, SEPARABLE, separated, tol_scale
from kway.linear.solvers.newton_step import MOST_ROW_VALUES, MOST_SLOW_WORK, has_hessian, step_work
from kway.linear.solvers.rounded_objective import RoundedPoint
from kway.linear.solvers.standard_columns import DenseProblem, Floats
from kway.rows.matrices import transposed_product
from kway.rows.passes import wrap_rows

WIDEST, NARROWER, NARROWEST = 0.3, 8.0, 1e-12  # widths of the kinks: the first, the factor between two, the last
_WARM = 5e-3  # width to start with if theta already says something
_NEAR = 1e-5  # relative excess of F_e at which e may shrink
_ZERO = 1e-3  # a dual variable of |w| this far within its bounds says that w is zero
_FIRST_COLUMNS = 50  # of L1 on many columns, at least


def proves(loss: Loss) -> bool:
    """Return whether the bound is one: of a hinge, or of a loss that declares how fast its Hessian changes."""
    return loss.hinge or loss.hessian_change is not None


def affords_rounding(objective: Objective) -> bool:
    """Return whether the problem has kinks that can be rounded, and a step is cheap."""
    o, D = objective, columns(objective) + 1
    able = o.penalty.lasso > 0 and has_hessian(o) and not (o.loss.hinge or o.loss.rounded)
    return able and o.in_memory and o.n * D <= MOST_ROW_VALUES and step_work(o, D) <= MOST_SLOW_WORK


def columns(objective: Objective) -> int:
    """Return the columns that steps are about: with an L1 penalty hardly more than twice as many as rows."""
    return min(objective.d, 2 * objective.n) if objective.penalty.lasso else objective.d


def solve_rounded(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """Minimize from theta to within tol of the optimum."""
    if objective.d > columns(objective):
        return _solve_on_columns(objective, theta, control)
    return RoundedRun.on(objective, control).go(theta)


@dataclass
class RoundedRun:
    """One minimisation."""

    objective: Objective
    problem: DenseProblem
    control: Control
    history: list[float] = field(default_factory=list)
    told: bool = False  # to stop, by the caller
    slopes: Floats = field(init=False)  # of the losses where it ended (n, R), weights of sum 1 included: dual variables

    @staticmethod
    def on(objective: Objective, control: Control) -> RoundedRun:
        """A run on every column of an objective."""
        return RoundedRun(objective, DenseProblem.of(objective), control)

    def go(self, theta: NDArray) -> Solution:
        """Down the roundings to a proof."""
        start = self.problem.into(theta)
        if self.problem.loss.shift_free and not self.problem.lasso.any():
            start = self.objective.centred(start)  # steps then stay so
        point = RoundedPoint.at(self.problem, start, 0.0)
        zero = point.value(np.zeros_like(point.theta), np.zeros_like(point.scores), 0.0)
        if point.kinked:
            point.begin(_WARM if start[:, : self.objective.d].any() else WIDEST)
        least, excess = LEAST_FALL * zero, np.inf
        while not self.told:
            excess = self.descend(point, least)
            value = point.here(0.0)
            size, cost = tol_scale(value, least), point.cost_of_rounding()
            if point.kinked and excess + cost <= self.control.tol / 4 * size:
                point.begin(point.e)  # the proof is about the Hessian of F_e itself
                excess = point.step().excess
            excess = min(excess + cost, value) / size  # no objective is under 0
            if excess <= self.control.tol / 3 or not point.kinked or point.e < NARROWEST or self.spent:
                break
            point.narrow(point.e / NARROWER)
        self.slopes = point.look().slope
        return self.land(point, excess, least)

    @property
    def spent(self) -> bool:
        """Whether no iteration is left."""
        return len(self.history) >= self.control.max_iter

    def descend(self, point: RoundedPoint, least: float) -> float:
        """Newton's steps at one rounding; a bound of F_e above its minimum."""
        near = _NEAR * min(1.0, 1e3 * self.control.tol) if point.kinked else 1e-14
        last = 0.0 if point.kinked else 1e-2 * self.control.tol
        excess, before, fresh = np.inf, np.inf, False
        while True:
            step = point.step()
            excess = step.excess if point.kinked else min(excess, step.excess)
            value = point.here(0.0)
            size = tol_scale(value, least)
            if step.excess <= near * size or self.spent or separated(self.objective, value):
                return excess
            if not point.go(step):
                if fresh or not point.kinked:
                    return excess
                point.begin(point.e)  # dual variables that have lost touch with the slopes
                fresh = True
                continue
            fresh = False
            self._tell(point)
            if self.told or (step.excess <= last * size and before <= 0.1 * size):
                return excess
            before = step.excess

    def _tell(self, point: RoundedPoint) -> None:
        """Those who watch of one more step; they may end it."""
        self.history.append(point.here(0.0))
        control = self.control
        self.told = control.progress is not None and control.progress(len(self.history), self.history[-1])
        if control.validate is not None and control.validate(self.problem.back(point.theta)):
            self.told = True

    def land(self, point: RoundedPoint, excess: float, least: float) -> Solution:
        """What to hand back: zeros that are zeros, in the columns' own units and number format."""
        value = point.here(0.0)
        theta = self.problem.back(self._zeros(point, value, least))
        kept = self.problem.into(theta)
        end = point.value(kept, self.problem.Z @ kept.T, 0.0)
        lost = (end - value) / tol_scale(value, least)
        miss, advice = excess + max(0.0, lost), "raise max_iter or tol, or scale the features"
        if separated(self.objective, value):
            miss, advice = np.inf, SEPARABLE
        converged = self.told or miss <= self.control.tol
        history, proved = [*self.history, end], proves(self.problem.loss)
        advice = "" if converged else advice
        return Solution(theta, max(1, len(self.history)), converged, miss, history, advice, proved)

    def _zeros(self, point: RoundedPoint, value: float, least: float) -> Floats:
        """theta with zeros where the dual variables of |w| say so, unless that costs more than a quarter of tol."""
        if not self.problem.lasso.any():
            return point.theta
        width = point.widths(point.e)
        inside = np.abs(point.theta) < np.hypot(point.theta, width) * (1 - _ZERO)
        theta = np.where(inside & (self.problem.lasso > 0), 0.0, point.theta)
        cost = point.value(theta, self.problem.Z @ theta.T, 0.0) - value
        return theta if cost <= self.control.tol / 4 * tol_scale(value, least) else point.theta


def _solve_on_columns(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """From theta to within tol of the optimum."""
    chosen = np.flatnonzero(theta[:, :-1].any(axis=0))
    if not len(chosen):
        chosen = np.sort(np.argsort(-_steepest(objective, _slopes_at_zero(objective)), kind="stable")[:_FIRST_COLUMNS])
    history: list[float] = []
    quiet = replace(control, tol=control.tol / 2)
    for _ in range(30):
        run = RoundedRun.on(
            replace(objective, rows=wrap_rows(objective.X[:, chosen]), penalty=objective.penalty.at(chosen)), quiet
        )
        part = np.append(chosen, objective.d)
        found = run.go(theta[:, part])
        theta = np.zeros_like(theta)
        theta[:, part] = found.theta
        history += found.history
        steep = _steepest(objective, run.slopes)
        steep[chosen] = 0
        over = max(0.0, float(steep.max()) - 1)
        if over <= control.tol / 2 or len(history) >= control.max_iter:
            break
        joining = np.argsort(-steep, kind="stable")[: max(_FIRST_COLUMNS, len(chosen))]
        chosen = np.union1d(chosen, joining[steep[joining] > 0])
    miss = found.miss + 1 - 1 / (1 + over)
    converged = found.converged and miss <= control.tol
    return replace(found, theta=theta, n_iter=len(history), converged=converged, miss=miss, history=history)


def _steepest(objective: Objective, slopes: NDArray) -> NDArray:
    """Return the steepest slope of the loss along each column over the lasso, (d,), from those in the scores (n, R)."""
    return np.abs(transposed_product(slopes, objective.X)).max(axis=0) / objective.penalty.lassos(objective.d)


def _slopes_at_zero(objective: Objective) -> NDArray:
    """Of the losses where all scores are zero (n, R), weights of sum 1 included."""
    slopes = objective.loss.value_gradient(np.zeros((objective.n, objective.n_scores)), objective.targets)[1]
    return slopes / objective.n if objective.weight is None else slopes * (objective.weight / objective.n)[:, None]
