"""A first k-th distance for each query, from the rows of its nearest cells.

    nearest_cells    scores (q, c) -> the few nearest cells of each query
    warm             rows of those cells ranked by their codes, full distances of the best few offered to the lists

Nothing is pruned here: the order of the ranking only decides how tight the first thresholds are.
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.certified.refine import visit
from kway.compute.kernels.certified.tiles import weigh_codes
from kway.compute.kernels.jit import BIG, kernel


@kernel
def nearest_cells(products, norms, near):
    """near (q, p) int32: cells of least |c|^2 - 2 q.c; products (q, c) are q.c, norms (c,) are |c|^2."""
    probes = near.shape[1]
    values = np.empty(probes, np.float32)
    for i in range(products.shape[0]):
        for p in range(probes):
            values[p] = BIG
            near[i, p] = 0
        for c in range(products.shape[1]):
            value = norms[c] - 2 * products[i, c]
            if value < values[probes - 1]:
                p = probes - 1
                while p > 0 and values[p - 1] > value:
                    values[p] = values[p - 1]
                    near[i, p] = near[i, p - 1]
                    p -= 1
                values[p] = value
                near[i, p] = c


@kernel
def _keep_largest(weights, low, high, base, values, places, count):
    """Weights low..high of a block merged into the list of the largest; how many the list holds."""
    size = values.size
    floor = values[size - 1] if count == size else np.int32(-(2**31) + 1)
    top = floor
    for u in range(low, high):
        top = max(top, weights[u])
    if top == floor:
        return count
    for u in range(low, high):
        if weights[u] <= floor:
            continue
        p = min(count, size - 1)
        count = min(count + 1, size)
        while p > 0 and values[p - 1] < weights[u]:
            values[p] = values[p - 1]
            places[p] = places[p - 1]
            p -= 1
        values[p] = weights[u]
        places[p] = base + u
        if count == size:
            floor = values[size - 1]
    return count


@kernel
def warm(packed, bias, ids, start, rows, near, members, asked, queries, keep, best, found, way):
    """For query members[r] with codes asked[r]: the best `keep` rows of cells near[members[r]] offered to its list.

    bias None: Manhattan codes, as in `sweep`."""
    values, places, weights = np.empty(keep, np.int32), np.empty(keep, np.int64), np.empty(64, np.int32)
    for r in range(members.size):
        i, count = np.int64(members[r]), 0
        for p in range(near.shape[1]):
            c = near[i, p]
            for b in range(start[c] // 64, (start[c + 1] + 63) // 64):
                weigh_codes(packed, bias, b, asked, r, weights, way)
                low, high = max(0, start[c] - 64 * b), min(64, start[c + 1] - 64 * b)
                count = _keep_largest(weights, low, high, 64 * b, values, places, count)
        for u in range(count):
            places[u] = ids[places[u]]
        visit(rows, queries, i, places, count, bias is not None, best, found)
