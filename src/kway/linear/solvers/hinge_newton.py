"""Newton's method for the hinge of one class against the rest, if there are few features.

    F(w, b) = |w|^2 / 2 + sum_i upper_i phi(1 - y_i (x_i.w + b)),   phi the hinge, its kink rounded over a width

A step takes n D multiplications, and D^2 for each row inside the kink (D = d + 1, or d without a bias). About ten
steps reach a relative gap of 1e-3, whereas coordinate ascent visits every row 60 times (row T4d, letter). The width is
reduced as in smoothing.py. The slopes of the rounded losses are feasible dual variables of the hinge up to the
constraint of the bias, so that the caller can compute the duality gap from them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.linear.dual import kink_sums, take_step
from kway.linear.solvers.dense_hessian import solve_positive
from kway.linear.solvers.smoothing import FIRST_WIDTH, MIN_WIDTH, WIDTH_FACTOR
from kway.memory import CACHE_BYTES, rows_per_block

Floats = NDArray[np.float64]

# A line search ends if the slope is below this share of the first slope. The slope is linear between kinks, so that few
# secants suffice (row T4d, letter).
_SLOPE_SHARE = 0.1


class RoundedOptimum(NamedTuple):
    """Dual variables a (n,), theta = [w b] and sum_i a_i y_i z_i (D,) at the minimum of the rounded problem."""

    a: Floats
    theta: Floats
    pull: Floats
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
        slope, curvature = float(ridge @ (theta * step)), float(ridge @ step**2)  # of the penalty along the step
        theta = theta + take_step(Z, y, upper, gap, half_width, step, slope, curvature, _SLOPE_SHARE) * step
        steps += 1
    a = upper * np.clip((gap + half_width) / (2 * half_width), 0, 1)
    return RoundedOptimum(a, theta, (a * y) @ Z, steps)
