"""Tiles of codes: sums of a few queries and 64 rows, held against thresholds or written out, whatever the distance.

    packed (blocks, words, 64)     codes of rows, the same word of 64 rows side by side
    bias   (blocks, 64) int32      where the rows' sums start; None under Manhattan, whose sums start at 0
    asked  (q, w)                  codes of queries as the way reads them; q is a multiple of the queries of a tile
    tau    (q,) int32              a row is marked where its weight > tau

A weight is the sum, or minus it where small sums are near: the larger, the nearer. That is turned round in tau, not in
the sums: to subtract in their loop cost AVX2 5 % of a search.

How sums are made is the distance's own (tile_l1, tile_l2); `bias` says which, when numba compiles. `way` is a number
that is only known when a kernel runs: what is compiled holds every way of the distance that the CPU has.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import F32, I32, Assembler
from kway.compute.kernels.certified.tile_l1 import L1_WAYS
from kway.compute.kernels.certified.tile_l2 import L2_WAYS
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import cpu_has

_L1_TILES, _L2_TILES = (tuple(way.queries for way in ways) for ways in (L1_WAYS, L2_WAYS))


def _mark(asm, way, x, asked, start, tau, marks, stride, mark_stride, words):
    """A bit a row and query of the tile: whether the weight exceeds the query's tau."""
    b, sums = asm.builder, way.sums(asm, x, asked, stride, start, words, way.queries)
    kind, each = sums[0].type, len(sums) // way.queries
    widen, compare = (b.sitofp, b.fcmp_ordered) if kind.element == F32 else (b.sext, b.icmp_signed)
    for r in range(way.queries):
        limit = asm.load(asm.at(tau, r, 4), I32, 4)
        limit = asm.splat(widen(b.neg(limit) if way.small else limit, kind.element), kind.count)
        for v, total in enumerate(sums[each * r : each * (r + 1)]):
            bits = b.bitcast(compare("<" if way.small else ">", total, limit), ir.IntType(kind.count))
            asm.store(bits, asm.at(asm.at(marks, r, mark_stride), v, kind.count // 8), kind.count // 8)


def _weigh(asm, way, x, asked, start, values, words):
    """The weights of one query, as int32."""
    for v, total in enumerate(way.sums(asm, x, asked, asm.number(0), start, words, 1)):
        lanes, whole = total.type.count, asm.builder.fptosi if total.type.element == F32 else asm.builder.trunc
        weight = whole(total, ir.VectorType(I32, lanes))
        asm.store(asm.builder.neg(weight) if way.small else weight, asm.at(values, v, 4 * lanes), 4)


def _each_way(tile, bias):
    """Code of an intrinsic of (..., way, bias): the tile in the way asked for; none where this CPU lacks it."""

    def emit(context, builder, signature, arguments):
        *given, number, _ = arguments
        done = builder.append_basic_block("tile_done")
        choice = builder.switch(number, done)
        for i, way in enumerate(L1_WAYS if bias is types.none else L2_WAYS):
            if cpu_has(*way.features):
                block = builder.append_basic_block("way")
                choice.add_case(i, block)
                builder.position_at_end(block)
                tile(Assembler(builder), way, *given)
                builder.branch(done)
        builder.position_at_end(done)
        return context.get_dummy_value()

    return emit


@intrinsic
def _mark_tile(typing_context, x, asked, start, tau, marks, stride, mark_stride, words, way, bias):
    return types.void(*[types.uintp] * 5, *[types.intp] * 4, bias), _each_way(_mark, bias)


@intrinsic
def _weigh_tile(typing_context, x, asked, start, values, words, way, bias):
    return types.void(*[types.uintp] * 4, *[types.intp] * 2, bias), _each_way(_weigh, bias)


@kernel
def scan_codes(packed, bias, first, last, asked, tau, marks, way):
    """marks (q, blocks) uint64: bit j of marks[r, b - first] set where row j of block b may be near query r."""
    words, stride, mark_stride = packed.shape[1], asked.strides[0], marks.strides[0]
    tile = _L1_TILES[way] if bias is None else _L2_TILES[way]
    for b in range(first, last):
        x = np.uint64(packed.ctypes.data + b * packed.strides[0])
        start = np.uint64(0) if bias is None else np.uint64(bias.ctypes.data + b * bias.strides[0])
        for r in range(0, asked.shape[0], tile):
            q = np.uint64(asked.ctypes.data + r * stride)
            limit = np.uint64(tau.ctypes.data + 4 * r)
            out = np.uint64(marks.ctypes.data + r * mark_stride + 8 * (b - first))
            _mark_tile(x, q, start, limit, out, stride, mark_stride, words, way, bias)


@kernel
def weigh_codes(packed, bias, block, asked, r, values, way):
    """values (64,) int32: the weights of query r and the rows of a block; the larger, the nearer."""
    x = np.uint64(packed.ctypes.data + block * packed.strides[0])
    start = np.uint64(0) if bias is None else np.uint64(bias.ctypes.data + block * bias.strides[0])
    q, out = np.uint64(asked.ctypes.data + r * asked.strides[0]), np.uint64(values.ctypes.data)
    _weigh_tile(x, q, start, out, packed.shape[1], way, bias)
