"""Search of a panel of queries: a first radius, a scan of all codes, a filter by fine sketches, and exact distances.

warm          ranks the rows of the nearest cells by their codes, and measures the best few
sweep_rows    scans all codes, filters the survivors by their fine sketch, and measures the rows that remain
visit, insert compute exact distances of the stored values and insert them into a query's list, by (distance, id)

Both distances share this plan. `bias` exists only for Euclidean codes. If it is None (Manhattan), numba removes the
Euclidean branches when it compiles.

Rows are in cell order. Chunks of blocks are scanned nearest first, and the thresholds are updated before each chunk, so
for most chunks the k-th distance is nearly final. For query i, let t be its k-th distance so far (in units of the
space of the codes) and |.| the norm of the distance. A row can only be a neighbor if both hold:
    codes:  step |q - x|   <= t + reach     reach bounds the rounding to codes and to float32, of query and row
    fine:   |f(q) - f(x)|  <= t + slack     f: whole rows as bytes, or finer sums (if there are none, rows are measured)
A row is dropped only if the bound is strictly greater, so a row that ties with the k-th is measured.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kway.kernels.certified.sketch import byte_squares
from kway.kernels.certified.tiles import scan_codes, weigh_codes
from kway.kernels.distances import absolute_gaps, squared_gaps
from kway.kernels.float32 import FLOAT32_SAFE
from kway.kernels.jit import BIG, kernel
from kway.kernels.lanes import ctz, touch_row


@kernel
def listed(found, i, j):
    """Return whether row j is in the list of query i."""
    present = False
    for p in range(found.shape[1]):  # without an early exit, so that the loop is vectorized
        present |= found[i, p] == j
    return present


@kernel
def insert(best, found, i, value, j):
    """Insert row j, which is not in the list, if it is among the k smallest by (value, j)."""
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
    """Measure the first n rows of `near` and insert them into the list of query i, which contains none of them.

    squared: Euclidean distance, else Manhattan. Roots are compared, not squares: two different squares can have the
    same root, and rows at the same distance are ordered by id.
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
    """Write the numbers (< n) of the rows marked for query r in blocks first..last into `places`; return how many."""
    count = 0
    for b in range(last - first):
        word = marks[r, b]
        while word != 0:
            places[count] = (first + b) * 64 + ctz(word)
            word &= word - np.uint64(1)
            count += 1
    while count and places[count - 1] >= n:  # padding of the last block
        count -= 1
    return count


@kernel
def unlisted(ids, found, i, places, n):
    """Convert places to row ids, without those in the list of query i; return how many remain."""
    count = 0
    for u in range(n):
        j = ids[places[u]]
        if not listed(found, i, j):
            places[count] = j
            count += 1
    return count


@kernel
def nearest_cells(products, norms, near):
    """Find near (q, p) int32, the cells of least |c|^2 - 2 q.c; products (q, c) are q.c, norms (c,) are |c|^2."""
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
    """Merge weights low..high of a block into the list of the largest; return the length of the list."""
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


class SweptRows(NamedTuple):
    """The rows of an index; all arrays except `rows` are in cell order."""

    packed: Any  # (blocks, words, 64) codes
    fine: Any  # (n, w)
    ids: Any  # (n,)
    start: Any  # (c + 1,) first row of each cell
    rows: Any  # (n, d) in the order of their ids
    step: float  # step of the codes
    unit: float  # unit of the frame
    margin: float  # factor from a bound (squared if Euclidean) to a fine sum
    variant: int  # instructions that scan the codes; see tiles.py


@kernel
def warm(index, bias, near, members, asked, queries, keep, best, found):
    """Measure the best `keep` rows, by their codes, of the cells near[members[r]] for each query members[r].

    asked[r] are the codes of the query; bias is None for Manhattan codes.
    """
    ids, start = index.ids, index.start
    values, places, weights = np.empty(keep, np.int32), np.empty(keep, np.int64), np.empty(64, np.int32)
    for r in range(members.size):
        i, count = np.int64(members[r]), 0
        for p in range(near.shape[1]):
            c = near[i, p]
            for b in range(start[c] // 64, (start[c + 1] + 63) // 64):
                weigh_codes(index.packed, bias, b, asked, r, weights, index.variant)
                low, high = max(0, start[c] - 64 * b), min(64, start[c + 1] - 64 * b)
                count = _keep_largest(weights, low, high, 64 * b, values, places, count)
        for u in range(count):
            places[u] = ids[places[u]]
        visit(index.rows, queries, i, places, count, bias is not None, best, found)


AHEAD = 4  # rows that are prefetched (T1)
FLOOR = (np.iinfo(np.int32).max + 1) // 2  # above any sum of codes: tau = -FLOOR marks all rows, tau = FLOOR none


@kernel
def _kth(best, i, unit):
    """Return the k-th distance of query i so far, in units of the space of the codes."""
    return min(best[i, best.shape[1] - 1] * unit, FLOAT32_SAFE[1])


@kernel
def _gaps(fine, j, asked, i, bias):
    """Return the sum of absolute differences of two rows, or of squared differences if they are bytes."""
    if bias is None:
        total = np.float32(0)
        for z in range(np.uint64(fine.shape[1])):  # a signed index would prevent vectorization
            total += abs(asked[np.uint64(i), z] - fine[np.uint64(j), z])
        return total
    return byte_squares(fine, j, asked, i)


@kernel
def _thresholds(best, members, base, reach, unit, step, bias, tau):
    """Set tau (q,) so that the scan marks every row whose codes are within (t + reach) / step."""
    for r in range(members.size):
        u = (_kth(best, members[r], unit) * (1 + 1e-9) + reach[r]) / step
        if bias is None:
            tau[r] = np.int32(-np.floor(min(u * (1 + 1e-12), FLOOR)) - 1)
        else:
            tau[r] = np.int32(max(np.floor(base[r] - u * u * (0.5 + 1e-12)) - 1, -FLOOR))


@kernel
def _sift(fine, asked, i, limit, bias, places, n):
    """Keep the places whose fine sum is within the limit; return how many."""
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


class SweptPanel(NamedTuple):
    """Queries that are searched together; slack, asked and queries are those of all, `members` selects some."""

    members: Any  # (m,)
    codes: Any  # (m padded, words)
    base: Any  # (m,), or None for Manhattan
    reach: Any  # (m,)
    tau: Any  # (m padded,) thresholds; those of the padding mark no row and never change
    slack: Any  # (q,)
    asked: Any  # (q, w)
    queries: Any  # (q, d)
    order: Any  # chunks of blocks, nearest first


@kernel
def sweep_rows(index, bias, panel, blocks, best, found):
    """Complete the lists of a panel's queries; return the numbers of rows that were marked and measured.

    index: SweptRows; panel: SweptPanel; blocks: blocks per chunk. bias is None for Manhattan codes; it is an argument
    of its own, because numba removes branches only for arguments.
    """
    members, codes, ids, packed = panel.members, panel.codes, index.ids, index.packed
    marks = np.empty((codes.shape[0], blocks), np.uint64)
    places = np.empty(64 * blocks, np.int64)
    marked = visited = 0
    for turn in range(panel.order.size):
        chunk = panel.order[turn]
        first, last = chunk * blocks, min(packed.shape[0], (chunk + 1) * blocks)
        _thresholds(best, members, panel.base, panel.reach, index.unit, index.step, bias, panel.tau)
        scan_codes(packed, bias, first, last, codes, panel.tau, marks, index.variant)
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
