"""Scan of byte codes under Euclidean distance: product and compare in one go, a bitmap comes out.

Rows are kept as codes x in -127..127, stored as x + 128 (the instruction wants one unsigned side), in blocks of 64:

    packed (blocks, words, 64) int32     four codes a word, the same word of 64 rows side by side
    bias   (blocks, 64) int32            -|x|^2 / 2, rounded up
    asked  (q, words) int32              four codes in -127..127 a word; q is a multiple of QUERIES

`|q - x|^2 <= u^2` implies `bias + q.(x + 128) > |q|^2 / 2 + 128 sum(q) - u^2 / 2 - 1`: the left side is computed in
tiles, the right side is `tau`. Three ways to the same sums, so to the same bitmap:

    VNNI     6 queries x 64 rows, 24 accumulators of AVX-512
    PAIRS    2 queries x 32 rows, 8 accumulators of AVX2: products of byte pairs are added up in 16-bit lanes, two a row
    FLOATS   6 queries x 16 rows in float32, where integers below 2^24 are exact (so at most MOST_DIMS dimensions)

PAIRS never widens its sums: two instructions for 32 products, four times as fast as FLOATS. It needs small codes:
    |code| <= 79               (79 + 128)(79 + 79) < 2^15, so no sum of two products is cut off
    |q_h| |x_h| < 2^15         for each half h of the codes (of each word, the first two or the last two): these are the
                               16-bit sums; they start at -128 sum(q_h), and it does no harm where they wrap in between
`code_room` says what a way needs; `code_l2` keeps codes within it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import F32, I8, I16, I32, Assembler, nothing
from kway.compute.kernels.jit import BIG, kernel
from kway.compute.kernels.lanes import chosen, cpu_has

QUERIES = 6  # queries a tile
MOST_DIMS = 384  # 384 * (255 * 127 + 127 * 127 / 2) < 2^24
FLOATS, PAIRS, VNNI = range(3)  # the ways, slowest first
FEATURES = {FLOATS: (), PAIRS: ("avx2",), VNNI: ("avx512f", "avx512vnni")}  # that each needs

_FEW = 2  # queries a tile of PAIRS: measured faster than 3, 4 or 6; QUERIES is a multiple
_HEAD = 2  # words before a query's codes that PAIRS needs
_DOT = "llvm.x86.avx512.vpdpbusd.512"
_WORDS = ir.VectorType(I32, 16)
_BYTES = ir.VectorType(I8, 64)
_FLOATS = ir.VectorType(F32, 16)
_SHORT_WORDS = ir.VectorType(I32, 8)
_SHORT_BYTES = ir.VectorType(I8, 32)
_SHORT_PAIRS = ir.VectorType(I16, 16)


class CodeRoom(NamedTuple):
    """The largest code, and the largest norm of each half of a row's codes."""

    top: int
    norm: float


def best_way() -> int:
    """The fastest way that this CPU has, and that KWAY_PORTABLE allows."""
    return max(way for way in FEATURES if chosen(*FEATURES[way]) or way == FLOATS)


def code_room(way: int, width: int) -> CodeRoom:
    """What codes of `width` dimensions must keep to, before they are rounded."""
    if way != PAIRS:
        return CodeRoom(127, float(BIG))
    return CodeRoom(79, 181.0 - 0.5 * (width / 2 + 2) ** 0.5)  # 181^2 < 2^15; rounding adds half a step a dimension


def _vnni_sums(asm, x, asked, stride, bias, words, queries):
    """bias + q.(x + 128) as [query][vector of 16 rows], four vectors, all accumulators in registers."""
    b = asm.builder
    start = [asm.load(asm.at(bias, v, 64), _WORDS, 4) for v in range(4)] * queries

    def step(word, sums):
        rows = [b.bitcast(asm.load(asm.at(asm.at(x, word, 256), v, 64), _WORDS, 4), _BYTES) for v in range(4)]
        new = []
        for r in range(queries):
            four = asm.load(asm.at(asm.at(asked, r, stride), word, 4), I32, 4)
            spread = b.bitcast(asm.splat(four, 16), _BYTES)
            new += [asm.call(_DOT, _WORDS, [sums[4 * r + v], rows[v], spread]) for v in range(4)]
        return new

    return asm.loop(words, start, step)


def _pair_sums(asm, x, asked, stride, bias, words, queries):
    """bias + q.x as [query][vector of 8 rows], eight vectors; `asked` is made by `prepare_l2`."""
    b, sums = asm.builder, [None] * (8 * queries)
    each = max(1, 8 // queries)  # vectors at a time: accumulators, rows and a product fit 16 registers
    codes = asm.at(asked, _HEAD, 4)
    for first in range(0, 8, each):
        heads = [
            b.bitcast(asm.splat(asm.load(asm.at(asked, r, stride), I32, 4), 8), _SHORT_PAIRS) for r in range(queries)
        ]

        def step(word, held, first=first):
            line = asm.at(x, word, 256)
            rows = [
                b.bitcast(asm.load(asm.at(line, first + v, 32), _SHORT_WORDS, 4), _SHORT_BYTES) for v in range(each)
            ]
            new = []
            for r in range(queries):
                spread = b.bitcast(
                    asm.splat(asm.load(asm.at(asm.at(codes, r, stride), word, 4), I32, 4), 8), _SHORT_BYTES
                )
                for v in range(each):
                    product = asm.call("llvm.x86.avx2.pmadd.ub.sw", _SHORT_PAIRS, [rows[v], spread])
                    new.append(b.add(held[each * r + v], product))
            return new

        halves = asm.loop(words, [head for head in heads for _ in range(each)], step)
        for i, pair in enumerate(halves):
            r, v = divmod(i, each)
            total = asm.call("llvm.x86.avx2.pmadd.wd", _SHORT_WORDS, [pair, asm.same(_SHORT_PAIRS, 1)])
            sums[8 * r + first + v] = b.add(total, asm.load(asm.at(bias, first + v, 32), _SHORT_WORDS, 4))
    return sums


def _float_sums(asm, x, asked, stride, bias, words, queries):
    """The same sums in float32, 16 rows at a time; `asked` and its stride are those of the codes as floats."""
    b, sums = asm.builder, [None] * (4 * queries)
    for v in range(4):
        start = b.sitofp(asm.load(asm.at(bias, v, 64), _WORDS, 4), _FLOATS)

        def step(word, held, v=v):
            rows = asm.load(asm.at(asm.at(x, word, 256), v, 64), _WORDS, 4)
            for byte in range(4):
                codes = b.and_(b.lshr(rows, asm.same(_WORDS, 8 * byte)), asm.same(_WORDS, 255))
                floats, new = b.sitofp(codes, _FLOATS), []
                for r in range(queries):
                    one = asm.load(b.add(asm.at(asm.at(asked, r, stride), word, 16), asm.number(4 * byte)), F32, 4)
                    product = b.fmul(floats, asm.splat(one, 16), flags=("contract",))
                    new.append(b.fadd(held[r], product, flags=("contract",)))
                held = new
            return held

        for r, total in enumerate(asm.loop(words, [start] * queries, step)):
            sums[4 * r + v] = total
    return sums


def _no_lift(asm, asked):
    return ir.Constant(I32, 0)


def _pair_lift(asm, asked):
    """128 sum(q), which the sums of pairs lack."""
    return asm.load(asm.at(asked, 1, 4), I32, 4)


def _marks(sums_of, lift_of, queries):
    def emit(context, builder, signature, arguments):
        asm = Assembler(builder)
        x, asked, bias, tau, marks, stride, mark_stride, words = arguments
        sums = sums_of(asm, x, asked, stride, bias, words, queries)
        each = len(sums) // queries
        for r in range(queries):
            limit = asm.load(asm.at(tau, r, 4), I32, 4)
            limit = builder.sub(limit, lift_of(asm, asm.at(asked, r, stride)))
            for v, total in enumerate(sums[each * r : each * (r + 1)]):
                lanes = total.type.count
                if total.type == _FLOATS:
                    bits = builder.fcmp_ordered(">", total, asm.splat(builder.sitofp(limit, F32), lanes))
                else:
                    bits = builder.icmp_signed(">", total, asm.splat(limit, lanes))
                place = asm.at(asm.at(marks, r, mark_stride), v, lanes // 8)
                asm.store(builder.bitcast(bits, ir.IntType(lanes)), place, lanes // 8)
        return context.get_dummy_value()

    return emit


def _weights(sums_of, lift_of):
    def emit(context, builder, signature, arguments):
        asm = Assembler(builder)
        x, asked, bias, values, words = arguments
        lift = lift_of(asm, asked)
        for v, total in enumerate(sums_of(asm, x, asked, asm.number(0), bias, words, 1)):
            lanes = total.type.count
            whole = builder.fptosi(total, _WORDS) if total.type == _FLOATS else total
            asm.store(builder.add(whole, asm.splat(lift, lanes)), asm.at(values, v, 4 * lanes), 4)
        return context.get_dummy_value()

    return emit


_MARK = types.void(*[types.uintp] * 5, *[types.intp] * 3)
_WEIGH = types.void(*[types.uintp] * 4, types.intp)


@intrinsic
def _mark_vnni(typing_context, x, asked, bias, tau, marks, stride, mark_stride, words):
    return _MARK, _marks(_vnni_sums, _no_lift, QUERIES) if cpu_has(*FEATURES[VNNI]) else nothing


@intrinsic
def _mark_pairs(typing_context, x, asked, bias, tau, marks, stride, mark_stride, words):
    return _MARK, _marks(_pair_sums, _pair_lift, _FEW) if cpu_has(*FEATURES[PAIRS]) else nothing


@intrinsic
def _mark_float(typing_context, x, asked, bias, tau, marks, stride, mark_stride, words):
    return _MARK, _marks(_float_sums, _no_lift, QUERIES)


@intrinsic
def _weigh_vnni(typing_context, x, asked, bias, values, words):
    return _WEIGH, _weights(_vnni_sums, _no_lift) if cpu_has(*FEATURES[VNNI]) else nothing


@intrinsic
def _weigh_pairs(typing_context, x, asked, bias, values, words):
    return _WEIGH, _weights(_pair_sums, _pair_lift) if cpu_has(*FEATURES[PAIRS]) else nothing


@intrinsic
def _weigh_float(typing_context, x, asked, bias, values, words):
    return _WEIGH, _weights(_float_sums, _no_lift)


@kernel
def _code(word, byte):
    return np.int64(np.int8((word >> (8 * byte)) & 255))


@kernel
def prepare_l2(asked, way):
    """Codes of queries (q, words) of four bytes -> (q, w) int32 as the way reads them.

    VNNI: as they are; PAIRS: two 16-bit starts, 128 sum(q), the codes; FLOATS: (q, 4 words) float32.
    """
    q, words = asked.shape
    if way == VNNI:
        return asked.copy()
    if way == PAIRS:
        led = np.empty((q, _HEAD + words), np.int32)
        for r in range(q):
            low = high = 0
            for word in range(words):
                low += _code(asked[r, word], 0) + _code(asked[r, word], 1)
                high += _code(asked[r, word], 2) + _code(asked[r, word], 3)
                led[r, _HEAD + word] = asked[r, word]
            led[r, 0] = np.int32(((-128 * high) << 16) | ((-128 * low) & 65535))
            led[r, 1] = 128 * (low + high)
        return led
    floats = np.empty((q, 4 * words), np.float32)
    for r in range(q):
        for word in range(words):
            for byte in range(4):
                floats[r, 4 * word + byte] = _code(asked[r, word], byte)
    return floats.view(np.int32)


@kernel
def scan_l2(packed, bias, first, last, asked, tau, marks, way):
    """marks (q, blocks) uint64: bit j of marks[r, b - first] set where row j of block b may be near query r.

    asked: of `prepare_l2`."""
    words, stride, mark_stride = packed.shape[1], asked.strides[0], marks.strides[0]
    tile = _FEW if way == PAIRS else QUERIES
    for b in range(first, last):
        x = np.uint64(packed.ctypes.data + b * packed.strides[0])
        lift = np.uint64(bias.ctypes.data + b * bias.strides[0])
        for r in range(0, asked.shape[0], tile):
            q = np.uint64(asked.ctypes.data + r * stride)
            limit = np.uint64(tau.ctypes.data + 4 * r)
            out = np.uint64(marks.ctypes.data + r * mark_stride + 8 * (b - first))
            if way == VNNI:
                _mark_vnni(x, q, lift, limit, out, stride, mark_stride, words)
            elif way == PAIRS:
                _mark_pairs(x, q, lift, limit, out, stride, mark_stride, words)
            else:
                _mark_float(x, q, lift, limit, out, stride, mark_stride, words)


@kernel
def weigh_l2(packed, bias, block, asked, r, values, way):
    """values (64,) int32 of query r against the rows of a block: the larger, the nearer; asked: of `prepare_l2`."""
    x = np.uint64(packed.ctypes.data + block * packed.strides[0])
    lift = np.uint64(bias.ctypes.data + block * bias.strides[0])
    q, out = np.uint64(asked.ctypes.data + r * asked.strides[0]), np.uint64(values.ctypes.data)
    if way == VNNI:
        _weigh_vnni(x, q, lift, out, packed.shape[1])
    elif way == PAIRS:
        _weigh_pairs(x, q, lift, out, packed.shape[1])
    else:
        _weigh_float(x, q, lift, out, packed.shape[1])
