"""Search of landmark cells whose rows are codes about their landmark (bits.py): one query against one cell at a time.

    t = R (q - m)      halved: the query about the landmark m of the cell, turned like the rows r = R (x - m)
    t = R q            under dot, where q.x = q.m + q.(x - m)
    key                half_r - f_r <t, y_r>, or -f_r <t, y_r>, as in bit_scan.py
    distance           sqrt(||t||^2 + 2 key)  |  ||t||^2 / 2 + key  (cosine of unit rows)  |  key - q.m  (dot)

A cell whose rows would need a cosine beyond 1 to be near enough is passed over: that is |q - m| - |x - m| too far.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.codes.bit_scan import (
    BIT_BLOCK,
    FIRST_WIDTH,
    best_width,
    distance_of,
    key_of,
    least_cosine,
    most_bits,
    near_of,
    offer_span,
    product,
)
from kway.compute.kernels.codes.bits import sign_words
from kway.compute.kernels.distances import distance
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import ctz
from kway.compute.kernels.topk import EMPTY, NOBODY, sift

_LARGE = 2048  # rows of a cell whose first bound is taken of a few alone
_FEW = 2.4  # deviations below the mean: about one row in a hundred
_ROUNDED = 1e-13  # of the terms of a key
_UNSURE = 1e-4  # of a cosine, whose lengths are those of float32 rows


@kernel
def _about(halved, squared, turned, centre, local):
    """The turned query (D,) as a cell with this turned landmark reads it, into local (D,): total, norm, base."""
    total, square, along, whole = np.float32(0), 0.0, 0.0, 0.0
    for j in range(len(turned)):
        value = turned[j] - centre[j] if halved else turned[j]
        local[j] = value
        total += value
        square += np.float64(value) * value
        along += np.float64(turned[j]) * centre[j]
        whole += np.float64(turned[j]) * turned[j]
    if halved:  # a query of zeros has no length of 1, and a cosine of 0 to everything
        # 1 - whole itself is the rounding of float32, more than cosines of rows far from the origin differ by
        return total, np.sqrt(square), square if squared else 0.5 * (square + (0.0 if whole > 0.5 else 1.0))
    return total, np.sqrt(square), -along


@kernel
def _first_bound(
    code, halved, squared, least, bits, head, rest, factor, half, words, local, total, base, query, rows, low, high,
    width, most, k, held, room,
):  # fmt: skip
    """The k-th distance among the k rows of least key, of those in low..high that pass the filter of width and most.

    Nothing beyond it can be of use. EMPTY where fewer than k passed.
    """
    keys, best = np.full(k, EMPTY), np.full(k, NOBODY)
    for row in range(low, high, 32):
        near = near_of(head, row, min(high, row + 32), words, width, most, room)
        while near:
            r = row + ctz(near)
            near &= near - np.uint64(1)
            key = np.float64(-factor[r] * product(bits, head, rest, r, local, total, held))
            if halved:
                key += half[r]
            if key < keys[0]:
                sift(keys, best, key, r)
    worst = least
    for i in range(k):
        if best[i] == NOBODY:  # fewer rows than that, or keys that are no numbers
            return EMPTY
        worst = max(worst, distance_of(squared, keys[i], base, least))  # so that these k themselves are let in
        if len(rows):
            worst = max(worst, distance(code, query, rows[best[i]]))
    # a key made a distance and back is off by a rounding, and the k-th must not be ruled out by its own
    if squared:
        return np.sqrt(worst * worst + _ROUNDED * (worst * worst + base))
    return worst + _ROUNDED * (abs(worst) + abs(base))


@kernel
def _cell_bound(
    code, halved, squared, least, bits, head, rest, factor, half, words, local, total, base, query, rows, low, high, k,
    held, room,
):  # fmt: skip
    """`_first_bound` of a cell: a few in a hundred of a large one hold k rows near enough; else of all its rows."""
    width = min(len(head), FIRST_WIDTH) if high - low > _LARGE else 0
    few = np.int64(32.0 * width - _FEW * 4.0 * np.sqrt(width))  # half of the bits differ
    bound = EMPTY
    for tried in (width, 0):
        if bound >= EMPTY:
            bound = _first_bound(
                code, halved, squared, least, bits, head, rest, factor, half, words, local, total, base, query, rows,
                low, high, tried, few, k, held, room,
            )  # fmt: skip
    return bound


@kernel
def bound_bit_cells(
    code, halved, squared, least, bits, head, rest, factor, half, centres, part, parts, starts, cells, pairs, turned,
    queries, rows, offsets, k, bounds,
):  # fmt: skip
    """bounds (q,), EMPTY at first: of each query, from one of so many parts of its first cell that has k rows there."""
    wide = turned.shape[1]
    local, words = np.empty((1, wide), np.float32), np.empty((1, wide // 64), np.uint64)
    held, room = np.empty(bits * wide // 64, np.uint64), np.empty((len(head), 32), np.uint64)
    for g in range(len(cells)):
        if cells[g] >= len(offsets) - 1:  # nobody
            continue
        start, size = offsets[cells[g]], offsets[cells[g] + 1] - offsets[cells[g]]
        low, high = start + size * part // parts, start + size * (part + 1) // parts
        for p in range(starts[g], starts[g + 1]):
            i = pairs[p]
            if bounds[i] >= EMPTY:
                total, _, base = _about(halved, squared, turned[i], centres[cells[g]], local[0])
                sign_words(local, words)
                bounds[i] = _cell_bound(
                    code, halved, squared, least, bits, head, rest, factor, half, words[0], local[0], total, base,
                    queries[i], rows, low, high, k, held, room,
                )  # fmt: skip


@kernel
def search_bit_cells(
    code, halved, squared, least, bits, z, bar, head, rest, factor, half, spans, centres, part, parts, starts, cells,
    pairs, turned, queries, rows, names, offsets, bounds, distances, ids,
):  # fmt: skip
    """For each group g, the queries pairs[starts[g]:starts[g + 1]] against the rows of cells[g], one of so many parts.

    spans (c, 2): the least and the largest length of a cell's rows; centres (c, D): the landmarks, turned; turned
    (q, D): the queries; rows (n, d) or (0, d): full ones, measured against queries (q, d) float64 where they are kept.
    Nothing beyond the distances bounds (q,) is wanted. Answers the rows estimated and measured.
    """
    wide, planes = turned.shape[1], len(head)
    counts, unit = np.zeros(2, np.int64), np.float32(1)
    local, words = np.empty((1, wide), np.float32), np.empty((1, wide // 64), np.uint64)
    held, room = np.empty(bits * wide // 64, np.uint64), np.empty((planes, 32), np.uint64)
    means, spreads, found = np.empty(planes), np.empty(planes), np.empty(BIT_BLOCK, np.int64)
    nothing, nobody = np.empty((2, 0, 6), np.uint64), np.full(2, -1, np.int64)
    for w in range(planes):  # about its landmark a cell lies in all directions: half of the bits differ
        means[w], spreads[w] = 32.0 * (w + 1), 4.0 * np.sqrt(w + 1.0)
    for g in range(len(cells)):
        if cells[g] >= len(offsets) - 1:  # nobody
            continue
        start, size = offsets[cells[g]], offsets[cells[g] + 1] - offsets[cells[g]]
        low, high = start + size * part // parts, start + size * (part + 1) // parts
        if low == high:
            continue
        short, long = spans[cells[g], 0], spans[cells[g], 1]
        for p in range(starts[g], starts[g + 1]):
            i = pairs[p]
            total, norm, base = _about(halved, squared, turned[i], centres[cells[g]], local[0])
            sign_words(local, words)
            bound, width, most = bounds[i], 0, np.int64(0)
            limit = min(bound, distances[i, 0])
            if limit >= EMPTY:
                bound = limit = _cell_bound(
                    code, halved, squared, least, bits, head, rest, factor, half, words[0], local[0], total, base,
                    queries[i], rows, low, high, distances.shape[1], held, room,
                )  # fmt: skip
            if limit < EMPTY:
                cosine = least_cosine(halved, key_of(squared, limit, base), norm, short, long)
                if cosine > 1.0 + _UNSURE:
                    continue
                width = best_width(cosine, z, means, spreads)
                most = np.int64(most_bits(cosine, 64.0 * width, z))
            offer_span(
                code, halved, squared, least, bits, bar, head, rest, factor, unit, half, names, 0, words[0], local[0],
                total, norm, base, queries[i], rows, low, high, width, most, nothing, nobody, bound, held, room, found,
                distances[i], ids[i], counts,
            )  # fmt: skip
    return counts
