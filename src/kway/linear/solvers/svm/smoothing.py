"""Hinges by smoothing: smooth problems whose kinks are rounded over a width that shrinks from 2.

    phi_w(g) = (g + w/2)^2 / 2w for |g| <= w/2, max(0, g) elsewhere;  g = margin - t the gap

The rounding is centred on the kink, so only rows within w/2 of it are changed, by at most w/8, and the bump
F_w(theta) - F(theta) >= 0 that they add up to is also, to first order, the duality gap of the slopes as dual variables.
So bump + miss estimates how far theta is above the optimum of the hinge itself; the width shrinks until that is under
tol. (Rounding on one side only changes every violating row and needs widths 30 times smaller.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses.hinge import centred_kink
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.preconditioners.moments import Moments, quick_moments, sample_rows
from kway.linear.solvers.svm.newton_joint import joint_newton_pays, solve_joint_newton

FIRST = 2.02  # at theta = 0 every gap is 1: just inside the kink, so that the first steps see curvature
SHRINK = 5.0
NARROWEST = 1e-6
ROUGH_TOL = 1e-2  # tolerance of the problems on the way

SolveSmooth = Callable[[Objective, NDArray, Control, Moments], Solution]


def solve_smoothed(objective: Objective, theta: NDArray, control: Control, solve: SolveSmooth) -> Solution:
    """Minimise a hinge with `solve`, which minimises smooth problems; a small joint one with full Hessians first."""
    known, width, history = quick_moments(objective, sample_rows(objective)), FIRST, []
    best, left = Solution(theta, 0, False, np.inf), control.max_iter
    while True:
        smooth = objective.with_loss(centred_kink(objective.loss, width))
        found = _solve_rounded(smooth, best.theta, _rough(control, left, best.miss), known, solve)
        history += found.history
        left -= found.n_iter
        value = objective.value(found.theta)
        bump = (smooth.value(found.theta) - value) / max(value, 1e-300)
        best = replace(found, miss=bump + found.miss, n_iter=best.n_iter + found.n_iter, history=history)
        if best.miss <= control.tol or width < NARROWEST or left <= 0 or value <= 0:
            break
        width /= SHRINK
    converged = best.miss <= control.tol or value <= 0
    return replace(best, converged=converged, advice="" if converged else found.advice or "raise max_iter or tol")


def _solve_rounded(smooth: Objective, theta: NDArray, control: Control, known: Moments, solve: SolveSmooth) -> Solution:
    if not joint_newton_pays(smooth):
        return solve(smooth, theta, control, known)
    found = solve_joint_newton(smooth, theta, control)
    if found.converged:
        return found
    other = solve(smooth, found.theta, control, known)
    return replace(other, n_iter=found.n_iter + other.n_iter, history=found.history + other.history)


def _rough(control: Control, left: int, miss: float) -> Control:
    """Half of tol for the smooth problem, and no less while the width is far from the last one."""
    tol = control.tol / 2 if miss < 20 * control.tol else max(ROUGH_TOL, control.tol)
    return replace(control, tol=tol, max_iter=left)
