"""Search of a panel of queries: a first radius, a scan of all codes, a filter by fine sketches, and exact distances.

find_first_radius   ranks the rows of the nearest cells by their codes, and measures the best few
sweep_rows          scans all codes, filters the survivors by their fine sketches, and measures the rows that remain
measure_rows        computes exact distances of the stored values and inserts them into the list of a query

Terms. A *panel* is the set of queries that one call searches. A *cell* is the set of rows whose nearest center is the
same. The *codes* of a row are its coarse sketch, rounded to bytes. The *fine sketch* of a row is its values as bytes
(Euclidean) or its partial sums over small groups of columns (Manhattan). Without fine sketches, all rows that survive
the scan of codes are measured. A *list* has the k nearest rows so far of a query, ordered by (distance, id).

Euclidean and Manhattan distance share this code. `bias` is an array for Euclidean codes and None for Manhattan codes;
it is not a field of `SweptRows`, because numba drops a branch on `bias is None` only if `bias` is an argument of the
function. Rows are in the order of their cells. Chunks of blocks are scanned nearest first, and the thresholds are
updated before each chunk, so for most chunks the k-th distance is nearly final.

For a query, let t be its k-th distance so far, in units of the frame, and |.| the norm of the distance. A row can be a
neighbor only if both bounds allow it:

    codes   step |q - x|  <= t + reach     q, x are codes; reach bounds their errors: rounding to bytes and to float32
    fine    |f(q) - f(x)| <= t + slack     f is the fine sketch; slack bounds its errors

A row is dropped only if a bound is strictly greater, so a row that ties with the k-th is measured. Every computed side
of a comparison is rounded towards measuring too many rows; the comments state the margins.
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

AHEAD = 4  # rows that are prefetched before they are compared, decided by the MNIST search benchmark (T1)
TAU_LIMIT = (np.iinfo(np.int32).max + 1) // 2  # above any weight: tau = -TAU_LIMIT marks all rows, TAU_LIMIT none
_NOT_FILLED = np.iinfo(np.int32).max


class SweptRows(NamedTuple):
    """The rows of an index; all arrays except `rows` are in the order of cells."""

    packed: Any  # (blocks, words, 64) codes, int32 or int64
    fine: Any  # (n, w) fine sketches, int8 or float32
    ids: Any  # (n,) int32
    start: Any  # (c + 1,) int64, first row of each cell
    rows: Any  # (n, d) float32 or float64, in the order of their ids
    step: float  # step of the codes
    unit: float  # unit of the frame, a power of two
    margin: float  # factor from a bound (squared if Euclidean) to a fine sum
    variant: int  # instructions that scan the codes; see tiles.py


class SweptPanel(NamedTuple):
    """Queries that are searched together; slack, fine and queries are those of all queries, `members` selects some."""

    members: Any  # (m,) int32
    codes: Any  # (m padded, words) int32 or int64
    base: Any  # (m,) float64, or None for Manhattan
    reach: Any  # (m,) float64
    tau: Any  # (m padded,) int32 thresholds; those of the padding mark no row and never change
    slack: Any  # (q,) float64
    fine: Any  # (q, w) fine sketches, int8 or float32
    queries: Any  # (q, d) float32 or float64
    order: Any  # chunks of blocks, nearest first


@kernel
def insert(distances, ids, i, value, j):
    """Insert row j into list i, which does not contain it, if it is among the k smallest by (value, j)."""
    p = distances.shape[1] - 1
    if value > distances[i, p] or (value == distances[i, p] and j > ids[i, p]):
        return
    while p > 0 and (distances[i, p - 1] > value or (distances[i, p - 1] == value and ids[i, p - 1] > j)):
        distances[i, p] = distances[i, p - 1]
        ids[i, p] = ids[i, p - 1]
        p -= 1
    distances[i, p] = value
    ids[i, p] = j


@kernel
def measure_rows(rows, queries, i, candidates, n, euclidean, distances, ids):
    """Measure the first n candidates, which list i does not contain, and insert them into list i.

    Roots are compared, not squares: two different squares can have the same root, and rows at the same distance are
    ordered by id.
    """
    width = rows.shape[1] * rows.itemsize
    for u in range(n):
        if u + 1 < n:
            touch_row(rows, candidates[u + 1], 0, width)
        query, row = queries[i], rows[candidates[u]]
        value = np.sqrt(squared_gaps(query, row)) if euclidean else absolute_gaps(query, row)
        insert(distances, ids, i, value, candidates[u])


@kernel
def nearest_cells(products, norms, cells):
    """Write the p nearest cells of each query to cells (q, p) int32; p is at most the number of cells.

    They have the smallest |c|^2 - 2 q.c; products (q, c) are q.c, norms (c,) are |c|^2.
    """
    values = np.full((1, cells.shape[1]), np.float32(BIG))
    cells[:] = 0
    for i in range(products.shape[0]):
        values[:] = BIG
        for c in range(products.shape[1]):
            value = norms[c] - 2 * products[i, c]
            if value < values[0, -1]:
                insert(values, cells[i : i + 1], 0, value, c)


@kernel
def _insert_weights(weights, low, high, first, values, positions):
    """Insert rows low..high of a block into the list of the smallest negative weights; `first` is the block's start."""
    largest = weights[low]
    for u in range(low, high):
        largest = max(largest, weights[u])
    if -largest > values[0, values.shape[1] - 1]:
        return
    for u in range(low, high):
        if -weights[u] <= values[0, -1]:
            insert(values, positions, 0, -weights[u], first + u)


@kernel
def find_first_radius(index, bias, cells, members, query_codes, queries, n_measured, distances, ids):
    """Measure the `n_measured` rows with the best codes in cells[members[r]], for each query members[r] of a panel.

    cells (q, p) are the nearest cells; query_codes (m padded, words) are the codes of the panel.
    """
    start = index.start
    values, positions = np.empty((1, n_measured), np.int64), np.empty((1, n_measured), np.int64)
    weights = np.empty(64, np.int32)
    for r in range(members.size):
        i = np.int64(members[r])
        values[:] = _NOT_FILLED
        for p in range(cells.shape[1]):
            c = cells[i, p]
            for b in range(start[c] // 64, (start[c + 1] + 63) // 64):
                weigh_codes(index.packed, bias, b, query_codes, r, weights, index.variant)
                low, high = max(0, start[c] - 64 * b), min(64, start[c + 1] - 64 * b)
                _insert_weights(weights, low, high, 64 * b, values, positions)
        count = 0
        while count < n_measured and values[0, count] < _NOT_FILLED:
            positions[0, count] = index.ids[positions[0, count]]
            count += 1
        measure_rows(index.rows, queries, i, positions[0], count, bias is not None, distances, ids)


@kernel
def _kth_distance(distances, i, unit):
    """Return the k-th distance of query i so far in units of the frame; large but finite if its list is not full."""
    return min(distances[i, distances.shape[1] - 1] * unit, FLOAT32_SAFE[1])


@kernel
def _set_thresholds(distances, members, base, reach, unit, step, bias, tau):
    """Set tau (m padded,) so that the scan marks every row whose codes are within u = (t + reach) / step.

    1 + 1e-9 covers the rounding of measured float64 distances, which is at most d 2^-52 < 3e-11 for d <= MAX_COLUMNS.
    1e-12 covers that of the few float64 operations that compute u or u^2 / 2.

    Manhattan: the weight is minus the sum of differences, an integer. sum <= u is equivalent to weight > -floor(u) - 1.
    Euclidean: |q - x|^2 <= u^2 implies weight >= base - u^2 / 2, because the weight contains -|x|^2 / 2 rounded up. The
    weight is an integer, so it is larger than floor(base - u^2 / 2) - 1, even if the subtraction was rounded.
    """
    for r in range(members.size):
        u = (_kth_distance(distances, members[r], unit) * (1 + 1e-9) + reach[r]) / step
        if bias is None:
            tau[r] = np.int32(-np.floor(min(u * (1 + 1e-12), TAU_LIMIT)) - 1)
        else:
            tau[r] = np.int32(max(np.floor(base[r] - u * u * (0.5 + 1e-12)) - 1, -TAU_LIMIT))


@kernel
def unpack_marks(marks, r, first, last, n, positions):
    """Write the positions (< n) of the rows marked for query r in blocks first..last; return their number."""
    count = 0
    for b in range(last - first):
        word = marks[r, b]
        while word != 0:
            positions[count] = (first + b) * 64 + ctz(word)
            word &= word - np.uint64(1)
            count += 1
    while count and positions[count - 1] >= n:  # padding of the last block
        count -= 1
    return count


@kernel
def _sketch_distance(fine, j, query_fine, i, bias):
    """Return the sum of absolute differences of two fine sketches, or of squared differences if they are bytes."""
    if bias is None:
        total = np.float32(0)
        for z in range(np.uint64(fine.shape[1])):  # a signed index would prevent vectorization
            total += abs(query_fine[np.uint64(i), z] - fine[np.uint64(j), z])
        return total
    return byte_squares(fine, j, query_fine, i)


@kernel
def _filter_by_sketch(fine, query_fine, i, limit, bias, positions, n):
    """Keep the positions whose fine sum is at most the limit; return their number."""
    width, count = fine.strides[0], 0
    if fine.shape[1] == 0:
        return n
    for u in range(min(n, AHEAD)):
        touch_row(fine, positions[u], 0, width)
    for u in range(n):
        if u + AHEAD < n:
            touch_row(fine, positions[u + AHEAD], 0, width)
        if _sketch_distance(fine, positions[u], query_fine, i, bias) <= limit:
            positions[count] = positions[u]
            count += 1
    return count


@kernel
def _is_listed(ids, i, j):
    present = False
    for p in range(ids.shape[1]):  # without an early exit, so that the loop is vectorized
        present |= ids[i, p] == j
    return present


@kernel
def _drop_listed(row_ids, ids, i, positions, n):
    """Convert positions to row ids in place, and drop those in list i; return the number of the others."""
    count = 0
    for u in range(n):
        j = row_ids[positions[u]]
        if not _is_listed(ids, i, j):
            positions[count] = j
            count += 1
    return count


@kernel
def sweep_rows(index, bias, panel, chunk_blocks, distances, ids):
    """Complete the lists of a panel's queries; return the numbers of rows that were marked and measured.

    index is a SweptRows, panel a SweptPanel, chunk_blocks the number of blocks per chunk.
    """
    members, codes, packed = panel.members, panel.codes, index.packed
    marks = np.empty((codes.shape[0], chunk_blocks), np.uint64)
    candidates = np.empty(64 * chunk_blocks, np.int64)
    n_marked = n_measured = 0
    for chunk in panel.order:
        first, last = chunk * chunk_blocks, min(packed.shape[0], (chunk + 1) * chunk_blocks)
        _set_thresholds(distances, members, panel.base, panel.reach, index.unit, index.step, bias, panel.tau)
        scan_codes(packed, bias, first, last, codes, panel.tau, marks, index.variant)
        for r in range(members.size):
            i = np.int64(members[r])
            n = unpack_marks(marks, r, first, last, index.ids.size, candidates)
            n_marked += n
            if n:
                t = _kth_distance(distances, i, index.unit) + panel.slack[i]
                limit = t * index.margin if bias is None else t * t * index.margin
                n = _filter_by_sketch(index.fine, panel.fine, i, limit, bias, candidates, n)
                n = _drop_listed(index.ids, ids, i, candidates, n)
                measure_rows(index.rows, panel.queries, i, candidates, n, bias is not None, distances, ids)
                n_measured += n
    return n_marked, n_measured
