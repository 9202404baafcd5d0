"""Landmark search on a device (kway.compute.gpu.search.cells): the same cells and the same rows of them as on the CPU.

Full rows lie on the device in the order of their cells, also where the CPU scans codes of them: no row of a cell that
is probed is lost there. Of codes alone a device answers tensors, by its own estimates, and the CPU arrays; `why_` says
so.

Which cells are nearest is told there in float64; a query whose last cell is as near as the next, up to the rounding of
the CPU's float32, is answered by the CPU, so that the cells, and with them the ids, are always the CPU's. Distances of
what is found are measured once more by the CPU's own kernel. Rows that are on the device alone (far_cells.py) are not
read for that: the device's word on cells is final.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import ChosenDevice, Device, Tensor, resolve
from kway.compute.gpu.far_rows import FarRows
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import measure
from kway.compute.threads import pmap, shares
from kway.data.gate import plain_far
from kway.errors import CombinationError
from kway.search.cells.bit_cells import BitCells
from kway.search.cells.cell_table import CellTable, Ground
from kway.search.device import on_device
from kway.search.device.far_cells import FarTable, landing_of
from kway.search.device.far_kept import in_space
from kway.search.device.on_device import device_rows
from kway.search.index import Neighbors
from kway.search.spaces.distances import Distance
from kway.search.spaces.metrics import Metric
from kway.search.stores.base import Store
from kway.search.stores.bits import BitRows
from kway.search.stores.int8 import ByteRows
from kway.search.stores.kept import RowsFound

HeldCells = CellTable | BitCells | FarTable
OnHost = Callable[[NDArray, int], Neighbors]  # (queries, k) -> what the CPU finds


class Probed(NamedTuple):
    """What a search with some number of probes found, and how many rows it measured a query (the mean)."""

    found: Neighbors
    touched: float


def check_cells(metric: Metric) -> None:
    """Refuse what no device searches."""
    if not metric.distance.by_products:
        raise CombinationError(
            f"Landmarks(device='cuda') cannot search the metric {metric.name!r}; it searches rows under 'euclidean', "
            "'cosine' and 'dot' (and the kernels on them); use one of these, or device='cpu'"
        )


def choose_for_cells(device: str, metric: Metric, store: Store | None, n_values: int) -> ChosenDevice:
    """The device that a word means for so many values of rows."""
    if device == "cpu":
        return ChosenDevice(None, "")
    if not metric.distance.by_products:
        return ChosenDevice(None, "on the CPU: a GPU searches cells of rows under euclidean, cosine and dot")
    chosen = resolve(device, pays=n_values >= on_device.ENOUGH)
    if chosen.device is None or store is None:
        return chosen
    alone = "cells are found there, codes alone are searched here, those of tensors there"
    how = "full rows are searched there" if store.rerank else alone
    return ChosenDevice(chosen.device, f"{chosen.why}: {how}")


def cells_there(ground: Ground, device: Device, rows: NDArray) -> NDArray[np.int64]:
    """The cell (n,) of the nearest landmark of rows (n, d), found on the device."""
    from kway.compute.gpu.search.cells import cells_of_rows

    with device.room(f"the cells of {len(rows):,} rows x {rows.shape[1]} columns", rows.nbytes):
        there = cells_of_rows(landing_of(ground, device), device.put(rows), ground.distance.by_angle)
        return device.fetch(there)


@dataclass(frozen=True)
class DeviceCells:
    """Rows, or codes alone, on a device in the order of their cells."""

    table: HeldCells
    landing: Any
    cells: Any  # CellRows
    distance: Distance

    @staticmethod
    def over(table: HeldCells, ground: Ground, device: Device) -> DeviceCells:
        """The search, its rows copied to the device where they are not there."""
        from kway.compute.gpu.search.cells import CellRows
        from kway.compute.gpu.search.exact import ExactRows
        from kway.compute.gpu.search.products import PRODUCTS

        best, (n, d) = table.best, table.best.shape
        copies = 1 if isinstance(table, FarTable) else 3 if _full(best) else 2
        with device.room(f"landmark cells of {n:,} rows x {d} columns", copies * best.nbytes):
            names, offsets = device.put(table.names), device.put(table.offsets)
            if isinstance(best, BitRows):
                cells = CellRows(_coded(best, offsets, ground, device), names, offsets, None)
            else:
                rows = ExactRows.of(device, device_rows(best, device), PRODUCTS[ground.distance.name])
                cells = CellRows.of(rows, names, offsets) if _full(best) else CellRows(rows, names, offsets, None)
        return DeviceCells(table, landing_of(ground, device), cells, ground.distance)

    @property
    def full(self) -> bool:
        """Whether full rows are there."""
        return _full(self.table.best)

    @property
    def device(self) -> Device:
        """Where the rows are."""
        where: Device = self.cells.rows.device
        return where

    def nearest(self, queries: NDArray, k: int, probes: int, host: OnHost | None, n_jobs: int | None) -> Neighbors:
        """Positions and distances (q, k) of the nearest of the rows of each query's cells, -1 and inf behind."""
        device, exact = self.device, frozen(queries.astype(np.float64))
        with device.room(f"a search of {len(queries):,} queries"):
            there, unsure_there = self._found(device.put(exact), k, probes)
            places, doubt, names = map(device.fetch, (there, unsure_there, self.cells.names[there]))
        rows, at = self._rows_at(places)
        code, distances = self.distance.code, np.empty(places.shape)

        def work(part: slice) -> None:
            measure(code, exact[part], rows, at[part], distances[part])

        pmap(work, shares(len(places), n_jobs, least=64), n_jobs)
        nobody = places < 0
        ids, distances = np.where(nobody, -1, names), np.where(nobody, np.inf, distances)
        order = np.lexsort((ids, distances), axis=1)
        found = Neighbors(np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1))
        unsure = np.flatnonzero(doubt)
        if len(unsure) and host is not None:
            found.ids[unsure], found.distances[unsure] = host(queries[unsure], k)
        return found

    def _rows_at(self, places: NDArray[np.int64]) -> RowsFound:
        """Rows of the host that hold those at places (q, k); of rows there, they alone."""
        best: Any = self.table.best
        return RowsFound.of(best, places) if isinstance(best, FarRows) else RowsFound(frozen(best), places)

    def _found(self, queries: Tensor, k: int, probes: int) -> tuple[Tensor, Tensor]:
        """Places (q, k), -1 where cells hold fewer, and doubt (q,); queries that saw fewer probe four times as many."""
        cells, doubt = self.landing.probe(in_space(queries, self.distance), probes)
        places = self.cells.nearest(queries, cells, k).ids
        short = (places[:, -1] < 0).nonzero()[:, 0]
        if len(short) and probes < len(self.landing.landmarks):
            more = min(4 * probes, len(self.landing.landmarks))
            places[short], doubt[short] = self._found(queries[short], k, more)
        return places, doubt

    def looked(self, queries: Tensor, probes: int) -> float:
        """Rows of so many cells, a query (the mean): all of them are multiplied."""
        cells = self.landing.probe(in_space(queries, self.distance), probes).cells
        return float(self.cells.offsets.diff()[cells].sum(1).double().mean())

    def answer(self, queries: Tensor, k: int, probes: int, host: OnHost | None) -> Any:
        """The k nearest of tensors by (distance in float32, position), as tensors; whoever is in doubt by the host."""
        from kway.compute.gpu.search.exact import Asking, FoundRows, settled

        rows, device = self.cells.rows, self.device

        def nearest(some: Tensor, k: int) -> Any:
            exact = some.double()
            places, doubt = self._found(exact, k, probes)
            away = rows.measured(exact, places.clamp(min=0)).where(places >= 0, float("inf"))
            ids = self.cells.names[places.clamp(min=0)].where(places >= 0, len(rows))
            unsure = doubt.nonzero()[:, 0] if host is not None else ()
            if host is not None and len(unsure):
                ids[unsure], away[unsure] = map(device.put, host(device.fetch(some[unsure]), k))
            return FoundRows(ids, away)

        return settled(Asking(len(rows), nearest, spare=int(self.full)), queries, k)


def _full(best: Any) -> bool:
    return not isinstance(best, BitRows | ByteRows)


def _coded(codes: BitRows, offsets: Tensor, ground: Ground, device: Device) -> Any:
    """Codes about landmarks, in the order of cells, there."""
    from kway.compute.gpu.codes.bit_codes import BitCodes
    from kway.compute.gpu.codes.cell_codes import CellCodes
    from kway.search.device.bits_on_device import bits_there

    torch, distance, held = device.torch, ground.distance, bits_there(codes, device)
    cells = torch.repeat_interleave(torch.arange(len(offsets) - 1, device=device.name), offsets.diff())
    there = BitCodes(
        device, codes.frame.bits, held.words, held.factor, held.half if distance.order else None, bar=0.0, least=0.0
    )
    turn = codes.frame.turned(np.eye(codes.shape[1], dtype=np.float32))
    centres, mean, turn = (device.put(a, torch.float64) for a in (ground.centres(), ground.projection.mean, turn))
    return CellCodes.of(there, cells, centres, mean, turn, distance.shifts, distance.by_angle)


class DeviceCellIndex(on_device.DeviceIndex):
    """A live index over cells, which may be searched on a device; a subclass searches them on the CPU."""

    recipe: Any
    probes: int
    _held: HeldCells
    _place_of = ChosenDevice(None, "")  # where cells are searched, and why there
    _there: DeviceCells | None = None

    @property
    def _table(self) -> Any:
        """The cells of the host; rows that have stayed on a device are copied now."""
        if isinstance(self._held, FarTable):
            self._held = self._held.read(self._ground(), self.recipe._table)
        return self._held

    @property
    def ends_exact(self) -> bool:
        """Whether a search of all cells gives the answer that a promise is held against."""
        return self._held.ends_exact

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
        self._there = None if device is None else DeviceCells.over(self._held, self._ground(), device)

    def _probes(self, probes: int | None) -> int:
        return max(1, min(self.probes if probes is None else int(probes), self.n_landmarks))

    def _nearest(self, queries: NDArray, k: int, n_jobs: int | None, probes: int | None) -> Neighbors:
        wanted = self._probes(probes)
        if self._there is None or k > on_device.MOST_LISTED or not self._there.full:
            return self._nearest_here(queries, k, n_jobs, wanted)
        found = self._there.nearest(queries, k, wanted, self._host(n_jobs, wanted), n_jobs)
        self._touched = float(k)
        return found

    def _host(self, n_jobs: int | None, wanted: int) -> OnHost | None:
        """What answers queries in doubt: the CPU, where it has the rows."""
        if isinstance(self._held, FarTable) or not (self._there and self._there.full):
            return None
        return lambda some, k: self._nearest_here(some, k, n_jobs, wanted)

    def _tensors(self, queries: Any, k: int, probes: int | None) -> Neighbors | None:
        there, wanted = self._there, self._probes(probes)
        if there is None or not on_device.holds(self, queries, k):
            return None
        host = self._host(None, wanted)
        return on_device.named_tensors(there.device, self, queries, lambda asked: there.answer(asked, k, wanted, host))

    def _probed_there(self, queries: Any, k: int, steps: Sequence[int]) -> list[Probed] | None:
        """What each of `steps` probes finds and looks at, by rows on a device alone; None: the host can tell."""
        there = self._there
        far = None if there is None or not isinstance(self._held, FarTable) else plain_far(queries, there.device)
        if there is None or far is None or not on_device.holds(self, far.tensor, k):
            return None
        found = (self.nearest(far.tensor, k, probes=step) for step in steps)
        looked = (there.looked(far.tensor.double(), step) for step in steps)
        return [Probed(Neighbors(*map(there.device.fetch, one)), rows) for one, rows in zip(found, looked)]
