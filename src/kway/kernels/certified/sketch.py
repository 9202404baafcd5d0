"""Sketches of rows and queries, from which bounds are computed: centered values, tail norms, signed sums, byte codes.

Clipping to a box, norms of groups and signed sums never increase a distance. The other steps are roundings, whose size
is measured or bounded and returned, so that the bounds of distances stay valid.

Rows that pass the scan of codes are compared as bytes before their full distance is computed:

    code_bytes(values, step, codes, errors)   codes (b, d padded) int8 = round(z / step), z = clip(values, +-127 step)
    byte_squares(rows, j, queries, i)         sum (q - x)^2 of two rows of codes, exact

For any two rows, step |codes(q) - codes(x)| <= |q - x| + errors(q) + errors(x). Bytes take a quarter of the memory of
float32. Unlike more principal coordinates, they need no matrix product with all rows when an index is built.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import I8, I16, I32, I64, Assembler
from kway.kernels.jit import kernel, strict_kernel
from kway.kernels.lanes import cpu_has


@strict_kernel
def _clip_row(block, i, center, unit, limit, values):
    """Center, scale and clip one row; strict, because a huge query times the unit may be infinite before clipping."""
    for z in range(block.shape[1]):
        value = (np.float64(block[i, z]) - center[z]) * unit
        values[i, z] = np.float32(limit if value > limit else (-limit if value < -limit else value))


@kernel
def place(block, center, unit, limit, values, squares, sizes):
    """Compute values (b, d) float32 = clip((block - center) * unit, +-limit), with their squared norms and 1-norms."""
    for i in range(block.shape[0]):
        _clip_row(block, i, center, unit, limit, values)
        square = size = 0.0
        for z in range(block.shape[1]):
            square += np.float64(values[i, z]) * np.float64(values[i, z])
            size += abs(np.float64(values[i, z]))
        squares[i] = square
        sizes[i] = size


@kernel
def _norm_squared(matrix, i, first, last):
    total = 0.0
    for z in range(np.uint64(first), np.uint64(last)):
        total += np.float64(matrix[np.uint64(i), z]) * np.float64(matrix[np.uint64(i), z])
    return total


@kernel
def tails(lead, squares, is_complete, error, coarse, slack):
    """Append the norm of the remaining coordinates to the leading ones.

    lead (b, m) are coordinates, squares (b,) are |z|^2, and is_complete is True if there are no other coordinates.
    coarse (b, m + 1) receives the coordinates and the norm of the rest. slack (b,) receives a bound of the distance
    between coarse and its value in exact arithmetic, if `error` |z| bounds the rounding of the coordinates.

    rest = |z|^2 - |lead|^2 is wrong by at most (2 error + error^2) |z|^2, which is below 2.1 error |z|^2 because error
    is below 0.1. The root of a number in [rest - e, rest + e] is wrong by at most the larger of the two differences.
    """
    n_axes = lead.shape[1]
    for i in range(lead.shape[0]):
        rest = 0.0 if is_complete else max(squares[i] - _norm_squared(lead, i, 0, n_axes), 0.0)
        for z in range(n_axes):
            coarse[i, z] = lead[i, z]
        coarse[i, n_axes] = np.sqrt(rest)
        root_error = 0.0
        if not is_complete:
            e = 2.1 * error * squares[i]
            root_error = max(np.sqrt(rest) - np.sqrt(max(rest - e, 0.0)), np.sqrt(rest + e) - np.sqrt(rest))
        slack[i] = np.sqrt(error * error * squares[i] + root_error * root_error)


@kernel
def _gap_squares(rows, j, queries, i, first, last):
    total = np.float32(0)
    for z in range(np.uint64(first), np.uint64(last)):
        gap = queries[np.uint64(i), z] - rows[np.uint64(j), z]
        total += gap * gap
    return total


@kernel
def survivors(rows, tails, queries, query_tails, edges, limits, counts):
    """Count the rows whose bound by the first edges[g] coordinates is below limits (a,); add them to counts (g,).

    rows (s, p) and queries (a, p) are coordinates, tails (s, g) and query_tails (a, g) are the norms of the remaining
    coordinates, and limits are squared distances. More coordinates never lower a bound, so the loop stops at the first
    bound that rules a row out.
    """
    for i in range(queries.shape[0]):
        for j in range(rows.shape[0]):
            lead, first = np.float32(0), 0
            for g in range(edges.size):
                lead += _gap_squares(rows, j, queries, i, first, edges[g])
                gap = tails[j, g] - query_tails[i, g]
                if lead + gap * gap >= limits[i]:
                    break
                counts[g] += 1
                first = edges[g]


@kernel
def tail_norms(coordinates, squares, edges, tails):
    """Compute tails (b, g): norms of what remains of each row after its first edges[g] coordinates.

    coordinates (b, p); squares (b,) are |z|^2.
    """
    for i in range(coordinates.shape[0]):
        rest, first = squares[i], 0
        for g in range(edges.size):
            rest -= _norm_squared(coordinates, i, first, edges[g])
            tails[i, g] = np.sqrt(max(rest, 0.0))
            first = edges[g]


@kernel
def signed_sums(values, columns, signs, size, sums):
    """Compute sums (b, groups) of signs * values over runs of `size` columns in the given order."""
    d = columns.size
    for i in range(values.shape[0]):
        for g in range(sums.shape[1]):
            total = 0.0
            for z in range(g * size, min(d, (g + 1) * size)):
                total += np.float64(signs[z] * values[i, columns[z]])
            sums[i, g] = total


@kernel
def _into_balls(row, norm):
    """Scale each half of a row to a norm of at most `norm`: columns 0, 1 of every four columns, and columns 2, 3."""
    for first in (0, 2):
        square = 0.0
        for z in range(row.size):
            if z & 2 == first:
                square += row[z] * row[z]
        if square > norm * norm:
            for z in range(row.size):
                if z & 2 == first:
                    row[z] *= norm / np.sqrt(square)


@kernel
def code_l2(coarse, members, step, limits, codes, halves, errors):
    """Compute codes (m, w) int8 = round(e / step), halves = |codes|^2 / 2 and errors = |e - step codes|.

    e is coarse[members], clipped to a box, and then each half of it (see `_into_balls`) to a ball. limits (2,) are the
    limits of the box and of the ball in steps (`CodeLimits`). 1 + 1e-9 covers the float64 rounding of the errors.
    """
    width = np.uint64(coarse.shape[1])
    top, ball, row = limits[0] * step, limits[1] * step, np.empty(coarse.shape[1])
    for r in range(members.size):
        i, length, square, norm = np.uint64(members[r]), 0.0, 0.0, 0
        for z in range(width):
            row[z] = max(min(np.float64(coarse[i, z]), top), -top)
            length += row[z] * row[z]
        if length > ball * ball:
            _into_balls(row, ball)
        for z in range(width):
            code = np.int32(np.rint(row[z] * (1 / step)))
            gap = row[z] - code * step
            square += gap * gap
            norm += code * code
            codes[r, z] = code
        halves[r] = norm / 2
        errors[r] = np.sqrt(square) * (1 + 1e-9)


@kernel
def code_l1(coarse, members, low, step, codes, errors):
    """Compute codes (m, w) uint8 = round(e / step), errors = sum |e - step codes|; e = clip(coarse[members] - low)."""
    top = 255 * step
    for r in range(members.size):
        size = 0.0
        for z in range(coarse.shape[1]):
            value = max(min(np.float64(coarse[members[r], z]) - low[z], top), 0.0)
            code = np.int32(np.rint(value / step))
            size += abs(value - code * step)
            codes[r, z] = code
        errors[r] = size * (1 + 1e-9)


@kernel
def pair_up(order, left, right, n):
    """Match greedily: take the pairs (left, right) in the given order; return the partner (n,) of each, or -1."""
    partner = np.empty(n, np.int64)
    for i in range(n):
        partner[i] = -1
    for o in order:
        if partner[left[o]] < 0 and partner[right[o]] < 0:
            partner[left[o]] = right[o]
            partner[right[o]] = left[o]
    return partner


MAX_COLUMNS = 2**17  # sums of 32 bits do not overflow: 2^17 / 16 lanes * 254^2 < 2^31

_BYTES = ir.VectorType(I8, 16)
_PAIRS = ir.VectorType(I16, 16)
ROUND = 2 * _BYTES.count  # bytes per round of the loop; rows of codes are padded to a multiple


def _squares(asm, gap, paired):
    """Return the squares of 16 differences, as 8 sums of two squares or 16 of one."""
    if paired:
        return asm.call("llvm.x86.avx2.pmadd.wd", ir.VectorType(I32, 8), [gap, gap])
    wide = asm.builder.sext(gap, ir.VectorType(I32, 16))
    return asm.builder.mul(wide, wide)


@intrinsic
def _sum_of_squares(typing_context, x, q, rounds):
    """Return sum (q - x)^2 of `rounds` times 32 bytes at two addresses."""

    def emit(context, builder, signature, arguments):
        asm = Assembler(builder)
        bases, paired = arguments[:2], cpu_has("avx2")
        lanes = 8 if paired else 16

        def step(index, sums):
            new = []
            for half, total in enumerate(sums):
                addresses = [builder.add(asm.at(base, index, ROUND), asm.number(16 * half)) for base in bases]
                wide = [builder.sext(asm.load(address, _BYTES, 1), _PAIRS) for address in addresses]
                new.append(builder.add(total, _squares(asm, builder.sub(*wide), paired)))
            return new

        zero = asm.same(ir.VectorType(I32, lanes), 0)
        low, high = (builder.sext(part, ir.VectorType(I64, lanes)) for part in asm.loop(arguments[2], [zero] * 2, step))
        return asm.call(f"llvm.vector.reduce.add.v{lanes}i64", I64, [builder.add(low, high)])

    return types.int64(types.uintp, types.uintp, types.intp), emit


@kernel
def byte_squares(rows, j, queries, i):
    """Return sum (q - x)^2 of rows[j] and queries[i], both int8 with a multiple of ROUND columns."""
    x = np.uint64(rows.ctypes.data + j * rows.strides[0])
    q = np.uint64(queries.ctypes.data + i * queries.strides[0])
    return _sum_of_squares(x, q, rows.shape[1] // ROUND)


@kernel
def code_bytes(values, step, codes, errors):
    """Compute codes (b, d padded) int8 of values (b, d) float32, and errors (b,) = |z - step codes|; see the module."""
    d, steps_per_unit, top = np.uint64(values.shape[1]), np.float32(1 / step), np.float32(127 * step)
    for i in range(np.uint64(values.shape[0])):
        square = np.float32(0)
        for z in range(d):
            value = max(min(values[i, z], top), -top)
            code = np.int32(np.rint(value * steps_per_unit))
            gap = value - np.float32(code) * np.float32(step)
            square += gap * gap
            codes[i, z] = code
        for z in range(d, np.uint64(codes.shape[1])):
            codes[i, z] = 0
        errors[i] = np.sqrt(np.float64(square))
