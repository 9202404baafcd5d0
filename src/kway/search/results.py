"""Results of a search: the k best of each query, their ids, and the order of ties.

TopK, Neighbors    the result of a search
Ids                the caller's ids of positions 0..n-1
Heaps              the k best of each query while rows are offered in blocks (kernels/topk.py)
ordered            the rule for ties: by the returned distance, then by the lower position

A search finds k + 1 rows in float64. If none of them tie in the precision of the result, the first k are the result. If
the last row ties with the k-th, rows of lower position may follow, and the query is searched again for more.
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


def _best_first(name: str, values_name: str, ids: Any, values: Any, most: int = 5) -> Table:
    """Return a table of the first rows of results (q, k), with at most so many columns."""
    ids, values = np.asarray(ids), np.asarray(values)
    if ids.ndim != 2 or ids.shape != values.shape:  # built by a user
        return Table(f"{name}: ids of shape {ids.shape}, {values_name} of shape {values.shape}", (), ())
    q, k = ids.shape
    shown = min(k, most)
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
        self._ids = ids  # a range costs no memory
        self._order: NDArray[np.int64] | None = None  # computed at the first look-up

    @staticmethod
    def of(n: int, ids: ArrayLike | None) -> Ids:
        """Return the given ids, checked, or 0..n-1."""
        return Ids(range(n) if ids is None else _checked(ids, n))

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def plain(self) -> bool:
        """Whether ids are the positions, so that nothing is looked up or stored."""
        return isinstance(self._ids, range)

    @property
    def ids(self) -> NDArray[np.int64]:
        """The ids (n,)."""
        return np.arange(len(self._ids)) if isinstance(self._ids, range) else self._ids

    def names(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the ids of positions; -1 stays -1."""
        return positions if self.plain else np.where(positions >= 0, self.ids[np.maximum(positions, 0)], -1)

    def joined(self, n: int, ids: ArrayLike | None) -> Ids:
        """Return these ids and those of n more rows; they continue after the largest unless given."""
        if ids is None and self.plain:
            return Ids(range(len(self) + n))
        if ids is None:
            first = int(self.ids.max()) + 1 if len(self) else 0
            more = np.arange(first, first + n)
        else:
            more = _checked(ids, n)
            known = more[self.find(more) >= 0]
            if len(known):
                raise InputError(f"ids {_few(known)} are already in the index; remove them first, or pass other ids")
        return Ids(np.concatenate([self.ids, more]))

    def known(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return the sorted positions of ids, without duplicates; raise an error for unknown ids."""
        named = np.atleast_1d(np.asarray(ids))
        if named.dtype.kind not in "iu" and named.size:
            raise InputError(f"ids must be whole numbers, got dtype {named.dtype}")
        named = np.unique(named.astype(np.int64))
        found = self.find(named)
        if (found < 0).any():
            raise InputError(
                f"ids {_few(named[found < 0])} are not in the index; pass ids that `add` or `build` returned"
            )
        return np.sort(found)

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions of ids, -1 for unknown ids."""
        if not len(self):
            return np.full(len(ids), -1)
        if self.plain:
            return np.where((ids >= 0) & (ids < len(self)), ids, -1)
        if self._order is None:
            self._order = np.argsort(self.ids, kind="stable")
        at = self._order[np.minimum(np.searchsorted(self.ids, ids, sorter=self._order), len(self) - 1)]
        return np.where(self.ids[at] == ids, at, -1)

    def without(self, positions: NDArray[np.int64]) -> Ids:
        """Return the ids except those at positions; later ones move up."""
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
        raise InputError(f"ids {_few(values[counts > 1])} occur more than once; pass a different id per row")
    return array


def _few(ids: NDArray[np.int64]) -> str:
    return ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")


class Heaps(NamedTuple):
    """The k best so far of each query, worst first: distances (q, k) float64 and positions (q, k) int64."""

    distances: NDArray[np.float64]
    ids: NDArray[np.int64]

    def part(self, where: slice) -> Heaps:
        """Return the heaps of some queries, sharing memory."""
        return Heaps(self.distances[where], self.ids[where])

    def neighbors(self) -> Neighbors:
        """Sort in place, nearest first; -1 and inf for empty places."""
        if not settle(self.distances, self.ids):
            empty = self.ids == NO_ROW
            self.ids[empty] = -1
            self.distances[empty] = np.inf
        return Neighbors(self.ids, self.distances)


def empty_heaps(q: int, k: int) -> Heaps:
    """Return empty heaps, into which any row is accepted."""
    heaps = Heaps(np.empty((q, k)), np.empty((q, k), dtype=np.int64))
    heaps.distances.fill(EMPTY)  # a third of the time of np.full (T7)
    heaps.ids.fill(NO_ROW)
    return heaps


_SINGLE = np.dtype(np.float32)

Again = Callable[[NDArray[np.int64], int], Neighbors]  # (some queries, k) -> their nearest positions


class GivenDistances(NamedTuple):
    """Distances (q, k) as returned, and whether any two neighbors tie."""

    distances: NDArray
    tied: bool


def in_precision(distances: NDArray[np.float64]) -> GivenDistances:
    """Return distances in float32; infinity, for an empty place, stays."""
    given = np.empty(distances.shape, _SINGLE)
    return GivenDistances(given, narrow(np.ascontiguousarray(distances), given))


def ordered(found: Neighbors, k: int, kind: np.dtype, n_rows: int, again: Again) -> Neighbors:
    """Return the k nearest by (distance in that precision, position) from those found (q, k + 1, or all n_rows)."""
    if kind != _SINGLE:
        return Neighbors(found.ids[:, :k], found.distances[:, :k])
    given, any_tied = in_precision(found.distances)
    ids, distances = found.ids[:, :k], given[:, :k]
    if not any_tied:  # the usual case
        return Neighbors(ids, distances)
    keys = _tie_keys(found.distances, given)
    tied = np.flatnonzero((keys[:, 1:] == keys[:, :-1]).any(axis=1))
    ids, ask = ids.copy(), found.ids.shape[1]
    settled = _by_position(Neighbors(found.ids[tied], keys[tied]), k)
    ids[tied] = settled.ids
    rest = tied[_crosses(keys[tied], k)]
    while len(rest) and ask < n_rows:
        ask = min(2 * ask + 8, n_rows)
        left = []
        for part in spans(len(rest), rows_per_block(16 * ask)):
            some = rest[part]
            more = again(some, ask)
            more = Neighbors(more.ids, _tie_keys(more.distances, in_precision(more.distances).distances))
            ids[some], keys = _by_position(more, k)  # an approximate search may find nearer rows too
            distances[some] = in_precision(keys).distances
            left.append(some[_crosses(more.distances, k)])
        rest = np.concatenate(left)
    return Neighbors(ids, distances)


def _tie_keys(distances: NDArray[np.float64], given: NDArray) -> NDArray[np.float64]:
    """Return the returned distances, or those of float64 beyond the range of float32: equal ones tie."""
    keys = given.astype(np.float64)
    beyond = np.isfinite(distances) & (np.abs(distances) > np.finfo(_SINGLE).max)
    keys[beyond] = distances[beyond]
    return keys


def _by_position(found: Neighbors, k: int) -> Neighbors:
    order = np.lexsort((found.ids, found.distances), axis=1)[:, :k]
    return Neighbors(*(np.take_along_axis(values, order, axis=1) for values in found))


def _crosses(distances: NDArray, k: int) -> NDArray[np.bool_]:
    """Return whether the last row found ties with the k-th, so that more ties may follow."""
    return (distances[:, -1] == distances[:, k - 1]) & np.isfinite(distances[:, -1])
