"""L1 on many columns: Newton's method on the few that matter, and a proof that the others do not.

A column whose weights are all zero stays out of the optimum while its slope is under the penalty, |g_j| <= lasso. So
the problem is solved on a set of columns; those outside whose slope is too steep join, the steepest first, until there
are none. What is still too steep by a factor of 1 / s costs at most 1 - s of the objective: s times the dual variables
are feasible, and their bound is at least s times as high.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective.bends import transposed_product
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.newton.newton_run import NewtonRun

_FIRST = 50  # columns, at least
_ROUNDS = 30


def solve_on_columns(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """From theta to within tol of the optimum."""
    chosen = np.flatnonzero(theta[:, :-1].any(axis=0))
    if not len(chosen):
        chosen = np.sort(np.argsort(-_steepest(objective, _slopes_at_zero(objective)), kind="stable")[:_FIRST])
    history: list[float] = []
    quiet = replace(control, tol=control.tol / 2)
    for _ in range(_ROUNDS):
        run = NewtonRun.on(replace(objective, X=objective.X[:, chosen], turned=[]), quiet)
        part = np.append(chosen, objective.d)
        found = run.go(theta[:, part])
        theta = np.zeros_like(theta)
        theta[:, part] = found.theta
        history += found.history
        steep = _steepest(objective, run.slopes)
        steep[chosen] = 0
        over = max(0.0, float(steep.max()) / objective.penalty.lasso - 1)
        if over <= control.tol / 2 or len(history) >= control.max_iter:
            break
        joining = np.argsort(-steep, kind="stable")[: max(_FIRST, len(chosen))]
        chosen = np.union1d(chosen, joining[steep[joining] > 0])
    miss = found.miss + 1 - 1 / (1 + over)
    converged = found.converged and miss <= control.tol
    return replace(found, theta=theta, n_iter=len(history), converged=converged, miss=miss, history=history)


def _steepest(objective: Objective, slopes: NDArray) -> NDArray:
    """The steepest slope of the loss along each column, (d,), from those in the scores (n, R)."""
    return np.abs(transposed_product(slopes, objective.X)).max(axis=0)


def _slopes_at_zero(objective: Objective) -> NDArray:
    """Of the losses where all scores are zero (n, R), weights of sum 1 included."""
    slopes = objective.loss.value_gradient(np.zeros((objective.n, objective.n_scores)), objective.targets)[1]
    return slopes / objective.n if objective.weight is None else slopes * (objective.weight / objective.n)[:, None]
