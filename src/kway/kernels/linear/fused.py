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
from kway.kernels.linear.loss_numbers import SOFTMAX
from kway.kernels.linear.losses import exp_down, loss_rows
from kway.kernels.product_tiles import MAX_SCORES, backward_lanes, backward_tile, forward_row, forward_tile

_BLOCK = 32  # rows per block; `softmax_block` relies on the product of 32 denominators being finite
FAR = np.float32(-1e30)  # score of a class that does not exist: its exponential is zero


def padded_width(width, lanes):
    """Return the padded length of a row of T and G: whole vectors, plus one, because a tile may read past the end."""
    return (width // lanes + 1) * lanes


@kernel
def softmax_block(Z, codes, bias, weight, sums):
    """Replace scores Z (m, 16) by the slopes p - Y, add them to `sums`, and return the sum of the losses.

    The bias is FAR for columns without a class. A block needs one logarithm: sum_i log(s_i) = log(prod_i s_i), and the
    product of 32 denominators, each at most 16, is at most 2^128.
    """
    lanes, number = np.uint64(MAX_SCORES), Z.dtype.type
    loss = 0.0
    product = 1.0
    for i in range(np.uint64(Z.shape[0])):
        for c in range(lanes):
            Z[i, c] += bias[c]
        top = Z[i, 0]
        for c in range(lanes):
            top = max(top, Z[i, c])
        along = Z[i, codes[i]] - top
        for c in range(lanes):
            Z[i, c] = exp_down(Z[i, c] - top)
        own = Z[i, codes[i]]
        Z[i, codes[i]] = 0
        others = number(0)  # summed separately, so that 1 - p keeps its digits if p is nearly 1
        for c in range(lanes):
            others += Z[i, c]
        partition = np.float64(own) + np.float64(others)
        share = number(1 / partition)
        if weight.size:
            loss += weight[i] * (np.log(partition) - along)
            share *= number(weight[i])
        else:
            loss -= along
            product *= partition
        for c in range(lanes):
            Z[i, c] *= share
        Z[i, codes[i]] = -others * share
        for c in range(lanes):
            sums[c] += Z[i, c]
    return loss + np.log(product)


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
    """Multiply the slopes and the losses of each row by its weight."""
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
def fused_softmax(x, x_stride, n, features, codes, weight, T, bias, G, sums, tile, classes):
    """Return the sum of the softmax losses of n rows at address x.

    Adds slopes^T X to G (K, padded) and the sums of the slopes to `sums` (16,). T (K, padded) are the weights, zero
    after the last feature; bias (16,) is FAR beyond class K; weight (n,) are sample weights, or empty.
    """
    Z = np.zeros((_BLOCK, MAX_SCORES), T.dtype)
    z, z_stride = Z.ctypes.data, Z.strides[0]
    loss_sum = 0.0
    for start in range(0, n, _BLOCK):
        rows = min(_BLOCK, n - start)
        block = x + start * x_stride
        forward_rows(block, x_stride, rows, features, T, z, z_stride, tile, classes)
        loss_sum += softmax_block(Z[:rows], codes[start : start + rows], bias, weight[start : start + rows], sums)
        backward_rows(block, x_stride, rows, features, z, z_stride, G, tile, classes)
    return loss_sum


@kernel
def fused_losses(kind, margin, width, x, x_stride, n, features, codes, weight, T, bias, G, sums, tile, classes):
    """`fused_softmax` for any loss of class labels. A kernel of its own, because compiling all losses takes seconds."""
    K = len(classes)
    buffer = np.zeros(_BLOCK * K + MAX_SCORES, T.dtype)  # a tile's spare lanes are overwritten by the next row
    Z = buffer[: _BLOCK * K].reshape(_BLOCK, K)
    z, z_stride = buffer.ctypes.data, Z.strides[0]
    value = np.empty(_BLOCK)
    no_soft = np.empty((0, 0), T.dtype)
    loss_sum = 0.0
    for start in range(0, n, _BLOCK):
        rows = min(_BLOCK, n - start)
        block = x + start * x_stride
        forward_rows(block, x_stride, rows, features, T, z, z_stride, tile, classes)
        for i in range(rows):
            for c in range(K):
                Z[i, c] += bias[c]
        loss_rows(kind, Z[:rows], codes[start : start + rows], no_soft, True, margin, width, value, Z[:rows])
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


def each_fused(kind, margin, width, *work):
    """Call `fused_softmax` or `fused_losses`, so that only the kernel of this loss is compiled."""
    return fused_softmax(*work) if kind == SOFTMAX else fused_losses(kind, margin, width, *work)
