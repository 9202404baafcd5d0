"""From neighbours found in another space to proven neighbours under the metric.

A space whose distance grows with the metric's (unit vectors for cosine, points on the sphere for haversine, the same
rows in a tree) finds k and a few more. They are measured in float64 on the stored rows; where the last one found lies
further than the k-th by more than rounding can explain, nobody outside can be nearer. Queries without that proof, ties
mostly, are scanned in blocks.

    metric       distance in the space
    euclidean    d                       manhattan    d
    cosine       sqrt(2 d)               haversine    2 sin(d / 2)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.distances import CODES
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import measure
from kway.compute.threads import pmap, shares
from kway.search.blocks import Segment, empty_heaps
from kway.search.index import Neighbors

EXTRA = 6  # neighbours beyond k that make room for the proof


class Confirmed(NamedTuple):
    """Proven neighbours, and how many rows had to be measured for them."""

    neighbors: Neighbors
    measured: int


def confirm(
    segment: Segment, queries: NDArray, found: Neighbors, k: int, rounding: float, n_jobs: int | None
) -> Confirmed:
    """The k nearest of queries (q, d), given `found` (q, k + some) in the other space with errors up to `rounding`."""
    exact = frozen(queries.astype(np.float64))
    ids, gaps = found
    distances = np.empty(ids.shape)
    code = CODES[segment.base]

    def work(part: slice) -> None:
        measure(code, exact[part], segment.rows, ids[part], distances[part])

    pmap(work, shares(len(ids), n_jobs, least=64), n_jobs)
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    ids, best = np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)
    measured = distances.size
    if len(found.ids.T) < len(segment.rows):
        last = gaps[:, -1] * (1.0 - 1e-12) - rounding
        doubtful = np.flatnonzero(last <= _in_space(segment.base, best[:, -1]) * (1.0 + 1e-12))
        if len(doubtful):
            heaps = empty_heaps(len(doubtful), k)
            measured += segment.scan(exact[doubtful], heaps, 0, n_jobs)
            ids[doubtful], best[doubtful] = heaps.neighbors()
    return Confirmed(Neighbors(ids, best), measured)


def _in_space(base: str, distances: NDArray) -> NDArray:
    if base == "cosine":
        return np.sqrt(2.0 * distances)
    return 2.0 * np.sin(0.5 * distances) if base == "haversine" else distances
