"""Soft votes of rows on each other, and the slopes of their loss, in place: one pass an array instead of a dozen."""

from __future__ import annotations

import numpy as np

from kway.kernels.jit import BIG, kernel
from kway.kernels.linear.losses import exp_down, largest


@kernel
def vote_slopes(scores, codes, first, least, part, shares):
    """Scores (b, m) of the rows first, first + 1, ... among m rows with class codes (m,), themselves left out.

    shares (b,): the part of the vote, softmax of the scores, that goes to the row's own class. scores become
    part * d(-log share) / d(scores), 0 in rows whose share is no more than `least`.
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
