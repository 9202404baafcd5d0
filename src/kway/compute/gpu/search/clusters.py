"""k-means on a device (cells/kmeans.py): rows (n, m) that stay there, their nearest centres, and the means of these.

    nearest   argmin_c ||x - m_c||^2 / 2 = argmin_c (|x|^2 / 2 + |m_c|^2 / 2 - x.m_c) in float32, ties to the first
    means     sums in float64

The CPU adds in another order, so centres agree to rounding: a row as near to two of them may go to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from numpy.typing import NDArray

from kway.compute.gpu.device import Device, Tensor
from kway.compute.gpu.far_rows import FarRows
from kway.compute.gpu.search.exact import KEYS, parts_of


class NearestThere(NamedTuple):
    """The nearest centre (n,) int64 of each row, and half the squared distance (n,) float32."""

    centres: Tensor
    gaps: Tensor


@dataclass(frozen=True)
class DeviceSample:
    """Rows (n, m) float32 on a device."""

    device: Device
    rows: Tensor

    @staticmethod
    def of(device: Device, rows: NDArray | FarRows) -> DeviceSample:
        """Rows brought there, where they are not there already."""
        return DeviceSample(device, device.put(rows.tensor if isinstance(rows, FarRows) else rows).float())

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
        found = nearest_there(self.device, self.rows, self.device.put(centres))
        return self.device.fetch(found.centres), self.device.fetch(found.gaps)

    def means(self, near: NDArray, centres: NDArray) -> NDArray:
        """The mean (c, m) float32 of the rows near each centre; a centre without rows stays where it is."""
        torch, device = self.device.torch, self.device
        codes, given = device.put(near), device.put(centres)
        counts = torch.bincount(codes, minlength=len(given)).double()[:, None]
        sums = device.zeros(given.shape, "float64").index_add_(0, codes, self.rows.double())
        return device.fetch(torch.where(counts > 0, (sums / counts.clamp(min=1)).float(), given))


def nearest_there(device: Device, rows: Tensor, centres: Tensor) -> NearestThere:
    """The nearest of centres (c, m) to rows (n, m), both float32."""
    near, gaps = device.empty(len(rows), "int64"), device.empty(len(rows))
    half = 0.5 * centres.square().sum(1)
    with device.full_precision():
        for part in parts_of(len(rows), KEYS // (4 * len(centres))):
            block = rows[part]
            keys = half - block @ centres.T  # (b, c)
            least = keys.min(1)
            near[part] = least.indices
            gaps[part] = (least.values + 0.5 * block.square().sum(1)).clamp(min=0.0)
    return NearestThere(near, gaps)
