"""A panel of queries against all rows: a first radius, a scan of codes, survivors sifted, exact distances of the rest.

warm          rows of the nearest cells ranked by their codes, full distances of the best few offered to the lists
sweep_rows    all codes scanned, survivors sifted by their fine sketch, the few that are left visited
visit, insert exact sums of the stored values (distances.py), merged into the list of a query, ordered by (value, id)

One plan for both distances: `bias`, which only Euclidean codes have, says which; if it is None (Manhattan), numba
leaves the other branch out when it compiles.

Rows are in cell order. Chunks of blocks are taken nearest first, and the thresholds renewed before each chunk, so most
chunks meet a k-th distance that is nearly final. For query i, with t its k-th distance so far (in units of the codes'
space) and |.| the norm of the distance, a row can only be a neighbor if
    codes:  step |q - x|   <= t + reach     reach: what rounding to codes and to float32 can hide, of both sides
    fine:   |f(q) - f(x)|  <= t + slack     f: whole rows as bytes, or finer sums (none: straight to the rows)
Rows are dropped only if the bound is strictly greater, so a row that ties with the k-th is visited.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kway.kernels.certified.sketch import byte_squares
from kway.kernels.certified.tiles import scan_codes, weigh_codes
from kway.kernels.distances import absolute_gaps, squared_gaps
from kway.kernels.jit import BIG, kernel
from kway.kernels.lanes import ctz, touch_row

FARTHEST = 1e200  # distance of a place in the list that nobody has taken yet; units of 2^250 keep it finite


@kernel
def listed(found, i, j):
    """Whether row j is in the list of query i."""
    there = False
    for p in range(found.shape[1]):  # without an early end: this becomes vectors
        there |= found[i, p] == j
    return there


@kernel
def insert(best, found, i, value, j):
    """Take row j, which is not in the list, if it belongs among the k smallest by (value, j)."""
    p = best.shape[1] - 1
    if value > best[i, p] or (value == best[i, p] and j > found[i, p]):
        return
    while p > 0 and (best[i, p - 1] > value or (best[i, p - 1] == value and found[i, p - 1] > j)):
        best[i, p] = best[i, p - 1]
        found[i, p] = found[i, p - 1]
        p -= 1
    best[i, p] = value
    found[i, p] = j


@kernel
def visit(rows, queries, i, near, n, squared, best, found):
    """Distances (squared: Euclidean, else Manhattan) of the first n rows of `near`, none listed yet, offered to i.

    Roots, not squares: two of these may have one root, and rows at the same distance go by their ids.
    """
    width = rows.shape[1] * rows.itemsize
    for u in range(n):
        if u + 1 < n:
            touch_row(rows, near[u + 1], 0, width)
        query, row = queries[i], rows[near[u]]
        value = np.sqrt(squared_gaps(query, row)) if squared else absolute_gaps(query, row)
        insert(best, found, i, value, near[u])


@kernel
def unpack_marks(marks, r, first, last, n, places):
    """Numbers of the rows marked for query r in blocks first..last, below n, into `places`; how many."""
    count = 0
    for b in range(last - first):
        word = marks[r, b]
        while word != 0:
            places[count] = (first + b) * 64 + ctz(word)
            word &= word - np.uint64(1)
            count += 1
    while count and places[count - 1] >= n:  # the last block is filled up with rows that do not exist
        count -= 1
    return count


@kernel
def unlisted(ids, found, i, places, n):
    """Places turned into row numbers, those already in the list of query i left out; how many."""
    count = 0
    for u in range(n):
        j = ids[places[u]]
        if not listed(found, i, j):
            places[count] = j
            count += 1
    return count


@kernel
def nearest_cells(products, norms, near):
    """near (q, p) int32: cells of least |c|^2 - 2 q.c; products (q, c) are q.c, norms (c,) are |c|^2."""
    probes = near.shape[1]
    values = np.empty(probes, np.float32)
    for i in range(products.shape[0]):
        for p in range(probes):
            values[p] = BIG
            near[i, p] = 0
        for c in range(products.shape[1]):
            value = norms[c] - 2 * products[i, c]
            if value < values[probes - 1]:
                p = probes - 1
                while p > 0 and values[p - 1] > value:
                    values[p] = values[p - 1]
                    near[i, p] = near[i, p - 1]
                    p -= 1
                values[p] = value
                near[i, p] = c


@kernel
def _keep_largest(weights, low, high, base, values, places, count):
    """Weights low..high of a block merged into the list of the largest; how many the list holds."""
    size = values.size
    floor = values[size - 1] if count == size else np.int32(-(2**31) + 1)
    top = floor
    for u in range(low, high):
        top = max(top, weights[u])
    if top == floor:
        return count
    for u in range(low, high):
        if weights[u] <= floor:
            continue
        p = min(count, size - 1)
        count = min(count + 1, size)
        while p > 0 and values[p - 1] < weights[u]:
            values[p] = values[p - 1]
            places[p] = places[p - 1]
            p -= 1
        values[p] = weights[u]
        places[p] = base + u
        if count == size:
            floor = values[size - 1]
    return count


@kernel
def warm(packed, bias, ids, start, rows, near, members, asked, queries, keep, best, found, way):
    """For query members[r] with codes asked[r]: the best `keep` rows of cells near[members[r]] offered to its list.

    bias None: Manhattan codes, as in `sweep`."""
    values, places, weights = np.empty(keep, np.int32), np.empty(keep, np.int64), np.empty(64, np.int32)
    for r in range(members.size):
        i, count = np.int64(members[r]), 0
        for p in range(near.shape[1]):
            c = near[i, p]
            for b in range(start[c] // 64, (start[c + 1] + 63) // 64):
                weigh_codes(packed, bias, b, asked, r, weights, way)
                low, high = max(0, start[c] - 64 * b), min(64, start[c + 1] - 64 * b)
                count = _keep_largest(weights, low, high, 64 * b, values, places, count)
        for u in range(count):
            places[u] = ids[places[u]]
        visit(rows, queries, i, places, count, bias is not None, best, found)


AHEAD = 4  # rows fetched before they are needed (T1)
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


class SweptRows(NamedTuple):
    """The rows of an index, in cell order but for `rows`; see the module."""

    packed: Any  # (blocks, words, 64) codes
    fine: Any  # (n, w)
    ids: Any  # (n,)
    rows: Any  # (N, d) as given
    step: float  # of a code
    unit: float  # of the frame
    margin: float  # from a bound, squared under Euclidean, to a fine sum
    way: int  # by which instructions codes are scanned


class SweptPanel(NamedTuple):
    """Queries that are searched together: `members` of all, which slack, asked and queries are of."""

    members: Any  # (m,)
    codes: Any  # (m padded, words)
    base: Any  # (m,), None under Manhattan
    reach: Any  # (m,)
    tau: Any  # (m padded,) room for thresholds; those that only fill the last tile mark nothing and stay
    slack: Any  # (q,)
    asked: Any  # (q, w)
    queries: Any  # (q, d)
    order: Any  # chunks of blocks, nearest first


@kernel
def sweep_rows(index, bias, panel, blocks, best, found):
    """Lists of the queries of a panel made exact; the numbers of rows (marked, visited).

    index: SweptRows, panel: SweptPanel, bias: of the rows' sums, None under Manhattan, whose branches numba prunes only
    for an argument; blocks: of a chunk.
    """
    members, codes, ids, packed = panel.members, panel.codes, index.ids, index.packed
    marks = np.empty((codes.shape[0], blocks), np.uint64)
    places = np.empty(64 * blocks, np.int64)
    marked = visited = 0
    for turn in range(panel.order.size):
        chunk = panel.order[turn]
        first, last = chunk * blocks, min(packed.shape[0], (chunk + 1) * blocks)
        _thresholds(best, members, panel.base, panel.reach, index.unit, index.step, bias, panel.tau)
        scan_codes(packed, bias, first, last, codes, panel.tau, marks, index.way)
        for r in range(members.size):
            i = np.int64(members[r])
            n = unpack_marks(marks, r, first, last, ids.size, places)
            marked += n
            if n:
                t = _kth(best, i, index.unit) + panel.slack[i]
                limit = t * index.margin if bias is None else t * t * index.margin
                n = _sift(index.fine, panel.asked, i, limit, bias, places, n)
                n = unlisted(ids, found, i, places, n)
                visit(index.rows, panel.queries, i, places, n, bias is not None, best, found)
                visited += n
    return marked, visited
