"""Results of a search: the k best of each query, their ids, and the order of ties.

TopK, Neighbors    the result of a search
Ids                the caller's ids of positions 0..n-1
Heaps              the k best of each query while rows are offered in blocks (kernels/topk.py)
ordered            applies the rule for ties: rows are ordered by the returned distance, then by position

A search finds k + 1 rows in float64. If no two of them tie in the precision of the result, the first k are the result.
If the last row ties with the k-th, rows with lower positions may be missing, and the query is searched again for more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.kernels.topk import EMPTY, NO_ROW, narrow, settle
from kway.memory import rows_per_block
from kway.parameters import whole
from kway.text_tables import Table, first_rows, short_number
from kway.threads import spans

_AT_LEAST_ONE = whole(1)


class TopK(NamedTuple):
    """The k best ids of each query, by score.

    Attributes
    ----------
    ids : ndarray of shape (n_queries, k)
        Ids, best first; -1 pads.
    scores : ndarray of shape (n_queries, k)
        Scores, higher is better; -inf pads.
    """

    ids: NDArray
    scores: NDArray

    def _table(self) -> Table:
        return _best_first("TopK", "scores", self.ids, self.scores)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


class Neighbors(NamedTuple):
    """The k nearest rows of each query.

    Attributes
    ----------
    ids : ndarray of shape (n_queries, k)
        Ids, nearest first; -1 pads.
    distances : ndarray of shape (n_queries, k)
        Distances, lower is nearer; inf pads.
    """

    ids: NDArray[np.int64]
    distances: NDArray

    def _table(self) -> Table:
        return _best_first("Neighbors", "distances", self.ids, self.distances)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def _best_first(name: str, values_name: str, ids: Any, values: Any, max_columns: int = 5) -> Table:
    """Return a table of the first rows of results (q, k)."""
    ids, values = np.asarray(ids), np.asarray(values)
    if ids.ndim != 2 or ids.shape != values.shape:  # built by a user
        return Table(f"{name}: ids of shape {ids.shape}, {values_name} of shape {values.shape}", (), ())
    q, k = ids.shape
    shown = min(k, max_columns)
    title = f"{name}: {q:,} rows x {k:,} best, with their {values_name}" + (
        f" (the first {shown})" if k > shown else ""
    )
    return first_rows(
        title,
        q,
        [str(j + 1) for j in range(shown)],
        lambda i: (f"{ids[i, j]} ({short_number(values[i, j])})" for j in range(shown)),
    )


def whole_k(k: Any) -> int:
    """Return k as an int; raise an error unless it is a whole number of at least 1."""
    _AT_LEAST_ONE.check("k", k)
    return int(k)


class Ids:
    """Ids (n,) of the rows at positions 0..n-1."""

    def __init__(self, ids: NDArray[np.int64] | range) -> None:
        self._ids = ids  # a range, which takes no memory, if ids are the positions
        self._order: NDArray[np.int64] | None = None  # positions sorted by id, computed by the first `find`

    @staticmethod
    def of(n: int, ids: ArrayLike | None) -> Ids:
        """Return the ids of the caller, checked, or 0..n-1 for None."""
        return Ids(range(n) if ids is None else _checked(ids, n))

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def plain(self) -> bool:
        """Whether the ids are the positions."""
        return isinstance(self._ids, range)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids (n,)."""
        return np.arange(len(self._ids)) if isinstance(self._ids, range) else self._ids

    def names(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of positions; -1 stays -1."""
        return positions if self.plain else np.where(positions >= 0, self.ids[np.maximum(positions, 0)], -1)

    def joined(self, n: int, ids: ArrayLike | None) -> Ids:
        """Return these ids followed by those of n more rows; None continues after the largest id."""
        if ids is None and self.plain:
            return Ids(range(len(self) + n))
        if ids is None:
            first = int(self.ids.max()) + 1 if len(self) else 0
            more = np.arange(first, first + n)
        else:
            more = _checked(ids, n)
            duplicates = more[self.find(more) >= 0]
            if len(duplicates):
                raise InputError(
                    f"ids {_first_few(duplicates)} are already in the index; remove them first, or pass other ids"
                )
        return Ids(np.concatenate([self.ids, more]))

    def known(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the sorted positions of ids, without duplicates; raise InputError for unknown ids."""
        unique = np.atleast_1d(np.asarray(ids))
        if unique.dtype.kind not in "iu" and unique.size:
            raise InputError(f"ids must be whole numbers, got dtype {unique.dtype}")
        unique = np.unique(unique.astype(np.int64))
        positions = self.find(unique)
        if (positions < 0).any():
            raise InputError(
                f"ids {_first_few(unique[positions < 0])} are not in the index; pass ids that `add` or `build` returned"
            )
        return np.sort(positions)

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of ids, -1 for unknown ids."""
        if not len(self):
            return np.full(len(ids), -1)
        if self.plain:
            return np.where((ids >= 0) & (ids < len(self)), ids, -1)
        if self._order is None:
            self._order = np.argsort(self.ids, kind="stable")
        positions = self._order[np.minimum(np.searchsorted(self.ids, ids, sorter=self._order), len(self) - 1)]
        return np.where(self.ids[positions] == ids, positions, -1)

    def without(self, positions: NDArray[np.int64]) -> Ids:
        """Return the ids except those at positions."""
        return Ids(np.delete(self.ids, positions))


def _checked(ids: ArrayLike, n: int) -> NDArray[np.int64]:
    array = np.asarray(ids)
    if array.dtype.kind not in "iu" or array.shape != (n,):
        raise InputError(
            f"ids must be whole numbers of shape ({n},), one per row, got dtype {array.dtype} and shape {array.shape}"
        )
    array = array.astype(np.int64)
    if (array < 0).any():
        raise InputError(f"ids must not be negative (-1 means not found), got {int(array.min())}")
    values, counts = np.unique(array, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"ids {_first_few(values[counts > 1])} occur more than once; pass a different id per row")
    return array


def _first_few(ids: NDArray[np.int64]) -> str:
    return ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")


class Heaps(NamedTuple):
    """The k best rows so far of each query, with the worst first: distances (q, k) float64, positions (q, k) int64."""

    distances: NDArray[np.float64]
    ids: NDArray[np.int64]

    def part(self, queries: slice) -> Heaps:
        """Return views of the heaps of a range of queries."""
        return Heaps(self.distances[queries], self.ids[queries])

    def neighbors(self) -> Neighbors:
        """Sort the heaps in place, nearest first, and return them; -1 and inf stand for empty entries."""
        if not settle(self.distances, self.ids):
            empty = self.ids == NO_ROW
            self.ids[empty] = -1
            self.distances[empty] = np.inf
        return Neighbors(self.ids, self.distances)


def empty_heaps(q: int, k: int) -> Heaps:
    """Return heaps without rows."""
    heaps = Heaps(np.empty((q, k)), np.empty((q, k), dtype=np.int64))
    heaps.distances.fill(EMPTY)  # takes a third of the time of np.full (latency benchmark T7)
    heaps.ids.fill(NO_ROW)
    return heaps


_SINGLE = np.dtype(np.float32)

SearchAgain = Callable[[NDArray[np.int64], int], Neighbors]  # (numbers of queries, k) -> their k nearest positions


class RoundedDistances(NamedTuple):
    """Distances (q, k) in float32, and whether two adjacent distances of a query tie."""

    distances: NDArray
    has_ties: bool


def round_distances(distances: NDArray[np.float64]) -> RoundedDistances:
    """Return distances in float32; infinity, which stands for an empty entry, stays."""
    rounded = np.empty(distances.shape, _SINGLE)
    return RoundedDistances(rounded, narrow(np.ascontiguousarray(distances), rounded))


def ordered(neighbors: Neighbors, k: int, result_type: np.dtype, n_rows: int, search_again: SearchAgain) -> Neighbors:
    """Return the k nearest by (distance in the result type, position).

    `neighbors` are k + 1 rows per query or all n_rows, ordered by (float64 distance, position).
    """
    if result_type != _SINGLE:
        return Neighbors(neighbors.ids[:, :k], neighbors.distances[:, :k])
    rounded, has_ties = round_distances(neighbors.distances)
    ids, distances = neighbors.ids[:, :k], rounded[:, :k]
    if not has_ties:
        return Neighbors(ids, distances)
    keys = _tie_keys(neighbors.distances, rounded)
    tied = np.flatnonzero((keys[:, 1:] == keys[:, :-1]).any(axis=1))
    ids = ids.copy()
    ids[tied] = _by_position(Neighbors(neighbors.ids[tied], keys[tied]), k).ids
    open_queries = tied[_may_miss_ties(keys[tied], k)]
    n_search = neighbors.ids.shape[1]
    while len(open_queries) and n_search < n_rows:
        n_search = min(2 * n_search + 8, n_rows)
        still_open = []
        for part in spans(len(open_queries), rows_per_block(16 * n_search)):
            queries = open_queries[part]
            more = search_again(queries, n_search)
            more = Neighbors(more.ids, _tie_keys(more.distances, round_distances(more.distances).distances))
            ids[queries], keys = _by_position(more, k)  # an approximate search may find nearer rows too
            distances[queries] = round_distances(keys).distances
            still_open.append(queries[_may_miss_ties(more.distances, k)])
        open_queries = np.concatenate(still_open)
    return Neighbors(ids, distances)


def _tie_keys(distances: NDArray[np.float64], rounded: NDArray) -> NDArray[np.float64]:
    """Return the distances that decide ties: the rounded ones, or those in float64 beyond the range of float32."""
    keys = rounded.astype(np.float64)
    overflows = np.isfinite(distances) & (np.abs(distances) > np.finfo(_SINGLE).max)
    keys[overflows] = distances[overflows]
    return keys


def _by_position(neighbors: Neighbors, k: int) -> Neighbors:
    """Return the k nearest by (distance, position)."""
    order = np.lexsort((neighbors.ids, neighbors.distances), axis=1)[:, :k]
    return Neighbors(*(np.take_along_axis(values, order, axis=1) for values in neighbors))


def _may_miss_ties(distances: NDArray, k: int) -> NDArray[np.bool_]:
    """Return whether the last row found ties with the k-th, so that rows that tie may be missing."""
    return (distances[:, -1] == distances[:, k - 1]) & np.isfinite(distances[:, -1])
