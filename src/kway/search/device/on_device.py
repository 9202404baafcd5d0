"""Flat search on a device (kway.compute.gpu), in the place of the certified engine and with its interface.

The device finds the k nearest by float64 distances. Here they are measured once more by the CPU's own kernel, so that
every digit, and with it every tie, is what the CPU answers. Codes of a few bits are bits_on_device.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.gpu.device import Device, is_tensor, on_host, resolve
from kway.compute.gpu.far_rows import FarRows
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import measure
from kway.compute.threads import pmap, shares
from kway.data.gate import plain_far
from kway.errors import CombinationError
from kway.search.blocks import BlockScan
from kway.search.index import Neighbors, TopK
from kway.search.live import LiveIndex
from kway.search.spaces.metrics import Metric
from kway.search.spaces.units import NARROW
from kway.search.stores.bits import BitRows
from kway.search.stores.far_codes import FarBytes
from kway.search.stores.int8 import ByteRows
from kway.search.stores.kept import FarKept

_FLOATS = ("torch.float32", "torch.float64")  # that tensors are answered in
MOST_LISTED = 1024  # neighbours that a device is asked for; the CPU lists more
ENOUGH = 2**24  # values of all rows from which on "auto" takes a GPU


class OnDevice(Protocol):
    """A search over rows, or codes, that a device does."""

    touched: float

    @property
    def device(self) -> Device:
        """Which."""

    @property
    def nbytes(self) -> int:
        """Bytes on the host beside the rows."""

    @property
    def answers_tensors(self) -> bool:
        """Whether nothing of an answer has to come from the host."""

    def pays(self, k: int) -> bool:
        """Whether it lists so many."""

    def nearest(self, queries: NDArray, k: int, n_jobs: int | None = None) -> Neighbors:
        """The k nearest by (distance, position), digits as the CPU gives them."""

    def answer(self, queries: Any, k: int) -> Any:
        """The k nearest of tensors, by (distance in float32, position), as tensors."""


class ChosenSearch(NamedTuple):
    """The search on a device, None for the CPU's, and in one sentence why."""

    search: OnDevice | None
    why: str


def check_device(metric: Metric, sparse: bool) -> None:
    """Refuse what no device searches."""
    what = "sparse rows" if sparse else f"the metric {metric.name!r}" if not metric.distance.by_products else ""
    if what:
        raise CombinationError(
            f"Flat(device='cuda') cannot search {what}; it searches dense rows, as they are or as codes, under "
            "'euclidean', 'cosine' and 'dot' (and the kernels on them), else use device='cpu'"
        )


def far_rows(rows: Any, metric: Metric, device: str) -> FarRows | None:
    """Rows that a device searches where they are: a tensor of plain size; None where the host has to look at them."""
    chosen = staying(device, rows)
    if chosen is None or not metric.distance.by_products or not metric.bare:
        return None
    far, limit = plain_far(rows, chosen), 2.0 ** min(NARROW.most, -NARROW.least)
    if far is None:
        return None
    peaks = far.row_peaks()
    wild = (peaks >= limit) | ((peaks > 0) & (peaks <= 1 / limit))  # these want a unit of their own
    return None if bool(wild.any()) else far


def staying(device: str, rows: Any) -> Device | None:
    """Where rows stay, or go, if they are a tensor (or have stayed already); None: they are read here."""
    if device == "cpu" or not (is_tensor(rows) or isinstance(getattr(rows, "rows", None), FarRows)):
        return None
    shape = rows.shape if is_tensor(rows) else rows.rows.shape
    return resolve(device, pays=len(shape) == 2 and shape[0] * shape[1] >= ENOUGH).device


def search_over(scan: Any, metric: Metric, device: str) -> ChosenSearch:
    """The search over scanned rows on the device that the word means, where it can be done there."""
    if device == "cpu":
        return ChosenSearch(None, "")
    kept = scan.kept
    coded = isinstance(kept.codes, BitRows)
    sparse = not isinstance(kept, FarKept) and sp.issparse(kept.full)
    if sparse or not metric.distance.by_products or not len(kept):
        return ChosenSearch(None, "on the CPU: a GPU searches dense rows under euclidean, cosine and dot")
    chosen = resolve(device, pays=kept.shape[0] * kept.shape[1] >= ENOUGH)
    if chosen.device is None:
        return ChosenSearch(None, chosen.why)
    if coded:
        from kway.search.device.bits_on_device import DeviceBits

        bits = DeviceBits.over(scan, chosen.device)
        return ChosenSearch(bits, f"{bits.why} ({chosen.why})")
    rows = "bytes alone, decoded" if not kept.has_full else "exact"
    why = f"flat, {rows} ({chosen.why}): a filter with a bound rules rows out, survivors are measured in float64"
    return ChosenSearch(DeviceSearch.over(scan, chosen.device), why)


@dataclass
class DeviceSearch:
    """Rows on a device and on the host, exactly searched."""

    scan: BlockScan
    engine: Any
    touched: float = float("nan")

    @staticmethod
    def over(scan: BlockScan, device: Device) -> DeviceSearch:
        """The search, its rows copied to the device where they are not there."""
        from kway.compute.gpu.search.search import engine_over

        kept = scan.kept
        n, d = kept.shape
        own, copies = (kept.there, 1) if isinstance(kept, FarKept) else (kept.best, 2)
        with device.room(f"an index of {n:,} rows x {d} columns", copies * own.nbytes):
            return DeviceSearch(scan, engine_over(device, device_rows(own, device), scan.distance.name))

    @property
    def nbytes(self) -> int:
        """Bytes on the host beside the rows."""
        return 0

    @property
    def device(self) -> Device:
        """Where the rows are."""
        where: Device = self.engine.device
        return where

    @property
    def answers_tensors(self) -> bool:
        """Always."""
        return True

    def pays(self, k: int) -> bool:
        """Whether a device lists so many."""
        return k <= MOST_LISTED

    def nearest(self, queries: NDArray, k: int, n_jobs: int | None = None) -> Neighbors:
        """The k nearest, ids and distances as brute force on the CPU gives them."""
        device = self.engine.device
        with device.room(f"a search of {len(queries):,} queries"):
            ids = device.fetch(self.engine.nearest(device.put(queries), k).ids)
        exact, distances = frozen(queries.astype(np.float64)), np.empty(ids.shape)
        rows, places = self.scan.kept.found(ids)

        def work(part: slice) -> None:
            measure(self.scan.distance.code, exact[part], rows, places[part], distances[part])

        pmap(work, shares(len(ids), n_jobs, least=64), n_jobs)
        self.touched = float(k)
        order = np.lexsort((ids, distances), axis=1)
        return Neighbors(np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1))

    def answer(self, queries: Any, k: int) -> Any:
        """The k nearest of tensors, as tensors."""
        from kway.compute.gpu.search.exact import Asking, settled

        rows = self.engine.rows
        brute = lambda some, k: rows.brute(some.double(), k, rounded=True)  # noqa: E731
        return settled(Asking(len(rows), self.engine.nearest, brute), queries, k)


def device_rows(rows: Any, device: Device) -> Any:
    """Full rows or bytes on the device, a tensor or read like one."""
    from kway.compute.gpu.codes.codes_of_tensors import BytesThere

    if isinstance(rows, FarRows):
        return rows.tensor
    if isinstance(rows, FarBytes):
        return rows.there
    if isinstance(rows, ByteRows):
        return BytesThere(*map(device.put, (rows.codes, rows.scale, rows.centre)))
    return device.put(rows)


def tensors(search: Any, index: LiveIndex, queries: Any, k: int) -> Neighbors | None:
    """The k nearest of queries that are a tensor, as tensors and never on the host; None where that is not possible."""
    if not getattr(search, "answers_tensors", False) or not holds(index, queries, k):
        return None
    return named_tensors(search.device, index, queries, lambda asked: search.answer(asked, k))


def named_tensors(device: Device, index: LiveIndex, queries: Any, answer: Callable[[Any], Any]) -> Neighbors:
    """What the device answers to queries, wherever these are, with the caller's ids."""
    with device.room(f"a search of {len(queries):,} queries"):
        found = answer(device.put(queries))
        ids = found.ids if index.plain_ids else device.put(index.ids)[found.ids]
        return Neighbors(ids.to(queries.device), found.distances.to(queries.device, queries.dtype))


def holds(index: LiveIndex, queries: Any, k: int) -> bool:
    """Whether tensors can be answered on a device as they are; the host refuses or converts the others."""
    if str(queries.dtype) not in _FLOATS or queries.ndim != 2 or not isinstance(k, int) or not 0 < k < index.n_rows:
        return False
    if not (index.unit.plain and index.metric.bare and k < MOST_LISTED):
        return False
    if queries.shape[1] != index.n_features or not len(queries) or not bool(queries.isfinite().all()):
        return False
    peaks = queries.abs().amax(1)
    held = peaks[peaks > 0]
    limit = 2.0 ** min(index.unit.span.most, -index.unit.span.least)
    return not len(held) or bool((held.min() > 1 / limit) & (held.max() < limit))


class DeviceIndex(LiveIndex):
    """A live index that answers tensors with tensors."""

    def _tensors(self, queries: Any, k: int, probes: int | None) -> Neighbors | None:
        """The answer from the device, None where the host has to give it."""
        raise NotImplementedError

    def nearest(self, queries: Any, k: int, n_jobs: int | None = None, *, probes: int | None = None) -> Neighbors:
        """The k nearest rows of each query, as tensors where queries are a tensor."""
        if not is_tensor(queries):
            return super().nearest(queries, k, n_jobs, probes=probes)
        found = self._tensors(queries, k, probes)
        if found is not None:
            self._touched = float(k)
            return found
        return Neighbors(*_back(queries, *super().nearest(queries, k, n_jobs, probes=probes)))

    def search(self, queries: Any, k: int, n_jobs: int | None = None) -> TopK:
        """The k best rows of each query, as tensors where queries are a tensor."""
        if not is_tensor(queries):
            return super().search(queries, k, n_jobs)
        ids, distances = self.nearest(queries, k, n_jobs)
        if self.metric.bare:  # arithmetic that tensors know
            return TopK(ids, self.metric.score(distances))
        return TopK(ids, *_back(queries, self.metric.score(on_host(distances))))


def _back(queries: Any, *arrays: NDArray) -> list[Any]:
    """Arrays as tensors where the queries are."""
    return [Device(str(queries.device)).put(array) for array in arrays]
