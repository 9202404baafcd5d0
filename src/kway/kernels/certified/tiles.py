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
    L1_PORTABLE  16-bit lanes of any CPU, which can add 128 words (so codes have at most L1_MAX_DIMS columns)

Euclidean: codes x of rows are in -127..127 and stored as x + 128, because one operand of the instruction is unsigned;
four per word. `|q - x|^2 <= u^2` implies `bias + q.(x + 128) > |q|^2 / 2 + 128 sum(q) - u^2 / 2 - 1`. Tiles compute the
left side; the right side is `tau`. PAIRS leaves 128 sum(q), which `lifts_l2` returns, out of both sides.
    VNNI     6 queries x 64 rows, 24 accumulators of AVX-512
    PAIRS    2 queries x 32 rows, 8 accumulators of AVX2; products of byte pairs are added in 16-bit lanes, two per row
    FLOATS   6 queries x 16 rows in float32, in which integers below 2^24 are exact (so at most MAX_DIMS dimensions)
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

from kway.kernels.assembler import F32, I8, I16, I32, I64, Assembler
from kway.kernels.jit import BIG, kernel
from kway.kernels.lanes import chosen, cpu_has


class TileVariant(NamedTuple):
    """One way to compute the sums of a tile, which is a few queries x 64 rows.

    sums              (asm, x, query_codes, stride, bias, words, queries) -> [query][vector of at least 8 rows]: int32,
                      int64, or float32 with integer values. x, query_codes and bias are addresses, stride is the
                      distance in bytes between two queries
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
# A word has eight codes. Per word, a 16-bit lane adds two differences of bytes, and it must not overflow.
L1_MAX_DIMS = 8 * (np.iinfo(np.uint16).max // (2 * np.iinfo(np.uint8).max))
L1_PORTABLE, L1_SHORT, L1_WIDE = range(3)  # variants, slowest first

_L1_WORDS = ir.VectorType(I64, 8)
_L1_BYTES = ir.VectorType(I8, 64)
_PAIRS = ir.VectorType(I16, 32)


def _difference_sums(instruction, lanes, each):
    """Return a function that emits the sums of |q - x| as [query][vector of 8 rows].

    `instruction` processes `lanes` rows; `each` vectors are accumulated at a time.
    """
    wide, bytes_ = ir.VectorType(I64, lanes), ir.VectorType(I8, 8 * lanes)

    def sums_of(asm, x, query_codes, stride, bias, words, queries):
        b, vectors = asm.builder, 64 // lanes
        sums = [None] * (vectors * queries)
        for first in range(0, vectors, each):

            def step(word, totals, first=first):
                addresses = [asm.at(asm.at(x, word, 512), first + v, 8 * lanes) for v in range(each)]
                rows = [b.bitcast(asm.load(address, wide, 8), bytes_) for address in addresses]
                new = []
                for r in range(queries):
                    eight = asm.load(asm.at(asm.at(query_codes, r, stride), word, 8), I64, 8)
                    spread = b.bitcast(asm.splat(eight, lanes), bytes_)
                    gaps = [asm.call(instruction, wide, [row, spread]) for row in rows]
                    new += [b.add(totals[each * r + v], gap) for v, gap in enumerate(gaps)]
                return new

            for i, total in enumerate(asm.loop(words, [asm.same(wide, 0)] * (each * queries), step)):
                r, v = divmod(i, each)
                sums[vectors * r + first + v] = total
        return _by_eight(asm, sums)

    return sums_of


_wide_sums = _difference_sums("llvm.x86.avx512.psad.bw.512", 8, 8)
_short_sums = _difference_sums("llvm.x86.avx2.psad.bw", 4, 2)


def _portable_sums(asm, x, query_codes, stride, bias, words, queries):
    """Emit the sums of |q - x| in 16-bit lanes, 8 rows at a time."""
    b, sums = asm.builder, [None] * (8 * queries)
    for v in range(8):

        def step(word, totals, v=v):
            rows = b.bitcast(asm.load(asm.at(asm.at(x, word, 512), v, 64), _L1_WORDS, 8), _L1_BYTES)
            new = []
            for r in range(queries):
                eight = asm.load(asm.at(asm.at(query_codes, r, stride), word, 8), I64, 8)
                q = b.bitcast(asm.splat(eight, 8), _L1_BYTES)
                above = b.icmp_unsigned(">", rows, q)
                gaps = b.bitcast(b.sub(b.select(above, rows, q), b.select(above, q, rows)), _PAIRS)
                even, odd = b.and_(gaps, asm.same(_PAIRS, 255)), b.lshr(gaps, asm.same(_PAIRS, 8))
                new.append(b.add(totals[r], b.add(even, odd)))
            return new

        for r, total in enumerate(asm.loop(words, [asm.same(_PAIRS, 0)] * queries, step)):
            sums[8 * r + v] = _four_lanes(asm, total)
    return sums


def _four_lanes(asm, total):
    """Emit the sum of the four 16-bit lanes of each row, in its 64-bit lane."""
    b, wide = asm.builder, asm.builder.bitcast(total, _L1_WORDS)
    parts = [b.and_(b.lshr(wide, asm.same(_L1_WORDS, 16 * i)), asm.same(_L1_WORDS, 65535)) for i in range(4)]
    return b.add(b.add(parts[0], parts[1]), b.add(parts[2], parts[3]))


def _by_eight(asm, sums):
    """Return vectors of 8 rows, each joined from two vectors of 4 rows if necessary."""
    if sums[0].type.count == 8:
        return sums
    lanes = ir.Constant(ir.VectorType(I32, 8), list(range(8)))
    return [asm.builder.shuffle_vector(*pair, lanes) for pair in zip(sums[::2], sums[1::2])]


L1_VARIANTS = (
    TileVariant(_portable_sums, L1_QUERIES, 5e9, small=True),
    TileVariant(_short_sums, L1_QUERIES, 10e9, ("avx2",), small=True),
    TileVariant(_wide_sums, L1_QUERIES, 20e9, ("avx512f", "avx512bw"), small=True),
)


QUERIES = _ACCUMULATORS // 4  # queries per tile: 64 rows are 4 vectors of 32-bit sums; panels are padded to a multiple
# the largest multiple of 64 for which sums are exact in float32: MAX_DIMS * (255 * 127 + 127 * 127 / 2) < 2^24
MAX_DIMS = 2 ** (np.finfo(np.float32).nmant + 1) // (255 * 127 + 127 * 127 // 2 + 1) // 64 * 64
FLOATS, PAIRS, VNNI = range(3)  # variants, slowest first

_HEAD = 2 * I16.width // I32.width  # words before a query's codes: the two initial values of PAIRS
_DOT = "llvm.x86.avx512.vpdpbusd.512"
_WORDS = ir.VectorType(I32, 16)
_BYTES = ir.VectorType(I8, 64)
_FLOATS = ir.VectorType(F32, 16)
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


def _vnni_sums(asm, x, query_codes, stride, bias, words, queries):
    """Emit bias + q.(x + 128) as [query][vector of 16 rows], four vectors, all accumulators in registers."""
    b = asm.builder
    start = [asm.load(asm.at(bias, v, 64), _WORDS, 4) for v in range(4)] * queries

    def step(word, sums):
        rows = [b.bitcast(asm.load(asm.at(asm.at(x, word, 256), v, 64), _WORDS, 4), _BYTES) for v in range(4)]
        new = []
        for r in range(queries):
            four = asm.load(asm.at(asm.at(query_codes, r, stride), word, 4), I32, 4)
            spread = b.bitcast(asm.splat(four, 16), _BYTES)
            new += [asm.call(_DOT, _WORDS, [sums[4 * r + v], rows[v], spread]) for v in range(4)]
        return new

    return asm.loop(words, start, step)


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


def _float_sums(asm, x, query_codes, stride, bias, words, queries):
    """Emit bias + q.(x + 128) in float32, 16 rows at a time; query_codes and its stride are those of float32 codes."""
    b, sums = asm.builder, [None] * (4 * queries)
    for v in range(4):
        start = b.sitofp(asm.load(asm.at(bias, v, 64), _WORDS, 4), _FLOATS)

        def step(word, totals, v=v):
            rows = asm.load(asm.at(asm.at(x, word, 256), v, 64), _WORDS, 4)
            for byte in range(4):
                codes = b.and_(b.lshr(rows, asm.same(_WORDS, 8 * byte)), asm.same(_WORDS, 255))
                floats, new = b.sitofp(codes, _FLOATS), []
                for r in range(queries):
                    address = b.add(asm.at(asm.at(query_codes, r, stride), word, 16), asm.number(4 * byte))
                    product = b.fmul(floats, asm.splat(asm.load(address, F32, 4), 16), flags=("contract",))
                    new.append(b.fadd(totals[r], product, flags=("contract",)))
                totals = new
            return totals

        for r, total in enumerate(asm.loop(words, [start] * queries, step)):
            sums[4 * r + v] = total
    return sums


L2_VARIANTS = (
    TileVariant(_float_sums, QUERIES, 17e9),
    TileVariant(_pair_sums, 2, 30e9, ("avx2",)),  # tiles of 3, 4 and 6 queries are slower
    TileVariant(_vnni_sums, QUERIES, 52e9, ("avx512f", "avx512vnni")),
)


@kernel
def _code(word, byte):
    return np.int64(np.int8((word >> (8 * byte)) & 255))


@kernel
def prepare_l2(query_codes, variant):
    """Convert codes of queries (q, words), four bytes per word, to (q, w) int32 as the variant reads them.

    VNNI: unchanged. PAIRS: two 16-bit initial values, then the codes. FLOATS: (q, 4 words) float32.
    """
    q, words = query_codes.shape
    if variant == VNNI:
        return query_codes.copy()
    if variant == PAIRS:
        with_head = np.empty((q, _HEAD + words), np.int32)
        for r in range(q):
            low = high = 0
            for word in range(words):
                low += _code(query_codes[r, word], 0) + _code(query_codes[r, word], 1)
                high += _code(query_codes[r, word], 2) + _code(query_codes[r, word], 3)
                with_head[r, _HEAD + word] = query_codes[r, word]
            with_head[r, 0] = np.int32(((-128 * high) << 16) | ((-128 * low) & 65535))
        return with_head
    floats = np.empty((q, 4 * words), np.float32)
    for r in range(q):
        for word in range(words):
            for byte in range(4):
                floats[r, 4 * word + byte] = _code(query_codes[r, word], byte)
    return floats.view(np.int32)


_L1_TILES, _L2_TILES = (tuple(variant.queries for variant in variants) for variants in (L1_VARIANTS, L2_VARIANTS))


def _mark(asm, variant, x, query_codes, start, tau, marks, stride, mark_stride, words):
    """Emit code that writes one bit per row and query of the tile: whether the weight exceeds the query's tau."""
    b, sums = asm.builder, variant.sums(asm, x, query_codes, stride, start, words, variant.queries)
    kind, each = sums[0].type, len(sums) // variant.queries
    widen, compare = (b.sitofp, b.fcmp_ordered) if kind.element == F32 else (b.sext, b.icmp_signed)
    for r in range(variant.queries):
        limit = asm.load(asm.at(tau, r, 4), I32, 4)
        limit = asm.splat(widen(b.neg(limit) if variant.small else limit, kind.element), kind.count)
        for v, total in enumerate(sums[each * r : each * (r + 1)]):
            bits = b.bitcast(compare("<" if variant.small else ">", total, limit), ir.IntType(kind.count))
            asm.store(bits, asm.at(asm.at(marks, r, mark_stride), v, kind.count // 8), kind.count // 8)


def _weigh(asm, variant, x, query_codes, start, values, words):
    """Emit code that writes the weights of one query as int32."""
    for v, total in enumerate(variant.sums(asm, x, query_codes, asm.number(0), start, words, 1)):
        lanes = total.type.count
        to_int32 = asm.builder.fptosi if total.type.element == F32 else asm.builder.trunc
        weight = to_int32(total, ir.VectorType(I32, lanes))
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
