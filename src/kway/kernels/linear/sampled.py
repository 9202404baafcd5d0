"""Row-wise Adagrad steps on a few class rows of theta (K, d + 1), in place; weight decay is applied when a row is used.

    W_c <- W_c (1 + r_c ridge)^-(steps since)       r_c = eta / sqrt(a_c), with the a_c of those steps
    a_c <- a_c + mean_j g_cj^2,  W_c <- W_c - r_c g_c,  b_c <- b_c - r_c h_c        [g_c h_c] its gradient

a is `sq_grad_sums` (K,), one number per class; `last_step` (K,) is the step up to which the decay of a row is applied.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel


@kernel
def _decay(row, rate, ridge, steps):
    """Apply so many steps of decay to a class row (d + 1,) in place; the bias does not decay."""
    if ridge > 0 and steps > 0:
        shrink = row.dtype.type(np.exp(-steps * np.log1p(rate * ridge)))
        for j in range(row.size - 1):
            row[j] *= shrink


@kernel
def step_rows(theta, ids, gradient, sq_grad_sums, last_step, step, eta, ridge, bias):
    """Take one step of the rows `ids` (c,) along gradient (c, d + 1), whose last column belongs to the bias."""
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
    """Apply the decay that the rows `ids` (c,) have accumulated since their last step, up to `step`."""
    for i in range(ids.size):
        c = ids[i]
        _decay(theta[c], eta / np.sqrt(sq_grad_sums[c]), ridge, step - last_step[c])
        last_step[c] = step
