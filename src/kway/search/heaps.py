"""Heaps: the k best of each query while rows are offered in blocks (compute/kernels/topk.py)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.jit import plainly
from kway.compute.kernels.topk import EMPTY, NOBODY, settle
from kway.search.index import Neighbors


class Heaps(NamedTuple):
    """The k best so far of each query, worst first: distances (q, k) float64 and positions (q, k) int64."""

    distances: NDArray[np.float64]
    ids: NDArray[np.int64]

    def part(self, where: slice) -> Heaps:
        """The heaps of some queries, sharing memory."""
        return Heaps(self.distances[where], self.ids[where])

    def neighbors(self) -> Neighbors:
        """Sort in place: nearest first, -1 and inf where nobody was."""
        with plainly(self.ids.size):
            full = settle(self.distances, self.ids)
        if not full:
            empty = self.ids == NOBODY
            self.ids[empty] = -1
            self.distances[empty] = np.inf
        return Neighbors(self.ids, self.distances)


def empty_heaps(q: int, k: int) -> Heaps:
    """Heaps that any row improves."""
    heaps = Heaps(np.empty((q, k)), np.empty((q, k), dtype=np.int64))
    heaps.distances.fill(EMPTY)  # a third of what np.full takes for one query
    heaps.ids.fill(NOBODY)
    return heaps
