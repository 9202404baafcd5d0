"""Scan of codes (bits.py): estimates of the distances of all rows, and exact distances of the rows that may be near.

    key = half_r - f_r <q, y_r>  (halved)  or  -f_r <q, y_r>    estimates ||z||^2 / 2 - <q, z>, or -<q, z>
    |key - true key| <= bar f_r ||q||                           except with the probability of the error bar

A key increases with the distance. For each tile of rows, `scan_tile` computes lower bounds of all keys from look-up
tables (row_tiles.py). Rows whose bound exceeds the key of the k-th distance so far are skipped. The others are
measured if full rows are stored, otherwise estimated from all of their bits. Without full rows there is no error bar,
and a scan returns exactly the k rows of the smallest estimates.

The scan is used for all rows (`scan_bits`), and for the rows of a landmark cell (bit_cells.py). `estimate_bits` returns
the estimated distances of given rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import F32, I16, I32, Assembler
from kway.kernels.codes.row_tiles import TILE_ROWS, fill_sum_tables, sum_rows, transpose_rows
from kway.kernels.distances import distance
from kway.kernels.jit import BIG, kernel
from kway.kernels.lanes import touch_row
from kway.kernels.topk import EMPTY, push

_EPS = float(np.finfo(np.float32).eps)
_FLOATS = ir.VectorType(F32, 16)


class Estimator(NamedTuple):
    """How distances follow from keys, and the width of error bars."""

    code: int  # of the distance (kernels/distances.py)
    halved: bool  # whether keys include half_r
    squared: bool  # whether distances are square roots
    min_distance: float  # smallest possible distance
    z: float  # normal deviations that the limits of the first filter allow for
    bar: float  # error bar of a key, in units of f ||q||; 0 without full rows


class CodedRows(NamedTuple):
    """Rows as codes, and the full rows if they are stored."""

    bits: int  # B
    head: Any  # (P, n) uint64
    rest: Any  # (n, B W - P) uint64
    factor: Any  # (n,), f in multiples of unit
    unit: Any  # float32
    half: Any  # (n,) ||r||^2 / 2, or (0,) if all lengths are 1
    rows: Any  # (n, d) or (0, d)
    ids: Any  # (n,) ids of the rows; (0,) if the ids are the row numbers


class CodedQueries(NamedTuple):
    """Queries as a scan of codes reads them."""

    words: Any  # (q, W) signs
    rotated: Any  # (q, D)
    totals: Any  # (q,) sums of rotated
    norms: Any  # (q,) norms of rotated
    base: Any  # (q,) ||rotated||^2 if distances are square roots, else the distance of a key of 0
    exact: Any  # (q, d) float64


class CodedQuery(NamedTuple):
    """One row of CodedQueries, without the signs."""

    rotated: Any
    total: Any
    norm: Any
    base: Any
    exact: Any


class SumTables(NamedTuple):
    """Look-up tables of one query, or of several with a leading axis."""

    entries: Any  # (G, 16) uint8
    unit: Any  # float32
    low: Any  # float32


class ScanBuffers(NamedTuple):
    """Working memory of one thread."""

    words: Any  # (TILE_ROWS,) uint64, one word per row
    nibbles: Any  # (16 B W, TILE_ROWS) uint8
    sums: Any  # (B, TILE_ROWS) uint16
    keys: Any  # (TILE_ROWS,) float32
    candidates: Any  # (TILE_ROWS,) int64, rows
    row_words: Any  # (B W,) uint64, the words of one row


@intrinsic
def sum_where(typing_context, words, count, values):
    """Return the sum of values[64 w + j] over the bits j that are set in words w < count; both are addresses."""

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        words, count, values = arguments
        zero = ir.Constant(_FLOATS, [0.0] * 16)

        def add(w, sums):
            start, word, new = a.at(values, w, 256), a.at(words, w, 8), []
            for u, total in enumerate(sums):
                mask = builder.bitcast(a.load(a.at(word, 2 * u), I16, 2), ir.VectorType(ir.IntType(1), 16))
                new.append(builder.fadd(total, builder.select(mask, a.load(a.at(start, 64 * u), _FLOATS, 4), zero)))
            return new

        sums = a.loop(count, [zero] * 4, add)
        total = builder.fadd(builder.fadd(sums[0], sums[1]), builder.fadd(sums[2], sums[3]))
        for half in (8, 4, 2, 1):
            order = ir.Constant(ir.VectorType(I32, 16), [(j + half) % 16 for j in range(16)])
            total = builder.fadd(total, builder.shuffle_vector(total, total, order))
        return builder.extract_element(total, ir.Constant(I32, 0))

    return types.float32(types.uint64, types.int64, types.uint64), emit


@kernel
def least_cosine(halved, key, norm, shortest, longest):
    """Return the smallest cosine to a query of this norm at which a row of length shortest..longest has this key.

    The result is above 1 if no such row can have a key as small as `key`.
    """
    if halved:  # l^2 / 2 - l |q| cos <= key; the cosine is smallest at l^2 = -2 key
        length = min(max(np.sqrt(max(0.0, -2.0 * key)), shortest), longest)
        product, max_product = 0.5 * length * length - key, length * norm
    else:
        product, max_product = -key, (longest if key < 0 else shortest) * norm
    if max_product <= 0.0:
        return -1.0
    return max(-1.0, product / max_product)


@kernel
def key_of(squared, worst, base):
    """Return the key of a row at distance `worst`; base is that of CodedQueries."""
    if worst >= EMPTY:
        return EMPTY
    return 0.5 * (worst * worst - base) if squared else worst - base


@kernel
def distance_of(squared, key, base, min_distance):
    """Return the distance of a key, at least min_distance."""
    return np.sqrt(max(0.0, base + 2.0 * key)) if squared else max(min_distance, base + key)


@kernel
def one_query(queries, i):
    """Return query i of CodedQueries."""
    return CodedQuery(queries.rotated[i], queries.totals[i], queries.norms[i], queries.base[i], queries.exact[i])


@kernel
def estimated_key(estimator, coded, query, row, row_words):
    """Return the key of one row, from all of its bits; row_words (B W,) is memory."""
    n_head, n_words = len(coded.head), len(query.rotated) // 64
    for w in range(n_head):
        row_words[w] = coded.head[w, row]
    for w in range(coded.rest.shape[1]):
        row_words[n_head + w] = coded.rest[row, w]
    product = np.float32(0)  # <q, y>
    for b in range(coded.bits):
        plane, values = np.uint64(row_words.ctypes.data + 8 * b * n_words), np.uint64(query.rotated.ctypes.data)
        product += np.float32(2 << (coded.bits - 1 - b)) * sum_where(plane, n_words, values)
    product -= np.float32((1 << coded.bits) - 1) * query.total
    key = np.float64(-np.float32(coded.factor[row]) * coded.unit * product)
    if estimator.halved:
        key += coded.half[row]
    return key


@kernel
def scan_buffers(coded, dim):
    """Allocate the working memory for a scan of these rows with D = dim."""
    bits = coded.bits
    return ScanBuffers(
        np.empty(TILE_ROWS, np.uint64), np.empty((bits * dim // 4, TILE_ROWS), np.uint8),
        np.empty((bits, TILE_ROWS), np.uint16), np.empty(TILE_ROWS, np.float32), np.empty(TILE_ROWS, np.int64),
        np.empty(bits * (dim // 64), np.uint64),
    )  # fmt: skip


@kernel
def empty_tables(q, dim):
    """Allocate the tables of q queries with D = dim."""
    return SumTables(np.empty((q, dim // 4, 16), np.uint8), np.empty(q, np.float32), np.empty(q, np.float32))


@kernel
def _bound_keys(estimator, coded, query, tables, start, n, buffers, fast):
    """Compute buffers.keys[:n], lower bounds of the keys of the rows from `start` on, whose nibbles are in the buffers.

    With the bit planes b = 0..B - 1 of a row, <q, y> = sum of 2^(B - b) <q, plane_b> - (2^B - 1) sum(q). The tables
    change each <q, plane_b> by at most unit G / 2 (row_tiles.py), and <q, y> by at most (2^B - 1) unit G. One more
    (2^B - 1) unit covers the float32 rounding of <q, y>: fewer than 16 operations on numbers of at most 2^17 times that
    size, each of which rounds by at most 2^-24 of the number.
    """
    keys, sums, max_code = buffers.keys, buffers.sums, np.float32((1 << coded.bits) - 1)
    sum_rows(tables.entries, buffers.nibbles, n, sums, fast)
    slack = max_code * np.float32(len(tables.entries) + 1) * tables.unit + np.float32(estimator.bar * query.norm)
    keys[:n] = max_code * (np.float32(2) * tables.low - query.total) + slack
    for b in range(len(sums)):
        weight = np.float32(1 << (coded.bits - b)) * tables.unit
        for r in range(n):
            keys[r] += weight * np.float32(sums[b, r])
    for r in range(n):
        keys[r] *= -(np.float32(coded.factor[start + r]) * coded.unit)
    if estimator.halved:
        for r in range(n):
            keys[r] += coded.half[start + r]


@kernel
def _max_key(estimator, query, longest, worst):
    """Return the largest float32 lower bound of the key of a row, up to `longest` long, at this distance."""
    limit = key_of(estimator.squared, worst, query.base)
    # float32 rounds f <q, y> + ||r||^2 / 2 three times; it is at most 1.5 (||q|| + ||r||)^2, because f ||y|| <= 4 ||r||
    return np.float32(min(limit + 4.0 * _EPS * (query.norm + longest) ** 2, 0.5 * BIG))


@kernel
def _offer_bounded(
    estimator, coded, query, candidates, keys, start, longest, bound, buffers, distances, ids, counts
):  # fmt: skip
    """Offer candidate rows (m,), whose keys have the lower bounds keys[row - start], to the heap of one query."""
    if not len(coded.rows):
        offer_rows(estimator, coded, query, candidates, bound, buffers.row_words, distances, ids, counts)
        return
    for row in candidates:
        touch_row(coded.rows, row, 0, coded.rows.strides[0])
    limit = _max_key(estimator, query, longest, min(bound, distances[0]))
    for row in candidates:
        if keys[row - start] > limit:
            continue
        counts[1] += 1
        if push(distances, ids, distance(estimator.code, query.exact, coded.rows[row]), _id_of(coded, row)):
            limit = _max_key(estimator, query, longest, min(bound, distances[0]))


@kernel
def scan_tile(
    estimator, coded, query, tables, start, stop, longest, bound, buffers, fast, distances, ids, counts
):  # fmt: skip
    """Offer rows start..stop to the heap distances, ids (k,) of one query.

    `transpose_rows` must have written these rows, at most TILE_ROWS, to buffers.nibbles. Rows beyond the distance
    `bound` are not needed. longest: the largest length of a row; tables: SumTables of the query.
    """
    _bound_keys(estimator, coded, query, tables, start, stop - start, buffers, fast)
    keys, candidates = buffers.keys[: stop - start], buffers.candidates
    limit, count = _max_key(estimator, query, longest, min(bound, distances[0])), 0
    for r in range(len(keys)):  # without a branch, because mispredicted branches would dominate the time
        candidates[count] = start + r
        count += keys[r] <= limit
    _offer_bounded(
        estimator, coded, query, candidates[:count], keys, start, longest, bound, buffers, distances, ids, counts
    )  # fmt: skip


@kernel
def _id_of(coded, row):
    """Return the id of a row."""
    return coded.ids[row] if len(coded.ids) else np.int64(row)


@kernel
def offer_rows(estimator, coded, query, candidates, bound, row_words, distances, ids, counts):
    """Offer candidate rows (m,) to the heap of one query, and add the rows estimated and measured to counts (2,)."""
    limit = key_of(estimator.squared, min(bound, distances[0]), query.base)
    counts[0] += len(candidates)
    for row in candidates:
        key = estimated_key(estimator, coded, query, row, row_words)
        if key - estimator.bar * np.float32(coded.factor[row]) * coded.unit * query.norm > limit:
            continue
        if len(coded.rows):
            counts[1] += 1
            value = distance(estimator.code, query.exact, coded.rows[row])
        else:
            value = distance_of(estimator.squared, key, query.base, estimator.min_distance)
        if push(distances, ids, value, _id_of(coded, row)):
            limit = key_of(estimator.squared, min(bound, distances[0]), query.base)


@kernel
def scan_bits(estimator, coded, queries, longest, start, stop, fast, bounds, distances, ids):
    """Offer rows start..stop to the heaps distances, ids (q, k); return the numbers of rows estimated and measured.

    estimator: Estimator, coded: CodedRows, queries: CodedQueries. longest: the largest length of a row. Rows beyond the
    distances bounds (q,) are not needed. fast: whether the CPU has TABLE_FEATURES.
    """
    q, dim = queries.rotated.shape
    counts, buffers = np.zeros(2, np.int64), scan_buffers(coded, dim)
    tables = empty_tables(q, dim)
    for i in range(q):
        tables.unit[i], tables.low[i] = fill_sum_tables(queries.rotated[i], tables.entries[i])
    for low in range(start, stop, TILE_ROWS):
        high = min(stop, low + TILE_ROWS)
        transpose_rows(coded.head, coded.rest, low, high, buffers.words, buffers.nibbles, fast)
        for i in range(q):
            own_tables = SumTables(tables.entries[i], tables.unit[i], tables.low[i])
            scan_tile(
                estimator, coded, one_query(queries, i), own_tables, low, high, longest, bounds[i], buffers, fast,
                distances[i], ids[i], counts,
            )  # fmt: skip
    return counts


@kernel
def estimate_bits(estimator, coded, queries, rows, distances):
    """Compute the distances (q, c) of the rows (q, c), equal to those of `scan_bits` without full rows."""
    row_words = np.empty(coded.bits * (queries.rotated.shape[1] // 64), np.uint64)
    for i in range(len(rows)):
        query = one_query(queries, i)
        for j in range(rows.shape[1]):
            key = estimated_key(estimator, coded, query, rows[i, j], row_words)
            distances[i, j] = distance_of(estimator.squared, key, query.base, estimator.min_distance)
