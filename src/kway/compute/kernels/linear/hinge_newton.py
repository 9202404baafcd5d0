"""Newton's method for one support vector machine of few features: its hinge rounded over a width that shrinks.

    F(theta) = ||w||^2 / 2 + sum_i upper_i phi(g_i),  g_i = 1 - y_i (x_i.w + b),  theta = [w b] (d + 1,)
    phi(g) = (g + h)^2 / 4h for |g| <= h, max(0, g) elsewhere: `rounded_hinge` at g + h, of width 2h

One look at the rows gives F, its gradient and its Hessian, to which only rows inside the kink contribute. The same
look brackets the optimum of the hinge itself: from above by its value P(theta), from below by the dual value of the
slopes a_i = upper_i phi'(g_i). Steps are as long as pays, from the gaps alone. All sums are in float64.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.jit import kernel
from kway.compute.kernels.linear.hinge import rounded_hinge

LOOKED_AT = 512  # rows looked at in one go
_ROUND = 0.3  # share of the tolerance that rounding the kink may cost at the end
WORST = 1e300


@kernel
def column_scores(columns, theta, out):
    """out = X w + b (n,); columns (d, n) is X transposed, so that rows lie in lanes."""
    d = len(theta) - 1
    for first in range(0, len(out), LOOKED_AT):
        part = out[first : first + LOOKED_AT]
        m = np.uint64(len(part))
        part[:] = theta[d]
        for j in range(d):
            weight, column = theta[j], columns[j, first : first + LOOKED_AT]
            for i in range(m):
                part[i] += weight * column[i]


@kernel
def look(X, y, upper, gap, half, pulls, hessian):
    """From the gaps: the hinge's sum, what rounding adds to it, and sum a; pulls (2, d + 1) and Hessian are filled.

    pulls[s] = sum of a_i y_i [x_i 1] over the rows of y < 0 and of y > 0.
    """
    n, d = X.shape
    pulls[:], hessian[:] = 0.0, 0.0
    hinge, bump, total = 0.0, 0.0, 0.0
    inside, square = np.ones((LOOKED_AT, d + 1)), np.empty((d + 1, d + 1))
    for first in range(0, n, LOOKED_AT):
        held = 0
        for row in range(first, min(n, first + LOOKED_AT)):
            g = gap[row]
            if g <= -half:
                continue
            x, box = X[row], upper[row]
            value, slope = rounded_hinge(g + half, 2.0 * half)
            a = box * slope
            if g < half:
                bump += box * (value - max(g, 0.0))
                scale, kept = np.sqrt(box / (2.0 * half)), inside[held]
                for j in range(np.uint64(d)):
                    kept[j] = scale * x[j]
                kept[d] = scale
                held += 1
            hinge += box * max(g, 0.0)
            total += a
            pull, step = pulls[np.int64(y[row] > 0)], a * y[row]
            for j in range(np.uint64(d)):
                pull[j] += step * x[j]
            pull[d] += step
        if held:
            np.dot(inside[:held].T, inside[:held], square)
            hessian += square
    return hinge, bump, total


@kernel
def dual_value(pulls, total, bias):
    """The dual value of the slopes; where there is a bias the heavier side is shrunk until sum a y = 0."""
    d = pulls.shape[1] - 1
    minus, plus = -pulls[0, d], pulls[1, d]
    shrink0, shrink1 = 1.0, 1.0
    if bias:
        light = min(minus, plus)
        shrink0, shrink1 = light / max(minus, 1e-300), light / max(plus, 1e-300)
        total = 2.0 * light
    norm = 0.0
    for j in range(d):
        norm += (shrink0 * pulls[0, j] + shrink1 * pulls[1, j]) ** 2
    return total - norm / 2.0


@kernel
def solve_positive(A, v):
    """v = A^-1 v in place by Cholesky; A (m, m) is destroyed, and pivots that rounding made negative are lifted."""
    m = len(A)
    for j in range(m):
        least = 1e-14 * A[j, j] + 1e-300
        for k in range(j + 1):
            for i in range(k):
                A[j, k] -= A[j, i] * A[k, i]
            A[j, k] = np.sqrt(max(A[j, j], least)) if k == j else A[j, k] / A[k, k]
    for j in range(m):
        for i in range(j):
            v[j] -= A[j, i] * v[i]
        v[j] /= A[j, j]
    for j in range(m - 1, -1, -1):
        for i in range(j + 1, m):
            v[j] -= A[i, j] * v[i]
        v[j] /= A[j, j]


@kernel
def newton_step(theta, pulls, hessian, bias, step):
    """step = (H + I)^-1 (-gradient); twice the decrease that the quadratic model promises is returned."""
    d = len(theta) - 1
    for j in range(d):
        step[j] = pulls[0, j] + pulls[1, j] - theta[j]
        hessian[j, j] += 1.0
    step[d] = pulls[0, d] + pulls[1, d]
    hessian[d, d] *= 1.0 + 1e-9
    if not bias or hessian[d, d] == 0.0:
        step[d], hessian[d, :], hessian[:, d], hessian[d, d] = 0.0, 0.0, 0.0, 1.0
    down = step.copy()
    solve_positive(hessian, step)
    promised = 0.0
    for j in range(d + 1):
        promised += down[j] * step[j]
    return promised


@kernel
def slope_at(t, gap, turn, upper, half):
    """sum_i a_i turn_i where the gaps are gap - t turn: minus the derivative of the rounded sum along the step."""
    total = 0.0
    for i in range(np.uint64(len(gap))):
        total += upper[i] * turn[i] * rounded_hinge(gap[i] - t * turn[i] + half, 2.0 * half)[1]
    return total


@kernel
def step_length(theta, step, gap, turn, upper, half):
    """The t at which F(theta + t step) is nearly least: its derivative is under a tenth of the one at 0.

    0 where the step leads uphill. Secants within a bracket, the older end halved where it stays (Illinois).
    """
    tilt, bend = 0.0, 0.0
    for j in range(len(theta) - 1):
        tilt += theta[j] * step[j]
        bend += step[j] * step[j]
    low, slope_low = 0.0, tilt - slope_at(0.0, gap, turn, upper, half)
    if slope_low >= 0.0:
        return 0.0
    enough, high = -0.1 * slope_low, 1.0
    slope = tilt + bend - slope_at(1.0, gap, turn, upper, half)
    while slope < -enough and high < 64.0:
        low, slope_low, high = high, slope, 2.0 * high
        slope = tilt + high * bend - slope_at(high, gap, turn, upper, half)
    slope_high, t = slope, high
    for _ in range(40):
        if abs(slope) <= enough or slope_high <= 0.0:
            return t
        t = low + (high - low) * slope_low / (slope_low - slope_high)
        slope = tilt + t * bend - slope_at(t, gap, turn, upper, half)
        if slope > 0.0:
            high, slope_high, slope_low = t, slope, slope_low / 2.0
        else:
            low, slope_low, slope_high = t, slope, slope_high / 2.0
    return low


@kernel
def hinge_newton(X, columns, y, upper, bias, theta, half, narrowest, tol, most):
    """theta moved until P is within tol of its optimum, or `most` steps; returns half the width, and the steps.

    The width shrinks when rounding costs more than the tolerance allows and than the next step would gain; the run
    also ends where it would go on from half a width of `narrowest` or less.
    """
    n, D = len(X), len(theta)
    pulls, hessian, step, gap, turn = np.empty((2, D)), np.empty((D, D)), np.empty(D), np.empty(n), np.empty(n)
    above, below, steps = WORST, 0.0, 0
    column_scores(columns, theta, gap)
    gap[:] = 1.0 - y * gap
    while steps < most:
        hinge, bump, total = look(X, y, upper, gap, half, pulls, hessian)
        above = min(above, np.sum(theta[: D - 1] ** 2) / 2.0 + hinge)
        below = max(below, dual_value(pulls, total, bias))
        if above - below <= tol * above:
            break
        promised, allowed = newton_step(theta, pulls, hessian, bias, step), _ROUND * tol * above
        shrinks = bump > allowed and bump > promised / 2.0
        if shrinks:
            if half <= narrowest:
                break
            half *= min(0.5, max(0.2, np.sqrt(allowed / (2.0 * bump))))
        column_scores(columns, step, turn)
        turn *= y
        t = step_length(theta, step, gap, turn, upper, half)
        if t == 0.0 and not shrinks:
            break
        theta += t * step
        gap -= t * turn
        steps += 1
    return half, steps


@kernel
def hinge_slopes(columns, y, upper, theta, half, a):
    """a_i = upper_i phi'(g_i) (n,)."""
    column_scores(columns, theta, a)
    for i in range(len(a)):
        a[i] = upper[i] * rounded_hinge(1.0 - y[i] * a[i] + half, 2.0 * half)[1]
