"""Distances of pairs, exact in float64, and tiles of the two that are no matrix product.

`distance(code, q, x)`: q (d,) float64, x (d,) float32 or float64 -> float64. Equal rows give equal values (the order
of summation depends on d alone; gap_sums.py has that of gaps) and identical rows give 0, for cosine too.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.gap_sums import absolute_gaps, squared_gaps
from kway.kernels.jit import kernel

# KEY: the scanned key is the distance itself, nothing is measured again
EUCLIDEAN, MANHATTAN, COSINE, DOT, HAMMING, HAVERSINE, KEY = range(7)


@kernel
def euclidean(q, x):
    """||q - x||_2."""
    return np.sqrt(squared_gaps(q, x))


@kernel
def manhattan(q, x):
    """||q - x||_1."""
    return absolute_gaps(q, x)


@kernel
def cosine(q, x):
    """1 - q.x / (||q|| ||x||), 1 where either is zero."""
    qx = 0.0
    qq = 0.0
    xx = 0.0
    for j in range(len(q)):
        value = np.float64(x[j])
        qx += q[j] * value
        qq += q[j] * q[j]
        xx += value * value
    if qq == 0.0 or xx == 0.0:
        return 1.0
    both = qq * xx
    # sqrt(a * a) is a exactly, which makes identical rows exactly 0; sqrt(a) * sqrt(a) is not
    norm = np.sqrt(both) if 1e-290 < both < 1e290 else np.sqrt(qq) * np.sqrt(xx)
    return min(2.0, max(0.0, 1.0 - qx / norm))


@kernel
def dot(q, x):
    """-q.x."""
    total = 0.0
    for j in range(len(q)):
        total += q[j] * np.float64(x[j])
    return -total


@kernel
def hamming(q, x):
    """Share of coordinates that differ."""
    differ = 0
    for j in range(len(q)):
        differ += q[j] != np.float64(x[j])
    return differ / len(q)


@kernel
def haversine(q, x):
    """Angle between two places (latitude, longitude) in radians."""
    north = np.sin(0.5 * (q[0] - x[0]))
    east = np.sin(0.5 * (q[1] - x[1]))
    return 2.0 * np.arcsin(min(1.0, np.sqrt(north * north + np.cos(q[0]) * np.cos(x[0]) * east * east)))


@kernel
def distance(code, q, x):
    """The distance that the code stands for."""
    if code == EUCLIDEAN:
        return euclidean(q, x)
    if code == MANHATTAN:
        return manhattan(q, x)
    if code == COSINE:
        return cosine(q, x)
    if code == DOT:
        return dot(q, x)
    if code == HAMMING:
        return hamming(q, x)
    return haversine(q, x)


@kernel
def manhattan_tile(queries, rows, out):
    """out (m, c) = ||q_i - x_j||_1, four rows at a time so that each query value is loaded once for four sums."""
    m, d = queries.shape
    c = len(rows)
    full = c - c % 4
    for start in range(0, full, 64):  # 64 rows of 784 floats stay in the second cache while all queries pass
        for i in range(m):
            q = queries[i]
            for j in range(start, min(full, start + 64), 4):
                a, b, e, f = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
                sa = out.dtype.type(0)
                sb = out.dtype.type(0)
                se = out.dtype.type(0)
                sf = out.dtype.type(0)
                for t in range(d):
                    sa += abs(q[t] - a[t])
                    sb += abs(q[t] - b[t])
                    se += abs(q[t] - e[t])
                    sf += abs(q[t] - f[t])
                out[i, j] = sa
                out[i, j + 1] = sb
                out[i, j + 2] = se
                out[i, j + 3] = sf
    for i in range(m):
        for j in range(full, c):
            total = out.dtype.type(0)
            for t in range(d):
                total += abs(queries[i, t] - rows[j, t])
            out[i, j] = total


@kernel
def hamming_tile(queries, rows, out):
    """out (m, c) = number of coordinates in which q_i and x_j differ."""
    m, d = queries.shape
    for start in range(0, len(rows), 64):
        for i in range(m):
            q = queries[i]
            for j in range(start, min(len(rows), start + 64)):
                x = rows[j]
                differ = 0
                for t in range(d):
                    differ += q[t] != x[t]
                out[i, j] = differ


@kernel
def refine(code, queries, rows, limits_q, limits_x, out):
    """Measure again where out (m, c) <= limits_q[i] + limits_x[j], that is where cancellation ate the digits."""
    for i in range(len(queries)):
        for j in range(len(rows)):
            if out[i, j] <= limits_q[i] + limits_x[j]:
                out[i, j] = distance(code, queries[i], rows[j])
