"""Dual coordinate descent for the hinge: a (n,) in boxes [0, upper_i], w = sum_i a_i y_i x_i, all in float64.

    max_a  sum_i a_i - ||w||^2 / 2 - centre s - stiffness / 2 s^2,   s = sum_i a_i y_i

`stiffness` > 0 is how an unpenalised bias enters: the bias is centre + stiffness s, and moving the centre there again
and again (the method of multipliers) drives s to 0. Rows are a dense (n, d) array or the triple of a CSR array.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from kway.compute.kernels.jit import kernel

FAST = {"nogil": True, "fastmath": True, "error_model": "numpy"}
HUGE = 1e300  # stands for no limit


def row_dot(rows, i, w):
    """x_i . w."""


def row_add(rows, i, step, w):
    """w += step x_i."""


@overload(row_dot, jit_options=FAST)
def _row_dot(rows, i, w):
    if isinstance(rows, types.BaseTuple):

        def sparse(rows, i, w):
            data, indices, indptr = rows
            total = 0.0
            for k in range(indptr[i], indptr[i + 1]):
                total += data[k] * w[indices[k]]
            return total

        return sparse

    def dense(rows, i, w):
        x = rows[i]
        total = 0.0
        for j in range(np.uint64(len(w))):
            total += x[j] * w[j]
        return total

    return dense


@overload(row_add, jit_options=FAST)
def _row_add(rows, i, step, w):
    if isinstance(rows, types.BaseTuple):

        def sparse(rows, i, step, w):
            data, indices, indptr = rows
            for k in range(indptr[i], indptr[i + 1]):
                w[indices[k]] += step * data[k]

        return sparse

    def dense(rows, i, step, w):
        x = rows[i]
        for j in range(np.uint64(len(w))):
            w[j] += step * x[j]

    return dense


@kernel
def scores_of_class(rows, first, W, out):
    """out[k, i] = x_(first + i) . w_k: a row is read once for all classes."""
    for i in range(out.shape[1]):
        for k in range(len(W)):
            out[k, i] = row_dot(rows, first + i, W[k])


@kernel
def shuffle(order, state):
    """Fisher and Yates, with xorshift; state (1,) uint64, not zero."""
    x = state[0]
    for k in range(len(order) - 1, 0, -1):
        x ^= x << np.uint64(13)
        x ^= x >> np.uint64(7)
        x ^= x << np.uint64(17)
        other = np.int64(x % np.uint64(k + 1))
        order[k], order[other] = order[other], order[k]
    state[0] = x


@kernel
def combine(rows, v, out):
    """out = sum_i v_i x_i over the rows with v_i != 0."""
    out[:] = 0.0
    for i in range(len(v)):
        if v[i] != 0.0:
            row_add(rows, i, v[i], out)


@kernel
def dual_sweep(rows, y, square, upper, a, w, s, centre, stiffness, order, limits):
    """One visit to each row in `order`; returns s, how many rows stay active, and the range of projected gradients.

    order (m,): active rows in random order; those that rest at a bound beyond `limits` = (low, high), the range of
    the last sweep, are left out and the rest moved to its front.
    """
    low, high, kept = HUGE, -HUGE, 0
    for k in range(len(order)):
        i = order[k]
        g = y[i] * (row_dot(rows, i, w) + centre + stiffness * s) - 1.0
        old = a[i]
        if old <= 0.0:
            if g > limits[1]:
                continue
            slope = min(g, 0.0)
        elif old >= upper[i]:
            if g < limits[0]:
                continue
            slope = max(g, 0.0)
        else:
            slope = g
        order[kept] = i
        kept += 1
        low, high = min(low, slope), max(high, slope)
        if abs(slope) > 1e-12:
            a[i] = min(max(old - g / (square[i] + stiffness), 0.0), upper[i])
            step = (a[i] - old) * y[i]
            row_add(rows, i, step, w)
            s += step
    return s, kept, low, high


@kernel
def sweeps(rows, y, square, upper, a, w, s, centre, stiffness, order, state, most):
    """Up to `most` sweeps, until the range of projected gradients is a tenth of the first's.

    Returns s, the centre, how many sweeps and how many visits to rows there were, and the last range: one call, for
    a call a sweep from two threads costs more in handing over than in work.
    """
    active, visits, count = len(order), 0, 0
    first, spread = 0.0, 0.0
    limits = (-HUGE, HUGE)
    while count < most and active > 0:
        shuffle(order[:active], state)
        visits += active
        s, active, low, high = dual_sweep(rows, y, square, upper, a, w, s, centre, stiffness, order[:active], limits)
        count += 1
        centre += stiffness * s
        spread = max(0.0, high - low)
        if count == 1:
            first = spread
        if spread <= 0.1 * first:
            break
        limits = (low if low < 0 else -HUGE, high if high > 0 else HUGE)
    return s, centre, count, visits, spread
