"""The first scan of codes: a filter that passes a small share of the rows, whoever the k-th nearest will be.

The k-th distance is known only at the end, and no row need come near it before. So each query's tables (bit_tables.py)
let pass what a sample of the rows says is a small share: mosts[0] for the groups that all rows are asked for, mosts[1]
for all bits of P words of those that pass. Where what they found shows that nobody outside could enter (`enough`),
that was the search; where the k-th so far is near, they become narrower on the way.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.codes.bit_scan import BIT_BLOCK, key_of, least_cosine, offer_rows
from kway.compute.kernels.codes.bit_tables import TABLE_ROWS, most_weight, near_tables, weigh_bits
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import ctz, touch, touch_row
from kway.compute.kernels.topk import EMPTY


@kernel
def _wanted(squared, z, worst, base, norm, shortest, longest, counts, step, wide, out):
    """out (2,): what a row nearer than `worst` may weigh, in the groups and in all."""
    limit, cosine = key_of(squared, worst, base), -1.0
    if limit < EMPTY:
        cosine = least_cosine(squared, limit, norm, shortest, longest)
    for j in range(2):
        out[j] = np.int64(most_weight(cosine, z, counts[j], step, wide))


@kernel
def enough(squared, z, worst, base, norms, shortest, longest, wide, mosts, counts, steps, out):
    """out (q,): whether the filters passed whoever could be nearer than the k-th found, at distance worst (q,)."""
    wanted = np.empty(2, np.int64)
    for i in range(len(worst)):
        out[i] = False
        if worst[i] < EMPTY:
            _wanted(squared, z, worst[i], base[i], norms[i], shortest, longest, counts[i], steps[i], wide, wanted)
            out[i] = wanted[0] <= mosts[i, 0] and wanted[1] <= mosts[i, 1]


@kernel
def _passed(mask, low, head, width, rest, factor, tables, most, found):
    """found[:m]: rows of the mask (64 a word, from row low) whose bits of P words pass; m. Asks for their codes."""
    m = 0
    for j in range(len(mask)):
        near = mask[j]
        while near:
            found[m] = r = low + 64 * j + ctz(near)
            near &= near - np.uint64(1)
            m += 1
            for w in range(width, len(head)):
                touch(np.uint64(head[w].ctypes.data + 8 * r))
    kept = 0
    for j in range(m):
        r = found[j]
        if weigh_bits(head, r, tables) <= most:
            touch_row(rest, r, 0, 8 * rest.shape[1])
            touch(np.uint64(factor.ctypes.data + r * factor.itemsize))
            found[kept] = r
            kept += 1
    return kept


@kernel
def scan_first(
    code, squared, least, bits, z, bar, head, rest, factor, unit, half, spans, words, turned, totals, norms, base,
    queries, rows, start, stop, first, width, tables, groups, mosts, counts, steps, fast, bounds, distances, ids,
):  # fmt: skip
    """Offer the rows of start..stop that pass the filter of tables, groups and mosts (q, 2), else like `scan_bits`.

    counts (q, 2, .) and steps (q,) are those of `most_weight`, for the groups, which lie in the first `width` words,
    and for all.
    """
    q, (planes, _), wide = len(words), head.shape, turned.shape[1]
    seen, nobody = np.zeros(2, np.int64), np.full(2, -1, np.int64)
    now, asked, wanted = mosts.T.copy(), np.full(q, EMPTY), np.empty(2, np.int64)
    shortest, longest = spans[:, 0].min(), spans[:, 1].max()
    halves, masks = np.empty((16 * planes, TABLE_ROWS), np.uint8), np.empty((q, BIT_BLOCK // 64), np.uint64)
    held, found = np.empty(bits * words.shape[1], np.uint64), np.empty(BIT_BLOCK, np.int64)
    names = np.empty(0, np.int64)
    for low in range(start, stop, BIT_BLOCK):
        for i in range(q):
            worst = min(bounds[i], distances[i, 0])
            if worst < asked[i]:
                asked[i] = worst
                _wanted(squared, z, worst, base[i], norms[i], shortest, longest, counts[i], steps[i], wide, wanted)
                for j in range(2):
                    now[j, i] = min(mosts[i, j], wanted[j])
        near_tables(head, low, min(stop, low + BIT_BLOCK), width, tables, groups, now[0], halves, masks, fast)
        for i in range(q):
            m = _passed(masks[i], low, head, width, rest, factor, tables[i], now[1, i], found)
            if m:
                offer_rows(
                    code, squared, squared, least, bits, bar, head, rest, factor, unit, half, names, first, turned[i],
                    totals[i], norms[i], base[i], queries[i], rows, found[:m], tables[i], groups[i], nobody, bounds[i],
                    held, distances[i], ids[i], seen,
                )  # fmt: skip
    return seen
