"""Codes that are on a device alone (gpu/codes/codes_of_tensors.py) until they are read here: for a file, or the CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import Device
from kway.compute.kernels.codes.bits import WIDEST_FILTER
from kway.compute.kernels.jit import frozen
from kway.search.stores.bits import BitFrame, BitRows
from kway.search.stores.int8 import ByteRows

if TYPE_CHECKING:
    from kway.compute.gpu.codes.codes_of_tensors import BitsThere, BytesThere


class FarBits(BitRows):
    """Codes of a few bits that have stayed where they were made."""

    there: BitsThere

    def __init__(self, frame: BitFrame, there: BitsThere) -> None:
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

    there: BytesThere

    def __init__(self, there: BytesThere) -> None:
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
        return _here(self.there.centre)


def _here(tensor: Any) -> NDArray:
    return Device(str(tensor.device)).fetch(tensor)
