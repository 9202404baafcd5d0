"""From candidates to neighbours: exact distances and the sorted list of the best.

insert(best, found, i, value, j)    merge into the list of query i, ordered by (value, j); best (q, k) float64
visit(rows, queries, i, near, ...)  exact sums of the stored values (gap_sums.py) of rows that are left, inserted
"""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.distances import absolute_gaps, squared_gaps
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.lanes import ctz, touch_row

FARTHEST = 1e200  # distance of a place in the list that nobody has taken yet; units of 2^250 keep it finite


@kernel
def listed(found, i, j):
    """Whether row j is in the list of query i."""
    there = False
    for p in range(found.shape[1]):  # without an early end: this becomes vectors
        there |= found[i, p] == j
    return there


@kernel
def insert(best, found, i, value, j):
    """Take row j, which is not in the list, if it belongs among the k smallest by (value, j)."""
    p = best.shape[1] - 1
    if value > best[i, p] or (value == best[i, p] and j > found[i, p]):
        return
    while p > 0 and (best[i, p - 1] > value or (best[i, p - 1] == value and found[i, p - 1] > j)):
        best[i, p] = best[i, p - 1]
        found[i, p] = found[i, p - 1]
        p -= 1
    best[i, p] = value
    found[i, p] = j


@kernel
def visit(rows, queries, i, near, n, squared, best, found):
    """Distances (squared: Euclidean, else Manhattan) of the first n rows of `near`, none listed yet, offered to i.

    Roots, not squares: two of these may have one root, and rows at the same distance go by their ids.
    """
    width = rows.shape[1] * rows.itemsize
    for u in range(n):
        if u + 1 < n:
            touch_row(rows, near[u + 1], 0, width)
        query, row = queries[i], rows[near[u]]
        value = np.sqrt(squared_gaps(query, row)) if squared else absolute_gaps(query, row)
        insert(best, found, i, value, near[u])


@kernel
def unpack_marks(marks, r, first, last, n, places):
    """Numbers of the rows marked for query r in blocks first..last, below n, into `places`; how many."""
    count = 0
    for b in range(last - first):
        word = marks[r, b]
        while word != 0:
            places[count] = (first + b) * 64 + ctz(word)
            word &= word - np.uint64(1)
            count += 1
    while count and places[count - 1] >= n:  # the last block is filled up with rows that do not exist
        count -= 1
    return count


@kernel
def unlisted(ids, found, i, places, n):
    """Places turned into row numbers, those already in the list of query i left out; how many."""
    count = 0
    for u in range(n):
        j = ids[places[u]]
        if not listed(found, i, j):
            places[count] = j
            count += 1
    return count
