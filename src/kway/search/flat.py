"""Flat: exact search over all rows, for every metric, dense or sparse.

For dense rows under euclidean, manhattan, their kernels, and cosine, proven bounds (certified/) skip all but a few rows
in ten thousand. Other rows are scanned in blocks. Either way the result is that of brute force in float64 over the
stored values.

A GPU searches dense rows and codes under distances that are computed from products.

Added rows are scanned in blocks next to the main search, and removed rows are dropped from its results. If there are
too many of them, the next search builds the main search again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import CombinationError, ModelFileError
from kway.kernels.topk import merge
from kway.parameters import DEVICE, check_parameters
from kway.rows.gpu.device import MAX_NEIGHBORS, ChosenDevice, Device, is_tensor, names_gpu, resolve
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.block_scan import RowSearch, Scan
from kway.search.codecs.stores import STORE, Store, StoredRows
from kway.search.distances import DISTANCES
from kway.search.index import Index, Recipe
from kway.search.metrics import Metric
from kway.search.power_scaling import NARROW, max_abs
from kway.search.results import Ids, Neighbors, empty_heaps
from kway.threads import at_most
from kway.validation import plain_far
from kway.versions import writes

# The benchmarks of streams (S2), of a search with few rows (T1b), and of GPU search (G1) decide these numbers.
TAIL_SHARE = 0.2  # the main search is built again if the added rows exceed this share of its rows (S2)
MAX_DEAD = 64  # the main search is built again if it contains more removed rows than this (S2)
BOUNDS_AFTER = (
    256  # number of queries that an index from a file scans before it builds bounds, which take as long (T1b)
)
ENOUGH = 2**24  # number of values of all rows from which device="auto" uses a GPU (G1)
_FLOATS = ("torch.float32", "torch.float64")  # types of tensors that a GPU searches


@dataclass(frozen=True)
class Flat(Recipe):
    """Exact search over all rows, for every metric, dense or sparse.

    Parameters
    ----------
    store : None, Int8 or Bits, default=None
        How rows are stored: in full; Int8() scans bytes and stays exact; Bits(1) scans bits and is approximate.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        "cuda" searches dense rows and codes under "euclidean", "cosine" and "dot" on a GPU, with the same results;
        "auto" does so if there is a GPU and enough rows.

    Examples
    --------
    >>> Flat().build([[0.0], [1.0], [5.0]]).nearest([[0.9]], 2).ids
    array([[1, 0]])
    """

    store: Store | None = None
    device: str = "cpu"

    name = "flat"
    distances = DISTANCES
    sparse = True

    def __post_init__(self) -> None:
        check_parameters(self, store=STORE, device=DEVICE)

    @property
    def on_cpu(self) -> Flat:
        """The same recipe, searched on the CPU."""
        return replace(self, device="cpu")

    @property
    def exact(self) -> bool:
        """Whether results are those of brute force over the given rows; bits may miss a neighbor."""
        return self.store is None or self.store.exact

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """Raise CombinationError for rows or metrics that the store or the GPU cannot search.

        Parameters
        ----------
        metric : Metric
            The metric of the search.
        sparse : bool, default=False
            Whether the rows are sparse.
        """
        super().check(metric, sparse)
        self.keeper.check(metric.distance, sparse)
        if names_gpu(self.device) and (sparse or not metric.distance.by_products):
            problem = "sparse rows" if sparse else f"the metric {metric.name!r}"
            raise CombinationError(
                f"Flat(device='cuda') cannot search {problem}; it searches dense rows or their codes under "
                "'euclidean', 'cosine' and 'dot' (and the kernels on them). Use device='cpu' for others"
            )

    def _index_of_codes(self, blocks: Any, metric: Metric, folder: str | Path | None) -> Index | None:
        scan = self.keeper.scan_blocks(blocks, metric, folder)
        if scan is None:
            return None
        index = FlatIndex(self, metric, Ids.of(scan.n, None), scan.kept)
        index._choose()
        return index

    def _rows_on_gpu(self, rows: Any, metric: Metric) -> TensorRows | None:
        """Return the rows if a GPU can search them without scaling; None if the CPU has to read them."""
        gpu = gpu_of_tensor(self.device, rows)
        if gpu is None or not metric.distance.by_products or not metric.is_plain_distance:
            return None
        tensor_rows, limit = plain_far(rows, gpu), NARROW.limit
        if tensor_rows is None:
            return None
        peaks = tensor_rows.row_peaks()
        needs_scaling = (peaks >= limit) | ((peaks > 0) & (peaks <= 1 / limit))
        return None if bool(needs_scaling.any()) else tensor_rows

    def _make_index(self, rows: Any, metric: Metric, ids: Ids) -> FlatIndex:
        keep = self.keeper.store_on_gpu if isinstance(rows, TensorRows) else self.keeper.keep
        index = FlatIndex(self, metric, ids, keep(rows, metric.distance))
        index._choose()
        return index

    def _restore_index(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> FlatIndex:
        kept = self.keeper.load(rows, arrays, metric.distance)
        return FlatIndex(self, metric, ids, kept, bounds_after=BOUNDS_AFTER)


class FlatIndex(Index):
    """A flat index: the main search, and a scan of the rows that were added to it since it was built."""

    recipe: Flat

    def __init__(self, recipe: Flat, metric: Metric, ids: Ids, kept: StoredRows, bounds_after: int = 0) -> None:
        super().__init__(recipe, metric, ids, kept.shape[1])
        self._scan = recipe.keeper.scan(kept, metric.distance)
        self._main: RowSearch = self._scan
        self._tail: Scan | None = None
        self._dead = np.empty(0, dtype=np.int64)  # removed positions of the main search, sorted
        self._bounds_after = bounds_after  # number of further queries before bounds are built; 0: they were considered

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including rows."""
        return self._main.nbytes + (0 if self._tail is None else self._tail.nbytes)

    @property
    def rows(self) -> Any:
        """Rows (n_rows, d) in the order of their positions: an array, CSR, or Codes if only codes are stored."""
        index = self._updated(self._has_changes)
        return index.unit.given(index._scan.kept.best)

    @property
    def _has_changes(self) -> bool:
        return self._tail is not None or len(self._dead) > 0

    def _choose(self) -> None:
        """Choose the main search: on a GPU, with bounds if they save time, or a scan of all rows."""
        self._bounds_after, scan, device = 0, self._scan, self.recipe.device
        chosen = ChosenDevice(None, "")
        if device != "cpu" and (scan.kept.sparse or not self.metric.distance.by_products or not scan.n):
            chosen = ChosenDevice(None, "on the CPU: a GPU searches dense rows under euclidean, cosine and dot")
        elif device != "cpu":
            chosen = resolve(device, pays=scan.n * scan.d >= ENOUGH)
        if chosen.device is not None:
            self._main = on_gpu = scan.on_device(chosen.device)
            self.why_ = f"{on_gpu.why} ({chosen.why})"
            return
        self._main = search = scan.with_bounds()
        self.why_ = f"{search.why()}; {chosen.why}" if chosen.why else search.why()

    @writes
    def to(self, device: str) -> None:
        """Move the search to a device.

        Parameters
        ----------
        device : {"cpu", "cuda", "cuda:N", "auto"}
            The device of later searches.
        """
        recipe = replace(self.recipe, device=device)
        recipe.check(self.metric, sp.issparse(self._scan.kept.full))
        self.recipe = recipe
        with at_most(self._n_jobs):
            self._rebuild()
            self._choose()

    def _search_tensors(self, queries: Any, k: int, probes: int | None) -> Neighbors | None:
        search: Any = None if self._has_changes else self._main
        if not getattr(search, "answers_tensors", False) or not _gpu_accepts(self, queries, k):
            return None
        device = search.device
        with device.room(f"a search of {len(queries):,} queries"):
            found = search.answer(device.put(queries), k, self.unit.span.limit)
            if found is None:
                return None
            ids = found.ids if self.plain_ids else device.put(self.ids)[found.ids]
            return Neighbors(ids.to(queries.device), found.distances.to(queries.device, queries.dtype))

    def _nearest(self, queries: Any, k: int, probes: int | None) -> Neighbors:
        if self._bounds_after:
            self._count_queries(queries.shape[0])
        neighbors = self._main.nearest(queries, min(k + len(self._dead), self._scan.n))
        self._touched = self._main.touched
        return self._merge_tail(neighbors, queries, k) if self._has_changes else neighbors

    def _merge_tail(self, neighbors: Neighbors, queries: Any, k: int) -> Neighbors:
        """Merge the results of the main search, without removed rows, and of the tail."""
        heaps, (ids, distances) = empty_heaps(queries.shape[0], k), neighbors
        merge(*heaps, distances, np.where(np.isin(ids, self._dead), -1, ids))
        if self._tail is not None:
            ids, distances = self._tail.nearest(queries, min(k, self._tail.n))
            merge(*heaps, distances, ids + self._scan.n)
            self._touched += self._tail.touched
        ids, distances = heaps.neighbors()
        return Neighbors(ids - np.searchsorted(self._dead, ids), distances)  # positions without the removed rows

    def _count_queries(self, n: int) -> None:
        """Count n queries, and build the bounds after BOUNDS_AFTER queries; `why_` stays as in the file."""
        self._bounds_after = max(0, self._bounds_after - n)
        if not self._bounds_after:
            rows = self._scan.kept.full
            if rows is not None and not np.isfinite(max_abs(rows)):
                raise ModelFileError("the rows of the model file contain NaN or infinity; save the model again")
            why = self.why_
            self._choose()
            self.why_ = why or self.why_

    def _append(self, rows: Any) -> None:
        if self._tail is None:
            self._tail = self.recipe.keeper.scan(self._scan.kept.like(rows), self.metric.distance)
        else:
            self._tail = self._tail.add(rows)
        self._needs_rebuild |= self._tail.n > TAIL_SHARE * self._scan.n

    def _drop(self, positions: NDArray[np.int64]) -> None:
        alive = np.delete(np.arange(self._scan.n), self._dead)
        self._dead = np.union1d(self._dead, alive[positions[positions < len(alive)]])
        tail = positions[positions >= len(alive)] - len(alive)
        if len(tail) and self._tail is not None:
            self._tail = self._tail.remove(tail) if len(tail) < self._tail.n else None
        self._needs_rebuild |= len(self._dead) > MAX_DEAD

    def _rebuild(self) -> None:
        """Build the main search again over the rows that were not removed and those that were added."""
        if not self._has_changes:
            return
        kept = self._scan.kept.drop(self._dead) if len(self._dead) else self._scan.kept
        if self._tail is not None:
            kept = kept.join(self._tail.kept)
        self._dead, self._tail = self._dead[:0], None
        self._scan = self.recipe.keeper.scan(kept, self.metric.distance)
        self._choose()

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {}, self._scan.arrays()


# ---- searches on a GPU (rows/gpu/flat_search.py)


def gpu_of_tensor(device: str, rows: Any) -> Device | None:
    """Return the GPU for rows that are a tensor; None if the CPU reads them."""
    if device == "cpu" or not (is_tensor(rows) or isinstance(getattr(rows, "rows", None), TensorRows)):
        return None
    shape = rows.shape if is_tensor(rows) else rows.rows.shape
    return resolve(device, pays=len(shape) == 2 and shape[0] * shape[1] >= ENOUGH).device


def gpu_can_search(index: Index, queries: Any, k: int) -> bool:
    """Return whether a GPU can search these queries without converting them; the CPU converts or refuses others."""
    from kway.rows.gpu.exact_search import all_within

    return _gpu_accepts(index, queries, k) and all_within(queries, index.unit.span.limit)


def _gpu_accepts(index: Index, queries: Any, k: int) -> bool:
    """Return whether a GPU can search queries of this type and shape; their values may still be out of range."""
    if str(queries.dtype) not in _FLOATS or queries.ndim != 2 or not isinstance(k, int) or not 0 < k < index.n_rows:
        return False
    if not (index.unit.plain and index.metric.is_plain_distance and k < MAX_NEIGHBORS):
        return False
    return queries.shape[1] == index.n_features and len(queries) > 0
