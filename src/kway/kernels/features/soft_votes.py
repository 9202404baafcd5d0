"""Soft votes of rows on each other, and the gradients of their loss, in place: one pass over the array."""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import BIG, kernel
from kway.kernels.linear.losses import exp_down, largest


@kernel
def vote_slopes(scores, codes, first, least, part, shares):
    """Turn scores (b, m) of rows first, first + 1, ... among m rows with class codes (m,) into gradients of their loss.

    shares (b,) is filled with the part of the vote, softmax of the scores without the row itself, for the row's own
    class. scores become part * d(-log share) / d(scores), and 0 in rows whose share is at most `least`.
    """
    for i in range(scores.shape[0]):
        row = scores[i]
        own = codes[first + i]
        row[first + i] = -BIG
        top = largest(row)
        every = right = np.float32(0)
        for j in range(row.size):
            row[j] = exp_down(row[j] - top)
            every += row[j]
        for j in range(row.size):
            right += row[j] if codes[j] == own else np.float32(0)
        shares[i] = right / every
        if shares[i] <= least:
            row[:] = np.float32(0)
            continue
        other = np.float32(part) / every
        alike = other - np.float32(part) / right
        for j in range(row.size):
            row[j] *= alike if codes[j] == own else other
