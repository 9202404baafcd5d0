"""The first filter of a scan of all codes: it compares a small part of the bits of each row, and passes few rows.

The bits in which a row and the query differ are weighted by the query's coordinates:

    w_j = 0..MAX_WEIGHT      integer weight of bit j, close to a multiple of |q_j|
    groups (q, G)            groups of four bits, out of 16 P in the P words of `head`, compared for all rows
    tables (q, G, 16)        for each of these groups, the weight of the differing bits of each of the 16 patterns
    S_r                      the weight of the differing bits of row r in these groups, in saturating bytes
    planes (q, 2, P, 6)      bit b of the weights, of these groups and of all bits, by which single rows are weighed

S is linear in the query, unlike a count of differing signs, and groups of large coordinates are the most informative:
36 of 64 groups, 144 bits, are as good as 280 bits that are only counted. A row passes if S_r is at most limits[0], and
then the weight of its differing bits in all P words is at most limits[1].

For a row at cosine c to the query, bit j differs with the probability

    p_j = Phi(-c a_j / sqrt((1 - c^2) (1 - a_j^2) / (D - 1))),  a_j = |q_j| / ||q||

because the rotation is random. Therefore S has the mean sum w p. The part of a row orthogonal to the query has no
component along it, so the variance is sum w^2 p (1 - p) - (sum w a phi)^2. The third moment corrects the tail.

`scan_first` offers the rows that pass to heaps. The k-th distance is known only afterwards. `enough` then decides, for
each query, whether every nearer row must have passed, except with the probability of `z` normal deviations. If not,
`scan_bits` (bit_scan.py) scans all rows. The limits decrease with the k-th distance during a scan.
"""

from __future__ import annotations

import math
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import I8, I32, I64, Assembler
from kway.kernels.codes.bit_scan import key_of, least_cosine, offer_rows, one_query
from kway.kernels.codes.row_tiles import BYTES_32, TABLE_FEATURES, TILE_ROWS, look_up, transpose_word
from kway.kernels.jit import kernel
from kway.kernels.lanes import cpu_has, ctz, popcount, touch, touch_row
from kway.kernels.topk import EMPTY

BLOCK_ROWS = 2048  # rows whose passing rows are offered together; a multiple of TILE_ROWS, decided by C1
MASK_WORDS = TILE_ROWS // 64  # words of the mask of a tile
HIT_STEP = np.iinfo(np.uint32).max + 1  # difference between the hits of two tiles: more than there are queries
MAX_SUM = np.iinfo(np.uint8).max - 1  # largest limit of S, because sums saturate at one more
MAX_WEIGHT = np.iinfo(np.uint8).max // 4  # largest weight of a bit: four of them fit in a byte
WEIGHT_BITS = MAX_WEIGHT.bit_length()
_LINE = np.uint64(64)  # bytes of a cache line
_LINES = np.uint64(8 * TILE_ROWS // 64)  # cache lines of one word of a tile


class FirstFilter(NamedTuple):
    """The filters of q queries; the module docstring explains tables, groups, planes and limits."""

    n_words: int  # words that contain the groups
    tables: Any  # (q, G, 16) uint8
    groups: Any  # (q, G) uint8
    planes: Any  # (q, 2, P, WEIGHT_BITS) uint64
    limits: Any  # (q, 2) int64
    counts: Any  # (q, 2, MAX_WEIGHT + 1) int64, number of bits of each weight, in the groups and in all words
    steps: Any  # (q,) float64, a_j per unit of weight


@intrinsic
def _add_tables(typing_context, nibbles, tables, groups, count, limit, out):
    """Return whether S <= limit for any row of a tile; if so, write one bit per row to the mask at `out`.

    All arguments but count and limit are addresses. In five of six tiles no row passes, so the smallest sums are
    compared first.
    """

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        nibbles, tables, groups, count, limit, out = arguments

        def step(g, sums):
            group, new = builder.zext(a.load(a.at(groups, g), I8, 1), I64), []
            for u, total in enumerate(sums):
                entries = look_up(a, a.at(tables, g, 16), a.at(a.at(nibbles, group, TILE_ROWS), 32 * u))
                new.append(a.call("llvm.uadd.sat.v32i8", BYTES_32, [total, entries]))
            return new

        def passes(total):
            return builder.bitcast(builder.icmp_unsigned("<=", total, limits), I32)

        limits = a.splat(builder.trunc(limit, I8), 32)
        sums = a.loop(count, [a.same(BYTES_32, 0)] * (TILE_ROWS // 32), step)
        smallest = reduce(lambda x, y: a.call("llvm.umin.v32i8", BYTES_32, [x, y]), sums)
        any_passes = builder.icmp_unsigned("!=", passes(smallest), ir.Constant(I32, 0))
        with builder.if_then(any_passes, likely=False):
            for u, total in enumerate(sums):
                a.store(passes(total), a.at(out, 4 * u), 4)
        return builder.zext(any_passes, I64)

    def never(context, builder, signature, arguments):
        return ir.Constant(I64, 0)

    numbers = (types.uint64, types.uint64, types.uint64, types.int64, types.int64, types.uint64)
    return types.int64(*numbers), emit if cpu_has(*TABLE_FEATURES) else never


@kernel
def fill_tables(weights, words, groups, tables):
    """Fill tables (q, G, 16) from weights (q, 64 P) uint8, the signs of queries, words (q, W), and groups (q, G)."""
    for i in range(len(tables)):
        for t in range(tables.shape[1]):
            g = np.int64(groups[i, t])
            signs = (words[i, g // 16] >> np.uint64(4 * (g % 16))) & np.uint64(15)
            for pattern in range(16):
                differ, total = np.uint64(pattern) ^ signs, 0
                for j in range(4):
                    if (differ >> np.uint64(j)) & np.uint64(1):
                        total += weights[i, 4 * g + j]
                tables[i, t, pattern] = total


@kernel
def weigh_bits(head, row, words, planes):
    """Return the weight of the bits in which one row differs from the query's words (W,).

    planes (P, 6): bit b of the weights of each word, so that a word takes six bit counts instead of 16 tables.
    """
    total = np.int64(0)
    for w in range(np.uint64(len(head))):
        differ, p = head[w, np.uint64(row)] ^ words[w], planes[w]
        for b in range(WEIGHT_BITS):
            total += popcount(differ & p[b]) << b
    return total


@kernel
def filter_block(head, start, stop, filters, words, limits, nibbles, masks, hits, fast):
    """Write masks (q, m) uint64 with one bit per row start..stop: whether S is at most limits (q,); -1: no row passes.

    Masks are written only for tiles in which a row passes. hits (m q,) int64 lists these tiles as HIT_STEP t + i for
    tile t and query i; the function returns their number. limits are at most MAX_SUM. nibbles (16 P, TILE_ROWS) is
    memory. An incomplete last tile, and all tiles unless `fast`, are weighed row by row, with words (q, W) and the
    filter's planes.

    All queries read a tile before the next one is read, too late for the hardware prefetcher. Therefore each query
    prefetches its share of the next tile.
    """
    count, tables, groups = 0, filters.tables, filters.groups
    q, stride, lines = len(tables), np.uint64(head.strides[0]), np.uint64(filters.n_words) * _LINES
    lines_per_query = np.uint64((lines + np.uint64(q - 1)) // np.uint64(q))
    for t, low in enumerate(range(start, stop, TILE_ROWS)):
        high = min(stop, low + TILE_ROWS)
        if not fast or high - low < TILE_ROWS:
            for i in range(q):
                hits[count] = HIT_STEP * t + i
                mask = masks[i, MASK_WORDS * t : MASK_WORDS * (t + 1)]
                count += _weigh_rows(head, low, high, words[i], filters.planes[i, 0], limits[i], mask)
            continue
        for w in range(filters.n_words):
            for r in range(0, TILE_ROWS, 32):
                transpose_word(
                    np.uint64(head[w].ctypes.data + 8 * (low + r)),
                    np.uint64(nibbles.ctypes.data + 16 * TILE_ROWS * w + r),
                )
        next_tile, line, end = np.uint64(head.ctypes.data + 8 * high), np.uint64(0), np.uint64(0)
        for i in range(q):
            end = min(lines, end + lines_per_query)
            while line < end:
                touch(next_tile + stride * (line // _LINES) + _LINE * (line % _LINES))
                line += np.uint64(1)
            if limits[i] >= 0:
                hits[count] = HIT_STEP * t + i
                count += _add_tables(
                    np.uint64(nibbles.ctypes.data), np.uint64(tables.ctypes.data + tables.strides[0] * i),
                    np.uint64(groups.ctypes.data + groups.strides[0] * i), groups.shape[1], limits[i],
                    np.uint64(masks.ctypes.data + masks.strides[0] * i + 8 * MASK_WORDS * t),
                )  # fmt: skip
    return count


@kernel
def _weigh_rows(head, start, stop, words, planes, limit, mask):
    """Write the mask (MASK_WORDS,) of rows start..stop, at most TILE_ROWS; return 1 if any row passes, else 0."""
    mask[:] = 0
    for row in range(start, stop):
        if weigh_bits(head, row, words, planes) <= limit:
            mask[(row - start) // 64] |= np.uint64(1) << np.uint64((row - start) % 64)
    return np.int64(mask.any())


@kernel
def max_weight(cosine, z, counts, step, dim):
    """Return the largest weight S of a row at this cosine, except with the probability of z normal deviations.

    counts (MAX_WEIGHT + 1,): number of bits of each weight; step: a_j of a weight of 1; dim: D.
    """
    c = min(max(cosine, -1.0), 1.0)
    mean, variance, third_moment, along = 0.0, 0.0, 0.0, 0.0
    for w in range(1, len(counts)):
        if counts[w] > 0:
            a = min(w * step, 1.0)
            x = c * a / np.sqrt(max((1.0 - c * c) * (1.0 - a * a) / (dim - 1.0), 1e-30))
            p = 0.5 * math.erfc(x / np.sqrt(2.0))
            mean += counts[w] * w * p
            variance += counts[w] * w * w * p * (1.0 - p)
            third_moment += counts[w] * w * w * w * p * (1.0 - p) * (1.0 - 2.0 * p)
            along += counts[w] * w * a * np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    variance = max(variance - along * along, 0.25 * variance, 1e-30)
    skewness_term = (z * z - 1.0) / 6.0 * max(third_moment, 0.0) / variance  # Cornish-Fisher expansion
    # an integer sum exceeds its limit from half a step on, and the rounding of the weights may add one
    return mean + z * np.sqrt(variance) + skewness_term + 1.5


@kernel
def _needed_limits(estimator, worst, queries, i, shortest, longest, filters, limits):
    """Compute limits (2,) that all rows nearer than `worst` to query i pass, with lengths shortest..longest."""
    key, cosine = key_of(estimator.squared, worst, queries.base[i]), -1.0
    if key < EMPTY:
        cosine = least_cosine(estimator.squared, key, queries.norms[i], shortest, longest)
    for j in range(2):
        dim = queries.rotated.shape[1]
        limits[j] = np.int64(max_weight(cosine, estimator.z, filters.counts[i, j], filters.steps[i], dim))


@kernel
def enough(estimator, worst, queries, shortest, longest, filters, out):
    """Compute out (q,): whether every row nearer than the k-th distance so far, worst (q,), passed the filter."""
    needed = np.empty(2, np.int64)
    for i in range(len(worst)):
        out[i] = False
        if worst[i] < EMPTY:
            _needed_limits(estimator, worst[i], queries, i, shortest, longest, filters, needed)
            out[i] = needed[0] <= filters.limits[i, 0] and needed[1] <= filters.limits[i, 1]


@kernel
def _passing_rows(hits, masks, start, coded, filters, words, limits, passing):
    """Write BLOCK_ROWS i + r to `passing` for each row start + r that passes query i by all P words; return how many.

    Their codes are prefetched.
    """
    head, candidates = coded.head, 0
    for hit in hits:
        i, first = hit % HIT_STEP, MASK_WORDS * (hit // HIT_STEP)
        for j in range(first, first + MASK_WORDS):
            mask = masks[i, j]
            while mask:
                r = 64 * j + ctz(mask)
                mask &= mask - np.uint64(1)
                passing[candidates] = BLOCK_ROWS * i + r
                candidates += 1
                for w in range(filters.n_words, len(head)):
                    touch(np.uint64(head[w].ctypes.data + 8 * (start + r)))
    count = 0
    for j in range(candidates):
        i, row = passing[j] // BLOCK_ROWS, start + passing[j] % BLOCK_ROWS
        if weigh_bits(head, row, words[i], filters.planes[i, 1]) <= limits[i]:
            touch_row(coded.rest, row, 0, 8 * coded.rest.shape[1])
            touch(np.uint64(coded.factor.ctypes.data + row * coded.factor.itemsize))
            passing[count] = passing[j]
            count += 1
    return count


@kernel
def scan_first(estimator, coded, queries, shortest, longest, start, stop, filters, fast, distances, ids):
    """Offer the rows of start..stop that pass `filters` to the heaps; the other arguments are those of `scan_bits`."""
    q, words = len(queries.words), queries.words
    counts, row, needed = np.zeros(2, np.int64), np.empty(1, np.int64), np.empty(2, np.int64)
    limits, known = filters.limits.T.copy(), np.full(q, EMPTY)  # the limits decrease with the k-th distances known
    nibbles = np.empty((16 * len(coded.head), TILE_ROWS), np.uint8)
    masks, hits = np.empty((q, BLOCK_ROWS // 64), np.uint64), np.empty(BLOCK_ROWS // TILE_ROWS * q + 1, np.int64)
    row_words, passing = np.empty(coded.bits * words.shape[1], np.uint64), np.empty(BLOCK_ROWS * q, np.int64)
    for low in range(start, stop, BLOCK_ROWS):
        for i in range(q):
            if distances[i, 0] < known[i]:
                known[i] = distances[i, 0]
                _needed_limits(estimator, known[i], queries, i, shortest, longest, filters, needed)
                for j in range(2):
                    limits[j, i] = min(filters.limits[i, j], needed[j])
        high = min(stop, low + BLOCK_ROWS)
        n_hits = filter_block(coded.head, low, high, filters, words, limits[0], nibbles, masks, hits, fast)
        for j in range(_passing_rows(hits[:n_hits], masks, low, coded, filters, words, limits[1], passing)):
            i, row[0] = passing[j] // BLOCK_ROWS, low + passing[j] % BLOCK_ROWS
            query = one_query(queries, i)
            offer_rows(estimator, coded, query, row, EMPTY, row_words, distances[i], ids[i], counts)
    return counts
