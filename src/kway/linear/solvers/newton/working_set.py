"""L1 on many columns: Newton's method on the few that matter, and a proof that the others do not.

A column whose weights are all zero stays out of the optimum while its slope is under the penalty, |g_j| <= lasso. So
the problem is solved on a set of columns; those outside whose slope is too steep join, the steepest first, until there
are none. What is still too steep by a factor of 1 / s costs at most 1 - s of the objective: s times the dual variables
are feasible, and their bound is at least s times as high.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective.objective import Objective, transposed_product
from kway.linear.solvers.base import Control, Solution

FIRST = 50  # columns, at least
ROUNDS = 30

Solve = Callable[[Objective, NDArray, Control], Solution]


def solve_on_columns(objective: Objective, theta: NDArray, control: Control, solve: Solve) -> Solution:
    """From theta to within tol of the optimum by `solve`, which minimises over some of the columns."""
    chosen = np.flatnonzero(theta[:, :-1].any(axis=0))
    history: list[float] = []
    used, quiet = 0, replace(control, tol=control.tol / 2)
    while True:
        steep = _slopes(objective, theta)
        outside = np.setdiff1d(np.arange(objective.d), chosen)
        over = max(0.0, steep[outside].max(initial=0.0) / objective.penalty.lasso - 1)
        if used and (over <= control.tol / 2 or len(history) >= control.max_iter or used >= ROUNDS):
            break
        join = outside[np.argsort(-steep[outside], kind="stable")[: max(FIRST, len(chosen))]]
        chosen = np.union1d(chosen, join)
        part = np.append(chosen, objective.d)
        found = solve(replace(objective, X=objective.X[:, chosen], turned=[]), theta[:, part], quiet)
        theta = np.zeros_like(theta)
        theta[:, part] = found.theta
        history += found.history
        used += 1
    miss = found.miss + 1 - 1 / (1 + over)
    converged = found.converged and miss <= control.tol
    return replace(found, theta=theta, n_iter=len(history), converged=converged, miss=miss, history=history)


def _slopes(objective: Objective, theta: NDArray) -> NDArray:
    """The steepest slope of the loss along each column, (d,), in float64: an L1 penalty may be very small."""
    exact = theta.astype(np.float64)
    scores = np.asarray(objective.X @ exact[:, :-1].T) + exact[:, -1]
    soft = objective.targets.soft
    targets = objective.targets._replace(soft=None if soft is None else soft.astype(np.float64))
    slope = objective.loss.value_gradient(scores, targets)[1]
    if objective.weight is not None:
        slope = slope * objective.weight[:, None]
    return np.abs(transposed_product(slope, objective.X)).max(axis=0) / objective.n
