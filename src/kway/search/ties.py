"""The order of an answer (index.py has the rule): by the distance given, then by the lower position.

A search finds k and one more in float64. Where none of these tie in the precision given, they are the answer. Where a
tie crosses the end of the list, rows of lower position may lie beyond it, and the query asks again for more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.jit import plainly
from kway.compute.kernels.topk import narrow
from kway.compute.threads import spans
from kway.search.index import Neighbors

TOGETHER = 2**22  # neighbours asked for at once when many queries ask again: 64 MB

_SINGLE = np.dtype(np.float32)

Again = Callable[[NDArray[np.int64], int], Neighbors]  # (which queries, how many) -> their nearest, by position


class GivenDistances(NamedTuple):
    """Distances (q, k) as they are given, and whether any tie with the next."""

    distances: NDArray
    tied: bool


def in_precision(distances: NDArray[np.float64]) -> GivenDistances:
    """Distances in float32; infinity, which stands for nobody, stays."""
    given = np.empty(distances.shape, _SINGLE)
    with plainly(distances.size):
        return GivenDistances(given, narrow(np.ascontiguousarray(distances), given))


def ordered(found: Neighbors, k: int, kind: np.dtype, n_rows: int, again: Again) -> Neighbors:
    """The k nearest by (distance in that precision, position), from those found (q, k + 1, or all n_rows)."""
    if kind != _SINGLE:
        return Neighbors(found.ids[:, :k], found.distances[:, :k])
    given, any_tied = in_precision(found.distances)
    ids, distances = found.ids[:, :k], given[:, :k]
    if not any_tied:  # as a rule
        return Neighbors(ids, distances)
    tied = np.flatnonzero((given[:, 1:] == given[:, :-1]).any(axis=1))
    ids, ask = ids.copy(), found.ids.shape[1]
    settled = _by_position(Neighbors(found.ids[tied], given[tied]), k)
    ids[tied] = settled.ids
    rest = tied[_crosses(given[tied], k)]
    while len(rest) and ask < n_rows:
        ask = min(2 * ask + 8, n_rows)
        left = []
        for part in spans(len(rest), max(1, TOGETHER // ask)):
            some = rest[part]
            more = again(some, ask)
            more = Neighbors(more.ids, in_precision(more.distances).distances)
            ids[some], distances[some] = _by_position(more, k)  # an approximate search may find nearer ones too
            left.append(some[_crosses(more.distances, k)])
        rest = np.concatenate(left)
    return Neighbors(ids, distances)


def _by_position(found: Neighbors, k: int) -> Neighbors:
    order = np.lexsort((found.ids, found.distances), axis=1)[:, :k]
    return Neighbors(*(np.take_along_axis(values, order, axis=1) for values in found))


def _crosses(distances: NDArray, k: int) -> NDArray[np.bool_]:
    """Whether the last one found ties with the k-th, so that more of the kind may follow."""
    return (distances[:, -1] == distances[:, k - 1]) & np.isfinite(distances[:, -1])
