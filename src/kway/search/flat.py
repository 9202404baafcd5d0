"""Flat: exact search over all rows, for every metric, dense or sparse.

Where bounds can prove most rows too far (dense rows under euclidean, manhattan, their kernels, and cosine through unit
vectors) the certified engine touches a few rows in ten thousand; elsewhere rows are scanned in blocks. Either way the
answer is that of brute force: the k smallest by (float64 distance of the stored values, then lower position).

Rows added later are scanned in blocks beside the rest, and a few removed rows are left out of the answers, until there
are so many that building again pays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.topk import merge
from kway.errors import CombinationError
from kway.search.blocks import Heaps, Segment, empty_heaps, segment
from kway.search.certified.angles import Angles
from kway.search.ids import Ids
from kway.search.index import Neighbors
from kway.search.live import LiveIndex, Recipe, joined, row_arrays, without
from kway.search.metrics import Metric
from kway.search.stores.int8 import Coded, Int8, coded, coded_from

TAIL = 0.2  # share of added rows at which building again pays
MOST_DEAD = 64  # removed rows that a search may ask for in vain


@dataclass(frozen=True)
class Flat(Recipe):
    """Exact search over all rows; `store=Int8()` scans bytes."""

    store: Int8 | None = None

    name = "flat"
    bases = ("euclidean", "manhattan", "cosine", "dot", "hamming", "haversine")
    sparse = True

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """Refuse what cannot be searched: sparse rows under a metric that is no product, codes that lose equality."""
        super().check(metric, sparse)
        if self.store is not None and (sparse or metric.base in ("hamming", "haversine")):
            what = "sparse rows" if sparse else f"the metric {metric.name!r}"
            raise CombinationError(f"Int8() cannot keep {what}: coded values are rounded; use store=None")

    def _live(self, rows: Any, metric: Metric, ids: Ids) -> FlatIndex:
        return FlatIndex(self, metric, ids, rows, None)

    def _revive(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> FlatIndex:
        return FlatIndex(self, metric, ids, rows, coded_from(arrays) if "codes" in arrays else None)


class FlatIndex(LiveIndex):
    """A live flat index: one main segment, perhaps certified, and a tail of rows added since."""

    recipe: Flat

    def __init__(self, recipe: Flat, metric: Metric, ids: Ids, rows: Any, codes: Coded | None) -> None:
        kept: Any = codes if rows is None else rows
        super().__init__(recipe, metric, ids, kept.shape[1])
        self._main = segment(rows, metric.base, recipe.store, codes)
        self._tail: Segment | None = None
        self._dead = np.empty(0, dtype=np.int64)  # removed positions of the main segment, sorted
        self._stale = False
        self._certify()

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included."""
        tail = 0 if self._tail is None else self._tail.nbytes
        return self._main.nbytes + tail + (0 if self._certified is None else int(self._certified.nbytes))

    @property
    def rows(self) -> Any:
        """The rows (n_rows, d) in the order of their positions: an array, CSR, or Coded where only codes are kept."""
        self._settle()
        return self._main.rows if self._main.full is None else self._main.full

    def _certify(self) -> None:
        self._certified, self.why_ = _certified(self._main, self.metric)

    def _nearest(self, queries: Any, k: int, n_jobs: int | None, probes: int | None) -> Neighbors:
        if self._stale:
            self._settle()
        heaps = empty_heaps(queries.shape[0], k)
        measured = self._search_main(queries, k, heaps, n_jobs)
        if self._tail is not None:
            measured += self._tail.scan(queries, heaps, self._main.rows.shape[0], n_jobs)
        self._touched = measured / queries.shape[0]
        found = heaps.neighbors()
        if not len(self._dead):
            return found
        return Neighbors(found.ids - np.searchsorted(self._dead, found.ids), found.distances)

    def _search_main(self, queries: Any, k: int, heaps: Heaps, n_jobs: int | None) -> float:
        """Offer the rows of the main segment to the heaps; rows measured in full."""
        if self._certified is None or not self._certified.pays(k):
            if len(self._dead):
                self._settle()
            return self._main.scan(queries, heaps, 0, n_jobs)
        dense = queries.toarray() if sp.issparse(queries) else queries
        wanted = min(k + len(self._dead), self._main.rows.shape[0])
        ids, distances = self._certified.nearest(dense, wanted, n_jobs)
        if len(self._dead):
            ids = np.where(np.isin(ids, self._dead), -1, ids)
        merge(*heaps, distances, ids)
        return float(self._certified.touched) * len(dense)

    def _append(self, rows: Any) -> None:
        if not sp.issparse(rows) and sp.issparse(self._main.rows):
            rows = sp.csr_matrix(rows)
        elif sp.issparse(rows) and not sp.issparse(self._main.rows):
            rows = rows.toarray()
        kept = _kept(self._main)
        if isinstance(kept, Coded):
            rows = coded(rows, kept.centre)
        self._tail = self._segment(rows if self._tail is None else _join(_kept(self._tail), rows))
        self._stale |= self._tail.rows.shape[0] > TAIL * self._main.rows.shape[0]

    def _drop(self, positions: NDArray[np.int64]) -> None:
        alive = np.delete(np.arange(self._main.rows.shape[0]), self._dead)
        main = alive[positions[positions < len(alive)]]
        tail = positions[positions >= len(alive)] - len(alive)
        self._dead = np.union1d(self._dead, main)
        if len(tail) and self._tail is not None:
            left = _kept(self._tail)
            left = left.take(np.delete(np.arange(len(left)), tail)) if isinstance(left, Coded) else without(left, tail)
            self._tail = self._segment(left) if left.shape[0] else None
        if self._certified is None or len(self._dead) > MOST_DEAD:
            self._stale = True

    def _settle(self) -> None:
        """One main segment again, of the rows that are left."""
        self._stale = False
        if not len(self._dead) and self._tail is None:
            return
        rows = _kept(self._main)
        if len(self._dead):
            alive = np.delete(np.arange(rows.shape[0]), self._dead)
            rows = rows.take(alive) if isinstance(rows, Coded) else without(rows, self._dead)
        if self._tail is not None:
            rows = _join(rows, _kept(self._tail))
        self._dead, self._tail = self._dead[:0], None
        self._main = self._segment(rows)
        self._certify()

    def _segment(self, rows: Any) -> Segment:
        if isinstance(rows, Coded):
            return segment(None, self.metric.base, self.recipe.store, rows)
        return segment(rows, self.metric.base, self.recipe.store)

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        self._settle()
        main = self._main
        arrays = main.rows.arrays() if isinstance(main.rows, Coded) else row_arrays(main.rows)
        return {}, arrays | ({} if main.full is None else {"rows": main.full})


def _kept(part: Segment) -> Any:
    return part.rows if part.full is None else part.full


def _join(rows: Any, more: Any) -> Any:
    return rows.append(more) if isinstance(rows, Coded) else joined(rows, more)


def _certified(main: Segment, metric: Metric) -> tuple[Any, str]:
    """The certified engine over a segment, where it pays, and why this way was chosen."""
    if isinstance(main.rows, Coded):
        exact = (
            "exact: codes are scanned, full rows measured" if main.full is not None else "approximate: only codes kept"
        )
        return None, f"flat over int8 codes, {exact}"
    if sp.issparse(main.rows) or not len(main.rows) or metric.base not in ("euclidean", "manhattan", "cosine"):
        return None, f"flat in blocks: no bound spares rows under {metric.name!r} of {_kind(main.rows)} rows"
    from kway.search.certified import certify

    found = Angles.over(main, certify) if metric.base == "cosine" else certify(main.rows, metric.base)
    return found, "flat in blocks: bounds would not pay" if found is None else str(found.why)


def _kind(rows: Any) -> str:
    return "sparse" if sp.issparse(rows) else "dense"
