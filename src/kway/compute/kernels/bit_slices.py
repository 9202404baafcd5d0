"""The filter of codes for many queries: bits that differ are counted for 256 rows at a time, a bit of each in a lane.

    planes (192, 4)      of 256 rows: each holds one bit of all of them (64 x 64 bits are turned over, 4 x 3 times)
    table (64, 8, 2, 4)  for three planes and each of the 8 ways in which a query's bits can fall, how many of the three
                         differ, as two bits: made once for all queries
    sums                 64 such numbers are added by full adders, five instructions for 256 rows, and compared

Without a popcount of vectors (AVX-512) that is a third of the instructions of counting row by row.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import I64, Assembler
from kway.compute.kernels.jit import kernel

SLICED_WORDS = 3  # of a row: 192 bits
_TILE = 256  # rows
_GROUPS = 64 * SLICED_WORDS // 3
_LANES = ir.VectorType(I64, 4)
_PAIR = 64  # bytes of two bits of 256 rows
_GROUP = 8 * _PAIR


@intrinsic
def _fill_table(typing_context, planes, table):
    """table (64, 8, 2, 4) from planes (192, 4); both are addresses."""

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        planes, table = arguments

        def majority(x, y, z):
            return builder.or_(builder.and_(x, y), builder.and_(z, builder.xor(x, y)))

        def group(at, _):
            x, y, z = (a.load(a.at(a.at(planes, at, 96), 32 * j), _LANES, 8) for j in range(3))
            odd = builder.xor(builder.xor(x, y), z)
            both = {0: majority(x, y, z), 1: majority(builder.not_(x), y, z)}
            both |= {2: majority(x, builder.not_(y), z), 4: majority(x, y, builder.not_(z))}
            start = a.at(table, at, _GROUP)
            for way in range(8):
                low = builder.not_(odd) if way.bit_count() % 2 else odd
                high = both[way] if way in both else builder.not_(both[7 - way])
                a.store(low, a.at(start, _PAIR * way), 8)
                a.store(high, a.at(start, _PAIR * way + 32), 8)
            return []

        a.loop(a.number(_GROUPS), [], group)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64), emit


@intrinsic
def _count_slices(typing_context, table, picks, most, out):
    """out (4,): a bit for each of 256 rows, whether at most `most` bits differ; picks (64,): bytes into the table."""

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        table, picks, most, out = arguments
        waiting: list[list] = [[] for _ in range(10)]  # numbers of weight 2^w that are still to be added

        def settle():
            for w in range(9):
                while len(waiting[w]) >= 3:
                    x, y, z = waiting[w].pop(), waiting[w].pop(), waiting[w].pop()
                    half = builder.xor(x, y)
                    waiting[w].append(builder.xor(half, z))
                    waiting[w + 1].append(builder.or_(builder.and_(x, y), builder.and_(half, z)))

        for g in range(_GROUPS):
            pair = builder.add(table, a.load(a.at(picks, 8 * g), I64, 8))
            waiting[0].append(a.load(pair, _LANES, 8))
            waiting[1].append(a.load(a.at(pair, 32), _LANES, 8))
            settle()
        more = a.same(_LANES, 0)  # whether the lower bits are beyond those of `most`
        for w in range(9):
            while len(waiting[w]) == 2:
                x, y = waiting[w].pop(), waiting[w].pop()
                waiting[w].append(builder.xor(x, y))
                waiting[w + 1].append(builder.and_(x, y))
                settle()
            mine = waiting[w][0] if waiting[w] else a.same(_LANES, 0)
            bit = builder.and_(builder.lshr(most, a.number(w)), a.number(1))
            limit = a.splat(builder.sub(a.number(0), bit), 4)
            differ = builder.xor(mine, limit)
            more = builder.or_(builder.and_(differ, mine), builder.and_(builder.not_(differ), more))
        a.store(builder.not_(more), out, 8)
        return context.get_dummy_value()

    return types.void(types.uint64, types.uint64, types.int64, types.uint64), emit


@intrinsic
def _turn_over(typing_context, bits):
    """Four matrices of 64 x 64 bits, bits (64, 4) at an address: row r and bit 63 - r change places."""

    def emit(context, builder, signature, arguments):
        a, (bits,) = Assembler(builder), arguments
        width, mask = 32, 0x00000000FFFFFFFF
        while width:
            shift, taken = a.same(_LANES, width), a.same(_LANES, mask)
            for k in (k for k in range(64) if not k & width):
                at = a.at(bits, 32 * k), a.at(bits, 32 * (k + width))
                low, high = (a.load(address, _LANES, 8) for address in at)
                moved = builder.and_(builder.xor(low, builder.lshr(high, shift)), taken)
                a.store(builder.xor(low, moved), at[0], 8)
                a.store(builder.xor(high, builder.shl(moved, shift)), at[1], 8)
            width //= 2
            mask = (mask ^ (mask << width)) & 0xFFFFFFFFFFFFFFFF
        return context.get_dummy_value()

    return types.void(types.uint64), emit


@kernel
def slice_picks(words, picks):
    """picks (q, 64): where in a table the ways of a query's bits lie, of words (q, W)."""
    for i in range(len(words)):
        for g in range(_GROUPS):
            way = 0
            for j in range(3):
                plane = 3 * g + j  # its rows' bit 63 - plane of the word, as they were turned over
                way |= np.int64((words[i, plane // 64] >> np.uint64(63 - plane % 64)) & np.uint64(1)) << j
            picks[i, g] = g * _GROUP + way * _PAIR


@kernel
def near_slices(head, low, picks, mosts, planes, table, masks):
    """masks (q, m): a bit for each of the rows low..low + 64 m, a whole number of tiles of 256, that may pass.

    picks (q, 64) of `slice_picks`, mosts (q,); room: planes (192, 4) and table (64 * 64,) uint64.
    """
    for tile in range(masks.shape[1] // 4):
        first = low + _TILE * tile
        for w in range(SLICED_WORDS):
            for lane in range(4):
                mine = head[w, first + 64 * lane : first + 64 * lane + 64]
                for k in range(64):
                    planes[64 * w + k, lane] = mine[63 - k]
            _turn_over(np.uint64(planes[64 * w].ctypes.data))
        _fill_table(np.uint64(planes.ctypes.data), np.uint64(table.ctypes.data))
        for i in range(len(picks)):
            _count_slices(
                np.uint64(table.ctypes.data), np.uint64(picks[i].ctypes.data), mosts[i],
                np.uint64(masks[i].ctypes.data + 32 * tile),
            )  # fmt: skip
