"""A panel of queries against all rows: scan the codes, sift the survivors, visit the rest.

One plan for both distances: `bias`, which only Euclidean codes have, says which; where it is None (Manhattan), numba
leaves the other branch out when it compiles.

Rows are in cell order. Chunks of blocks are taken nearest first, and the thresholds renewed before each chunk, so most
chunks meet a k-th distance that is nearly final. For query i, with t its k-th distance so far (in units of the codes'
space) and |.| the norm of the distance, a row can only be a neighbour if
    codes:  step |q - x|   <= t + reach     reach: what rounding to codes and to float32 can hide, of both sides
    fine:   |f(q) - f(x)|  <= t + slack     f: whole rows as bytes, or finer sums (none: straight to the rows)
Rows are dropped only where the bound is strictly greater, so a row that ties with the k-th is visited.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.certified.byte_rows import byte_squares
from kway.compute.kernels.certified.refine import unlisted, unpack_marks, visit
from kway.compute.kernels.certified.tiles import scan_codes
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import touch_row

AHEAD = 4  # rows fetched before they are needed
_MOST = 1e12  # no distance in the codes' space comes near it, and its square fits float32
FLOOR = 2**30  # larger than any sum of codes: tau = -FLOOR marks all rows, tau = FLOOR none


@kernel
def _kth(best, i, unit):
    """The k-th distance of query i so far, in units of the codes' space."""
    return min(best[i, best.shape[1] - 1] * unit, _MOST)


@kernel
def _gaps(fine, j, asked, i, bias):
    """Sum of absolute differences of two rows, or of squared ones of bytes."""
    if bias is None:
        total = np.float32(0)
        for z in range(np.uint64(fine.shape[1])):  # a signed start would stop vectorisation (12 times slower)
            total += abs(asked[np.uint64(i), z] - fine[np.uint64(j), z])
        return total
    return byte_squares(fine, j, asked, i)


@kernel
def _thresholds(best, members, base, reach, unit, step, bias, tau):
    """tau (q,) so that the scan marks every row whose codes are within (t + reach) / step."""
    for r in range(members.size):
        u = (_kth(best, members[r], unit) * (1 + 1e-9) + reach[r]) / step
        if bias is None:
            tau[r] = np.int32(-np.floor(min(u * (1 + 1e-12), FLOOR)) - 1)
        else:
            tau[r] = np.int32(max(np.floor(base[r] - u * u * (0.5 + 1e-12)) - 1, -FLOOR))


@kernel
def _sift(fine, asked, i, limit, bias, places, n):
    """Places whose fine sum is within the limit; how many."""
    width, kept = fine.strides[0], 0
    if fine.shape[1] == 0:
        return n
    for u in range(min(n, AHEAD)):
        touch_row(fine, places[u], 0, width)
    for u in range(n):
        if u + AHEAD < n:
            touch_row(fine, places[u + AHEAD], 0, width)
        if _gaps(fine, places[u], asked, i, bias) <= limit:
            places[kept] = places[u]
            kept += 1
    return kept


@kernel
def sweep_rows(
    packed, bias, fine, ids, rows, step, unit, members, codes, base, reach, tau, slack, asked, queries,
    order, blocks, margin, best, found, way,
):  # fmt: skip
    """Lists of queries `members` made exact; counts of rows (marked, visited) come back.

    packed, bias, fine (n, w), ids (n,), rows (N, d), step, unit: the index; see the module
    members, base, reach (m,), codes (m padded, words): this panel; slack (q,), asked (q, w), queries (q, d): by query
    tau (m padded,): room for the thresholds; those of queries that only fill the last tile mark nothing and stay
    order: chunks of `blocks` blocks, nearest first; margin: from a bound, squared under Euclidean, to a fine sum
    """
    marks = np.empty((codes.shape[0], blocks), np.uint64)
    places = np.empty(64 * blocks, np.int64)
    marked = visited = 0
    for turn in range(order.size):
        chunk = order[turn]
        first, last = chunk * blocks, min(packed.shape[0], (chunk + 1) * blocks)
        _thresholds(best, members, base, reach, unit, step, bias, tau)
        scan_codes(packed, bias, first, last, codes, tau, marks, way)
        for r in range(members.size):
            i = np.int64(members[r])
            n = unpack_marks(marks, r, first, last, ids.size, places)
            marked += n
            if n:
                t = _kth(best, i, unit) + slack[i]
                limit = t * margin if bias is None else t * t * margin
                n = _sift(fine, asked, i, limit, bias, places, n)
                n = unlisted(ids, found, i, places, n)
                visit(rows, queries, i, places, n, bias is not None, best, found)
                visited += n
    return marked, visited
