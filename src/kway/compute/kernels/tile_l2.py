"""Scan of byte codes under Euclidean distance: product and compare in one go, a bitmap comes out.

Rows are kept as codes x in -127..127, stored as x + 128 (the instruction wants one unsigned side), in blocks of 64:

    packed (blocks, words, 64) int32     four codes a word, the same word of 64 rows side by side
    bias   (blocks, 64) int32            -|x|^2 / 2, rounded up
    asked  (q, words) int32              four codes in -127..127 a word; q is a multiple of QUERIES

`|q - x|^2 <= u^2` implies `bias + q.(x + 128) > |q|^2 / 2 + 128 sum(q) - u^2 / 2 - 1`: the left side is a tile of 6
queries x 64 rows (24 accumulators, with AVX-512 VNNI), the right side is `tau`. Without VNNI the same sums run in
float32, where integers below 2^24 are exact (so codes have at most MOST_DIMS dimensions): the same bitmap.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import F32, I8, I16, I32, Assembler, nothing
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import cpu_has

QUERIES = 6  # queries a tile
MOST_DIMS = 384  # 384 * (255 * 127 + 127 * 127 / 2) < 2^24
FEATURES = ("avx512f", "avx512vnni")  # that the fast way needs

_DOT = "llvm.x86.avx512.vpdpbusd.512"
_WORDS = ir.VectorType(I32, 16)
_BYTES = ir.VectorType(I8, 64)
_FLOATS = ir.VectorType(F32, 16)


def vnni() -> bool:
    """Whether kernels may use the four-byte product instruction."""
    return cpu_has(*FEATURES)


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


def _marks(sums_of):
    def emit(context, builder, signature, arguments):
        asm = Assembler(builder)
        x, asked, bias, tau, marks, stride, mark_stride, words = arguments
        for i, total in enumerate(sums_of(asm, x, asked, stride, bias, words, QUERIES)):
            r, v = divmod(i, 4)
            limit = asm.load(asm.at(tau, r, 4), I32, 4)
            if total.type == _FLOATS:
                bits = builder.fcmp_ordered(">", total, asm.splat(builder.sitofp(limit, F32), 16))
            else:
                bits = builder.icmp_signed(">", total, asm.splat(limit, 16))
            asm.store(builder.bitcast(bits, I16), asm.at(asm.at(marks, r, mark_stride), v, 2), 2)
        return context.get_dummy_value()

    return emit


def _weights(sums_of):
    def emit(context, builder, signature, arguments):
        asm = Assembler(builder)
        x, asked, bias, values, words = arguments
        for v, total in enumerate(sums_of(asm, x, asked, asm.number(0), bias, words, 1)):
            whole = builder.fptosi(total, _WORDS) if total.type == _FLOATS else total
            asm.store(whole, asm.at(values, v, 64), 4)
        return context.get_dummy_value()

    return emit


@intrinsic
def _mark_vnni(typing_context, x, asked, bias, tau, marks, stride, mark_stride, words):
    return types.void(*[types.uintp] * 5, *[types.intp] * 3), _marks(_vnni_sums) if vnni() else nothing


@intrinsic
def _mark_float(typing_context, x, asked, bias, tau, marks, stride, mark_stride, words):
    return types.void(*[types.uintp] * 5, *[types.intp] * 3), _marks(_float_sums)


@intrinsic
def _weigh_vnni(typing_context, x, asked, bias, values, words):
    return types.void(*[types.uintp] * 4, types.intp), _weights(_vnni_sums) if vnni() else nothing


@intrinsic
def _weigh_float(typing_context, x, asked, bias, values, words):
    return types.void(*[types.uintp] * 4, types.intp), _weights(_float_sums)


@kernel
def _as_floats(asked, first, last):
    """Codes of queries first..last, (q, words) of four bytes -> (q, 4 words) float32."""
    floats = np.empty((last - first, 4 * asked.shape[1]), np.float32)
    for r in range(last - first):
        for word in range(asked.shape[1]):
            for byte in range(4):
                floats[r, 4 * word + byte] = np.int8((asked[first + r, word] >> (8 * byte)) & 255)
    return floats


@kernel
def _scan_vnni(packed, bias, first, last, asked, tau, marks):
    words, stride, mark_stride = packed.shape[1], asked.strides[0], marks.strides[0]
    for b in range(first, last):
        x = np.uint64(packed.ctypes.data + b * packed.strides[0])
        lift = np.uint64(bias.ctypes.data + b * bias.strides[0])
        for r in range(0, asked.shape[0], QUERIES):
            q = np.uint64(asked.ctypes.data + r * stride)
            limit = np.uint64(tau.ctypes.data + 4 * r)
            out = np.uint64(marks.ctypes.data + r * mark_stride + 8 * (b - first))
            _mark_vnni(x, q, lift, limit, out, stride, mark_stride, words)


@kernel
def _scan_float(packed, bias, first, last, floats, tau, marks):
    words, stride, mark_stride = packed.shape[1], floats.strides[0], marks.strides[0]
    for b in range(first, last):
        x = np.uint64(packed.ctypes.data + b * packed.strides[0])
        lift = np.uint64(bias.ctypes.data + b * bias.strides[0])
        for r in range(0, floats.shape[0], QUERIES):
            q = np.uint64(floats.ctypes.data + r * stride)
            limit = np.uint64(tau.ctypes.data + 4 * r)
            out = np.uint64(marks.ctypes.data + r * mark_stride + 8 * (b - first))
            _mark_float(x, q, lift, limit, out, stride, mark_stride, words)


@kernel
def scan_l2(packed, bias, first, last, asked, tau, marks, fast):
    """marks (q, blocks) uint64: bit j of marks[r, b - first] set where row j of block b may be near query r."""
    if fast:
        _scan_vnni(packed, bias, first, last, asked, tau, marks)
    else:
        _scan_float(packed, bias, first, last, _as_floats(asked, 0, asked.shape[0]), tau, marks)


@kernel
def _weigh(packed, bias, block, asked, r, values, fast):
    """The caller holds `asked`, or numba would free a temporary once only its address is in use."""
    x = np.uint64(packed.ctypes.data + block * packed.strides[0])
    lift = np.uint64(bias.ctypes.data + block * bias.strides[0])
    q, out = np.uint64(asked.ctypes.data + r * asked.strides[0]), np.uint64(values.ctypes.data)
    if fast:
        _weigh_vnni(x, q, lift, out, packed.shape[1])
    else:
        _weigh_float(x, q, lift, out, packed.shape[1])


@kernel
def weigh_l2(packed, bias, block, asked, r, values, fast):
    """values (64,) int32 of query r against the rows of a block: the larger, the nearer."""
    if fast:
        _weigh(packed, bias, block, asked, r, values, fast)
    else:
        _weigh(packed, bias, block, _as_floats(asked, r, r + 1), 0, values, fast)
