"""Nearest rows by their codes (bits.py): filters on a few words of the signs, estimates for the rows that pass.

    H = bits in which sign(q) and sign(z) differ, of m = 64 w      H ~ Binomial(m, p), p = angle(q, z) / pi
    key = half_r - f_r <q, y_r>  (squared)  or  -f_r <q, y_r>      estimates ||z||^2 / 2 - <q, z>, or -<q, z>
    |key - true| <= bar f_r ||q||                                  except with the agreed probability

`scan_bits`     A row can enter the k best only if its true key is below that of the k-th. This requires a cosine to q
                that depends on the length of the row only, and `most_bits` tells how many bits may differ then. The
                width w = 1..P words is the one of least cost, w + COST * (share that passes). The share comes from the
                mean and spread of H over a sample of the rows.
`scan_first`    The k-th distance is known only at the end. Therefore the tables of each query (bit_tables.py) first let
                a small share of the rows pass, according to a sample: mosts[0] for the groups of bits that are compared
                for all rows, mosts[1] for all bits of P words of the rows that pass. If no other row can enter
                (`enough`), the search is done, else `scan_bits` follows. Filters become narrower as the k-th distance
                decreases.
`estimate_bits` Estimated distances of given rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kway.kernels.assembler import F32, I16, I32, I64, Assembler
from kway.kernels.codes.bit_tables import TABLE_ROWS, TILE_STEP, TILE_WORDS, most_weight, near_tables, weigh_bits
from kway.kernels.distances import distance
from kway.kernels.codes.sum_tables import fill_sum_tables, spread_rows, sum_rows
from kway.kernels.jit import BIG, kernel
from kway.kernels.lanes import ctz, popcount, touch, touch_row
from kway.kernels.topk import EMPTY, NO_ROW, push, sift

BIT_BLOCK = 2048  # rows that all queries scan while the codes are in the L1 cache: 16 kB per word (C1)
SAMPLED_CODES = 512  # rows whose bits estimate how many rows pass a filter (C1)

FLOAT32_EPS = float(np.finfo(np.float32).eps)
_FLOATS = ir.VectorType(F32, 16)


class Estimator(NamedTuple):
    """How distances follow from keys, and how wide filters and error bars are."""

    code: int  # of the distance
    halved: bool  # keys include half
    squared: bool  # distances are square roots
    least: float  # the smallest possible distance
    z: float  # normal deviations of filters
    bar: float  # error bar of a key, in units of f ||q||


class CodedRows(NamedTuple):
    """Rows as codes, and the full rows if they are stored."""

    bits: int
    head: Any  # (P, n) uint64
    rest: Any  # (n, B W - P) uint64
    factor: Any  # (n,), times unit the f
    unit: Any  # float32
    half: Any  # (n,) ||r||^2 / 2, or (0,) if all lengths are 1
    rows: Any  # (n, d) or (0, d)
    names: Any  # (n,) ids of the rows; (0,) if they are the row numbers


class CodedQueries(NamedTuple):
    """Queries as a scan of codes reads them."""

    words: Any  # (q, W) signs
    rotated: Any  # (q, D)
    totals: Any  # (q,) sums of rotated
    norms: Any  # (q,) of rotated
    base: Any  # (q,) ||rotated||^2, or the distance of a key of 0
    queries: Any  # (q, d) float64


class CodedQuery(NamedTuple):
    """One of the queries."""

    words: Any
    rotated: Any
    total: Any
    norm: Any
    base: Any
    query: Any


class PassedFilter(NamedTuple):
    """A first filter whose rows are skipped: those of weights up to mosts (2,) in planes (2, P, 6)."""

    planes: Any
    mosts: Any  # -1: no row passed


@intrinsic
def sum_where(typing_context, words, count, values):
    """Return the sum of values[64 w + j] over the bits j that are set in words w < count; both are addresses."""

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        words, count, values = arguments
        zero = ir.Constant(_FLOATS, [0.0] * 16)

        def add(at, sums):
            start, word, new = a.at(values, at, 256), a.at(words, at, 8), []
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
def least_cosine(squared, key, norm, shortest, longest):
    """Return the smallest cosine to a query of this norm with which a row of such a length has a key up to `key`.

    It is above 1 if no row can have such a key.
    """
    if squared:  # l^2 / 2 - l |q| cos <= key; the cosine is smallest at l^2 = -2 key
        length = min(max(np.sqrt(max(0.0, -2.0 * key)), shortest), longest)
        need, least = 0.5 * length * length - key, length * norm
    else:
        need, least = -key, (longest if key < 0 else shortest) * norm
    if least <= 0.0:
        return -1.0
    return max(-1.0, need / least)


@kernel
def product(bits, head, rest, row, rotated, total, words):
    """Return <q, y> of one row; total is the sum of the rotated query (D,), words (B W,) is memory."""
    planes, wide = len(head), len(rotated) // 64
    for w in range(planes):
        words[w] = head[w, row]
    for w in range(rest.shape[1]):
        words[planes + w] = rest[row, w]
    where, values, out = words.ctypes.data, rotated.ctypes.data, np.float32(0)
    for b in range(bits):
        weight = np.float32(2 << (bits - 1 - b))
        out += weight * sum_where(np.uint64(where + 8 * b * wide), wide, np.uint64(values))
    return out - np.float32((1 << bits) - 1) * total


@kernel
def key_of(squared, worst, base):
    """Return the key of a row at distance `worst`; base is ||q||^2 (squared), or the distance of a key of 0."""
    if worst >= EMPTY:
        return EMPTY
    return 0.5 * (worst * worst - base) if squared else worst - base


@kernel
def distance_of(squared, key, base, least):
    """Return the distance of a key, at least `least`."""
    return np.sqrt(max(0.0, base + 2.0 * key)) if squared else max(least, base + key)


@kernel
def one_query(asked, i):
    """Return query i of CodedQueries."""
    return CodedQuery(
        asked.words[i], asked.rotated[i], asked.totals[i], asked.norms[i], asked.base[i], asked.queries[i]
    )


class ScanBuffers(NamedTuple):
    """Memory of one thread."""

    words: Any  # (TABLE_ROWS,) uint64
    halves: Any  # (16 B W, TABLE_ROWS) uint8
    sums: Any  # (B, TABLE_ROWS) uint16
    keys: Any  # (TABLE_ROWS,) float32
    rows: Any  # (max(TABLE_ROWS, k),) int64
    best_keys: Any  # (k,) float64
    best_rows: Any  # (k,) int64
    held: Any  # (B W,) uint64


class QueryTables(NamedTuple):
    """Tables of q queries (sum_tables.py)."""

    tables: Any  # (q, D / 4, 16) uint8
    units: Any  # (q,)
    lows: Any  # (q,)


@kernel
def scan_buffers(coded, wide, k):
    """Allocate the memory for a scan of these rows, D = wide, for the k nearest."""
    bits, n = coded.bits, TABLE_ROWS
    return ScanBuffers(
        np.empty(n, np.uint64), np.empty((bits * wide // 4, n), np.uint8), np.empty((bits, n), np.uint16),
        np.empty(n, np.float32), np.empty(max(n, k), np.int64), np.empty(k), np.empty(k, np.int64),
        np.empty(bits * (wide // 64), np.uint64),
    )  # fmt: skip


@kernel
def query_tables(q, wide):
    """Allocate tables of q queries of D = wide."""
    return QueryTables(np.empty((q, wide // 4, 16), np.uint8), np.empty(q, np.float32), np.empty(q, np.float32))


@kernel
def _lower_keys(how, coded, query, tables, unit, low_sum, low, n, buffers, fast):
    """Compute keys (n,) of rows low..low + n: lower bounds of their keys, by the error bar and the rounded tables."""
    sum_rows(tables, buffers.halves, n, buffers.sums, fast)
    keys, sums, top = buffers.keys, buffers.sums, np.float32((1 << coded.bits) - 1)
    # the rounding of the tables is at most (2^B - 1) G unit; one more unit covers that of float32
    slack = top * np.float32(len(tables) + 1) * unit
    offset = top * (np.float32(2) * low_sum - query.total) + slack + np.float32(how.bar * query.norm)
    weight = np.float32(1 << coded.bits) * unit
    for r in range(n):
        keys[r] = offset + weight * np.float32(sums[0, r])
    for b in range(1, len(sums)):
        weight = np.float32(1 << (coded.bits - b)) * unit
        for r in range(n):
            keys[r] += weight * np.float32(sums[b, r])
    for r in range(n):
        keys[r] *= -(np.float32(coded.factor[low + r]) * coded.unit)
    if how.halved:
        for r in range(n):
            keys[r] += coded.half[low + r]


@kernel
def _smallest(keys, low, buffers):
    """Write the rows of the k smallest keys to buffers.rows, and set these keys to BIG; return how many."""
    buffers.best_keys[:] = EMPTY
    buffers.best_rows[:] = NO_ROW
    for r in range(len(keys)):
        if keys[r] < buffers.best_keys[0]:
            sift(buffers.best_keys, buffers.best_rows, np.float64(keys[r]), r)
    count = 0
    for r in buffers.best_rows:
        if r != NO_ROW:
            buffers.rows[count] = low + r
            keys[r] = BIG
            count += 1
    return count


@kernel
def scan_tile(how, coded, query, which, i, low, high, longest, passed, bound, buffers, fast, heap_d, heap_i, counts):
    """Offer rows low..high, which are spread in buffers.halves, to one query's heap; which: QueryTables, its query i."""
    n = high - low
    _lower_keys(how, coded, query, which.tables[i], which.units[i], which.lows[i], low, n, buffers, fast)
    keys, rows = buffers.keys[:n], buffers.rows
    if min(bound, heap_d[0]) >= EMPTY:  # a first distance, so that the bounds are effective at once
        m = _smallest(keys, low, buffers)
        offer_rows(how, coded, query, rows[:m], passed, bound, buffers.held, heap_d, heap_i, counts)
    limit = key_of(how.squared, min(bound, heap_d[0]), query.base)
    # keys are sums of terms of at most (||q|| + ||r||)^2, each rounded to float32
    limit += 4.0 * FLOAT32_EPS * (query.norm + longest) ** 2
    near, m = np.float32(min(limit, 0.5 * BIG)), 0
    for r in range(n):  # without a branch, which would often be predicted wrongly
        rows[m] = low + r
        m += keys[r] <= near
    if len(coded.rows):
        for j in range(m):
            touch_row(coded.rows, rows[j], 0, coded.rows.strides[0])
    offer_rows(how, coded, query, rows[:m], passed, bound, buffers.held, heap_d, heap_i, counts)


@kernel
def scan_bits(how, coded, asked, longest, start, stop, passed, fast, bounds, distances, ids):
    """Offer rows start..stop to the heaps distances, ids (q, k); return the numbers of rows estimated and measured.

    how: Estimator, coded: CodedRows, asked: CodedQueries, passed: PassedFilter of all queries. Rows beyond the
    distances bounds (q,) are not needed. longest: the largest length of a row.
    """
    counts, q, wide = np.zeros(2, np.int64), len(asked.words), asked.rotated.shape[1]
    buffers, which = scan_buffers(coded, wide, distances.shape[1]), query_tables(q, wide)
    for i in range(q):
        which.units[i], which.lows[i] = fill_sum_tables(asked.rotated[i], which.tables[i])
    for low in range(start, stop, TABLE_ROWS):
        high = min(stop, low + TABLE_ROWS)
        spread_rows(coded.head, coded.rest, low, high, buffers.words, buffers.halves, fast)
        for i in range(q):
            own = PassedFilter(passed.planes[i], passed.mosts[i])
            scan_tile(
                how, coded, one_query(asked, i), which, i, low, high, longest, own, bounds[i], buffers, fast,
                distances[i], ids[i], counts,
            )  # fmt: skip
    return counts


@kernel
def offer_rows(how, coded, query, found, passed, bound, held, heap_d, heap_i, counts):
    """Offer the rows found (m,) to one query's heap. A call costs as much as an estimate."""
    limit = key_of(how.squared, min(bound, heap_d[0]), query.base)
    counts[0] += len(found)
    for r in found:
        f = np.float32(coded.factor[r]) * coded.unit
        key = np.float64(-f * product(coded.bits, coded.head, coded.rest, r, query.rotated, query.total, held))
        if how.halved:
            key += coded.half[r]
        if key - how.bar * f * query.norm > limit:
            continue
        if (
            passed.mosts[0] >= 0
            and weigh_bits(coded.head, r, query.words, passed.planes[0]) <= passed.mosts[0]
            and weigh_bits(coded.head, r, query.words, passed.planes[1]) <= passed.mosts[1]
        ):
            continue
        if len(coded.rows):
            counts[1] += 1
            value = distance(how.code, query.query, coded.rows[r])
        else:
            value = distance_of(how.squared, key, query.base, how.least)
        if push(heap_d, heap_i, value, coded.names[r] if len(coded.names) else np.int64(r)):
            limit = key_of(how.squared, min(bound, heap_d[0]), query.base)


class FirstFilter(NamedTuple):
    """Rows pass if they weigh at most mosts (q, 2), in the groups and in all bits of P words; -1: no row passes."""

    width: int  # words that contain the groups
    tables: Any  # (q, G, 16) uint8
    groups: Any  # (q, G) uint8
    planes: Any  # (q, 2, P, .) uint64, the bits of the weights, for the groups and for all
    mosts: Any  # (q, 2) int64
    counts: Any  # (q, 2, .) int64, number of bits of each weight
    steps: Any  # (q,) float64, |q_j| / ||q|| per unit of weight


@kernel
def _wanted(how, worst, base, norm, shortest, longest, counts, step, wide, out):
    """Compute out (2,): the weight of a row nearer than `worst` at most, in the groups and in all bits."""
    limit, cosine = key_of(how.squared, worst, base), -1.0
    if limit < EMPTY:
        cosine = least_cosine(how.squared, limit, norm, shortest, longest)
    for j in range(2):
        out[j] = np.int64(most_weight(cosine, how.z, counts[j], step, wide))


@kernel
def enough(how, worst, asked, shortest, longest, which, out):
    """Compute out (q,): whether every row nearer than the k-th found, at worst (q,), passed the filters."""
    wanted, wide = np.empty(2, np.int64), asked.rotated.shape[1]
    for i in range(len(worst)):
        out[i] = False
        if worst[i] < EMPTY:
            _wanted(
                how, worst[i], asked.base[i], asked.norms[i], shortest, longest, which.counts[i], which.steps[i], wide,
                wanted,
            )  # fmt: skip
            out[i] = wanted[0] <= which.mosts[i, 0] and wanted[1] <= which.mosts[i, 1]


@kernel
def _passed(hits, masks, low, coded, which, words, mosts, found):
    """Write BIT_BLOCK i + r into found for each row low + r that passes query i by all bits; return how many.

    Their codes are prefetched. A tile with a hit usually has one passing row, and a mispredicted end of a loop costs as
    much as weighing a row.
    """
    head = coded.head
    m = 0
    for hit in hits:
        i, start, some = hit % TILE_STEP, TILE_WORDS * (hit // TILE_STEP), np.uint64(0)
        for j in range(TILE_WORDS):
            some |= np.uint64(masks[i, start + j] != 0) << np.uint64(j)
        while some:
            j = start + ctz(some)
            some &= some - np.uint64(1)
            near = masks[i, j]
            while near:
                r = 64 * j + ctz(near)
                near &= near - np.uint64(1)
                found[m] = BIT_BLOCK * i + r
                m += 1
                for w in range(which.width, len(head)):
                    touch(np.uint64(head[w].ctypes.data + 8 * (low + r)))
    kept = 0
    for j in range(m):
        i, r = found[j] // BIT_BLOCK, low + found[j] % BIT_BLOCK
        if weigh_bits(head, r, words[i], which.planes[i, 1]) <= mosts[i]:
            touch_row(coded.rest, r, 0, 8 * coded.rest.shape[1])
            touch(np.uint64(coded.factor.ctypes.data + r * coded.factor.itemsize))
            found[kept] = found[j]
            kept += 1
    return kept


@kernel
def scan_first(how, coded, asked, shortest, longest, start, stop, which, fast, bounds, distances, ids):
    """Offer the rows of start..stop that pass `which` (FirstFilter) to the heaps; otherwise like `scan_bits`."""
    q, wide, words = len(asked.words), asked.rotated.shape[1], asked.words
    seen, none_passed = np.zeros(2, np.int64), np.full(2, -1, np.int64)
    now, known, wanted = which.mosts.T.copy(), np.full(q, EMPTY), np.empty(2, np.int64)
    halves, masks = np.empty((16 * len(coded.head), TABLE_ROWS), np.uint8), np.empty((q, BIT_BLOCK // 64), np.uint64)
    held, found = np.empty(coded.bits * words.shape[1], np.uint64), np.empty(BIT_BLOCK * q, np.int64)
    row, hits = np.empty(1, np.int64), np.empty(BIT_BLOCK // TABLE_ROWS * q + 1, np.int64)
    for low in range(start, stop, BIT_BLOCK):
        for i in range(q):
            worst = min(bounds[i], distances[i, 0])
            if worst < known[i]:
                known[i] = worst
                _wanted(
                    how, worst, asked.base[i], asked.norms[i], shortest, longest, which.counts[i], which.steps[i], wide,
                    wanted,
                )  # fmt: skip
                for j in range(2):
                    now[j, i] = min(which.mosts[i, j], wanted[j])
        high = min(stop, low + BIT_BLOCK)
        m = near_tables(coded.head, low, high, which, words, now[0], halves, masks, hits, fast)
        m = _passed(hits[:m], masks, low, coded, which, words, now[1], found)
        for j in range(m):
            i, row[0] = found[j] // BIT_BLOCK, low + found[j] % BIT_BLOCK
            passed = PassedFilter(which.planes[i], none_passed)
            offer_rows(how, coded, one_query(asked, i), row, passed, bounds[i], held, distances[i], ids[i], seen)
    return seen


@kernel
def estimate_bits(how, coded, asked, found, distances):
    """Compute distances (q, k) of the rows found (q, k), exactly those of `scan_bits`."""
    held = np.empty(coded.bits * (asked.rotated.shape[1] // 64), np.uint64)
    for i in range(len(found)):
        for j in range(found.shape[1]):
            r = found[i, j]
            f = np.float32(coded.factor[r]) * coded.unit
            rotated, total = asked.rotated[i], asked.totals[i]
            key = np.float64(-f * product(coded.bits, coded.head, coded.rest, r, rotated, total, held))
            if how.halved:
                key += coded.half[r]
            distances[i, j] = distance_of(how.squared, key, asked.base[i], how.least)
