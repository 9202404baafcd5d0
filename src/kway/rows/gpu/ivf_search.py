"""Inverted file (IVF) on a device: k-means, the cells that a query probes, and the k nearest rows of its cells.

    rows (n, d)      sorted by cell: those of cell g are offsets[g]:offsets[g + 1]; names (n,): their positions
    probe            keys o_c - p.m_c of projected queries p (float64), and the cells of the smallest keys
    tasks            a cell and up to GROUP queries that probe it: one product per task; tasks of similar size together
    keys             the k + m smallest of each query and cell, then of each query, verified as in exact_search.py

The cells are those of the CPU. `doubt` marks queries whose last cell and the next one are equally near up to the
rounding of the CPU's float32 keys: the CPU answers them, and it measures the rows found once more. If the rows exist
only on the device, the device decides.

If full rows are kept, the device searches them even if the CPU scans codes. If only codes are kept, the device answers
tensors by its own estimates, and the CPU answers arrays.

The k-means of kway.search.kmeans assigns and averages rows on the device. Sums are float64, and the CPU adds in another
order, so that centers agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.float32 import FLOAT32_SAFE
from kway.kernels.jit import frozen
from kway.rows.gpu import exact_search
from kway.rows.gpu.bit_codes import BitCodes, CellCodes, EncodedBits
from kway.rows.gpu.device import MAX_NEIGHBORS, Device, Tensor, row_blocks, rows_that_fit
from kway.rows.gpu.exact_search import NearestRows
from kway.rows.gpu.tensor_rows import TensorRows


class NearestCenters(NamedTuple):
    """The nearest center (n,) int64 of each row, and half the squared distance (n,) float32."""

    centers: Tensor
    gaps: Tensor


@dataclass(frozen=True)
class DeviceSample:
    """Rows (n, m) float32 on a device, for k-means."""

    device: Device
    rows: Tensor

    @staticmethod
    def build(device: Device, rows: NDArray | TensorRows) -> DeviceSample:
        """Copy the rows to the device, unless they are on it."""
        return DeviceSample(device, device.put(rows.tensor if isinstance(rows, TensorRows) else rows).float())

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: NDArray) -> NDArray:
        """Return some of the rows, on the host."""
        return self.device.fetch(self.rows[self.device.put(which)])

    def reach(self) -> float:
        """Return half the squared length of the longest row."""
        return float(0.5 * self.rows.square().sum(1).max())

    def nearest(self, centers: NDArray) -> tuple[NDArray, NDArray]:
        """Return the nearest center (n,) and half the squared distance (n,), on the host."""
        found = nearest_centers(self.device, self.rows, self.device.put(centers))
        return self.device.fetch(found.centers), self.device.fetch(found.gaps)

    def means(self, near: NDArray, centers: NDArray) -> NDArray:
        """Return the mean (c, m) float32 of the rows of each center; a center without rows stays unchanged."""
        torch, device = self.device.torch, self.device
        codes, given = device.put(near), device.put(centers)
        counts = torch.bincount(codes, minlength=len(given)).double()[:, None]
        sums = device.zeros(given.shape, "float64").index_add_(0, codes, self.rows.double())
        return device.fetch(torch.where(counts > 0, (sums / counts.clamp(min=1)).float(), given))


def nearest_centers(device: Device, rows: Tensor, centers: Tensor) -> NearestCenters:
    """Return the nearest of centers (c, m) to each of rows (n, m), both float32."""
    near, gaps = device.empty(len(rows), "int64"), device.empty(len(rows))
    half = 0.5 * centers.square().sum(1)
    with device.full_precision():
        for part in row_blocks(len(rows), 4 * len(centers)):
            block = rows[part]
            keys = half - block @ centers.T  # (b, c)
            least = keys.min(1)
            near[part] = least.indices
            gaps[part] = (least.values + 0.5 * block.square().sum(1)).clamp(min=0.0)
    return NearestCenters(near, gaps)


class ChosenCells(NamedTuple):
    """Cells (q, p) of each query, nearest first, and whether (q,) the CPU may choose another cell."""

    cells: Tensor
    doubt: Tensor


class _Tasks(NamedTuple):
    """Cells (t,) and the pairs of query and cell (t, g) per task, padded with -1; large cells first."""

    cells: Tensor
    pairs: Tensor


@dataclass(frozen=True)
class CellFinder:
    """Finds the nearest cells: z = x - mean, p = z basis (or z without a basis), keys o - p.m; float64."""

    mean: Tensor  # (d,)
    basis: Tensor | None  # (d, m)
    landmarks: Tensor  # (c, m)
    offset: Tensor  # (c,)

    def project(self, placed: Tensor) -> Tensor:
        """Return p (q, m) of placed rows (q, d) float64."""
        z = placed - self.mean
        return z if self.basis is None else z @ self.basis

    def probe(self, placed: Tensor, probes: int) -> ChosenCells:
        """Return the nearest cells of placed queries (q, d) float64."""
        lead = self.project(placed)
        keys = self.offset - lead @ self.landmarks.T  # (q, c)
        count = min(probes + 1, len(self.landmarks))
        at = keys.topk(count, 1, largest=False, sorted=True)
        if count == probes:
            return ChosenCells(at.indices, at.values[:, 0] != at.values[:, 0])
        width = float(len(self.mean) ** 0.5 + lead.shape[1] ** 0.5 + 4)
        longest = float(self.landmarks.square().sum(1).max().sqrt())
        norms = (placed - self.mean).square().sum(1).sqrt()
        rounding = 8 * 2.0**-24 * width * (norms + longest) * longest
        return ChosenCells(at.indices[:, :probes], at.values[:, probes] - at.values[:, probes - 1] <= rounding)


@dataclass(frozen=True)
class CellRows:
    """Full rows or codes, sorted by cell."""

    rows: exact_search.ExactRows | CellCodes
    names: Tensor  # (n,) int64
    offsets: Tensor  # (c + 1,) int64
    operands: Tensor | None  # (n, d) the rows in products, without their scale; None: computed when they are read

    @staticmethod
    def build(rows: exact_search.ExactRows, names: Tensor, offsets: Tensor) -> CellRows:
        """Return full rows in this order; their operands are the rows themselves if there is no center."""
        if rows.center is None and rows.rows.dtype == rows.scale.dtype:
            return CellRows(rows, names, offsets, rows.rows)
        operands = rows.device.torch.empty(rows.rows.shape, dtype=rows.scale.dtype, device=rows.device.name)
        for part in row_blocks(len(rows), 8 * operands.shape[1]):
            operands[part] = rows.row_operands(part, operands.dtype)
        return CellRows(rows, names, offsets, operands)

    def nearest(self, queries: Tensor, cells: Tensor, k: int) -> NearestRows:
        """Return places and distances (q, k) by (distance, position), padded with -1 and inf.

        queries (q, d) are float64, and cells (q, p) are the cells that they probe.
        """
        answers, keep = exact_search.Answers(self.rows.device, len(queries), k), k + exact_search.EXTRA_KEPT
        while len(answers.left):
            batch = rows_that_fit(8 * keep * cells.shape[1])
            answers.search(batch, lambda some, keep=keep: self._filtered(queries[some], cells[some], k, keep))
            keep *= exact_search.MORE_KEPT
        return answers.found

    def _filtered(self, queries: Tensor, cells: Tensor, k: int, keep: int) -> tuple[NearestRows, Tensor]:
        """Return the k nearest of the rows of the smallest keys, and whether (q,) no other row can be nearer."""
        rows = self.rows
        operands = rows.query_operands(queries)
        norms = operands.square().sum(1).sqrt_()
        dtype = rows.scale.dtype if float(norms.max()) < FLOAT32_SAFE[1] else rows.device.torch.float64
        places, keys = self._smallest(operands.to(dtype), cells, keep)
        real = keys.isfinite()
        order = self.names[places].where(real, len(self.names)).argsort(1)  # equal distances go by position
        places, real, keys = places.gather(1, order), real.gather(1, order), keys.gather(1, order)
        away = rows.measure(queries, places).where(real, float("inf"))
        found = exact_search.sort_nearest(away, places.where(real, -1), k)
        limit = rows.key_limit(found.distances[:, -1], norms)
        return found, ~real.all(1) | (keys.double().amax(1) > limit)  # with few rows in the cells, all are kept

    def _smallest(self, operands: Tensor, cells: Tensor, keep: int) -> NearestRows:
        """Return places and keys (q, keep) of the smallest keys, padded with inf."""
        device, (q, p) = self.rows.device, cells.shape
        keys = device.torch.full((q * p, keep), float("inf"), dtype=operands.dtype, device=device.name)
        places = device.zeros((q * p, keep), "int64")
        tasks = self._tasks(cells)
        sizes = self.offsets.diff()[tasks.cells]
        first = 0
        while first < len(sizes):
            largest = int(sizes[first])  # tasks are sorted by size
            if not largest:
                break
            widest = max(operands.shape[1], tasks.pairs.shape[1])
            room = rows_that_fit(operands.element_size() * largest * widest)
            some = slice(first, first + room)
            self._multiply(operands, tasks.cells[some], tasks.pairs[some], largest, p, NearestRows(places, keys))
            first += room
        at = exact_search.smallest_keys(keys.view(q, -1), keep)
        return NearestRows(places.view(q, -1).gather(1, at.ids), at.distances)

    def _multiply(self, operands: Tensor, cells: Tensor, pairs: Tensor, largest: int, p: int, out: NearestRows) -> None:
        """Write the smallest keys of each pair of some tasks to its line of `out`."""
        device, rows, dtype = self.rows.device, self.rows, operands.dtype
        at = self.offsets[cells][:, None] + device.torch.arange(largest, device=device.name)  # (t, l)
        real = at < self.offsets[cells + 1][:, None]
        at = at.clamp(max=len(rows) - 1)
        ready = self.operands if self.operands is not None and dtype == self.operands.dtype else None
        block = rows.row_operands(at, dtype) if ready is None else ready[at]  # (t, l, d)
        products = operands[pairs.clamp(min=0) // p] @ block.transpose(1, 2)  # (t, g, l)
        keys = rows.offset[at].to(dtype)[:, None] - products * rows.scale[at].to(dtype)[:, None]
        keys = keys.masked_fill_(~real[:, None], float("inf"))
        few = keys.topk(min(out.ids.shape[1], largest), 2, largest=False, sorted=False)
        used = pairs >= 0
        where = pairs[used]
        out.distances[where, : few.values.shape[2]] = few.values[used]
        out.ids[where, : few.values.shape[2]] = at[:, None].expand_as(keys).gather(2, few.indices)[used]

    def _tasks(self, cells: Tensor) -> _Tasks:
        """Return the tasks of cells (q, p); pair i belongs to query i // p."""
        torch, device = self.rows.device.torch, self.rows.device
        flat, n_cells = cells.reshape(-1), len(self.offsets) - 1
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=n_cells)
        group = int(min(exact_search.GROUP, max(1, len(flat) // n_cells)))
        tasks = (counts + group - 1) // group  # per cell
        first, start = tasks.cumsum(0) - tasks, counts.cumsum(0) - counts
        own = flat[order]
        rank = torch.arange(len(flat), device=device.name) - start[own]
        pairs = torch.full((int(tasks.sum()), group), -1, dtype=torch.int64, device=device.name)
        pairs[first[own] + rank // group, rank % group] = order
        named = torch.repeat_interleave(torch.arange(n_cells, device=device.name), tasks)
        by_size = self.offsets.diff()[named].argsort(descending=True, stable=True)
        return _Tasks(named[by_size], pairs[by_size])


def assign_rows(finder: CellFinder, rows: Tensor, by_angle: bool) -> Tensor:
    """Return the cell (n,) of the nearest landmark of rows (n, d) on the device, block by block."""
    device = Device(str(rows.device))
    centers, found = finder.landmarks.float(), device.empty(len(rows), "int64")
    for part in row_blocks(len(rows), max(8 * rows.shape[1], 4 * len(centers))):
        lead = finder.project(exact_search.place_rows(rows[part], by_angle)).float()
        found[part] = nearest_centers(device, lead, centers).centers
    return found


OnHost = Callable[[NDArray, int], Any]  # (queries, k) -> what the CPU finds


def cell_finder(ground: Any, device: Device) -> CellFinder:
    """Copy what finds the nearest cells to the device."""
    torch, projection = device.torch, ground.projection
    basis = projection.basis[:, : projection.length]
    return CellFinder(
        device.put(projection.mean, torch.float64),
        device.put(basis, torch.float64) if basis.shape[1] else None,
        device.put(ground.landmarks, torch.float64),
        device.put(ground.finder().marks, torch.float64),
    )


def assign_array(ground: Any, device: Device, rows: NDArray) -> NDArray[np.int64]:
    """Return the cell (n,) of the nearest landmark of rows (n, d) on the host, computed on the device."""
    with device.room(f"the cells of {len(rows):,} rows x {rows.shape[1]} columns", rows.nbytes):
        cells = assign_rows(cell_finder(ground, device), device.put(rows), ground.distance.by_angle)
        return device.fetch(cells)


@dataclass(frozen=True)
class DeviceCells:
    """An inverted file on a device: full rows or codes, sorted by cell."""

    table: Any  # the cells of the index: CellTable, BitCells or FarTable of kway.search
    finder: CellFinder
    cells: CellRows
    distance: Any

    @staticmethod
    def over(table: Any, ground: Any, device: Device) -> DeviceCells:
        """Copy the rows to the device, unless they are on it, and return the search."""
        n, d = table.best.shape
        with device.room(f"landmark cells of {n:,} rows x {d} columns", table.device_bytes()):
            names, offsets, rows = device.put(table.names), device.put(table.offsets), table.on_device(device)
            if isinstance(rows, EncodedBits):
                cells = CellRows(_cell_codes(table.best, rows, offsets, ground, device), names, offsets, None)
            else:
                exact = exact_search.ExactRows.build(device, rows, exact_search.METRICS[ground.distance.name])
                build = CellRows.build if table.has_full else partial(CellRows, operands=None)
                cells = build(exact, names, offsets)
        return DeviceCells(table, cell_finder(ground, device), cells, ground.distance)

    @property
    def full(self) -> bool:
        """Whether full rows are on the device."""
        return bool(self.table.has_full)

    @property
    def most_listed(self) -> int:
        """Neighbors that the device lists for arrays; the CPU searches codes without full rows."""
        return MAX_NEIGHBORS if self.full else 0

    @property
    def device(self) -> Device:
        """The device of the rows."""
        return self.cells.rows.device

    def nearest(self, queries: NDArray, k: int, probes: int, host: OnHost | None) -> NearestRows:
        """Return positions and distances (q, k) of the nearest rows of each query's cells, padded with -1 and inf."""
        device, exact = self.device, frozen(queries.astype(np.float64))
        with device.room(f"a search of {len(queries):,} queries"):
            found, open_queries = self._search(device.put(exact), k, probes)
            places, doubt, names = map(device.fetch, (found, open_queries, self.cells.names[found]))
        distances = self.table.measure(self.distance, exact, places)
        missing = places < 0
        nearest = exact_search.by_distance(np.where(missing, -1, names), np.where(missing, np.inf, distances))
        unsure = np.flatnonzero(doubt)
        if len(unsure) and host is not None:
            nearest.ids[unsure], nearest.distances[unsure] = host(queries[unsure], k)
        return nearest

    def _search(self, queries: Tensor, k: int, probes: int) -> tuple[Tensor, Tensor]:
        """Return places (q, k), padded with -1, and doubt (q,); queries with too few rows probe four times as many."""
        cells, doubt = self.finder.probe(exact_search.place_rows(queries, self.distance.by_angle), probes)
        places = self.cells.nearest(queries, cells, k).ids
        short = (places[:, -1] < 0).nonzero()[:, 0]
        if len(short) and probes < len(self.finder.landmarks):
            more = min(4 * probes, len(self.finder.landmarks))
            places[short], doubt[short] = self._search(queries[short], k, more)
        return places, doubt

    def answer(self, queries: Tensor, k: int, probes: int, host: OnHost | None) -> Any:
        """Return the k nearest by (distance in float32, position), as tensors; the host answers queries in doubt."""
        rows, device = self.cells.rows, self.device

        def nearest(some: Tensor, k: int) -> Any:
            exact = some.double()
            places, doubt = self._search(exact, k, probes)
            away = rows.measure(exact, places.clamp(min=0)).where(places >= 0, float("inf"))
            ids = self.cells.names[places.clamp(min=0)].where(places >= 0, len(rows))
            unsure = doubt.nonzero()[:, 0] if host is not None else ()
            if host is not None and len(unsure):
                ids[unsure], away[unsure] = map(device.put, host(device.fetch(some[unsure]), k))
            return NearestRows(ids, away)

        return exact_search.resolve_ties(exact_search.ListSearch(len(rows), nearest, spare=int(self.full)), queries, k)


def _cell_codes(codes: Any, encoded: EncodedBits, offsets: Tensor, ground: Any, device: Device) -> CellCodes:
    """Return codes relative to landmarks, sorted by cell."""
    torch, distance = device.torch, ground.distance
    cells = torch.repeat_interleave(torch.arange(len(offsets) - 1, device=device.name), offsets.diff())
    half = encoded.half if distance.order else None
    searched = BitCodes(device, codes.frame.bits, encoded.words, encoded.factor, half, bar=0.0, least=0.0)
    rotation = codes.frame.rotate(np.eye(codes.shape[1], dtype=np.float32))
    arrays = (ground.centers(), ground.projection.mean, rotation)
    centers, mean, rotation = (device.put(a, torch.float64) for a in arrays)
    return CellCodes.build(searched, cells, centers, mean, rotation, distance.shifts, distance.by_angle)
