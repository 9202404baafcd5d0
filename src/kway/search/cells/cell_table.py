"""CellTable: rows ordered by cell, with what rules most of them out before any is measured.

    offsets (c + 1,)   rows offsets[g]:offsets[g + 1] are those of cell g
    names (n,)         their positions in the index
    short, long        projections (projection.py) in the distance's space; codes stand in for the long ones
    errors (n,)        how far a row lies from its code, where both are kept
    bounds             which cells hold nothing near a query (cell_groups.py), where landmarks tell

Under manhattan the scan is the distance itself: `short` holds the rows in float32, and instead of norms there is what
that hides of each row and query, ||x - float32(x)||_1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.cell_scan import search_cells
from kway.compute.kernels.cells import cell_radii
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.one_query import search_alone
from kway.compute.threads import pmap, shares, spans
from kway.search.blocks import sum_rounding
from kway.search.cells.cell_groups import CellBounds, CellGroups
from kway.search.cells.kmeans import half_squares, in_cell_order
from kway.search.cells.projection import Projected, Projection
from kway.search.heaps import Heaps
from kway.search.spaces.distances import Distance
from kway.search.stores.base import Store
from kway.search.stores.int8 import ByteRows
from kway.search.stores.kept import KeptRows

_TILE = 2**17  # products of one group: 512 kB

_NO_FLOATS = frozen(np.empty(0, dtype=np.float32))
_NO_RADII, _NO_TILE = np.empty(0, dtype=np.float32), (np.empty((0, 0), dtype=np.float32), np.empty(0))
_NO_CODES = ByteRows(np.empty((0, 0), dtype=np.int8), _NO_FLOATS, _NO_FLOATS)


class CellFinder(NamedTuple):
    """What finds the nearest cells of a query: mean (d,), basis (d, M or 0), landmarks (c, m) and marks (c,).

    middle (M or 0,) is mean times basis; marks less products are the keys of landmarks.
    """

    mean: NDArray[np.float64]
    basis: NDArray[np.float32]
    middle: NDArray[np.float64]
    landmarks: NDArray[np.float32]
    marks: NDArray[np.float32]


class Ground(NamedTuple):
    """Where rows are put: the distance, the projection, the landmarks (c, m) among short ones, and the store."""

    distance: Distance
    projection: Projection
    landmarks: NDArray[np.float32]
    store: Store | None
    n_jobs: int | None = None

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
    kept: KeptRows
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
    def keep(rows: NDArray, cells: NDArray[np.int64], ground: Ground) -> KeptRows:
        """Rows (n, d) as the store keeps them, whatever their cells (n,)."""
        return KeptRows.of(rows, ground.store, ground.distance)

    @staticmethod
    def from_arrays(rows: Any, arrays: dict[str, NDArray], ground: Ground) -> CellTable:
        """The table of a model file."""
        kept = KeptRows.from_arrays(rows, ground.store, ground.distance, arrays)
        return CellTable.of(kept, np.asarray(arrays["cells"]), ground)

    @staticmethod
    def of(kept: KeptRows, cells: NDArray[np.int64], ground: Ground) -> CellTable:
        """Rows in the order of their positions and their cells (n,), put into the order of cells."""
        distance, projection, landmarks, _, n_jobs = ground
        order, offsets = ordered_by_cell(cells, len(landmarks))
        ordered = _taken(kept, order, n_jobs)
        errors = _NO_FLOATS
        if ordered.codes is not None and ordered.full is not None:
            errors = frozen((ordered.codes.errors(ordered.full, distance) * (1 + 1e-6)).astype(np.float32))
        view = _product_view if distance.product else _tile_view
        short, long, norms, shift = view(ordered, projection, distance, n_jobs)
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

    def rows(self) -> KeptRows:
        """The rows in the order of their positions."""
        return _taken(self.kept, self.positions)

    def more(self, rows: NDArray, cells: NDArray[np.int64], ground: Ground) -> KeptRows:
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
        tile = np.empty(max(_TILE, self.largest), dtype=np.float32)
        return int(
            search_cells(
                self.distance.code, starts, cells, pairs, short, projected.long, exact, norms, self.short, self.long,
                self.half, *self.views, self.names, self.offsets, self.reach, self.slack, tile, *heaps,
            )
        )  # fmt: skip

    def look_alone(
        self, exact: NDArray[np.float64], placed: NDArray[np.float64], finder: CellFinder, probes: int, heaps: Heaps,
        n_jobs: int | None,
    ) -> int:  # fmt: skip
        """Offer each query (q, d) by itself the rows of its nearest cells; rows measured in full.

        Cells of full rows are too small for more than one thread.
        """
        bounds, tiled = self.bounds, _NO_TILE if self.distance.product else self._tiled(exact)
        radii, nearest = (_NO_RADII, False) if bounds is None else (bounds.radii, bounds.nearest)
        return int(
            search_alone(
                self.distance.code, probes, placed, *finder, *tiled, exact, self.short, self.long, self.half,
                *self.views, self.names, self.offsets, radii, nearest, self.reach, self.slack, self.largest, *heaps,
            )
        )  # fmt: skip

    def _tiled(self, exact: NDArray[np.float64]) -> Tiled:
        """Queries (q, d) as a scan reads them that is no product."""
        return Tiled.of(exact, self.shift)


def _kernel_views(kept: KeptRows, errors: NDArray[np.float32]) -> tuple[NDArray, ...]:
    """Rows, codes, steps, errors and centre."""
    codes = kept.codes if isinstance(kept.codes, ByteRows) else _NO_CODES
    rows = np.empty((0, kept.shape[1]), np.float32) if kept.full is None else kept.full
    return tuple(frozen(array) for array in (rows, codes.codes, codes.scale, errors, codes.centre))


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


def _product_view(kept: KeptRows, projection: Projection, distance: Distance, n_jobs: int | None) -> _View:
    """Projections, made a part at a time."""
    rows, out = kept.best, projection.room(len(kept), long=kept.codes is None)

    def work(part: slice) -> None:
        projection.fill(distance.place(rows[part]), out.part(part))

    pmap(work, spans(len(kept), max(64, 2**20 // kept.shape[1])), n_jobs)
    return _View(*out, None)


def _tile_view(kept: KeptRows, projection: Projection, distance: Distance, n_jobs: int | None) -> _View:
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


def _taken(kept: KeptRows, order: NDArray[np.int64], n_jobs: int | None = None) -> KeptRows:
    """kept.take(order), the full rows on all cores."""
    return KeptRows(taken(kept.full, order, n_jobs), None if kept.codes is None else kept.codes.take(order))


def taken(rows: NDArray | None, order: NDArray[np.int64], n_jobs: int | None = None) -> NDArray | None:
    """rows[order] on all cores, None of None."""
    if rows is None:
        return None
    out = np.empty((len(order), rows.shape[1]), dtype=rows.dtype)

    def work(part: slice) -> None:
        np.take(rows, order[part], axis=0, out=out[part], mode="clip")  # "clip" writes straight into out

    pmap(work, shares(len(order), n_jobs, least=1024), n_jobs)
    return frozen(out)
