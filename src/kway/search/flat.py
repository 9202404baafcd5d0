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
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from kway.compute.kernels.topk import merge
from kway.compute.threads import at_most
from kway.errors import CombinationError
from kway.search.blocks import BlockScan, block_scan
from kway.search.device import on_device
from kway.search.device.far_kept import far_kept
from kway.search.heaps import Heaps, empty_heaps
from kway.search.ids import Ids
from kway.search.index import Neighbors
from kway.search.live import LiveIndex, Recipe
from kway.search.spaces.distances import COSINE, DISTANCES, EUCLIDEAN, MANHATTAN
from kway.search.spaces.metrics import Metric, pick_metric
from kway.search.spaces.units import Unit
from kway.search.stores.base import Codes, Store
from kway.search.stores.bits import BitRows, Bits
from kway.search.stores.int8 import Int8
from kway.search.stores.kept import KeptRows

if TYPE_CHECKING:
    from kway.search.codes.bit_scan import BitScan

_TAIL = 0.2  # share of added rows at which building again pays
BOUNDED = (EUCLIDEAN, MANHATTAN, COSINE)  # distances whose bounds may spare rows
MainScan: TypeAlias = "BlockScan | BitScan"
MOST_DEAD = 64  # removed rows that a search may ask for in vain
FEW_ASKED = 256  # queries that an index from a file scans in blocks: building its bounds again costs as much and more


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

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """Refuse what cannot be searched: sparse rows under a metric that is no product, codes that lose equality."""
        super().check(metric, sparse)
        if self.store is not None:
            self.store.check(metric.distance, sparse)
        if self.device == "cuda":
            on_device.check_device(metric, sparse)

    def build(
        self,
        rows: Any,
        metric: str | Metric = "euclidean",
        ids: ArrayLike | None = None,
        n_jobs: int | None = None,
    ) -> FlatIndex:
        """The live index over rows (n, d), n >= 1; of a tensor, searched on a device, rows are copied there alone."""
        return cast(FlatIndex, super().build(rows, metric, ids, n_jobs))

    def _built(self, rows: Any, picked: Metric, ids: ArrayLike | None, n_jobs: int | None) -> LiveIndex:
        far = on_device.far_rows(rows, picked, self.device)
        if far is None:
            return super()._built(rows, picked, ids, n_jobs)
        kept = far_kept(far, self.store, picked.distance)
        index = FlatIndex(self, picked, Ids.of(len(far), ids), kept)
        index.unit = Unit.again(0, far.dtype, picked.distance, self._narrow)
        return index

    def build_blocks(
        self, blocks: Any, metric: str | Metric = "euclidean", folder: str | Path | None = None
    ) -> FlatIndex:
        """The live index over rows that come in blocks; with a store and `rerank=False` they are never all in memory.

        blocks: an array (n, d), perhaps a memory map (with it full rows can be kept beside codes: `rerank=True`), a
        folder of .npy files or of parquet, or an iterable of arrays (m, d). Ids are the positions. With a `folder`,
        finished parts of codes are kept in it, and a build that was killed goes on behind the last of them.
        """
        from kway.search.codes.streams import byte_blocks, code_blocks

        store, picked = self.store, pick_metric(metric)
        if isinstance(store, Int8) and not store.rerank and folder is None:
            self.check(picked)
            return self._of_codes(None, byte_blocks(blocks, store, picked), picked)
        if not isinstance(store, Bits):
            return cast(FlatIndex, super().build_blocks(blocks, metric, folder))
        self.check(picked)
        mapped = blocks if isinstance(blocks, np.ndarray) and blocks.dtype in (np.float32, np.float64) else None
        if store.rerank and mapped is None:
            raise CombinationError(
                f"{self} cannot be built of blocks, which are let go of; use store=Bits(1, rerank=False), or give the "
                "rows as one array of floats (a memory map), or build(rows)"
            )
        return self._of_codes(mapped if store.rerank else None, code_blocks(blocks, store, picked, folder), picked)

    def _of_codes(self, full: NDArray | None, codes: Codes, metric: Metric) -> FlatIndex:
        index = FlatIndex(self, metric, Ids.of(len(codes), None), KeptRows(full, codes))
        index.unit = Unit.again(0, np.dtype(np.float32), metric.distance, self._narrow)  # a stream is taken as it comes
        return index

    def _live(self, rows: Any, metric: Metric, ids: Ids, n_jobs: int | None) -> FlatIndex:
        return FlatIndex(self, metric, ids, KeptRows.of(rows, self.store, metric.distance))

    def _revive(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> FlatIndex:
        kept = KeptRows.from_arrays(rows, self.store, metric.distance, arrays)
        return FlatIndex(self, metric, ids, kept, bounds_after=FEW_ASKED)


class FlatIndex(on_device.DeviceIndex):
    """A live flat index: a main scan, perhaps certified (after some queries), and a tail of rows added since."""

    recipe: Flat

    def __init__(self, recipe: Flat, metric: Metric, ids: Ids, kept: KeptRows, bounds_after: int = 0) -> None:
        super().__init__(recipe, metric, ids, kept.shape[1])
        self._main = self._scan_of(kept)
        self._tail: MainScan | None = None
        self._dead = np.empty(0, dtype=np.int64)  # removed positions of the main scan, sorted
        self._stale = False
        self._certified: Any = None
        self._bounds_after = bounds_after  # queries
        if not bounds_after:
            self._certify()

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included."""
        tail = 0 if self._tail is None else self._tail.nbytes
        return self._main.nbytes + tail + (0 if self._certified is None else int(self._certified.nbytes))

    @property
    def rows(self) -> Any:
        """The rows (n_rows, d) in the order of their positions: an array, CSR, or Codes where only these are kept."""
        self._settle()
        return self.unit.given(self._main.kept.best)

    def _scan_of(self, kept: KeptRows) -> MainScan:
        store, distance = self.recipe.store, self.metric.distance
        if not isinstance(store, Bits):
            return block_scan(kept, distance)
        from kway.search.codes.bit_scan import bit_scan  # and with it numba

        return bit_scan(kept, distance, store.z)

    def _certify(self) -> None:
        self._bounds_after = 0
        chosen = on_device.search_over(self._main, self.metric, self.recipe.device)
        if chosen.search is None:
            with at_most(self._n_jobs):
                self._certified, why = _certified(self._main, self.metric, self._n_jobs)
            self.why_ = f"{why}; {chosen.why}" if chosen.why else why
        else:
            self._certified, self.why_ = chosen

    def to(self, device: str) -> None:
        """Search on that device from now on: "cpu" | "cuda" | "auto"."""
        recipe = replace(self.recipe, device=device)
        recipe.check(self.metric, sp.issparse(self._main.kept.full))
        self.recipe = recipe
        self._settle()
        self._certify()

    def _tensors(self, queries: Any, k: int, probes: int | None) -> Neighbors | None:
        there = None if self._tail is not None or len(self._dead) else self._certified
        return on_device.tensors(there, self, queries, k)

    def _nearest(self, queries: Any, k: int, n_jobs: int | None, probes: int | None) -> Neighbors:
        if self._stale:
            self._settle()
        heaps = empty_heaps(queries.shape[0], k)
        measured = self._search_main(queries, k, heaps, n_jobs)
        if self._tail is not None:
            measured += self._tail.scan(queries, heaps, len(self._main.kept), n_jobs)
        self._touched = measured / queries.shape[0]
        found = heaps.neighbors()
        if not len(self._dead):
            return found
        return Neighbors(found.ids - np.searchsorted(self._dead, found.ids), found.distances)

    def _asked(self, queries: Any, k: int) -> int:
        """No more than k of bits, which settle no ties: one more may lie far beyond, and cost most of the search."""
        return min(k, self.n_rows) if isinstance(self.recipe.store, Bits) else super()._asked(queries, k)

    def _search_main(self, queries: Any, k: int, heaps: Heaps, n_jobs: int | None) -> float:
        """Offer the rows of the main scan to the heaps; rows measured in full."""
        if self._bounds_after:
            self._count_asked(queries.shape[0])
        if self._certified is None or not self._certified.pays(k):
            if len(self._dead):
                self._settle()
            return self._main.scan(queries, heaps, 0, n_jobs)
        dense = queries.toarray() if sp.issparse(queries) else queries
        wanted = min(k + len(self._dead), len(self._main.kept))
        ids, distances = self._certified.nearest(dense, wanted, n_jobs)
        if len(self._dead):
            ids = np.where(np.isin(ids, self._dead), -1, ids)
        merge(*heaps, distances, ids)
        return float(self._certified.touched) * len(dense)

    def _count_asked(self, n: int) -> None:
        """Build the bounds once more queries have come than it takes to pay for them; the file has said why."""
        self._bounds_after = max(0, self._bounds_after - n)
        if not self._bounds_after:
            said = self.why_
            self._certify()
            self.why_ = said or self.why_

    def _append(self, rows: Any) -> None:
        more = self._main.kept.like(rows)
        kept = more if self._tail is None else self._tail.kept.join(more)
        self._tail = self._scan_of(kept)
        self._stale |= len(kept) > _TAIL * len(self._main.kept)

    def _drop(self, positions: NDArray[np.int64]) -> None:
        alive = np.delete(np.arange(len(self._main.kept)), self._dead)
        main = alive[positions[positions < len(alive)]]
        tail = positions[positions >= len(alive)] - len(alive)
        self._dead = np.union1d(self._dead, main)
        if len(tail) and self._tail is not None:
            left = self._tail.kept.drop(tail)
            self._tail = self._scan_of(left) if len(left) else None
        if self._certified is None or len(self._dead) > MOST_DEAD:
            self._stale = True

    def _settle(self) -> None:
        """One main scan again, of the rows that are left."""
        self._stale = False
        if not len(self._dead) and self._tail is None:
            return
        kept = self._main.kept
        if len(self._dead):
            kept = kept.drop(self._dead)
        if self._tail is not None:
            kept = kept.join(self._tail.kept)
        self._dead, self._tail = self._dead[:0], None
        self._main = self._scan_of(kept)
        self._certify()

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        self._settle()
        return {}, self._main.kept.arrays()


def _certified(main: MainScan, metric: Metric, n_jobs: int | None) -> tuple[Any, str]:
    """The certified engine over the scanned rows, where it pays, and why this way was chosen."""
    kept = main.kept
    if isinstance(kept.codes, BitRows):
        lost = "full rows measured" if kept.full is not None else "only codes kept"
        return None, f"flat over codes of {kept.codes.frame.bits} bits a column, approximate: {lost}"
    if kept.codes is not None:
        exact = "approximate: only codes kept" if kept.full is None else "exact: codes are scanned, full rows measured"
        return None, f"flat over int8 codes, {exact}"
    if sp.issparse(kept.full) or not len(kept) or metric.distance not in BOUNDED:
        kind = "sparse" if sp.issparse(kept.full) else "dense"
        return None, f"flat in blocks: no bound spares rows under {metric.name!r} of {kind} rows"
    from kway.search.certified import certify
    from kway.search.certified.angles import Angles

    found = (
        Angles.over(cast("BlockScan", main), certify, n_jobs)
        if metric.distance.by_angle
        else certify(kept.full, metric.distance, n_jobs)
    )
    return found, "flat in blocks: bounds would not pay" if found is None else str(found.why)
