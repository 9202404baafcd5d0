"""Rows that are a tensor, kept where they are: full, or as codes that are made there; nothing is copied to the host.

Int8 beside full rows answers as full rows do, so a device, which searches these, makes no bytes of them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import Tensor
from kway.compute.gpu.far_rows import FarRows
from kway.compute.kernels.codes.bits import GRID_STEPS
from kway.search.spaces.distances import Distance
from kway.search.stores.base import Store
from kway.search.stores.bits import USUAL, BitFrame, Bits
from kway.search.stores.far_codes import FarBits, FarBytes
from kway.search.stores.kept import FarKept

About = Callable[[slice], Tensor]  # what a part of the rows is coded about, (d,) or (m, d)


def far_kept(far: FarRows, store: Store | None, distance: Distance) -> FarKept:
    """Rows as the store keeps them, there."""
    if isinstance(store, Bits):
        frame = store.frame_about(_placed_mean(far, distance), distance)
        centre = far.device.put(frame.centre).double()
        return FarKept(far if store.rerank else None, far_bits(far, distance, frame, lambda part: centre))
    alone = store is not None and not store.rerank
    return FarKept(None, far_bytes(far)) if alone else FarKept(far)


def in_space(rows: Tensor, distance: Distance) -> Tensor:
    """Rows (m, d) in the distance's space, float64."""
    from kway.compute.gpu.search.cells import of_length_one

    return of_length_one(rows.double()) if distance.by_angle else rows.double()


def far_bits(far: FarRows, distance: Distance, frame: BitFrame, about: About) -> FarBits:
    """The codes of rows about something, made there."""
    from kway.compute.gpu.codes.codes_of_tensors import encode_bits

    device, (n, d) = far.device, far.shape
    steps = USUAL[frame.bits] * (GRID_STEPS if frame.bits > 1 else np.ones(1))
    with device.room(f"codes of {n:,} rows x {d} columns", n * (frame.bits * frame.wide // 8 + 8)):
        turn = device.put(frame.turned(np.eye(d, dtype=np.float32)))
        there = encode_bits(
            device, lambda part: in_space(far.tensor[part], distance) - about(part), n, turn, frame.bits, steps.tolist()
        )
    if frame.plain:  # as they are stored
        there.factor.div_(float(frame.unit)).round_().clamp_(0, 65535).mul_(float(frame.unit))
    return FarBits(frame, there)


def far_bytes(far: FarRows) -> FarBytes:
    """Rows as bytes about their mean, made there."""
    from kway.compute.gpu.codes.codes_of_tensors import BytesThere

    device, (n, d) = far.device, far.shape
    with device.room(f"codes of {n:,} rows x {d} columns", n * (d + 4)):
        return FarBytes(BytesThere.of(device, far.tensor, device.put(far.mean()).float()))


def _placed_mean(far: FarRows, distance: Distance) -> NDArray[np.float64]:
    """The mean (d,) float64 of the rows in the distance's space."""
    total = sum(in_space(far.tensor[part], distance).sum(0) for part in far.parts())
    return far.device.fetch(total / len(far))
