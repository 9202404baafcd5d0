"""Flat: exact search over all rows, for every metric, dense or sparse.

Where bounds can prove most rows too far (dense rows under euclidean, manhattan, their kernels, and cosine through unit
vectors) the certified engine touches a few rows in ten thousand; elsewhere rows are scanned in blocks. Either way the
answer is that of brute force in float64 over the stored values.

Rows added later are scanned in blocks beside the rest, and a few removed rows are left out of the answers, until there
are so many that building again pays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.topk import merge
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.block_scan import RowSearch, Scan
from kway.search.codecs.stores import FULL, Store, StoredRows
from kway.search.distances import DISTANCES
from kway.search.gpu_dispatch import check_device, far_rows, search_over, tensors
from kway.search.index import Index, Recipe
from kway.search.metrics import Metric, pick_metric
from kway.search.power_scaling import Unit
from kway.search.results import Ids, Neighbors, empty_heaps
from kway.threads import at_most

TAIL_SHARE = 0.2  # of added rows at which building again pays (no benchmark row: adding is rare)
MOST_DEAD = 64  # removed rows that a search may find in vain before it is built again
BOUNDS_AFTER = 256  # queries that an index from a file scans: building its bounds again costs as much (T1b)


@dataclass(frozen=True)
class Flat(Recipe):
    """Exact search over all rows; `store=Int8()` scans bytes, `store=Bits(1)` bits, whose answers are approximate.

    device="cuda" searches dense rows, and codes, under euclidean, cosine and dot on a GPU, with the same answers;
    "auto" does so where there is one and the rows are many.
    """

    store: Store | None = None
    device: str = "cpu"

    name = "flat"
    distances = DISTANCES
    sparse = True

    @property
    def exact(self) -> bool:
        """Whether answers are those of brute force over the rows as they are kept: bits may lose a neighbour."""
        return self.store is None or self.store.exact

    @property
    def keeper(self) -> Store:
        """The store; that of full rows if none is given."""
        return self.store or FULL

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """Raise an error for sparse rows under a metric without products, and for codes that would lose equality."""
        super().check(metric, sparse)
        self.keeper.check(metric.distance, sparse)
        if self.device == "cuda":
            check_device(metric, sparse)

    def build_blocks(self, blocks: Any, metric: str | Metric = "euclidean", folder: str | Path | None = None) -> Index:
        """The live index over rows that come in blocks; with a store and `rerank=False` they are never all in memory.

        blocks: an array (n, d), perhaps a memory map (then full rows can be kept beside codes: `rerank=True`), a
        folder of .npy files or of parquet, or an iterable of arrays (m, d). Ids are the positions. With a `folder`,
        finished parts of codes are kept in it, and a build that was killed resumes after the last of them.
        """
        picked = pick_metric(metric)
        self.check(picked)
        scan = self.keeper.scan_blocks(blocks, picked, folder)
        if scan is None:
            return super().build_blocks(blocks, metric, folder)
        index = FlatIndex(self, picked, Ids.of(scan.n, None), scan.kept)
        index._choose()
        index.unit = Unit.again(0, np.dtype(np.float32), picked.distance, self._narrow)  # blocks are taken as they are
        return index

    def _far_rows(self, rows: Any, metric: Metric) -> Any:
        return None if self.device == "cpu" else far_rows(rows, metric, self.device)

    def _live(self, rows: Any, metric: Metric, ids: Ids) -> FlatIndex:
        keep = self.keeper.store_on_gpu if isinstance(rows, TensorRows) else self.keeper.keep
        index = FlatIndex(self, metric, ids, keep(rows, metric.distance))
        index._choose()
        return index

    def _revive(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> FlatIndex:
        kept = self.keeper.load(rows, arrays, metric.distance)
        return FlatIndex(self, metric, ids, kept, bounds_after=BOUNDS_AFTER)


class FlatIndex(Index):
    """A live flat index: a main search, and a scan of the rows added since."""

    recipe: Flat

    def __init__(self, recipe: Flat, metric: Metric, ids: Ids, kept: StoredRows, bounds_after: int = 0) -> None:
        super().__init__(recipe, metric, ids, kept.shape[1])
        self._scan = recipe.keeper.scan(kept, metric.distance)
        self._main: RowSearch = self._scan
        self._tail: Scan | None = None
        self._dead = np.empty(0, dtype=np.int64)  # removed positions of the main search, sorted
        self._stale = False
        self._bounds_after = bounds_after  # queries

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included."""
        return self._main.nbytes + (0 if self._tail is None else self._tail.nbytes)

    @property
    def rows(self) -> Any:
        """The rows (n_rows, d) in the order of their positions: an array, CSR, or Codes if only these are kept."""
        self._settle()
        return self.unit.given(self._scan.kept.best)

    def _choose(self) -> None:
        """Search the main rows on the device of the recipe, or by bounds if they pay, else scan them."""
        self._bounds_after, device = 0, self.recipe.device
        there, why = (None, "") if device == "cpu" else search_over(self._scan, self.metric, device)
        if there is not None:
            self._main, self.why_ = there, why
            return
        self._main = search = self._scan.with_bounds()
        self.why_ = f"{search.why()}; {why}" if why else search.why()

    def to(self, device: str) -> None:
        """Search on that device from now on: "cpu" | "cuda" | "auto"."""
        recipe = replace(self.recipe, device=device)
        recipe.check(self.metric, sp.issparse(self._scan.kept.full))
        self.recipe = recipe
        with at_most(self._n_jobs):
            self._settle()
            self._choose()

    def _tensors(self, queries: Any, k: int, probes: int | None) -> Neighbors | None:
        there = None if self._tail is not None or len(self._dead) else self._main
        return tensors(there, self, queries, k)

    def _asked(self, queries: Any, k: int) -> int:
        return super()._asked(queries, k) if self.recipe.keeper.settles_ties else min(k, self.n_rows)

    def _nearest(self, queries: Any, k: int, probes: int | None) -> Neighbors:
        if self._stale:
            self._settle()
        if self._bounds_after:
            self._count_queries(queries.shape[0])
        found = self._main.nearest(queries, min(k + len(self._dead), self._scan.n))
        self._touched = self._main.touched
        return found if self._tail is None and not len(self._dead) else self._joined(found, queries, k)

    def _joined(self, found: Neighbors, queries: Any, k: int) -> Neighbors:
        """The k nearest of those found by the main search, without removed rows, and of the tail."""
        heaps, (ids, distances) = empty_heaps(queries.shape[0], k), found
        merge(*heaps, distances, np.where(np.isin(ids, self._dead), -1, ids))
        if self._tail is not None:
            ids, distances = self._tail.nearest(queries, min(k, self._tail.n))
            merge(*heaps, distances, ids + self._scan.n)
            self._touched += self._tail.touched
        ids, distances = heaps.neighbors()
        return Neighbors(ids - np.searchsorted(self._dead, ids), distances)

    def _count_queries(self, n: int) -> None:
        """Build the bounds once more queries have come than it takes to pay for them; the file has the reason."""
        self._bounds_after = max(0, self._bounds_after - n)
        if not self._bounds_after:
            why = self.why_
            self._choose()
            self.why_ = why or self.why_

    def _append(self, rows: Any) -> None:
        if self._tail is None:
            self._tail = self.recipe.keeper.scan(self._scan.kept.like(rows), self.metric.distance)
        else:
            self._tail = self._tail.add(rows)
        self._stale |= self._tail.n > TAIL_SHARE * self._scan.n

    def _drop(self, positions: NDArray[np.int64]) -> None:
        alive = np.delete(np.arange(self._scan.n), self._dead)
        self._dead = np.union1d(self._dead, alive[positions[positions < len(alive)]])
        tail = positions[positions >= len(alive)] - len(alive)
        if len(tail) and self._tail is not None:
            self._tail = self._tail.remove(tail) if len(tail) < self._tail.n else None
        self._stale |= len(self._dead) > MOST_DEAD

    def _settle(self) -> None:
        """One main search again, of the rows that are left."""
        self._stale = False
        if not len(self._dead) and self._tail is None:
            return
        kept = self._scan.kept.drop(self._dead) if len(self._dead) else self._scan.kept
        if self._tail is not None:
            kept = kept.join(self._tail.kept)
        self._dead, self._tail = self._dead[:0], None
        self._scan = self.recipe.keeper.scan(kept, self.metric.distance)
        self._choose()

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        self._settle()
        return {}, self._scan.arrays()
