"""Register tiles of the two products of a linear model, written in LLVM's own terms.

    forward    z[r, k] = sum_j x[r, j] w[k, j]          R rows at a time, R * K accumulators of 16 lanes
    backward   g[k, j] += sum_i p[i, k] x[i, j]         R vectors of features at a time, the same accumulators

Vectors are <16 x float> and fused multiply-adds `llvm.fma`, which LLVM legalises on every machine; `wide` says whether
the machine has registers of that width, without which the accumulators spill and plain BLAS is faster. A tile is
specialised by K, the length of the tuple `classes`, so that numba compiles and caches one kernel for each K in use.
Addresses and strides are plain numbers (bytes): a row may lie anywhere and may be read-only. The last, partial vector
of a row is read under a mask, so nothing is padded and nothing beyond the row is touched.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import F32, I32, I64, Assembler
from kway.compute.kernels.lanes import chosen

LANES = 16
ACCUMULATORS = 28  # of 32 registers: the rest hold the operands

_VECTOR = ir.VectorType(F32, LANES)
_ZERO = ir.Constant(_VECTOR, [0.0] * LANES)


def wide() -> bool:
    """Whether a register of this machine holds 16 floats, and the tiles are to be used."""
    return chosen("avx512f")


def tile_height(n_classes: int) -> int:
    """Rows (or vectors of features) a tile: as many as its accumulators fit the registers."""
    return max(1, min(8, ACCUMULATORS // n_classes))


def _sums(b, vectors):
    """Up to 16 vectors -> one vector of their sums, by a tree of shuffles."""
    level, half = list(vectors) + [_ZERO] * (LANES - len(vectors)), LANES // 2
    while len(level) > 1:
        low, high = [], []
        for group in range(0, LANES, 2 * half):
            low += [group + t for t in range(half)] + [LANES + group + t for t in range(half)]
            high += [group + half + t for t in range(half)] + [LANES + group + half + t for t in range(half)]
        picks = [ir.Constant(ir.VectorType(I32, LANES), lanes) for lanes in (low, high)]
        pairs = zip(level[: len(level) // 2], level[len(level) // 2 :])
        level = [b.fadd(*(b.shuffle_vector(left, right, pick) for pick in picks)) for left, right in pairs]
        half //= 2
    return level[0]


def _forward(builder, arguments, rows, n_classes):
    asm = Assembler(builder)
    x, w, z, x_stride, w_stride, z_stride, features = arguments
    row = [asm.at(x, r, x_stride) for r in range(rows)]
    weights = [asm.at(w, k, w_stride) for k in range(n_classes)]

    def step(values, offset, kept):
        new = list(kept)
        for k in range(n_classes):
            weight = asm.load(asm.at(weights[k], offset), _VECTOR, 4)
            for r in range(rows):
                new[r * n_classes + k] = asm.fma(values[r], weight, kept[r * n_classes + k])
        return new

    def whole(i, kept):
        offset = builder.shl(i, asm.number(6))
        return step([asm.load(asm.at(p, offset), _VECTOR, 4) for p in row], offset, kept)

    full, rest = builder.lshr(features, asm.number(4)), builder.and_(features, asm.number(LANES - 1))
    end, mask = builder.shl(full, asm.number(6)), asm.first_lanes(rest, LANES)

    def partial(_, kept):
        return step([asm.load_masked(asm.at(p, end), _VECTOR, mask) for p in row], end, kept)

    some = builder.zext(builder.icmp_signed(">", rest, asm.number(0)), I64)
    start = asm.loop(some, [_ZERO] * (rows * n_classes), partial)
    sums = asm.loop(full, start, whole)
    for r in range(rows):
        asm.store(_sums(builder, sums[r * n_classes : (r + 1) * n_classes]), asm.at(z, r, z_stride), 4)


def _backward(builder, arguments, vectors, n_classes, lanes=None):
    asm = Assembler(builder)
    x, p, g, x_stride, p_stride, g_stride, rows = arguments
    classes = [asm.at(g, k, g_stride) for k in range(n_classes)]
    mask = None if lanes is None else asm.first_lanes(lanes, LANES)
    ahead = builder.mul(x_stride, rows)  # the next block, fetched while this one is multiplied

    def body(i, kept):
        row, slope = asm.at(x, i, x_stride), asm.at(p, i, p_stride)
        later = builder.add(row, ahead)
        for v in range(vectors):
            asm.prefetch(asm.at(later, v, 64))
        if mask is None:
            values = [asm.load(asm.at(row, v, 64), _VECTOR, 4) for v in range(vectors)]
        else:
            values = [asm.load_masked(row, _VECTOR, mask)]
        new = []
        for k in range(n_classes):
            spread = asm.splat(asm.load(asm.at(slope, k, 4), F32, 4), LANES)
            new += [asm.fma(spread, values[v], kept[k * vectors + v]) for v in range(vectors)]
        return new

    places = [asm.at(classes[k], v, 64) for k in range(n_classes) for v in range(vectors)]
    sums = asm.loop(rows, [asm.load(place, _VECTOR, 4) for place in places], body)
    for total, place in zip(sums, places):
        asm.store(total, place, 4)


_SEVEN = [types.intp] * 7


@intrinsic
def forward_tile(typing, x, w, z, x_stride, w_stride, z_stride, features, classes):
    """z (R, 16 lanes) = products of `tile_height` rows with every class; rows of w are whole vectors and one more."""

    def generate(context, builder, signature, arguments):
        _forward(builder, arguments[:7], tile_height(classes.count), classes.count)
        return context.get_dummy_value()

    return types.void(*_SEVEN, classes), generate


@intrinsic
def forward_row(typing, x, w, z, x_stride, w_stride, z_stride, features, classes):
    """`forward_tile` of one row."""

    def generate(context, builder, signature, arguments):
        _forward(builder, arguments[:7], 1, classes.count)
        return context.get_dummy_value()

    return types.void(*_SEVEN, classes), generate


@intrinsic
def backward_tile(typing, x, p, g, x_stride, p_stride, g_stride, rows, classes):
    """g (K, 16 * `tile_height`) += p^T x over `rows` rows."""

    def generate(context, builder, signature, arguments):
        _backward(builder, arguments[:7], tile_height(classes.count), classes.count)
        return context.get_dummy_value()

    return types.void(*_SEVEN, classes), generate


@intrinsic
def backward_lanes(typing, x, p, g, x_stride, p_stride, g_stride, rows, lanes, classes):
    """g (K, `lanes` <= 16 of a vector) += p^T x over `rows` rows."""

    def generate(context, builder, signature, arguments):
        _backward(builder, arguments[:7], 1, classes.count, arguments[7])
        return context.get_dummy_value()

    return types.void(*_SEVEN, types.intp, classes), generate


@intrinsic
def float_of_bits(typing, bits):
    """The float32 whose bits an int32 has."""
    return types.float32(types.int32), lambda context, builder, signature, a: builder.bitcast(a[0], F32)
