"""Search of an IVF index (landmark cells): project queries, find their nearest cells, search the rows of a cell.

Shape letters: n rows and q queries of d columns, c cells, k neighbors; m and M are the coordinates of short and long
sketches. "Measured" rows are those whose distance is computed in float64.

A row x is filtered twice before it is measured. Let z be the centered row, V an orthonormal basis, and e_m(x) the first
m coordinates of V'z, followed by the norm of the rest:

    ||e_m(q) - e_m(x)|| <= ||q - x||      and      e_m(q) . e_m(x) >= q . x       (Cauchy-Schwarz)

The product of short sketches (m = 64) comes first, then that of long ones (M = 128). Each rules out rows that cannot
enter the heap. The long product continues from the short one and reads only the remaining coordinates. If codes are
stored next to rows, they replace the long sketch: if a code is at distance c from the query and at most e from its row,
the row is at distance c - e or more.

The *key* of a row is half its squared norm minus its product with the query, so that smaller keys mean nearer rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kway.kernels.distances import COSINE, DOT, EUCLIDEAN, HAVERSINE, distance
from kway.kernels.float32 import SUM_ROUNDING
from kway.kernels.jit import BIG, kernel, strict_kernel
from kway.kernels.lanes import touch_row
from kway.kernels.topk import EMPTY, NO_ROW, push, settle, threshold


class CellRows(NamedTuple):
    """Rows in the order of their cells, as kernels read them; rows, codes or both are present."""

    short: Any  # (n, m + 1)
    long: Any  # (n, M - m + 1 or 0)
    half: Any  # (n,) half of the squared norms
    rows: Any  # (n, d) or (0, d)
    codes: Any  # (n, d) int8 or (0, 0)
    steps: Any  # (n,) or (0,) scales of the codes
    errors: Any  # (n,) or (0,) distance of each row from its code
    center: Any  # (d,) or (0,) center of the codes
    positions: Any  # (n,) of the rows in the index
    offsets: Any  # (c + 1,)
    max_norm: float  # largest norm of a row
    slack: float  # largest rounding error of a product, relative to the product of the norms


class CellQueries(NamedTuple):
    """Queries as the scan of cells reads them."""

    short: Any  # (q, m + 1)
    long: Any  # (q, M - m + 1 or 0)
    exact: Any  # (q, d) float64
    norms: Any  # (q,)


class CellFinder(NamedTuple):
    """Arrays that find the nearest cells of a query; the key of a landmark is its mark minus its product."""

    mean: Any  # (d,)
    axes: Any  # (M, d) or (0, d)
    landmarks: Any  # (c, m)
    marks: Any  # (c,) half of the squared norms of the landmarks; 0 for the distance dot


@kernel
def center_rows(rows, mean, z, squares):
    """Compute z (n, d) float32 = rows - mean, and the squared norms (n,) of z, in one pass."""
    for i in range(len(rows)):
        total = 0.0
        for j in range(rows.shape[1]):
            value = np.float64(rows[i, j]) - mean[j]
            z[i, j] = np.float32(value)
            total += value * value
        squares[i] = total


@kernel
def fill_sketches(p, squares, short, long):
    """Fill short (n, m + 1), long (n, M - m + 1 or 0) with coordinates of p (n, M), each with the norm of the rest."""
    m = short.shape[1] - 1
    for i in range(len(p)):
        total = 0.0
        for j in range(m):
            short[i, j] = p[i, j]
            total += np.float64(p[i, j]) * p[i, j]
        short[i, m] = np.sqrt(max(squares[i] - total, 0.0))
        if long.shape[1] > 0:
            for j in range(m, p.shape[1]):
                long[i, j - m] = p[i, j]
                total += np.float64(p[i, j]) * p[i, j]
            long[i, p.shape[1] - m] = np.sqrt(max(squares[i] - total, 0.0))


@kernel
def cell_radii(short, landmarks, offsets):
    """Return the largest distance (c,) of a row in a cell to its landmark, by the m coordinates of short (n, m + 1)."""
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
def has_no_near_row(key, origin_key, square, gap, blur, mark, origin, radius, nearest):
    """Return whether no row in the cell of landmark m (mark) lies within gap of a query.

    Two proofs apply to rows x of that cell; o (origin) is another landmark, the nearest to the query:

        ball       |q - x| >= |q - m| - radius                              radius: the largest |x - m| of the cell
        bisector   |q - x| >= (|q - m|^2 - |q - o|^2) / (2 |m - o|)         if no row is nearer to o than to m

    key and origin_key are |m|^2 / 2 - q.m of both; square is |q|^2; blur is the rounding error of squares; nearest:
    whether rows are in the cell of their nearest landmark. The factor 1.0001 covers the float32 rounding of `radius`
    and of |m - o|^2, which are sums of at most 128 squares, each rounded by a relative 2^-23.
    """
    reach = gap + radius
    if 2.0 * key + square > 1.0001 * reach * reach + blur:
        return True
    difference, total = key - origin_key - blur, np.float32(0)
    if difference <= 0.0 or not nearest:
        return False
    for z in range(len(mark)):
        delta = mark[z] - origin[z]
        total += delta * delta
    return difference * difference > 1.0001 * gap * gap * total


@kernel
def skip_cells(cells, keys, origins, origin_keys, squares, gaps, blurs, landmarks, radii, nearest):
    """Set cells (q, p) to the number of cells if no row of the cell lies within gaps (q,) of the query.

    keys (q, p) are those of the cells, origins (q,) the nearest cells, and origin_keys (q,) their keys.
    """
    for i in range(len(cells)):
        for j in range(cells.shape[1]):
            cell = cells[i, j]
            if cell < len(radii) and has_no_near_row(  # otherwise the pair is left out already
                keys[i, j], origin_keys[i], squares[i], gaps[i], blurs[i], landmarks[cell], landmarks[origins[i]],
                radii[cell], nearest,
            ):  # fmt: skip
                cells[i, j] = len(radii)


@kernel
def chord(code, worst):
    """Return the squared Euclidean distance between sketched rows that corresponds to a distance of the metric."""
    if code == COSINE:  # unit rows
        return 2.0 * worst
    if code == HAVERSINE:  # points on the unit sphere
        return 4.0 * np.sin(0.5 * min(worst, np.pi)) ** 2
    return worst * worst


@kernel
def widest_chord(code, worst):
    """Return the chord of a distance that may be rounded: 1 - cos loses digits if rows nearly coincide."""
    return chord(code, worst + SUM_ROUNDING if code == COSINE else worst)


@kernel
def nearest_center(products, bits, half, size, near, gaps):
    """Find near (n,), the center c of least gap size_i + half_c - products_ic; write the gaps into gaps (n,).

    A gap is half of a squared distance. products (n, c) float32 is overwritten; bits (n, c) int32 is the same memory.
    Nonnegative floats have the order of their bits, and LLVM vectorizes a minimum of integers, but not one of floats.
    Gaps below zero are due to rounding only.
    """
    c, strip = np.uint64(len(half)), np.uint64(128)
    for i in range(len(near)):
        row_gaps, row_bits = products[i], bits[i]
        for j in range(c):
            row_gaps[j] = (size[i] + half[j]) - row_gaps[j]
        near[i], gaps[i] = 0, row_gaps[0]  # the result if all gaps are NaN
        best, best_strip, start = np.int32(2**31 - 1), np.uint64(0), np.uint64(0)
        while start < c:
            stop = min(c, start + strip)
            smallest = np.int32(2**31 - 1)
            for j in range(start, stop):
                smallest = min(smallest, row_bits[j])
            if smallest < best:
                best, best_strip = smallest, start
            start = stop
        for j in range(best_strip, c):
            if row_bits[j] == best:
                near[i], gaps[i] = j, row_gaps[j]
                break


MAX_PENDING = 8  # rows that are prefetched before the first of them is measured; decided by the IVF benchmark (T3)


@kernel
def cell_limit(code, worst, norm, max_norm, slack):
    """Return the largest key, rounded up to float32, of a row at distance <= worst."""
    by_chord = code in (COSINE, HAVERSINE) and worst < EMPTY
    radius = np.sqrt(widest_chord(code, worst)) if by_chord else worst
    limit = threshold(EUCLIDEAN if by_chord else code, radius, norm, max_norm, slack, 0.0)
    return np.float32(min(limit + 1e-7 * abs(limit), 0.5 * BIG))  # rounding to float32 changes it by at most 2^-24


@kernel
def sketch_limit(code, worst, norm, max_norm, slack):
    """Return the largest value of `long_key` for a row at distance <= worst.

    A product of sketches rounds by at most slack times the norms, and float32 rounds the norms of the rest by 2^-24.
    The factor 1.0001 covers the rounding of the sum of squared differences.
    """
    if worst >= EMPTY:
        return EMPTY
    if code == DOT:
        return worst + (slack + 1e-6) * norm * max_norm
    return widest_chord(code, worst) * 1.0001 + (2.0 * slack + 1e-6) * (norm + max_norm) * (norm + max_norm)


@kernel
def long_key(code, key, queries, w, table, j):
    """Return -e_M(q).e_M(x) for DOT, else ||e_M(q) - e_M(x)||^2, of query w and row j.

    key is that of their short sketches. short (n, m + 1) ends in the norm that follows m coordinates; long
    (n, M - m + 1) contains the coordinates after these.
    """
    q_short, q_long, short, long = queries.short, queries.long, table.short, table.long
    norm = queries.norms[w]
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
def decode(code_row, step, center, out):
    """Compute out (d,) float32 = center + step * codes, rounded as numpy rounds it."""
    for j in range(len(code_row)):
        out[j] = np.float32(code_row[j]) * step + center[j]


@kernel
def is_ruled_out(code, worst, coded, error, norm):
    """Return whether a row is farther than worst, if its code is at distance `coded` and at most `error` from it."""
    if worst >= EMPTY:
        return False
    if code == DOT:
        return coded - norm * error > worst + 1e-9 * (abs(coded) + abs(worst))
    reach = np.sqrt(max(widest_chord(code, worst), 0.0)) + error
    return chord(code, coded) > reach * reach * (1.0 + 1e-9)  # the float64 rounding of these terms is below 1e-12


@kernel
def measure_rows(code, query, norm, pending, n, table, decoded, distances, ids):
    """Offer the first n rows of `pending` to the heap distances, ids (k,); return how many were measured in full."""
    count = 0
    for i in range(n):
        j = pending[i]
        if len(table.codes) > 0:
            decode(table.codes[j], table.steps[j], table.center, decoded)
            value = distance(code, query, decoded)
            if len(table.rows) > 0 and is_ruled_out(code, distances[0], value, table.errors[j], norm):
                continue
        if len(table.rows) > 0:
            value = distance(code, query, table.rows[j])
        count += 1
        push(distances, ids, value, table.positions[j])
    return count


@strict_kernel
def exceeds(value, limit):
    """Return whether value > limit; False for NaN, so that such rows are measured."""
    return value > limit


@kernel
def candidate_rows(line, half, lo, limit, long, candidates):
    """Write the j with a key of at most `limit` to candidates; return how many. Prefetches their long sketches."""
    count = 0
    for j in range(len(line)):  # without a branch, because mispredicted branches would dominate the time
        candidates[count] = j
        count += not exceeds(half[lo + j] - line[j], limit)
    for i in range(count):
        touch_row(long, lo + candidates[i], 0, long.strides[0])
    return count


@kernel
def offer_cell(code, line, lo, w, queries, table, buffers, distances, ids):
    """Offer the rows of a cell, from lo on, to the heap distances, ids (k,) of query w.

    line: the products of the short sketches of query and rows; queries: CellQueries; table: CellRows; buffers: those of
    `cell_buffers`. Returns the number of rows measured in full. Several sketches, and then rows, are prefetched
    together, because waiting for each of them would double the time.
    """
    decoded, pending, candidates = buffers
    query, norm, rows, long, half = queries.exact[w], queries.norms[w], table.rows, table.long, table.half
    count, m = 0, 0
    limit = cell_limit(code, distances[0], norm, table.max_norm, table.slack)
    long_limit = sketch_limit(code, distances[0], norm, table.max_norm, table.slack)
    for i in range(candidate_rows(line, half, lo, limit, long, candidates)):
        j = candidates[i]
        key = half[lo + j] - line[j]
        if exceeds(key, limit):
            continue
        if long.shape[1] > 0 and exceeds(long_key(code, key, queries, w, table, lo + j), long_limit):
            continue
        touch_row(rows, lo + j, 0, rows.strides[0])
        pending[m] = lo + j
        m += 1
        if m == MAX_PENDING:
            count, m = count + measure_rows(code, query, norm, pending, m, table, decoded, distances, ids), 0
            limit = cell_limit(code, distances[0], norm, table.max_norm, table.slack)
            long_limit = sketch_limit(code, distances[0], norm, table.max_norm, table.slack)
    return count + measure_rows(code, query, norm, pending, m, table, decoded, distances, ids)


@kernel
def row_products(rows, query, out):
    """Compute out (n,) = rows (n, m) times query (m,); too small for threads of BLAS."""
    for j in range(len(rows)):
        row, total = rows[j], np.float32(0)
        for t in range(np.uint64(len(row))):
            total += query[t] * row[t]
        out[j] = total


@kernel
def cell_buffers(d, largest):
    """Allocate a decoded row, pending rows, and candidates of the largest cell."""
    return np.empty(d, np.float32), np.empty(MAX_PENDING, np.int64), np.empty(largest, np.int64)


@kernel
def search_cells(code, starts, cells, pairs, queries, table, tile, distances, ids):
    """Search the rows of cells[g] for the queries pairs[starts[g]:starts[g + 1]], for each group g.

    queries: CellQueries; table: CellRows. tile (any,) float32 is memory for products; it is at least as long as the
    largest cell has rows. Returns the number of rows measured in full.
    """
    offsets, short = table.offsets, table.short
    count, buffers = 0, cell_buffers(table.codes.shape[1], len(tile))
    gathered = np.empty((min(256, len(pairs)), queries.short.shape[1]), np.float32)
    for g in range(len(cells)):
        if cells[g] >= len(offsets) - 1:  # a pair that is left out
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
                block[i] = queries.short[which[i]]
            products = tile[: m * c].reshape(m, c)
            if m == 1:  # reads the cell once; a matrix product would copy it first
                row_products(short[lo:hi], block[0], products[0])
            else:
                np.dot(block, short[lo:hi].T, products)
            for i in range(m):
                w = which[i]
                count += offer_cell(code, products[i], lo, w, queries, table, buffers, distances[w], ids[w])
    return count


# ---- one query at a time, without calls of numpy and BLAS, which would take longer than the work itself (benchmark T7)


@kernel
def find_cells(rows, finder, queries, keys, cells):
    """Project rows (q, d) into queries (CellQueries), and find the nearest landmarks of each.

    finder: CellFinder; as many of its axes are read as `queries` has room for. keys, cells (q, p) are heaps of the p
    nearest landmarks.
    """
    axes, landmarks, marks = finder.axes, finder.landmarks, finder.marks
    short, long, norms = queries.short, queries.long, queries.norms
    m = landmarks.shape[1]
    z, line = np.empty((1, rows.shape[1]), np.float32), np.empty(len(marks), np.float32)
    p = np.empty((1, m + max(0, long.shape[1] - 1)), np.float32)
    for i in range(len(rows)):
        query = slice(i, i + 1)
        center_rows(rows[query], finder.mean, z, norms[query])  # squared norms until `fill_sketches` has read them
        if len(axes) > 0:
            row_products(axes[: p.shape[1]], z[0], p[0])
        else:
            p[:] = z
        fill_sketches(p, norms[query], short[query], long[query])
        norms[i] = np.sqrt(norms[i])
        row_products(landmarks, p[0, :m], line)
        for j in range(len(marks)):
            push(keys[i], cells[i], np.float64(marks[j] - line[j]), j)
    settle(keys, cells)


@kernel
def search_single(code, probes, placed, finder, exact, table, radii, nearest, largest, distances, ids):
    """Search the nearest cells of each query, nearest first, without cells that cannot contain near rows.

    exact (q, d) are the queries, and placed (q, d') the same queries in the space of the distance. radii (c,) are those
    of `cell_radii`, or (0,) if they are unknown; nearest: see `has_no_near_row`; largest: rows of the largest cell.
    finder: CellFinder; table: CellRows. Returns the number of rows measured in full.
    """
    q, m, landmarks, offsets = len(exact), finder.landmarks.shape[1], finder.landmarks, table.offsets
    q_short, q_long = np.empty((q, m + 1), np.float32), np.empty((q, table.long.shape[1]), np.float32)
    queries = CellQueries(q_short, q_long, exact, np.empty(q))
    keys, cells = np.full((q, probes), EMPTY), np.full((q, probes), NO_ROW)
    find_cells(placed, finder, queries, keys, cells)
    count, tile = 0, np.empty((1, largest), np.float32)
    buffers = cell_buffers(table.codes.shape[1], largest)
    for i in range(q):
        square, blur = 0.0, 1e-5 * (queries.norms[i] + table.max_norm) ** 2
        for t in range(m):
            square += np.float64(q_short[i, t]) * q_short[i, t]
        for g in range(probes):
            cell, worst = cells[i, g], distances[i, 0]
            if cell == NO_ROW or offsets[cell] == offsets[cell + 1]:
                continue
            if len(radii) > 0 and worst < EMPTY and has_no_near_row(
                keys[i, g], keys[i, 0], square, np.sqrt(widest_chord(code, worst)), blur, landmarks[cell],
                landmarks[cells[i, 0]], radii[cell], nearest,
            ):  # fmt: skip
                continue
            lo, hi = offsets[cell], offsets[cell + 1]
            row_products(table.short[lo:hi], q_short[i], tile[0])
            count += offer_cell(code, tile[0, : hi - lo], lo, i, queries, table, buffers, distances[i], ids[i])
    return count
