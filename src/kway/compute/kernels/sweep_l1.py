"""A panel of queries against all rows under Manhattan distance; the plan of `sweep_l2`, which see.

For query i, with t its k-th distance so far (in units of the codes' space), a row can only be a neighbour if
    codes:  step sum |q - x|      <= t + reach
    fine:   sum |f(q) - f(x)|     <= t + slack     (no fine columns: straight to the rows)
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import touch_row
from kway.compute.kernels.refine import unlisted, unpack, visit_l1
from kway.compute.kernels.tile_l1 import scan_l1

AHEAD = 3  # rows fetched before they are needed
MOST = 1e12  # no distance in the codes' space comes near it
CEILING = 2.0**40  # larger than any sum of codes: tau = CEILING marks all rows


@kernel
def _sizes(fine, j, asked, i):
    """Sum of absolute differences of two rows."""
    total = np.float32(0)
    for z in range(np.uint64(0), np.uint64(fine.shape[1])):
        total += abs(asked[np.uint64(i), z] - fine[np.uint64(j), z])
    return total


@kernel
def _thresholds(best, members, reach, unit, step, tau):
    """tau (q,) int64 so that scan_l1 marks every row whose codes are within (t + reach) / step."""
    for r in range(members.size):
        t = min(best[members[r], best.shape[1] - 1] * unit, MOST)
        u = (t * (1 + 1e-9) + reach[r]) / step
        tau[r] = np.int64(min(u * (1 + 1e-12), CEILING)) + 1


@kernel
def _sift(fine, asked, i, limit, places, n):
    """Places whose fine distance is within the limit; how many."""
    kept, width = 0, 4 * fine.shape[1]
    if width == 0:
        return n
    for u in range(min(n, AHEAD)):
        touch_row(fine, places[u], 0, width)
    for u in range(n):
        if u + AHEAD < n:
            touch_row(fine, places[u + AHEAD], 0, width)
        if _sizes(fine, places[u], asked, i) <= limit:
            places[kept] = places[u]
            kept += 1
    return kept


@kernel
def sweep_l1(
    packed, fine, ids, rows, step, unit, members, codes, reach, slack, asked, queries,
    order, blocks, margin, best, found, fast,
):  # fmt: skip
    """Lists of queries `members` made exact; counts of rows (marked, visited) come back. Arguments as in sweep_l2."""
    marks = np.empty((codes.shape[0], blocks), np.uint64)
    places = np.empty(64 * blocks, np.int64)
    tau = np.empty(codes.shape[0], np.int64)
    for r in range(codes.shape[0]):
        tau[r] = -1  # nothing, for the queries that only fill the last tile
    marked = visited = 0
    for turn in range(order.size):
        chunk = order[turn]
        first, last = chunk * blocks, min(packed.shape[0], (chunk + 1) * blocks)
        _thresholds(best, members, reach, unit, step, tau)
        scan_l1(packed, first, last, codes, tau, marks, fast)
        for r in range(members.size):
            i = np.int64(members[r])
            n = unpack(marks, r, first, last, ids.size, places)
            marked += n
            if n:
                t = min(best[i, best.shape[1] - 1] * unit, MOST) + slack[i]
                n = _sift(fine, asked, i, np.float32(t * margin), places, n)
                n = unlisted(ids, found, i, places, n)
                visit_l1(rows, queries, i, places, n, best, found)
                visited += n
    return marked, visited
