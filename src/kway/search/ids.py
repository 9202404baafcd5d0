"""Ids of rows: the search engine knows positions 0..n-1, callers know ids (int64, any values, no two the same)."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError


class Ids:
    """ids (n,) of the rows at positions 0..n-1."""

    def __init__(self, ids: NDArray[np.int64] | range) -> None:
        self._ids = ids  # a range costs no memory
        self._order: NDArray[np.int64] | None = None  # made on the first look-up

    @staticmethod
    def of(n: int, ids: ArrayLike | None) -> Ids:
        """The given ids, checked, or 0..n-1."""
        return Ids(range(n) if ids is None else _checked(ids, n))

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def plain(self) -> bool:
        """Whether ids are the positions themselves, so that nothing need be looked up or kept."""
        return isinstance(self._ids, range)

    @property
    def ids(self) -> NDArray[np.int64]:
        """(n,)."""
        return np.arange(len(self._ids)) if isinstance(self._ids, range) else self._ids

    def names(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids of positions; -1 stays -1."""
        return positions if self.plain else np.where(positions >= 0, self.ids[np.maximum(positions, 0)], -1)

    def add(self, n: int, ids: ArrayLike | None) -> None:
        """Ids of n more rows; they go on from the largest unless given."""
        if ids is None and self.plain:
            self._ids = range(len(self) + n)
            return
        if ids is None:
            first = int(self.ids.max()) + 1 if len(self) else 0
            more = np.arange(first, first + n)
        else:
            more = _checked(ids, n)
            known = more[self.find(more) >= 0]
            if len(known):
                raise InputError(f"ids {_few(known)} are in the index already; remove them first or give new ids")
        self._ids = np.concatenate([self.ids, more])
        self._order = None

    def asked(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Positions of the ids that a caller names, in order, each once; those that are not here are left out."""
        named = np.atleast_1d(np.asarray(ids))
        if named.dtype.kind not in "iu" and named.size:
            raise InputError(f"ids must be whole numbers, got dtype {named.dtype}")
        found = self.find(np.unique(named.astype(np.int64)))
        return np.sort(found[found >= 0])

    def find(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Positions of ids, -1 where there is none."""
        if not len(self):
            return np.full(len(ids), -1)
        if self.plain:
            return np.where((ids >= 0) & (ids < len(self)), ids, -1)
        if self._order is None:
            self._order = np.argsort(self.ids, kind="stable")
        at = self._order[np.minimum(np.searchsorted(self.ids, ids, sorter=self._order), len(self) - 1)]
        return np.where(self.ids[at] == ids, at, -1)

    def drop(self, positions: NDArray[np.int64]) -> None:
        """Forget the ids at positions; the later ones move up."""
        self._ids = np.delete(self.ids, positions)
        self._order = None


def _checked(ids: ArrayLike, n: int) -> NDArray[np.int64]:
    array = np.asarray(ids)
    if array.dtype.kind not in "iu" or array.shape != (n,):
        raise InputError(
            f"ids must be whole numbers of shape ({n},), one a row, got dtype {array.dtype} and shape {array.shape}"
        )
    array = array.astype(np.int64)
    if (array < 0).any():
        raise InputError(f"ids must not be negative (-1 means not found), got {int(array.min())}")
    values, counts = np.unique(array, return_counts=True)
    if (counts > 1).any():
        raise InputError(f"ids {_few(values[counts > 1])} occur more than once; give every row its own")
    return array


def _few(ids: NDArray[np.int64]) -> str:
    return ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")
