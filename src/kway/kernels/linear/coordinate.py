"""Coordinate descent on an L1-penalised quadratic model around v (D,), with a symmetric matrix M (D, D).

    q(u) = g.(u - v) + (u - v)' (M + diag(ridges)) (u - v) / 2 + sum_j lassos_j |u_j|

A minimizer in coordinate j is soft thresholding, so zeros are exact.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel


@kernel
def soft_threshold(z, t):
    """sign(z) max(|z| - t, 0)."""
    if z > t:
        return z - t
    if z < -t:
        return z + t
    return z - z  # a zero of z's own type


@kernel
def minimise_model(M, g, v, ridges, lassos, sweeps, tol):
    """Minimiser u of q, from v; sweeps over all coordinates first and last, over the nonzeros between.

    Stops when the largest decrease of a sweep is under `tol` of the first sweep's. Returns u and q(v) - q(u).
    """
    D = len(M)
    u = v.copy()
    slope = g.copy()  # gradient of the smooth part of q at u
    active = np.ones(D, np.bool_)
    first = 0.0
    check = True
    for sweep in range(sweeps):
        full = check or sweep == sweeps - 1
        moved = 0.0
        for j in range(D):
            if not (full or active[j]):
                continue
            h = M[j, j] + ridges[j]
            new = soft_threshold(u[j] - slope[j] / h, lassos[j] / h)
            step = new - u[j]
            active[j] = new != 0
            if step != 0:
                u[j] = new
                moved = max(moved, step * step * h)
                for i in range(np.uint64(D)):
                    slope[i] += step * M[j, i]
                slope[j] += step * ridges[j]
        if sweep == 0:
            first = moved
        if moved <= tol * first:
            if full:
                break
            check = True  # the nonzeros have settled: do the zeros agree?
        else:
            check = False
    return u, decrease(g, slope, u, v, lassos)


@kernel
def decrease(g, slope, u, v, lassos):
    """q(v) - q(u) from the gradients g at v and `slope` at u: the quadratic part is (g + slope).(u - v) / 2."""
    total = 0.0
    for j in range(len(u)):
        step = np.float64(u[j]) - np.float64(v[j])
        total -= (np.float64(g[j]) + np.float64(slope[j])) / 2 * step
        total += lassos[j] * (abs(np.float64(v[j])) - abs(np.float64(u[j])))
    return total
