"""Full-batch gradient descent with line search: theta <- theta - t grad F(theta).

The first step tried is Barzilai-Borwein's, t = s.s / s.y from the last move s and change of gradient y; it is halved
until F falls enough (Armijo). Slow beside `lbfgs`, and kept because it is the method that the others improve on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import single_blas
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.point import ARMIJO

WINDOW = 10  # iterations whose joint decrease is compared with tol


@dataclass(frozen=True)
class GradientDescent:
    """Steepest descent on all rows."""

    name: ClassVar[str] = "gradient"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.gradient", "penalty.smooth"})
    promises: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Descend until ten steps together gain less than a tenth of tol."""
        with single_blas():
            return _steepest_descent(objective, theta, control)


def _steepest_descent(objective: Objective, theta: NDArray, control: Control) -> Solution:
    value, gradient = objective.value_gradient(theta)
    step, history = 1.0 / max(float(np.linalg.norm(gradient)), 1e-12), [value]
    for iteration in range(1, control.max_iter + 1):
        square = float(np.vdot(gradient, gradient))
        new, new_value, new_gradient = theta, value, gradient
        while step > 1e-20:
            new = theta - theta.dtype.type(step) * gradient
            new_value, new_gradient = objective.value_gradient(new)
            if new_value <= value - ARMIJO * step * square:
                break
            step /= 2
        move, change = new - theta, new_gradient - gradient
        curvature = float(np.vdot(move, change))
        if new_value >= value or curvature == 0:  # the rounding of the value hides any gain
            return Solution(theta, iteration, history=history)
        step = float(np.vdot(move, move)) / curvature if curvature > 0 else 2 * step
        theta, value, gradient = new, new_value, new_gradient
        history.append(value)
        if (control.progress and control.progress(iteration, value)) or (control.validate and control.validate(theta)):
            return Solution(theta, iteration, history=history)
        gained = history[max(0, len(history) - 1 - WINDOW)] - value
        if len(history) > WINDOW and gained < control.tol / 10 * abs(value):
            return Solution(theta, iteration, history=history, miss=gained / max(abs(value), 1e-300))
    gained = history[max(0, len(history) - 1 - WINDOW)] - value
    miss = gained / max(abs(value), 1e-300)
    return Solution(theta, control.max_iter, False, miss, history, "raise max_iter or use lbfgs")
