"""Search of landmark cells: groups of queries against the rows of one cell, one small matrix product a group.

A row x is filtered twice before it is measured. With z the centred row, V an orthonormal basis, e_m(x) its first m
coordinates followed by the norm of the rest:

    ||e_m(q) - e_m(x)|| <= ||q - x||      and      e_m(q) . e_m(x) >= q . x       (Cauchy-Schwarz)

so first a product of short sketches (m near 32), then a longer one (M near 128), rule out what cannot enter the heap.
Where rows are kept as codes too, these stand in for the longer sketch: a code at distance c in the space, and its row
within e of it, leave the row at c - e or further.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.distances import COSINE, DOT, EUCLIDEAN, HAVERSINE, MANHATTAN, distance, manhattan_tile
from kway.compute.kernels.jit import BIG, kernel, strict_kernel
from kway.compute.kernels.topk import EMPTY, NOBODY, STRIP, push, sift, threshold

UNSURE = 1e-12  # of 1 - cos in float64, at up to some thousand columns


@kernel
def centre_rows(rows, mean, z, squares):
    """z (n, d) float32 = rows - mean, squares (n,) of their lengths: one pass, where numpy would make three."""
    for i in range(len(rows)):
        total = 0.0
        for j in range(rows.shape[1]):
            value = np.float64(rows[i, j]) - mean[j]
            z[i, j] = np.float32(value)
            total += value * value
        squares[i] = total


@kernel
def fill_sketches(p, squares, short, long):
    """short (n, m + 1) and long (n, M + 1 or 0): the first coordinates of p (n, M) and the norm of what is left."""
    m = short.shape[1] - 1
    for i in range(len(p)):
        total = 0.0
        for j in range(m):
            short[i, j] = p[i, j]
            total += np.float64(p[i, j]) * p[i, j]
        short[i, m] = np.sqrt(max(squares[i] - total, 0.0))
        if long.shape[1] > 0:
            for j in range(m):
                long[i, j] = p[i, j]
            for j in range(m, p.shape[1]):
                long[i, j] = p[i, j]
                total += np.float64(p[i, j]) * p[i, j]
            long[i, p.shape[1]] = np.sqrt(max(squares[i] - total, 0.0))


@kernel
def cell_radii(short, landmarks, offsets):
    """Largest distance (c,) of a row in a cell to its landmark (m,), both by the coordinates short (n, m + 1) holds."""
    c, m = landmarks.shape
    radii = np.zeros(c, np.float32)
    for g in range(c):
        for i in range(offsets[g], offsets[g + 1]):
            total = np.float32(0)
            for j in range(m):
                gap = short[i, j] - landmarks[g, j]
                total += gap * gap
            radii[g] = max(radii[g], np.sqrt(total))
    return radii


@kernel
def pass_over(cells, keys, origins, origin_keys, squares, gaps, blurs, landmarks, radii, nearest):
    """Set cells (q, p) to the number of cells where none of a cell's rows lies within gaps (q,) of its query.

    Two proofs for rows x of the cell of landmark m, o being any other landmark, here the query's nearest:

        ball       |q - x| >= |q - m| - radius                              radius: the largest |x - m| of the cell
        bisector   |q - x| >= (|q - m|^2 - |q - o|^2) / (2 |m - o|)         where no row is nearer to o than to m

    keys (q, p) are |m|^2 / 2 - q.m, origins (q,) the cells of o and origin_keys (q,) their keys, squares (q,) |q|^2,
    blurs (q,) the rounding of squares; nearest: whether rows are in the cell of their nearest landmark. Of 250,000 rows
    in 2,000 clusters balls leave 61 % to be looked at, both 16 %; of MNIST's 91 and 77 %.
    """
    for i in range(len(cells)):
        for j in range(cells.shape[1]):
            cell = cells[i, j]
            if cell >= len(radii):  # nobody
                continue
            far = gaps[i] + radii[cell]
            if 2.0 * keys[i, j] + squares[i] > 1.0001 * far * far + blurs[i]:
                cells[i, j] = len(radii)
                continue
            ahead, total = keys[i, j] - origin_keys[i] - blurs[i], np.float32(0)
            if ahead <= 0.0 or not nearest:
                continue
            for z in range(landmarks.shape[1]):
                apart = landmarks[cell, z] - landmarks[origins[i], z]
                total += apart * apart
            if ahead * ahead > 1.0001 * gaps[i] * gaps[i] * total:
                cells[i, j] = len(radii)


@kernel
def chord(code, worst):
    """Squared Euclidean distance, between the rows as they are sketched, of a distance under the metric."""
    if code == COSINE:  # unit rows
        return 2.0 * worst
    if code == HAVERSINE:  # points on the unit sphere
        return 4.0 * np.sin(0.5 * min(worst, np.pi)) ** 2
    return worst * worst


@kernel
def widest_chord(code, worst):
    """The chord of a distance that may have been rounded: 1 - cos loses digits where rows nearly coincide."""
    return chord(code, worst + UNSURE if code == COSINE else worst)


@kernel
def cell_limit(code, worst, norm, reach, slack):
    """Largest key of a row at distance <= worst."""
    if code in (COSINE, HAVERSINE) and worst < EMPTY:
        return threshold(EUCLIDEAN, np.sqrt(widest_chord(code, worst)), norm, reach, slack, 0.0)
    return threshold(code, worst, norm, reach, slack, 0.0)


@kernel
def may_enter(code, worst, q, x, blur):
    """Whether the longer sketches (M + 1,) leave room for a distance <= worst."""
    total = np.float32(0)
    if code == DOT:
        for j in range(len(q)):
            total += q[j] * x[j]
        return -total <= worst + blur
    if worst >= EMPTY:
        return True
    for j in range(len(q)):
        gap = q[j] - x[j]
        total += gap * gap
    return total <= widest_chord(code, worst) * 1.0001 + blur


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
def kept_distance(code, query, j, rows, codes, steps, centre, decoded):
    """Distance to row j as it is kept: in full, or as codes."""
    if len(rows) > 0:
        return distance(code, query, rows[j])
    decode(codes[j], steps[j], centre, decoded)
    return distance(code, query, decoded)


@kernel
def first_of_cell(code, line, offset, query, rows, codes, steps, centre, decoded, names, heap_d, heap_i):
    """Fill an empty heap with the k rows of smallest key, so that the filters are sharp from the start."""
    k = min(len(heap_d), len(line))
    keys, best = np.full(k, EMPTY), np.full(k, NOBODY)
    sign = np.float32(1) if code == MANHATTAN else np.float32(-1)
    for j in range(len(line)):
        key = np.float64(sign * line[j] + offset[j])
        if key < keys[0]:
            sift(keys, best, key, j)
    for i in range(k):
        j = best[i]
        if j == NOBODY:  # a key that is no number, of a row that overflowed or was altered, comes before nothing
            continue
        push(heap_d, heap_i, kept_distance(code, query, j, rows, codes, steps, centre, decoded), names[j])
        line[j] = sign * BIG  # seen
    return k


@kernel
def offer_cell(
    code, line, offset, query, long_query, norm, reach, slack, long_rows, rows, codes, steps, errors, centre, decoded,
    names, heap_d, heap_i,
):  # fmt: skip
    """Offer the rows of a cell to one heap; line (c,) the products of short sketches. Rows measured in full."""
    count = 0
    if heap_d[0] >= EMPTY:
        count += first_of_cell(code, line, offset, query, rows, codes, steps, centre, decoded, names, heap_d, heap_i)
    both = len(rows) > 0 and len(codes) > 0
    sign = np.float32(1) if code == MANHATTAN else np.float32(-1)
    blur = 1e-6 * (norm + reach) * (norm + reach)
    limit = min(cell_limit(code, heap_d[0], norm, reach, slack), 0.5 * BIG)
    for start in range(0, len(line), STRIP):
        part, part_offset = line[start : start + STRIP], offset[start : start + STRIP]
        low = sign * part[0] + part_offset[0]
        for j in range(len(part)):
            low = min(low, sign * part[j] + part_offset[j])
        if low > limit:
            continue
        for j in range(start, start + len(part)):
            if sign * line[j] + offset[j] > limit:
                continue
            if long_rows.shape[1] > 0 and not may_enter(code, heap_d[0], long_query, long_rows[j], blur):
                continue
            if both:
                decode(codes[j], steps[j], centre, decoded)
                if ruled_out(code, heap_d[0], distance(code, query, decoded), errors[j], norm):
                    continue
            count += 1
            if push(heap_d, heap_i, kept_distance(code, query, j, rows, codes, steps, centre, decoded), names[j]):
                limit = min(cell_limit(code, heap_d[0], norm, reach, slack), 0.5 * BIG)
    return count


@kernel
def search_cells(
    code, starts, cells, pairs, q_short, q_long, queries, norms, short, long, half, rows, codes, steps, errors, centre,
    names, offsets, reach, slack, tile, distances, ids,
):  # fmt: skip
    """For each group g, the queries pairs[starts[g]:starts[g + 1]] against the rows of cells[g].

    rows (n, d) or (0, d), codes (n, d) or (0, 0): at least one is there. tile (any,) float32 is the room for products,
    at least the largest cell. Answers the rows measured in full.
    """
    count = 0
    width = q_short.shape[1]
    decoded = np.empty(codes.shape[1], np.float32)
    gathered = np.empty((min(256, len(pairs)), width), np.float32)
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
            elif m == 1:  # a matrix-vector product reads the cell once; the matrix product would copy it first
                np.dot(short[lo:hi], block[0], products[0])
            else:
                np.dot(block, short[lo:hi].T, products)
            for i in range(m):
                w = which[i]
                count += offer_cell(
                    code, products[i], half[lo:hi], queries[w], q_long[w], norms[w], reach, slack, long[lo:hi],
                    rows[lo:hi], codes[lo:hi], steps[lo:hi], errors[lo:hi], centre, decoded, names[lo:hi], distances[w],
                    ids[w],
                )  # fmt: skip
    return count


@kernel
def nearest_centre(products, bits, half, size, near, gaps):
    """near (n,) the centre c of least gap size_i + half_c - products_ic: half their squared distance, into gaps (n,).

    bits (n, c) int32 is the memory of products (n, c) float32, which is overwritten: numbers that are not negative are
    in the order of their bits, and a minimum of whole numbers becomes vectors, where one of floats does not (4.5 G
    against 1.6 G keys a second and thread). Below zero there is only rounding.
    """
    c, strip = np.uint64(len(half)), np.uint64(128)
    for i in range(len(near)):
        line, whole = products[i], bits[i]
        for j in range(c):
            line[j] = (size[i] + half[j]) - line[j]
        near[i], gaps[i] = 0, line[0]  # also where no key is a number
        best, where, start = np.int32(2**31 - 1), np.uint64(0), np.uint64(0)
        while start < c:
            stop = min(c, start + strip)
            low = np.int32(2**31 - 1)
            for j in range(start, stop):
                low = min(low, whole[j])
            if low < best:
                best, where = low, start
            start = stop
        for j in range(where, c):
            if whole[j] == best:
                near[i], gaps[i] = j, line[j]
                break
