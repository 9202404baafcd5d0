"""A panel of queries against all rows: scan the codes, sift the survivors, visit the rest.

One plan for both distances: `bias`, which only Euclidean codes have, says which; where it is None (Manhattan), numba
leaves the other branch out when it compiles.

Rows are in cell order. Chunks of blocks are taken nearest first, and the thresholds renewed before each chunk, so most
chunks meet a k-th distance that is nearly final. For query i, with t its k-th distance so far (in units of the codes'
space) and |.| the norm of the distance, a row can only be a neighbour if
    codes:  step |q - x|   <= t + reach     reach: what rounding to codes and to float32 can hide, of both sides
    fine:   |f(q) - f(x)|  <= t + slack     slack: the float32 part of it (no fine columns: straight to the rows)
Rows are dropped only where the bound is strictly greater, so a row that ties with the k-th is visited.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import touch_row
from kway.compute.kernels.refine import unlisted, unpack_marks, visit
from kway.compute.kernels.tile_l1 import scan_l1
from kway.compute.kernels.tile_l2 import scan_l2

AHEAD = 4  # rows fetched before they are needed
_MOST = 1e12  # no distance in the codes' space comes near it, and its square fits float32
FLOOR = 2**30  # larger than any Euclidean sum of codes: tau = -FLOOR marks all rows, tau = FLOOR none
CEILING = 2.0**40  # larger than any Manhattan sum of codes: tau = CEILING marks all rows, tau = -1 none


@kernel
def _kth(best, i, unit, bias):
    """The k-th distance of query i so far, in units of the codes' space."""
    value = best[i, best.shape[1] - 1]
    if bias is None:
        return min(value * unit, _MOST)
    return min(np.sqrt(value) * unit, _MOST)


@kernel
def _gaps(fine, j, asked, i, first, last, bias):
    """Sum of absolute or squared differences of two rows, columns first..last."""
    total = np.float32(0)
    for z in range(np.uint64(first), np.uint64(last)):  # a signed start would stop vectorisation (12 times slower)
        gap = asked[np.uint64(i), z] - fine[np.uint64(j), z]
        if bias is None:
            total += abs(gap)
        else:
            total += gap * gap
    return total


@kernel
def _thresholds(best, members, base, reach, unit, step, bias, tau):
    """tau (q,) so that the scan marks every row whose codes are within (t + reach) / step."""
    for r in range(members.size):
        u = (_kth(best, members[r], unit, bias) * (1 + 1e-9) + reach[r]) / step
        if bias is None:
            tau[r] = np.int64(min(u * (1 + 1e-12), CEILING)) + 1
        else:
            tau[r] = np.int32(max(np.floor(base[r] - u * u * (0.5 + 1e-12)) - 1, -FLOOR))


@kernel
def _sift(fine, asked, i, near, limit, bias, places, part, n):
    """Places whose fine sum, over the first `near` columns and then over all, is within the limit; how many.

    Where there is a second step, column near - 1 holds the norm of what the columns after it stand for."""
    wide, few, kept = fine.shape[1], 0, 0
    if wide == 0:
        return n
    for u in range(min(n, AHEAD)):
        touch_row(fine, places[u], 0, 4 * near)
    for u in range(n):
        if u + AHEAD < n:
            touch_row(fine, places[u + AHEAD], 0, 4 * near)
        total = _gaps(fine, places[u], asked, i, 0, near, bias)
        if total <= limit:
            rest = fine[places[u], near - 1] - asked[i, near - 1]
            places[few] = places[u]
            part[few] = total - rest * rest
            few += 1
    if wide == near:
        return few
    for u in range(few):
        if u + 1 < few:
            touch_row(fine, places[u + 1], 4 * near, 4 * wide)
        if part[u] + _gaps(fine, places[u], asked, i, near, wide, bias) <= limit:
            places[kept] = places[u]
            kept += 1
    return kept


@kernel
def sweep(
    packed, bias, fine, ids, rows, near, step, unit, members, codes, base, reach, tau, slack, asked, queries,
    order, blocks, margin, best, found, way,
):  # fmt: skip
    """Lists of queries `members` made exact; counts of rows (marked, visited) come back.

    packed, bias, fine (n, w), ids (n,), rows (N, d), near, step, unit: the index; see the module
    members, base, reach (m,), codes (m padded, words): this panel; slack (q,), asked (q, w), queries (q, d): by query
    tau (m padded,): room for the thresholds; those of queries that only fill the last tile mark nothing and stay
    order: chunks of `blocks` blocks, nearest first; margin: 1 + the relative rounding of a fine sum
    """
    marks = np.empty((codes.shape[0], blocks), np.uint64)
    places, part = np.empty(64 * blocks, np.int64), np.empty(64 * blocks, np.float32)
    marked = visited = 0
    for turn in range(order.size):
        chunk = order[turn]
        first, last = chunk * blocks, min(packed.shape[0], (chunk + 1) * blocks)
        _thresholds(best, members, base, reach, unit, step, bias, tau)
        if bias is None:
            scan_l1(packed, first, last, codes, tau, marks, way)
        else:
            scan_l2(packed, bias, first, last, codes, tau, marks, way)
        for r in range(members.size):
            i = np.int64(members[r])
            n = unpack_marks(marks, r, first, last, ids.size, places)
            marked += n
            if n:
                t = _kth(best, i, unit, bias) + slack[i]
                limit = t * margin if bias is None else t * t * margin
                n = _sift(fine, asked, i, near, np.float32(limit), bias, places, part, n)
                n = unlisted(ids, found, i, places, n)
                visit(rows, queries, i, places, n, bias is not None, best, found)
                visited += n
    return marked, visited
