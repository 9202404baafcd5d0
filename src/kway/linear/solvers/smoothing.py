"""Smoothing of hinges: minimize a sequence of smooth problems whose kinks are rounded over a smaller and smaller width.

    hinge          max(0, g), with the gap g = margin - t
    rounded hinge  phi_w(g) = (g + w/2)^2 / (2 w) for |g| <= w/2, else max(0, g)

The rounding is centered on the kink, so it changes only rows within w/2 of the kink, by at most w/8. (Rounding on one
side of the kink changes every violating row and needs widths 30 times smaller.)

The slopes a = phi_w'(g) are feasible dual variables of the hinge. At the minimum of the rounded objective F_w, the
duality gap of the hinge is therefore the mean over rows of sum max(0, g) - a g, the cost of the rounding. This cost
plus the excess of F_w bounds the excess of the hinge itself. The width is reduced, beginning with about 2, until the
bound is below tol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses import centered_kink
from kway.linear.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.stopping import tol_scale
from kway.memory import CACHE_BYTES, rows_per_block
from kway.threads import pmap, spans

FIRST_WIDTH = 2.02  # just above 2: at theta = 0 every gap is 1, which is then inside the rounded kink, with curvature
WIDTH_FACTOR = 5.0  # factor between two widths (row T4d)
MIN_WIDTH = 1e-6  # width below which rounding of the losses hides any progress


def solve_smoothed(objective: Objective, theta: NDArray, control: Control, solve: Callable[..., Solution]) -> Solution:
    """Minimize an objective with hinges by `solve(objective, theta, control, prove=...)`, a solver of smooth problems.

    With `prove`, it stops by an upper bound of the excess, not by an estimate.
    """
    width = FIRST_WIDTH
    history: list[float] = []
    best = Solution(theta, 0, converged=False, rel_excess=np.inf)
    iterations_left = control.max_iter
    while True:
        smooth = objective.with_loss(centered_kink(objective.loss, width))
        # most of tol, and before the last widths most of the expected bound, is left for the cost of the rounding
        tol = max(control.tol, min(1.0, best.rel_excess) / WIDTH_FACTOR) / 4
        last = tol < control.tol  # the excess of the smooth problem then needs a bound, too
        solution = solve(smooth, best.theta, replace(control, tol=tol, max_iter=iterations_left), prove=last)
        history += solution.history
        iterations_left -= solution.n_iter
        value = objective.value(solution.theta)
        rel_excess = solution.rel_excess + cost_of_rounding(objective, smooth, solution.theta) / tol_scale(value)
        best = replace(solution, rel_excess=rel_excess, n_iter=best.n_iter + solution.n_iter, history=history)
        if (last and rel_excess <= control.tol) or width < MIN_WIDTH or iterations_left <= 0 or value <= 0:
            break
        width /= WIDTH_FACTOR
    # a problem with a wide kink may end far above the optimum of the hinge
    converged = (last and best.rel_excess <= control.tol) or value <= 0
    advice = "" if converged else solution.advice or "raise max_iter or tol"
    # the bound was proved for the rounded hinge, not for the hinge
    return replace(best, converged=converged, advice=advice, proved=False, value=value)


def cost_of_rounding(objective: Objective, smooth: Objective, theta: NDArray) -> float:
    """Return the cost of rounding: mean_i weight_i sum_c (max(0, g) - a g), with the slopes a of the rounded hinge.

    For each row, sum_c a g = margin sum_c a + slope.f. sum_c a is the sum of the absolute slopes, or half of it for
    joint losses, in which each class that is pushed down pushes the row's own class up.
    """
    share = objective.loss.margin / (2 if objective.loss.joint else 1)

    def part(rows: slice) -> float:
        f, targets = objective.scores(theta, rows), objective.targets.of(rows)
        value, _ = objective.loss.value_gradient(f, targets)
        _, slope = smooth.loss.value_gradient(f, targets)
        cost = value - share * np.abs(slope).sum(axis=1) - np.einsum("ij,ij->i", slope, f)
        return objective.weighted_sum(cost, rows)

    total = sum(pmap(part, spans(objective.n, rows_per_block(8 * objective.n_scores, CACHE_BYTES))))
    return max(0.0, total / objective.n)
