"""Codes of many rows transposed into nibbles, and products of a query with them by look-up tables of four bits.

One AVX2 shuffle looks up a table of 16 entries for the nibbles of 32 rows.

A tile has TILE_ROWS rows, and is transposed once for all queries of a batch. Byte r of nibbles[g] (TILE_ROWS,) contains
the bits 4 g .. 4 g + 3 of row r. This is the fast scan of Andre, Kermarrec and Le Scouarnec, "Cache locality is not
enough" (VLDB 2015).

    W   words of 64 bits per bit plane, D / 64 for D rotated columns
    B   bit planes: bits per column
    P   words of a row in `head`, where a filter reads them for adjacent rows; `rest` contains the other B W - P words

The tables of a query give its products with one bit plane of every row:

    v (D,)            the rotated query
    b_r (D,)          one bit plane of row r, as numbers 0 and 1
    tables (G, 16)    uint8, G = D / 4: round((<v_g, pattern> - low_g) / unit) for the four columns v_g of group g, each
                      of the 16 patterns of bits, and the smallest product low_g of the group
    S_r               the sum of the entries that the bits of row r select

    <v, b_r> = unit S_r + low + error,    low = sum of low_g,    |error| <= unit G / 2

because each of the G entries is rounded by at most unit / 2. `unit` is chosen so that entries fit in 8 bits and sums in
16 bits.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import I8, I16, I32, Assembler, nothing
from kway.kernels.jit import kernel
from kway.kernels.lanes import cpu_has

TABLE_FEATURES = ("avx2",)  # CPU features of the vectorized look-ups
TILE_ROWS = 256  # rows of a tile, whose nibbles stay in the L1 cache; decided by the benchmark of code scans (C1)

# rows per call of `_sum_entries`, a divisor of TILE_ROWS: four registers of sums hide the latency of additions
_SUM_ROWS = 64
_PAIRS = ir.VectorType(I16, 16)
_PATTERN_BITS = ((np.arange(16) >> np.arange(4)[:, None]) & 1).astype(np.float32)  # (4, 16)

BYTES_32, BYTES_16 = ir.VectorType(I8, 32), ir.VectorType(I8, 16)


def pick_lanes(builder, x, y, positions):
    """Return the elements of the vectors x and y at `positions`; positions from len(x) on are elements of y."""
    return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(I32, len(positions)), positions))


def look_up(a, table, nibbles):
    """Emit a table look-up with the Assembler `a`; return the entries (32 bytes) for the nibbles of 32 rows.

    `table` and `nibbles` are the addresses of 16 and 32 bytes.
    """
    entries = a.load(table, BYTES_16, 1)
    both_lanes = pick_lanes(a.builder, entries, entries, [*range(16)] * 2)  # a shuffle stays within 16 bytes
    return a.call("llvm.x86.avx2.pshuf.b", BYTES_32, [both_lanes, a.load(nibbles, BYTES_32, 1)])


def _interleave(builder, x, y, size, high):
    """Interleave units of `size` bytes of x and y, taken from the lower (or `high`) 8 bytes of each 16-byte lane."""
    positions = []
    for lane in (0, 16):
        for start in range(lane + 8 * high, lane + 8 * high + 8, size):
            positions += [*range(start, start + size), *range(32 + start, 32 + start + size)]
    return pick_lanes(builder, x, y, positions)


def _transpose(builder, vectors):
    """Transpose eight vectors of 4 rows x 8 bytes to eight vectors of one byte of 32 rows."""
    pairs = [lane + 8 * row + byte for lane in (0, 16) for byte in range(8) for row in range(2)]
    vectors = [pick_lanes(builder, x, x, pairs) for x in vectors]
    for size, step in ((2, 1), (4, 2), (8, 4)):
        vectors = [_interleave(builder, vectors[i & ~step], vectors[i | step], size, bool(i & step)) for i in range(8)]
    return [vectors[int(f"{i:03b}"[::-1], 2)] for i in range(8)]


@intrinsic
def transpose_word(typing_context, rows, out):
    """Write one word of 32 adjacent rows as 16 x 32 nibbles, TILE_ROWS bytes apart; both arguments are addresses."""

    def emit(context, builder, signature, arguments):
        a, (rows, out) = Assembler(builder), arguments
        vectors = []
        for i in range(8):  # rows 2 i, 2 i + 1, 16 + 2 i, 17 + 2 i: in this order, the transpose returns sorted rows
            low, high = (a.load(a.at(rows, start + 16 * i), BYTES_16, 8) for start in (0, 128))
            vectors.append(pick_lanes(builder, low, high, list(range(32))))
        four, mask = a.same(BYTES_32, 4), a.same(BYTES_32, 15)
        for k, byte in enumerate(_transpose(builder, vectors)):
            a.store(builder.and_(byte, mask), a.at(out, 2 * k * TILE_ROWS), 1)
            a.store(builder.lshr(byte, four), a.at(out, (2 * k + 1) * TILE_ROWS), 1)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), emit if cpu_has(*TABLE_FEATURES) else nothing


@kernel
def transpose_rows(head, rest, start, stop, words, nibbles, fast):
    """Write the nibbles of rows start..stop (exclusive), at most TILE_ROWS, to nibbles (16 B W, TILE_ROWS).

    head (P, n) and rest (n, B W - P) contain the B W words of each row, as in BitRows. All arrays must
    be C-contiguous. `words` (TILE_ROWS,) uint64 is a scratch buffer. If `fast`, the CPU must have TABLE_FEATURES, and
    the nibbles of rows after `stop`, up to the next multiple of 32, contain garbage.
    """
    n_head, n = len(head), stop - start
    for w in range(n_head):
        if fast and n == TILE_ROWS:  # without a copy, which would take as long as the transpose
            _transpose_tile(np.uint64(head[w].ctypes.data + 8 * start), n, nibbles, w)
            continue
        for r in range(n):
            words[r] = head[w, start + r]
        _transpose_words(words, n, nibbles, w, fast)
    for w in range(rest.shape[1]):
        for r in range(n):
            words[r] = rest[start + r, w]
        _transpose_words(words, n, nibbles, n_head + w, fast)


@kernel
def _transpose_words(words, n, nibbles, w, fast):
    """Write the nibbles of words[:n], which are word w of n rows."""
    if fast:
        _transpose_tile(np.uint64(words.ctypes.data), n, nibbles, w)
        return
    for g in range(16):
        for r in range(n):
            nibbles[16 * w + g, r] = (words[r] >> np.uint64(4 * g)) & np.uint64(15)


@kernel
def _transpose_tile(address, n, nibbles, w):
    """Write the nibbles of n adjacent words at an address, which are word w of n rows."""
    for r in range(0, n, 32):
        transpose_word(address + np.uint64(8 * r), np.uint64(nibbles.ctypes.data + 16 * TILE_ROWS * w + r))


# ---- products by tables


@intrinsic
def _sum_entries(typing_context, nibbles, tables, count, out):
    """Write the sums of _SUM_ROWS rows over `count` tables as uint16; all arguments but count are addresses."""

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        nibbles, tables, count, out = arguments
        low_byte, eight = a.same(_PAIRS, 255), a.same(_PAIRS, 8)

        def step(g, sums):  # sums[2 u] are those of even rows, sums[2 u + 1] of odd rows
            new = []
            for u in range(_SUM_ROWS // 32):
                rows = a.at(a.at(nibbles, g, TILE_ROWS), 32 * u)
                entries = builder.bitcast(look_up(a, a.at(tables, g, 16), rows), _PAIRS)
                new.append(builder.add(sums[2 * u], builder.and_(entries, low_byte)))
                new.append(builder.add(sums[2 * u + 1], builder.lshr(entries, eight)))
            return new

        sums = a.loop(count, [a.same(_PAIRS, 0)] * (_SUM_ROWS // 16), step)
        alternating = [row + 16 * odd for row in range(16) for odd in range(2)]
        for u in range(_SUM_ROWS // 32):
            a.store(pick_lanes(builder, sums[2 * u], sums[2 * u + 1], alternating), a.at(out, 64 * u), 1)
        return context.get_dummy_value()

    numbers = (types.uint64, types.uint64, types.int64, types.uint64)
    return types.void(*numbers), emit if cpu_has(*TABLE_FEATURES) else nothing


@kernel
def fill_sum_tables(query, tables):
    """Fill tables (G, 16) of a rotated query (D,); return `unit` and `low`."""
    widest, low, zero = np.float32(0), np.float32(0), np.float32(0)
    for g in range(len(tables)):
        width = np.float32(0)
        for j in range(4):
            width += abs(query[4 * g + j])
        widest = max(widest, width)
    max_entry = min(np.iinfo(np.uint8).max, np.iinfo(np.uint16).max // len(tables))
    unit = max(widest / np.float32(max_entry), np.finfo(np.float32).tiny)
    scale = np.float32(1) / unit
    for g in range(len(tables)):
        a, b = query[4 * g] * scale, query[4 * g + 1] * scale
        c, d = query[4 * g + 2] * scale, query[4 * g + 3] * scale
        smallest = min(a, zero) + min(b, zero) + min(c, zero) + min(d, zero)
        low += smallest
        for p in range(16):
            product = a * _PATTERN_BITS[0, p] + b * _PATTERN_BITS[1, p]
            product += c * _PATTERN_BITS[2, p] + d * _PATTERN_BITS[3, p]
            tables[g, p] = np.uint8(product - smallest + np.float32(0.5))
    return unit, low * unit


@kernel
def sum_rows(tables, nibbles, n, sums, fast):
    """Compute S of the first n rows of a tile in sums (B, TILE_ROWS) uint16, for each of B bit planes.

    Without AVX2 (`fast` is False), the portable loop computes the same sums.
    """
    n_groups = len(tables)
    for b in range(len(sums)):
        if fast:
            for r in range(0, n, _SUM_ROWS):
                _sum_entries(
                    np.uint64(nibbles.ctypes.data + TILE_ROWS * n_groups * b + r), np.uint64(tables.ctypes.data),
                    n_groups, np.uint64(sums.ctypes.data + 2 * (TILE_ROWS * b + r)),
                )  # fmt: skip
        else:
            sums[b, :n] = 0
            for g in range(n_groups):
                for r in range(n):
                    sums[b, r] += np.uint16(tables[g, nibbles[n_groups * b + g, r]])
