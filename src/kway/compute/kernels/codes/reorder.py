"""Rows put into another order where they lie, for those that are too many to be held twice."""

from __future__ import annotations

import numpy as np

from kway.compute.kernels.jit import kernel


@kernel
def reorder_rows(rows, order, done):
    """rows[i] <- rows[order[i]] of rows (n, w) and a permutation (n,), a cycle at a time; done (n,), false at first."""
    room = np.empty(rows.shape[1], rows.dtype)
    for start in range(len(order)):
        if done[start] or order[start] == start:
            continue
        room[:] = rows[start]
        at = start
        while order[at] != start:
            rows[at] = rows[order[at]]
            done[at] = True
            at = order[at]
        rows[at] = room
        done[at] = True
