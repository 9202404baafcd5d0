"""Search of landmark cells: groups of queries against the rows of one cell, one small matrix product a group.

A row x is filtered twice before it is measured. With z the centred row, V an orthonormal basis, e_m(x) its first m
coordinates followed by the norm of the rest:

    ||e_m(q) - e_m(x)|| <= ||q - x||      and      e_m(q) . e_m(x) >= q . x       (Cauchy-Schwarz)

so first a product of short sketches (m near 32), then a longer one (M near 128), rule out what cannot enter the heap;
the longer one goes on from what the product has said, and reads only the coordinates that follow. Where rows are kept
as codes too, these stand in for the longer sketch: a code at distance c in the space, and its row within e of it, leave
the row at c - e or further.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import F32, I32, I64, Assembler
from kway.compute.kernels.cells import chord, widest_chord
from kway.compute.kernels.distances import COSINE, DOT, EUCLIDEAN, HAVERSINE, MANHATTAN, distance, manhattan_tile
from kway.compute.kernels.jit import BIG, kernel, strict_kernel
from kway.compute.kernels.lanes import ctz, touch_row
from kway.compute.kernels.topk import EMPTY, NOBODY, STRIP, push, sift, threshold

WAITING = 8  # rows that are fetched before the first of them is measured


@kernel
def cell_limit(code, worst, norm, reach, slack):
    """Largest key, a float32, of a row at distance <= worst; norm and reach are rounding under manhattan."""
    chorded = code in (COSINE, HAVERSINE) and worst < EMPTY
    far = np.sqrt(widest_chord(code, worst)) if chorded else worst
    blur = norm + reach if code == MANHATTAN else 0.0
    limit = threshold(EUCLIDEAN if chorded else code, far, norm, reach, slack, blur)
    return np.float32(min(limit + 1e-7 * abs(limit), 0.5 * BIG))


@kernel
def sketch_limit(code, worst, norm, reach, slack):
    """Largest `longer` of a row at distance <= worst."""
    if worst >= EMPTY:
        return EMPTY
    if code == DOT:
        return worst + (slack + 1e-6) * norm * reach
    return widest_chord(code, worst) * 1.0001 + (2.0 * slack + 1e-6) * (norm + reach) * (norm + reach)


@kernel
def longer(code, key, norm, q_short, q_long, w, short, long, j):
    """-e_M(q).e_M(x) for DOT, else ||e_M(q) - e_M(x)||^2, of query w and row j, from the key of their short sketches.

    short (n, m + 1) ends in the norm that follows m coordinates, long (n, M - m + 1) holds the coordinates after these.
    """
    last, total = short.shape[1] - 1, np.float32(0)
    w, j = np.uint64(w), np.uint64(j)
    if code == DOT:
        for z in range(np.uint64(long.shape[1])):
            total += q_long[w, z] * long[j, z]
        return np.float64(key) + np.float64(q_short[w, last]) * short[j, last] - total
    for z in range(np.uint64(long.shape[1])):
        gap = q_long[w, z] - long[j, z]
        total += gap * gap
    rest = np.float64(q_short[w, last]) - short[j, last]
    return norm * norm + 2.0 * key - rest * rest + total


@strict_kernel
def decode(code_row, step, centre, out):
    """out (d,) float32 = centre + step * codes, rounded as numpy rounds it."""
    for j in range(len(code_row)):
        out[j] = np.float32(code_row[j]) * step + centre[j]


@kernel
def ruled_out(code, worst, coded, error, norm):
    """Whether a row within `error` of its code, which lies at distance `coded`, must be further than worst."""
    if worst >= EMPTY:
        return False
    if code == DOT:
        return coded - norm * error > worst + 1e-9 * (abs(coded) + abs(worst))
    room = np.sqrt(max(widest_chord(code, worst), 0.0)) + error
    return chord(code, coded) > room * room * (1.0 + 1e-9)


@kernel
def measure_waiting(code, query, norm, waiting, n, rows, codes, steps, errors, centre, decoded, names, heap_d, heap_i):
    """Offer the first n of the rows `waiting` to a heap; how many were measured in full."""
    count = 0
    for i in range(n):
        j = waiting[i]
        if len(codes) > 0:
            decode(codes[j], steps[j], centre, decoded)
            value = distance(code, query, decoded)
            if len(rows) > 0 and ruled_out(code, heap_d[0], value, errors[j], norm):
                continue
        if len(rows) > 0:
            value = distance(code, query, rows[j])
        count += 1
        push(heap_d, heap_i, value, names[j])
    return count


@kernel
def smallest_keys(line, half, lo, sign, keys, best, waiting):
    """The rows (lo and on) of smallest keys into `waiting`, as many as it holds, and out of the line; how many."""
    keys[:], best[:] = EMPTY, NOBODY
    for j in range(len(line)):
        key = np.float64(sign * line[j] + half[lo + j])
        if key < keys[0]:
            sift(keys, best, key, j)
    count = 0
    for j in best:
        if j != NOBODY:  # a key that is no number, of a row that overflowed or was altered, comes before nothing
            waiting[count] = lo + j
            line[j] = sign * BIG  # seen
            count += 1
    return count


@intrinsic
def _within(typing_context, line, half, sign, limit):
    """Bits of those of STRIP keys sign * line + half, float32 at two addresses, that are at most limit."""

    def emit(context, builder, signature, arguments):
        asm = Assembler(builder)
        line, half = (asm.load(address, ir.VectorType(F32, STRIP), 4) for address in arguments[:2])
        sign, limit = (asm.splat(value, STRIP) for value in arguments[2:])
        bits = builder.fcmp_unordered("<=", asm.fma(sign, line, half), limit)  # what is no number is measured
        return builder.zext(builder.bitcast(bits, I32), I64)

    return types.uint64(types.uintp, types.uintp, types.float32, types.float32), emit


@kernel
def keys_within(line, half, lo, start, sign, limit):
    """Bits of those of the STRIP keys from `start` on that are at most limit; fewer at the end of the line."""
    if start + STRIP <= len(line):
        first = np.uint64(line.ctypes.data + 4 * start), np.uint64(half.ctypes.data + 4 * (lo + start))
        return _within(first[0], first[1], sign, limit)
    word = np.uint64(0)
    for j in range(start, len(line)):
        if sign * line[j] + half[lo + j] <= limit:
            word |= np.uint64(1) << np.uint64(j - start)
    return word


@strict_kernel
def beyond(value, limit):
    """Whether value > limit; not of what is no number, which is measured."""
    return value > limit


@kernel
def keys_near(line, half, lo, sign, limit, long, near):
    """Places in the line of keys that are at most limit, into near; how many. Their longer sketches are asked for."""
    count = 0
    for start in range(0, len(line), STRIP):
        word = keys_within(line, half, lo, start, sign, limit)
        while word != 0:
            j = start + ctz(word)
            word &= word - np.uint64(1)
            touch_row(long, lo + j, 0, long.strides[0])
            near[count] = j
            count += 1
    return count


@kernel
def offer_cell(
    code, line, lo, w, q_short, q_long, query, norm, short, long, half, rows, codes, steps, errors, centre, names,
    reach, slack, room, heap_d, heap_i,
):  # fmt: skip
    """Offer the rows lo.. of a cell to the heap of query w; line (c,) the products of short sketches.

    room: decoded (d,), keys and places of the k nearest, rows that wait, and places (c,) that are near enough. Answers
    the rows measured in full. Sketches, and then rows, are fetched some together: waiting for each is half of the time.
    """
    decoded, keys, best, waiting, near = room
    sign = np.float32(1) if code == MANHATTAN else np.float32(-1)
    kept = rows, codes, steps, errors, centre, decoded, names, heap_d, heap_i
    count, m = 0, 0
    if heap_d[0] >= EMPTY:  # filled by the smallest keys, so that the filters are sharp from the start
        m = smallest_keys(line, half, lo, sign, keys, best, waiting)
        for i in range(m):
            touch_row(rows, waiting[i], 0, rows.strides[0])
        count, m = measure_waiting(code, query, norm, waiting, m, *kept), 0
    limit, most = cell_limit(code, heap_d[0], norm, reach, slack), sketch_limit(code, heap_d[0], norm, reach, slack)
    for i in range(keys_near(line, half, lo, sign, limit, long, near)):
        j = near[i]
        key = sign * line[j] + half[lo + j]
        if beyond(key, limit):
            continue
        if long.shape[1] > 0 and beyond(longer(code, key, norm, q_short, q_long, w, short, long, lo + j), most):
            continue
        touch_row(rows, lo + j, 0, rows.strides[0])
        waiting[m] = lo + j
        m += 1
        if m == WAITING:
            count, m = count + measure_waiting(code, query, norm, waiting, m, *kept), 0
            limit = cell_limit(code, heap_d[0], norm, reach, slack)
            most = sketch_limit(code, heap_d[0], norm, reach, slack)
    return count + measure_waiting(code, query, norm, waiting, m, *kept)


@kernel
def row_products(rows, query, out):
    """out (n,) = rows (n, m) times query (m,), four rows at a time: BLAS would wake another thread for so little."""
    m, full = np.uint64(rows.shape[1]), len(rows) - len(rows) % 4
    for j in range(0, full, 4):
        a, b, c, e = rows[j], rows[j + 1], rows[j + 2], rows[j + 3]
        sa, sb, sc, se = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
        for t in range(m):
            sa += query[t] * a[t]
            sb += query[t] * b[t]
            sc += query[t] * c[t]
            se += query[t] * e[t]
        out[j], out[j + 1], out[j + 2], out[j + 3] = sa, sb, sc, se
    for j in range(full, len(rows)):
        total = np.float32(0)
        for t in range(m):
            total += query[t] * rows[j, t]
        out[j] = total


@kernel
def cell_room(k, d, largest):
    """Room for `offer_cell`."""
    best = np.empty(k), np.empty(k, np.int64)
    return np.empty(d, np.float32), *best, np.empty(max(k, WAITING), np.int64), np.empty(largest, np.int64)


@kernel
def search_cells(
    code, starts, cells, pairs, q_short, q_long, queries, norms, short, long, half, rows, codes, steps, errors, centre,
    names, offsets, reach, slack, tile, distances, ids,
):  # fmt: skip
    """For each group g, the queries pairs[starts[g]:starts[g + 1]] against the rows of cells[g].

    rows (n, d) or (0, d), codes (n, d) or (0, 0): at least one is there. tile (any,) float32 is the room for products,
    at least the largest cell. Answers the rows measured in full.
    """
    count, room = 0, cell_room(distances.shape[1], codes.shape[1], len(tile))
    gathered = np.empty((min(256, len(pairs)), q_short.shape[1]), np.float32)
    for g in range(len(cells)):
        if cells[g] >= len(offsets) - 1:  # nobody: as above, among the landmarks
            continue
        lo, hi = offsets[cells[g]], offsets[cells[g] + 1]
        c = hi - lo
        if c == 0 or starts[g] == starts[g + 1]:
            continue
        step = max(1, min(256, len(tile) // c))
        for a in range(starts[g], starts[g + 1], step):
            which = pairs[a : min(a + step, starts[g + 1])]
            m = len(which)
            block = gathered[:m]
            for i in range(m):
                block[i] = q_short[which[i]]
            products = tile[: m * c].reshape(m, c)
            if code == MANHATTAN:
                manhattan_tile(block, short[lo:hi], products)
            elif m == 1:  # reads the cell once; the matrix product would copy it first
                row_products(short[lo:hi], block[0], products[0])
            else:
                np.dot(block, short[lo:hi].T, products)
            for i in range(m):
                w = which[i]
                count += offer_cell(
                    code, products[i], lo, w, q_short, q_long, queries[w], norms[w], short, long, half, rows, codes,
                    steps, errors, centre, names, reach, slack, room, distances[w], ids[w],
                )  # fmt: skip
    return count
