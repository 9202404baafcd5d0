"""Full-batch gradient descent with line search: theta <- theta - t grad F(theta).

The first step tried is Barzilai-Borwein's, t = s.s / s.y from the last move s and change of gradient y; it is halved
until F falls enough (Armijo). Slower than `lbfgs`, and kept because it is the method that the others improve on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.linear.solvers.base import ARMIJO, Control, Point, Solution
from kway.linear.solvers.certificates import bound_excess, has_decrement, has_gap, tol_scale
from kway.linear.solvers.preconditioners import factor_at
from kway.rows.passes import QUICK
from kway.threads import single_blas

WINDOW = 10  # iterations whose joint decrease is compared with tol


@dataclass(frozen=True)
class GradientDescent:
    """Steepest descent on all rows."""

    name: ClassVar[str] = "gradient"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.gradient", "penalty.smooth"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Descend until ten steps together gain less than a tenth of tol, and on until a bound is under tol, too."""
        with single_blas():
            return _steepest_descent(objective, theta, control)


def _steepest_descent(objective: Objective, theta: NDArray, control: Control) -> Solution:
    point, step, history = _begin(objective, theta)
    share = 0.1
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
            return _held(objective, point, history, control)
        point, step = new, longer
        history.append(point.value)
        stop = control.progress is not None and control.progress(iteration, point.value)
        if stop or (control.validate and control.validate(point.theta)):
            return Solution(point.theta, iteration, history=history)
        gained = history[max(0, len(history) - 1 - WINDOW)] - point.value
        if len(history) > WINDOW and gained < share * control.tol * tol_scale(point.value):
            found = _held(objective, point, history, control)
            if found.converged or share * control.tol <= np.finfo(theta.dtype).eps:
                return found
            share /= 10
    found = _held(objective, point, history, control)
    return found if found.proved else replace(found, converged=False, advice="raise max_iter or use solver='lbfgs'")


def _held(objective: Objective, point: Point, history: list[float], control: Control) -> Solution:
    """The point as a solution, which has converged where its excess over the optimum is bounded by tol.

    On a slope that is long and flat in one direction ten steps gain next to nothing far above the optimum.
    """
    found = Solution(point.theta, len(history) - 1, history=history, value=point.value)
    provable = has_decrement(objective) or has_gap(objective)
    if control.early_stopping or not provable or QUICK not in objective.rows.offers:
        return found
    scale = tol_scale(point.value)
    miss = bound_excess(objective, point, lambda: factor_at(objective, point.theta), control.tol * scale) / scale
    near = miss <= control.tol
    return replace(found, converged=near, miss=miss, proved=near, advice="" if near else "use solver='lbfgs'")


class _Start(NamedTuple):
    """Where the descent begins, the first step tried, and the values so far."""

    point: Point
    step: float
    history: list[float]


def _begin(objective: Objective, theta: NDArray) -> _Start:
    """From theta."""
    point = Point.at(objective, theta)
    return _Start(point, 1.0 / max(float(np.linalg.norm(point.gradient)), 1e-12), [point.value])


def _next_step(old: Point, new: Point, step: float) -> float | None:
    """Barzilai-Borwein's from one point to the next; None where nothing bends between them."""
    move, change = new.theta - old.theta, new.gradient - old.gradient
    curvature = float(np.vdot(move, change))
    if curvature == 0:
        return None
    return float(np.vdot(move, move)) / curvature if curvature > 0 else 2 * step
