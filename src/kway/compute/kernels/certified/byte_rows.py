"""Whole rows as bytes, for the few that the scan of codes leaves: |q - x|^2 in whole numbers, with a known error.

    code_bytes(values, step, codes, errors)   codes (b, d padded) int8 = round(z / step), z = clip(values, +-127 step)
    byte_squares(rows, j, asked, i)           sum (q - x)^2 of two rows of codes: exact

Clipping to a box never lengthens a distance and errors are |z - step codes|, so for any two rows
    step |codes(q) - codes(x)| <= |q - x| + errors(q) + errors(x)
A row of 784 columns takes 784 bytes and 20 ns, in float64 3,136 bytes and 250 ns; and unlike coordinates along more
axes, which say as much in as many bytes, codes need no product with all rows when an index is built.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import I8, I16, I32, I64, Assembler
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import cpu_has

ROUND = 32  # bytes a round: rows are filled up to whole ones
MOST_COLUMNS = 2**17  # 2^17 / 16 lanes * 254^2 < 2^31

_BYTES = ir.VectorType(I8, 16)
_PAIRS = ir.VectorType(I16, 16)


def _squares(asm, gap, paired):
    """Squares of 16 differences, as 8 sums of two or 16 of one."""
    if paired:
        return asm.call("llvm.x86.avx2.pmadd.wd", ir.VectorType(I32, 8), [gap, gap])
    wide = asm.builder.sext(gap, ir.VectorType(I32, 16))
    return asm.builder.mul(wide, wide)


@intrinsic
def _sum_of_squares(typing_context, x, q, rounds):
    """sum (q - x)^2 of `rounds` times 32 bytes at two addresses."""

    def emit(context, builder, signature, arguments):
        asm = Assembler(builder)
        ends, paired = arguments[:2], cpu_has("avx2")
        lanes = 8 if paired else 16

        def step(index, sums):
            new = []
            for half, total in enumerate(sums):
                places = [builder.add(asm.at(end, index, ROUND), asm.number(16 * half)) for end in ends]
                wide = [builder.sext(asm.load(place, _BYTES, 1), _PAIRS) for place in places]
                new.append(builder.add(total, _squares(asm, builder.sub(*wide), paired)))
            return new

        zero = asm.same(ir.VectorType(I32, lanes), 0)
        low, high = (builder.sext(part, ir.VectorType(I64, lanes)) for part in asm.loop(arguments[2], [zero] * 2, step))
        return asm.call(f"llvm.vector.reduce.add.v{lanes}i64", I64, [builder.add(low, high)])

    return types.int64(types.uintp, types.uintp, types.intp), emit


@kernel
def byte_squares(rows, j, asked, i):
    """sum (q - x)^2 of rows[j] and asked[i], both int8 of whole rounds."""
    x = np.uint64(rows.ctypes.data + j * rows.strides[0])
    q = np.uint64(asked.ctypes.data + i * asked.strides[0])
    return _sum_of_squares(x, q, rows.shape[1] // ROUND)


@kernel
def code_bytes(values, step, codes, errors):
    """Codes (b, d padded) int8 of values (b, d) float32, and |z - step codes| (b,); see above."""
    d, share, top = np.uint64(values.shape[1]), np.float32(1 / step), np.float32(127 * step)
    for i in range(np.uint64(values.shape[0])):
        square = np.float32(0)
        for z in range(d):
            value = max(min(values[i, z], top), -top)
            code = np.int32(np.rint(value * share))
            gap = value - np.float32(code) * np.float32(step)
            square += gap * gap
            codes[i, z] = code
        for z in range(d, np.uint64(codes.shape[1])):
            codes[i, z] = 0
        errors[i] = np.sqrt(np.float64(square))
