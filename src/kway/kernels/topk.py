"""The k nearest of each query, kept in a heap while rows are offered in blocks.

A heap is a row of (distances (k,), ids (k,)) with the worst at position 0, ordered by (distance, id): of equal
distances the higher id is the worse. Empty places hold (EMPTY, NOBODY), worse than any row.

`offer` is the one mechanism behind every search. It sees keys (m, c), cheap stand-ins for distances:

    |scale_j * products_ij + offset_j - t_ij| <= slack        t grows with the true distance
    threshold(code, D, ...)                                   the largest key that a row at distance <= D can have

so a row whose key lies above the threshold of the k-th distance so far cannot enter, and the few others (about
k log(n / k) of n) are measured exactly in float64. What comes out equals brute force in float64.

Exact distances between CSR rows, and the offer of CSR rows to heaps. Indices of a row must be sorted.

Rows of hash buckets, measured once each and offered to the heaps.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.distances import COSINE, DOT, EUCLIDEAN, HAMMING, HAVERSINE, KEY, MANHATTAN, distance
from kway.kernels.float32 import PRODUCT_UNDERFLOW
from kway.kernels.jit import kernel, strict_kernel

EMPTY = 1e300  # stands for infinity, which fastmath may not see
NOBODY = np.int64(2**62)

_MOST = float(np.finfo(np.float32).max)

STRIP = 32  # keys looked at together: a vector minimum, since almost none passes (T1b)


@kernel
def sift(distances, ids, value, name):
    """Replace the worst of the heap by (value, name)."""
    k = len(distances)
    at = 0
    child = 1
    while child < k:
        other = child + 1
        if other < k and (
            distances[other] > distances[child] or (distances[other] == distances[child] and ids[other] > ids[child])
        ):
            child = other
        if distances[child] < value or (distances[child] == value and ids[child] < name):
            break
        distances[at] = distances[child]
        ids[at] = ids[child]
        at = child
        child = 2 * at + 1
    distances[at] = value
    ids[at] = name


@kernel
def push(distances, ids, value, name):
    """Enter (value, name) where it is better than the worst; whether it was."""
    if value > distances[0] or (value == distances[0] and name > ids[0]):
        return False
    sift(distances, ids, value, name)
    return True


@kernel
def threshold(code, worst, norm, reach, slack, blur):
    """Largest key of a row at distance <= worst, for a query of this norm.

    reach: the largest norm of a row; slack: the rounding of a key; blur: how far a scanned row may lie from the true.
    """
    if worst >= EMPTY:
        return EMPTY
    if code == EUCLIDEAN:
        # a row longer than norm + worst is further than worst anyway, so the slack need not cover it
        far = worst + blur
        longest = norm + min(reach, norm + far)
        return 0.5 * (far - norm) * (far + norm) + slack * longest * longest + PRODUCT_UNDERFLOW
    if code == MANHATTAN:
        return (worst + blur) * (1.0 + slack)
    if code == COSINE:
        return worst - 1.0 + slack + blur
    if code == DOT:
        return worst + (slack * reach + blur) * norm + PRODUCT_UNDERFLOW
    if code == HAMMING:
        return worst * reach + 0.25  # reach: the number of columns; keys are whole numbers
    if code == HAVERSINE:
        return 2.0 * np.sin(0.5 * min(worst, np.pi)) ** 2 - 1.0 + slack
    return worst


@kernel
def offer(code, products, scale, offset, queries, rows, names, which, norms, reach, slack, blur, distances, ids):
    """Offer rows (c, d), called names (c,), to the heaps distances, ids (q, k) of queries which (m,).

    products (m, c), scale and offset (c,) make the keys; queries (q, d) float64 and norms (q,) are those of all
    heaps. Answers how many rows were measured in full.
    """
    measured = 0
    c = len(names)
    for i in range(len(which)):
        w = which[i]
        heap_d, heap_i, query, line = distances[w], ids[w], queries[w], products[i]
        limit = threshold(code, heap_d[0], norms[w], reach, slack, blur)
        for start in range(0, c, STRIP):
            stop = min(c, start + STRIP)
            part, part_scale, part_offset = line[start:stop], scale[start:stop], offset[start:stop]
            low = part_scale[0] * part[0] + part_offset[0]
            for j in range(len(part)):
                low = min(low, part_scale[j] * part[j] + part_offset[j])
            if np.float64(low) > limit:
                continue
            for j in range(start, stop):
                key = np.float64(scale[j] * line[j] + offset[j])
                if key > limit:
                    continue
                value = key
                if code != KEY:
                    value = distance(code, query, rows[j])
                    measured += 1
                if push(heap_d, heap_i, value, names[j]):
                    limit = threshold(code, heap_d[0], norms[w], reach, slack, blur)
    return measured


@kernel
def merge(distances, ids, more_distances, more_ids):
    """Enter the lists more_distances, more_ids (q, any) into the heaps distances, ids (q, k)."""
    for i in range(len(ids)):
        for j in range(more_ids.shape[1]):
            if more_ids[i, j] >= 0 and more_ids[i, j] != NOBODY:
                push(distances[i], ids[i], more_distances[i, j], more_ids[i, j])


@kernel
def measure(code, queries, rows, found, distances):
    """distances (q, k) of queries (q, d) to the rows found (q, k), EMPTY where nobody was."""
    for i in range(len(found)):
        for j in range(found.shape[1]):
            at = found[i, j]
            distances[i, j] = EMPTY if at < 0 or at == NOBODY else distance(code, queries[i], rows[at])


@kernel
def settle(distances, ids):
    """Turn heaps (q, k) into lists, nearest first (heap sort, in place); whether all were full."""
    k, full = ids.shape[1], True
    for i in range(len(ids)):
        for last in range(k - 1, 0, -1):
            worst, name = distances[i, 0], ids[i, 0]
            value, other = distances[i, last], ids[i, last]
            sift(distances[i, :last], ids[i, :last], value, other)
            distances[i, last] = worst
            ids[i, last] = name
        full = full and (k == 0 or ids[i, k - 1] != NOBODY)
    return full


@strict_kernel
def narrow(distances, given):
    """given (q, k) float32 of distances (q, k), infinity as it is, what is too large as the largest; whether any tie.

    Ties are those of neighbours in a list.
    """
    tied = False
    for i in range(len(distances)):
        for j in range(distances.shape[1]):
            value = distances[i, j]
            given[i, j] = value if value == np.inf else min(max(value, -_MOST), _MOST)
            tied = tied or (j > 0 and given[i, j] == given[i, j - 1])
    return tied


@kernel
def distance_csr(code, q_data, q_indices, x_data, x_indices):
    """Euclidean, cosine or dot distance of two sparse rows, by merging their sorted indices."""
    qx = 0.0
    qq = 0.0
    xx = 0.0
    gaps = 0.0
    a = 0
    b = 0
    while a < len(q_data) or b < len(x_data):
        left = 0.0
        right = 0.0
        if b == len(x_data) or (a < len(q_data) and q_indices[a] <= x_indices[b]):
            left = q_data[a]
            if b < len(x_data) and q_indices[a] == x_indices[b]:
                right = x_data[b]
                b += 1
            a += 1
        else:
            right = x_data[b]
            b += 1
        qx += left * right
        qq += left * left
        xx += right * right
        gaps += (left - right) * (left - right)
    if code == EUCLIDEAN:
        return np.sqrt(gaps)
    if code == COSINE:
        if qq == 0.0 or xx == 0.0:
            return 1.0
        return min(2.0, max(0.0, 1.0 - qx / np.sqrt(qq * xx)))
    return -qx


@kernel
def offer_csr(
    code, products, scale, offset, q_data, q_indices, q_indptr, x_data, x_indices, x_indptr, names, norms, reach, slack,
    distances, ids,
):  # fmt: skip
    """`topk.offer` for a block of CSR queries and a chunk of CSR rows; rows measured in full.

    Those of the k least keys come first: the others, k log(n / k) if taken as they lie, are then few (2,000 texts,
    k = 65: 66 instead of 288 measured, each by merging its indices with the query's).
    """
    measured, k, c = 0, distances.shape[1], len(names)
    keys, least, places = np.empty(c), np.empty(k), np.empty(k, np.int64)
    for i in range(len(distances)):
        query, where = q_data[q_indptr[i] : q_indptr[i + 1]], q_indices[q_indptr[i] : q_indptr[i + 1]]
        limit = threshold(code, distances[i, 0], norms[i], reach, slack, 0.0)
        least[:] = EMPTY
        places[:] = NOBODY
        for j in range(c):
            keys[j] = scale[j] * products[i, j] + offset[j]
            push(least, places, keys[j], j)
        for first in (True, False):
            for j in range(c):
                if (keys[j] <= least[0]) != first or keys[j] > limit:
                    continue
                row = slice(x_indptr[j], x_indptr[j + 1])
                value = distance_csr(code, query, where, x_data[row], x_indices[row])
                measured += 1
                if push(distances[i], ids[i], value, names[j]):
                    limit = threshold(code, distances[i, 0], norms[i], reach, slack, 0.0)
    return measured


@kernel
def offer_buckets(code, queries, rows, members, first, last, seen, distances, ids):
    """Offer query i the rows members[t, first[i, t, p]:last[i, t, p]] of each table t and probe p.

    seen (n,) remembers the query that a row was last measured for, -1 at the start. Rows measured in full.
    """
    count = 0
    for i in range(len(queries)):
        for t in range(first.shape[1]):
            for p in range(first.shape[2]):
                for at in range(first[i, t, p], last[i, t, p]):
                    row = members[t, at]
                    if seen[row] != i:
                        seen[row] = i
                        count += 1
                        push(distances[i], ids[i], distance(code, queries[i], rows[row]), row)
    return count
