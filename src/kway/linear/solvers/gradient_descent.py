"""Full-batch gradient descent with line search: theta <- theta - t grad F(theta).

The first step tried is Barzilai-Borwein's, t = s.s / s.y from the last move s and change of gradient y; it is halved
until F falls enough (Armijo). Slow beside `lbfgs`, and kept because it is the method that the others improve on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import single_blas
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.newton.bound import excess_bound
from kway.linear.solvers.point import ARMIJO, Point
from kway.linear.solvers.shards.step_files import kept_steps

WINDOW = 10  # iterations whose joint decrease is compared with tol


@dataclass(frozen=True)
class GradientDescent:
    """Steepest descent on all rows."""

    name: ClassVar[str] = "gradient"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.gradient", "penalty.smooth"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Descend until ten steps together gain less than a tenth of tol, and hold the end against a proof."""
        with single_blas(), kept_steps(objective, control, self.name, remembered=2) as kept:
            found = _steepest_descent(objective, theta, kept)
            return found if control.validate is not None else _held(objective, found, control)


def _steepest_descent(objective: Objective, theta: NDArray, control: Control) -> Solution:
    point, step, history = _begin(objective, theta, control)
    for iteration in range(len(history), max(len(history), control.max_iter) + 1):
        square = float(np.vdot(point.gradient, point.gradient))
        new = point
        while step > 1e-20:
            new = Point.at(objective, point.theta - theta.dtype.type(step) * point.gradient)
            if new.value <= point.value - ARMIJO * step * square:
                break
            step /= 2
        longer = _next_step(point, new, step)
        if new.value >= point.value or longer is None:  # the rounding of the value hides any gain
            return Solution(point.theta, iteration, history=history)
        point, step = new, longer
        history.append(point.value)
        stop = control.progress is not None and control.progress(iteration, point.value)
        stop = control.diary.enter(iteration, point) or stop
        if stop or (control.validate and control.validate(point.theta)):
            return Solution(point.theta, iteration, history=history)
        gained = history[max(0, len(history) - 1 - WINDOW)] - point.value
        if len(history) > WINDOW and gained < control.tol / 10 * abs(point.value):
            return Solution(point.theta, iteration, history=history, miss=gained / max(abs(point.value), 1e-300))
    gained = history[max(0, len(history) - 1 - WINDOW)] - point.value
    miss = gained / max(abs(point.value), 1e-300)
    return Solution(point.theta, len(history) - 1, False, miss, history, "raise max_iter or use lbfgs")


def _held(objective: Objective, found: Solution, control: Control) -> Solution:
    """The solution with a bound of its excess in place of what ten steps gained: on a slope that is long and flat in
    one direction they gain next to nothing far above the optimum. What cannot be bounded has not converged."""
    if not found.converged or objective.loss.minimised_by_zero or objective.rows_in_files:
        return found
    point = Point.at(objective, found.theta)
    excess = excess_bound(objective, point, control.tol * abs(point.value))
    miss = excess / max(abs(point.value), 1e-300)
    near = miss <= control.tol
    return replace(found, converged=near, miss=miss, proved=near, advice="" if near else "use solver='lbfgs'")


class _Start(NamedTuple):
    """Where the descent begins, the first step tried, and the values up to there."""

    point: Point
    step: float
    history: list[float]


def _begin(objective: Objective, theta: NDArray, control: Control) -> _Start:
    """From theta, or from where an earlier run was."""
    trail = control.diary.trail(objective)
    if len(trail.points) > 1:
        return _Start(trail.points[-1], _next_step(trail.points[-2], trail.points[-1], 1.0) or 1.0, list(trail.history))
    point = Point.at(objective, theta)
    control.diary.enter(0, point)
    return _Start(point, 1.0 / max(float(np.linalg.norm(point.gradient)), 1e-12), [point.value])


def _next_step(old: Point, new: Point, step: float) -> float | None:
    """Barzilai-Borwein's from one point to the next; None where nothing bends between them."""
    move, change = new.theta - old.theta, new.gradient - old.gradient
    curvature = float(np.vdot(move, change))
    if curvature == 0:
        return None
    return float(np.vdot(move, move)) / curvature if curvature > 0 else 2 * step
