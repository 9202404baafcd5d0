"""The product of CSR rows and a dense matrix: out (m, R) += rows @ dense, with dense (d, R).

A linear model needs two products, and both have this form. The scores are the product of the rows and the weights. The
gradient is the product of the transposed rows and the slopes. Each row of `out` has one writer, so threads need neither
locks nor buffers of their own.

Four entries of a row are processed at once, so that a row of `out` is read and written a quarter as often. For 15,000
texts of 100 entries, 151 scores and two threads this takes 12 ms instead of 22 ms. Keeping a whole row of `out` in
registers takes 10 ms, which is not worth the code.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel


@kernel
def csr_product(data, indices, indptr, first, dense, out):
    """Add to out (m, R) the product of rows first, ..., first + m - 1 and dense (d, R)."""
    width = np.uint64(out.shape[1])
    for i in range(out.shape[0]):
        row = out[i]
        j, end = np.int64(indptr[first + i]), np.int64(indptr[first + i + 1])
        while j + 4 <= end:
            v0, v1, v2, v3 = data[j], data[j + 1], data[j + 2], data[j + 3]
            f0, f1, f2, f3 = dense[indices[j]], dense[indices[j + 1]], dense[indices[j + 2]], dense[indices[j + 3]]
            for c in range(width):
                row[c] += (v0 * f0[c] + v1 * f1[c]) + (v2 * f2[c] + v3 * f3[c])
            j += 4
        while j < end:
            v0, f0 = data[j], dense[indices[j]]
            for c in range(width):
                row[c] += v0 * f0[c]
            j += 1
