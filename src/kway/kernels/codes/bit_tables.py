"""The first filter of codes: a bit that differs weighs as much as the query's coordinate; 32 rows are added at once.

    w_j = 0..MAX_WEIGHT      whole numbers, close to a multiple of |q_j|
    groups (q, G)             groups of four bits, out of the 16 P in P words, that are compared for all rows
    tables (q, G, 16)         the weight of each of the 16 patterns of a row, for each of these groups
    planes (q, 2, P, 6)       bit b of the weights, for these groups and for all: single rows are weighed by bit counts
    S_r                       weight of the bits of these groups in which sign(q) and row r differ; it saturates

S is linear in the query, unlike a count of signs, and groups of large coordinates are the most informative: 36 of 64
groups, 144 bits, are as good as 280 bits that are only counted. A table fills a register, so one instruction looks up a
group of 32 rows and another one adds (AVX2). Rows are unpacked to half bytes once for all queries.

For a row at cosine c to the query, bit j differs with the probability

    p_j = Phi(-c a_j / sqrt((1 - c^2) (1 - a_j^2) / (D - 1))),  a_j = |q_j| / ||q||

because the rotation is random. Therefore S has the mean sum w p. The part of a row orthogonal to the query has no
component along it, so the variance is sum w^2 p (1 - p) - (sum w a phi)^2. The third moment corrects the tail.
"""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import I8, I32, I64, Assembler, nothing
from kway.kernels.jit import kernel
from kway.kernels.lanes import cpu_has, popcount, touch

TABLE_FEATURES = ("avx2",)  # CPU features of the vectorized filter
TABLE_ROWS = 256  # rows of a tile (C1)
TILE_WORDS = TABLE_ROWS // 64  # words of a mask
TILE_STEP = np.iinfo(np.uint32).max + 1  # between tiles in a list of hits: more than there are queries
_LINE = np.uint64(64)  # bytes of a cache line
_LINES = np.uint64(8 * TABLE_ROWS // 64)  # cache lines of one word of a tile
MAX_SUM = np.iinfo(np.uint8).max - 1  # largest limit of a filter: sums saturate one above
MAX_WEIGHT = np.iinfo(np.uint8).max // 4  # largest weight of a bit: four of them fit into a byte
WEIGHT_BITS = MAX_WEIGHT.bit_length()

_TILE_BYTES = ir.VectorType(I8, 32)
_HALF = ir.VectorType(I8, 16)


def _picked(builder, x, y, places):
    """Return bytes of x and y by their places."""
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(places)), places))


def _woven(builder, x, y, size, high):
    """Interleave units of `size` bytes of x and y, of the lower or the upper half of each 16 bytes."""
    places = []
    for lane in (0, 16):
        for start in range(lane + 8 * high, lane + 8 * high + 8, size):
            places += [*range(start, start + size), *range(32 + start, 32 + start + size)]
    return _picked(builder, x, y, places)


def _transpose(builder, held):
    """Transpose eight vectors of 4 rows x 8 bytes to eight vectors of one byte of 32 rows."""
    pairs = [lane + 8 * row + byte for lane in (0, 16) for byte in range(8) for row in range(2)]
    held = [_picked(builder, x, x, pairs) for x in held]
    for size, apart in ((2, 1), (4, 2), (8, 4)):
        held = [_woven(builder, held[i & ~apart], held[i | apart], size, bool(i & apart)) for i in range(8)]
    return [held[int(f"{i:03b}"[::-1], 2)] for i in range(8)]


@intrinsic
def spread_word(typing_context, rows, out):
    """Write a word of 32 adjacent rows as 16 x 32 half bytes, TABLE_ROWS bytes apart; both are addresses."""

    def emit(context, builder, signature, arguments):
        a, (rows, out) = Assembler(builder), arguments
        held = []
        for i in range(8):  # rows 2 i, 2 i + 1 and 16 + 2 i, 17 + 2 i, so that they come out in their order
            low, high = (a.load(a.at(rows, start + 16 * i), _HALF, 8) for start in (0, 128))
            held.append(_picked(builder, low, high, list(range(32))))
        four, mask = a.same(_TILE_BYTES, 4), a.same(_TILE_BYTES, 15)
        for k, byte in enumerate(_transpose(builder, held)):
            a.store(builder.and_(byte, mask), a.at(out, 2 * k * TABLE_ROWS), 1)
            a.store(builder.lshr(byte, four), a.at(out, (2 * k + 1) * TABLE_ROWS), 1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), emit if cpu_has(*TABLE_FEATURES) else nothing


@intrinsic
def _add_tables(typing_context, halves, tables, groups, count, most, out):
    """Return whether S <= most for any of TABLE_ROWS rows; then write one bit per row. halves (16 P, TABLE_ROWS).

    In five of six tiles no row passes: one comparison of the least sums shows it.
    """

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        halves, tables, groups, count, most, out = arguments

        def step(at, sums):
            group = builder.zext(a.load(a.at(groups, at), I8, 1), I64)
            table = a.load(a.at(tables, at, 16), _HALF, 1)
            table, start, new = _picked(builder, table, table, [*range(16)] * 2), a.at(halves, group, TABLE_ROWS), []
            for u, total in enumerate(sums):
                ways = a.load(a.at(start, 32 * u), _TILE_BYTES, 1)
                found = a.call("llvm.x86.avx2.pshuf.b", _TILE_BYTES, [table, ways])
                new.append(a.call("llvm.uadd.sat.v32i8", _TILE_BYTES, [total, found]))
            return new

        def passes(total):
            return builder.bitcast(builder.icmp_unsigned("<=", total, limit), I32)

        limit = a.splat(builder.trunc(most, I8), 32)
        sums = a.loop(count, [a.same(_TILE_BYTES, 0)] * (TABLE_ROWS // 32), step)
        least = reduce(lambda x, y: a.call("llvm.umin.v32i8", _TILE_BYTES, [x, y]), sums)
        any_one = builder.icmp_unsigned("!=", passes(least), ir.Constant(I32, 0))
        with builder.if_then(any_one, likely=False):
            for u, total in enumerate(sums):
                a.store(passes(total), a.at(out, 4 * u), 4)
        return builder.zext(any_one, I64)

    def never(context, builder, signature, arguments):
        return ir.Constant(I64, 0)

    numbers = (types.uint64, types.uint64, types.uint64, types.int64, types.int64, types.uint64)
    return types.int64(*numbers), emit if cpu_has(*TABLE_FEATURES) else never


@kernel
def fill_tables(weights, words, groups, tables):
    """Fill tables (q, G, 16) uint8 from weights (q, 64 P) uint8, signs of queries, words (q, W), and groups (q, G)."""
    for i in range(len(tables)):
        for at in range(tables.shape[1]):
            g = np.int64(groups[i, at])
            mine = (words[i, g // 16] >> np.uint64(4 * (g % 16))) & np.uint64(15)
            for way in range(16):
                differ, total = np.uint64(way) ^ mine, 0
                for j in range(4):
                    if (differ >> np.uint64(j)) & np.uint64(1):
                        total += weights[i, 4 * g + j]
                tables[i, at, way] = total


@kernel
def weigh_bits(head, row, words, planes):
    """Return the weight of the bits of P words in which one row differs from the query's words (W,).

    planes (P, 6): bit b of the weights of each word, so that a word takes six bit counts, not 16 tables.
    """
    total = np.int64(0)
    for w in range(np.uint64(len(head))):
        differ, p = head[w, np.uint64(row)] ^ words[w], planes[w]
        total += (
            popcount(differ & p[0])
            + (popcount(differ & p[1]) << 1)
            + (popcount(differ & p[2]) << 2)
            + (popcount(differ & p[3]) << 3)
            + (popcount(differ & p[4]) << 4)
            + (popcount(differ & p[5]) << 5)
        )
    return total


@kernel
def near_tables(head, low, high, which, words, mosts, halves, masks, hits, fast):
    """Write masks (q, m) uint64: one bit for each of the rows low..high, whether S <= mosts (q,); -1: no row passes.

    Returns the number of tiles of TABLE_ROWS rows with a passing row. hits (m q,) int64 lists them: TILE_STEP t + i for
    tile t of query i; masks are written only there.
    which: FirstFilter of bit_scan.py. halves (16 P, TABLE_ROWS) uint8 is memory. mosts are at most MAX_SUM.
    The last rows, and all rows if not `fast`, are weighed one by one with words (q, W) and the filter's planes.
    Each tile is read once for many queries, too seldom for the hardware prefetcher, so the next one is prefetched.
    """
    count, width, tables, groups, planes = 0, which.width, which.tables, which.groups, which.planes
    q, stride, lines = len(tables), np.uint64(head.strides[0]), np.uint64(width) * _LINES
    few = np.uint64((lines + np.uint64(q - 1)) // np.uint64(q))
    for t, first in enumerate(range(low, high, TABLE_ROWS)):
        last = min(high, first + TABLE_ROWS)
        if not fast or last - first < TABLE_ROWS:
            for i in range(q):
                hits[count] = TILE_STEP * t + i
                count += _one_by_one(
                    head, first, last, words[i], planes[i, 0], mosts[i], masks[i, TILE_WORDS * t : TILE_WORDS * (t + 1)]
                )
            continue
        for w in range(width):
            for row in range(0, TABLE_ROWS, 32):
                spread_word(
                    np.uint64(head[w].ctypes.data + 8 * (first + row)),
                    np.uint64(halves.ctypes.data + 16 * TABLE_ROWS * w + row),
                )
        ahead, line, stop = np.uint64(head.ctypes.data + 8 * last), np.uint64(0), np.uint64(0)
        for i in range(q):
            stop = min(lines, stop + few)
            while line < stop:  # prefetch the next tile while this one is added
                touch(ahead + stride * (line // _LINES) + _LINE * (line % _LINES))
                line += np.uint64(1)
            if mosts[i] >= 0:
                hits[count] = TILE_STEP * t + i
                count += _add_tables(
                    np.uint64(halves.ctypes.data), np.uint64(tables.ctypes.data + tables.strides[0] * i),
                    np.uint64(groups.ctypes.data + groups.strides[0] * i), groups.shape[1], mosts[i],
                    np.uint64(masks.ctypes.data + masks.strides[0] * i + 8 * TILE_WORDS * t),
                )  # fmt: skip
    return count


@kernel
def _one_by_one(head, first, last, words, planes, most, mask):
    """Write mask (TILE_WORDS,) of the rows first..last, at most TABLE_ROWS; return 1 if any passes, else 0."""
    mask[:] = 0
    for row in range(first, last):
        if weigh_bits(head, row, words, planes) <= most:
            mask[(row - first) // 64] |= np.uint64(1) << np.uint64((row - first) % 64)
    return np.int64(mask.any())


@kernel
def most_weight(cosine, z, counts, step, wide):
    """Return the largest S at this cosine, except with the probability of z normal deviations.

    counts (MAX_WEIGHT + 1,): number of bits of each weight; step: a_j of a weight of 1; wide: D.
    """
    c = min(max(cosine, -1.0), 1.0)
    mean, variance, third, along = 0.0, 0.0, 0.0, 0.0
    for w in range(1, len(counts)):
        if counts[w] > 0:
            a = min(w * step, 1.0)
            x = c * a / np.sqrt(max((1.0 - c * c) * (1.0 - a * a) / (wide - 1.0), 1e-30))
            p = 0.5 * math.erfc(x / np.sqrt(2.0))
            mean += counts[w] * w * p
            variance += counts[w] * w * w * p * (1.0 - p)
            third += counts[w] * w * w * w * p * (1.0 - p) * (1.0 - 2.0 * p)
            along += counts[w] * w * a * np.exp(-0.5 * x * x) / np.sqrt(2.0 * np.pi)
    variance = max(variance - along * along, 0.25 * variance, 1e-30)
    longer = (z * z - 1.0) / 6.0 * max(third, 0.0) / variance  # Cornish-Fisher expansion
    return mean + z * np.sqrt(variance) + longer + 1.5  # weights are rounded
