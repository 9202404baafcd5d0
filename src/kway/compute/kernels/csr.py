"""The two products of a linear model over CSR rows, R scores at a time.

scores (m, R) = rows W^T + b, weights laid out (d, R);    sums (d, R) += rows^T slopes
"""

from __future__ import annotations

from kway.compute.kernels.jit import kernel


@kernel
def csr_scores(data, indices, indptr, first, weights, bias, scores):
    """Scores of the rows first, first + 1, ... as many as `scores` has."""
    for i in range(scores.shape[0]):
        row = scores[i]
        for c in range(row.size):
            row[c] = bias[c]
        for j in range(indptr[first + i], indptr[first + i + 1]):
            value, feature = data[j], weights[indices[j]]
            for c in range(row.size):
                row[c] += value * feature[c]


@kernel
def csr_gradient(data, indices, indptr, first, slopes, sums):
    """sums += rows^T slopes over the same rows."""
    for i in range(slopes.shape[0]):
        row = slopes[i]
        for j in range(indptr[first + i], indptr[first + i + 1]):
            value, feature = data[j], sums[indices[j]]
            for c in range(row.size):
                feature[c] += value * row[c]
