"""From candidates to neighbours: exact distances and the sorted list of the best.

    exact_l2(rows, j, queries, i)   sum (q - x)^2 in float64 of the stored values
    exact_l1(rows, j, queries, i)   sum |q - x|   likewise
    offer(best, found, i, value, j) merge into the list of query i, ordered by (value, j); best (q, k) float64

The exact sums have one fixed order of additions, on every CPU and wherever they are called from: equal rows get
equal distances to the last bit, so that ties really are ties and the lower id wins.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import F64, I32, I64, Assembler
from kway.compute.kernels.jit import kernel, strict_kernel
from kway.compute.kernels.lanes import ctz, touch_row

FARTHEST = 1e200  # distance of a place in the list that nobody has taken yet; units of 2^250 keep it finite
_LANES = 16
_WIDE = ir.VectorType(F64, _LANES)


def _row_address(context, builder, array_type, array, index):
    made = context.make_array(array_type)(context, builder, array)
    stride = builder.extract_value(made.strides, 0)
    return builder.add(builder.ptrtoint(made.data, I64), builder.mul(index, stride))


def _halve(asm, vector):
    """Sum of the lanes, halves added to halves."""
    b, lanes = asm.builder, _LANES
    while lanes > 1:
        lanes //= 2
        low, high = (ir.Constant(ir.VectorType(I32, lanes), list(range(a, a + lanes))) for a in (0, lanes))
        empty = ir.Constant(vector.type, ir.Undefined)
        vector = b.fadd(b.shuffle_vector(vector, empty, low), b.shuffle_vector(vector, empty, high))
    return b.extract_element(vector, ir.Constant(I32, 0))


def _wide_sum(term):
    """Code for sum of term(q - x) over rounds * 16 columns of two rows."""

    def typed(typing_context, rows, j, queries, i, rounds):
        kind, size = rows.dtype, rows.dtype.bitwidth // 8

        def emit(context, builder, signature, arguments):
            asm = Assembler(builder)
            x = _row_address(context, builder, signature.args[0], arguments[0], arguments[1])
            q = _row_address(context, builder, signature.args[2], arguments[2], arguments[3])
            narrow = ir.VectorType(context.get_value_type(kind), _LANES)

            def step(index, sums):
                ends = [asm.load(asm.at(base, index, _LANES * size), narrow, size) for base in (q, x)]
                if kind != types.float64:
                    ends = [builder.fpext(end, _WIDE) for end in ends]
                return [builder.fadd(sums[0], term(asm, builder.fsub(*ends)))]

            total = asm.loop(arguments[4], [ir.Constant(_WIDE, [0.0] * _LANES)], step)
            return _halve(asm, total[0])

        return types.float64(rows, types.intp, queries, types.intp, types.intp), emit

    return typed


def _square(asm, gap):
    return asm.builder.fmul(gap, gap)


def _size(asm, gap):
    return asm.call(f"llvm.fabs.v{_LANES}f64", _WIDE, [gap])


@intrinsic
def _wide_squares(typing_context, rows, j, queries, i, rounds):
    return _wide_sum(_square)(typing_context, rows, j, queries, i, rounds)


@intrinsic
def _wide_sizes(typing_context, rows, j, queries, i, rounds):
    return _wide_sum(_size)(typing_context, rows, j, queries, i, rounds)


@strict_kernel
def exact_l2(rows, j, queries, i):
    """Squared Euclidean distance of rows[j] and queries[i] in float64."""
    d = rows.shape[1]
    total = _wide_squares(rows, j, queries, i, d // _LANES) if d >= _LANES else 0.0
    for z in range(d - d % _LANES, d):
        gap = np.float64(queries[i, z]) - np.float64(rows[j, z])
        total += gap * gap
    return total


@strict_kernel
def exact_l1(rows, j, queries, i):
    """Manhattan distance of rows[j] and queries[i] in float64."""
    d = rows.shape[1]
    total = _wide_sizes(rows, j, queries, i, d // _LANES) if d >= _LANES else 0.0
    for z in range(d - d % _LANES, d):
        total += abs(np.float64(queries[i, z]) - np.float64(rows[j, z]))
    return total


@kernel
def listed(found, i, j):
    """Whether row j is in the list of query i."""
    there = False
    for p in range(found.shape[1]):  # without an early end: this becomes vectors
        there |= found[i, p] == j
    return there


@kernel
def insert(best, found, i, value, j):
    """Take row j, which is not in the list, if it belongs among the k smallest by (value, j)."""
    p = best.shape[1] - 1
    if value > best[i, p] or (value == best[i, p] and j > found[i, p]):
        return
    while p > 0 and (best[i, p - 1] > value or (best[i, p - 1] == value and found[i, p - 1] > j)):
        best[i, p] = best[i, p - 1]
        found[i, p] = found[i, p - 1]
        p -= 1
    best[i, p] = value
    found[i, p] = j


@kernel
def visit(rows, queries, i, near, n, squared, best, found):
    """Distances (squared: Euclidean, else Manhattan) of the first n rows of `near`, none listed yet, offered to i."""
    width = rows.shape[1] * rows.itemsize
    for u in range(n):
        if u + 1 < n:
            touch_row(rows, near[u + 1], 0, width)
        value = exact_l2(rows, near[u], queries, i) if squared else exact_l1(rows, near[u], queries, i)
        insert(best, found, i, value, near[u])


@kernel
def unpack_marks(marks, r, first, last, n, places):
    """Numbers of the rows marked for query r in blocks first..last, below n, into `places`; how many."""
    count = 0
    for b in range(last - first):
        word = marks[r, b]
        while word != 0:
            places[count] = (first + b) * 64 + ctz(word)
            word &= word - np.uint64(1)
            count += 1
    while count and places[count - 1] >= n:  # the last block is filled up with rows that do not exist
        count -= 1
    return count


@kernel
def unlisted(ids, found, i, places, n):
    """Places turned into row numbers, those already in the list of query i left out; how many."""
    count = 0
    for u in range(n):
        j = ids[places[u]]
        if not listed(found, i, j):
            places[count] = j
            count += 1
    return count
