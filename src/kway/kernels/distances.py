"""Distances in float64: of single pairs, and in tiles for Manhattan and Hamming, which have no matrix product.

`distance(code, q, x)` returns the distance of a query q (d,) float64 and a row x (d,) float32 or float64. The order of
additions depends on d alone. So equal rows have equal distances, and the distance of a row to itself is 0, also for
cosine.

    squared_gaps(q, x)     sum (q - x)^2
    absolute_gaps(q, x)    sum |q - x|

These two sums add in the same order on every CPU: 16 partial sums over the columns, which are then added pairwise, then
the remaining columns. Therefore all indexes return the same digits, and ties are exact, so they go to the lower id.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import F64, I32, I64, Assembler
from kway.kernels.jit import kernel, strict_kernel

# with KEY, a scan takes its keys as distances and measures no row
EUCLIDEAN, MANHATTAN, COSINE, DOT, HAMMING, HAVERSINE, KEY = range(7)


LANES = 16  # partial sums that are computed in parallel, in two AVX-512 registers
_WIDE = ir.VectorType(F64, LANES)


def _halve(asm, vector):
    """Emit the sum of the lanes: the upper half is added to the lower half until one lane remains."""
    b, lanes = asm.builder, LANES
    while lanes > 1:
        lanes //= 2
        low, high = (ir.Constant(ir.VectorType(I32, lanes), list(range(a, a + lanes))) for a in (0, lanes))
        empty = ir.Constant(vector.type, ir.Undefined)
        vector = b.fadd(b.shuffle_vector(vector, empty, low), b.shuffle_vector(vector, empty, high))
    return b.extract_element(vector, ir.Constant(I32, 0))


def _wide_sum(term):
    """Return the type function of an intrinsic that sums term(q - x) over rounds * LANES columns of two float rows."""

    def typed(typing_context, q, x, rounds):
        kinds = q.dtype, x.dtype

        def emit(context, builder, signature, arguments):
            asm = Assembler(builder)
            rows = zip(signature.args[:2], arguments)
            arrays = [context.make_array(kind)(context, builder, row) for kind, row in rows]
            bases = [builder.ptrtoint(array.data, I64) for array in arrays]

            def wide(base, index, kind):
                size, narrow = kind.bitwidth // 8, ir.VectorType(context.get_value_type(kind), LANES)
                values = asm.load(asm.at(base, index, LANES * size), narrow, size)
                return values if kind == types.float64 else builder.fpext(values, _WIDE)

            def step(index, sums):
                gap = builder.fsub(*(wide(base, index, kind) for base, kind in zip(bases, kinds)))
                return [builder.fadd(sums[0], term(asm, gap))]

            total = asm.loop(arguments[2], [ir.Constant(_WIDE, [0.0] * LANES)], step)
            return _halve(asm, total[0])

        return types.float64(q, x, types.intp), emit

    return typed


def _square(asm, gap):
    return asm.builder.fmul(gap, gap)


def _size(asm, gap):
    return asm.call(f"llvm.fabs.v{LANES}f64", _WIDE, [gap])


@intrinsic
def _wide_squares(typing_context, q, x, rounds):
    return _wide_sum(_square)(typing_context, q, x, rounds)


@intrinsic
def _wide_sizes(typing_context, q, x, rounds):
    return _wide_sum(_size)(typing_context, q, x, rounds)


@strict_kernel
def squared_gaps(q, x):
    """Return sum (q - x)^2."""
    d = len(x)
    total = _wide_squares(q, x, d // LANES) if d >= LANES else 0.0
    for z in range(d - d % LANES, d):
        gap = np.float64(q[z]) - np.float64(x[z])
        total += gap * gap
    return total


@strict_kernel
def absolute_gaps(q, x):
    """Return sum |q - x|."""
    d = len(x)
    total = _wide_sizes(q, x, d // LANES) if d >= LANES else 0.0
    for z in range(d - d % LANES, d):
        total += abs(np.float64(q[z]) - np.float64(x[z]))
    return total


@kernel
def cosine(q, x):
    """Return 1 - q.x / (||q|| ||x||), or 1 if either row is zero."""
    qx = 0.0
    qq = 0.0
    xx = 0.0
    for j in range(len(q)):
        value = np.float64(x[j])
        qx += q[j] * value
        qq += q[j] * q[j]
        xx += value * value
    if qq == 0.0 or xx == 0.0:
        return 1.0
    both = qq * xx
    # sqrt(a * a) is a exactly, which makes identical rows exactly 0; sqrt(a) * sqrt(a) is not
    norm = np.sqrt(both) if 1e-290 < both < 1e290 else np.sqrt(qq) * np.sqrt(xx)
    return min(2.0, max(0.0, 1.0 - qx / norm))


@kernel
def dot(q, x):
    """Return -q.x."""
    total = 0.0
    for j in range(len(q)):
        total += q[j] * np.float64(x[j])
    return -total


@kernel
def hamming(q, x):
    """Return the share of the coordinates that differ."""
    differ = 0
    for j in range(len(q)):
        differ += q[j] != np.float64(x[j])
    return differ / len(q)


@kernel
def haversine(q, x):
    """Return the great-circle angle between two places (latitude, longitude), all in radians."""
    north = np.sin(0.5 * (q[0] - x[0]))
    east = np.sin(0.5 * (q[1] - x[1]))
    return 2.0 * np.arcsin(min(1.0, np.sqrt(north * north + np.cos(q[0]) * np.cos(x[0]) * east * east)))


@kernel
def distance(code, q, x):
    """Return the distance with the number `code`."""
    if code == EUCLIDEAN:
        return np.sqrt(squared_gaps(q, x))
    if code == MANHATTAN:
        return absolute_gaps(q, x)
    if code == COSINE:
        return cosine(q, x)
    if code == DOT:
        return dot(q, x)
    if code == HAMMING:
        return hamming(q, x)
    return haversine(q, x)


@kernel
def manhattan_tile(queries, rows, out):
    """Set out (m, c) to ||q_i - x_j||_1. Four rows share a loop, so each query value is loaded once for four sums."""
    m, d = queries.shape
    c = len(rows)
    full = c - c % 4
    for start in range(0, full, 64):  # 64 rows of 784 floats stay in the L2 cache for all queries
        for i in range(m):
            q = queries[i]
            for j in range(start, min(full, start + 64), 4):
                a, b, e, f = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
                sa = out.dtype.type(0)
                sb = out.dtype.type(0)
                se = out.dtype.type(0)
                sf = out.dtype.type(0)
                for t in range(d):
                    sa += abs(q[t] - a[t])
                    sb += abs(q[t] - b[t])
                    se += abs(q[t] - e[t])
                    sf += abs(q[t] - f[t])
                out[i, j] = sa
                out[i, j + 1] = sb
                out[i, j + 2] = se
                out[i, j + 3] = sf
    for i in range(m):
        for j in range(full, c):
            total = out.dtype.type(0)
            for t in range(d):
                total += abs(queries[i, t] - rows[j, t])
            out[i, j] = total


@kernel
def hamming_tile(queries, rows, out):
    """Set out (m, c) to the number of coordinates in which q_i and x_j differ."""
    m, d = queries.shape
    for start in range(0, len(rows), 64):
        for i in range(m):
            q = queries[i]
            for j in range(start, min(len(rows), start + 64)):
                x = rows[j]
                differ = 0
                for t in range(d):
                    differ += q[t] != x[t]
                out[i, j] = differ


@kernel
def refine(code, queries, rows, limits_q, limits_x, out):
    """Recompute the pairs with out (m, c) <= limits_q[i] + limits_x[j], which lost digits by cancellation."""
    for i in range(len(queries)):
        for j in range(len(rows)):
            if out[i, j] <= limits_q[i] + limits_x[j]:
                out[i, j] = distance(code, queries[i], rows[j])
