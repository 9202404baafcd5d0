"""Landmark cells on a device: k-means, the cells that a query looks into, and the k nearest of the rows of its cells.

    rows (n, d)      in the order of cells: those of cell g are offsets[g]:offsets[g + 1]; names (n,): their positions
    probe            keys o_c - p.m_c of projected queries p (float64); the cells of the smallest
    tasks            a cell and up to GROUP queries that look into it: one product per task, tasks of like size together
    keys             the k + m smallest of each query and cell, then of each query; the proof is that of exact.py

`doubt` marks queries whose last cell is as near as the next up to the rounding of the CPU's float32 keys.
The k-means of kway.search.kmeans assigns and averages rows here: sums are float64, and the CPU adds in another order,
so centers agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.kernels.float32 import FLOAT32_SAFE
from kway.kernels.jit import frozen
from kway.rows.gpu.bit_codes import BitCodes, CellCodes, EncodedBits
from kway.rows.gpu.device import MOST_LISTED, Device, Tensor
from kway.rows.gpu.exact_search import (
    BLOCK_BYTES,
    KEPT_BEYOND,
    LISTED,
    METRICS,
    MORE,
    ExactRows,
    ListSearch,
    NearestRows,
    by_distance,
    parts_of,
    place_rows,
    resolve_ties,
    smallest_keys,
    sort_nearest,
    unit_rows,
)
from kway.rows.gpu.tensor_rows import TensorRows


class NearestCenters(NamedTuple):
    """The nearest centre (n,) int64 of each row, and half the squared distance (n,) float32."""

    centres: Tensor
    gaps: Tensor


@dataclass(frozen=True)
class DeviceSample:
    """Rows (n, m) float32 on a device."""

    device: Device
    rows: Tensor

    @staticmethod
    def of(device: Device, rows: NDArray | TensorRows) -> DeviceSample:
        """Rows brought there, where they are not there already."""
        return DeviceSample(device, device.put(rows.tensor if isinstance(rows, TensorRows) else rows).float())

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: NDArray) -> NDArray:
        """Some of the rows, on the host."""
        return self.device.fetch(self.rows[self.device.put(which)])

    def reach(self) -> float:
        """Half the squared length of the longest."""
        return float(0.5 * self.rows.square().sum(1).max())

    def nearest(self, centres: NDArray) -> tuple[NDArray, NDArray]:
        """The nearest centre (n,) and half the squared distance (n,), on the host."""
        found = nearest_centers(self.device, self.rows, self.device.put(centres))
        return self.device.fetch(found.centres), self.device.fetch(found.gaps)

    def means(self, near: NDArray, centres: NDArray) -> NDArray:
        """The mean (c, m) float32 of the rows near each centre; a centre without rows stays where it is."""
        torch, device = self.device.torch, self.device
        codes, given = device.put(near), device.put(centres)
        counts = torch.bincount(codes, minlength=len(given)).double()[:, None]
        sums = device.zeros(given.shape, "float64").index_add_(0, codes, self.rows.double())
        return device.fetch(torch.where(counts > 0, (sums / counts.clamp(min=1)).float(), given))


def nearest_centers(device: Device, rows: Tensor, centres: Tensor) -> NearestCenters:
    """The nearest of centres (c, m) to rows (n, m), both float32."""
    near, gaps = device.empty(len(rows), "int64"), device.empty(len(rows))
    half = 0.5 * centres.square().sum(1)
    with device.full_precision():
        for part in parts_of(len(rows), BLOCK_BYTES // (4 * len(centres))):
            block = rows[part]
            keys = half - block @ centres.T  # (b, c)
            least = keys.min(1)
            near[part] = least.indices
            gaps[part] = (least.values + 0.5 * block.square().sum(1)).clamp(min=0.0)
    return NearestCenters(near, gaps)


_GROUP = 64  # queries of a task (G3)


class ChosenCells(NamedTuple):
    """Cells (q, p) of each query, nearest first, and whether (q,) the CPU may choose another."""

    cells: Tensor
    doubt: Tensor


class _Tasks(NamedTuple):
    """Cells (t,) and the pairs (t, g) that look into each, -1 where there are fewer; large cells first."""

    cells: Tensor
    pairs: Tensor


@dataclass(frozen=True)
class CellFinder:
    """What tells cells apart: z = x - mean, p = z basis (z itself where there is none), keys o - p.m; float64."""

    mean: Tensor  # (d,)
    basis: Tensor | None  # (d, m)
    landmarks: Tensor  # (c, m)
    offset: Tensor  # (c,)

    def leads(self, placed: Tensor) -> Tensor:
        """p (q, m) of placed rows (q, d) float64."""
        z = placed - self.mean
        return z if self.basis is None else z @ self.basis

    def probe(self, placed: Tensor, probes: int) -> ChosenCells:
        """The nearest cells of placed queries (q, d) float64."""
        lead = self.leads(placed)
        keys = self.offset - lead @ self.landmarks.T  # (q, c)
        count = min(probes + 1, len(self.landmarks))
        at = keys.topk(count, 1, largest=False, sorted=True)
        if count == probes:
            return ChosenCells(at.indices, at.values[:, 0] != at.values[:, 0])
        width = float(len(self.mean) ** 0.5 + lead.shape[1] ** 0.5 + 4)
        longest = float(self.landmarks.square().sum(1).max().sqrt())
        norms = (placed - self.mean).square().sum(1).sqrt()
        blur = 8 * 2.0**-24 * width * (norms + longest) * longest
        return ChosenCells(at.indices[:, :probes], at.values[:, probes] - at.values[:, probes - 1] <= blur)


class OrderedRows(Protocol):
    """Rows in the order of their cells, or codes of them, as cells read them; exact.py says what each gives."""

    @property
    def scale(self) -> Tensor:
        """(n,) of products."""

    @property
    def offset(self) -> Tensor:
        """(n,) of keys."""

    def __len__(self) -> int: ...

    @property
    def device(self) -> Device:
        """Where they are."""

    def asked(self, queries: Tensor) -> Tensor:
        """Queries (q, d) float64 as they enter the products."""

    def sides(self, at: Tensor, kind: object) -> Tensor:
        """Rows at places as they enter the products, but for their scale."""

    def limit(self, worst: Tensor, norms: Tensor) -> Tensor:
        """Keys (q,) above which nobody is nearer than worst (q,)."""

    def measured(self, queries: Tensor, places: Tensor) -> Tensor:
        """Distances (q, c) float64 to the rows at places (q, c)."""


@dataclass(frozen=True)
class CellRows:
    """Rows in the order of their cells."""

    rows: OrderedRows
    names: Tensor  # (n,) int64
    offsets: Tensor  # (c + 1,) int64
    sides: Tensor | None  # (n, d) as rows enter the products, but for their scale; None: made whenever they are read

    @staticmethod
    def of(rows: ExactRows, names: Tensor, offsets: Tensor) -> CellRows:
        """Full rows that are in this order; their sides are the rows themselves if they are not moved."""
        if rows.centre is None and rows.rows.dtype == rows.scale.dtype:
            return CellRows(rows, names, offsets, rows.rows)
        sides = rows.device.torch.empty(rows.rows.shape, dtype=rows.scale.dtype, device=rows.device.name)
        for part in parts_of(len(rows), BLOCK_BYTES // (8 * sides.shape[1])):
            sides[part] = rows.sides(part, sides.dtype)
        return CellRows(rows, names, offsets, sides)

    def nearest(self, queries: Tensor, cells: Tensor, k: int) -> NearestRows:
        """Places among the rows and distances (q, k), by (distance, position); place -1 and inf where cells hold fewer.

        queries (q, d) float64, cells (q, p).
        """
        device, torch = self.rows.device, self.rows.device.torch
        ids, distances = device.empty((len(queries), k), "int64"), device.empty((len(queries), k), "float64")
        left, keep = torch.arange(len(queries), device=device.name), k + KEPT_BEYOND
        with device.full_precision():
            while len(left):
                undecided = []
                for some in left.split(max(1, LISTED // (keep * cells.shape[1]))):
                    found, proven = self._filtered(queries[some], cells[some], k, keep)
                    ids[some], distances[some] = found
                    undecided.append(some[~proven])
                left, keep = torch.cat(undecided), MORE * keep
        return NearestRows(ids, distances)

    def _filtered(self, queries: Tensor, cells: Tensor, k: int, keep: int) -> tuple[NearestRows, Tensor]:
        """The k nearest among those of the smallest keys, and whether (q,) that is proven to be all."""
        rows = self.rows
        sides = rows.asked(queries)
        norms = sides.square().sum(1).sqrt_()
        kind = rows.scale.dtype if float(norms.max()) < FLOAT32_SAFE[1] else rows.device.torch.float64
        places, keys = self._least(sides.to(kind), cells, keep)
        real = keys.isfinite()
        order = self.names[places].where(real, len(self.names)).argsort(1)  # equal distances go by position
        places, real, keys = places.gather(1, order), real.gather(1, order), keys.gather(1, order)
        away = rows.measured(queries, places).where(real, float("inf"))
        found = sort_nearest(away, places.where(real, -1), k)
        limit = rows.limit(found.distances[:, -1], norms)
        return found, ~real.all(1) | (keys.double().amax(1) > limit)  # of too few rows all are there

    def _least(self, sides: Tensor, cells: Tensor, keep: int) -> NearestRows:
        """Places and keys (q, keep) of the smallest keys, inf where there are fewer."""
        device, (q, p) = self.rows.device, cells.shape
        keys = device.torch.full((q * p, keep), float("inf"), dtype=sides.dtype, device=device.name)
        places = device.zeros((q * p, keep), "int64")
        tasks = self._tasks(cells)
        sizes = self.offsets.diff()[tasks.cells]
        first = 0
        while first < len(sizes):
            largest = int(sizes[first])  # they come first
            if not largest:
                break
            room = max(1, BLOCK_BYTES // (sides.element_size() * largest * max(sides.shape[1], tasks.pairs.shape[1])))
            some = slice(first, first + room)
            self._offer(sides, tasks.cells[some], tasks.pairs[some], largest, p, NearestRows(places, keys))
            first += room
        at = smallest_keys(keys.view(q, -1), keep)
        return NearestRows(places.view(q, -1).gather(1, at.ids), at.distances)

    def _offer(self, sides: Tensor, cells: Tensor, pairs: Tensor, largest: int, p: int, out: NearestRows) -> None:
        """The smallest keys of each pair of some tasks, into its line of `out`."""
        device, rows, kind = self.rows.device, self.rows, sides.dtype
        at = self.offsets[cells][:, None] + device.torch.arange(largest, device=device.name)  # (t, l)
        real = at < self.offsets[cells + 1][:, None]
        at = at.clamp(max=len(rows) - 1)
        ready = self.sides if self.sides is not None and kind == self.sides.dtype else None  # float64: a query far out
        block = rows.sides(at, kind) if ready is None else ready[at]  # (t, l, d)
        products = sides[pairs.clamp(min=0) // p] @ block.transpose(1, 2)  # (t, g, l)
        keys = rows.offset[at].to(kind)[:, None] - products * rows.scale[at].to(kind)[:, None]
        keys = keys.masked_fill_(~real[:, None], float("inf"))
        few = keys.topk(min(out.ids.shape[1], largest), 2, largest=False, sorted=False)
        asked = pairs >= 0
        where = pairs[asked]
        out.distances[where, : few.values.shape[2]] = few.values[asked]
        out.ids[where, : few.values.shape[2]] = at[:, None].expand_as(keys).gather(2, few.indices)[asked]

    def _tasks(self, cells: Tensor) -> _Tasks:
        """Tasks of the pairs of cells (q, p): pair i of query i // p."""
        torch, device = self.rows.device.torch, self.rows.device
        flat, n_cells = cells.reshape(-1), len(self.offsets) - 1
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=n_cells)
        group = int(min(_GROUP, max(1, len(flat) // n_cells)))
        tasks = (counts + group - 1) // group  # of each cell
        first, start = tasks.cumsum(0) - tasks, counts.cumsum(0) - counts
        own = flat[order]
        rank = torch.arange(len(flat), device=device.name) - start[own]
        pairs = torch.full((int(tasks.sum()), group), -1, dtype=torch.int64, device=device.name)
        pairs[first[own] + rank // group, rank % group] = order
        named = torch.repeat_interleave(torch.arange(n_cells, device=device.name), tasks)
        by_size = self.offsets.diff()[named].argsort(descending=True, stable=True)
        return _Tasks(named[by_size], pairs[by_size])


def assign_rows(landing: CellFinder, rows: Tensor, by_angle: bool) -> Tensor:
    """The cell (n,) of the nearest landmark of rows (n, d) that are on the device, a part at a time."""
    device = Device(str(rows.device))
    centres, found = landing.landmarks.float(), device.empty(len(rows), "int64")
    for part in parts_of(len(rows), min(BLOCK_BYTES // (8 * rows.shape[1]), BLOCK_BYTES // (4 * len(centres)))):
        exact = rows[part].double()
        lead = landing.leads(unit_rows(exact) if by_angle else exact).float()
        found[part] = nearest_centers(device, lead, centres).centres
    return found


OnHost = Callable[[NDArray, int], Any]  # (queries, k) -> what the CPU finds


def cell_finder(ground: Any, device: Device) -> CellFinder:
    """What tells cells apart, on the device."""
    torch, projection = device.torch, ground.projection
    basis = projection.basis[:, : projection.length]
    return CellFinder(
        device.put(projection.mean, torch.float64),
        device.put(basis, torch.float64) if basis.shape[1] else None,
        device.put(ground.landmarks, torch.float64),
        device.put(ground.finder().marks, torch.float64),
    )


def assign_array(ground: Any, device: Device, rows: NDArray) -> NDArray[np.int64]:
    """The cell (n,) of the nearest landmark of rows (n, d), found on the device."""
    with device.room(f"the cells of {len(rows):,} rows x {rows.shape[1]} columns", rows.nbytes):
        there = assign_rows(cell_finder(ground, device), device.put(rows), ground.distance.by_angle)
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
            if isinstance(held, EncodedBits):
                cells = CellRows(_coded(table.best, held, offsets, ground, device), names, offsets, None)
            else:
                rows = ExactRows.of(device, held, METRICS[ground.distance.name])
                full = table.has_full
                cells = CellRows.of(rows, names, offsets) if full else CellRows(rows, names, offsets, None)
        return DeviceCells(table, cell_finder(ground, device), cells, ground.distance)

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

    def nearest(self, queries: NDArray, k: int, probes: int, host: OnHost | None) -> NearestRows:
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
        cells, doubt = self.landing.probe(place_rows(queries, self.distance.by_angle), probes)
        places = self.cells.nearest(queries, cells, k).ids
        short = (places[:, -1] < 0).nonzero()[:, 0]
        if len(short) and probes < len(self.landing.landmarks):
            more = min(4 * probes, len(self.landing.landmarks))
            places[short], doubt[short] = self._found(queries[short], k, more)
        return places, doubt

    def looked(self, queries: Tensor, probes: int) -> float:
        """Rows of so many cells, a query (the mean): all of them are multiplied."""
        cells = self.landing.probe(place_rows(queries, self.distance.by_angle), probes).cells
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
            return NearestRows(ids, away)

        return resolve_ties(ListSearch(len(rows), nearest, spare=int(self.full)), queries, k)


def _coded(codes: Any, held: EncodedBits, offsets: Tensor, ground: Any, device: Device) -> CellCodes:
    """Codes about landmarks, in the order of cells, there."""
    torch, distance = device.torch, ground.distance
    cells = torch.repeat_interleave(torch.arange(len(offsets) - 1, device=device.name), offsets.diff())
    there = BitCodes(
        device, codes.frame.bits, held.words, held.factor, held.half if distance.order else None, bar=0.0, least=0.0
    )
    turn = codes.frame.turned(np.eye(codes.shape[1], dtype=np.float32))
    centres, mean, turn = (device.put(a, torch.float64) for a in (ground.centres(), ground.projection.mean, turn))
    return CellCodes.of(there, cells, centres, mean, turn, distance.shifts, distance.by_angle)
