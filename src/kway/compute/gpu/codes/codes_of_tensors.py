"""Codes of rows that are on a device, made there: those of kway.search.stores up to the rounding of a product.

bits     z = (x - centre) R, u = floor(z / step + 2^(B - 1)) in 0..2^B - 1, y = 2 u - (2^B - 1), f = |z|^2 / <z, y>
         the step, of those tried in units of |z| / sqrt(D), whose y lies at the least angle to z
bytes    x ~ centre + scale * code, scale = max |x - centre| / 127
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kway.compute.gpu.codes.codes import TILE
from kway.compute.gpu.device import Device, Tensor, load_torch
from kway.compute.gpu.search.exact import VALUES, parts_of

SomeRows = Callable[[slice], Tensor]  # rows of a part, about their centre


class BitsThere(NamedTuple):
    """Codes of n rows: words (n, B D / 32) int32, plane by plane, of a room with rows of zeros up to whole tiles."""

    room: Tensor
    words: Tensor
    factor: Tensor  # (n,) float32
    half: Tensor  # (n,) float32, |z|^2 / 2
    widest: float  # the largest error of an estimate, a unit of f |q|


def encode_bits(device: Device, rows: SomeRows, n: int, turn: Tensor, bits: int, steps: Sequence[float]) -> BitsThere:
    """Codes of n rows that turn (d, D) turns; steps: those that are tried."""
    wide = turn.shape[1]
    room = device.zeros((-(-n // TILE) * TILE, bits * wide // 32), "int32")
    factor, half, widest = device.empty(n), device.empty(n), device.zeros(())
    with device.full_precision():
        for part in parts_of(n, VALUES // (64 * wide)):
            z = rows(part).to(turn.dtype) @ turn  # (m, D)
            square = z.square().sum(1)
            levels, along, length = _best_levels(z, square, bits, steps)
            f = (square / along.where(along > 0, 1.0)).where(along > 0, 0.0)
            lost = (length - square / f.where(f > 0, 1.0).square()).clamp(min=0.0).where(f > 0, 0.0)
            widest = device.torch.maximum(widest, (lost.amax() / max(1, wide - 1)).sqrt())
            room[part], factor[part], half[part] = _words(levels, bits), f, 0.5 * square
    return BitsThere(room, room[:n], factor, half, float(widest))


class _Levels(NamedTuple):
    """u (m, D), <z, y> (m,) and |y|^2 (m,)."""

    levels: Tensor
    along: Tensor
    length: Tensor


def _levels(z: Tensor, step: Tensor, bits: int) -> _Levels:
    most = 2**bits - 1
    u = (z * (1.0 / step)[:, None] + 0.5 * (most + 1)).floor_().clamp_(0, most)
    y = 2 * u - most
    return _Levels(u, (y * z).sum(1), y.square().sum(1))


def _best_levels(z: Tensor, square: Tensor, bits: int, steps: Sequence[float]) -> _Levels:
    spread = (square / z.shape[1]).sqrt().clamp(min=1e-30)
    if len(steps) == 1:
        return _levels(z, spread * steps[0], bits)
    best, chosen = square.new_full(square.shape, -1.0), spread
    for step in steps:
        _, along, length = _levels(z, spread * step, bits)
        better = along.square() > best * length
        best = (along.square() / length).where(better, best)
        chosen = (spread * step).where(better, chosen)
    return _levels(z, chosen, bits)


def _words(levels: Tensor, bits: int) -> Tensor:
    """(m, B D / 32) int32 of levels (m, D): the plane of the top bit first."""
    torch, u = load_torch(), levels.int()
    planes = torch.stack([(u >> shift) & 1 for shift in range(bits - 1, -1, -1)], 1)  # (m, B, D)
    ones = planes.view(len(u), -1, 32).long() << torch.arange(32, device=u.device)
    return ones.sum(2).to(torch.int32)


@dataclass(frozen=True)
class BytesThere:
    """Rows (n, d) as bytes, which are read like a tensor of float32: what is cut out of it is decoded."""

    codes: Tensor  # (n, d) int8
    scale: Tensor  # (n,) float32
    centre: Tensor  # (d,) float32

    @staticmethod
    def of(device: Device, rows: Tensor, centre: Tensor) -> BytesThere:
        """Bytes of rows (n, d) about the centre (d,) float32."""
        codes, scale = device.empty(rows.shape, "int8"), device.empty(len(rows))
        for part in parts_of(len(rows), VALUES // (16 * rows.shape[1])):
            moved = rows[part] - centre
            widest = moved.abs().amax(1)
            scale[part] = (widest / 127.0).where(widest > 0, 1.0).float()
            codes[part] = (moved / scale[part][:, None]).round_().clamp_(-127, 127).to(codes.dtype)
        return BytesThere(codes, scale, centre)

    @property
    def shape(self) -> Any:
        """(n, d)."""
        return self.codes.shape

    @property
    def dtype(self) -> Any:
        """float32."""
        return self.scale.dtype

    @property
    def device(self) -> Any:
        """Where they are."""
        return self.codes.device

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, where: Any) -> Tensor:
        return self.codes[where] * self.scale[where][..., None] + self.centre
