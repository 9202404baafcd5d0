"""Int8: rows as one byte a value, a quarter of float32.

x_rj = centre_j + scale_r * code_rj, codes in -127..127, scale_r = max_j |x_rj - centre_j| / 127

Int8(rerank=True)     the full rows are kept too (they may be memory-mapped); the scan reads the codes, and rows
                      that the error of the codes cannot rule out are measured in full: answers stay those of full rows
Int8(rerank=False)    only the codes are kept; distances are those of the coded rows
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.parameters import YES_OR_NO, check_parameters
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.block_scan import BlockScan
from kway.search.codecs.base import Codes, FarKept, KeptRows, Store
from kway.search.distances import Distance
from kway.search.metrics import Metric
from kway.threads import pmap, spans


@dataclass(frozen=True)
class Int8(Store):
    """Rows as one byte a value; `rerank` keeps the full rows beside them, which makes answers exact."""

    rerank: bool = True

    name = "int8"

    @property
    def bits_per_value(self) -> int:
        """Of the codes."""
        return 8

    def __post_init__(self) -> None:
        check_parameters(self, rerank=YES_OR_NO)

    def encode(self, rows: NDArray, distance: Distance) -> ByteRows:
        """Rows about their mean."""
        return _bytes(rows, (rows.sum(axis=0, dtype=np.float64) / max(1, len(rows))).astype(np.float32))

    def restore(self, arrays: dict[str, NDArray], distance: Distance) -> ByteRows | None:
        """The codes of a model file."""
        if "codes" not in arrays:
            return None
        return ByteRows(*(np.asarray(arrays[key]) for key in ("codes", "codes.scale", "codes.centre")))

    def scan(self, kept: KeptRows, distance: Distance) -> BlockScan:
        """A scan in blocks: codes, then the full rows that their errors leave in doubt."""
        return BlockScan(kept, distance)

    def scan_blocks(self, blocks: Any, metric: Metric, folder: str | Path | None) -> BlockScan | None:
        """A scan of the codes of all blocks, if the rows need not be kept."""
        if self.rerank or folder is not None:
            return None
        from kway.search.codecs.streams import byte_blocks

        return BlockScan(KeptRows(None, byte_blocks(blocks, self, metric)), metric.distance)

    def keep_far(self, far: TensorRows, distance: Distance) -> FarKept:
        """Full rows, which a device searches as they are; else bytes that are made there."""
        return FarKept(far) if self.rerank else FarKept(None, self.far_codes(far, None, None))

    def far_codes(self, far: TensorRows, cells: Any, ground: Any) -> Any:
        """Bytes about the mean."""
        from kway.search.codecs.far_codes import far_bytes

        return far_bytes(far)


@dataclass(frozen=True)
class ByteRows(Codes):
    """Rows (n, d) as bytes."""

    codes: NDArray[np.int8]  # (n, d)
    scale: NDArray[np.float32]  # (n,)
    centre: NDArray[np.float32]  # (d,)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return self.codes.shape

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.codes.nbytes + self.scale.nbytes + self.centre.nbytes

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        return self.codes[where] * self.scale[where][..., None] + self.centre

    def on_device(self, device: Device) -> Any:
        """The codes on a device."""
        from kway.rows.gpu.bit_codes import EncodedBytes

        return EncodedBytes(*map(device.put, (self.codes, self.scale, self.centre)))

    def like(self, rows: NDArray) -> ByteRows:
        """More rows about the same centre."""
        return _bytes(rows, self.centre)

    def join(self, more: ByteRows) -> ByteRows:
        """These and more codes about the same centre."""
        return ByteRows(np.concatenate([self.codes, more.codes]), np.concatenate([self.scale, more.scale]), self.centre)

    def take(self, positions: NDArray[np.int64]) -> ByteRows:
        """The codes at positions."""
        return ByteRows(self.codes[positions], self.scale[positions], self.centre)

    def arrays(self) -> dict[str, NDArray]:
        """Arrays of a model file."""
        return {"codes": self.codes, "codes.scale": self.scale, "codes.centre": self.centre}


def _bytes(rows: NDArray, centre: NDArray[np.float32]) -> ByteRows:
    """Rows (n, d) as bytes about the centre."""
    n, d = rows.shape
    codes, scale = np.empty((n, d), dtype=np.int8), np.empty(n, dtype=np.float32)

    def work(part: slice) -> None:
        moved = rows[part] - centre
        widest = np.abs(moved).max(axis=1)
        scale[part] = np.where(widest > 0, widest / 127.0, 1.0)
        codes[part] = np.clip(np.rint(moved / scale[part][:, None]), -127, 127)

    pmap(work, spans(n, max(64, 2**20 // d)))
    return ByteRows(codes, scale, centre)
