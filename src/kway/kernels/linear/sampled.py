"""Steps on a few class rows: theta (K, d + 1) in place, row-wise Adagrad, weight decay made up for when a row is met.

    W_c <- W_c (1 + r_c ridge)^-(steps since)       r_c = eta / sqrt(a_c), with the a_c of those steps
    a_c <- a_c + mean_j g_cj^2,  W_c <- W_c - r_c g_c,  b_c <- b_c - r_c h_c        [g_c h_c] its gradient

a (K,) is one number a class, `met` (K,) the step up to which a row's decay is applied.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel


@kernel
def _decay(row, rate, ridge, steps):
    """A class row (d + 1,) after so many steps of decay; the bias has none."""
    if ridge > 0 and steps > 0:
        shrink = row.dtype.type(np.exp(-steps * np.log1p(rate * ridge)))
        for j in range(row.size - 1):
            row[j] *= shrink


@kernel
def step_rows(theta, ids, gradient, sizes, met, step, eta, ridge, bias):
    """One step of the rows `ids` (c,) along gradient (c, d + 1), whose last column is that of the bias."""
    d = theta.shape[1] - 1
    for i in range(ids.size):
        c = ids[i]
        row, slope = theta[c], gradient[i]
        _decay(row, eta / np.sqrt(sizes[c]), ridge, step - met[c])
        met[c] = step
        total = row.dtype.type(0)
        for j in range(d):
            total += slope[j] * slope[j]
        sizes[c] += total / d
        rate = row.dtype.type(eta / np.sqrt(sizes[c]))
        for j in range(d):
            row[j] -= rate * slope[j]
        if bias:
            row[d] -= rate * slope[d]


@kernel
def decay_rows(theta, ids, sizes, met, step, eta, ridge):
    """All decay that the rows `ids` (c,) are due up to `step`."""
    for i in range(ids.size):
        c = ids[i]
        _decay(theta[c], eta / np.sqrt(sizes[c]), ridge, step - met[c])
        met[c] = step
