"""Landmark cells: projections of rows, the nearest landmark of each, and cells that hold nothing near a query.

What the cells of a query hold is searched in cell_scan.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.distances import COSINE, HAVERSINE
from kway.compute.kernels.jit import kernel

UNSURE = 1e-12  # of 1 - cos in float64, at up to some thousand columns


@kernel
def centre_rows(rows, mean, z, squares):
    """z (n, d) float32 = rows - mean, squares (n,) of their lengths: one pass, where numpy would make three."""
    for i in range(len(rows)):
        total = 0.0
        for j in range(rows.shape[1]):
            value = np.float64(rows[i, j]) - mean[j]
            z[i, j] = np.float32(value)
            total += value * value
        squares[i] = total


@kernel
def fill_sketches(p, squares, short, long):
    """short (n, m + 1) and long (n, M - m + 1 or 0): coordinates of p (n, M), each time the norm of the rest too."""
    m = short.shape[1] - 1
    for i in range(len(p)):
        total = 0.0
        for j in range(m):
            short[i, j] = p[i, j]
            total += np.float64(p[i, j]) * p[i, j]
        short[i, m] = np.sqrt(max(squares[i] - total, 0.0))
        if long.shape[1] > 0:
            for j in range(m, p.shape[1]):
                long[i, j - m] = p[i, j]
                total += np.float64(p[i, j]) * p[i, j]
            long[i, p.shape[1] - m] = np.sqrt(max(squares[i] - total, 0.0))


@kernel
def cell_radii(short, landmarks, offsets):
    """Largest distance (c,) of a row in a cell to its landmark (m,), both by the coordinates short (n, m + 1) holds."""
    c, m = landmarks.shape
    radii = np.zeros(c, np.float32)
    for g in range(c):
        for i in range(offsets[g], offsets[g + 1]):
            total = np.float32(0)
            for j in range(m):
                gap = short[i, j] - landmarks[g, j]
                total += gap * gap
            radii[g] = max(radii[g], np.sqrt(total))
    return radii


@kernel
def holds_nothing(key, origin_key, square, gap, blur, mark, origin, radius, nearest):
    """Whether none of the rows of the cell of landmark m (mark) lies within gap of a query.

    Two proofs for rows x of that cell, o (origin) being any other landmark, here the query's nearest:

        ball       |q - x| >= |q - m| - radius                              radius: the largest |x - m| of the cell
        bisector   |q - x| >= (|q - m|^2 - |q - o|^2) / (2 |m - o|)         where no row is nearer to o than to m

    key and origin_key are |m|^2 / 2 - q.m of both, square |q|^2, blur the rounding of squares; nearest: whether rows
    are in the cell of their nearest landmark. Of 250,000 rows in 2,000 clusters balls leave 61 % to be looked at, both
    16 %; of MNIST's 91 and 77 %.
    """
    far = gap + radius
    if 2.0 * key + square > 1.0001 * far * far + blur:
        return True
    ahead, total = key - origin_key - blur, np.float32(0)
    if ahead <= 0.0 or not nearest:
        return False
    for z in range(len(mark)):
        apart = mark[z] - origin[z]
        total += apart * apart
    return ahead * ahead > 1.0001 * gap * gap * total


@kernel
def pass_over(cells, keys, origins, origin_keys, squares, gaps, blurs, landmarks, radii, nearest):
    """Set cells (q, p) to the number of cells where none of a cell's rows lies within gaps (q,) of its query.

    keys (q, p) are those of the cells, origins (q,) the nearest cells and origin_keys (q,) their keys.
    """
    for i in range(len(cells)):
        for j in range(cells.shape[1]):
            cell = cells[i, j]
            if cell < len(radii) and holds_nothing(  # else nobody
                keys[i, j], origin_keys[i], squares[i], gaps[i], blurs[i], landmarks[cell], landmarks[origins[i]],
                radii[cell], nearest,
            ):  # fmt: skip
                cells[i, j] = len(radii)


@kernel
def chord(code, worst):
    """Squared Euclidean distance, between the rows as they are sketched, of a distance under the metric."""
    if code == COSINE:  # unit rows
        return 2.0 * worst
    if code == HAVERSINE:  # points on the unit sphere
        return 4.0 * np.sin(0.5 * min(worst, np.pi)) ** 2
    return worst * worst


@kernel
def widest_chord(code, worst):
    """The chord of a distance that may have been rounded: 1 - cos loses digits where rows nearly coincide."""
    return chord(code, worst + UNSURE if code == COSINE else worst)


@kernel
def nearest_centre(products, bits, half, size, near, gaps):
    """near (n,) the centre c of least gap size_i + half_c - products_ic: half their squared distance, into gaps (n,).

    bits (n, c) int32 is the memory of products (n, c) float32, which is overwritten: numbers that are not negative are
    in the order of their bits, and a minimum of whole numbers becomes vectors, where one of floats does not (4.5 G
    against 1.6 G keys a second and thread). Below zero there is only rounding.
    """
    c, strip = np.uint64(len(half)), np.uint64(128)
    for i in range(len(near)):
        line, whole = products[i], bits[i]
        for j in range(c):
            line[j] = (size[i] + half[j]) - line[j]
        near[i], gaps[i] = 0, line[0]  # also where no key is a number
        best, where, start = np.int32(2**31 - 1), np.uint64(0), np.uint64(0)
        while start < c:
            stop = min(c, start + strip)
            low = np.int32(2**31 - 1)
            for j in range(start, stop):
                low = min(low, whole[j])
            if low < best:
                best, where = low, start
            start = stop
        for j in range(where, c):
            if whole[j] == best:
                near[i], gaps[i] = j, line[j]
                break
