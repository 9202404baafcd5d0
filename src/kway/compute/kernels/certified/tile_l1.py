"""Scan of byte codes under Manhattan distance: sum of byte differences and compare, a bitmap comes out.

    packed (blocks, words, 64) int64     eight codes 0..255 a word, the same word of 64 rows side by side
    asked  (q, words) int64              the queries' codes; q is a multiple of QUERIES
    tau    (q,) int64                    a row is marked where sum |q - x| < tau

Three ways to the same sums:

    L1_WIDE     3 queries x 64 rows, 24 accumulators of AVX-512BW's sum of absolute differences
    L1_SHORT    3 queries x 8 rows, 6 accumulators of AVX2's
    L1_ORDINARY 16-bit lanes of ordinary vectors, which hold 128 words (so codes have at most L1_MOST_DIMS dimensions)
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import I8, I16, I32, I64, Assembler, nothing
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import chosen, cpu_has

L1_QUERIES = 3  # queries a tile
L1_MOST_DIMS = 1024  # 1024 / 8 words x 2 bytes x 255 < 2^16
L1_ORDINARY, L1_SHORT, L1_WIDE = range(3)  # the ways, slowest first
L1_FEATURES = {L1_ORDINARY: (), L1_SHORT: ("avx2",), L1_WIDE: ("avx512f", "avx512bw")}  # that each needs

_WORDS = ir.VectorType(I64, 8)
_BYTES = ir.VectorType(I8, 64)
_PAIRS = ir.VectorType(I16, 32)


def best_l1_way() -> int:
    """The fastest way that this CPU has, and that KWAY_PORTABLE allows."""
    return max(way for way in L1_FEATURES if chosen(*L1_FEATURES[way]) or way == L1_ORDINARY)


def _differences_sums(instruction, lanes, each):
    """Sum |q - x| as [query][vector of `lanes` rows] by an instruction, `each` vectors at a time."""
    wide, bytes_ = ir.VectorType(I64, lanes), ir.VectorType(I8, 8 * lanes)

    def sums_of(asm, x, asked, stride, words, queries):
        b, vectors = asm.builder, 64 // lanes
        sums = [None] * (vectors * queries)
        for first in range(0, vectors, each):

            def step(word, held, first=first):
                places = [asm.at(asm.at(x, word, 512), first + v, 8 * lanes) for v in range(each)]
                rows, new = [b.bitcast(asm.load(place, wide, 8), bytes_) for place in places], []
                for r in range(queries):
                    eight = asm.load(asm.at(asm.at(asked, r, stride), word, 8), I64, 8)
                    spread = b.bitcast(asm.splat(eight, lanes), bytes_)
                    gaps = [asm.call(instruction, wide, [row, spread]) for row in rows]
                    new += [b.add(held[each * r + v], gap) for v, gap in enumerate(gaps)]
                return new

            for i, total in enumerate(asm.loop(words, [asm.same(wide, 0)] * (each * queries), step)):
                r, v = divmod(i, each)
                sums[vectors * r + first + v] = total
        return sums

    return sums_of


_wide_sums = _differences_sums("llvm.x86.avx512.psad.bw.512", 8, 8)
_short_sums = _differences_sums("llvm.x86.avx2.psad.bw", 4, 2)


def _ordinary_sums(asm, x, asked, stride, words, queries):
    """The same sums in 16-bit lanes, 8 rows at a time."""
    b, sums = asm.builder, [None] * (8 * queries)
    for v in range(8):

        def step(word, held, v=v):
            rows, new = b.bitcast(asm.load(asm.at(asm.at(x, word, 512), v, 64), _WORDS, 8), _BYTES), []
            for r in range(queries):
                eight = asm.load(asm.at(asm.at(asked, r, stride), word, 8), I64, 8)
                q = b.bitcast(asm.splat(eight, 8), _BYTES)
                above = b.icmp_unsigned(">", rows, q)
                gaps = b.bitcast(b.sub(b.select(above, rows, q), b.select(above, q, rows)), _PAIRS)
                even, odd = b.and_(gaps, asm.same(_PAIRS, 255)), b.lshr(gaps, asm.same(_PAIRS, 8))
                new.append(b.add(held[r], b.add(even, odd)))
            return new

        for r, total in enumerate(asm.loop(words, [asm.same(_PAIRS, 0)] * queries, step)):
            sums[8 * r + v] = _four_lanes(asm, total)
    return sums


def _four_lanes(asm, total):
    """Four 16-bit sums added into each row's 64-bit lane."""
    b, wide = asm.builder, asm.builder.bitcast(total, _WORDS)
    parts = [b.and_(b.lshr(wide, asm.same(_WORDS, 16 * i)), asm.same(_WORDS, 65535)) for i in range(4)]
    return b.add(b.add(parts[0], parts[1]), b.add(parts[2], parts[3]))


def _by_eight(asm, sums):
    """Vectors of 8 rows, of vectors of 8 or 4."""
    if sums[0].type.count == 8:
        return sums
    both = ir.Constant(ir.VectorType(I32, 8), list(range(8)))
    return [asm.builder.shuffle_vector(*pair, both) for pair in zip(sums[::2], sums[1::2])]


def _marks(sums_of):
    def emit(context, builder, signature, arguments):
        asm = Assembler(builder)
        x, asked, tau, marks, stride, mark_stride, words = arguments
        sums = _by_eight(asm, sums_of(asm, x, asked, stride, words, L1_QUERIES))
        for i, total in enumerate(sums):
            r, v = divmod(i, 8)
            limit = asm.splat(asm.load(asm.at(tau, r, 8), I64, 8), 8)
            bits = builder.bitcast(builder.icmp_signed("<", total, limit), I8)
            asm.store(bits, asm.at(asm.at(marks, r, mark_stride), v, 1), 1)
        return context.get_dummy_value()

    return emit


def _weights(sums_of):
    def emit(context, builder, signature, arguments):
        asm = Assembler(builder)
        x, asked, values, words = arguments
        eight = ir.VectorType(I32, 8)
        for v, total in enumerate(_by_eight(asm, sums_of(asm, x, asked, asm.number(0), words, 1))):
            asm.store(builder.sub(asm.same(eight, 0), builder.trunc(total, eight)), asm.at(values, v, 32), 4)
        return context.get_dummy_value()

    return emit


_MARK = types.void(*[types.uintp] * 4, *[types.intp] * 3)
_WEIGH = types.void(*[types.uintp] * 3, types.intp)


@intrinsic
def _mark_wide(typing_context, x, asked, tau, marks, stride, mark_stride, words):
    return _MARK, _marks(_wide_sums) if cpu_has(*L1_FEATURES[L1_WIDE]) else nothing


@intrinsic
def _mark_short(typing_context, x, asked, tau, marks, stride, mark_stride, words):
    return _MARK, _marks(_short_sums) if cpu_has(*L1_FEATURES[L1_SHORT]) else nothing


@intrinsic
def _mark_ordinary(typing_context, x, asked, tau, marks, stride, mark_stride, words):
    return _MARK, _marks(_ordinary_sums)


@intrinsic
def _weigh_wide(typing_context, x, asked, values, words):
    return _WEIGH, _weights(_wide_sums) if cpu_has(*L1_FEATURES[L1_WIDE]) else nothing


@intrinsic
def _weigh_short(typing_context, x, asked, values, words):
    return _WEIGH, _weights(_short_sums) if cpu_has(*L1_FEATURES[L1_SHORT]) else nothing


@intrinsic
def _weigh_ordinary(typing_context, x, asked, values, words):
    return _WEIGH, _weights(_ordinary_sums)


@kernel
def scan_l1(packed, first, last, asked, tau, marks, way):
    """marks (q, blocks) uint64: bit j of marks[r, b - first] set where row j of block b may be near query r."""
    words, stride, mark_stride = packed.shape[1], asked.strides[0], marks.strides[0]
    for b in range(first, last):
        x = np.uint64(packed.ctypes.data + b * packed.strides[0])
        for r in range(0, asked.shape[0], L1_QUERIES):
            q = np.uint64(asked.ctypes.data + r * stride)
            limit = np.uint64(tau.ctypes.data + 8 * r)
            out = np.uint64(marks.ctypes.data + r * mark_stride + 8 * (b - first))
            if way == L1_WIDE:
                _mark_wide(x, q, limit, out, stride, mark_stride, words)
            elif way == L1_SHORT:
                _mark_short(x, q, limit, out, stride, mark_stride, words)
            else:
                _mark_ordinary(x, q, limit, out, stride, mark_stride, words)


@kernel
def weigh_l1(packed, block, asked, r, values, way):
    """values (64,) int32 of query r against the rows of a block: minus the sum of differences, so larger is nearer."""
    x = np.uint64(packed.ctypes.data + block * packed.strides[0])
    q, out = np.uint64(asked.ctypes.data + r * asked.strides[0]), np.uint64(values.ctypes.data)
    if way == L1_WIDE:
        _weigh_wide(x, q, out, packed.shape[1])
    elif way == L1_SHORT:
        _weigh_short(x, q, out, packed.shape[1])
    else:
        _weigh_ordinary(x, q, out, packed.shape[1])
