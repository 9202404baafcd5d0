"""The first scan of codes: a filter that passes a small share of the rows, whoever the k-th nearest will be.

The k-th distance is known only at the end, and no row need come near it before. So each query's tables (bit_tables.py)
let pass what a sample of the rows says is a small share: mosts[0] for the groups that all rows are asked for, mosts[1]
for all bits of P words of those that pass. Where what they found shows that nobody outside could enter (`enough`),
that was the search; where the k-th so far is near, they become narrower on the way.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.codes.bit_scan import BIT_BLOCK, key_of, least_cosine, offer_rows
from kway.compute.kernels.codes.bit_tables import (
    TABLE_ROWS,
    TILE_STEP,
    TILE_WORDS,
    most_weight,
    near_tables,
    weigh_bits,
)
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
def _passed(hits, masks, low, head, width, rest, factor, words, planes, mosts, found):
    """found[:m]: BIT_BLOCK i + r of each row low + r that passes query i by all bits of P words; m.

    Their codes are asked for. A tile that is hit has one row that passes, as a rule: a loop that ends otherwise costs
    as much as weighing a row.
    """
    m = 0
    for hit in hits:
        i, start, some = hit % TILE_STEP, TILE_WORDS * (hit // TILE_STEP), np.uint64(0)
        for j in range(TILE_WORDS):
            some |= np.uint64(masks[i, start + j] != 0) << np.uint64(j)
        while some:
            j = start + ctz(some)
            some &= some - np.uint64(1)
            near = masks[i, j]
            while near:
                r = 64 * j + ctz(near)
                near &= near - np.uint64(1)
                found[m] = BIT_BLOCK * i + r
                m += 1
                for w in range(width, len(head)):
                    touch(np.uint64(head[w].ctypes.data + 8 * (low + r)))
    kept = 0
    for j in range(m):
        i, r = found[j] // BIT_BLOCK, low + found[j] % BIT_BLOCK
        if weigh_bits(head, r, words[i], planes[i, 1]) <= mosts[i]:
            touch_row(rest, r, 0, 8 * rest.shape[1])
            touch(np.uint64(factor.ctypes.data + r * factor.itemsize))
            found[kept] = found[j]
            kept += 1
    return kept


@kernel
def scan_first(
    code, squared, least, bits, z, bar, head, rest, factor, unit, half, spans, words, turned, totals, norms, base,
    queries, rows, start, stop, first, width, tables, groups, planes, mosts, counts, steps, fast, bounds, distances,
    ids,
):  # fmt: skip
    """Offer the rows of start..stop that pass the filter of tables, groups, planes and mosts, else like `scan_bits`.

    counts (q, 2, .) and steps (q,) are those of `most_weight`, for the groups, which lie in the first `width` words,
    and for all.
    """
    q, wide = len(words), turned.shape[1]
    seen, nobody = np.zeros(2, np.int64), np.full(2, -1, np.int64)
    now, asked, wanted = mosts.T.copy(), np.full(q, EMPTY), np.empty(2, np.int64)
    shortest, longest = spans[:, 0].min(), spans[:, 1].max()
    halves, masks = np.empty((16 * len(head), TABLE_ROWS), np.uint8), np.empty((q, BIT_BLOCK // 64), np.uint64)
    held, found = np.empty(bits * words.shape[1], np.uint64), np.empty(BIT_BLOCK * q, np.int64)
    names, row, hits = np.empty(0, np.int64), np.empty(1, np.int64), np.empty(BIT_BLOCK // TABLE_ROWS * q + 1, np.int64)
    for low in range(start, stop, BIT_BLOCK):
        for i in range(q):
            worst = min(bounds[i], distances[i, 0])
            if worst < asked[i]:
                asked[i] = worst
                _wanted(squared, z, worst, base[i], norms[i], shortest, longest, counts[i], steps[i], wide, wanted)
                for j in range(2):
                    now[j, i] = min(mosts[i, j], wanted[j])
        m = near_tables(
            head, low, min(stop, low + BIT_BLOCK), width, tables, groups, words, planes, now[0], halves, masks, hits,
            fast,
        )  # fmt: skip
        m = _passed(hits[:m], masks, low, head, width, rest, factor, words, planes, now[1], found)
        for j in range(m):
            i, row[0] = found[j] // BIT_BLOCK, low + found[j] % BIT_BLOCK
            offer_rows(
                code, squared, squared, least, bits, bar, head, rest, factor, unit, half, names, first, words[i],
                turned[i], totals[i], norms[i], base[i], queries[i], rows, row, planes[i], nobody, bounds[i], held,
                distances[i], ids[i], seen,
            )  # fmt: skip
    return seen
