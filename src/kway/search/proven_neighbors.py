"""From neighbours found in another space to proven neighbours under the metric.

A search in the distance's space (distances.py: `place`, `gap`) finds k and a few more. They are measured in float64 on
the stored rows; where the last one found lies further than the k-th by more than rounding can explain, nobody outside
can be nearer. Queries without that proof, ties mostly, are scanned in blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import measure
from kway.compute.threads import pmap, shares
from kway.search.blocks import BlockScan
from kway.search.blocks import sum_rounding as rounding_of
from kway.search.heaps import empty_heaps
from kway.search.index import Neighbors

EXTRA = 2  # neighbours beyond k that make room for the proof; four more cost a search by cosine 10 %


class Confirmed(NamedTuple):
    """Proven neighbours, and how many rows had to be measured for them."""

    neighbors: Neighbors
    measured: int


def confirm(
    scan: BlockScan, queries: NDArray, found: Neighbors, k: int, rounding: float, n_jobs: int | None
) -> Confirmed:
    """The k nearest of queries (q, d), given `found` (q, k + some) in the other space with errors up to `rounding`."""
    exact = frozen(queries.astype(np.float64))
    ids, gaps = found
    distances = np.empty(ids.shape)
    code = scan.distance.code

    def work(part: slice) -> None:
        measure(code, exact[part], scan.rows, ids[part], distances[part])

    pmap(work, shares(len(ids), n_jobs, least=64), n_jobs)
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    ids, best = np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)
    measured = distances.size
    if len(found.ids.T) < len(scan.rows):
        last = gaps[:, -1] * (1.0 - 1e-12) - rounding
        unsure = rounding_of(queries.shape[1], np.float64) if scan.distance.by_angle else 0.0  # 1 - cos, at 0 too
        doubtful = np.flatnonzero(last <= scan.distance.gap(best[:, -1] + unsure) * (1.0 + 1e-12))
        if len(doubtful):
            heaps = empty_heaps(len(doubtful), k)
            measured += scan.scan(exact[doubtful], heaps, 0, n_jobs)
            ids[doubtful], best[doubtful] = heaps.neighbors()
    return Confirmed(Neighbors(ids, best), measured)
