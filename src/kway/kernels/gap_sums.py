"""Sums over the gaps of two rows, q (d,) and x (d,), of either float type each, in float64.

    squared_gaps(q, x)     sum (q - x)^2
    absolute_gaps(q, x)    sum |q - x|

One fixed order of additions, on every CPU and wherever they are called from: sixteen lanes, halves added to halves,
then the columns that are left. Equal rows get equal distances to the last bit, so that ties really are ties and the
lower id wins, and every index, one that was read from a file too, gives the same digits.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import F64, I32, I64, Assembler
from kway.kernels.jit import strict_kernel

LANES = 16  # sums that are added up side by side: two AVX-512 registers (T1, T2)
_WIDE = ir.VectorType(F64, LANES)


def _halve(asm, vector):
    """Sum of the lanes, halves added to halves."""
    b, lanes = asm.builder, LANES
    while lanes > 1:
        lanes //= 2
        low, high = (ir.Constant(ir.VectorType(I32, lanes), list(range(a, a + lanes))) for a in (0, lanes))
        empty = ir.Constant(vector.type, ir.Undefined)
        vector = b.fadd(b.shuffle_vector(vector, empty, low), b.shuffle_vector(vector, empty, high))
    return b.extract_element(vector, ir.Constant(I32, 0))


def _wide_sum(term):
    """Code for sum of term(q - x) over rounds * LANES columns of two rows, either of which may be float32."""

    def typed(typing_context, q, x, rounds):
        kinds = q.dtype, x.dtype

        def emit(context, builder, signature, arguments):
            asm = Assembler(builder)
            rows = zip(signature.args[:2], arguments)
            made = [context.make_array(kind)(context, builder, row) for kind, row in rows]
            bases = [builder.ptrtoint(array.data, I64) for array in made]

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
    """sum (q - x)^2."""
    d = len(x)
    total = _wide_squares(q, x, d // LANES) if d >= LANES else 0.0
    for z in range(d - d % LANES, d):
        gap = np.float64(q[z]) - np.float64(x[z])
        total += gap * gap
    return total


@strict_kernel
def absolute_gaps(q, x):
    """sum |q - x|."""
    d = len(x)
    total = _wide_sizes(q, x, d // LANES) if d >= LANES else 0.0
    for z in range(d - d % LANES, d):
        total += abs(np.float64(q[z]) - np.float64(x[z]))
    return total
