"""Which exact search a device runs: through bytes where rows are many, else by blocks of float32 products."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from kway.compute.gpu.device import Device, Tensor
from kway.compute.gpu.search.exact import ExactRows, FoundRows
from kway.compute.gpu.search.int8_search import LEAST_FOR_INT8, Int8Search
from kway.compute.gpu.search.products import PRODUCTS


@dataclass(frozen=True)
class Engine:
    """Rows on a device, and as bytes where that pays."""

    rows: ExactRows
    coded: Int8Search | None

    @property
    def device(self) -> Device:
        """Where the rows are."""
        return self.rows.device

    def nearest(self, queries: Tensor, k: int) -> FoundRows:
        """The k nearest of queries (q, d), by (float64 distance, position)."""
        if self.coded is not None and self.coded.takes(queries, k):
            return self.coded.nearest(queries, k)
        return self.rows.nearest(queries, k)


def engine_over(device: Device, rows: Tensor, name: str) -> Engine:
    """The search over rows (n, d) on the device, a tensor or read like one, under the distance of this name."""
    kept = ExactRows.of(device, rows, PRODUCTS[name])
    pays = (
        isinstance(rows, device.torch.Tensor)
        and device.is_gpu
        and len(kept) >= LEAST_FOR_INT8
        and find_spec("triton") is not None
    )
    return Engine(kept, Int8Search.over(kept) if pays else None)
