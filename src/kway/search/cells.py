"""Landmark cells: projections of rows, rows in the order of their cells, and the cells that each query probes.

Projection    computes a short and a long projection of each row, whose distance is never larger than that of the rows.
              With z = x - mean, V (d, M) the leading principal directions of a sample, and p = V'z:

    short     [p_1 .. p_m, ||rest||]        (m + 1,)       the first filter, a matrix product
    long      [p_m+1 .. p_M, ||rest||]      (M - m + 1,)   the second filter, one row at a time; empty if d is small

              ||short(q) - short(x)|| <= ||q - x|| and short(q).short(x) >= q.x, and the same for [p_1 .. p_m, long]

CellGroups    pairs of a query and a cell, in groups per cell, so that each group is one matrix product
CellBounds    finds the cells that contain no row near a query, from the distance to their landmarks
CellTable     rows in the order of their cells, with projections that rule out most of them before any row is measured

    offsets (c + 1,)   cell g contains the rows offsets[g]:offsets[g + 1]
    names (n,)         the position in the index of each row
    short, long        projections in the space of the distance; codes replace the long ones
    errors (n,)        distance of a row to its code, if both are stored

Shape letters: n rows, q queries, d columns, c cells, m coordinates of a short projection, M of a long one.
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

# Decided by the landmarks benchmark (T3).
_SMALL = 24  # number of columns up to which a row is its own projection
_SHORT = 64  # maximum length of a short projection; a long one has twice as many coordinates


class Projected(NamedTuple):
    """short (n, m + 1), long (n, M - m + 1 or 0) float32 and norms (n,) float64 of centered rows."""

    short: NDArray[np.float32]
    long: NDArray[np.float32]
    norms: NDArray[np.float64]

    @property
    def lead(self) -> NDArray[np.float32]:
        """The coordinates (n, m) of the short projections, without the last column; landmarks have these columns."""
        return self.short[:, :-1]

    def part(self, where: slice) -> Projected:
        """Return those of some rows, sharing memory."""
        return Projected(self.short[where], self.long[where], self.norms[where])


@dataclass(frozen=True)
class Projection:
    """mean (d,), basis (d, M), or (d, 0) if rows are their own projections, and the length m of short projections."""

    mean: NDArray[np.float64]
    basis: NDArray[np.float32]
    length: int

    def allocate(self, n: int, long: bool = True) -> Projected:
        """Allocate the projections of n rows, without the long ones if `long` is False."""
        width = self.basis.shape[1]
        n_long = width - self.length + 1 if long and width > self.length else 0
        return Projected(np.empty((n, self.length + 1), np.float32), np.empty((n, n_long), np.float32), np.empty(n))

    def fill(self, rows: NDArray, out: Projected) -> None:
        """Write the projections of rows (n, d) into arrays for n rows."""
        z = np.empty(rows.shape, np.float32)
        center_rows(frozen(rows), frozen(self.mean), z, out.norms)  # squares first
        width = self.basis.shape[1] if out.long.shape[1] else self.length
        p = z @ self.basis[:, :width] if self.basis.shape[1] else z  # (n, M)
        fill_sketches(p, out.norms, out.short, out.long)
        np.sqrt(out.norms, out=out.norms)

    def of(self, rows: NDArray, long: bool = True) -> Projected:
        """Return the projections of rows (n, d)."""
        out = self.allocate(len(rows), long)
        self.fill(rows, out)
        return out


def projection_sample(rows: Any, seed: int) -> Any:
    """Return a sample of rows (n, d), decoded if they are codes, from which a projection is learned."""
    n, d = rows.shape
    size = max(SAMPLE_ROWS, 6 * d)
    return rows[:] if n <= size else rows[np.sort(np.random.default_rng(seed).choice(n, size, replace=False))]


def learn_projection(rows: NDArray, centered: bool, seed: int) -> Projection:
    """Return the projection for rows like these (n, d), centered at their mean if `centered`, else at the origin.

    A short projection, its norm, the position and the half square take at most 15/16 of the bytes of a row, so that an
    index takes at most twice the memory of its rows (decided by the memory benchmark, T9).
    """
    d = rows.shape[1]
    mean = rows.mean(axis=0, dtype=np.float64) if centered else np.zeros(d)
    if d <= _SMALL:
        return Projection(mean, np.empty((d, 0), dtype=np.float32), d)
    width = 2 * _SHORT if d >= 4 * _SHORT else min(_SHORT, d - d // 16 - 4)
    axes = leading_axes((rows - mean).astype(np.float32), width, np.random.default_rng(seed))
    return Projection(mean, frozen(axes), min(_SHORT, width))


class CellGroups(NamedTuple):
    """Queries pairs[starts[i]:starts[i + 1]] probe cells[i]."""

    starts: NDArray[np.int64]
    cells: NDArray[np.int64]
    pairs: NDArray[np.int64]


def single_groups(cells: NDArray[np.int64]) -> CellGroups:
    """Return groups of one pair each, in the order of cells (q, probes)."""
    q, probes = cells.shape
    return CellGroups(np.arange(q * probes + 1), cells.ravel(), np.repeat(np.arange(q), probes))


def by_cell(cells: NDArray[np.int64], n_cells: int) -> CellGroups:
    """Group the pairs of queries and their cells (q, probes) by cell; omit pairs whose cell is n_cells or more.

    >>> starts, _, pairs = by_cell(np.array([[0, 1], [1, 2]]), n_cells=2)
    >>> pairs[starts[1] : starts[2]]
    array([0, 1])
    """
    flat = np.minimum(cells.ravel(), n_cells)  # NO_ROW, which stands for no cell, becomes n_cells
    narrow = flat.astype(np.uint16) if n_cells < 2**16 else flat  # 16 bits sort by radix, five times faster
    ends = np.cumsum(np.bincount(flat, minlength=n_cells)[:n_cells])
    pairs = np.argsort(narrow, kind="stable")[: ends[-1]] // max(1, cells.shape[1])
    return CellGroups(np.concatenate([[0], ends]), np.arange(n_cells), pairs)


@dataclass(frozen=True)
class CellBounds:
    """Bounds that skip cells: landmarks (c, m), and the largest distance (c,) of a row to the landmark of its cell.

    reach is the largest norm of a row. nearest is True if rows are in the cell of their nearest landmark.
    """

    distance: Distance
    landmarks: NDArray[np.float32]
    radii: NDArray[np.float32]
    reach: float
    nearest: bool

    def near(
        self, ring: slice, cells: NDArray[np.int64], keys: NDArray, queries: Projected, worst: NDArray
    ) -> NDArray[np.int64]:
        """Return the columns `ring` of cells (q, any), with c instead of cells that have no row within worst (q,).

        keys (q, any) are ||m||^2 / 2 - q.m of the landmarks of cells, which are nearest first. worst is the k-th
        distance so far, EMPTY if there is none. blurs bound the float32 rounding of the keys and squares: they are
        sums of at most 129 products, each relative to (|q| + reach)^2, and 129 * 2^-24 < 1e-5.
        """
        upper = worst + SUM_ROUNDING if self.distance.by_angle else worst  # 1 - cos is wrong by its rounding, even at 0
        gaps = np.where(worst < EMPTY, np.minimum(self.distance.gap(upper), 1e100), 1e100)  # squares without overflow
        squares = np.einsum("ij,ij->i", queries.lead, queries.lead)
        blurs = 1e-5 * (queries.norms + self.reach) ** 2
        near = np.ascontiguousarray(cells[:, ring])
        ring_keys, first_keys, squares = (
            np.ascontiguousarray(array, np.float64) for array in (keys[:, ring], keys[:, 0], squares)
        )
        skip_cells(
            near, ring_keys, frozen(cells[:, 0]), first_keys, squares, gaps, blurs, self.landmarks, self.radii,
            self.nearest,
        )  # fmt: skip
        return near


_NO_FLOATS = frozen(np.empty(0, dtype=np.float32))
_NO_CODES = ByteRows(np.empty((0, 0), dtype=np.int8), _NO_FLOATS, _NO_FLOATS)


class Ground(NamedTuple):
    """What a table of cells is built on: the distance, the projection, the landmarks (c, m), and the store."""

    distance: Distance
    projection: Projection
    landmarks: NDArray[np.float32]
    store: Store

    def finder(self) -> CellFinder:
        """Return the arrays with which kernels find the cells of queries."""
        half = half_squares(self.landmarks)
        marks = half if self.distance.order else frozen(np.zeros_like(half))
        mean, basis = frozen(self.projection.mean), self.projection.basis
        return CellFinder(mean, basis, self.landmarks, marks)

    def centers(self) -> NDArray[np.float32]:
        """Return the landmarks (c, d) in the space of the distance."""
        basis = self.projection.basis[:, : self.projection.length]
        offsets = self.landmarks @ basis.T if basis.shape[1] else self.landmarks
        return frozen((self.projection.mean + offsets).astype(np.float32))


class CellOrder:
    """Base class of CellTable and BitCells: rows in the order of their cells."""

    kept: StoredRows
    names: NDArray[np.int64]  # (n,)
    offsets: NDArray[np.int64]  # (c + 1,)

    @property
    def has_full(self) -> bool:
        """Whether full rows are stored."""
        return self.kept.has_full

    @property
    def cells_in_order(self) -> NDArray[np.int64]:
        """Cell (n,) of each row, in the order of cells."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    @property
    def cells(self) -> NDArray[np.int64]:
        """Cell (n,) of each row, in the order of positions."""
        return self.cells_in_order[self.places]

    @property
    def places(self) -> NDArray[np.int64]:
        """Place (n,) of each position in the order of cells."""
        places = np.empty(len(self.names), dtype=np.int64)
        places[self.names] = np.arange(len(self.names))
        return places


@dataclass(frozen=True)
class CellTable(CellOrder):
    """Rows in the order of their cells, in full or as bytes, with their projections."""

    distance: Distance
    kept: StoredRows
    names: NDArray[np.int64]
    offsets: NDArray[np.int64]
    short: NDArray[np.float32]
    long: NDArray[np.float32]
    half: NDArray[np.float32]  # (n,) half squares of the norms
    errors: NDArray[np.float32]
    bounds: CellBounds | None
    reach: float  # the largest norm
    slack: float  # rounding of a product, relative to the norms
    largest: int  # rows of the largest cell
    views: tuple[NDArray, ...]  # rows, codes, steps, errors and center as the kernel reads them, empty if not stored

    @staticmethod
    def keep(rows: NDArray, cells: NDArray[np.int64], ground: Ground) -> StoredRows:
        """Return rows (n, d) as the store keeps them; the cells are not needed."""
        return ground.store.keep(rows, ground.distance)

    @staticmethod
    def from_arrays(rows: Any, arrays: dict[str, NDArray], ground: Ground) -> CellTable:
        """Return the table of a model file."""
        kept = ground.store.load(rows, arrays, ground.distance)
        return CellTable.of(kept, np.asarray(arrays["cells"]), ground)

    @staticmethod
    def of(kept: StoredRows, cells: NDArray[np.int64], ground: Ground) -> CellTable:
        """Return the table of rows in the order of their positions, with their cells (n,)."""
        distance, projection, landmarks, _ = ground
        order, offsets = ordered_by_cell(cells, len(landmarks))
        ordered = _taken(kept, order)
        errors = _NO_FLOATS
        if ordered.codes is not None and ordered.full is not None:  # 1 + 1e-6 covers the rounding to float32
            errors = frozen((ordered.codes.errors(ordered.full, distance) * (1 + 1e-6)).astype(np.float32))
        short, long, norms = _project(ordered, projection, distance)
        bounded, reach = distance.order > 0, float(norms.max(initial=0.0))
        bounds = None
        if bounded:
            radii = cell_radii(frozen(short), landmarks, offsets)
            bounds = CellBounds(distance, landmarks, radii, reach, nearest=ordered.full is not None)
        return CellTable(
            distance, ordered, frozen(order), offsets, frozen(short), frozen(long),
            half=frozen((0.5 * norms**2 if bounded else np.zeros_like(norms)).astype(np.float32)),
            errors=errors,
            bounds=bounds,
            reach=reach,
            slack=sum_rounding(short.shape[1], np.float32) + 1e-5,  # 1e-5 covers the rounding of the projections
            largest=max(1, int(np.diff(offsets).max())),
            views=_kernel_views(ordered, errors),
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including rows."""
        arrays = (self.short, self.long, self.half, self.errors, self.names, self.offsets)
        return int(self.kept.nbytes + sum(array.nbytes for array in arrays))

    @property
    def ends_exact(self) -> bool:
        """Whether a search of all cells gives the exact result: if full rows are stored."""
        return self.kept.full is not None

    def rows(self) -> StoredRows:
        """Return the rows in the order of their positions."""
        return _taken(self.kept, self.places)

    def more(self, rows: NDArray, cells: NDArray[np.int64], ground: Ground) -> StoredRows:
        """Return more rows (n, d) in the form in which the table stores rows."""
        return self.kept.like(rows)

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file."""
        return self.rows().arrays() | {"cells": self.cells}

    def search_groups(self, exact: NDArray[np.float64], projected: Projected, heaps: Heaps, groups: CellGroups) -> int:
        """Offer the rows of cells to groups of queries (q, d); return the number of rows measured in full."""
        starts, cells, pairs = groups
        if not len(pairs):
            return 0
        tile = np.empty(max(CACHE_BYTES // 16, self.largest), dtype=np.float32)
        queries = CellQueries(projected.short, projected.long, exact, projected.norms)
        return int(search_cells(self.distance.code, starts, cells, pairs, queries, self._table, tile, *heaps))

    def search_single(
        self, exact: NDArray[np.float64], placed: NDArray[np.float64], finder: CellFinder, probes: int, heaps: Heaps,
    ) -> int:  # fmt: skip
        """Offer each query (q, d) the rows of its nearest cells; return the number of rows measured in full."""
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
        """The table as the kernels read it."""
        rows, codes, steps, errors, center = self.views
        return CellRows(
            self.short, self.long, self.half, rows, codes, steps, errors, center, self.names, self.offsets, self.reach,
            self.slack,
        )  # fmt: skip


def _kernel_views(kept: StoredRows, errors: NDArray[np.float32]) -> tuple[NDArray, ...]:
    """Return rows, codes, steps, errors and center as the kernel reads them."""
    codes = kept.codes if isinstance(kept.codes, ByteRows) else _NO_CODES
    rows = np.empty((0, kept.shape[1]), np.float32) if kept.full is None else kept.full
    return tuple(frozen(array) for array in (rows, codes.codes, codes.scale, errors, codes.center))


def _project(kept: StoredRows, projection: Projection, distance: Distance) -> Projected:
    """Return the projections of all rows, computed part by part."""
    rows, out = kept.best, projection.allocate(len(kept), long=kept.codes is None)

    def work(part: slice) -> None:
        projection.fill(distance.place(rows[part]), out.part(part))

    pmap(work, spans(len(kept), rows_per_block(4 * kept.shape[1])))
    return out


class RowOrder(NamedTuple):
    """Positions (n,) ordered by cell, and where each cell begins (c + 1,)."""

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]


def ordered_by_cell(cells: NDArray[np.int64], n_cells: int) -> RowOrder:
    """Return the order of rows with these cells (n,)."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=n_cells))])
    return RowOrder(in_cell_order(cells, n_cells), frozen(offsets))


def _taken(kept: StoredRows, order: NDArray[np.int64]) -> StoredRows:
    """Return kept.take(order), with the full rows copied by all threads."""
    return StoredRows(taken(kept.full, order), None if kept.codes is None else kept.codes.take(order))


def taken(rows: NDArray | None, order: NDArray[np.int64]) -> NDArray | None:
    """Return rows[order], copied by all threads; None for None."""
    if rows is None:
        return None
    out = np.empty((len(order), rows.shape[1]), dtype=rows.dtype)

    def work(part: slice) -> None:
        np.take(rows, order[part], axis=0, out=out[part], mode="clip")  # "clip" writes into out without a buffer

    pmap(work, shares(len(order), least=1024))
    return frozen(out)
