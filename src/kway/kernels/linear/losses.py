"""Losses over rows of scores: scores (m, R) and targets in, values (m,) and gradients (m, R) out.

Arguments of all kernels:

    kind           a number of loss_numbers.py
    codes (m,)     class of each row, used if `hard` is true
    Y (m, R)       soft targets, used if `hard` is false: a distribution over the classes for joint losses, and the
                   probability q of the positive label in each column for column losses
    margin, width  of a hinge: max(0, margin - t), with its kink rounded over `width` (0: not rounded)
    value (m,)     receives the losses
    gradient       (m, R) receives the slopes; it may be the array `scores`, because each row is read before it is
                   written

Column losses take each column as a binary problem with margin t = s f. The sign s is +1 in the column of the row's
class and -1 in the others; if R = 1 there are two classes, and s = +1 for class 1. With soft targets the loss is
q phi(f) + (1 - q) phi(-f).

Exponentials of float32 numbers are polynomials (relative error 2e-7), which the compiler vectorizes. Those of float64
numbers come from the math library.
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
    """Return phi(g) and phi'(g) of a hinge whose kink is rounded over a width w > 0.

        phi(g) = 0, g^2 / 2w, g - w/2     phi'(g) = 0, g / w, 1     for g <= 0, 0 < g < w, g >= w

    One formula with v = clip(g, 0, w) covers the three cases. All numbers keep the float type of the gap, so that the
    compiler vectorizes loops over rows.
    """
    v = min(max(gap, gap - gap), width)
    return v * (gap + (gap - v)) / (width + width), v / width


def exp_down(x):
    """Return e^x for x <= 0."""
    return math.exp(x)


@overload(exp_down, jit_options={"fastmath": True})
def _exp_down(x):
    if x == types.float32:
        return _exp_polynomial
    return lambda x: math.exp(x)


def _exp_polynomial(x):
    """Return e^x = 2^k e^r with |r| <= log(2) / 2; k becomes the exponent bits of the result.

    x is at least -80, because e^-80 is zero relative to the largest exponential of a row, which is 1.
    """
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
    """Return the maximum of a row. A kernel of its own, so that only this loop uses fast-math."""
    top = row[0]
    for c in range(row.size):
        top = max(top, row[c])
    return top


@kernel
def total(row):
    """Return the sum of a row, in any order."""
    s = row.dtype.type(0)
    for c in range(row.size):
        s += row[c]
    return s


@strict_kernel
def sigmoid_of(t):
    """Return 1 / (1 + exp(-t)) without overflow."""
    if t >= 0:
        return 1.0 / (1.0 + math.exp(-t))
    e = math.exp(t)
    return e / (1.0 + e)


@strict_kernel
def soft_plus(t):
    """Return log(1 + exp(t)) without overflow."""
    return max(t, 0.0) + math.log1p(math.exp(-abs(t)))


@strict_kernel
def margin_loss(kind, t, margin):
    """Return phi(t) and phi'(t) of a column loss whose kink is not rounded."""
    if kind == LOGISTIC:
        return soft_plus(-t), -sigmoid_of(-t)
    if kind in (HINGE, PERCEPTRON):
        gap = margin - t
        # the perceptron has not classified a row with t = 0 correctly: without a slope there, it would stay at W = 0
        active = gap > 0.0 or (kind == PERCEPTRON and t == 0.0)
        return max(gap, 0.0), -1.0 if active else 0.0
    if kind == SQUARED:
        return (1.0 - t) * (1.0 - t), -2.0 * (1.0 - t)
    residual = sigmoid_of(-t)  # 1 - p_y
    if kind == SIGMOID_SQUARED:  # ||Y - p||^2 of two classes
        return 2.0 * residual * residual, -4.0 * residual * residual * (1.0 - residual)
    return 2.0 * residual, -2.0 * residual * (1.0 - residual)  # ||Y - p||_1


@strict_kernel
def column_rows(kind, scores, codes, Y, hard, margin, value, gradient):
    """Compute a column loss whose kink is not rounded."""
    rows, columns = scores.shape
    for i in range(rows):
        loss = 0.0
        for c in range(columns):
            f = scores[i, c]
            if hard:
                sign = 1.0 if (codes[i] == 1 if columns == 1 else codes[i] == c) else -1.0
                v, slope = margin_loss(kind, sign * f, margin)
                loss += v
                gradient[i, c] = sign * slope
            else:
                q = Y[i, c]
                v, slope = margin_loss(kind, f, margin)
                u, down = margin_loss(kind, -f, margin)
                loss += q * v + (1.0 - q) * u
                gradient[i, c] = q * slope - (1.0 - q) * down
        value[i] = loss


@strict_kernel
def exponentials(scores, rows):
    """Set rows (m, R) to e^(scores - top) with the largest score `top` of each row.

    The block is processed as one array, because a row with few scores would leave most of a vector register empty.
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
    """Compute the cross-entropy -sum_k Y_k log p_k; its gradient is p - Y."""
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
        if hard:  # 1 - p_y is computed from the other classes, because the difference cancels if p_y is nearly 1
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
    """Return sum_c log(1 + small_c) for small_c in [0, 1]; one logarithm per 512 factors, at most 2^512."""
    log_sum = 0.0
    for start in range(0, small.size, 512):
        product = 1.0
        for e in small[start : start + 512]:
            product *= 1.0 + e
        log_sum += math.log(product)
    return log_sum


@kernel
def positive_part(row):
    """Return sum_c max(0, row_c)."""
    s = 0.0
    zero = row.dtype.type(0)
    for c in range(row.size):
        s += max(row[c], zero)
    return s


@strict_kernel
def logistic_rows(scores, codes, value, gradient):
    """Compute the logistic loss of each column for hard targets; u = -t is stored in the row of the gradient."""
    rows, columns = scores.shape
    small = np.empty(columns, scores.dtype)
    one = scores.dtype.type(1)
    for i in range(rows):
        row = gradient[i]
        # not a kernel of its own: views of rows would cost more than the loop if there are few columns
        for c in range(columns):
            row[c] = scores[i, c]
        own = codes[i] if columns > 1 else 0
        sign = -one if columns > 1 or codes[i] == 1 else one
        row[own] *= sign
        for c in range(columns):
            small[c] = exp_down(-abs(row[c]))
        value[i] = positive_part(row) + log_product(small)
        for c in range(columns):
            row[c] = (one if row[c] >= 0 else small[c]) / (one + small[c])  # sigma(u)
        row[own] *= sign


@kernel
def smooth_gaps(row, width):
    """Replace gaps by the slopes of their rounded hinges, width > 0; return the sum of the hinges."""
    s, w = 0.0, row.dtype.type(width)
    for c in range(row.size):
        value, row[c] = rounded_hinge(row[c], w)
        s += value
    return s


@strict_kernel
def smooth_hinge_rows(scores, codes, margin, width, value, gradient):
    """Compute the hinge max(0, margin - t) of each column, rounded over `width` > 0."""
    rows, columns = scores.shape
    one = scores.dtype.type(1)
    for i in range(rows):
        row = gradient[i]
        for c in range(columns):
            row[c] = scores[i, c]
        own = codes[i] if columns > 1 else 0
        sign = -one if columns > 1 or codes[i] == 1 else one
        row[own] *= sign
        for c in range(columns):
            row[c] += scores.dtype.type(margin)
        value[i] = smooth_gaps(row, width)
        row[own] *= sign


@strict_kernel
def smooth_multi_hinge_rows(scores, codes, margin, width, value, gradient):
    """Compute sum_{c != y} max(0, margin + f_c - f_y), each hinge rounded over `width` > 0."""
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
    """Compute ||Y - p||^2 or ||Y - p||_1 with p = softmax(f); the gradient is p (u - p.u) with the slope u in p."""
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
            residual = p - y
            if kind == SOFTMAX_SQUARED:
                loss += residual * residual
                u[c] = 2.0 * residual
            else:
                loss += abs(residual)
                u[c] = np.sign(residual)
            along += p * u[c]
        value[i] = loss
        for c in range(columns):
            gradient[i, c] = gradient[i, c] / partition * (u[c] - along)


@strict_kernel
def one_hot_rows(scores, codes, Y, hard, value, gradient):
    """Compute ||Y - f||^2; its gradient is 2 (f - Y)."""
    rows, columns = scores.shape
    for i in range(rows):
        loss = 0.0
        for c in range(columns):
            y = Y[i, c] if not hard else (1.0 if codes[i] == c else 0.0)
            residual = scores[i, c] - y
            loss += residual * residual
            gradient[i, c] = 2.0 * residual
        value[i] = loss


@strict_kernel
def multi_hinge_rows(scores, codes, margin, value, gradient):
    """Compute sum_{c != y} max(0, margin + f_c - f_y): Weston-Watkins for margin 1, the perceptron for margin 0."""
    rows, columns = scores.shape
    for i in range(rows):
        y = codes[i]
        own = scores[i, y]
        loss = 0.0
        n_active = 0.0
        for c in range(columns):
            if c == y:
                continue
            gap = margin + scores[i, c] - own
            slope = 1.0 if gap > 0.0 else 0.0
            if gap == 0.0 and margin == 0.0:
                slope = 1.0  # a tie is a mistake of the perceptron
            loss += max(gap, 0.0)
            n_active += slope
            gradient[i, c] = slope
        gradient[i, y] = -n_active
        value[i] = loss


@strict_kernel
def loss_rows(kind, scores, codes, Y, hard, margin, width, value, gradient):
    """Compute the loss of a number."""
    if kind == SOFTMAX:
        softmax_rows(scores, codes, Y, hard, value, gradient)
    elif kind in (SOFTMAX_SQUARED, SOFTMAX_ABSOLUTE):
        probability_rows(kind, scores, codes, Y, hard, value, gradient)
    elif kind == ONE_HOT:
        one_hot_rows(scores, codes, Y, hard, value, gradient)
    elif kind == MULTI_HINGE and width > 0:
        smooth_multi_hinge_rows(scores, codes, margin, width, value, gradient)
    elif kind == MULTI_HINGE:
        multi_hinge_rows(scores, codes, margin, value, gradient)
    elif kind == LOGISTIC and hard:
        logistic_rows(scores, codes, value, gradient)
    elif (kind in (HINGE, PERCEPTRON)) and hard and width > 0:
        smooth_hinge_rows(scores, codes, margin, width, value, gradient)
    else:
        column_rows(kind, scores, codes, Y, hard, margin, value, gradient)


def each_loss(kind, scores, codes, Y, hard, margin, width, value, gradient):
    """Call the kernel of a loss from Python. `loss_rows` would compile the kernels of all losses."""
    if kind == SOFTMAX:
        softmax_rows(scores, codes, Y, hard, value, gradient)
    elif kind == LOGISTIC and hard:
        logistic_rows(scores, codes, value, gradient)
    elif kind == ONE_HOT:
        one_hot_rows(scores, codes, Y, hard, value, gradient)
    else:
        loss_rows(kind, scores, codes, Y, hard, margin, width, value, gradient)
