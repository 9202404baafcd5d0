"""One minimisation by Newton's method in standard columns, down the roundings to a proof (see newton.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses import Loss
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.newton.rounded_objective import RoundedPoint
from kway.linear.solvers.newton.standard_columns import Floats, StandardProblem
from kway.linear.solvers.stopping import LEAST_FALL, SEPARABLE, separated, tol_scale

WIDEST, NARROWER, NARROWEST = 0.3, 8.0, 1e-12
_WARM = 5e-3  # width to begin with where theta already says something
_NEAR = 1e-5  # relative excess of F_e at which e may shrink
_EXACT = 1e-14  # relative excess that is not worth a step
_LAST = 1e-2  # of tol: an excess so small squares with the step that is taken from there
_CLOSE = 0.1  # relative excess before that: farther out a Hessian that rounding spoils may say anything
ZERO = 1e-3  # a dual variable of |w| this far within its bounds says that w is zero

NEWTON_ROUNDING = (
    "the coefficients, rounded to float32, are that far off: take large offsets off the columns, or pass float64"
)


def proves(loss: Loss) -> bool:
    """Whether a step bounds the excess: by the gap of a hinge, or as the Hessian changes no faster than is declared."""
    return loss.hinge or loss.hessian_change is not None


@dataclass
class NewtonRun:
    """One minimisation."""

    objective: Objective
    problem: StandardProblem
    control: Control
    history: list[float] = field(default_factory=list)
    told: bool = False  # to stop, by the caller
    slopes: Floats = field(init=False)  # of the losses where it ended (n, R), weights of sum 1 included: dual variables

    @staticmethod
    def on(objective: Objective, control: Control) -> NewtonRun:
        """A run on every column of an objective."""
        return NewtonRun(objective, StandardProblem.of(objective), control)

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
        near = _NEAR * min(1.0, 1e3 * self.control.tol) if point.kinked else _EXACT
        last = 0.0 if point.kinked else _LAST * self.control.tol
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
            if self.told or (step.excess <= last * size and before <= _CLOSE * size):
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
        theta = self.problem.back(self._zeros(point, value, least)).astype(self.objective.X.dtype)
        kept = self.problem.into(theta)
        end = point.value(kept, self.problem.Z @ kept.T, 0.0)
        lost = (end - value) / tol_scale(value, least)
        miss, advice = excess + max(0.0, lost), "raise max_iter or tol, or scale the features"
        if separated(self.objective, value):
            miss, advice = np.inf, SEPARABLE
        elif excess <= self.control.tol < miss:
            advice = NEWTON_ROUNDING
        converged = self.told or miss <= self.control.tol
        history, proved = [*self.history, end], proves(self.problem.loss)
        advice = "" if converged else advice
        return Solution(theta, max(1, len(self.history)), converged, miss, history, advice, proved)

    def _zeros(self, point: RoundedPoint, value: float, least: float) -> Floats:
        """theta with zeros where the dual variables of |w| say so, unless that costs more than a quarter of tol."""
        if not self.problem.lasso.any():
            return point.theta
        width = point.widths(point.e)
        inside = np.abs(point.theta) < np.hypot(point.theta, width) * (1 - ZERO)
        theta = np.where(inside & (self.problem.lasso > 0), 0.0, point.theta)
        cost = point.value(theta, self.problem.Z @ theta.T, 0.0) - value
        return theta if cost <= self.control.tol / 4 * tol_scale(value, least) else point.theta
