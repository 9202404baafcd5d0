"""Flat search on a device (kway.compute.gpu), in the place of the certified engine and with its interface.

The device finds the k nearest by float64 distances. Here they are measured once more by the CPU's own kernel, so that
every digit, and with it every tie, is what the CPU answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.gpu.device import Device, resolve
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import measure
from kway.compute.threads import pmap, shares
from kway.errors import CombinationError
from kway.search.blocks import BlockScan
from kway.search.distances import COSINE, DOT, EUCLIDEAN
from kway.search.index import Neighbors
from kway.search.live import LiveIndex
from kway.search.metrics import Metric
from kway.search.stores.base import Store

SEARCHED = (EUCLIDEAN, COSINE, DOT)
_ENOUGH = 2**24  # values of all rows from which on "auto" takes a GPU
_MOST = 1024  # neighbours that a device is asked for; the CPU lists more


class ChosenSearch(NamedTuple):
    """The search on a device, None for the CPU's, and in one sentence why."""

    search: DeviceSearch | None
    why: str


def check_device(metric: Metric, sparse: bool, store: Store | None) -> None:
    """Refuse what no device searches."""
    what = (
        "sparse rows" if sparse else f"store={type(store).__name__}()" if store is not None
        else f"the metric {metric.name!r}" if metric.distance not in SEARCHED else ""
    )  # fmt: skip
    if what:
        raise CombinationError(
            f"Flat(device='cuda') cannot search {what}; it searches dense rows under 'euclidean', 'cosine' and 'dot' "
            "(and the kernels on them), else use device='cpu'"
        )


def search_over(scan: Any, metric: Metric, device: str) -> ChosenSearch:
    """The search over scanned rows on the device that the word means, where it can be done there."""
    if device == "cpu":
        return ChosenSearch(None, "")
    kept = scan.kept
    if kept.codes is not None or sp.issparse(kept.full) or metric.distance not in SEARCHED or not len(kept):
        return ChosenSearch(None, "on the CPU: a GPU searches dense rows under euclidean, cosine and dot")
    chosen = resolve(device, pays=kept.full.size >= _ENOUGH)
    if chosen.device is None:
        return ChosenSearch(None, chosen.why)
    why = f"flat, exact ({chosen.why}): a filter with a bound rules rows out, survivors are measured in float64"
    return ChosenSearch(DeviceSearch.over(scan, chosen.device), why)


@dataclass
class DeviceSearch:
    """Rows on a device and on the host, exactly searched."""

    scan: BlockScan
    engine: Any
    touched: float = float("nan")

    @staticmethod
    def over(scan: BlockScan, device: Device) -> DeviceSearch:
        """The search, its rows copied to the device."""
        from kway.compute.gpu.search import engine_over

        rows = scan.kept.full
        with device.room(f"an index of {len(rows):,} rows x {rows.shape[1]} columns", 2 * rows.nbytes):
            return DeviceSearch(scan, engine_over(device, device.put(rows), scan.distance.name))

    @property
    def nbytes(self) -> int:
        """Bytes on the host beside the rows."""
        return 0

    def pays(self, k: int) -> bool:
        """Whether a device lists so many."""
        return k <= _MOST

    def nearest(self, queries: NDArray, k: int, n_jobs: int | None = None) -> Neighbors:
        """The k nearest, ids and distances as brute force on the CPU gives them."""
        device = self.engine.device
        with device.room(f"a search of {len(queries):,} queries"):
            ids = device.fetch(self.engine.nearest(device.put(queries), k).ids)
        exact, distances = frozen(queries.astype(np.float64)), np.empty(ids.shape)

        def work(part: slice) -> None:
            measure(self.scan.distance.code, exact[part], self.scan.rows, ids[part], distances[part])

        pmap(work, shares(len(ids), n_jobs, least=64), n_jobs)
        self.touched = float(k)
        order = np.lexsort((ids, distances), axis=1)
        return Neighbors(np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1))

    def holds(self, index: LiveIndex, queries: Any, k: int) -> bool:
        """Whether tensors can be answered there as they are; the host refuses or converts the others."""
        torch = self.engine.device.torch
        if queries.dtype != torch.float32 or queries.ndim != 2 or not isinstance(k, int) or not 0 < k < index.n_rows:
            return False
        if not (index.unit.plain and index.metric.name == self.scan.distance.name and self.pays(k + 1)):
            return False
        if queries.shape[1] != index.n_features or not len(queries) or not bool(queries.isfinite().all()):
            return False
        peaks = queries.abs().amax(1)
        held = peaks[peaks > 0]
        limit = 2.0 ** min(index.unit.span.most, -index.unit.span.least)
        return not len(held) or bool((held.min() > 1 / limit) & (held.max() < limit))


def tensors(search: Any, index: LiveIndex, queries: Any, k: int) -> Neighbors | None:
    """The k nearest of queries that are a tensor, as tensors and never on the host; None where that is not possible."""
    if not isinstance(search, DeviceSearch) or not search.holds(index, queries, k):
        return None
    from kway.compute.gpu.exact import settled

    engine = search.engine
    with engine.device.room(f"a search of {len(queries):,} queries"):
        there = engine.device.put(queries)
        found = settled(engine.nearest, engine.rows, there, k)
        ids = found.ids if index.plain_ids else engine.device.put(index.ids)[found.ids]
        return Neighbors(ids.to(queries.device), found.distances.float().to(queries.device))


def back(queries: Any, *arrays: NDArray) -> list[Any]:
    """Arrays as tensors where the queries are."""
    return [Device(str(queries.device)).put(array) for array in arrays]
