"""Indexes on a GPU: which searches a GPU can run, which rows stay on it, and results as tensors.

The searches are those of rows/gpu: flat_search.py and ivf_search.py. FarTable does for rows that are a tensor what
CellTable and BitCells do for rows in memory. It has the rows in the order of their cells, in full or as codes alone. If
it has full rows, the GPU searches these, and codes are computed only if the CPU reads the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import CombinationError
from kway.rows.gpu.device import MAX_NEIGHBORS, ChosenDevice, Device, Tensor, is_tensor, resolve
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.bit_cells import BitCells
from kway.search.block_scan import Scan, measured_rows
from kway.search.cells import CellTable, Ground, Projection
from kway.search.codecs.bits import CenteredBits
from kway.search.codecs.gpu_codes import GpuBitRows, GpuByteRows
from kway.search.codecs.stores import SelectedRows, Store, StoredRows
from kway.search.distances import Distance
from kway.search.index import Index
from kway.search.metrics import Metric
from kway.search.power_scaling import NARROW
from kway.search.results import Neighbors
from kway.validation import plain_far

_FLOATS = ("torch.float32", "torch.float64")  # types of tensors that a GPU searches
ENOUGH = 2**24  # values of all rows from which on device="auto" takes a GPU (G1)


class ChosenSearch(NamedTuple):
    """A search on a GPU, or None if the CPU searches, and one sentence that says why."""

    search: Any
    why: str


def check_device(metric: Metric, sparse: bool) -> None:
    """Raise CombinationError for a metric that a GPU does not search."""
    what = "sparse rows" if sparse else f"the metric {metric.name!r}" if not metric.distance.by_products else ""
    if what:
        raise CombinationError(
            f"Flat(device='cuda') cannot search {what}; it searches dense rows, as they are or as codes, under "
            "'euclidean', 'cosine' and 'dot' (and the kernels on them), else use device='cpu'"
        )


def far_rows(rows: Any, metric: Metric, device: str) -> TensorRows | None:
    """Return the rows if a GPU can search them without scaling; None if the CPU has to read them."""
    chosen = staying(device, rows)
    if chosen is None or not metric.distance.by_products or not metric.bare:
        return None
    far, limit = plain_far(rows, chosen), 2.0 ** min(NARROW.most, -NARROW.least)
    if far is None:
        return None
    peaks = far.row_peaks()
    wild = (peaks >= limit) | ((peaks > 0) & (peaks <= 1 / limit))  # rows that have to be scaled
    return None if bool(wild.any()) else far


def staying(device: str, rows: Any) -> Device | None:
    """Return the GPU for rows that are a tensor; None if the CPU reads them."""
    if device == "cpu" or not (is_tensor(rows) or isinstance(getattr(rows, "rows", None), TensorRows)):
        return None
    shape = rows.shape if is_tensor(rows) else rows.rows.shape
    return resolve(device, pays=len(shape) == 2 and shape[0] * shape[1] >= ENOUGH).device


def search_over(scan: Scan, metric: Metric, device: str) -> ChosenSearch:
    """Return the search of all rows on `device`, if a GPU can run it."""
    if scan.kept.sparse or not metric.distance.by_products or not scan.n:
        return ChosenSearch(None, "on the CPU: a GPU searches dense rows under euclidean, cosine and dot")
    chosen = resolve(device, pays=scan.n * scan.d >= ENOUGH)
    if chosen.device is None:
        return ChosenSearch(None, chosen.why)
    search = scan.on_device(chosen.device)
    return ChosenSearch(search, f"{search.why} ({chosen.why})")


def tensors(search: Any, index: Index, queries: Any, k: int) -> Neighbors | None:
    """Return the k nearest of queries that are a tensor, as tensors; None if the GPU cannot search them."""
    if not getattr(search, "answers_tensors", False) or not holds(index, queries, k):
        return None
    return named_tensors(search.device, index, queries, lambda asked: search.answer(asked, k))


def named_tensors(device: Device, index: Index, queries: Any, answer: Callable[[Any], Any]) -> Neighbors:
    """Return the neighbors that `answer` finds on the GPU, with the ids of the caller, on the device of the queries."""
    with device.room(f"a search of {len(queries):,} queries"):
        found = answer(device.put(queries))
        ids = found.ids if index.plain_ids else device.put(index.ids)[found.ids]
        return Neighbors(ids.to(queries.device), found.distances.to(queries.device, queries.dtype))


def holds(index: Index, queries: Any, k: int) -> bool:
    """Return whether a GPU can search these queries without converting them; the CPU converts or refuses others."""
    if str(queries.dtype) not in _FLOATS or queries.ndim != 2 or not isinstance(k, int) or not 0 < k < index.n_rows:
        return False
    if not (index.unit.plain and index.metric.bare and k < MAX_NEIGHBORS):
        return False
    if queries.shape[1] != index.n_features or not len(queries):
        return False
    peaks = queries.abs().amax(1)
    limit = 2.0 ** min(index.unit.span.most, -index.unit.span.least)
    return bool(((peaks == 0) | ((peaks > 1 / limit) & (peaks < limit))).all())  # false for NaN and infinity


def check_cells(metric: Metric) -> None:
    """Raise CombinationError for a metric that a GPU does not search."""
    if not metric.distance.by_products:
        raise CombinationError(
            f"Landmarks(device='cuda') cannot search the metric {metric.name!r}; it searches rows under 'euclidean', "
            "'cosine' and 'dot' (and the kernels on them); use one of these, or device='cpu'"
        )


def choose_for_cells(device: str, metric: Metric, store: Store, n_values: int) -> ChosenDevice:
    """Return the device for landmark cells over so many values of rows."""
    if device == "cpu":
        return ChosenDevice(None, "")
    if not metric.distance.by_products:
        return ChosenDevice(None, "on the CPU: a GPU searches cells of rows under euclidean, cosine and dot")
    chosen = resolve(device, pays=n_values >= ENOUGH)
    if chosen.device is None or not store.bits_per_value:
        return chosen
    alone = "it finds the cells, and the CPU searches the codes, except for tensors"
    how = "it searches full rows" if store.rerank else alone
    return ChosenDevice(chosen.device, f"{chosen.why}: {how}")


@dataclass(frozen=True)
class FarTable:
    """Rows on a GPU in the order of their cells, in full or as codes alone."""

    best: TensorRows | GpuBitRows | GpuByteRows
    names: Tensor  # (n,) int64
    offsets: Tensor  # (c + 1,) int64

    @staticmethod
    def needs(far: TensorRows, store: Store) -> int:
        """Return the bytes that a build needs in addition to the rows."""
        n, d = far.shape
        return 2 * far.nbytes + 16 * n if store.rerank else n * (d * store.bits_per_value // 4 + 32)

    @staticmethod
    def of(far: TensorRows, ground: Ground) -> FarTable:
        """Put each row (n, d) into the cell of its nearest landmark."""
        from kway.rows.gpu.ivf_search import assign_rows, cell_finder

        device, store = far.device, ground.store
        cells = assign_rows(cell_finder(ground, device), far.tensor, ground.distance.by_angle)
        order = cells.argsort(stable=True)
        counts = device.torch.bincount(cells, minlength=len(ground.landmarks))
        offsets = device.torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        best = far[order] if store.rerank else store.gpu_codes(far, cells, ground).cut(order)
        return FarTable(best, order, offsets)

    @property
    def has_full(self) -> bool:
        """Whether full rows are stored."""
        return isinstance(self.best, TensorRows)

    def on_device(self, device: Device) -> Any:
        """Return the rows or codes, which are on the GPU already."""
        return self.best.tensor if isinstance(self.best, TensorRows) else self.best.on_device(device)

    def device_bytes(self) -> int:
        """Return the bytes that enter the products."""
        return int(self.best.nbytes)

    def measure(self, distance: Distance, queries: NDArray, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return distances (q, k) of queries (q, d) to the rows at places (q, k); only these rows are copied."""
        return measured_rows(distance, queries, *SelectedRows.select(self.best, places))

    @property
    def ends_exact(self) -> bool:
        """Whether a search of all cells gives the result to compare with: full rows, or bits that are stored alone."""
        return not isinstance(self.best, GpuByteRows)

    def read(self, ground: Ground, kind: type[CellTable] | type[BitCells]) -> CellTable | BitCells:
        """Return the same table on the CPU."""
        device, best = Device(str(self.names.device)), self.best
        places = np.argsort(device.fetch(self.names))
        in_order = np.repeat(np.arange(len(self.offsets) - 1), np.diff(device.fetch(self.offsets)))
        cells = in_order[places]
        if isinstance(best, TensorRows):
            kept = kind.keep(np.asarray(best)[places], cells, ground)
        elif isinstance(best, GpuBitRows):
            kept = StoredRows(None, CenteredBits(best, ground.centers(), in_order).take(places))
        else:
            kept = StoredRows(None, best.take(places))
        return kind.of(kept, cells, ground)


def placed_of(rows: NDArray | TensorRows, distance: Distance) -> Any:
    """Return rows in the space of the distance, on the same device."""
    if not isinstance(rows, TensorRows):
        return distance.place(rows)
    from kway.rows.gpu.exact_search import place_rows

    return TensorRows(place_rows(rows.tensor, distance.by_angle).to(rows.tensor.dtype)) if distance.by_angle else rows


def leads_of(rows: NDArray | TensorRows, projection: Projection) -> Any:
    """Return short projections (n, m) float32 of placed rows, on the same device."""
    if not isinstance(rows, TensorRows):
        return projection.of(rows, long=False).lead
    device, basis = rows.device, projection.basis[:, : projection.length]
    z = rows.tensor.double() - device.put(projection.mean)
    return TensorRows((z @ device.put(basis).double() if basis.shape[1] else z).float())
