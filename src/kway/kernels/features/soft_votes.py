"""Soft votes of rows on each other (neighborhood component analysis), and the gradients of their loss, in place."""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import BIG, kernel
from kway.kernels.linear.losses import exp_down, largest


@kernel
def vote_slopes(scores, codes, first, min_share, weight, shares):
    """Overwrite the scores of b rows with the gradients of their loss, and write their shares.

    scores (b, m) are those of rows first, ..., first + b - 1 for each of m rows with class codes (m,). A row votes with
    the softmax of its scores, without a vote for itself. shares (b,) are the votes for its own class. scores become
    weight * d(-log share) / d(scores), and 0 in rows whose share is at most `min_share`.
    """
    for i in range(scores.shape[0]):
        row = scores[i]
        code = codes[first + i]
        row[first + i] = -BIG
        top = largest(row)
        total = same_class = np.float32(0)
        for j in range(row.size):
            row[j] = exp_down(row[j] - top)
            total += row[j]
        for j in range(row.size):
            same_class += row[j] if codes[j] == code else np.float32(0)
        shares[i] = same_class / total
        if shares[i] <= min_share:
            row[:] = np.float32(0)
            continue
        other_slope = np.float32(weight) / total
        same_slope = other_slope - np.float32(weight) / same_class
        for j in range(row.size):
            row[j] *= same_slope if codes[j] == code else other_slope
