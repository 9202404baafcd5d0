"""Steps of stochastic gradient descent, each from a single row i of weight w_i.

    theta (R, d + 1) <- prox(theta - eta w_i grad loss_i)

theta contains the weights W and, in its last column, the biases b. The prox applies the penalty (L2 and L1).
"""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import kernel, strict_kernel
from kway.kernels.linear.losses import loss_rows


@kernel
def row_scores(x, theta, out):
    """Set out (1, R) to the scores W x + b of one row."""
    d = x.size
    for c in range(theta.shape[0]):
        total = theta[c, d]
        for j in range(d):
            total += theta[c, j] * x[j]
        out[0, c] = total


@kernel
def plain_step(x, slope, eta, shrink, theta):
    """Take a step for one class, without momentum and L1: W <- shrink (W - eta slope x)."""
    length = eta * slope
    for j in range(x.size):
        theta[j] = (theta[j] - length * x[j]) * shrink


@kernel
def full_step(x, slope, eta, momentum, shrink, cut, velocity, theta):
    """Take a step for one class with momentum and the L1 prox, which sets weights to exactly 0."""
    for j in range(x.size):
        velocity[j] = momentum * velocity[j] + (1 - momentum) * slope * x[j]
        w = theta[j] - eta * velocity[j]
        size = abs(w) - cut
        theta[j] = (np.sign(w) * size * shrink) if size > 0 else w * 0


@strict_kernel
def sgd_steps(
    kind, margin, width, X, codes, Y, hard, weight, order, eta, momentum, ridge, lasso, bias, theta, velocity
):
    """Take one step per row in `order`, with learning rates eta (m,); return the sum of the losses before each step.

    kind, margin, width, codes, Y and hard are those of losses.py, weight (n,) are the sample weights. theta and
    velocity (R, d + 1), the running mean of the gradients, are updated in place.
    """
    rows, d = theta.shape[0], X.shape[1]
    scores = np.empty((1, rows), theta.dtype)
    slopes = np.empty((1, rows), theta.dtype)
    value = np.empty(1)
    total = 0.0
    for t in range(order.size):
        i = order[t]
        row_scores(X[i], theta, scores)
        loss_rows(kind, scores, codes[i : i + 1], Y[i : i + 1], hard, margin, width, value, slopes)
        total += weight[i] * value[0]
        step = eta[t]
        shrink = 1 / (1 + step * ridge)
        for c in range(rows):
            slope = slopes[0, c] * weight[i]
            if momentum > 0 or lasso > 0:
                full_step(X[i], slope, step, momentum, shrink, step * lasso, velocity[c, :d], theta[c, :d])
            elif slope != 0 or ridge > 0:
                plain_step(X[i], slope, step, shrink, theta[c, :d])
            if bias:
                velocity[c, d] = momentum * velocity[c, d] + (1 - momentum) * slope
                theta[c, d] -= step * velocity[c, d]
    return total


@strict_kernel
def row_hashes(X, direction, out):
    """Set out (n,) to X @ direction in float64; the order of additions is fixed, so equal rows get equal hashes."""
    for i in range(X.shape[0]):
        total = 0.0
        for j in range(X.shape[1]):
            total += np.float64(X[i, j]) * direction[j]
        out[i] = total
