"""Coordinate descent on an L1-penalized quadratic model around v (D,), with a symmetric matrix M (D, D):

    q(u) = g.(u - v) + (u - v)' (M + diag(ridges)) (u - v) / 2 + sum_j lassos_j |u_j|

g is the gradient at v of the whole smooth part, including the ridge part. Along coordinate j, q is minimized by
soft-thresholding u_j - slope_j / h_j at lassos_j / h_j, where `slope` is the gradient of the smooth part at u and
h_j = M_jj + ridges_j is its curvature. This sets coefficients exactly to zero. Every h_j must be positive.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel


@kernel
def soft_threshold(z, t):
    """Return sign(z) max(|z| - t, 0) for a finite z."""
    if z > t:
        return z - t
    if z < -t:
        return z + t
    return z - z  # zero in the float type of z


@kernel
def minimize_model(M, g, v, ridges, lassos, max_sweeps, tol):
    """Return the minimizer u (D,) of q and the decrease q(v) - q(u).

    The active set consists of the nonzero coefficients. The first sweep visits all coordinates. Later sweeps visit the
    active set until it has converged, and then all coordinates again. The descent ends if the largest change
    h_j (change of u_j)^2 of a full sweep is at most `tol` times that of the first sweep, or after `max_sweeps` sweeps,
    of which the last is a full one.

    Parameters: M (D, D); g, v, ridges and lassos (D,), all in the float type of M.
    """
    D = len(M)
    u = v.copy()
    slope = g.copy()  # gradient of the smooth part of q at u
    active = np.ones(D, np.bool_)
    first_change = 0.0
    full_sweep_next = True
    for sweep in range(max_sweeps):
        full = full_sweep_next or sweep == max_sweeps - 1
        largest_change = 0.0
        for j in range(D):
            if not (full or active[j]):
                continue
            h = M[j, j] + ridges[j]
            new = soft_threshold(u[j] - slope[j] / h, lassos[j] / h)
            step = new - u[j]
            active[j] = new != 0
            if step != 0:
                u[j] = new
                largest_change = max(largest_change, step * step * h)
                for i in range(np.uint64(D)):  # a signed index would keep the compiler from vectorizing the loop
                    slope[i] += step * M[j, i]
                slope[j] += step * ridges[j]
        if sweep == 0:
            first_change = largest_change
        converged = largest_change <= tol * first_change
        if converged and full:
            break
        full_sweep_next = converged  # the active set has converged: a full sweep tells whether any zero changes
    return u, decrease(g, slope, u, v, lassos)


@kernel
def decrease(g, slope, u, v, lassos):
    """Return q(v) - q(u) from the gradients of the smooth part at v (g) and at u (slope).

    The smooth part is quadratic, so it falls by (g + slope).(v - u) / 2.
    """
    total = 0.0
    for j in range(len(u)):
        step = np.float64(u[j]) - np.float64(v[j])
        total -= (np.float64(g[j]) + np.float64(slope[j])) / 2 * step
        total += lassos[j] * (abs(np.float64(v[j])) - abs(np.float64(u[j])))
    return total
