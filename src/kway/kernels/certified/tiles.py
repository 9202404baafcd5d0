"""Tiles of byte codes: sums over the codes of a few queries and 64 rows, compared with thresholds or written out.

    packed (blocks, words, 64)    codes of rows; the same word of 64 rows is contiguous
    bias (blocks, 64) int32       initial value of the rows' sums: -|x|^2 / 2, rounded up; None for Manhattan
    query_codes (q, w)            codes of queries as the variant reads them; q is a multiple of the queries per tile
    tau (q,) int32                thresholds: a row is marked if its weight > tau

A weight is the sum, or minus the sum if small sums mean near rows, so larger weights mean nearer rows. The sign is
applied to tau rather than to the sums, because that is cheaper. A variant is a set of instructions for the same sums.
Its number is its position in the table of its distance, slowest first; variant 0 runs on any CPU. The compiled code
contains every variant that the CPU supports, and the number selects one when a kernel runs.

Manhattan: sums of byte differences, eight codes 0..255 per word of 64 bits.
    L1_WIDE      3 queries x 64 rows, 24 accumulators, sum of absolute differences of AVX-512BW
    L1_SHORT     3 queries x 8 rows, 6 accumulators, sum of absolute differences of AVX2
    L1_PORTABLE  3 queries x 8 rows, operations of any CPU

Euclidean: codes x of rows are in -127..127 and stored as x + 128, because one operand of the instruction is unsigned;
four per word. `|q - x|^2 <= u^2` implies `bias + q.(x + 128) > |q|^2 / 2 + 128 sum(q) - u^2 / 2 - 1`. Tiles compute the
left side; the right side is `tau`. PAIRS leaves 128 sum(q), which `lifts_l2` returns, out of both sides.
    VNNI     6 queries x 64 rows, 24 accumulators of AVX-512
    PAIRS    2 queries x 32 rows, 8 accumulators of AVX2; products of byte pairs are added in 16-bit lanes, two per row
    PORTABLE 6 queries x 16 rows, operations of any CPU
PAIRS never widens its sums, so 32 products take two instructions. It needs small codes:
    |code| <= 79               (79 + 128)(79 + 79) < 2^15, so no sum of two products saturates
    |q_h| |x_h| < 2^15         for each half h of the codes (the first two or the last two of each word). These are the
                               16-bit sums. They start at -128 sum(q_h); intermediate overflow wraps and cancels out
`code_limits` returns the limits of a variant, and `code_l2` clips codes to them.

In the code that emits instructions, asm is an Assembler, `each` is the number of vectors that are accumulated at a
time, and the functions `step` are the body of a loop over words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from kway.kernels.assembler import I8, I16, I32, I64, Assembler
from kway.kernels.jit import BIG, kernel
from kway.kernels.lanes import chosen, cpu_has


class TileVariant(NamedTuple):
    """One way to compute the sums of a tile, which is a few queries x 64 rows.

    sums              (asm, x, query_codes, stride, bias, words, queries) -> [query][vector of at least 8 rows]: int32
                      or int64. x, query_codes and bias are addresses, stride is the distance in bytes between two
                      queries
    queries           number of queries per tile
    words_per_second  words of four codes (L2) or eight codes (L1) that one thread scans per second, measured by the
                      search benchmarks (T1, T2)
    features          features that the CPU must have
    small             whether smaller sums mean nearer rows
    """

    sums: Callable[..., list[Any]]
    queries: int
    words_per_second: float
    features: tuple[str, ...] = ()
    small: bool = False


def best_variant(variants: Sequence[TileVariant]) -> int:
    """Return the number of the fastest variant that this CPU supports and KWAY_PORTABLE allows."""
    return max(number for number, variant in enumerate(variants) if number == 0 or chosen(*variant.features))


_ACCUMULATORS = 24  # vectors of sums of a tile; the other 8 registers of AVX-512 hold rows and queries
L1_QUERIES = _ACCUMULATORS // 8  # queries per tile: 64 rows are 8 vectors of 64-bit sums
L1_MAX_DIMS = 1024  # largest number of sums of a sketch that is tried; no larger one was measured (T2)
L1_PORTABLE, L1_SHORT, L1_WIDE = range(3)  # variants, slowest first


def _tile_sums(add_word, lane, lanes, each):
    """Return a function that emits the sums over all words as [query][vector of at least 8 rows].

    A lane is the sum of one row, of the type of a word: I64 for differences, I32 for products, which start at `bias`.
    `add_word` (asm, total, rows, codes) emits the total after one word. `each` vectors of `lanes` rows are accumulated
    at a time.
    """
    size = lane.width // 8
    vector, bytes_ = ir.VectorType(lane, lanes), ir.VectorType(I8, size * lanes)

    def sums_of(asm, x, query_codes, stride, bias, words, queries):
        b, vectors = asm.builder, 64 // lanes
        sums = [None] * (vectors * queries)
        for first in range(0, vectors, each):

            def step(word, totals, first=first):
                addresses = [asm.at(asm.at(x, word, 64 * size), first + v, size * lanes) for v in range(each)]
                rows = [b.bitcast(asm.load(address, vector, size), bytes_) for address in addresses]
                new = []
                for r in range(queries):
                    codes = asm.load(asm.at(asm.at(query_codes, r, stride), word, size), lane, size)
                    spread = b.bitcast(asm.splat(codes, lanes), bytes_)
                    new += [add_word(asm, totals[each * r + v], row, spread) for v, row in enumerate(rows)]
                return new

            start = [asm.same(vector, 0)] * each
            if lane == I32:
                start = [asm.load(asm.at(bias, first + v, 4 * lanes), vector, 4) for v in range(each)]
            for i, total in enumerate(asm.loop(words, start * queries, step)):
                r, v = divmod(i, each)
                sums[vectors * r + first + v] = total
        return _by_eight(asm, sums)

    return sums_of


def _by_eight(asm, sums):
    """Return vectors of at least 8 rows, each joined from two vectors of 4 rows if necessary."""
    if sums[0].type.count >= 8:
        return sums
    lanes = ir.Constant(ir.VectorType(I32, 8), list(range(8)))
    return [asm.builder.shuffle_vector(*pair, lanes) for pair in zip(sums[::2], sums[1::2])]


def _add_gaps(instruction):
    """Return the `add_word` of an instruction that sums |q - x| over each eight bytes."""
    return lambda asm, total, rows, codes: asm.builder.add(total, asm.call(instruction, total.type, [rows, codes]))


def _portable_gaps(asm, total, rows, codes):
    """Add the sum of |q - x| over each eight bytes, by operations of any CPU."""
    b, pairs = asm.builder, ir.VectorType(I16, 4 * total.type.count)
    above = b.icmp_unsigned(">", rows, codes)
    gaps = b.bitcast(b.sub(b.select(above, rows, codes), b.select(above, codes, rows)), pairs)
    sums = b.bitcast(b.add(b.and_(gaps, asm.same(pairs, 255)), b.lshr(gaps, asm.same(pairs, 8))), total.type)
    # the top 16 bits of the product are the sum of the four 16-bit sums
    return b.add(total, b.lshr(b.mul(sums, asm.same(total.type, 0x0001000100010001)), asm.same(total.type, 48)))


L1_VARIANTS = (
    TileVariant(_tile_sums(_portable_gaps, I64, 8, 1), L1_QUERIES, 4.3e9, small=True),
    TileVariant(_tile_sums(_add_gaps("llvm.x86.avx2.psad.bw"), I64, 4, 2), L1_QUERIES, 10e9, ("avx2",), small=True),
    TileVariant(
        _tile_sums(_add_gaps("llvm.x86.avx512.psad.bw.512"), I64, 8, 8),
        L1_QUERIES,
        20e9,
        ("avx512f", "avx512bw"),
        small=True,
    ),
)


QUERIES = _ACCUMULATORS // 4  # queries per tile: 64 rows are 4 vectors of 32-bit sums; panels are padded to a multiple
MAX_DIMS = 384  # largest length of a sketch that is tried; no longer one was measured (T1)
PORTABLE, PAIRS, VNNI = range(3)  # variants, slowest first

_HEAD = 2 * I16.width // I32.width  # words before a query's codes: the two initial values of PAIRS
_SHORT_WORDS = ir.VectorType(I32, 8)
_SHORT_BYTES = ir.VectorType(I8, 32)
_SHORT_PAIRS = ir.VectorType(I16, 16)


class CodeLimits(NamedTuple):
    """Limits of codes: the largest code, and the largest norm of each half of a row's codes."""

    max_code: int
    max_norm: float


def code_limits(variant: int, width: int) -> CodeLimits:
    """Return the limits of codes of `width` dimensions, before they are rounded."""
    if variant != PAIRS:
        return CodeLimits(127, float(BIG))
    # 181^2 < 2^15. Rounding to codes adds at most 1/2 per dimension, thus half a root of the width of a half.
    return CodeLimits(79, 181.0 - 0.5 * (width / 2 + 2) ** 0.5)


def lifts_l2(codes: NDArray[np.int8], variant: int) -> NDArray[np.float64]:
    """Return 128 sum(q) (q,) of codes (q, w); 0 for PAIRS, whose sums start lower by this value."""
    return (0.0 if variant == PAIRS else 128.0) * codes.sum(axis=1, dtype=np.int64)


def _vnni_products(asm, total, rows, codes):
    """Add q.x of four unsigned bytes x and four signed bytes q."""
    return asm.call("llvm.x86.avx512.vpdpbusd.512", total.type, [total, rows, codes])


def _portable_products(asm, total, rows, codes):
    """Add q.x of four unsigned bytes x and four signed bytes q, by operations of any CPU."""
    b, kind = asm.builder, total.type
    rows, codes = b.bitcast(rows, kind), b.bitcast(codes, kind)
    for byte in range(4):
        x = b.and_(b.lshr(rows, asm.same(kind, 8 * byte)), asm.same(kind, 255))
        q = b.ashr(b.shl(codes, asm.same(kind, 24 - 8 * byte)), asm.same(kind, 24))
        total = b.add(total, b.mul(x, q))
    return total


def _pair_sums(asm, x, query_codes, stride, bias, words, queries):
    """Emit bias + q.x as [query][vector of 8 rows], eight vectors; `prepare_l2` returns `query_codes`."""
    b, sums = asm.builder, [None] * (8 * queries)
    each = max(1, 8 // queries)  # vectors at a time: accumulators, rows and a product fit in 16 registers
    codes = asm.at(query_codes, _HEAD, 4)
    for first in range(0, 8, each):
        heads = [
            b.bitcast(asm.splat(asm.load(asm.at(query_codes, r, stride), I32, 4), 8), _SHORT_PAIRS)
            for r in range(queries)
        ]

        def step(word, totals, first=first):
            line = asm.at(x, word, 256)
            vectors = [asm.load(asm.at(line, first + v, 32), _SHORT_WORDS, 4) for v in range(each)]
            rows = [b.bitcast(vector, _SHORT_BYTES) for vector in vectors]
            new = []
            for r in range(queries):
                four = asm.load(asm.at(asm.at(codes, r, stride), word, 4), I32, 4)
                spread = b.bitcast(asm.splat(four, 8), _SHORT_BYTES)
                for v in range(each):
                    product = asm.call("llvm.x86.avx2.pmadd.ub.sw", _SHORT_PAIRS, [rows[v], spread])
                    new.append(b.add(totals[each * r + v], product))
            return new

        halves = asm.loop(words, [head for head in heads for _ in range(each)], step)
        for i, pair in enumerate(halves):
            r, v = divmod(i, each)
            total = asm.call("llvm.x86.avx2.pmadd.wd", _SHORT_WORDS, [pair, asm.same(_SHORT_PAIRS, 1)])
            sums[8 * r + first + v] = b.add(total, asm.load(asm.at(bias, first + v, 32), _SHORT_WORDS, 4))
    return sums


L2_VARIANTS = (
    TileVariant(_tile_sums(_portable_products, I32, 16, 1), QUERIES, 12e9),
    TileVariant(_pair_sums, 2, 30e9, ("avx2",)),  # tiles of 3, 4 and 6 queries are slower
    TileVariant(_tile_sums(_vnni_products, I32, 16, 4), QUERIES, 52e9, ("avx512f", "avx512vnni")),
)


@kernel
def _code(word, byte):
    return np.int64(np.int8((word >> (8 * byte)) & 255))


@kernel
def prepare_l2(query_codes, variant):
    """Convert codes of queries (q, words), four bytes per word, to (q, w) int32 as the variant reads them.

    PAIRS: two 16-bit initial values, then the codes. Others: unchanged.
    """
    q, words = query_codes.shape
    if variant != PAIRS:
        return query_codes.copy()
    with_head = np.empty((q, _HEAD + words), np.int32)
    for r in range(q):
        low = high = 0
        for word in range(words):
            low += _code(query_codes[r, word], 0) + _code(query_codes[r, word], 1)
            high += _code(query_codes[r, word], 2) + _code(query_codes[r, word], 3)
            with_head[r, _HEAD + word] = query_codes[r, word]
        with_head[r, 0] = np.int32(((-128 * high) << 16) | ((-128 * low) & 65535))
    return with_head


_L1_TILES, _L2_TILES = (tuple(variant.queries for variant in variants) for variants in (L1_VARIANTS, L2_VARIANTS))


def _mark(asm, variant, x, query_codes, start, tau, marks, stride, mark_stride, words):
    """Emit code that writes one bit per row and query of the tile: whether the weight exceeds the query's tau."""
    b, sums = asm.builder, variant.sums(asm, x, query_codes, stride, start, words, variant.queries)
    kind, each = sums[0].type, len(sums) // variant.queries
    for r in range(variant.queries):
        limit = asm.load(asm.at(tau, r, 4), I32, 4)
        limit = b.neg(limit) if variant.small else limit
        limit = asm.splat(b.sext(limit, kind.element) if kind.element == I64 else limit, kind.count)
        for v, total in enumerate(sums[each * r : each * (r + 1)]):
            bits = b.bitcast(b.icmp_signed("<" if variant.small else ">", total, limit), ir.IntType(kind.count))
            asm.store(bits, asm.at(asm.at(marks, r, mark_stride), v, kind.count // 8), kind.count // 8)


def _weigh(asm, variant, x, query_codes, start, values, words):
    """Emit code that writes the weights of one query as int32."""
    for v, total in enumerate(variant.sums(asm, x, query_codes, asm.number(0), start, words, 1)):
        lanes = total.type.count
        weight = asm.builder.trunc(total, ir.VectorType(I32, lanes)) if total.type.element == I64 else total
        asm.store(asm.builder.neg(weight) if variant.small else weight, asm.at(values, v, 4 * lanes), 4)


def _each_variant(tile, bias):
    """Return the generator of an intrinsic (..., variant, bias) that runs the tile of the selected variant.

    The intrinsic does nothing if the CPU does not support the variant.
    """

    def emit(context, builder, signature, arguments):
        *tile_arguments, number, _ = arguments
        done = builder.append_basic_block("tile_done")
        choice = builder.switch(number, done)
        for i, variant in enumerate(L1_VARIANTS if bias is types.none else L2_VARIANTS):
            if cpu_has(*variant.features):
                block = builder.append_basic_block("variant")
                choice.add_case(i, block)
                builder.position_at_end(block)
                tile(Assembler(builder), variant, *tile_arguments)
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return emit


@intrinsic
def _mark_tile(typing_context, x, query_codes, start, tau, marks, stride, mark_stride, words, variant, bias):
    return types.void(*[types.uintp] * 5, *[types.intp] * 4, bias), _each_variant(_mark, bias)


@intrinsic
def _weigh_tile(typing_context, x, query_codes, start, values, words, variant, bias):
    return types.void(*[types.uintp] * 4, *[types.intp] * 2, bias), _each_variant(_weigh, bias)


@kernel
def scan_codes(packed, bias, first, last, query_codes, tau, marks, variant):
    """Set bit j of marks[r, b - first] (uint64) if row j of block b may be near query r, for blocks first..last."""
    words, stride, mark_stride = packed.shape[1], query_codes.strides[0], marks.strides[0]
    tile = _L1_TILES[variant] if bias is None else _L2_TILES[variant]
    for b in range(first, last):
        x = np.uint64(packed.ctypes.data + b * packed.strides[0])
        start = np.uint64(0) if bias is None else np.uint64(bias.ctypes.data + b * bias.strides[0])
        for r in range(0, query_codes.shape[0], tile):
            q = np.uint64(query_codes.ctypes.data + r * stride)
            limit = np.uint64(tau.ctypes.data + 4 * r)
            out = np.uint64(marks.ctypes.data + r * mark_stride + 8 * (b - first))
            _mark_tile(x, q, start, limit, out, stride, mark_stride, words, variant, bias)


@kernel
def weigh_codes(packed, bias, block, query_codes, r, values, variant):
    """Compute values (64,) int32: the weights of query r and the rows of a block; larger means nearer."""
    x = np.uint64(packed.ctypes.data + block * packed.strides[0])
    start = np.uint64(0) if bias is None else np.uint64(bias.ctypes.data + block * bias.strides[0])
    q, out = np.uint64(query_codes.ctypes.data + r * query_codes.strides[0]), np.uint64(values.ctypes.data)
    _weigh_tile(x, q, start, out, packed.shape[1], variant, bias)
