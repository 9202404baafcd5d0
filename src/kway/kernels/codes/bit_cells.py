"""Search of landmark cells whose rows are codes about their landmark (bits.py): one query and one cell at a time.

    t = R (q - m)      halved: the query about the landmark m of the cell, rotated like the rows r = R (x - m)
    t = R q            under dot, because q.x = q.m + q.(x - m)
    key                half_r - f_r <t, y_r>, or -f_r <t, y_r>, as in bit_scan.py
    distance           sqrt(||t||^2 + 2 key)  |  ||t||^2 / 2 + key  (cosine of unit rows)  |  key - q.m  (dot)

A cell is skipped if its rows would need a cosine above 1 to be near enough, that is if |q - m| - |x - m| is too large.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kway.kernels.codes.bit_scan import (
    BIT_BLOCK,
    CodedQuery,
    PassedFilter,
    best_width,
    distance_of,
    key_of,
    least_cosine,
    most_bits,
    near_of,
    offer_span,
    product,
    scan_room,
)
from kway.kernels.codes.bits import sign_words
from kway.kernels.distances import distance
from kway.kernels.jit import kernel
from kway.kernels.lanes import ctz
from kway.kernels.topk import EMPTY, NO_ROW, sift

_FEW = 2.4  # deviations below the mean of a first filter: about one row in a hundred passes (C1)
_KEY_ROUNDING = 512 * float(np.finfo(np.float64).eps)  # relative rounding of the terms of a key
_COSINE_ROUNDING = float(np.sqrt(np.finfo(np.float32).eps))  # of a cosine, whose lengths are those of float32 rows


class CodedCells(NamedTuple):
    """Landmark cells of coded rows."""

    offsets: Any  # (c + 1,)
    spans: Any  # (c, 2) the smallest and the largest length of a cell's rows
    landmarks: Any  # (c, D) rotated


class CellPairs(NamedTuple):
    """The queries pairs[starts[g]:starts[g + 1]] search cells[g]; rotated (q, D), queries (q, d) float64."""

    starts: Any
    cells: Any
    pairs: Any
    rotated: Any
    queries: Any


@kernel
def _about(how, rotated, landmark, query, local, words):
    """Return the CodedQuery of a rotated query (D,) about a rotated landmark; local (1, D), words (1, W): memory."""
    total, square, along, whole = np.float32(0), 0.0, 0.0, 0.0
    for j in range(len(rotated)):
        value = rotated[j] - landmark[j] if how.halved else rotated[j]
        local[0, j] = value
        total += value
        square += np.float64(value) * value
        along += np.float64(rotated[j]) * landmark[j]
        whole += np.float64(rotated[j]) * rotated[j]
    sign_words(local, words)
    base = -along
    if how.halved:  # a query of zeros does not have length 1; its cosine to every row is 0
        # 1 - whole would be the rounding of float32, more than cosines of rows far from the origin differ
        base = square if how.squared else 0.5 * (square + (0.0 if whole > 0.5 else 1.0))
    return CodedQuery(words[0], local[0], total, np.sqrt(square), base, query)


@kernel
def _first_bound(how, coded, query, low, high, width, most, k, room):
    """Return the k-th distance among the k rows of least key in low..high that pass the filter of width and most.

    Rows beyond it are not needed. EMPTY if fewer than k passed.
    """
    keys, best = np.full(k, EMPTY), np.full(k, NO_ROW)
    for row in range(low, high, 32):
        near = near_of(coded.head, row, min(high, row + 32), query.words, width, most, room.tile)
        while near:
            r = row + ctz(near)
            near &= near - np.uint64(1)
            along = product(coded.bits, coded.head, coded.rest, r, query.rotated, query.total, room.held)
            key = np.float64(-coded.factor[r] * along)
            if how.halved:
                key += coded.half[r]
            if key < keys[0]:
                sift(keys, best, key, r)
    worst = how.least
    for i in range(k):
        if best[i] == NO_ROW:  # fewer than k rows, or keys that are NaN
            return EMPTY
        # so that these k rows pass
        worst = max(worst, distance_of(how.squared, keys[i], query.base, how.least))
        if len(coded.rows):
            worst = max(worst, distance(how.code, query.query, coded.rows[best[i]]))
    # the k-th row must not be ruled out by the rounding of its own key
    if how.squared:
        return np.sqrt(worst * worst + _KEY_ROUNDING * (worst * worst + query.base))
    return worst + _KEY_ROUNDING * (abs(worst) + abs(query.base))


@kernel
def _cell_bound(how, coded, query, low, high, k, room):
    """Return `_first_bound` of a cell: from one row in a hundred of a large cell, or from all rows if that fails."""
    width = len(coded.head) if high - low > BIT_BLOCK else 0
    few = np.int64(32.0 * width - _FEW * 4.0 * np.sqrt(width))  # half of the bits differ
    bound = EMPTY
    for tried in (width, 0):
        if bound >= EMPTY:
            bound = _first_bound(how, coded, query, low, high, tried, few, k, room)
    return bound


@kernel
def bound_bit_cells(how, coded, cells, look, part, parts, k, bounds):
    """Compute bounds (q,), EMPTY at first, of each query from one of `parts` parts of the first cell with k rows.

    how: Estimator, coded: CodedRows, cells: CodedCells, look: CellPairs.
    """
    wide = look.rotated.shape[1]
    local, words = np.empty((1, wide), np.float32), np.empty((1, wide // 64), np.uint64)
    room = scan_room(coded, wide)
    for g in range(len(look.cells)):
        cell = look.cells[g]
        if cell >= len(cells.offsets) - 1:  # none
            continue
        start, size = cells.offsets[cell], cells.offsets[cell + 1] - cells.offsets[cell]
        low, high = start + size * part // parts, start + size * (part + 1) // parts
        for p in range(look.starts[g], look.starts[g + 1]):
            i = look.pairs[p]
            if bounds[i] >= EMPTY:
                query = _about(how, look.rotated[i], cells.landmarks[cell], look.queries[i], local, words)
                bounds[i] = _cell_bound(how, coded, query, low, high, k, room)


@kernel
def search_bit_cells(how, coded, cells, look, part, parts, bounds, distances, ids):
    """Search one of `parts` parts of each cell for the queries of its pairs.

    Rows beyond the distances bounds (q,) are not needed. Returns the numbers of rows estimated and measured.
    """
    wide, planes = look.rotated.shape[1], len(coded.head)
    local, words = np.empty((1, wide), np.float32), np.empty((1, wide // 64), np.uint64)
    counts, room, means, spreads = np.zeros(2, np.int64), scan_room(coded, wide), np.empty(planes), np.empty(planes)
    passed = PassedFilter(np.empty((2, 0, 6), np.uint64), np.full(2, -1, np.int64))
    for w in range(planes):  # rows of a cell lie in all directions about its landmark: half of the bits differ
        means[w], spreads[w] = 32.0 * (w + 1), 4.0 * np.sqrt(w + 1.0)
    for g in range(len(look.cells)):
        cell = look.cells[g]
        if cell >= len(cells.offsets) - 1:  # none
            continue
        start, size = cells.offsets[cell], cells.offsets[cell + 1] - cells.offsets[cell]
        low, high = start + size * part // parts, start + size * (part + 1) // parts
        if low == high:
            continue
        for p in range(look.starts[g], look.starts[g + 1]):
            i = look.pairs[p]
            query = _about(how, look.rotated[i], cells.landmarks[cell], look.queries[i], local, words)
            bound, width, most = bounds[i], 0, np.int64(0)
            limit = min(bound, distances[i, 0])
            if limit >= EMPTY:
                bound = limit = _cell_bound(how, coded, query, low, high, distances.shape[1], room)
            if limit < EMPTY:
                key = key_of(how.squared, limit, query.base)
                cosine = least_cosine(how.halved, key, query.norm, cells.spans[cell, 0], cells.spans[cell, 1])
                if cosine > 1.0 + _COSINE_ROUNDING:
                    continue
                width = best_width(cosine, how.z, means, spreads)
                most = np.int64(most_bits(cosine, 64.0 * width, how.z))
            offer_span(how, coded, query, low, high, width, most, passed, bound, room, distances[i], ids[i], counts)
    return counts
