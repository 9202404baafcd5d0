"""Codes of rows that are on a GPU: they are computed on the GPU and stay there until the CPU reads them.

The CPU reads them for a model file, or for a search of its own; then they are copied once.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.kernels.codes.bits import GRID_STEPS, WIDEST_FILTER
from kway.kernels.jit import frozen
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.codecs.bits import GRID_STEP, BitFrame, BitRows
from kway.search.codecs.int8 import ByteRows
from kway.search.distances import Distance

if TYPE_CHECKING:
    from kway.rows.gpu.bit_codes import EncodedBits, EncodedBytes


class GpuBitRows(BitRows):
    """Codes of a few bits on a GPU."""

    encoded: EncodedBits

    def __init__(self, frame: BitFrame, encoded: EncodedBits) -> None:
        object.__setattr__(self, "frame", frame)
        object.__setattr__(self, "encoded", encoded)
        object.__setattr__(self, "widest", np.array([encoded.widest], dtype=np.float32))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self.encoded.words), len(self.frame.center)

    @property
    def nbytes(self) -> int:
        """Bytes in the memory of the CPU."""
        return super().nbytes if "_words" in vars(self) else 0

    def on_device(self, device: Device) -> EncodedBits:
        """Return the codes, which are on the GPU already."""
        return self.encoded

    def device_bytes(self) -> int:
        """Return 0: nothing is copied."""
        return 0

    @property
    def _planes(self) -> int:
        return min(self.frame.wide // 64, WIDEST_FILTER)

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        return _fetch(self.encoded.words).view(np.uint64)

    @cached_property
    def head(self) -> NDArray[np.uint64]:
        """The leading words, copied at first use."""
        return frozen(self._words[:, : self._planes].T)

    @cached_property
    def rest(self) -> NDArray[np.uint64]:
        """The other words."""
        return frozen(self._words[:, self._planes :])

    @cached_property
    def factor(self) -> NDArray:
        """Factors in the frame's unit."""
        f = _fetch(self.encoded.factor)
        return frozen(np.rint(f / self.frame.unit).astype(np.uint16) if self.frame.plain else f)

    @cached_property
    def half(self) -> NDArray[np.float32]:
        """Half of the squared lengths; empty for unit rows about the origin."""
        return frozen(np.empty(0, dtype=np.float32) if self.frame.plain else _fetch(self.encoded.half))


class GpuByteRows(ByteRows):
    """Rows as bytes on a GPU."""

    encoded: EncodedBytes

    def __init__(self, encoded: EncodedBytes) -> None:
        object.__setattr__(self, "encoded", encoded)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.encoded.shape
        return n, d

    @property
    def nbytes(self) -> int:
        """Bytes in the memory of the CPU."""
        return super().nbytes if "codes" in vars(self) else 0

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        """Return decoded rows; only these are copied."""
        if "codes" in vars(self):
            return super().__getitem__(where)
        some = Device(str(self.encoded.device)).put(where) if isinstance(where, np.ndarray) else where
        return _fetch(self.encoded[some])

    def on_device(self, device: Device) -> EncodedBytes:
        """Return the codes, which are on the GPU already."""
        return self.encoded

    @cached_property
    def codes(self) -> NDArray[np.int8]:
        """(n, d), copied at first use."""
        return _fetch(self.encoded.codes)

    @cached_property
    def scale(self) -> NDArray[np.float32]:
        """(n,)."""
        return _fetch(self.encoded.scale)

    @cached_property
    def center(self) -> NDArray[np.float32]:
        """(d,)."""
        return _fetch(self.encoded.center)


def _fetch(tensor: Any) -> NDArray:
    return Device(str(tensor.device)).fetch(tensor)


def encode_bits_on_gpu(rows: TensorRows, distance: Distance, frame: BitFrame) -> GpuBitRows:
    """Return codes of rows about the center of the frame, computed on the GPU."""
    from kway.rows.gpu.bit_codes import encode_bits
    from kway.rows.gpu.exact_search import place_rows

    device, (n, d) = rows.device, rows.shape
    steps = GRID_STEP[frame.bits] * (GRID_STEPS if frame.bits > 1 else np.ones(1))
    with device.room(f"codes of {n:,} rows x {d} columns", n * (frame.bits * frame.wide // 8 + 8)):
        rotation = device.put(frame.rotate(np.eye(d, dtype=np.float32)))
        center = device.put(frame.center).double()
        centered = lambda part: place_rows(rows.tensor[part], distance.by_angle) - center  # noqa: E731
        encoded = encode_bits(device, centered, n, rotation, frame.bits, steps.tolist())
    if frame.plain:  # rounded as they are stored
        encoded.factor.div_(float(frame.unit)).round_().clamp_(0, 65535).mul_(float(frame.unit))
    return GpuBitRows(frame, encoded)


def encode_bytes_on_gpu(rows: TensorRows) -> GpuByteRows:
    """Return rows as bytes about their mean, computed on the GPU."""
    from kway.rows.gpu.bit_codes import EncodedBytes

    device, (n, d) = rows.device, rows.shape
    with device.room(f"codes of {n:,} rows x {d} columns", n * (d + 4)):
        return GpuByteRows(EncodedBytes.encode(device, rows.tensor, device.put(rows.mean()).float()))


def mean_on_gpu(rows: TensorRows, distance: Distance) -> NDArray[np.float64]:
    """Return the mean (d,) float64 of the rows in the distance's space."""
    from kway.rows.gpu.exact_search import place_rows

    total = sum(place_rows(rows.tensor[part], distance.by_angle).sum(0) for part in rows.parts())
    return rows.device.fetch(total / len(rows))
