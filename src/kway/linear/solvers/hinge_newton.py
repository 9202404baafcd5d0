"""Newton's method for the hinge of one class against the rest, if there are few features.

    F(w, b) = |w|^2 / 2 + sum_i upper_i phi(1 - y_i (x_i.w + b)),   phi the hinge, its kink rounded over a width

A step takes n D multiplications, and D^2 for each row inside the kink (D = d + 1, or d without a bias). About ten
steps reach a relative gap of 1e-3, whereas coordinate ascent visits every row 60 times (row T4d, letter). The width is
reduced as in smoothing.py. The slopes of the rounded losses are feasible dual variables of the hinge up to the
constraint of the bias, so that the caller can compute the duality gap from them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.linear.dual import kink_sums, slope_along
from kway.linear.solvers.dense_hessian import solve_positive
from kway.linear.solvers.smoothing import FIRST_WIDTH, MIN_WIDTH, WIDTH_FACTOR
from kway.memory import CACHE_BYTES, rows_per_block

Floats = NDArray[np.float64]

# A line search ends if the slope is below this share of the first slope. The slope is linear between kinks, so that few
# secants suffice (row T4d, letter).
_SLOPE_SHARE = 0.1


class RoundedOptimum(NamedTuple):
    """Dual variables a (n,) and theta = [w b] (D,) at the minimum of the rounded problem, and the steps taken."""

    a: Floats
    theta: Floats
    steps: int


def solve_rounded(Z: Floats, y: Floats, upper: Floats, ridge: Floats, tol: float, max_steps: int) -> RoundedOptimum:
    """Minimize over rows Z (n, D) until the duality gap is at most tol / 2 of the objective.

    ridge (D,) is 1, and 0 for the bias. The duality gap is estimated as the cost of the rounding plus |w - pull|^2 / 2,
    with pull = sum_i a_i y_i x_i. With a bias, it is about |sum_i a_i y_i| larger, because the a_i of one side have to
    be reduced by this sum to be feasible.
    """
    D = Z.shape[1]
    theta, half_width, gap = np.zeros(D), FIRST_WIDTH / 2, np.ones(len(y))
    pull, hessian = np.empty(D), np.empty((D, D))
    buffer, steps = np.empty((rows_per_block(8 * D, CACHE_BYTES), D)), 0
    while steps < max_steps:
        hinge, cost = kink_sums(Z, y, upper, gap, half_width, pull, hessian, buffer)
        value = hinge + float(ridge @ theta**2) / 2
        descent = pull - ridge * theta  # minus the gradient
        duality_gap = cost + float(ridge @ descent**2) / 2 + float((1 - ridge) @ np.abs(descent))
        if duality_gap <= tol / 2 * value:
            break
        step = solve_positive(hessian + np.diag(ridge), descent)
        gain = float(descent @ step) / 2
        if half_width < MIN_WIDTH or not 0 < gain < np.inf:
            break
        if cost > max(gain, tol / 4 * value):
            half_width /= WIDTH_FACTOR
        margin_change = y * (Z @ step)
        penalty_slope, penalty_curvature = float(ridge @ (theta * step)), float(ridge @ step**2)
        t = _find_step_size(
            partial(_slope_at, penalty_slope, penalty_curvature, (gap, margin_change, upper, half_width))
        )
        theta, gap, steps = theta + t * step, gap - t * margin_change, steps + 1
    return RoundedOptimum(upper * np.clip((gap + half_width) / (2 * half_width), 0, 1), theta, steps)


def _slope_at(penalty_slope: float, penalty_curvature: float, losses: tuple[Any, ...], t: float) -> float:
    """Return the derivative of F at t along a step; `losses` are the other arguments of `slope_along`."""
    return penalty_slope + t * penalty_curvature + float(slope_along(*losses, t))


def _find_step_size(slope: Callable[[float], float]) -> float:
    """Return t in [0, 1] at which the slope along a step is nearly 0, by secants (the Illinois rule)."""
    low, high, low_slope, high_slope = 0.0, 1.0, slope(0.0), slope(1.0)
    limit, t, t_slope = _SLOPE_SHARE * abs(low_slope), 1.0, high_slope
    if low_slope >= 0:
        return 0.0
    while t_slope > limit or (t_slope < -limit and t < 1):
        t = low - (high - low) * low_slope / (high_slope - low_slope)
        t_slope = slope(t)
        if t_slope > 0:
            high, high_slope, low_slope = t, t_slope, low_slope / 2
        else:
            low, low_slope, high_slope = t, t_slope, high_slope / 2
        if high - low < MIN_WIDTH:
            break
    return t
