"""Full-batch gradient descent with line search: theta <- theta - t grad F(theta).

The first step tried is Barzilai-Borwein's, t = s.s / s.y from the last move s and change of gradient y; it is halved
until F falls enough (Armijo). Slower than `lbfgs`, and kept because it is the method that the others improve on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.linear.solvers.base import ARMIJO, Control, Point, Solution
from kway.linear.solvers.certificates import bound_excess, has_decrement, has_gap, tol_scale
from kway.linear.solvers.preconditioners import factor_at
from kway.rows.passes import QUICK
from kway.threads import single_blas

WINDOW = 10  # iterations whose total decrease is compared with tol (tests/linear/test_stopping.py)


@dataclass(frozen=True)
class GradientDescent:
    """Steepest descent on all rows."""

    name: ClassVar[str] = "gradient"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.gradient", "penalty.smooth"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Descend until ten iterations gain less than a tenth of tol and a bound of the excess is below tol."""
        with single_blas():
            return _steepest_descent(objective, theta, control)


def _steepest_descent(objective: Objective, theta: NDArray, control: Control) -> Solution:
    point, share = Point.at(objective, theta), 0.1
    step, history = 1.0 / max(float(np.linalg.norm(point.gradient)), 1e-12), [point.value]
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
            return _with_bound(objective, point, history, control)
        point, step = new, longer
        history.append(point.value)
        stop = control.progress is not None and control.progress(iteration, point.value)
        if stop or (control.validate and control.validate(point.theta)):
            return Solution(point.theta, iteration, history=history)
        gained = history[max(0, len(history) - 1 - WINDOW)] - point.value
        if len(history) > WINDOW and gained < share * control.tol * tol_scale(point.value):
            found = _with_bound(objective, point, history, control)
            if found.converged or share * control.tol <= np.finfo(theta.dtype).eps:
                return found
            share /= 10
    found = _with_bound(objective, point, history, control)
    return found if found.proved else replace(found, converged=False, advice="raise max_iter or use solver='lbfgs'")


def _with_bound(objective: Objective, point: Point, history: list[float], control: Control) -> Solution:
    """Return the point as a solution, which has converged if a bound of its excess over the optimum is below tol.

    The gain of the last steps does not tell this: along a flat direction, ten steps gain little far from the optimum.
    """
    found = Solution(point.theta, len(history) - 1, history=history, value=point.value)
    provable = has_decrement(objective) or has_gap(objective)
    if control.early_stopping or not provable or QUICK not in objective.rows.offers:
        return found
    scale = tol_scale(point.value)
    miss = bound_excess(objective, point, lambda: factor_at(objective, point.theta), control.tol * scale) / scale
    near = miss <= control.tol
    return replace(found, converged=near, miss=miss, proved=near, advice="" if near else "use solver='lbfgs'")


def _next_step(old: Point, new: Point, step: float) -> float | None:
    """Return the Barzilai-Borwein step size from the last two points, or None if the gradient did not change."""
    move, change = new.theta - old.theta, new.gradient - old.gradient
    curvature = float(np.vdot(move, change))
    if curvature == 0:
        return None
    return float(np.vdot(move, move)) / curvature if curvature > 0 else 2 * step
