"""Landmark search on a device: the same cells and the same rows of them as on the CPU.

Full rows are on the device in the order of their cells, also if the CPU scans codes of them: no row of a cell that is
probed is lost there. Of codes alone a device answers tensors, by its own estimates, and the CPU answers arrays.

The device finds the nearest cells in float64. A query whose last cell is as near as the next, up to the rounding of the
CPU's float32, is answered by the CPU, so that the cells, and with them the ids, are always the CPU's. Distances of the
rows found are measured once more by the CPU's own kernel. If the rows are on the device alone, the device decides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.kernels.jit import frozen
from kway.rows.gpu.bit_codes import BitCodes, BitsThere, CellCodes
from kway.rows.gpu.cells import CellRows, Landing, cells_of_rows, in_space
from kway.rows.gpu.device import MOST_LISTED, Device, Tensor
from kway.rows.gpu.exact import PRODUCTS, Asking, ExactRows, FoundRows, settled
from kway.rows.gpu.flat_search import by_distance

OnHost = Callable[[NDArray, int], Any]  # (queries, k) -> what the CPU finds


def landing_of(ground: Any, device: Device) -> Landing:
    """What tells cells apart, on the device."""
    torch, projection = device.torch, ground.projection
    basis = projection.basis[:, : projection.length]
    return Landing(
        device.put(projection.mean, torch.float64),
        device.put(basis, torch.float64) if basis.shape[1] else None,
        device.put(ground.landmarks, torch.float64),
        device.put(ground.finder().marks, torch.float64),
    )


def cells_there(ground: Any, device: Device, rows: NDArray) -> NDArray[np.int64]:
    """The cell (n,) of the nearest landmark of rows (n, d), found on the device."""
    with device.room(f"the cells of {len(rows):,} rows x {rows.shape[1]} columns", rows.nbytes):
        there = cells_of_rows(landing_of(ground, device), device.put(rows), ground.distance.by_angle)
        return device.fetch(there)


@dataclass(frozen=True)
class DeviceCells:
    """Rows, or codes alone, on a device in the order of their cells."""

    table: Any  # the cells of the index: CellTable, BitCells or FarTable of kway.search
    landing: Any
    cells: Any  # CellRows
    distance: Any

    @staticmethod
    def over(table: Any, ground: Any, device: Device) -> DeviceCells:
        """The search, its rows copied to the device where they are not there."""
        n, d = table.best.shape
        with device.room(f"landmark cells of {n:,} rows x {d} columns", table.device_bytes()):
            names, offsets, held = device.put(table.names), device.put(table.offsets), table.on_device(device)
            if isinstance(held, BitsThere):
                cells = CellRows(_coded(table.best, held, offsets, ground, device), names, offsets, None)
            else:
                rows = ExactRows.of(device, held, PRODUCTS[ground.distance.name])
                full = table.has_full
                cells = CellRows.of(rows, names, offsets) if full else CellRows(rows, names, offsets, None)
        return DeviceCells(table, landing_of(ground, device), cells, ground.distance)

    @property
    def full(self) -> bool:
        """Whether full rows are there."""
        return bool(self.table.has_full)

    @property
    def most_listed(self) -> int:
        """Neighbors that it lists for arrays; codes alone are searched on the CPU."""
        return MOST_LISTED if self.full else 0

    @property
    def device(self) -> Device:
        """Where the rows are."""
        where: Device = self.cells.rows.device
        return where

    def nearest(self, queries: NDArray, k: int, probes: int, host: OnHost | None) -> FoundRows:
        """Positions and distances (q, k) of the nearest of the rows of each query's cells, -1 and inf behind."""
        device, exact = self.device, frozen(queries.astype(np.float64))
        with device.room(f"a search of {len(queries):,} queries"):
            there, unsure_there = self._found(device.put(exact), k, probes)
            places, doubt, names = map(device.fetch, (there, unsure_there, self.cells.names[there]))
        distances = self.table.measure(self.distance, exact, places)
        nobody = places < 0
        ids, distances = np.where(nobody, -1, names), np.where(nobody, np.inf, distances)
        found = by_distance(ids, distances)
        unsure = np.flatnonzero(doubt)
        if len(unsure) and host is not None:
            found.ids[unsure], found.distances[unsure] = host(queries[unsure], k)
        return found

    def _found(self, queries: Tensor, k: int, probes: int) -> tuple[Tensor, Tensor]:
        """Places (q, k), -1 where cells hold fewer, and doubt (q,); queries that saw fewer probe four times as many."""
        cells, doubt = self.landing.probe(in_space(queries, self.distance.by_angle), probes)
        places = self.cells.nearest(queries, cells, k).ids
        short = (places[:, -1] < 0).nonzero()[:, 0]
        if len(short) and probes < len(self.landing.landmarks):
            more = min(4 * probes, len(self.landing.landmarks))
            places[short], doubt[short] = self._found(queries[short], k, more)
        return places, doubt

    def looked(self, queries: Tensor, probes: int) -> float:
        """Rows of so many cells, a query (the mean): all of them are multiplied."""
        cells = self.landing.probe(in_space(queries, self.distance.by_angle), probes).cells
        return float(self.cells.offsets.diff()[cells].sum(1).double().mean())

    def answer(self, queries: Tensor, k: int, probes: int, host: OnHost | None) -> Any:
        """The k nearest of tensors by (distance in float32, position), as tensors; whoever is in doubt by the host."""
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


def _coded(codes: Any, held: BitsThere, offsets: Tensor, ground: Any, device: Device) -> CellCodes:
    """Codes about landmarks, in the order of cells, there."""
    torch, distance = device.torch, ground.distance
    cells = torch.repeat_interleave(torch.arange(len(offsets) - 1, device=device.name), offsets.diff())
    there = BitCodes(
        device, codes.frame.bits, held.words, held.factor, held.half if distance.order else None, bar=0.0, least=0.0
    )
    turn = codes.frame.turned(np.eye(codes.shape[1], dtype=np.float32))
    centres, mean, turn = (device.put(a, torch.float64) for a in (ground.centres(), ground.projection.mean, turn))
    return CellCodes.of(there, cells, centres, mean, turn, distance.shifts, distance.by_angle)
