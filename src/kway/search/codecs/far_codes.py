"""Codes made on a device, of rows that are there; they stay there until the CPU reads them, for a file or a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.kernels.codes.bits import GRID_STEPS, WIDEST_FILTER
from kway.kernels.jit import frozen
from kway.rows.gpu.device import Device, Tensor
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.codecs.bits import USUAL, BitFrame, BitRows
from kway.search.codecs.int8 import ByteRows
from kway.search.distances import Distance

if TYPE_CHECKING:
    from kway.rows.gpu.bit_codes import EncodedBits, EncodedBytes


class FarBits(BitRows):
    """Codes of a few bits that have stayed where they were made."""

    there: EncodedBits

    def __init__(self, frame: BitFrame, there: EncodedBits) -> None:
        object.__setattr__(self, "frame", frame)
        object.__setattr__(self, "there", there)
        object.__setattr__(self, "widest", np.array([there.widest], dtype=np.float32))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        return len(self.there.words), len(self.frame.centre)

    @property
    def nbytes(self) -> int:
        """Bytes held here."""
        return super().nbytes if "_words" in vars(self) else 0

    def on_device(self, device: Device) -> EncodedBits:
        """The codes where they are."""
        return self.there

    def device_bytes(self) -> int:
        """Nothing is copied."""
        return 0

    def cut(self, order: Any) -> FarBits:
        """The codes at positions (m,) that are a tensor, there."""
        held = self.there
        words, factor, half = (values[order] for values in (held.words, held.factor, held.half))
        return FarBits(self.frame, held._replace(room=words, words=words, factor=factor, half=half))

    @property
    def _planes(self) -> int:
        return min(self.frame.wide // 64, WIDEST_FILTER)

    @cached_property
    def _words(self) -> NDArray[np.uint64]:
        return _here(self.there.words).view(np.uint64)

    @cached_property
    def head(self) -> NDArray[np.uint64]:
        """The leading words, copied now."""
        return frozen(self._words[:, : self._planes].T)

    @cached_property
    def rest(self) -> NDArray[np.uint64]:
        """The others."""
        return frozen(self._words[:, self._planes :])

    @cached_property
    def factor(self) -> NDArray:
        """In the frame's unit."""
        f = _here(self.there.factor)
        return frozen(np.rint(f / self.frame.unit).astype(np.uint16) if self.frame.plain else f)

    @cached_property
    def half(self) -> NDArray[np.float32]:
        """None of unit rows about the origin."""
        return frozen(np.empty(0, dtype=np.float32) if self.frame.plain else _here(self.there.half))


class FarBytes(ByteRows):
    """Bytes that have stayed where they were made."""

    there: EncodedBytes

    def __init__(self, there: EncodedBytes) -> None:
        object.__setattr__(self, "there", there)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d)."""
        n, d = self.there.shape
        return n, d

    @property
    def nbytes(self) -> int:
        """Bytes held here."""
        return super().nbytes if "codes" in vars(self) else 0

    def __getitem__(self, where: Any) -> NDArray[np.float32]:
        """Some of them decoded; they alone are copied."""
        if "codes" in vars(self):
            return super().__getitem__(where)
        some = Device(str(self.there.device)).put(where) if isinstance(where, np.ndarray) else where
        return _here(self.there[some])

    def on_device(self, device: Device) -> EncodedBytes:
        """The codes where they are."""
        return self.there

    def cut(self, order: Any) -> FarBytes:
        """The codes at positions (m,) that are a tensor, there."""
        held = self.there
        return FarBytes(replace(held, codes=held.codes[order], scale=held.scale[order]))

    @cached_property
    def codes(self) -> NDArray[np.int8]:
        """(n, d), copied now."""
        return _here(self.there.codes)

    @cached_property
    def scale(self) -> NDArray[np.float32]:
        """(n,)."""
        return _here(self.there.scale)

    @cached_property
    def centre(self) -> NDArray[np.float32]:
        """(d,)."""
        return _here(self.there.center)


def _here(tensor: Any) -> NDArray:
    return Device(str(tensor.device)).fetch(tensor)


About = Callable[[slice], Tensor]  # the center of a part of the rows, (d,) or (m, d)


def far_bits(far: TensorRows, distance: Distance, frame: BitFrame, about: About) -> FarBits:
    """The codes of rows about something, made there."""
    from kway.rows.gpu.bit_codes import encode_bits
    from kway.rows.gpu.exact_search import place_rows

    device, (n, d) = far.device, far.shape
    steps = USUAL[frame.bits] * (GRID_STEPS if frame.bits > 1 else np.ones(1))
    with device.room(f"codes of {n:,} rows x {d} columns", n * (frame.bits * frame.wide // 8 + 8)):
        turn = device.put(frame.turned(np.eye(d, dtype=np.float32)))
        centred = lambda part: place_rows(far.tensor[part], distance.by_angle) - about(part)  # noqa: E731
        there = encode_bits(device, centred, n, turn, frame.bits, steps.tolist())
    if frame.plain:  # as they are stored
        there.factor.div_(float(frame.unit)).round_().clamp_(0, 65535).mul_(float(frame.unit))
    return FarBits(frame, there)


def far_bytes(far: TensorRows) -> FarBytes:
    """Rows as bytes about their mean, made there."""
    from kway.rows.gpu.bit_codes import EncodedBytes

    device, (n, d) = far.device, far.shape
    with device.room(f"codes of {n:,} rows x {d} columns", n * (d + 4)):
        return FarBytes(EncodedBytes.encode(device, far.tensor, device.put(far.mean()).float()))


def placed_mean(far: TensorRows, distance: Distance) -> NDArray[np.float64]:
    """The mean (d,) float64 of the rows in the distance's space."""
    from kway.rows.gpu.exact_search import place_rows

    total = sum(place_rows(far.tensor[part], distance.by_angle).sum(0) for part in far.parts())
    return far.device.fetch(total / len(far))
