"""Fused kernels: loss and gradient from a single pass over the rows, for up to 16 scores per row.

Rows are processed in blocks of 32, which stay in the cache between the two products:

    Z = X T^T + b (32, R)     scores of a block; T (R, d) are the weights
    Z -> slopes               the derivative of each loss with respect to its scores replaces the scores
    G += Z^T X                gradient

The sums of both products are kept in registers. 60,000 rows of 784 features and 10 scores, float32, two threads:

    AVX-512   12 ms (16 ms without the prefetch of the next block); BLAS in blocks 27 ms, plain numpy 46 ms
    AVX2      22 ms; BLAS in blocks 45 ms. Half as many rows in float64 take as long

Rows are passed as an address and a stride in bytes, so they may be anywhere in memory.
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel
from kway.kernels.linear.losses import loss_rows, softmax_rows
from kway.kernels.product_tiles import MAX_SCORES, backward_lanes, backward_tile, forward_row, forward_tile

_BLOCK = 32  # rows per block


def padded_width(width, lanes):
    """Return the padded length of a row of T and G: whole vectors, plus one, because a tile may read past the end."""
    return (width // lanes + 1) * lanes


@kernel
def forward_rows(x, x_stride, rows, features, T, z, z_stride, tile, classes):
    """Compute the scores of `rows` rows without the bias."""
    w, w_stride, height = T.ctypes.data, T.strides[0], tile.height
    done = 0
    while done + height <= rows:
        forward_tile(x + done * x_stride, w, z + done * z_stride, x_stride, w_stride, z_stride, features, classes)
        done += height
    while done < rows:
        forward_row(x + done * x_stride, w, z + done * z_stride, x_stride, w_stride, z_stride, features, classes)
        done += 1


@kernel
def backward_rows(x, x_stride, rows, features, z, z_stride, G, tile, classes):
    """Add Z^T X of `rows` rows to G."""
    g, g_stride, lanes = G.ctypes.data, G.strides[0], tile.lanes
    width, vectors = G.itemsize * lanes, features // lanes
    done = 0
    while done + tile.height <= vectors:
        offset = width * done
        backward_tile(x + offset, z, g + offset, x_stride, z_stride, g_stride, rows, classes)
        done += tile.height
    while lanes * done < features:
        offset = width * done
        n_left = min(lanes, features - lanes * done)
        backward_lanes(x + offset, z, g + offset, x_stride, z_stride, g_stride, rows, n_left, classes)
        done += 1


@kernel
def weigh(Z, value, weight):
    """Multiply the slopes and the losses of each row by its weight, if there are weights."""
    for i in range(weight.size):
        value[i] *= weight[i]
        for c in range(Z.shape[1]):
            Z[i, c] *= weight[i]


@kernel
def add_rows(Z, sums):
    """Add the rows of Z to `sums`."""
    lanes = np.uint64(Z.shape[1])
    for i in range(Z.shape[0]):
        for c in range(lanes):
            sums[c] += Z[i, c]


@kernel
def fused_losses(kind, margin, width, x, x_stride, n, features, codes, weight, T, bias, G, sums, tile, classes):
    """Return the sum of the losses of n rows at address x; kind is a number of loss_numbers.py, or None for softmax.

    Adds slopes^T X to G (K, padded) and the sums of the slopes to `sums` (K,). T (K, padded) are the weights, zero
    after the last feature, and bias (K,) the biases; weight (n,) are sample weights, or empty.
    """
    K = len(classes)
    buffer = np.zeros(_BLOCK * K + MAX_SCORES, T.dtype)  # a tile's spare lanes are overwritten by the next row
    Z = buffer[: _BLOCK * K].reshape(_BLOCK, K)
    z, z_stride = buffer.ctypes.data, Z.strides[0]
    value = np.empty(_BLOCK)
    no_soft = np.empty((0, 0), T.dtype)
    loss_sum = 0.0
    for start in range(0, n, _BLOCK):
        rows = min(_BLOCK, n - start)
        block, labels = x + start * x_stride, codes[start : start + rows]
        forward_rows(block, x_stride, rows, features, T, z, z_stride, tile, classes)
        for i in range(rows):
            for c in range(K):
                Z[i, c] += bias[c]
        if kind is None:  # then numba does not compile the other losses, which would take seconds
            softmax_rows(Z[:rows], labels, no_soft, True, value, Z[:rows])
        else:
            loss_rows(kind, Z[:rows], labels, no_soft, True, margin, width, value, Z[:rows])
        weigh(Z, value, weight[start : start + rows])
        add_rows(Z[:rows], sums)
        loss_sum += value[:rows].sum()
        backward_rows(block, x_stride, rows, features, z, z_stride, G, tile, classes)
    return loss_sum


@kernel
def fused_hessian_product(coupled, terms, x, x_stride, n, features, codes, weight, T, bias, G, sums, tile, classes):
    """Compute a Hessian-vector product: G += (w B f)^T X and sums += w B f.

    f (n, R) are the scores of the direction [T bias]. Each row has its own B: diag(terms) with terms (n, R), minus
    terms terms' if the scores are `coupled`. For softmax they are coupled, and terms = p.
    """
    K = len(classes)
    buffer = np.zeros(_BLOCK * K + MAX_SCORES, T.dtype)
    Z = buffer[: _BLOCK * K].reshape(_BLOCK, K)
    z, z_stride = buffer.ctypes.data, Z.strides[0]
    for start in range(0, n, _BLOCK):
        rows = min(_BLOCK, n - start)
        block = x + start * x_stride
        forward_rows(block, x_stride, rows, features, T, z, z_stride, tile, classes)
        for i in range(rows):
            along = T.dtype.type(0)
            for c in range(K):
                Z[i, c] += bias[c]
                along += terms[start + i, c] * Z[i, c]
            along = along if coupled else T.dtype.type(0)
            heavy = weight[start + i] if weight.size else T.dtype.type(1)
            for c in range(K):
                Z[i, c] = heavy * terms[start + i, c] * (Z[i, c] - along)
        add_rows(Z[:rows], sums)
        backward_rows(block, x_stride, rows, features, z, z_stride, G, tile, classes)
