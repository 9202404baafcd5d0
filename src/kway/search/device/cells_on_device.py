"""Landmark search on a device (kway.compute.gpu.search.cells): the same cells and the same rows of them as on the CPU.

Full rows lie on the device in the order of their cells, also where the CPU scans codes of them: no row of a cell that
is probed is lost there. Where codes alone are kept the CPU searches, and `why_` says so.

Which cells are nearest is told there in float64; a query whose last cell is as near as the next, up to the rounding of
the CPU's float32, is answered by the CPU, so that the cells, and with them the ids, are always the CPU's. Distances of
what is found are measured once more by the CPU's own kernel.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import ChosenDevice, Device, Tensor, resolve
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import measure
from kway.compute.threads import pmap, shares
from kway.errors import CombinationError
from kway.search.cells.bit_cells import BitCells
from kway.search.cells.cell_table import CellTable, Ground
from kway.search.device import on_device
from kway.search.index import Neighbors
from kway.search.spaces.distances import COSINE
from kway.search.spaces.metrics import Metric
from kway.search.stores.base import Store

OnHost = Callable[[NDArray, int], Neighbors]  # (queries, k) -> what the CPU finds


def check_cells(metric: Metric) -> None:
    """Refuse what no device searches."""
    if metric.distance not in on_device.SEARCHED:
        raise CombinationError(
            f"Landmarks(device='cuda') cannot search the metric {metric.name!r}; it searches rows under 'euclidean', "
            "'cosine' and 'dot' (and the kernels on them); use one of these, or device='cpu'"
        )


def choose_for_cells(device: str, metric: Metric, store: Store | None, n_values: int) -> ChosenDevice:
    """The device that a word means for so many values of rows."""
    if device == "cpu":
        return ChosenDevice(None, "")
    if metric.distance not in on_device.SEARCHED:
        return ChosenDevice(None, "on the CPU: a GPU searches cells of rows under euclidean, cosine and dot")
    chosen = resolve(device, pays=n_values >= on_device.ENOUGH)
    if chosen.device is None or store is None:
        return chosen
    how = "full rows are searched there" if store.rerank else "cells are found there, codes alone are searched here"
    return ChosenDevice(chosen.device, f"{chosen.why}: {how}")


def _landing(ground: Ground, device: Device) -> Any:
    """What tells cells apart, on the device."""
    from kway.compute.gpu.search.cells import Landing

    torch, projection = device.torch, ground.projection
    basis = projection.basis[:, : projection.length]
    return Landing(
        device.put(projection.mean, torch.float64),
        device.put(basis, torch.float64) if basis.shape[1] else None,
        device.put(ground.landmarks, torch.float64),
        device.put(ground.offsets(), torch.float64),
    )


def cells_there(ground: Ground, device: Device, rows: NDArray) -> NDArray[np.int64]:
    """The cell (n,) of the nearest landmark of rows (n, d), found on the device."""
    from kway.compute.gpu.search.cells import cells_of_rows

    with device.room(f"the cells of {len(rows):,} rows x {rows.shape[1]} columns", rows.nbytes):
        there = cells_of_rows(_landing(ground, device), device.put(rows), ground.distance == COSINE)
        return device.fetch(there)


@dataclass(frozen=True)
class DeviceCells:
    """Rows on a device in the order of their cells, and on the host."""

    table: CellTable | BitCells
    landing: Any
    cells: Any  # CellRows

    @staticmethod
    def over(table: CellTable | BitCells, ground: Ground, device: Device) -> DeviceCells:
        """The search, its rows copied to the device."""
        from kway.compute.gpu.search.cells import CellRows
        from kway.compute.gpu.search.exact import ExactRows
        from kway.compute.gpu.search.products import PRODUCTS

        rows = table.full
        assert rows is not None
        with device.room(f"landmark cells of {len(rows):,} rows x {rows.shape[1]} columns", 3 * rows.nbytes):
            held = ExactRows.of(device, device.put(rows), PRODUCTS[table.distance.name])
            cells = CellRows.of(held, device.put(table.names), device.put(table.offsets))
        return DeviceCells(table, _landing(ground, device), cells)

    @property
    def device(self) -> Device:
        """Where the rows are."""
        where: Device = self.cells.rows.device
        return where

    def nearest(self, queries: NDArray, k: int, probes: int, host: OnHost, n_jobs: int | None) -> Neighbors:
        """Positions and distances (q, k) of the nearest of the rows of each query's cells, -1 and inf behind."""
        device, exact = self.device, frozen(queries.astype(np.float64))
        with device.room(f"a search of {len(queries):,} queries"):
            places, doubt = (device.fetch(found) for found in self._found(device.put(exact), k, probes))
        code, rows, distances = self.table.distance.code, self._full(), np.empty(places.shape)

        def work(part: slice) -> None:
            measure(code, exact[part], rows, places[part], distances[part])

        pmap(work, shares(len(places), n_jobs, least=64), n_jobs)
        nobody = places < 0
        ids, distances = np.where(nobody, -1, self.table.names[places]), np.where(nobody, np.inf, distances)
        order = np.lexsort((ids, distances), axis=1)
        found = Neighbors(np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1))
        unsure = np.flatnonzero(doubt)
        if len(unsure):
            found.ids[unsure], found.distances[unsure] = host(queries[unsure], k)
        return found

    def _full(self) -> NDArray:
        assert self.table.full is not None
        return frozen(self.table.full)

    def _found(self, queries: Tensor, k: int, probes: int) -> tuple[Tensor, Tensor]:
        """Places (q, k), -1 where cells hold fewer, and doubt (q,); queries that saw fewer probe four times as many."""
        placed = self._placed(queries)
        cells, doubt = self.landing.probe(placed, probes)
        places = self.cells.nearest(queries, cells, k).ids
        short = (places[:, -1] < 0).nonzero()[:, 0]
        if len(short) and probes < len(self.landing.landmarks):
            more = min(4 * probes, len(self.landing.landmarks))
            places[short], doubt[short] = self._found(queries[short], k, more)
        return places, doubt

    def _placed(self, queries: Tensor) -> Tensor:
        from kway.compute.gpu.search.cells import of_length_one

        return of_length_one(queries) if self.table.distance == COSINE else queries

    def answer(self, queries: Tensor, k: int, probes: int, host: OnHost) -> Any:
        """The k nearest of tensors by (distance in float32, position), as tensors; whoever is in doubt by the host."""
        from kway.compute.gpu.search.exact import Asking, FoundRows, measured, settled

        rows, device = self.cells.rows, self.device

        def nearest(some: Tensor, k: int) -> Any:
            exact = some.double()
            places, doubt = self._found(exact, k, probes)
            away = measured(rows.product, rows.rows, exact, places.clamp(min=0)).where(places >= 0, float("inf"))
            ids = self.cells.names[places.clamp(min=0)].where(places >= 0, len(rows))
            unsure = doubt.nonzero()[:, 0]
            if len(unsure):
                ids[unsure], away[unsure] = map(device.put, host(device.fetch(some[unsure]), k))
            return FoundRows(ids, away)

        return settled(Asking(len(rows), nearest), queries, k)


class DeviceCellIndex(on_device.DeviceIndex):
    """A live index over cells, which may be searched on a device; a subclass searches them on the CPU."""

    recipe: Any
    probes: int
    _table: Any
    _place_of = ChosenDevice(None, "")  # where cells are searched, and why there
    _there: DeviceCells | None = None

    @property
    @abstractmethod
    def n_landmarks(self) -> int:
        """Number of cells."""

    @abstractmethod
    def _ground(self) -> Ground:
        """Where rows are put."""

    @abstractmethod
    def _nearest_here(self, queries: NDArray, k: int, n_jobs: int | None, wanted: int) -> Neighbors:
        """On the CPU, by so many probes."""

    def to(self, device: str) -> None:
        """Search on that device from now on: "cpu" | "cuda" | "auto"."""
        recipe = replace(self.recipe, device=device)
        recipe.check(self.metric)
        self._place_of = choose_for_cells(device, self.metric, recipe.store, self.n_rows * self.n_features)
        self.recipe = recipe
        self._bring_there()

    def _bring_there(self) -> None:
        device = self._place_of.device
        self._there = None
        if device is not None and self._table.full is not None:
            self._there = DeviceCells.over(self._table, self._ground(), device)

    def _probes(self, probes: int | None) -> int:
        return max(1, min(self.probes if probes is None else int(probes), self.n_landmarks))

    def _nearest(self, queries: NDArray, k: int, n_jobs: int | None, probes: int | None) -> Neighbors:
        wanted = self._probes(probes)
        if self._there is None or k > on_device.MOST_LISTED:
            return self._nearest_here(queries, k, n_jobs, wanted)
        host: OnHost = lambda some, k: self._nearest_here(some, k, n_jobs, wanted)  # noqa: E731
        found = self._there.nearest(queries, k, wanted, host, n_jobs)
        self._touched = float(k)
        return found

    def _tensors(self, queries: Any, k: int, probes: int | None) -> Neighbors | None:
        there, wanted = self._there, self._probes(probes)
        if there is None or not on_device.holds(self, queries, k):
            return None
        host: OnHost = lambda some, k: self._nearest_here(some, k, None, wanted)  # noqa: E731
        return on_device.named_tensors(there.device, self, queries, lambda asked: there.answer(asked, k, wanted, host))
