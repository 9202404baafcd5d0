"""The k nearest rows of each query, in a heap to which rows are offered in blocks.

A heap is a row of distances (k,) and ids (k,), ordered by (distance, id), with the worst entry at position 0: of equal
distances, the one with the higher id is worse. Empty entries are (EMPTY, NO_ROW), which is worse than any row.

Every search uses `offer`. It reads keys (m, c), cheap substitutes for distances:

    |scale_j * products_ij + offset_j - t_ij| <= slack        t increases with the true distance
    threshold(code, D, ...)                                   the largest key that a row at distance <= D can have

A row whose key is above the threshold of the k-th distance so far cannot enter the heap. The few others (about
k log(n / k) of n) are measured exactly in float64, so results equal those of brute force in float64.

offer_csr       does the same for CSR rows; the indices of each row must be sorted
offer_buckets   offers the rows of hash buckets, and measures each row once per query
"""

from __future__ import annotations

import numpy as np

from kway.kernels.distances import COSINE, DOT, EUCLIDEAN, HAMMING, HAVERSINE, KEY, MANHATTAN, distance
from kway.kernels.float32 import PRODUCT_UNDERFLOW
from kway.kernels.jit import kernel, strict_kernel

# Distance of an empty entry: infinity is not supported by fastmath. Rows and queries are scaled (power_scaling.py), so
# that every distance is smaller, and it stays finite in any unit of a certified frame (up to 2^250).
EMPTY = 1e200
NO_ROW = np.int64(2**62)  # id of an empty entry

_MAX_FLOAT32 = float(np.finfo(np.float32).max)

STRIP = 32  # keys whose minimum is compared first, because almost none passes; decided by the search benchmark T1b


@kernel
def sift(distances, ids, value, name):
    """Replace the worst entry of the heap by (value, name)."""
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
    """Insert (value, name) if it is better than the worst entry; return whether it was."""
    if value > distances[0] or (value == distances[0] and name > ids[0]):
        return False
    sift(distances, ids, value, name)
    return True


@kernel
def threshold(code, worst, norm, reach, slack, blur):
    """Return the largest key of a row at distance <= worst, for a query of this norm.

    reach is the largest norm of a row, slack bounds the rounding of a key relative to the norms, and blur bounds the
    distance of a scanned code from its row.
    """
    if worst >= EMPTY:
        return EMPTY
    if code == EUCLIDEAN:
        # a row longer than norm + worst is farther than worst anyway, so the slack need not cover it
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
        return worst * reach + 0.25  # reach is the number of columns; keys are integers
    if code == HAVERSINE:
        return 2.0 * np.sin(0.5 * min(worst, np.pi)) ** 2 - 1.0 + slack
    return worst


@kernel
def offer(code, products, scale, offset, queries, rows, names, which, norms, reach, slack, blur, distances, ids):
    """Offer rows (c, d) with the ids `names` (c,) to the heaps distances, ids (q, k) of the queries `which` (m,).

    products (m, c), scale (c,) and offset (c,) give the keys. queries (q, d) float64 and norms (q,) are those of all
    heaps. Returns the number of rows measured in full.
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
    """Insert the lists more_distances, more_ids (q, any) into the heaps distances, ids (q, k)."""
    for i in range(len(ids)):
        for j in range(more_ids.shape[1]):
            if more_ids[i, j] >= 0 and more_ids[i, j] != NO_ROW:
                push(distances[i], ids[i], more_distances[i, j], more_ids[i, j])


@kernel
def merge_distinct(distances, ids, more_distances, more_ids):
    """Insert lists like `merge`, but leave out the rows that a heap already contains."""
    for i in range(len(ids)):
        for j in range(more_ids.shape[1]):
            if more_ids[i, j] >= 0 and more_ids[i, j] != NO_ROW and not np.any(ids[i] == more_ids[i, j]):
                push(distances[i], ids[i], more_distances[i, j], more_ids[i, j])


@kernel
def measure(code, queries, rows, found, distances):
    """Compute distances (q, k) of queries (q, d) to rows found[i]; EMPTY for entries of found (q, k) without a row."""
    for i in range(len(found)):
        for j in range(found.shape[1]):
            at = found[i, j]
            distances[i, j] = EMPTY if at < 0 or at == NO_ROW else distance(code, queries[i], rows[at])


@kernel
def settle(distances, ids):
    """Sort heaps (q, k) in place into lists, nearest first (heap sort); return whether all heaps were full."""
    k, full = ids.shape[1], True
    for i in range(len(ids)):
        for last in range(k - 1, 0, -1):
            worst, name = distances[i, 0], ids[i, 0]
            value, other = distances[i, last], ids[i, last]
            sift(distances[i, :last], ids[i, :last], value, other)
            distances[i, last] = worst
            ids[i, last] = name
        full = full and (k == 0 or ids[i, k - 1] != NO_ROW)
    return full


@strict_kernel
def narrow(distances, given):
    """Convert distances (q, k) to float32, into given (q, k); return whether two adjacent distances tie.

    Infinity stays infinite; a finite distance that is too large becomes the largest float32.
    """
    tied = False
    for i in range(len(distances)):
        for j in range(distances.shape[1]):
            value = distances[i, j]
            given[i, j] = value if value == np.inf else min(max(value, -_MAX_FLOAT32), _MAX_FLOAT32)
            tied = tied or (j > 0 and given[i, j] == given[i, j - 1])
    return tied


@kernel
def distance_csr(code, q_data, q_indices, x_data, x_indices):
    """Return the Euclidean, cosine or dot distance of two sparse rows, by merging their sorted indices."""
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
    """Offer CSR rows to the heaps of CSR queries, as `offer` does; return the number of rows measured in full.

    The rows of the k smallest keys come first. After them the threshold is low, so few others are measured: each
    measurement merges the indices of the row with those of the query.
    """
    measured, k, c = 0, distances.shape[1], len(names)
    keys, least, places = np.empty(c), np.empty(k), np.empty(k, np.int64)
    for i in range(len(distances)):
        query, where = q_data[q_indptr[i] : q_indptr[i + 1]], q_indices[q_indptr[i] : q_indptr[i + 1]]
        limit = threshold(code, distances[i, 0], norms[i], reach, slack, 0.0)
        least[:] = EMPTY
        places[:] = NO_ROW
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

    seen (n,) contains the query for which a row was last measured, -1 at the start. Returns the number of rows measured
    in full.
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
