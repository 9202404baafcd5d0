"""Landmark cells: rows ordered by cell, and the pairs of a query and a cell that it looks into.

CellGroups    pairs grouped so that each group is one matrix product: queries pairs[starts[i]:starts[i + 1]] look into
              cells[i]
CellBounds    which cells hold nothing near a query, if landmarks tell
CellTable     rows in the order of their cells, with what rules most of them out before any is measured

    offsets (c + 1,)   rows offsets[g]:offsets[g + 1] are those of cell g
    names (n,)         their positions in the index
    short, long        projections (projection.py) in the distance's space; codes replace the long ones
    errors (n,)        how far a row lies from its code, if both are kept

Under manhattan the scan is the distance itself: `short` holds the rows in float32, and instead of norms there is what
that hides of each row and query, ||x - float32(x)||_1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.cells import UNSURE, CellFinder, CellQueries, CellRows, cell_radii, pass_over, search_cells
from kway.kernels.jit import frozen
from kway.kernels.one_query import search_alone
from kway.kernels.topk import EMPTY
from kway.rows.gpu.device import Device
from kway.search.block_scan import measured_rows, sum_rounding
from kway.search.codecs.int8 import ByteRows
from kway.search.codecs.stores import Store, StoredRows
from kway.search.distances import Distance
from kway.search.kmeans import TILE_PRODUCTS, half_squares, in_cell_order
from kway.search.projection import Projected, Projection
from kway.search.results import Heaps
from kway.threads import pmap, shares, spans


class CellGroups(NamedTuple):
    """Queries pairs[starts[i]:starts[i + 1]] look into cells[i]."""

    starts: NDArray[np.int64]
    cells: NDArray[np.int64]
    pairs: NDArray[np.int64]


def one_by_one(cells: NDArray[np.int64]) -> CellGroups:
    """Groups of one pair each, nearest cells first."""
    q, probes = cells.shape
    return CellGroups(np.arange(q * probes + 1), cells.ravel(), np.repeat(np.arange(q), probes))


def by_cell(cells: NDArray[np.int64], n_cells: int) -> CellGroups:
    """Groups of the pairs of each cell; pairs with cells from n_cells on, which there are not, are left out.

    >>> starts, _, pairs = by_cell(np.array([[0, 1], [1, 2]]), n_cells=2)
    >>> pairs[starts[1] : starts[2]]
    array([0, 1])
    """
    flat = np.minimum(cells.ravel(), n_cells)  # nobody (NOBODY) is no cell either
    narrow = flat.astype(np.uint16) if n_cells < 2**16 else flat  # 16 bits sort by radix, five times faster
    ends = np.cumsum(np.bincount(flat, minlength=n_cells)[:n_cells])
    pairs = np.argsort(narrow, kind="stable")[: ends[-1]] // max(1, cells.shape[1])
    return CellGroups(np.concatenate([[0], ends]), np.arange(n_cells), pairs)


def nearest_first(keys: NDArray[np.float32]) -> NDArray[np.int64]:
    """Cells (q, c) in the order of their keys (q, c), equal ones by number.

    Key and number make one integer, since sorting integers takes a fifth of the time of `argsort`.

    >>> nearest_first(np.array([[0.5, -2.0, -1.0, 0.5]], np.float32))
    array([[1, 2, 0, 3]])
    """
    both = keys.view(np.int32).astype(np.int64)
    both ^= (both >> 63) & 0x7FFFFFFF  # bits of negative floats grow the wrong way
    both <<= 32
    both |= np.arange(keys.shape[1])
    both.sort(axis=1)
    both &= 0xFFFFFFFF
    return both


@dataclass(frozen=True)
class CellBounds:
    """What tells which cells hold nothing near: landmarks (c, m) and the largest distance (c,) of a row to its own.

    reach: the largest norm of a row; nearest: whether rows are in the cell of their nearest landmark.
    """

    distance: Distance
    landmarks: NDArray[np.float32]
    radii: NDArray[np.float32]
    reach: float
    nearest: bool

    def near(
        self, ring: slice, cells: NDArray[np.int64], keys: NDArray, queries: Projected, worst: NDArray
    ) -> NDArray[np.int64]:
        """Of each query's cells (q, any), nearest first, those of a ring; c where no row is within worst (q,).

        keys (q, any): ||m||^2 / 2 - q.m of their landmarks; worst, under the distance, is EMPTY where there is none.
        """
        sure = worst + UNSURE if self.distance.by_angle else worst  # 1 - cos loses digits where rows nearly coincide
        gaps = np.where(worst < EMPTY, np.minimum(self.distance.gap(sure), 1e100), 1e100)  # squares without overflow
        squares = np.einsum("ij,ij->i", queries.lead, queries.lead)
        blurs = 1e-5 * (queries.norms + self.reach) ** 2
        left = np.ascontiguousarray(cells[:, ring])
        wide = [np.ascontiguousarray(array, np.float64) for array in (keys[:, ring], keys[:, 0], squares)]
        pass_over(left, wide[0], frozen(cells[:, 0]), *wide[1:], gaps, blurs, self.landmarks, self.radii, self.nearest)
        return left


_NO_FLOATS = frozen(np.empty(0, dtype=np.float32))
_NO_RADII, _NO_TILE = np.empty(0, dtype=np.float32), (np.empty((0, 0), dtype=np.float32), np.empty(0))
_NO_CODES = ByteRows(np.empty((0, 0), dtype=np.int8), _NO_FLOATS, _NO_FLOATS)


class Ground(NamedTuple):
    """Where rows are put: the distance, the projection, the landmarks (c, m) among short ones, and the store."""

    distance: Distance
    projection: Projection
    landmarks: NDArray[np.float32]
    store: Store

    def finder(self) -> CellFinder:
        """What finds the cells of queries."""
        half = half_squares(self.landmarks)
        marks = half if self.distance.order else frozen(np.zeros_like(half))
        mean, basis = frozen(self.projection.mean), self.projection.basis
        middle = frozen(np.einsum("d,dm->m", mean, basis, dtype=np.float64))
        return CellFinder(mean, basis, middle, self.landmarks, marks)

    def centres(self) -> NDArray[np.float32]:
        """The landmarks (c, d) among the rows, in the distance's space."""
        basis = self.projection.basis[:, : self.projection.length]
        moved = self.landmarks @ basis.T if basis.shape[1] else self.landmarks
        return frozen((self.projection.mean + moved).astype(np.float32))


@dataclass(frozen=True)
class CellTable:
    """Rows in the order of their cells."""

    distance: Distance
    kept: StoredRows
    names: NDArray[np.int64]
    offsets: NDArray[np.int64]
    short: NDArray[np.float32]
    long: NDArray[np.float32]
    half: NDArray[np.float32]  # (n,) half squares of the norms
    errors: NDArray[np.float32]
    bounds: CellBounds | None
    shift: NDArray[np.float64] | None  # (d,) of manhattan's rows, where float32 would not hold them as they are
    reach: float  # the largest norm, or what float32 hides of a row at most
    slack: float  # rounding of a product, relative to the norms
    largest: int  # rows of the largest cell
    views: tuple[NDArray, ...]  # rows, codes, steps, errors and centre as the kernel reads them, empty where not kept

    @staticmethod
    def keep(rows: NDArray, cells: NDArray[np.int64], ground: Ground) -> StoredRows:
        """Rows (n, d) as the store keeps them, whatever their cells (n,)."""
        return ground.store.keep(rows, ground.distance)

    @staticmethod
    def from_arrays(rows: Any, arrays: dict[str, NDArray], ground: Ground) -> CellTable:
        """The table of a model file."""
        kept = ground.store.load(rows, arrays, ground.distance)
        return CellTable.of(kept, np.asarray(arrays["cells"]), ground)

    @staticmethod
    def of(kept: StoredRows, cells: NDArray[np.int64], ground: Ground) -> CellTable:
        """Rows in the order of their positions and their cells (n,), put into the order of cells."""
        distance, projection, landmarks, _ = ground
        order, offsets = ordered_by_cell(cells, len(landmarks))
        ordered = _taken(kept, order)
        errors = _NO_FLOATS
        if ordered.codes is not None and ordered.full is not None:
            errors = frozen((ordered.codes.errors(ordered.full, distance) * (1 + 1e-6)).astype(np.float32))
        view = _product_view if distance.product else _tile_view
        short, long, norms, shift = view(ordered, projection, distance)
        bounded, reach = distance.product and distance.order > 0, float(norms.max(initial=0.0))
        bounds = None
        if bounded:
            radii = cell_radii(frozen(short), landmarks, offsets)
            bounds = CellBounds(distance, landmarks, radii, reach, nearest=ordered.full is not None)
        return CellTable(
            distance, ordered, frozen(order), offsets, frozen(short), frozen(long),
            half=frozen((0.5 * norms**2 if bounded else np.zeros_like(norms)).astype(np.float32)),
            errors=errors,
            bounds=bounds,
            shift=shift,
            reach=reach,
            slack=sum_rounding(short.shape[1], np.float32) + 1e-5,  # the rotation rounds too
            largest=max(1, int(np.diff(offsets).max())),
            views=_kernel_views(ordered, errors),
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included."""
        own = () if not self.distance.product and self.shift is None else (self.short,)  # else the rows themselves
        arrays = (*own, self.long, self.half, self.errors, self.names, self.offsets)
        return int(self.kept.nbytes + sum(array.nbytes for array in arrays))

    @property
    def best(self) -> Any:
        """The rows (n, d) in this order as precisely as they are kept."""
        return self.kept.best

    @property
    def has_full(self) -> bool:
        """Whether full rows are kept."""
        return self.kept.has_full

    def on_device(self, device: Device) -> Any:
        """The rows on a device, in the order of their cells."""
        return self.kept.on_device(device)

    def device_bytes(self) -> int:
        """Bytes of a search on a device: the rows, what enters its products, and room to make it."""
        return (3 if self.has_full else 2) * int(self.best.nbytes)

    def measure(self, distance: Distance, queries: NDArray, places: NDArray[np.int64]) -> NDArray[np.float64]:
        """Distances (q, k) of queries (q, d) to the rows at places (q, k), by the CPU's kernel."""
        return measured_rows(distance, queries, frozen(self.kept.full), places)

    @property
    def ends_exact(self) -> bool:
        """Whether all cells together hold the answer that is promised: that of the full rows."""
        return self.kept.full is not None

    @property
    def positions(self) -> NDArray[np.int64]:
        """(n,) where each position of the index is in the table."""
        places = np.empty(len(self.names), dtype=np.int64)
        places[self.names] = np.arange(len(self.names))
        return places

    @property
    def cells(self) -> NDArray[np.int64]:
        """The cell (n,) of each row, in the order of their positions."""
        cells = np.empty(len(self.names), dtype=np.int64)
        cells[self.names] = np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))
        return cells

    def rows(self) -> StoredRows:
        """The rows in the order of their positions."""
        return _taken(self.kept, self.positions)

    def more(self, rows: NDArray, cells: NDArray[np.int64], ground: Ground) -> StoredRows:
        """More rows (n, d), kept like these."""
        return self.kept.like(rows)

    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file."""
        return self.rows().arrays() | {"cells": self.cells}

    def look(self, exact: NDArray[np.float64], projected: Projected, heaps: Heaps, groups: CellGroups) -> int:
        """Offer the rows of cells to groups of queries (q, d); rows measured in full."""
        starts, cells, pairs = groups
        if not len(pairs):
            return 0
        short, norms = (projected.short, projected.norms) if self.distance.product else self._tiled(exact)
        tile = np.empty(max(TILE_PRODUCTS, self.largest), dtype=np.float32)
        asked = CellQueries(short, projected.long, exact, norms)
        return int(search_cells(self.distance.code, starts, cells, pairs, asked, self._table, tile, *heaps))

    def look_alone(
        self, exact: NDArray[np.float64], placed: NDArray[np.float64], finder: CellFinder, probes: int, heaps: Heaps,
    ) -> int:  # fmt: skip
        """Offer each query (q, d) by itself the rows of its nearest cells; rows measured in full.

        Cells of full rows are too small for more than one thread.
        """
        bounds, tiled = self.bounds, _NO_TILE if self.distance.product else self._tiled(exact)
        radii, nearest = (_NO_RADII, False) if bounds is None else (bounds.radii, bounds.nearest)
        return int(
            search_alone(
                self.distance.code, probes, placed, finder, *tiled, exact, self._table, radii, nearest, self.largest,
                *heaps,
            )
        )  # fmt: skip

    @cached_property
    def _table(self) -> CellRows:
        """As the kernels read it."""
        rows, codes, steps, errors, centre = self.views
        return CellRows(
            self.short, self.long, self.half, rows, codes, steps, errors, centre, self.names, self.offsets, self.reach,
            self.slack,
        )  # fmt: skip

    def _tiled(self, exact: NDArray[np.float64]) -> Tiled:
        """Queries (q, d) as a scan reads them that is no product."""
        return Tiled.of(exact, self.shift)


def _kernel_views(kept: StoredRows, errors: NDArray[np.float32]) -> tuple[NDArray, ...]:
    """Rows, codes, steps, errors and centre."""
    codes = kept.codes if isinstance(kept.codes, ByteRows) else _NO_CODES
    rows = np.empty((0, kept.shape[1]), np.float32) if kept.full is None else kept.full
    return tuple(frozen(array) for array in (rows, codes.codes, codes.scale, errors, codes.center))


class Tiled(NamedTuple):
    """Rows (n, d) in float32 about a shift, and (n,) what that hides of them: ||z - float32(z)||_1, z = x - shift."""

    values: NDArray[np.float32]
    lost: NDArray[np.float64]

    @staticmethod
    def of(rows: NDArray, shift: NDArray[np.float64] | None) -> Tiled:
        """Rows of either float type; float32 that is not shifted loses nothing."""
        if shift is None and rows.dtype == np.float32:
            return Tiled(rows, np.zeros(len(rows)))
        values, lost = np.empty(rows.shape, np.float32), np.empty(len(rows))
        for part in spans(len(rows), max(64, 2**18 // rows.shape[1])):
            z = rows[part] if shift is None else rows[part] - shift
            values[part] = z
            lost[part] = np.abs(z - values[part]).sum(axis=1) + 2.0**-52 * np.abs(z).sum(axis=1)
        return Tiled(values, lost)


class _View(NamedTuple):
    """What the scan reads of rows in cell order; shift (d,) is None where they are read where they lie.

    norms (n,): what float32 hides of the rows, where they are no projections.
    """

    short: NDArray[np.float32]
    long: NDArray[np.float32]
    norms: NDArray[np.float64]
    shift: NDArray[np.float64] | None


def _product_view(kept: StoredRows, projection: Projection, distance: Distance) -> _View:
    """Projections, made a part at a time."""
    rows, out = kept.best, projection.room(len(kept), long=kept.codes is None)

    def work(part: slice) -> None:
        projection.fill(distance.place(rows[part]), out.part(part))

    pmap(work, spans(len(kept), max(64, 2**20 // kept.shape[1])))
    return _View(*out, None)


def _tile_view(kept: StoredRows, projection: Projection, distance: Distance) -> _View:
    """The rows themselves, in float32 and about the mean where they have more digits."""
    shift = None if kept.full.dtype == np.float32 else projection.mean
    tiled = Tiled.of(kept.full, shift)
    return _View(tiled.values, np.empty((len(kept), 0), dtype=np.float32), tiled.lost, shift)


class RowOrder(NamedTuple):
    """Positions (n,) ordered by cell, and where each cell begins (c + 1,)."""

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]


def ordered_by_cell(cells: NDArray[np.int64], n_cells: int) -> RowOrder:
    """The order of rows of these cells (n,)."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=n_cells))])
    return RowOrder(in_cell_order(cells, n_cells), frozen(offsets))


def _taken(kept: StoredRows, order: NDArray[np.int64]) -> StoredRows:
    """kept.take(order), the full rows on all cores."""
    return StoredRows(taken(kept.full, order), None if kept.codes is None else kept.codes.take(order))


def taken(rows: NDArray | None, order: NDArray[np.int64]) -> NDArray | None:
    """rows[order] on all cores, None of None."""
    if rows is None:
        return None
    out = np.empty((len(order), rows.shape[1]), dtype=rows.dtype)

    def work(part: slice) -> None:
        np.take(rows, order[part], axis=0, out=out[part], mode="clip")  # "clip" writes straight into out

    pmap(work, shares(len(order), least=1024))
    return frozen(out)
