"""Flat search on a GPU: which searches a GPU can run, which rows stay on it, and results as tensors.

The searches are those of rows/gpu/flat_search.py.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kway.errors import CombinationError
from kway.rows.gpu.device import MAX_NEIGHBORS, Device, is_tensor, resolve
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.block_scan import Scan
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
    device = search.device
    with device.room(f"a search of {len(queries):,} queries"):
        found = search.answer(device.put(queries), k)
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
