"""Full-batch gradient descent with line search: theta <- theta - t grad F(theta).

The first step size that is tried is that of Barzilai and Borwein, t = s.s / s.y with the last step s and the change y
of the gradient. It is halved until F falls enough (Armijo condition). The other solvers are faster; this one shows what
they improve on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.linear.solvers.base import ARMIJO, Control, Point, Solution, Solver
from kway.linear.solvers.preconditioners import factor_at
from kway.linear.solvers.stopping import bound_excess, has_decrement, has_gap, recent_gain, tol_scale
from kway.rows.passes import QUICK
from kway.threads import single_blas


@dataclass(frozen=True)
class GradientDescent(Solver):
    """Steepest descent on all rows."""

    name: ClassVar[str] = "gradient"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.gradient", "penalty.smooth"})
    standardizes: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Descend from theta until the recent iterations gain little and a bound of the excess is below tol."""
        with single_blas():
            return _descend(objective, theta, control)


def _descend(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """Return the solution; a bound is computed each time that the recent gain falls below a tenth of the last limit."""
    point, limit = Point.at(objective, theta), 0.1 * control.tol
    step = 1.0 / max(float(np.linalg.norm(point.gradient)), 1e-12)
    history = [point.value]
    for iteration in range(1, max(1, control.max_iter) + 1):
        new, step = _search_along_gradient(objective, point, step)
        next_step = _barzilai_borwein_step(point, new, step)
        if new.value >= point.value or next_step is None:  # the rounding of the value hides any gain
            return _with_bound(objective, point, history, control)
        point, step = new, next_step
        history.append(point.value)
        if control.should_stop(iteration, point.value, point.theta):
            return Solution(point.theta, iteration, history=history)
        if recent_gain(history) < limit * tol_scale(point.value):
            solution = _with_bound(objective, point, history, control)
            if solution.converged or limit <= np.finfo(theta.dtype).eps:
                return solution
            limit /= 10
    solution = _with_bound(objective, point, history, control)
    if solution.proved:
        return solution
    return replace(solution, converged=False, advice="raise max_iter or use solver='lbfgs'")


def _search_along_gradient(objective: Objective, point: Point, step: float) -> tuple[Point, float]:
    """Return the first point along the negative gradient, with steps halved, that satisfies the Armijo condition.

    Return the point itself if none does.
    """
    square = float(np.vdot(point.gradient, point.gradient))
    while step > 1e-20:
        new = Point.at(objective, point.theta - point.theta.dtype.type(step) * point.gradient)
        if new.value <= point.value - ARMIJO * step * square:
            return new, step
        step /= 2
    return point, step


def _barzilai_borwein_step(old: Point, new: Point, step: float) -> float | None:
    """Return the next step size from the last two points, or None if the gradient did not change."""
    move, change = new.theta - old.theta, new.gradient - old.gradient
    curvature = float(np.vdot(move, change))
    if curvature == 0:
        return None
    return float(np.vdot(move, move)) / curvature if curvature > 0 else 2 * step


def _with_bound(objective: Objective, point: Point, history: list[float], control: Control) -> Solution:
    """Return the point as a solution, which has converged if a bound of its excess over the optimum is below tol.

    The gain of the last steps does not tell this: along a flat direction, they gain little far from the optimum.
    """
    solution = Solution(point.theta, len(history) - 1, history=history, value=point.value)
    provable = has_decrement(objective) or has_gap(objective)
    if control.early_stopping or not provable or QUICK not in objective.rows.offers:
        return solution
    scale = tol_scale(point.value)
    bound = bound_excess(objective, point, lambda: factor_at(objective, point.theta), control.tol * scale) / scale
    converged = bound <= control.tol
    advice = "" if converged else "use solver='lbfgs'"
    return replace(solution, converged=converged, rel_excess=bound, proved=converged, advice=advice)
