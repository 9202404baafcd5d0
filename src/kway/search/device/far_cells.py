"""Landmarks of rows that are a tensor: the projection, k-means, cells and codes made where the rows are.

FarTable is to them what CellTable and BitCells are to rows of the host: in the order of cells, full or as codes alone.
Where full rows are kept a device searches these, and no codes are made; whoever reads the table makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import Device, Tensor
from kway.compute.gpu.far_rows import FarRows
from kway.search.cells.bit_cells import BitCells
from kway.search.cells.cell_table import CellTable, Ground
from kway.search.cells.projection import Projection
from kway.search.device.far_kept import far_bits, far_bytes, in_space
from kway.search.spaces.distances import Distance
from kway.search.stores.base import Store
from kway.search.stores.bits import Bits
from kway.search.stores.centred_bits import CentredBits, residual_frame
from kway.search.stores.far_codes import FarBits, FarBytes
from kway.search.stores.kept import KeptRows


@dataclass(frozen=True)
class FarTable:
    """Rows on a device in the order of their cells: all of them, or their codes alone."""

    best: FarRows | FarBits | FarBytes
    names: Tensor  # (n,) int64
    offsets: Tensor  # (c + 1,) int64

    @staticmethod
    def needs(far: FarRows, store: Store | None) -> int:
        """Bytes beside the rows: in the order of cells, as they enter products, or as codes; and whose each row is."""
        n, d = far.shape
        coded = 0 if store is None or store.rerank else d * (store.bits if isinstance(store, Bits) else 8) // 4 + 16
        return n * (coded + 16) if coded else 2 * far.nbytes + 16 * n

    @staticmethod
    def of(far: FarRows, ground: Ground) -> FarTable:
        """Rows (n, d), each in the cell of its nearest landmark."""
        from kway.compute.gpu.search.cells import cells_of_rows

        device, store = far.device, ground.store
        cells = cells_of_rows(landing_of(ground, device), far.tensor, ground.distance.by_angle)
        order = cells.argsort(stable=True)
        counts = device.torch.bincount(cells, minlength=len(ground.landmarks))
        offsets = device.torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        if store is None or store.rerank:
            return FarTable(far[order], order, offsets)
        made = _centred(far, cells, ground) if isinstance(store, Bits) else far_bytes(far)
        return FarTable(made.cut(order), order, offsets)

    @property
    def ends_exact(self) -> bool:
        """Whether all cells together hold the answer that is promised: of bits alone there is no other."""
        return not isinstance(self.best, FarBytes)

    def read(self, ground: Ground, kind: type[CellTable] | type[BitCells]) -> CellTable | BitCells:
        """The table of the host."""
        device, best = _device(self.names), self.best
        places = np.argsort(device.fetch(self.names))
        in_order = np.repeat(np.arange(len(self.offsets) - 1), np.diff(device.fetch(self.offsets)))
        cells = in_order[places]
        if isinstance(best, FarRows):
            kept = kind.keep(np.asarray(best)[places], cells, ground)
        elif isinstance(best, FarBits):
            kept = KeptRows(None, CentredBits(best, ground.centres(), in_order).take(places))
        else:
            kept = KeptRows(None, best.take(places))
        return kind.of(kept, cells, ground)


def landing_of(ground: Ground, device: Device) -> Any:
    """What tells cells apart, on the device."""
    from kway.compute.gpu.search.cells import Landing

    torch, projection = device.torch, ground.projection
    basis = projection.basis[:, : projection.length]
    return Landing(
        device.put(projection.mean, torch.float64),
        device.put(basis, torch.float64) if basis.shape[1] else None,
        device.put(ground.landmarks, torch.float64),
        device.put(ground.finder().marks, torch.float64),
    )


def placed_of(rows: NDArray | FarRows, distance: Distance) -> Any:
    """Rows in the distance's space, where they are."""
    if not isinstance(rows, FarRows):
        return distance.place(rows)
    return FarRows(in_space(rows.tensor, distance).to(rows.tensor.dtype)) if distance.by_angle else rows


def leads_of(rows: NDArray | FarRows, projection: Projection) -> Any:
    """Short projections (n, m) float32 of placed rows, where they are."""
    if not isinstance(rows, FarRows):
        return projection.of(rows, long=False).lead
    device, basis = rows.device, projection.basis[:, : projection.length]
    z = rows.tensor.double() - device.put(projection.mean)
    return FarRows((z @ device.put(basis).double() if basis.shape[1] else z).float())


def _centred(far: FarRows, cells: Tensor, ground: Ground) -> FarBits:
    """Bits about the landmark of each row's cell; those of zero rows under cosine as centred_bits.py has them."""
    assert isinstance(ground.store, Bits)
    centres = far.device.put(ground.centres()).double()
    frame = residual_frame(ground.store, far.shape[1])
    codes = far_bits(far, ground.distance, frame, lambda part: centres[cells[part]])
    if ground.distance.by_angle:
        codes.there.half.add_(0.5 * (far.row_peaks() == 0))
    return codes


def _device(tensor: Tensor) -> Device:
    return Device(str(tensor.device))
