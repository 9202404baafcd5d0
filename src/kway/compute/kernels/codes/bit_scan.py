"""Nearest rows by their codes (bits.py): a filter on a few words of the signs, estimates for whoever passes.

    H = bits in which sign(q) and sign(z) differ, of m = 64 w      H ~ Binomial(m, p), p = angle(q, z) / pi
    key = half_r - f_r <q, y_r>  (squared)  or  -f_r <q, y_r>      estimates ||z||^2 / 2 - <q, z>, or -<q, z>
    |key - true| <= bar f_r ||q||                                  but for the chance that was agreed to

A row can enter the k best only if its true key is below that of the k-th, which asks for a cosine to q that depends on
its length alone; `most_bits` says how many bits may then differ. The width w = 1..P words is the one of least cost,
w + COST * (share that passes), the share from the mean and spread of H over a sample of the rows at hand.

The k-th distance is known only at the end, and no row need come near it before: another filter comes first
(bit_first.py), and what is here is for the queries that it leaves open, and for landmark cells (bit_cells.py).
"""

from __future__ import annotations

import math

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kway.compute.kernels.assembler import F32, I16, I32, I64, Assembler
from kway.compute.kernels.codes.bit_tables import weigh_bits
from kway.compute.kernels.distances import distance
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import ctz, popcount
from kway.compute.kernels.topk import EMPTY, push

BIT_BLOCK = 2048  # rows that all queries see while they lie in the first cache: 16 kB a word
COST = 100.0  # what an estimate costs, in words of the filter: a line that is not in the cache
_SAMPLE = 256  # rows whose bits tell how sharp a width is
FIRST_WIDTH = 3  # words of the first one, which all rows are read for: of those that pass, the next tells ten in one

_ROWS = ir.VectorType(I64, 8)
_FLOATS = ir.VectorType(F32, 16)


@intrinsic
def near_rows(typing_context, plane, stride, words, width, most):
    """Bits of 32 rows: whether at most `most` bits differ from the query's, over `width` planes of words.

    plane: address of the first row's word of plane 0; stride: bytes from plane to plane; words: address of the query's.
    """

    def emit(context, builder, signature, arguments):
        a = Assembler(builder)
        plane, stride, words, width, most = arguments

        def add(at, counts):
            mine = a.splat(a.load(a.at(words, at, 8), I64, 8), 8)
            start = a.at(plane, at, stride)
            loaded = [a.load(a.at(start, 64 * u), _ROWS, 8) for u in range(4)]
            counted = [a.call("llvm.ctpop.v8i64", _ROWS, [builder.xor(rows, mine)]) for rows in loaded]
            return [builder.add(total, more) for total, more in zip(counts, counted)]

        counts = a.loop(width, [a.same(_ROWS, 0)] * 4, add)
        limit, bits = a.splat(most, 8), ir.Constant(I64, 0)
        for u, total in enumerate(counts):
            byte = builder.bitcast(builder.icmp_signed("<=", total, limit), ir.IntType(8))
            bits = builder.or_(bits, builder.shl(builder.zext(byte, I64), a.number(8 * u)))
        return bits

    return types.uint64(types.uint64, types.uint64, types.uint64, types.int64, types.int64), emit


@intrinsic
def sum_where(typing_context, words, count, values):
    """Sum of values[64 w + j] over the bits j that are set in words w < count; words and values are addresses."""

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
            turned = ir.Constant(ir.VectorType(I32, 16), [(j + half) % 16 for j in range(16)])
            total = builder.fadd(total, builder.shuffle_vector(total, total, turned))
        return builder.extract_element(total, ir.Constant(I32, 0))

    return types.float32(types.uint64, types.int64, types.uint64), emit


@kernel
def least_cosine(squared, key, norm, shortest, longest):
    """The least cosine to the query, of this norm, that a row of such a length needs for a key of at most `key`.

    Beyond 1 where no row can have such a key.
    """
    if squared:  # l^2 / 2 - l |q| cos <= key; the cosine is least where l^2 = -2 key
        length = min(max(np.sqrt(max(0.0, -2.0 * key)), shortest), longest)
        need, least = 0.5 * length * length - key, length * norm
    else:
        need, least = -key, (longest if key < 0 else shortest) * norm
    if least <= 0.0:
        return -1.0
    return max(-1.0, need / least)


@kernel
def most_bits(cosine, m, z):
    """Bits out of m that may differ at this cosine, but for the chance that z (of a normal) stands for."""
    p = np.arccos(min(1.0, cosine)) / np.pi
    return m * p + z * np.sqrt(m * max(0.0, p * (1.0 - p))) + 0.5  # fastmath takes a p beyond 1, and no root of that


@kernel
def _moments(head, start, stop, words, means, spreads):
    """Mean and standard deviation of the bits that differ in the first 1..P words, over a sample of rows."""
    planes = len(head)
    step = max(1, (stop - start) // _SAMPLE)
    seen = 0
    means[:] = 0.0
    spreads[:] = 0.0
    for j in range(start, stop, step):
        total = 0
        seen += 1
        for w in range(planes):
            total += popcount(head[w, j] ^ words[w])
            means[w] += total
            spreads[w] += total * total
    for w in range(planes):
        means[w] /= seen
        spreads[w] = np.sqrt(max(spreads[w] / seen - means[w] * means[w], 4.0 * (w + 1)))


@kernel
def best_width(cosine, z, means, spreads):
    """Words of the filter that cost least, 0 for none."""
    best, width = COST, 0
    if cosine <= -1.0:
        return width
    for w in range(len(means)):
        far = (most_bits(cosine, 64.0 * (w + 1), z) + 0.5 - means[w]) / spreads[w]
        cost = w + 1 + COST * 0.5 * math.erfc(-far / np.sqrt(2.0))
        if cost < best:
            best, width = cost, w + 1
    return width


@kernel
def product(bits, head, rest, row, turned, total, words):
    """<q, y> of one row; total is the sum of the turned query (D,), words (B W,) room."""
    planes, wide = len(head), len(turned) // 64
    for w in range(planes):
        words[w] = head[w, row]
    for w in range(rest.shape[1]):
        words[planes + w] = rest[row, w]
    where, values, out = words.ctypes.data, turned.ctypes.data, np.float32(0)
    for b in range(bits):
        weight = np.float32(2 << (bits - 1 - b))
        out += weight * sum_where(np.uint64(where + 8 * b * wide), wide, np.uint64(values))
    return out - np.float32((1 << bits) - 1) * total


@kernel
def key_of(squared, worst, base):
    """The key of a row at distance `worst`; base is ||q||^2 (squared), or what a key lacks of the distance."""
    if worst >= EMPTY:
        return EMPTY
    return 0.5 * (worst * worst - base) if squared else worst - base


@kernel
def distance_of(squared, key, base, least):
    """The reverse, at least `least`."""
    return np.sqrt(max(0.0, base + 2.0 * key)) if squared else max(least, base + key)


@kernel
def scan_bits(
    code, squared, least, bits, z, bar, head, rest, factor, unit, half, spans, words, turned, totals, norms, base,
    queries, rows, start, stop, first, planes, mosts, bounds, distances, ids,
):  # fmt: skip
    """Offer rows start..stop, called first + row, to the heaps distances, ids (q, k); rows estimated and measured.

    factor (n,) times unit are the f; half (n,) or (0,) where all lengths are 1; spans (blocks, 2): the least and the
    largest length of each BLOCK rows; words (q, W), turned (q, D), totals, norms and base (q,) are those of the
    queries; rows (n, d) or (0, d): the full ones, measured against queries (q, d) float64 where they are kept.
    Rows that passed the first filter of planes (q, 2, P, 6) and mosts (q, 2) are left out. Nothing beyond the
    distances bounds (q,) is wanted.
    """
    wide = len(head)
    counts = np.zeros(2, np.int64)
    means, spreads = np.empty((len(words), wide)), np.empty((len(words), wide))
    held, names = np.empty(bits * words.shape[1], np.uint64), np.empty(0, np.int64)
    room, found = np.empty((wide, 32), np.uint64), np.empty(BIT_BLOCK, np.int64)
    for i in range(len(words)):
        _moments(head, start, stop, words[i], means[i], spreads[i])
    for low in range(start, stop, BIT_BLOCK):
        high, short, long = min(stop, low + BIT_BLOCK), spans[low // BIT_BLOCK, 0], spans[low // BIT_BLOCK, 1]
        for i in range(len(words)):
            limit, cosine = key_of(squared, min(bounds[i], distances[i, 0]), base[i]), -1.0
            if limit < EMPTY:
                cosine = least_cosine(squared, limit, norms[i], short, long)
            width = best_width(cosine, z, means[i], spreads[i])
            most = np.int64(most_bits(cosine, 64.0 * width, z))
            offer_span(
                code, squared, squared, least, bits, bar, head, rest, factor, unit, half, names, first, words[i],
                turned[i], totals[i], norms[i], base[i], queries[i], rows, low, high, width, most, planes[i], mosts[i],
                bounds[i], held, room, found, distances[i], ids[i], counts,
            )  # fmt: skip
    return counts


@kernel
def offer_span(
    code, halved, squared, least, bits, bar, head, rest, factor, unit, half, names, first, words, turned, total, norm,
    base, query, rows, low, high, width, most, planes, mosts, bound, held, room, found, heap_d, heap_i, counts,
):  # fmt: skip
    """Offer rows low..high that pass the filter of width and most to one query's heap; room (P, 32), found (BLOCK,)."""
    for start in range(low, high, BIT_BLOCK):
        stop, m = min(high, start + BIT_BLOCK), 0
        for row in range(start, stop, 32):
            near = near_of(head, row, min(stop, row + 32), words, width, most, room)
            while near:
                found[m] = row + ctz(near)
                near &= near - np.uint64(1)
                m += 1
        offer_rows(
            code, halved, squared, least, bits, bar, head, rest, factor, unit, half, names, first, words, turned, total,
            norm, base, query, rows, found[:m], planes, mosts, bound, held, heap_d, heap_i, counts,
        )  # fmt: skip


@kernel
def offer_rows(
    code, halved, squared, least, bits, bar, head, rest, factor, unit, half, names, first, words, turned, total, norm,
    base, query, rows, found, planes, mosts, bound, held, heap_d, heap_i, counts,
):  # fmt: skip
    """Offer the rows found (m,) to one query's heap, as `scan_bits` does to all; a call costs as much as an estimate.

    halved: keys have a half; squared: distances are roots. Rows that passed the first filter of planes (2, P, 6)
    and mosts (2,) are left out (-1: nobody did). Row r is called names[r], or first + r where there are no names (0,).
    """
    limit = key_of(squared, min(bound, heap_d[0]), base)
    counts[0] += len(found)
    for r in found:
        f = np.float32(factor[r]) * unit
        key = np.float64(-f * product(bits, head, rest, r, turned, total, held))
        if halved:
            key += half[r]
        if key - bar * f * norm > limit:
            continue
        if (
            mosts[0] >= 0
            and weigh_bits(head, r, words, planes[0]) <= mosts[0]
            and weigh_bits(head, r, words, planes[1]) <= mosts[1]
        ):
            continue
        if len(rows):
            counts[1] += 1
            value = distance(code, query, rows[r])
        else:
            value = distance_of(squared, key, base, least)
        if push(heap_d, heap_i, value, names[r] if len(names) else np.int64(first + r)):
            limit = key_of(squared, min(bound, heap_d[0]), base)


@kernel
def near_of(head, row, stop, words, width, most, room):
    """Bits of the rows row..stop (32 at most) that pass the filter."""
    left = stop - row
    alive = np.uint64(0xFFFFFFFF) if left == 32 else (np.uint64(1) << np.uint64(left)) - np.uint64(1)
    if width == 0:
        return alive
    if row + 32 <= head.shape[1]:
        address, stride = head.ctypes.data + 8 * row, head.strides[0]
    else:  # the last few: a load of 32 would pass the end
        for w in range(width):
            for j in range(left):
                room[w, j] = head[w, row + j]
        address, stride = room.ctypes.data, room.strides[0]
    found = near_rows(np.uint64(address), np.uint64(stride), np.uint64(words.ctypes.data), width, most)
    return found & alive
