"""Row codes that are computed and kept on a GPU; they are copied to the host once, when the CPU first reads them.

The CPU reads them to write a model file, to change the rows of an index, and for searches that it does itself.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.kernels.codes.bits import GRID_STEPS, WIDEST_FILTER
from kway.kernels.jit import frozen
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.codecs.bits import GRID_STEP, BitFrame, BitRows
from kway.search.codecs.int8 import ByteRows
from kway.search.codecs.stores import Codes
from kway.search.distances import Distance

if TYPE_CHECKING:
    from kway.rows.gpu.bit_codes import EncodedBits, EncodedBytes


class GpuCodes(Codes):
    """Codes on a GPU, and the same codes on the host after its first use."""

    encoded: Any  # the codes on the GPU
    _copied: Codes | None = None

    @property
    def host(self) -> Codes:
        """The codes on the host, copied at first use."""
        if self._copied is None:
            self._copied = self._copy()
        return self._copied

    @abstractmethod
    def _copy(self) -> Codes:
        """Copy the codes to the host."""

    @property
    def nbytes(self) -> int:
        """Bytes in the memory of the host."""
        return 0 if self._copied is None else self._copied.nbytes

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        return self.host[where]

    def on_device(self, device: Device) -> Any:
        """Return the codes on the GPU that they were computed on; `device` is the same GPU."""
        return self.encoded

    def like(self, rows: NDArray) -> Codes:
        """Encode more rows on the host."""
        return self.host.like(rows)

    def join(self, more: Any) -> Codes:
        """Return these codes followed by the codes that `like` returned, on the host."""
        return self.host.join(more)

    def take(self, positions: NDArray[np.int64]) -> Codes:
        """Return the codes at positions, on the host."""
        return self.host.take(positions)

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file."""
        return self.host.arrays()


class GpuBitRows(GpuCodes):
    """Codes of a few bits on a GPU."""

    encoded: EncodedBits

    def __init__(self, frame: BitFrame, encoded: EncodedBits) -> None:
        self.frame = frame
        self.encoded = encoded
        self.widest = np.array([encoded.widest], dtype=np.float32)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self.encoded.words), len(self.frame.center)

    def device_bytes(self) -> int:
        """Return 0, because nothing is copied."""
        return 0

    def _copy(self) -> BitRows:
        words, factor = _fetch(self.encoded.words).view(np.uint64), _fetch(self.encoded.factor)
        half = _fetch(self.encoded.half)
        if self.frame.plain:
            factor, half = np.rint(factor / self.frame.unit).astype(np.uint16), half[:0]
        n_head = min(self.frame.wide // 64, WIDEST_FILTER)
        head, rest = frozen(words[:, :n_head].T), frozen(words[:, n_head:])
        return BitRows(self.frame, head, rest, frozen(factor), frozen(half), self.widest)


class GpuByteRows(GpuCodes):
    """Rows as bytes on a GPU."""

    encoded: EncodedBytes

    def __init__(self, encoded: EncodedBytes) -> None:
        self.encoded = encoded

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.encoded.shape
        return n, d

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        """Return decoded rows; only these are copied."""
        if self._copied is not None:
            return self._copied[where]
        selected = Device(str(self.encoded.device)).put(where) if isinstance(where, np.ndarray) else where
        return _fetch(self.encoded[selected])

    def _copy(self) -> ByteRows:
        return ByteRows(_fetch(self.encoded.codes), _fetch(self.encoded.scale), _fetch(self.encoded.center))


def _fetch(tensor: Any) -> NDArray:
    return Device(str(tensor.device)).fetch(tensor)


def encode_bits_on_gpu(rows: TensorRows, distance: Distance, frame: BitFrame) -> GpuBitRows:
    """Return codes of rows about the center of the frame, computed on the GPU."""
    from kway.rows.gpu.bit_codes import encode_bits
    from kway.rows.gpu.exact_search import METRICS

    device, (n, d) = rows.device, rows.shape
    steps = GRID_STEP[frame.bits] * (GRID_STEPS if frame.bits > 1 else np.ones(1))
    with device.room(f"codes of {n:,} rows x {d} columns", n * (frame.bits * frame.wide // 8 + 8)):
        rotation = device.put(frame.rotate(np.eye(d, dtype=np.float32)))
        center = device.put(frame.center).double()

        def centered(part: slice) -> Any:
            return METRICS[distance.name].operand(rows.tensor[part]) - center

        encoded = encode_bits(device, centered, n, rotation, frame.bits, steps.tolist())
    if frame.plain:  # round to the values that the host stores (`_copy`), so that GPU and CPU searches agree
        largest = float(np.iinfo(np.uint16).max)
        encoded.factor.div_(float(frame.unit)).round_().clamp_(0, largest).mul_(float(frame.unit))
    return GpuBitRows(frame, encoded)


def encode_bytes_on_gpu(rows: TensorRows) -> GpuByteRows:
    """Return rows as bytes about their mean, computed on the GPU."""
    from kway.rows.gpu.bit_codes import EncodedBytes

    device, (n, d) = rows.device, rows.shape
    with device.room(f"codes of {n:,} rows x {d} columns", n * (d + 4)):
        return GpuByteRows(EncodedBytes.encode(device, rows.tensor, device.put(rows.mean()).float()))


def mean_on_gpu(rows: TensorRows, distance: Distance) -> NDArray[np.float64]:
    """Return the mean (d,) float64 of the rows in the space of the distance."""
    from kway.rows.gpu.exact_search import METRICS

    total = sum(METRICS[distance.name].operand(rows.tensor[part]).sum(0) for part in rows.parts())
    return rows.device.fetch(total / len(rows))
