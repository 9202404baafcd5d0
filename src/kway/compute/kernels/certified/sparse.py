"""Exact distances between CSR rows, and the offer of CSR rows to heaps. Indices of a row must be sorted."""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.distances import COSINE, EUCLIDEAN
from kway.compute.kernels.jit import kernel
from kway.compute.kernels.topk import EMPTY, NOBODY, push, threshold


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
