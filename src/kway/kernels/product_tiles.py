"""Register tiles of the two products of a linear model, as LLVM instructions, in float32 and float64.

    forward    z[r, k] = sum_j x[r, j] w[k, j]          `height` rows at a time, one group of classes after the other
    backward   g[k, j] += sum_i p[i, k] x[i, j]         `height` vectors of features at a time, the same groups

A tile is one group at its height. It has as many accumulators as fit in the registers next to the values of a row and a
weight, and at least two rows, so that each weight is loaded once for both. Vectors are as long as a register, and
multiplications use `llvm.fma`, which LLVM supports on every CPU. If `in_registers()` is false, the CPU has no such
instructions and BLAS is faster.

A tile is specialized by the tuple `classes`, which has one zero per class: its length is K, and its type is that of
the rows. Numba compiles one kernel per K and type. Addresses and strides are in bytes, so rows may be anywhere in
memory and may be read-only. The last, partial vector of a row is read with a mask, so nothing is padded and nothing
outside the row is read.
"""

from __future__ import annotations

from typing import NamedTuple

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import F32, F64, I32, I64, Assembler, number_bytes
from kway.kernels.lanes import chosen, cpu_has

# Decided by the benchmark of softmax fits (T4).
MAX_SCORES = 16  # maximum number of classes: with more, BLAS is faster
MAX_HEIGHT = 8  # maximum number of rows of a tile: with more, more rows remain at the end of a block
LINE = 64  # bytes of a cache line of x86 and most ARM CPUs


class Tile(NamedTuple):
    """Layout of the products of K classes in registers."""

    height: int  # rows, or vectors of features
    lanes: int  # numbers in a vector
    group: int  # number of classes whose products are accumulated together


def in_registers() -> bool:
    """Return whether this CPU has vector fused multiply-adds, so that tiles are used."""
    return chosen("avx512f") or chosen("avx2", "fma")


def tile_of(n_classes: int, size: int) -> Tile:
    """Return the tile for K classes and numbers of `size` bytes: height * (group + 1) + 1 registers, height >= 2."""
    registers, width = (32, 64) if cpu_has("avx512f") else (16, 32)
    groups = -(-n_classes // ((registers - 3) // 2))
    group = -(-n_classes // groups)
    return Tile(min(MAX_HEIGHT, (registers - 1) // (group + 1)), width // size, group)


def _layout(classes):
    """Return K, its tile, and the type of a vector."""
    number = F32 if classes.dtype == types.float32 else F64
    tile = tile_of(classes.count, number_bytes(number))
    return classes.count, tile, ir.VectorType(number, tile.lanes)


def _groups(n_classes, group):
    return [range(first, min(first + group, n_classes)) for first in range(0, n_classes, group)]


def _sums(b, vectors):
    """Return a vector with the sums of up to `lanes` vectors, by a tree of shuffles."""
    lanes = vectors[0].type.count
    zero = ir.Constant(vectors[0].type, [0.0] * lanes)
    level, half = list(vectors) + [zero] * (lanes - len(vectors)), lanes // 2
    while len(level) > 1:
        low, high = [], []
        for group in range(0, lanes, 2 * half):
            low += [group + t for t in range(half)] + [lanes + group + t for t in range(half)]
            high += [group + half + t for t in range(half)] + [lanes + group + half + t for t in range(half)]
        picks = [ir.Constant(ir.VectorType(I32, lanes), places) for places in (low, high)]
        pairs = zip(level[: len(level) // 2], level[len(level) // 2 :])
        level = [b.fadd(*(b.shuffle_vector(left, right, pick) for pick in picks)) for left, right in pairs]
        half //= 2
    return level[0]


def _forward(builder, arguments, rows, classes):
    asm = Assembler(builder)
    (K, tile, vector), (x, w, z, x_stride, w_stride, z_stride, features) = _layout(classes), arguments
    size = number_bytes(vector.element)
    width, zero = size * tile.lanes, ir.Constant(vector, [0.0] * tile.lanes)
    row = [asm.at(x, r, x_stride) for r in range(rows)]
    full = builder.udiv(features, asm.number(tile.lanes))
    rest = builder.urem(features, asm.number(tile.lanes))
    end, mask = asm.at(asm.number(0), full, width), asm.first_lanes(rest, tile.lanes)
    has_rest = builder.zext(builder.icmp_signed(">", rest, asm.number(0)), I64)

    def products(group):
        """Return the accumulators of a group of classes, row by row."""
        weights = [asm.at(w, k, w_stride) for k in group]

        def step(values, offset, kept):
            new = list(kept)
            for k, place in enumerate(weights):
                weight = asm.load(asm.at(place, offset), vector, size)
                for r in range(rows):
                    at = r * len(weights) + k
                    new[at] = asm.fma(values[r], weight, kept[at])
            return new

        def whole(i, kept):
            offset = asm.at(asm.number(0), i, width)
            return step([asm.load(asm.at(p, offset), vector, size) for p in row], offset, kept)

        def partial(_, kept):
            return step([asm.load_masked(asm.at(p, end), vector, mask) for p in row], end, kept)

        start = asm.loop(has_rest, [zero] * (rows * len(weights)), partial, perhaps_none=True)
        found = asm.loop(full, start, whole, perhaps_none=True)
        return [found[r * len(weights) : (r + 1) * len(weights)] for r in range(rows)]

    parts = [products(group) for group in _groups(K, tile.group)]
    for r in range(rows):
        found = [total for part in parts for total in part[r]]
        for first in range(0, K, tile.lanes):
            place = asm.at(asm.at(z, r, z_stride), first, size)
            asm.store(_sums(builder, found[first : first + tile.lanes]), place, size)


def _backward(builder, arguments, vectors, classes, lanes=None):
    asm = Assembler(builder)
    (K, tile, vector), (x, p, g, x_stride, p_stride, g_stride, rows) = _layout(classes), arguments
    size = number_bytes(vector.element)
    width = size * tile.lanes
    mask = None if lanes is None else asm.first_lanes(lanes, tile.lanes)
    ahead = builder.mul(x_stride, rows)  # offset of the next block, which is prefetched

    def add(group):
        """Add to the gradients of a group of classes."""

        def body(i, kept):
            row, slope = asm.at(x, i, x_stride), asm.at(p, i, p_stride)
            if group.start == 0:
                for v in range(0, vectors, max(1, LINE // width)):
                    asm.prefetch(asm.at(builder.add(row, ahead), v, width))
            if mask is None:
                values = [asm.load(asm.at(row, v, width), vector, size) for v in range(vectors)]
            else:
                values = [asm.load_masked(row, vector, mask)]
            new = []
            for k in group:
                spread = asm.splat(asm.load(asm.at(slope, k, size), vector.element, size), tile.lanes)
                new += [asm.fma(spread, value, kept[len(new) + v]) for v, value in enumerate(values)]
            return new

        places = [asm.at(asm.at(g, k, g_stride), v, width) for k in group for v in range(vectors)]
        sums = asm.loop(rows, [asm.load(place, vector, size) for place in places], body)
        for total, place in zip(sums, places):
            asm.store(total, place, size)

    for group in _groups(K, tile.group):
        add(group)


def _emit(write, lanes, classes):
    """Return the signature (seven numbers, optionally `lanes`, and `classes`) and a generator that calls `write`."""

    def generate(context, builder, signature, arguments):
        write(builder, arguments)
        return context.get_dummy_value()

    return types.void(*[types.intp] * (7 + lanes), classes), generate


@intrinsic
def forward_tile(typing, x, w, z, x_stride, w_stride, z_stride, features, classes):
    """Set z (height, K) to the products of `height` rows and all classes; rows of w are one vector longer."""
    return _emit(lambda b, numbers: _forward(b, numbers[:7], _layout(classes)[1].height, classes), 0, classes)


@intrinsic
def forward_row(typing, x, w, z, x_stride, w_stride, z_stride, features, classes):
    """Compute `forward_tile` for one row."""
    return _emit(lambda b, numbers: _forward(b, numbers[:7], 1, classes), 0, classes)


@intrinsic
def backward_tile(typing, x, p, g, x_stride, p_stride, g_stride, rows, classes):
    """Add p^T x over `rows` rows to g (K, height vectors)."""
    return _emit(lambda b, numbers: _backward(b, numbers[:7], _layout(classes)[1].height, classes), 0, classes)


@intrinsic
def backward_lanes(typing, x, p, g, x_stride, p_stride, g_stride, rows, lanes, classes):
    """Add p^T x over `rows` rows to g (K, the first `lanes` numbers of a vector)."""
    return _emit(lambda b, numbers: _backward(b, numbers[:7], 1, classes, numbers[7]), 1, classes)


@intrinsic
def float_of_bits(typing, bits):
    """Return the float32 with the bits of an int32."""
    return types.float32(types.int32), lambda context, builder, signature, a: builder.bitcast(a[0], F32)
