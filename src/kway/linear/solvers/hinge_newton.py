"""Newton's method for the hinge of one class against the rest, if there are few features.

    F(w, b) = |w|^2 / 2 + sum_i upper_i phi(1 - y_i (x_i.w + b)),   phi the hinge, its kink rounded over a width

A step costs n D products and D^2 for each row inside the kink. About ten steps reach a relative gap of 1e-3, where
coordinate ascent visits every row 60 times (T4d: letter). The width shrinks as in smoothing.py. The slopes of the
rounded losses are dual variables of the hinge, so the caller proves how good they are by the duality gap.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.linear.dual import kink_sums, slope_along
from kway.linear.solvers.dense_hessian import solve_positive
from kway.linear.solvers.smoothing import FIRST_WIDTH, MIN_WIDTH, WIDTH_FACTOR
from kway.memory import CACHE_BYTES, rows_per_block

Floats = NDArray[np.float64]

_FLAT = (
    0.1  # share of the first slope at which a line search ends: the derivative is linear between kinks (T4d: letter)
)


class RoundedOptimum(NamedTuple):
    """Dual variables a (n,) and theta = [w b] (D,) at the minimum of the rounded problem, and the steps taken."""

    a: Floats
    theta: Floats
    steps: int


def solve_rounded(Z: Floats, y: Floats, upper: Floats, ridge: Floats, tol: float, most: int) -> RoundedOptimum:
    """Minimize over rows Z (n, D) until the duality gap is at most tol / 2 of the objective.

    ridge (D,) is 1, and 0 for the bias. The gap is what rounding costs and |w - pull|^2 / 2, and with a bias about
    |sum a y| more: a is feasible once the heavier side has lost that much.
    """
    theta, half, gap = np.zeros(Z.shape[1]), FIRST_WIDTH / 2, np.ones(len(y))
    pull, hessian = np.empty(len(theta)), np.empty((len(theta), len(theta)))
    inside, steps = np.empty((rows_per_block(8 * len(theta), CACHE_BYTES), len(theta))), 0
    while steps < most:
        hinge, cost = kink_sums(Z, y, upper, gap, half, pull, hessian, inside)
        value, down = hinge + float(ridge @ theta**2) / 2, pull - ridge * theta
        open_gap = cost + float(ridge @ down**2) / 2 + float((1 - ridge) @ np.abs(down))
        if open_gap <= tol / 2 * value:
            break
        step = solve_positive(hessian + np.diag(ridge), down)
        gain = float(down @ step) / 2
        if half < MIN_WIDTH or not 0 < gain < np.inf:
            break
        if cost > max(gain, tol / 4 * value):
            half /= WIDTH_FACTOR
        turn = y * (Z @ step)
        t = _step_length(gap, turn, upper, half, float(ridge @ (theta * step)), float(ridge @ step**2))
        theta, gap, steps = theta + t * step, gap - t * turn, steps + 1
    return RoundedOptimum(upper * np.clip((gap + half) / (2 * half), 0, 1), theta, steps)


def _step_length(gap: Floats, turn: Floats, upper: Floats, half: float, tilt: float, bend: float) -> float:
    """Return t in [0, 1] at which the derivative of F along the step is nearly 0, by secants (the Illinois rule)."""

    def slope(t: float) -> float:
        return tilt + t * bend + float(slope_along(gap, turn, upper, half, t))

    low, high, at_low, at_high = 0.0, 1.0, slope(0.0), slope(1.0)
    enough, t, now = _FLAT * abs(at_low), 1.0, at_high
    if at_low >= 0:
        return 0.0
    while now > enough or (now < -enough and t < 1):
        t = low - (high - low) * at_low / (at_high - at_low)
        now = slope(t)
        if now > 0:
            high, at_high, at_low = t, now, at_low / 2
        else:
            low, at_low, at_high = t, now, at_high / 2
        if high - low < MIN_WIDTH:
            break
    return t
