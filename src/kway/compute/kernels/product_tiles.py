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

import functools

from llvmlite import binding, ir
from numba.core import cgutils, types
from numba.extending import intrinsic

LANES = 16
ACCUMULATORS = 28  # of 32 registers: the rest hold the operands

_f32, _i32, _i64, _bit = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.IntType(1)
_vector, _mask = ir.VectorType(_f32, LANES), ir.VectorType(_bit, LANES)
_lanes32, _lanes64 = ir.VectorType(_i32, LANES), ir.VectorType(_i64, LANES)
_ZERO = ir.Constant(_vector, [0.0] * LANES)


@functools.cache
def wide() -> bool:
    """Whether a register of this machine holds 16 floats."""
    return bool(binding.get_host_cpu_features().get("avx512f", False))


def tile_height(n_classes: int) -> int:
    """Rows (or vectors of features) a tile: as many as its accumulators fit the registers."""
    return max(1, min(8, ACCUMULATORS // n_classes))


def _number(value):
    return ir.Constant(_i64, value)


def _call(builder, name, returned, arguments):
    declared = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(returned, [a.type for a in arguments]), name
    )
    return builder.call(declared, arguments)


def _fma(builder, a, b, c):
    return _call(builder, "llvm.fma.v16f32", _vector, [a, b, c])


def _pointer(builder, address, offset):
    return builder.inttoptr(builder.add(address, _number(offset)), _vector.as_pointer())


def _load(builder, address, offset=0):
    loaded = builder.load(_pointer(builder, address, offset))
    loaded.align = 4
    return loaded


def _load_masked(builder, address, mask):
    pointer = builder.inttoptr(address, _vector.as_pointer())
    return _call(builder, "llvm.masked.load.v16f32.p0", _vector, [pointer, ir.Constant(_i32, 4), mask, _ZERO])


def _prefetch(builder, address, offset):
    """Ask for a line of a later row; an address beyond the rows does no harm."""
    pointer = builder.inttoptr(builder.add(address, _number(offset)), ir.IntType(8).as_pointer())
    read, second_level, data = ir.Constant(_i32, 0), ir.Constant(_i32, 2), ir.Constant(_i32, 1)
    _call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, read, second_level, data])


def _store(builder, vector, address, offset=0):
    builder.store(vector, _pointer(builder, address, offset)).align = 4


def _spread(builder, scalar, vector_type):
    """The scalar in every lane."""
    undefined = ir.Constant(vector_type, ir.Undefined)
    first = builder.insert_element(undefined, scalar, ir.Constant(_i32, 0))
    return builder.shuffle_vector(first, undefined, ir.Constant(_lanes32, [0] * LANES))


def _spread_load(builder, address, offset):
    scalar = builder.load(builder.inttoptr(builder.add(address, _number(offset)), _f32.as_pointer()))
    return _spread(builder, scalar, _vector)


def _first_lanes(builder, count):
    """Mask of the first `count` lanes."""
    return builder.icmp_signed("<", ir.Constant(_lanes64, list(range(LANES))), _spread(builder, count, _lanes64))


def _sums(builder, vectors):
    """Up to 16 vectors -> one vector of their sums, by a tree of shuffles."""
    level, half = list(vectors) + [_ZERO] * (LANES - len(vectors)), LANES // 2
    while len(level) > 1:
        low, high = [], []
        for group in range(0, LANES, 2 * half):
            low += [group + t for t in range(half)] + [LANES + group + t for t in range(half)]
            high += [group + half + t for t in range(half)] + [LANES + group + half + t for t in range(half)]
        pairs = zip(level[: len(level) // 2], level[len(level) // 2 :])
        level = [
            builder.fadd(
                builder.shuffle_vector(a, b, ir.Constant(_lanes32, low)),
                builder.shuffle_vector(a, b, ir.Constant(_lanes32, high)),
            )
            for a, b in pairs
        ]
        half //= 2
    return level[0]


def _loop(builder, count, start, body):
    """while i < count: accumulators = body(i, accumulators), kept in registers."""
    before = builder.block
    check, inside, after = (builder.append_basic_block(name) for name in ("check", "inside", "after"))
    builder.branch(check)
    builder.position_at_end(check)
    i = builder.phi(_i64)
    i.add_incoming(_number(0), before)
    kept = [builder.phi(_vector) for _ in start]
    builder.cbranch(builder.icmp_signed("<", i, count), inside, after)
    builder.position_at_end(inside)
    changed = body(i, kept)
    i.add_incoming(builder.add(i, _number(1)), builder.block)
    for phi, first, new in zip(kept, start, changed):
        phi.add_incoming(first, before)
        phi.add_incoming(new, builder.block)
    builder.branch(check)
    builder.position_at_end(after)
    return kept


def _forward(builder, arguments, rows, n_classes):
    x, w, z, x_stride, w_stride, z_stride, features = arguments
    row = [builder.add(x, builder.mul(x_stride, _number(r))) for r in range(rows)]
    weights = [builder.add(w, builder.mul(w_stride, _number(k))) for k in range(n_classes)]

    def step(values, offset, kept):
        new = list(kept)
        for k in range(n_classes):
            weight = _load(builder, builder.add(weights[k], offset))
            for r in range(rows):
                new[r * n_classes + k] = _fma(builder, values[r], weight, kept[r * n_classes + k])
        return new

    def whole(i, kept):
        offset = builder.shl(i, _number(6))
        return step([_load(builder, builder.add(p, offset)) for p in row], offset, kept)

    full, rest = builder.lshr(features, _number(4)), builder.and_(features, _number(LANES - 1))
    end, mask = builder.shl(full, _number(6)), _first_lanes(builder, rest)

    def partial(_, kept):
        return step([_load_masked(builder, builder.add(p, end), mask) for p in row], end, kept)

    some = builder.zext(builder.icmp_signed(">", rest, _number(0)), _i64)
    start = _loop(builder, some, [_ZERO] * (rows * n_classes), partial)
    sums = _loop(builder, full, start, whole)
    for r in range(rows):
        place = builder.add(z, builder.mul(z_stride, _number(r)))
        _store(builder, _sums(builder, sums[r * n_classes : (r + 1) * n_classes]), place)


def _backward(builder, arguments, vectors, n_classes, lanes=None):
    x, p, g, x_stride, p_stride, g_stride, rows = arguments
    classes = [builder.add(g, builder.mul(g_stride, _number(k))) for k in range(n_classes)]
    mask = None if lanes is None else _first_lanes(builder, lanes)
    ahead = builder.mul(x_stride, rows)  # the next block, fetched while this one is multiplied

    def body(i, kept):
        row, slope = builder.add(x, builder.mul(i, x_stride)), builder.add(p, builder.mul(i, p_stride))
        later = builder.add(row, ahead)
        for v in range(vectors):
            _prefetch(builder, later, 64 * v)
        if mask is None:
            values = [_load(builder, row, 64 * v) for v in range(vectors)]
        else:
            values = [_load_masked(builder, row, mask)]
        new = []
        for k in range(n_classes):
            spread = _spread_load(builder, slope, 4 * k)
            new += [_fma(builder, spread, values[v], kept[k * vectors + v]) for v in range(vectors)]
        return new

    places = [(classes[k], 64 * v) for k in range(n_classes) for v in range(vectors)]
    sums = _loop(builder, rows, [_load(builder, *place) for place in places], body)
    for total, place in zip(sums, places):
        _store(builder, total, *place)


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
    return types.float32(types.int32), lambda context, builder, signature, a: builder.bitcast(a[0], _f32)
