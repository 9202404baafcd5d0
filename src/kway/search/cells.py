"""Landmark cells (IVF): projections of rows, rows in the order of their cells, and pairs of queries and cells.

Projection    a short and a long projection of each row, which never overstate a distance. With z = x - mean, V (d, M)
              the leading principal axes of a sample, and p = V'z:

    short     [p_1 .. p_m, ||rest||]        (m + 1,)       the first filter, a matrix product
    long      [p_m+1 .. p_M, ||rest||]      (M - m + 1,)   the second filter, row by row; empty if d is small

              ||short(q) - short(x)|| <= ||q - x|| and short(q).short(x) >= q.x. The same holds for [p_1 .. p_m, long]

CellLayout    the distance, the projection, the landmarks and the store of an index
CellGroups    pairs of a query and a cell that it searches, in groups that are one matrix product each
CellBounds    finds the cells that have no row near a query, by the distance to their landmarks
CellTable     rows in the order of their cells, with projections that rule out most rows before they are measured.
              bit_cells.py has the table of codes of a few bits

    offsets (c + 1,)   cell g contains the rows offsets[g]:offsets[g + 1]
    names (n,)         the position of each row in the index
    short, long        projections in the space of the distance; codes replace the long ones
    errors (n,)        distance of each row from its code, if both are stored
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.cells import (
    CellFinder,
    CellQueries,
    CellRows,
    cell_radii,
    center_rows,
    fill_sketches,
    search_cells,
    search_single,
    skip_cells,
)
from kway.kernels.float32 import SUM_ROUNDING
from kway.kernels.jit import frozen
from kway.kernels.topk import EMPTY
from kway.memory import CACHE_BYTES, rows_per_block
from kway.rows.blocks import SAMPLE_ROWS
from kway.search.block_scan import sum_rounding
from kway.search.codecs.int8 import ByteRows
from kway.search.codecs.stores import Store, StoredRows
from kway.search.distances import Distance
from kway.search.kmeans import half_squares, in_cell_order
from kway.search.principal_axes import leading_axes
from kway.search.results import Heaps
from kway.threads import pmap, shares, spans

# Both numbers are decided by the IVF benchmark (T3).
_SMALL = 24  # rows of at most this many columns are their own projections
_SHORT = 64  # largest m; M is twice as large


class Projected(NamedTuple):
    """Projections of n rows, and the norms of the centered rows."""

    short: NDArray[np.float32]  # (n, m + 1)
    long: NDArray[np.float32]  # (n, M - m + 1 or 0)
    norms: NDArray[np.float64]  # (n,)

    @property
    def leading(self) -> NDArray[np.float32]:
        """The m coordinates (n, m) of the short projections; landmarks have the same coordinates."""
        return self.short[:, :-1]

    def part(self, where: slice) -> Projected:
        """Return views of the projections of a range of rows."""
        return Projected(self.short[where], self.long[where], self.norms[where])


@dataclass(frozen=True)
class Projection:
    """What projects rows: p = basis' (x - mean)."""

    mean: NDArray[np.float64]  # (d,)
    basis: NDArray[np.float32]  # (d, M), or (d, 0) if rows are their own projections
    length: int  # m

    def allocate(self, n: int, long: bool = True) -> Projected:
        """Allocate the projections of n rows, without the long ones if they are not needed."""
        width = self.basis.shape[1]
        more = width - self.length + 1 if long and width > self.length else 0
        return Projected(np.empty((n, self.length + 1), np.float32), np.empty((n, more), np.float32), np.empty(n))

    def fill(self, rows: NDArray, out: Projected) -> None:
        """Write the projections of rows (n, d) into arrays for n rows."""
        z = np.empty(rows.shape, np.float32)
        center_rows(frozen(rows), frozen(self.mean), z, out.norms)  # norms are squared until the last line
        width = self.basis.shape[1] if out.long.shape[1] else self.length
        p = z @ self.basis[:, :width] if self.basis.shape[1] else z  # (n, M)
        fill_sketches(p, out.norms, out.short, out.long)
        np.sqrt(out.norms, out=out.norms)

    def project(self, rows: NDArray, long: bool = True) -> Projected:
        """Return the projections of rows (n, d), without the long ones if they are not needed."""
        out = self.allocate(len(rows), long)
        self.fill(rows, out)
        return out


def projection_sample(rows: Any, seed: int) -> Any:
    """Return a sample of rows (n, d), decoded, from which a projection is learned."""
    n, d = rows.shape
    size = max(SAMPLE_ROWS, 6 * d)
    return rows[:] if n <= size else rows[np.sort(np.random.default_rng(seed).choice(n, size, replace=False))]


def learn_projection(rows: NDArray, centered: bool, seed: int) -> Projection:
    """Return the projection for rows like these (n, d); the mean is that of the rows, or 0 unless `centered`.

    The projection, norm, position and half square of a row take at most 15/16 of the bytes of the row, so that an index
    takes at most twice the memory of its rows (the memory benchmark, T9).
    """
    d = rows.shape[1]
    mean = rows.mean(axis=0, dtype=np.float64) if centered else np.zeros(d)
    if d <= _SMALL:
        return Projection(mean, np.empty((d, 0), dtype=np.float32), d)
    width = 2 * _SHORT if d >= 4 * _SHORT else min(_SHORT, d - d // 16 - 4)
    axes = leading_axes((rows - mean).astype(np.float32), width, np.random.default_rng(seed))
    return Projection(mean, frozen(axes), min(_SHORT, width))


class CellGroups(NamedTuple):
    """Groups of pairs: the queries pairs[starts[i]:starts[i + 1]] search cells[i]."""

    starts: NDArray[np.int64]  # (groups + 1,)
    cells: NDArray[np.int64]  # (groups,)
    pairs: NDArray[np.int64]  # query numbers


def single_groups(cells: NDArray[np.int64]) -> CellGroups:
    """Return groups of one pair each, for the cells (q, probes) of queries, in this order."""
    q, probes = cells.shape
    return CellGroups(np.arange(q * probes + 1), cells.ravel(), np.repeat(np.arange(q), probes))


def by_cell(cells: NDArray[np.int64], n_cells: int) -> CellGroups:
    """Return one group per cell, for the cells (q, any) of queries; pairs whose cell is n_cells or more are left out.

    >>> starts, _, pairs = by_cell(np.array([[0, 1], [1, 2]]), n_cells=2)
    >>> pairs[starts[1] : starts[2]]
    array([0, 1])
    """
    flat = np.minimum(cells.ravel(), n_cells)  # NO_ROW is left out as well
    narrow = flat.astype(np.uint16) if n_cells < 2**16 else flat  # 16 bits sort by radix, five times faster
    ends = np.cumsum(np.bincount(flat, minlength=n_cells)[:n_cells])
    pairs = np.argsort(narrow, kind="stable")[: ends[-1]] // max(1, cells.shape[1])
    return CellGroups(np.concatenate([[0], ends]), np.arange(n_cells), pairs)


@dataclass(frozen=True)
class CellBounds:
    """Bounds by which a search skips cells."""

    distance: Distance
    landmarks: NDArray[np.float32]  # (c, m)
    radii: NDArray[np.float32]  # (c,) largest distance of a row in a cell from its landmark
    max_norm: float  # largest norm of a row
    nearest: bool  # whether every row is in the cell of its nearest landmark

    def skip_far(
        self, ring: slice, cells: NDArray[np.int64], keys: NDArray, queries: Projected, worst: NDArray
    ) -> NDArray[np.int64]:
        """Return a range of each query's cells (q, any), with c for cells without a row within the distance worst (q,).

        cells (q, any) are sorted by their keys (q, any), ||m||^2 / 2 - q.m of the landmarks m. worst is EMPTY for a
        query without a k-th distance. The squares of has_no_near_row are sums of float32 products, which round by less
        than 1e-5 of the squared norms for up to 128 columns.
        """
        rounded = worst + SUM_ROUNDING if self.distance.by_angle else worst  # 1 - cos of nearly equal rows loses digits
        gaps = np.where(worst < EMPTY, np.minimum(self.distance.gap(rounded), 1e100), 1e100)  # squares do not overflow
        squares = np.einsum("ij,ij->i", queries.leading, queries.leading).astype(np.float64)
        blurs = 1e-5 * (queries.norms + self.max_norm) ** 2
        kept = np.ascontiguousarray(cells[:, ring])
        ring_keys, first_keys = (np.ascontiguousarray(part, np.float64) for part in (keys[:, ring], keys[:, 0]))
        skip_cells(
            kept, ring_keys, frozen(cells[:, 0]), first_keys, squares, gaps, blurs, self.landmarks, self.radii,
            self.nearest,
        )  # fmt: skip
        return kept


_NO_FLOATS = frozen(np.empty(0, dtype=np.float32))
_NO_CODES = ByteRows(np.empty((0, 0), dtype=np.int8), _NO_FLOATS, _NO_FLOATS)


class CellLayout(NamedTuple):
    """What assigns rows to cells and stores them."""

    distance: Distance
    projection: Projection
    landmarks: NDArray[np.float32]  # (c, m)
    store: Store

    def finder(self) -> CellFinder:
        """Return the arrays with which kernels find the cells of queries."""
        half = half_squares(self.landmarks)
        marks = half if self.distance.order else frozen(np.zeros_like(half))
        return CellFinder(frozen(self.projection.mean), frozen(self.projection.basis.T), self.landmarks, marks)

    def centers(self) -> NDArray[np.float32]:
        """Return the landmarks (c, d) in the space of the distance."""
        basis = self.projection.basis[:, : self.projection.length]
        centered = self.landmarks @ basis.T if basis.shape[1] else self.landmarks
        return frozen((self.projection.mean + centered).astype(np.float32))


class CellOrder:
    """Rows in the order of their cells, the base of CellTable and BitCells."""

    kept: StoredRows
    names: NDArray[np.int64]  # (n,)
    offsets: NDArray[np.int64]  # (c + 1,)

    @property
    def has_full(self) -> bool:
        """Whether full rows are stored."""
        return self.kept.has_full

    @property
    def cells_in_order(self) -> NDArray[np.int64]:
        """The cell (n,) of each row, in the order of cells."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @property
    def cells(self) -> NDArray[np.int64]:
        """The cell (n,) of each row, in the order of positions."""
        return self.cells_in_order[self.places]

    @property
    def places(self) -> NDArray[np.int64]:
        """The number (n,) of the row at each position of the index, in the order of cells."""
        places = np.empty(len(self.names), dtype=np.int64)
        places[self.names] = np.arange(len(self.names))
        return places

    def rows(self) -> StoredRows:
        """Return the stored rows in the order of their positions."""
        return take_stored(self.kept, self.places)


@dataclass(frozen=True)
class CellTable(CellOrder):
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
    max_norm: float  # largest norm of a row
    slack: float  # largest rounding error of a product, relative to the product of the norms
    largest: int  # number of rows of the largest cell

    @staticmethod
    def keep(rows: NDArray, cells: NDArray[np.int64], layout: CellLayout) -> StoredRows:
        """Store rows (n, d) that belong to these cells (n,), in the order of their positions."""
        return layout.store.keep(rows, layout.distance)

    @staticmethod
    def from_arrays(rows: Any, arrays: dict[str, NDArray], layout: CellLayout) -> CellTable:
        """Return the table of a model file."""
        kept = layout.store.load(rows, arrays, layout.distance)
        return CellTable.of(kept, np.asarray(arrays["cells"]), layout)

    @staticmethod
    def of(kept: StoredRows, cells: NDArray[np.int64], layout: CellLayout) -> CellTable:
        """Return the table of stored rows, which are in the order of their positions and belong to these cells (n,)."""
        distance, projection, landmarks, _ = layout
        order, offsets = sort_by_cell(cells, len(landmarks))
        ordered = take_stored(kept, order)
        errors = _NO_FLOATS
        if ordered.codes is not None and ordered.full is not None:
            errors = frozen((ordered.codes.errors(ordered.full, distance) * (1 + 1e-6)).astype(np.float32))
        short, long, norms = _project(ordered, projection, distance)
        bounded, max_norm = distance.order > 0, float(norms.max(initial=0.0))
        bounds = None
        if bounded:
            radii = cell_radii(frozen(short), landmarks, offsets)
            bounds = CellBounds(distance, landmarks, radii, max_norm, nearest=ordered.full is not None)
        return CellTable(
            distance, ordered, frozen(order), offsets, frozen(short), frozen(long),
            half=frozen((0.5 * norms**2 if bounded else np.zeros_like(norms)).astype(np.float32)),
            errors=errors,
            bounds=bounds,
            max_norm=max_norm,
            slack=sum_rounding(short.shape[1], np.float32) + 1e-5,  # 1e-5 for the float32 product with the basis
            largest=max(1, int(np.diff(offsets).max())),
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including rows."""
        arrays = (self.short, self.long, self.half, self.errors, self.names, self.offsets)
        return int(self.kept.nbytes + sum(array.nbytes for array in arrays))

    @property
    def ends_exact(self) -> bool:
        """Whether a search of all cells is exact; only then it is the reference of a guarantee."""
        return self.kept.full is not None

    @property
    def best(self) -> Any:
        """The most precise rows in the order of their positions: an array, or codes."""
        return self.rows().best

    def more(self, rows: NDArray, cells: NDArray[np.int64], layout: CellLayout) -> StoredRows:
        """Store more rows (n, d), whatever their cells (n,)."""
        return self.kept.like(rows)

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file."""
        return self.rows().arrays() | {"cells": self.cells}

    def search_groups(self, exact: NDArray[np.float64], projected: Projected, heaps: Heaps, groups: CellGroups) -> int:
        """Search cells for groups of queries (q, d); return the number of rows measured in full."""
        starts, cells, pairs = groups
        if not len(pairs):
            return 0
        tile = np.empty(max(CACHE_BYTES // 16, self.largest), dtype=np.float32)
        queries = CellQueries(projected.short, projected.long, exact, projected.norms)
        return int(search_cells(self.distance.code, starts, cells, pairs, queries, self._table, tile, *heaps))

    def search_single(
        self, exact: NDArray[np.float64], placed: NDArray[np.float64], finder: CellFinder, probes: int, heaps: Heaps,
    ) -> int:  # fmt: skip
        """Search the nearest cells of each query (q, d); return the number of rows measured in full."""
        bounds = self.bounds
        radii, nearest = (_NO_FLOATS, False) if bounds is None else (frozen(bounds.radii), bounds.nearest)
        return int(
            search_single(
                self.distance.code, probes, placed, finder, exact, self._table, radii, nearest, self.largest,
                *heaps,
            )
        )  # fmt: skip

    @cached_property
    def _table(self) -> CellRows:
        """The table as kernels read it; arrays that are not stored are empty."""
        codes = self.kept.codes if isinstance(self.kept.codes, ByteRows) else _NO_CODES
        rows = np.empty((0, self.kept.shape[1]), np.float32) if self.kept.full is None else self.kept.full
        return CellRows(
            self.short, self.long, self.half, frozen(rows), frozen(codes.codes), frozen(codes.scale), self.errors,
            frozen(codes.center), self.names, self.offsets, self.max_norm, self.slack,
        )  # fmt: skip


def _project(kept: StoredRows, projection: Projection, distance: Distance) -> Projected:
    """Return the projections of all rows; the long ones are not needed if there are codes."""
    rows, out = kept.best, projection.allocate(len(kept), long=kept.codes is None)

    def work(part: slice) -> None:
        projection.fill(distance.place(rows[part]), out.part(part))

    pmap(work, spans(len(kept), rows_per_block(4 * kept.shape[1], CACHE_BYTES)))
    return out


class RowOrder(NamedTuple):
    """Rows sorted by cell."""

    order: NDArray[np.int64]  # (n,) positions
    offsets: NDArray[np.int64]  # (c + 1,) the first row of each cell in this order


def sort_by_cell(cells: NDArray[np.int64], n_cells: int) -> RowOrder:
    """Sort rows with these cells (n,)."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=n_cells))])
    return RowOrder(in_cell_order(cells, n_cells), frozen(offsets))


def take_stored(kept: StoredRows, order: NDArray[np.int64]) -> StoredRows:
    """Return kept.take(order), the full rows copied by all threads."""
    return StoredRows(take_rows(kept.full, order), None if kept.codes is None else kept.codes.take(order))


def take_rows(rows: NDArray | None, order: NDArray[np.int64]) -> NDArray | None:
    """Return rows[order], copied by all threads; None for None."""
    if rows is None:
        return None
    out = np.empty((len(order), rows.shape[1]), dtype=rows.dtype)

    def work(part: slice) -> None:
        np.take(rows, order[part], axis=0, out=out[part], mode="clip")  # "clip" writes into out without a buffer

    pmap(work, shares(len(order), least=1024))
    return frozen(out)
