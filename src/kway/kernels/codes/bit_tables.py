"""The first filter of codes: a bit that differs weighs as much as the query's coordinate; 32 rows are added at once.

    w_j = 0..MOST_WEIGHT      whole numbers, close to a multiple of |q_j|
    groups (q, G)             of four bits, of the 16 P in P words: those that are asked of all rows
    tables (q, G, 16)         what each of the 16 ways of a row weighs, in each of them
    planes (q, 2, P, 6)       bit b of the weights, of these groups and of all: a row alone is weighed by counts of bits
    S_r                       weight of the bits of these groups in which sign(q) and row r differ; it saturates

S is linear in the query, which signs alone are not, and groups of large coordinates tell most: 36 of 64 groups, 144
bits, tell as much as 280 bits that are merely counted. A table is a register, so that one instruction looks a group of
32 rows up and another adds (AVX2); rows are spread to half bytes once for all queries.

Of a row at cosine c to the query bit j differs with the chance

    p_j = Phi(-c a_j / sqrt((1 - c^2) (1 - a_j^2) / (D - 1))),  a_j = |q_j| / ||q||

as the rotation was drawn at random. So S has the mean sum w p and, as what lies beside the query has nothing along it,
the variance sum w^2 p (1 - p) - (sum w a phi)^2; its third moment tells how much longer its tail is than a normal's.
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

TABLE_FEATURES = ("avx2",)  # that the fast way needs
TABLE_ROWS = 256  # rows of a tile (C1)
TILE_WORDS = TABLE_ROWS // 64  # of a mask
TILE_STEP = 2**32  # from tile to tile in a list of hits, more than there are queries
_LINE = np.uint64(64)  # bytes of a line of the cache
_LINES = np.uint64(8 * TABLE_ROWS // 64)  # of one word of a tile
MOST_SUM = 254  # that a filter may ask for: sums saturate one above
WEIGHT_BITS = 6  # of the weight of a bit
MOST_WEIGHT = 2**WEIGHT_BITS - 1  # of a bit: four of them fit into a byte

_TILE_BYTES = ir.VectorType(I8, 32)
_HALF = ir.VectorType(I8, 16)


def _picked(builder, x, y, places):
    """Bytes of x and y by their places."""
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(places)), places))


def _woven(builder, x, y, size, high):
    """Units of so many bytes of x and y in turn, of the lower or the upper half of each 16 bytes."""
    places = []
    for lane in (0, 16):
        for start in range(lane + 8 * high, lane + 8 * high + 8, size):
            places += [*range(start, start + size), *range(32 + start, 32 + start + size)]
    return _picked(builder, x, y, places)


def _turned_over(builder, held):
    """Eight vectors of 4 rows x 8 bytes -> eight of one byte of 32 rows."""
    pairs = [lane + 8 * row + byte for lane in (0, 16) for byte in range(8) for row in range(2)]
    held = [_picked(builder, x, x, pairs) for x in held]
    for size, apart in ((2, 1), (4, 2), (8, 4)):
        held = [_woven(builder, held[i & ~apart], held[i | apart], size, bool(i & apart)) for i in range(8)]
    return [held[int(f"{i:03b}"[::-1], 2)] for i in range(8)]


@intrinsic
def _spread_word(typing_context, rows, out):
    """A word of 32 rows, side by side, as 16 x 32 half bytes, TABLE_ROWS bytes apart; both are addresses."""

    def emit(context, builder, signature, arguments):
        a, (rows, out) = Assembler(builder), arguments
        held = []
        for i in range(8):  # rows 2 i, 2 i + 1 and 16 + 2 i, 17 + 2 i, so that they come out in their order
            low, high = (a.load(a.at(rows, start + 16 * i), _HALF, 8) for start in (0, 128))
            held.append(_picked(builder, low, high, list(range(32))))
        four, mask = a.same(_TILE_BYTES, 4), a.same(_TILE_BYTES, 15)
        for k, byte in enumerate(_turned_over(builder, held)):
            a.store(builder.and_(byte, mask), a.at(out, 2 * k * TABLE_ROWS), 1)
            a.store(builder.lshr(byte, four), a.at(out, (2 * k + 1) * TABLE_ROWS), 1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), emit if cpu_has(*TABLE_FEATURES) else nothing


@intrinsic
def _add_tables(typing_context, halves, tables, groups, count, most, out):
    """Whether S <= most for any of TABLE_ROWS rows; then out: a bit for each. halves (16 P, TABLE_ROWS).

    In five of six tiles nobody passes: one comparison, of the least sums, tells so.
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
    """tables (q, G, 16) uint8 of weights (q, 64 P) uint8 and the signs of the queries, words (q, W); groups (q, G)."""
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
    """The weight of the bits of P words in which one row differs from the query's words (W,).

    planes (P, 6): bit b of the weights of each word, so that it takes six counts of bits a word, not 16 tables.
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
    """masks (q, m) uint64: a bit for each of the rows low..high, whether S <= mosts (q,); -1 lets nobody pass.

    Answers how many tiles of TABLE_ROWS rows have one that passes, hits[:.] of (m q,) int64, tile t of query i as
    TILE_STEP t + i: only there is the mask written.
    which: FirstFilter of bit_scan.py. halves (16 P, TABLE_ROWS) uint8 is room. mosts are MOST_SUM at most.
    words (q, W) and the filter's planes say the same of rows one by one: the last, and all if not `fast`.
    Rows are read once in many queries, too seldom for the processor to see them coming: without asking ahead 64 queries
    took a tenth longer.
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
                _spread_word(
                    np.uint64(head[w].ctypes.data + 8 * (first + row)),
                    np.uint64(halves.ctypes.data + 16 * TABLE_ROWS * w + row),
                )
        ahead, line, stop = np.uint64(head.ctypes.data + 8 * last), np.uint64(0), np.uint64(0)
        for i in range(q):
            stop = min(lines, stop + few)
            while line < stop:  # of the next tile, while this one is added
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
    """mask (TILE_WORDS,) of the rows first..last, TABLE_ROWS at most; 1 if any passes, else 0."""
    mask[:] = 0
    for row in range(first, last):
        if weigh_bits(head, row, words, planes) <= most:
            mask[(row - first) // 64] |= np.uint64(1) << np.uint64((row - first) % 64)
    return np.int64(mask.any())


@kernel
def most_weight(cosine, z, counts, step, wide):
    """What S may be at this cosine, but for the chance that z (of a normal) stands for.

    counts (MOST_WEIGHT + 1,): bits of each weight; step: a_j of a weight of 1; wide: D.
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
    longer = (z * z - 1.0) / 6.0 * max(third, 0.0) / variance  # Cornish and Fisher
    return mean + z * np.sqrt(variance) + longer + 1.5  # weights are rounded
