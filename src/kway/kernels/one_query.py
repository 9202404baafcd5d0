"""One query at a time against landmark cells, from its row to its neighbours: projected, its cells chosen and searched.

    short, long, norm      `projection.py`'s of the query
    keys, cells (p,)       of the nearest landmarks, nearest first
    distances, ids (k,)    the heap that the rows of these cells are offered to (cell_scan.offer_cell)

What a batch shares by matrix products is small here, and what surrounds it counts: numpy and BLAS around some small
kernels took twice as long as the work itself, and a second thread that BLAS wakes for one row is waited for.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.cells import (
    CellQueries,
    cell_room,
    centre_rows,
    fill_sketches,
    holds_nothing,
    offer_cell,
    row_products,
    widest_chord,
)
from kway.kernels.distances import MANHATTAN, manhattan_tile
from kway.kernels.jit import kernel
from kway.kernels.topk import EMPTY, NOBODY, push, settle


@kernel
def turn_row(z, basis, p):
    """p (M,) = z (d,) times the first M columns of basis (d, any), four rows at a time."""
    p[:] = np.float32(0)
    width, full = np.uint64(len(p)), len(z) - len(z) % 4
    for j in range(0, full, 4):
        a, b, c, e = basis[j], basis[j + 1], basis[j + 2], basis[j + 3]
        za, zb, zc, ze = z[j], z[j + 1], z[j + 2], z[j + 3]
        for t in range(width):
            p[t] += za * a[t] + zb * b[t] + zc * c[t] + ze * e[t]
    for j in range(full, len(z)):
        for t in range(width):
            p[t] += z[j] * basis[j, t]


@kernel
def turn_some(row, places, basis, middle, p):
    """The same of row - mean, whose other columns than `places` are 0 in row; middle (M,) is mean turned.

    Sums are float64: far from the origin they are much larger than what is left of them.
    """
    width, full = np.uint64(len(p)), len(places) - len(places) % 4
    sums = -middle[: len(p)]
    for i in range(0, full, 4):
        ja, jb, jc, je = places[i], places[i + 1], places[i + 2], places[i + 3]
        a, b, c, e = basis[ja], basis[jb], basis[jc], basis[je]
        xa, xb, xc, xe = row[ja], row[jb], row[jc], row[je]
        for t in range(width):
            sums[t] += xa * np.float64(a[t]) + xb * np.float64(b[t]) + xc * np.float64(c[t]) + xe * np.float64(e[t])
    for j in places[full:]:
        for t in range(width):
            sums[t] += row[j] * basis[j, t]
    p[:] = sums


@kernel
def not_zero(row, places):
    """The columns of row (d,) that are not 0, into places; how many."""
    count = 0
    for j in range(len(row)):
        places[count] = j
        count += row[j] != 0.0
    return count


@kernel
def find_cells(rows, finder, asked, keys, cells):
    """Projections of rows (q, d) into asked (CellQueries), and of each the nearest landmarks into its heap.

    Of the basis (d, M) or (d, 0) of finder (CellFinder) M or m columns are read.
    """
    basis, landmarks, marks = finder.basis, finder.landmarks, finder.marks
    short, long, norms = asked.short, asked.long, asked.norms
    m, turned = landmarks.shape[1], basis.shape[1] > 0
    z, line = np.empty((1, rows.shape[1]), np.float32), np.empty(len(marks), np.float32)
    p = np.empty((1, m + max(0, long.shape[1] - 1)), np.float32)
    places = np.empty(rows.shape[1], np.int64)
    for i in range(len(rows)):
        one = slice(i, i + 1)
        centre_rows(rows[one], finder.mean, z, norms[one])  # squares, so far
        some = not_zero(rows[i], places) if turned else 0
        if not turned:
            p[:] = z
        elif 2 * some < len(places):  # four fifths of a digit's pixels are 0
            turn_some(rows[i], places[:some], basis, finder.middle, p[0])
        else:
            turn_row(z[0], basis, p[0])
        fill_sketches(p, norms[one], short[one], long[one])
        norms[i] = np.sqrt(norms[i])
        row_products(landmarks, p[0, :m], line)
        for j in range(len(marks)):
            push(keys[i], cells[i], np.float64(marks[j] - line[j]), j)
    settle(keys, cells)


@kernel
def search_alone(code, probes, placed, finder, tiled, lost, queries, table, radii, nearest, largest, distances, ids):
    """Each query against the rows of its nearest cells, nearest first, except those that hold nothing near enough.

    placed (q, d'), queries (q, d): in the distance's space and as they are; tiled (q, d), as the scan reads them under
    manhattan, and lost (q,), what that hides of them. radii (c,), or (0,) if nothing is known of cells; finder:
    CellFinder, table: CellRows. Returns the number of rows measured in full.
    """
    q, m, landmarks, offsets = len(queries), finder.landmarks.shape[1], finder.landmarks, table.offsets
    q_short, q_long = np.empty((q, m + 1), np.float32), np.empty((q, table.long.shape[1]), np.float32)
    asked = CellQueries(q_short, q_long, queries, np.empty(q))
    keys, cells = np.full((q, probes), EMPTY), np.full((q, probes), NOBODY)
    find_cells(placed, finder, asked, keys, cells)
    count, tile = 0, np.empty((1, largest), np.float32)
    room = cell_room(distances.shape[1], table.codes.shape[1], largest)
    for i in range(q):
        square, blur = 0.0, 1e-5 * (asked.norms[i] + table.reach) ** 2
        for t in range(m):
            square += np.float64(q_short[i, t]) * q_short[i, t]
        for g in range(probes):
            cell, worst = cells[i, g], distances[i, 0]
            if cell == NOBODY or offsets[cell] == offsets[cell + 1]:
                continue
            if len(radii) > 0 and worst < EMPTY and holds_nothing(
                keys[i, g], keys[i, 0], square, np.sqrt(widest_chord(code, worst)), blur, landmarks[cell],
                landmarks[cells[i, 0]], radii[cell], nearest,
            ):  # fmt: skip
                continue
            lo, hi = offsets[cell], offsets[cell + 1]
            if code == MANHATTAN:
                asked.norms[i] = lost[i]
                manhattan_tile(tiled[i : i + 1], table.short[lo:hi], tile[:, : hi - lo])
            else:
                row_products(table.short[lo:hi], q_short[i], tile[0])
            count += offer_cell(code, tile[0, : hi - lo], lo, i, asked, table, room, distances[i], ids[i])
    return count
