"""Which exact search a device runs: through bytes where rows are many, else by blocks of float32 products."""

from __future__ import annotations

from dataclasses import dataclass

from kway.compute.gpu.device import Device, Tensor
from kway.compute.gpu.exact import ExactRows, Found
from kway.compute.gpu.products import PRODUCTS


@dataclass(frozen=True)
class Engine:
    """Rows on a device."""

    rows: ExactRows

    @property
    def device(self) -> Device:
        """Where the rows are."""
        return self.rows.device

    def nearest(self, queries: Tensor, k: int) -> Found:
        """The k nearest of queries (q, d), by (float64 distance, position)."""
        return self.rows.nearest(queries, k)


def engine_over(device: Device, rows: Tensor, name: str) -> Engine:
    """The search over rows (n, d) on the device under the distance of this name."""
    return Engine(ExactRows.of(device, rows, PRODUCTS[name]))
