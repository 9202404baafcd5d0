"""Sums of byte codes under Euclidean distance: products and what rows begin with (tiles.py has what becomes of them).

Rows are kept as codes x in -127..127, stored as x + 128 (the instruction wants one unsigned side), in blocks of 64:

    packed (blocks, words, 64) int32     four codes a word, the same word of 64 rows side by side
    bias   (blocks, 64) int32            -|x|^2 / 2, rounded up
    asked  (q, words) int32              four codes in -127..127 a word; q is a multiple of QUERIES

`|q - x|^2 <= u^2` implies `bias + q.(x + 128) > |q|^2 / 2 + 128 sum(q) - u^2 / 2 - 1`: the left side is computed in
tiles, the right side is `tau`. PAIRS leaves 128 sum(q), the query's `lifts_l2`, out of both. Three ways to one bitmap:

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
from numpy.typing import NDArray

from kway.compute.kernels.assembler import F32, I8, I16, I32
from kway.compute.kernels.certified.ways import TileWay
from kway.compute.kernels.jit import BIG, kernel

QUERIES = 6  # a multiple of the queries of every tile
MOST_DIMS = 384  # 384 * (255 * 127 + 127 * 127 / 2) < 2^24
FLOATS, PAIRS, VNNI = range(3)  # the ways, slowest first

_HEAD = 1  # words before a query's codes that PAIRS needs
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


def code_room(way: int, width: int) -> CodeRoom:
    """What codes of `width` dimensions must keep to, before they are rounded."""
    if way != PAIRS:
        return CodeRoom(127, float(BIG))
    return CodeRoom(79, 181.0 - 0.5 * (width / 2 + 2) ** 0.5)  # 181^2 < 2^15; rounding adds half a step a dimension


def lifts_l2(codes: NDArray[np.int8], way: int) -> NDArray[np.float64]:
    """128 sum(q) of each query, codes (q, w) -> (q,); 0 in PAIRS, whose sums start that much lower."""
    return (0.0 if way == PAIRS else 128.0) * codes.sum(axis=1, dtype=np.int64)


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


L2_WAYS = (
    TileWay(_float_sums, QUERIES),
    TileWay(_pair_sums, 2, ("avx2",)),  # measured faster than 3, 4 or 6
    TileWay(_vnni_sums, QUERIES, ("avx512f", "avx512vnni")),
)


@kernel
def _code(word, byte):
    return np.int64(np.int8((word >> (8 * byte)) & 255))


@kernel
def prepare_l2(asked, way):
    """Codes of queries (q, words) of four bytes -> (q, w) int32 as the way reads them.

    VNNI: as they are; PAIRS: two 16-bit starts, the codes; FLOATS: (q, 4 words) float32.
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
        return led
    floats = np.empty((q, 4 * words), np.float32)
    for r in range(q):
        for word in range(words):
            for byte in range(4):
                floats[r, 4 * word + byte] = _code(asked[r, word], byte)
    return floats.view(np.int32)
