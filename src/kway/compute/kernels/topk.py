"""The k nearest of each query, kept in a heap while rows are offered in blocks.

A heap is a row of (distances (k,), ids (k,)) with the worst at position 0, ordered by (distance, id): of equal
distances the higher id is the worse. Empty places hold (EMPTY, NOBODY), worse than any row.

`offer` is the one mechanism behind every search. It sees keys (m, c), cheap stand-ins for distances:

    |scale_j * products_ij + offset_j - t_ij| <= slack        t grows with the true distance
    threshold(code, D, ...)                                   the largest key that a row at distance <= D can have

so a row whose key lies above the threshold of the k-th distance so far cannot enter, and the few others (about
k log(n / k) of n) are measured exactly in float64. What comes out equals brute force in float64.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.distances import COSINE, DOT, EUCLIDEAN, HAMMING, HAVERSINE, KEY, MANHATTAN, distance
from kway.compute.kernels.float32 import PRODUCT_UNDERFLOW
from kway.compute.kernels.jit import kernel, strict_kernel

EMPTY = 1e300  # stands for infinity, which fastmath may not see
NOBODY = np.int64(2**62)

_MOST = float(np.finfo(np.float32).max)

STRIP = 32  # keys looked at together: a vector minimum, since almost none passes


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
