"""BitCells: codes about their landmarks (stores/centred_bits.py), ordered by cell; what cell_table.py is to other rows.

    offsets (c + 1,)   rows offsets[g]:offsets[g + 1] are those of cell g
    names (n,)         their positions in the index
    spans (c, 2)       the least and the largest length of x - m among the rows of a cell
    turned (c, D)      the landmarks, turned like the codes

A file keeps this order, so that a large index is read where it lies: nothing is sorted again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.codes.bit_cells import bound_bit_cells, search_bit_cells
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.one_query import find_cells
from kway.compute.kernels.topk import EMPTY, merge
from kway.compute.threads import pmap, workers
from kway.search.cells.cell_groups import CellGroups, one_by_one
from kway.search.cells.cell_table import CellFinder, Ground, ordered_by_cell, taken
from kway.search.cells.projection import Projected
from kway.search.heaps import Heaps, empty_heaps
from kway.search.spaces.distances import Distance
from kway.search.stores.bits import BitRows, Bits
from kway.search.stores.centred_bits import CentredBits, residual_frame
from kway.search.stores.kept import KeptRows

_SHARED = 2**15  # rows that are worth another thread
_NOTHING = frozen(np.empty((0, 0), dtype=np.float32))


@dataclass(frozen=True)
class BitCells:
    """Codes in the order of their cells, and perhaps the full rows."""

    distance: Distance
    z: float  # normal deviations that filter and bars allow for
    full: NDArray | None
    codes: BitRows
    centres: NDArray[np.float32]  # (c, d)
    names: NDArray[np.int64]
    offsets: NDArray[np.int64]
    spans: NDArray[np.float32]
    turned: NDArray[np.float32]

    bounds = None  # spans tell as much, while a cell is looked into
    long = _NOTHING  # projections are read of queries alone
    reach = 0.0

    @staticmethod
    def keep(rows: NDArray, cells: NDArray[np.int64], ground: Ground) -> KeptRows:
        """Rows (n, d) of these cells as the store keeps them."""
        store = _bits(ground)
        codes = CentredBits.of(
            rows, residual_frame(store, rows.shape[1]), ground.centres(), frozen(cells), ground.distance
        )
        return KeptRows(rows if store.rerank else None, codes)

    @staticmethod
    def of(kept: KeptRows, cells: NDArray[np.int64], ground: Ground) -> BitCells:
        """Rows in the order of their positions and their cells (n,), put into the order of cells."""
        held = kept.codes
        assert isinstance(held, CentredBits)
        order, offsets = ordered_by_cell(cells, len(ground.landmarks))
        full = taken(kept.full, order, ground.n_jobs)
        return BitCells.ready(full, held.codes.take(order), frozen(order), offsets, held.centres, ground)

    @staticmethod
    def from_arrays(rows: Any, arrays: dict[str, NDArray], ground: Ground) -> BitCells:
        """The table of a model file."""
        blank = {"codes.centre": np.zeros(len(ground.projection.mean), dtype=np.float32)}
        codes = _bits(ground).restore(blank | arrays, residual_frame(_bits(ground), 1).distance)
        assert codes is not None
        offsets = np.concatenate([[0], np.cumsum(arrays["sizes"])])
        full = None if rows is None else frozen(rows)
        return BitCells.ready(full, codes, frozen(arrays["names"]), frozen(offsets), ground.centres(), ground)

    @staticmethod
    def ready(
        full: NDArray | None, codes: BitRows, names: NDArray, offsets: NDArray, centres: NDArray[np.float32],
        ground: Ground,
    ) -> BitCells:  # fmt: skip
        """Codes that are in the order of cells, names (n,) and offsets (c + 1,) told."""
        spans = np.zeros((len(centres), 2), dtype=np.float32)
        filled = np.flatnonzero(np.diff(offsets))
        if len(filled):
            for column, ufunc in enumerate((np.minimum, np.maximum)):
                spans[filled, column] = np.sqrt(2.0 * ufunc.reduceat(codes.half, offsets[filled]))
        turned = codes.frame.turned(centres)
        return BitCells(
            ground.distance, _bits(ground).z, full, codes, centres, names, offsets, frozen(spans), frozen(turned)
        )

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included."""
        arrays = (self.centres, self.names, self.offsets, self.spans, self.turned)
        full = 0 if self.full is None else self.full.nbytes
        return int(full + self.codes.nbytes + sum(array.nbytes for array in arrays))

    @property
    def best(self) -> Any:
        """The rows (n, d) in this order as precisely as they are kept."""
        return self.codes if self.full is None else self.full

    @property
    def ends_exact(self) -> bool:
        """Of codes alone, all that can be promised is what all cells hold; full rows may be lost in a cell too."""
        return self.full is None

    @property
    def cells(self) -> NDArray[np.int64]:
        """The cell (n,) of each row, in the order of their positions."""
        cells = np.empty(len(self.names), dtype=np.int64)
        cells[self.names] = self._cells_in_order()
        return cells

    def _cells_in_order(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))

    def rows(self) -> KeptRows:
        """The rows in the order of their positions."""
        places = np.empty(len(self.names), dtype=np.int64)
        places[self.names] = np.arange(len(self.names))
        codes = CentredBits(self.codes, self.centres, self._cells_in_order()).take(places)
        return KeptRows(taken(self.full, places), codes)

    def more(self, rows: NDArray, cells: NDArray[np.int64], ground: Ground) -> KeptRows:
        """More rows (n, d) of these cells (n,), kept like these."""
        return self.keep(rows, cells, ground)

    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file."""
        full = {} if self.full is None else {"rows": self.full}
        codes = CentredBits(self.codes, self.centres, self.names).arrays()
        return full | codes | {"names": self.names, "sizes": np.diff(self.offsets)}

    def look_alone(
        self, exact: NDArray[np.float64], placed: NDArray[np.float64], finder: CellFinder, probes: int, heaps: Heaps,
        n_jobs: int | None,
    ) -> int:  # fmt: skip
        """Offer each query (q, d) by itself the rows of its nearest cells; rows measured in full, or estimated.

        The threads share the rows of every cell, once they know one bound from the first of each.
        """
        q, near = len(exact), empty_heaps(len(exact), probes)
        room = Projected(
            np.empty((q, finder.landmarks.shape[1] + 1), np.float32), np.empty((q, 0), np.float32), np.empty(q)
        )
        find_cells(placed, *finder, *room, *near)
        groups = one_by_one(near.ids)
        return self._offer(exact, heaps, groups, min(workers(n_jobs), 1 + self._rows_in(groups) // _SHARED), n_jobs)

    def look(self, exact: NDArray[np.float64], projected: Projected, heaps: Heaps, groups: CellGroups) -> int:
        """Offer the rows of cells to groups of queries (q, d); rows measured in full, or estimated."""
        return self._offer(exact, heaps, groups, 1, 1)

    def _offer(
        self, exact: NDArray[np.float64], heaps: Heaps, groups: CellGroups, parts: int, n_jobs: int | None
    ) -> int:
        """Offer the rows of cells to groups of queries, every cell in so many parts."""
        distance, codes = self.distance, self.codes
        turned = codes.frame.turned(np.asarray(distance.place(exact)))
        full = frozen(np.empty((0, exact.shape[1]), dtype=np.float32) if self.full is None else self.full)
        bar = self.z * float(codes.widest[0]) if self.full is not None else 0.0
        how = (
            distance.code, distance.order > 0, distance.shifts, -EMPTY if distance.signed else 0.0,
            codes.frame.bits,
        )  # fmt: skip
        held = (codes.head, codes.rest, codes.factor, codes.half)

        def bound(part: int) -> NDArray[np.float64]:
            out = np.full(len(exact), EMPTY)
            bound_bit_cells(
                *how, *held, self.turned, part, parts, *groups, turned, exact, full, self.offsets, heaps.ids.shape[1],
                out,
            )  # fmt: skip
            return out

        def work(part: int) -> _Looked:
            own = heaps if parts == 1 else empty_heaps(*heaps.ids.shape)
            counts = search_bit_cells(
                *how, self.z, bar, *held, self.spans, self.turned, part, parts, *groups, turned, exact, full,
                self.names, self.offsets, bounds, *own,
            )  # fmt: skip
            return _Looked(own, int(counts[0] if self.full is None else counts[1]))

        if parts == 1:
            bounds = np.full(len(exact), EMPTY)
            return work(0).measured
        bounds = np.min(pmap(bound, range(parts), n_jobs), axis=0)
        done = pmap(work, range(parts), n_jobs)
        for own, _ in done:
            merge(*heaps, *own)
        return sum(looked.measured for looked in done)

    def _rows_in(self, groups: CellGroups) -> int:
        """Rows of the cells of all groups."""
        cells = groups.cells[groups.cells < len(self.centres)]
        return int((self.offsets[cells + 1] - self.offsets[cells]).sum())


class _Looked(NamedTuple):
    """Heaps of a part of all cells, and the rows that were measured in it."""

    heaps: Heaps
    measured: int


def _bits(ground: Ground) -> Bits:
    assert isinstance(ground.store, Bits)
    return ground.store
