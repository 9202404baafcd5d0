"""Losses over rows of scores: scores (m, R), targets -> value (m,), gradient (m, R).

Targets are codes (m,) where `hard`, else distributions Y: (m, R) rows for joint losses, and for column losses
q = P(+1) of each column. `gradient` may be `scores` itself: every row is read before it is written.

Column losses see each column as a binary problem with margin t = s f, s = +1 for the row's class and -1 elsewhere
(R = 1: two classes, s = +1 for code 1); with soft targets the value is q phi(f) + (1 - q) phi(-f).

In float32 exponentials are polynomials (relative error 2e-7), which the compiler turns into vectors; in float64 they
are the library's.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from kway.kernels.jit import kernel, strict_kernel
from kway.kernels.linear.loss_numbers import (
    HINGE,
    LOGISTIC,
    MULTI_HINGE,
    ONE_HOT,
    PERCEPTRON,
    SIGMOID_SQUARED,
    SOFTMAX,
    SOFTMAX_ABSOLUTE,
    SOFTMAX_SQUARED,
    SQUARED,
)
from kway.kernels.product_tiles import float_of_bits


@kernel
def rounded_hinge(gap, width):
    """phi and phi' of the gap of a hinge whose kink is rounded over a width > 0.

        phi(g) = 0, g^2 / 2w, g - w/2     phi'(g) = 0, g / w, 1     for g <= 0, in between, g >= w

    With v = clip(g, 0, w), the part of the gap inside the kink, both are one formula. Every number keeps the type of
    the gap, so that rows become vectors.
    """
    v = min(max(gap, gap - gap), width)
    return v * (gap + (gap - v)) / (width + width), v / width


def exp_down(x):
    """e^x for x <= 0."""
    return math.exp(x)


@overload(exp_down, jit_options={"fastmath": True})
def _exp_down(x):
    if x == types.float32:
        return _exp_polynomial
    return lambda x: math.exp(x)


def _exp_polynomial(x):
    """e^x = 2^k e^r, |r| <= log(2) / 2, k put into the exponent's bits; below -80 nothing is left that counts."""
    x = max(x, np.float32(-80))
    k = np.rint(x * np.float32(1.44269504))
    r = x - k * np.float32(0.693359375) + k * np.float32(2.12194440e-4)  # log 2 in two parts, so that r is exact
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    return (p * r * r + r + np.float32(1)) * float_of_bits((np.int32(k) + np.int32(127)) << np.int32(23))


@kernel
def largest(row):
    """Maximum of a row; on its own so that only it takes part in fast arithmetic."""
    top = row[0]
    for c in range(row.size):
        top = max(top, row[c])
    return top


@kernel
def total(row):
    """Sum of a row, in any order."""
    s = row.dtype.type(0)
    for c in range(row.size):
        s += row[c]
    return s


@strict_kernel
def sigmoid_of(t):
    """1 / (1 + exp(-t)) without overflow."""
    if t >= 0:
        return 1.0 / (1.0 + math.exp(-t))
    e = math.exp(t)
    return e / (1.0 + e)


@strict_kernel
def soft_plus(t):
    """log(1 + exp(t)) without overflow."""
    return max(t, 0.0) + math.log1p(math.exp(-abs(t)))


@strict_kernel
def hinge(gap, width):
    """max(0, gap) rounded over `width` (0: not at all): value and slope with respect to gap."""
    if width > 0.0:
        return rounded_hinge(gap, width)
    return max(gap, 0.0), 1.0 if gap > 0.0 else 0.0


@strict_kernel
def margin_loss(kind, t, margin, width):
    """phi(t) and phi'(t) of a column loss; hinge: max(0, margin - t)."""
    if kind == LOGISTIC:
        return soft_plus(-t), -sigmoid_of(-t)
    if kind in (HINGE, PERCEPTRON):
        value, slope = hinge(margin - t, width)
        # at t = 0 the perceptron has not separated the row: it moves, or from W = 0 it never would
        return value, -1.0 if kind == PERCEPTRON and t == 0.0 and width == 0.0 else -slope
    if kind == SQUARED:
        return (1.0 - t) * (1.0 - t), -2.0 * (1.0 - t)
    miss = sigmoid_of(-t)  # 1 - p_y
    if kind == SIGMOID_SQUARED:  # ||Y - p||^2 of two classes
        return 2.0 * miss * miss, -4.0 * miss * miss * (1.0 - miss)
    return 2.0 * miss, -2.0 * miss * (1.0 - miss)  # ||Y - p||_1


@strict_kernel
def column_rows(kind, scores, codes, Y, hard, margin, width, value, gradient):
    """Each column a binary problem; R = 1 means two classes."""
    rows, columns = scores.shape
    for i in range(rows):
        loss = 0.0
        for c in range(columns):
            f = scores[i, c]
            if hard:
                sign = 1.0 if (codes[i] == 1 if columns == 1 else codes[i] == c) else -1.0
                v, slope = margin_loss(kind, sign * f, margin, width)
                loss += v
                gradient[i, c] = sign * slope
            else:
                q = Y[i, c]
                v, slope = margin_loss(kind, f, margin, width)
                u, down = margin_loss(kind, -f, margin, width)
                loss += q * v + (1.0 - q) * u
                gradient[i, c] = q * slope - (1.0 - q) * down
        value[i] = loss


@strict_kernel
def exponentials(scores, rows):
    """rows = e^(scores - top), both (m, R), top the largest score of the row.

    Exponentials run over the block as one array: rows of few scores would leave most of a vector empty.
    """
    for i in range(scores.shape[0]):
        top = largest(scores[i])
        row = rows[i]
        for c in range(row.size):
            row[c] = scores[i, c] - top
    flat = rows.reshape(-1)
    for j in range(flat.size):
        flat[j] = exp_down(flat[j])


@strict_kernel
def softmax_rows(scores, codes, Y, hard, value, gradient):
    """Cross-entropy -sum_k Y_k log p_k; gradient p - Y."""
    for i in range(scores.shape[0]):
        top = largest(scores[i])
        along = 0.0
        if hard:
            along += scores[i, codes[i]] - top
        else:
            for c in range(scores.shape[1]):
                along += Y[i, c] * (scores[i, c] - top)
        value[i] = -along
    exponentials(scores, gradient)
    for i in range(scores.shape[0]):
        row = gradient[i]
        own = 0.0
        if hard:  # the others' mass apart: 1 - p of a row that is nearly certain keeps its digits
            own += row[codes[i]]
            row[codes[i]] = 0
        others = total(row)
        partition = own + others
        value[i] += math.log(partition)
        share = row.dtype.type(1 / partition)
        for c in range(row.size):
            row[c] *= share
        if hard:
            row[codes[i]] = -others * share
        else:
            for c in range(row.size):
                row[c] -= Y[i, c]


@kernel
def log_product(small):
    """sum_c log(1 + small_c), small_c in [0, 1], by one logarithm for each 512."""
    found = 0.0
    for start in range(0, small.size, 512):
        product = 1.0
        for e in small[start : start + 512]:
            product *= 1.0 + e
        found += math.log(product)
    return found


@kernel
def positive_part(row):
    """sum_c max(0, row_c)."""
    s = 0.0
    nothing = row.dtype.type(0)
    for c in range(row.size):
        s += max(row[c], nothing)
    return s


@strict_kernel
def logistic_rows(scores, codes, value, gradient):
    """Each column a logistic problem with hard targets; u = -t is kept in the gradient's row."""
    rows, columns = scores.shape
    small = np.empty(columns, scores.dtype)
    one = scores.dtype.type(1)
    for i in range(rows):
        row = gradient[i]
        for c in range(columns):
            row[c] = scores[i, c]
        own = codes[i] if columns > 1 else 0
        own_sign = -one if columns > 1 or codes[i] == 1 else one
        row[own] *= own_sign
        for c in range(columns):
            small[c] = exp_down(-abs(row[c]))
        value[i] = positive_part(row) + log_product(small)
        for c in range(columns):
            row[c] = (one if row[c] >= 0 else small[c]) / (one + small[c])  # sigma(u)
        row[own] *= own_sign


@kernel
def smooth_gaps(row, width):
    """Gaps u -> slopes of max(0, u) rounded over `width` > 0, in place; gives the sum of the values."""
    s, w = 0.0, row.dtype.type(width)
    for c in range(row.size):
        value, row[c] = rounded_hinge(row[c], w)
        s += value
    return s


@strict_kernel
def smooth_hinge_rows(scores, codes, margin, width, value, gradient):
    """Each column a hinge max(0, margin - t), smoothed over `width` > 0."""
    rows, columns = scores.shape
    one = scores.dtype.type(1)
    for i in range(rows):
        row = gradient[i]
        for c in range(columns):
            row[c] = scores[i, c]
        own = codes[i] if columns > 1 else 0
        own_sign = -one if columns > 1 or codes[i] == 1 else one
        row[own] *= own_sign
        for c in range(columns):
            row[c] += scores.dtype.type(margin)
        value[i] = smooth_gaps(row, width)
        row[own] *= own_sign


@strict_kernel
def smooth_multi_hinge_rows(scores, codes, margin, width, value, gradient):
    """sum_{c != y} max(0, margin + f_c - f_y), each smoothed over `width` > 0."""
    rows, columns = scores.shape
    for i in range(rows):
        row = gradient[i]
        y = codes[i]
        shift = scores.dtype.type(margin) - scores[i, y]
        for c in range(columns):
            row[c] = scores[i, c]
        for c in range(columns):
            row[c] += shift
        row[y] = 0
        value[i] = smooth_gaps(row, width)
        row[y] = -total(row)


@strict_kernel
def probability_rows(kind, scores, codes, Y, hard, value, gradient):
    """||Y - p||^2 or ||Y - p||_1 with p = softmax(f); gradient p * (u - p.u), u the slope with respect to p."""
    rows, columns = scores.shape
    u = np.empty(columns)
    exponentials(scores, gradient)
    for i in range(rows):
        partition = total(gradient[i])
        loss = 0.0
        along = 0.0
        for c in range(columns):
            p = gradient[i, c] / partition
            y = Y[i, c] if not hard else (1.0 if codes[i] == c else 0.0)
            miss = p - y
            if kind == SOFTMAX_SQUARED:
                loss += miss * miss
                u[c] = 2.0 * miss
            else:
                loss += abs(miss)
                u[c] = 1.0 if miss > 0 else (-1.0 if miss < 0 else 0.0)
            along += p * u[c]
        value[i] = loss
        for c in range(columns):
            gradient[i, c] = gradient[i, c] / partition * (u[c] - along)


@strict_kernel
def one_hot_rows(scores, codes, Y, hard, value, gradient):
    """||Y - f||^2; gradient 2 (f - Y)."""
    rows, columns = scores.shape
    for i in range(rows):
        loss = 0.0
        for c in range(columns):
            y = Y[i, c] if not hard else (1.0 if codes[i] == c else 0.0)
            miss = scores[i, c] - y
            loss += miss * miss
            gradient[i, c] = 2.0 * miss
        value[i] = loss


@strict_kernel
def multi_hinge_rows(scores, codes, margin, width, value, gradient):
    """sum_{c != y} max(0, margin + f_c - f_y): Weston-Watkins for margin 1, the perceptron for margin 0."""
    rows, columns = scores.shape
    for i in range(rows):
        y = codes[i]
        own = scores[i, y]
        loss = 0.0
        pull = 0.0
        for c in range(columns):
            if c == y:
                continue
            gap = margin + scores[i, c] - own
            v, slope = hinge(gap, width)
            if gap == 0.0 and margin == 0.0 and width == 0.0:
                slope = 1.0  # the perceptron moves on a tie
            loss += v
            pull += slope
            gradient[i, c] = slope
        gradient[i, y] = -pull
        value[i] = loss


@strict_kernel
def loss_rows(kind, scores, codes, Y, hard, margin, width, value, gradient):
    """Any loss by its number."""
    if kind == SOFTMAX:
        softmax_rows(scores, codes, Y, hard, value, gradient)
    elif kind in (SOFTMAX_SQUARED, SOFTMAX_ABSOLUTE):
        probability_rows(kind, scores, codes, Y, hard, value, gradient)
    elif kind == ONE_HOT:
        one_hot_rows(scores, codes, Y, hard, value, gradient)
    elif kind == MULTI_HINGE and width > 0:
        smooth_multi_hinge_rows(scores, codes, margin, width, value, gradient)
    elif kind == MULTI_HINGE:
        multi_hinge_rows(scores, codes, margin, width, value, gradient)
    elif kind == LOGISTIC and hard:
        logistic_rows(scores, codes, value, gradient)
    elif (kind in (HINGE, PERCEPTRON)) and hard and width > 0:
        smooth_hinge_rows(scores, codes, margin, width, value, gradient)
    else:
        column_rows(kind, scores, codes, Y, hard, margin, width, value, gradient)


def each_loss(kind, scores, codes, Y, hard, margin, width, value, gradient):
    """`loss_rows` from Python: only the kernel of this loss is compiled."""
    if kind == SOFTMAX:
        softmax_rows(scores, codes, Y, hard, value, gradient)
    elif kind == LOGISTIC and hard:
        logistic_rows(scores, codes, value, gradient)
    elif kind == ONE_HOT:
        one_hot_rows(scores, codes, Y, hard, value, gradient)
    else:
        loss_rows(kind, scores, codes, Y, hard, margin, width, value, gradient)
