"""Products of one query with the codes of many rows, by tables of four bits: a fast scan as in faiss.

    v (D,)             the rotated query; b_r (D,) one plane of bits of row r
    tables (G, 16)     uint8, G = D / 4: round((<v_g, pattern> - low_g) / unit) of each pattern of four bits
    sums S_r           uint16, the sum of the entries that the bits of row r select

    <v, b_r> = unit S_r + low + error,  low = sum of low_g,  |error| <= unit G / 2

because each entry is rounded by at most unit / 2. A table fills a register, so that one instruction (AVX2) looks up 32
rows. For this, the rows of a tile are spread once for all queries: halves (16 B W, TILE_ROWS) contains four bits of
each row per byte. The portable code computes the same sums.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import I8, I16, Assembler, nothing
from kway.kernels.codes.bit_tables import TABLE_FEATURES, TABLE_ROWS, spread_word
from kway.kernels.jit import kernel
from kway.kernels.lanes import cpu_has

SUM_ROWS = 64  # rows that one call adds; four registers of sums hide the latency of the additions
_BYTES, _PAIRS, _HALF = ir.VectorType(I8, 32), ir.VectorType(I16, 16), ir.VectorType(I8, 16)
_PATTERNS = ((np.arange(16)[:, None] >> np.arange(4)) & 1).astype(np.float32).T.copy()  # (4, 16) bits of a pattern


@intrinsic
def _sum_rows(typing_context, halves, tables, count, out):
    """Write the sums of SUM_ROWS rows over `count` tables as uint16; all arguments except count are addresses."""

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        halves, tables, count, out = arguments
        low_byte, eight = a.same(_PAIRS, 255), a.same(_PAIRS, 8)

        def step(at, sums):
            table = a.load(a.at(tables, at, 16), _HALF, 1)
            both = builder.shuffle_vector(table, table, ir.Constant(ir.VectorType(ir.IntType(32), 32), [*range(16)] * 2))
            start, new = a.at(halves, at, TABLE_ROWS), []
            for u in range(SUM_ROWS // 32):
                patterns = a.load(a.at(start, 32 * u), _BYTES, 1)
                entries = builder.bitcast(a.call("llvm.x86.avx2.pshuf.b", _BYTES, [both, patterns]), _PAIRS)
                new.append(builder.add(sums[2 * u], builder.and_(entries, low_byte)))
                new.append(builder.add(sums[2 * u + 1], builder.lshr(entries, eight)))
            return new

        sums = a.loop(count, [a.same(_PAIRS, 0)] * (SUM_ROWS // 16), step)
        woven = [lane + 16 * odd for lane in range(16) for odd in range(2)]
        for u in range(SUM_ROWS // 32):
            order = ir.Constant(ir.VectorType(ir.IntType(32), 32), woven)
            a.store(builder.shuffle_vector(sums[2 * u], sums[2 * u + 1], order), a.at(out, 64 * u), 1)
        return context.get_dummy_value()

    numbers = (types.uint64, types.uint64, types.int64, types.uint64)
    return types.void(*numbers), emit if cpu_has(*TABLE_FEATURES) else nothing


@kernel
def fill_sum_tables(query, tables):
    """Fill tables (G, 16) for a rotated query (D,); return `unit` and `low` of the module docstring."""
    widest, low = np.float32(0), np.float32(0)
    for g in range(len(tables)):
        total = np.float32(0)
        for j in range(4):
            total += abs(query[4 * g + j])
        widest = max(widest, total)
    largest = min(np.iinfo(np.uint8).max, np.iinfo(np.uint16).max // len(tables))  # so that no sum overflows
    unit = max(widest / np.float32(largest), np.finfo(np.float32).tiny)
    scale = np.float32(1) / unit
    for g in range(len(tables)):
        a, b = query[4 * g] * scale, query[4 * g + 1] * scale
        c, d = query[4 * g + 2] * scale, query[4 * g + 3] * scale
        zero = np.float32(0)
        least = min(a, zero) + min(b, zero) + min(c, zero) + min(d, zero)
        low += least
        for p in range(16):
            entry = a * _PATTERNS[0, p] + b * _PATTERNS[1, p] + c * _PATTERNS[2, p] + d * _PATTERNS[3, p]
            tables[g, p] = np.uint8(entry - least + np.float32(0.5))
    return unit, low * unit


@kernel
def spread_rows(head, rest, low, high, words, halves, fast):
    """Write the bits of rows low..high, at most TABLE_ROWS, into halves (16 B W, TABLE_ROWS).

    words (TABLE_ROWS,) uint64 is memory.
    """
    planes, n = len(head), high - low
    for w in range(planes + rest.shape[1]):
        for r in range(n):
            words[r] = head[w, low + r] if w < planes else rest[low + r, w - planes]
        if fast:
            for r in range(0, n, 32):
                spread_word(
                    np.uint64(words.ctypes.data + 8 * r),
                    np.uint64(halves.ctypes.data + 16 * TABLE_ROWS * w + r),
                )
        else:
            for h in range(16):
                for r in range(n):
                    halves[16 * w + h, r] = (words[r] >> np.uint64(4 * h)) & np.uint64(15)


@kernel
def sum_rows(tables, halves, n, sums, fast):
    """Compute sums (B, TABLE_ROWS) uint16 of the first n rows in halves for each plane of bits."""
    groups = len(tables)
    for b in range(len(sums)):
        if fast:
            for r in range(0, n, SUM_ROWS):
                _sum_rows(
                    np.uint64(halves.ctypes.data + TABLE_ROWS * groups * b + r), np.uint64(tables.ctypes.data),
                    groups, np.uint64(sums.ctypes.data + 2 * (TABLE_ROWS * b + r)),
                )  # fmt: skip
        else:
            sums[b, :n] = 0
            for g in range(groups):
                for r in range(n):
                    sums[b, r] += np.uint16(tables[g, halves[groups * b + g, r]])
