"""Adagrad steps for a few classes of theta = [W b] (K, d + 1), in place, with one learning rate per class.

A step changes only the rows of some classes. The weight decay of the steps in between is applied when a row is next
used. For class c with gradient [g_c h_c]:

    r_c = eta / sqrt(a_c)                           the learning rate
    W_c <- W_c (1 + r_c ridge)^-m                   the decay of the m steps since the last one
    a_c <- a_c + mean_j g_cj^2                      the sum of squared gradients, which changes r_c
    W_c <- W_c - r_c g_c,  b_c <- b_c - r_c h_c     the step

`sq_grad_sums` (K,) is a. `last_step` (K,) is the step up to which the decay of a row was applied.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel


@kernel
def _decay(row, rate, ridge, steps):
    """Apply the decay of `steps` steps to the row (d + 1,) of a class; the bias does not decay."""
    if ridge > 0 and steps > 0:
        shrink = row.dtype.type(np.exp(-steps * np.log1p(rate * ridge)))
        for j in range(row.size - 1):
            row[j] *= shrink


@kernel
def step_rows(theta, ids, gradient, sq_grad_sums, last_step, step, eta, ridge, bias):
    """Take one step for the classes `ids` (c,) along gradient (c, d + 1), whose last column belongs to the bias."""
    d = theta.shape[1] - 1
    for i in range(ids.size):
        c = ids[i]
        row, slope = theta[c], gradient[i]
        _decay(row, eta / np.sqrt(sq_grad_sums[c]), ridge, step - last_step[c])
        last_step[c] = step
        total = row.dtype.type(0)
        for j in range(d):
            total += slope[j] * slope[j]
        sq_grad_sums[c] += total / d
        rate = row.dtype.type(eta / np.sqrt(sq_grad_sums[c]))
        for j in range(d):
            row[j] -= rate * slope[j]
        if bias:
            row[d] -= rate * slope[d]


@kernel
def decay_rows(theta, ids, sq_grad_sums, last_step, step, eta, ridge):
    """Apply the decay that the classes `ids` (c,) have accumulated since their last step, up to `step`."""
    for i in range(ids.size):
        c = ids[i]
        _decay(theta[c], eta / np.sqrt(sq_grad_sums[c]), ridge, step - last_step[c])
        last_step[c] = step
