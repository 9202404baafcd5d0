"""Sums of byte codes under Manhattan distance: sums of byte differences (tiles.py has what becomes of them).

    packed (blocks, words, 64) int64     eight codes 0..255 a word, the same word of 64 rows side by side
    asked  (q, words) int64              the queries' codes; q is a multiple of QUERIES

Three ways to the same sums:

    L1_WIDE     3 queries x 64 rows, 24 accumulators of AVX-512BW's sum of absolute differences
    L1_SHORT    3 queries x 8 rows, 6 accumulators of AVX2's
    L1_ORDINARY 16-bit lanes of ordinary vectors, which hold 128 words (so codes have at most L1_MOST_DIMS dimensions)
"""

from __future__ import annotations

from llvmlite import ir

from kway.compute.kernels.assembler import I8, I16, I32, I64
from kway.compute.kernels.certified.ways import TileWay

L1_QUERIES = 3  # queries a tile
L1_MOST_DIMS = 1024  # 1024 / 8 words x 2 bytes x 255 < 2^16
L1_ORDINARY, L1_SHORT, L1_WIDE = range(3)  # the ways, slowest first

_WORDS = ir.VectorType(I64, 8)
_BYTES = ir.VectorType(I8, 64)
_PAIRS = ir.VectorType(I16, 32)


def _differences_sums(instruction, lanes, each):
    """Sum |q - x| as [query][vector of 8 rows] by an instruction for `lanes` rows, `each` vectors at a time."""
    wide, bytes_ = ir.VectorType(I64, lanes), ir.VectorType(I8, 8 * lanes)

    def sums_of(asm, x, asked, stride, bias, words, queries):
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
        return _by_eight(asm, sums)

    return sums_of


_wide_sums = _differences_sums("llvm.x86.avx512.psad.bw.512", 8, 8)
_short_sums = _differences_sums("llvm.x86.avx2.psad.bw", 4, 2)


def _ordinary_sums(asm, x, asked, stride, bias, words, queries):
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


L1_WAYS = (
    TileWay(_ordinary_sums, L1_QUERIES, small=True),
    TileWay(_short_sums, L1_QUERIES, ("avx2",), small=True),
    TileWay(_wide_sums, L1_QUERIES, ("avx512f", "avx512bw"), small=True),
)
