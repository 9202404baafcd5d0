"""Rows of hash buckets, measured once each and offered to the heaps."""

from __future__ import annotations

from kway.compute.kernels.distances import distance
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.topk import push


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
