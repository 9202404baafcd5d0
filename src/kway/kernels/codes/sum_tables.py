"""Products of a query with the codes of many rows, by look-up tables of four bits.

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

from kway.kernels.assembler import I16, Assembler, nothing
from kway.kernels.codes.row_tiles import TABLE_FEATURES, TILE_ROWS, look_up, pick_lanes
from kway.kernels.jit import kernel
from kway.kernels.lanes import cpu_has

_CALL_ROWS = 64  # rows per call, a divisor of TILE_ROWS: four registers of sums hide the latency of additions
_PAIRS = ir.VectorType(I16, 16)
_PATTERN_BITS = ((np.arange(16) >> np.arange(4)[:, None]) & 1).astype(np.float32)  # (4, 16)


@intrinsic
def _sum_entries(typing_context, nibbles, tables, count, out):
    """Write the sums of _CALL_ROWS rows over `count` tables as uint16; all arguments but count are addresses."""

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        nibbles, tables, count, out = arguments
        low_byte, eight = a.same(_PAIRS, 255), a.same(_PAIRS, 8)

        def step(g, sums):  # sums[2 u] are those of even rows, sums[2 u + 1] of odd rows
            new = []
            for u in range(_CALL_ROWS // 32):
                rows = a.at(a.at(nibbles, g, TILE_ROWS), 32 * u)
                entries = builder.bitcast(look_up(a, a.at(tables, g, 16), rows), _PAIRS)
                new.append(builder.add(sums[2 * u], builder.and_(entries, low_byte)))
                new.append(builder.add(sums[2 * u + 1], builder.lshr(entries, eight)))
            return new

        sums = a.loop(count, [a.same(_PAIRS, 0)] * (_CALL_ROWS // 16), step)
        alternating = [row + 16 * odd for row in range(16) for odd in range(2)]
        for u in range(_CALL_ROWS // 32):
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
            for r in range(0, n, _CALL_ROWS):
                _sum_entries(
                    np.uint64(nibbles.ctypes.data + TILE_ROWS * n_groups * b + r), np.uint64(tables.ctypes.data),
                    n_groups, np.uint64(sums.ctypes.data + 2 * (TILE_ROWS * b + r)),
                )  # fmt: skip
        else:
            sums[b, :n] = 0
            for g in range(n_groups):
                for r in range(n):
                    sums[b, r] += np.uint16(tables[g, nibbles[n_groups * b + g, r]])
