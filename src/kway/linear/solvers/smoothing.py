"""Hinges by smoothing: smooth problems, with any penalty, whose kinks are rounded over a width that shrinks from 2.

    phi_w(g) = (g + w/2)^2 / 2w for |g| <= w/2, max(0, g) elsewhere;  g = margin - t the gap

The rounding is centred on the kink, so only rows within w/2 of it are changed, by at most w/8. The slopes a = phi_w'
are feasible dual variables of the hinge, so at the minimum of F_w its duality gap is what rounding costs the rows
there, the mean of sum max(0, g) - a g; that and the excess of F_w bound how far theta is above the optimum of the hinge
itself. The width shrinks until the bound is under tol. (Rounding on one side only changes every violating row and needs
widths 30 times smaller.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses import centred_kink
from kway.linear.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.certificates import tol_scale
from kway.memory import CACHE_BYTES, rows_per_block
from kway.threads import pmap, spans

FIRST_WIDTH = 2.02  # at theta = 0 every gap is 1: just inside the kink, so that the first steps see curvature
WIDTH_FACTOR = 5.0  # factor between two widths (T4d)
NARROWEST_KINK = 1e-6  # width below which rounding of the losses hides any progress
ROUGH_TOL = 1e-2  # tolerance of the problems with wider kinks (T4d)


class SolveSmooth(Protocol):
    """Minimize a smooth problem; `prove`: to a bound, not an estimate."""

    def __call__(self, objective: Objective, theta: NDArray, control: Control, *, prove: bool) -> Solution:
        """Return the solution, from theta."""
        ...


def solve_smoothed(objective: Objective, theta: NDArray, control: Control, solve: SolveSmooth) -> Solution:
    """Minimize a hinge with `solve`, which minimizes smooth problems."""
    width = FIRST_WIDTH
    history: list[float] = []
    best, left = Solution(theta, 0, False, np.inf), control.max_iter
    while True:
        smooth = objective.with_loss(centred_kink(objective.loss, width))
        rough = _rough(control, left, best.miss)
        last = rough.tol < control.tol  # then the smooth problem's excess is proved, too
        found = solve(smooth, best.theta, rough, prove=last)
        history += found.history
        left -= found.n_iter
        value = objective.value(found.theta)
        cost = cost_of_rounding(objective, smooth, found.theta) / tol_scale(value)
        best = replace(found, miss=cost + found.miss, n_iter=best.n_iter + found.n_iter, history=history)
        if (last and best.miss <= control.tol) or width < NARROWEST_KINK or left <= 0 or value <= 0:
            break
        width /= WIDTH_FACTOR
    # a problem with a wide kink may end far above the optimum of the hinge
    converged = (last and best.miss <= control.tol) or value <= 0
    advice = "" if converged else found.advice or "raise max_iter or tol"
    # the proof is of the rounded hinge, not of the hinge
    return replace(best, converged=converged, advice=advice, proved=False, value=value)


def cost_of_rounding(objective: Objective, smooth: Objective, theta: NDArray) -> float:
    """mean_i weight_i sum_c max(0, g) - a g: the duality gap of the rounded hinge's slopes at its minimum.

    A row's a g add up to margin sum a + slope.f, and sum a to the absolute slopes (half of them if classes compete:
    what pulls the others down pulls the row's own class up).
    """
    share = objective.loss.margin / (2 if objective.loss.joint else 1)

    def part(rows: slice) -> float:
        f, targets = objective.scores(theta, rows), objective.block_targets(rows)
        value, _ = objective.loss.value_gradient(f, targets)
        _, slope = smooth.loss.value_gradient(f, targets)
        cost = value - share * np.abs(slope).sum(axis=1) - np.einsum("ij,ij->i", slope, f)
        return objective.weighted_sum(cost, rows)

    return max(
        0.0, sum(pmap(part, spans(objective.n, rows_per_block(8 * objective.n_scores, CACHE_BYTES)))) / objective.n
    )


def _rough(control: Control, left: int, miss: float) -> Control:
    """A quarter of tol for the smooth problem, most of it being left to the rounding; more while the width is large."""
    tol = control.tol / 4 if miss < 20 * control.tol else max(ROUGH_TOL, control.tol)
    return replace(control, tol=tol, max_iter=left)
