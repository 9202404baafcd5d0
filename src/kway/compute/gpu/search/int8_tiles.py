"""Rows and queries as bytes with a measured error: what a product of bytes proves about a score q.x - o.

x = s x^ + e_x, q = t q^ + e_q, both as sides (products.py) turned by a random rotation, x^ and q^ in -127..127, s one
number a tile of 128 rows. Then q.x = s t q^.x^ + e_q.(s x^) + q.e_x, and by Cauchy-Schwarz, with maxima over the tile,

    |q.x - s t q^.x^| <= |q| max|e_x| + |e_q| max|s x^|

so one integer a query and tile says which products may belong to a neighbour. Sides and errors are float64; EPS covers
the float32 arithmetic of that integer. Rows are sorted by norm, which makes o nearly one number a tile, and tiles
shuffled, so that any range of them is a sample.
"""

from __future__ import annotations

from dataclasses import dataclass

from kway.compute.gpu.device import Device, Tensor
from kway.compute.gpu.search.exact import ExactRows
from kway.compute.gpu.search.products import Product

INT8_TILE = 128  # rows: one scale and one test for all of them
EPS = 4e-6  # of each term: eight roundings of 2^-24 each, and more
FINEST = 1e-7  # of the largest norm: a scale below it could overflow the integer's arithmetic
_CHUNK = 2**28  # bytes of float64 sides made at once


@dataclass(frozen=True)
class Bytes:
    """Queries as bytes (nqp, DP) and their constants (nqp, 4); norms and steps t (q,) float64."""

    values: Tensor
    constants: Tensor
    norms: Tensor
    steps: Tensor


@dataclass(frozen=True)
class Tiles:
    """All rows as bytes."""

    device: Device
    product: Product
    centre: Tensor | None  # (d,) float64
    turn: Tensor  # (d, DP) float64, orthonormal rows
    order: Tensor  # (nt * 128,) int32: the row at each place, -1 pads
    values: Tensor  # (nt, 128, DP) int8
    upper: Tensor  # (nt, 4) float32
    lower: Tensor  # (nt, 4) float32
    finest: float

    @staticmethod
    def of(rows: ExactRows) -> Tiles:
        """Bytes of rows that are on the device."""
        device, torch = rows.device, rows.device.torch
        n, d = rows.rows.shape
        wide = padded_rows(d)
        source = torch.Generator(device=device.name).manual_seed(0)
        kind = {"generator": source, "device": device.name, "dtype": torch.float64}
        turn = torch.linalg.qr(torch.randn((wide, wide), **kind))[0][:d].contiguous()
        order = torch.nn.functional.pad(rows.offset.argsort().int(), (0, -n % INT8_TILE), value=-1).view(-1, INT8_TILE)
        shuffled = torch.randperm(len(order), generator=source, device=device.name)
        order = order[shuffled]
        nt = len(order)
        made = Tiles(
            device, rows.product, rows.centre, turn, order.reshape(-1), device.empty((nt, INT8_TILE, wide), "int8"),
            device.empty((nt, 4)), device.empty((nt, 4)), FINEST * rows.reach,
        )  # fmt: skip
        step = max(1, _CHUNK // (8 * INT8_TILE * wide))
        for first in range(0, nt, step):
            made._fill(rows.rows, order[first : first + step], slice(first, first + step))
        return made

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return sum(int(t.numel() * t.element_size()) for t in (self.values, self.upper, self.lower, self.order))

    def _fill(self, rows: Tensor, places: Tensor, part: slice) -> None:
        """Bytes and constants of some tiles (m, 128); a padded place repeats the tile's first row."""
        torch = self.device.torch
        held = rows[places.where(places >= 0, places[:, :1]).reshape(-1).long()].double()
        sides = self.product.side(held, self.centre)
        offsets = self.product.offsets(sides.square().sum(1)).view(places.shape)
        x = (sides @ self.turn).view(*places.shape, -1)  # (m, 128, DP)
        s = (x.abs().amax((1, 2)) / 127).clamp(min=max(self.finest, 1e-30))
        step = s[:, None, None]
        rounded = (x / step).round_().clamp_(-127, 127)
        self.values[part] = rounded.to(torch.int8)
        x -= rounded * step
        longest = (rounded * step).square_().sum(2).amax(1).sqrt_()
        lost = x.square_().sum(2).amax(1).sqrt_() + EPS * longest
        low, high = offsets.amin(1), offsets.amax(1)
        upper = torch.stack([torch.ones_like(s), EPS * high - low, lost, (1 + EPS) * longest], 1)
        self.upper[part] = (upper / s[:, None]).float()
        self.lower[part] = torch.stack([s, (1 + EPS) * high, lost, (1 + EPS) * longest], 1).float()

    def queries(self, queries: Tensor, padded_to: int) -> Bytes:
        """Bytes of queries (q, d), padded by some that nothing is near to."""
        torch, q = self.device.torch, len(queries)
        x = self.product.side(queries.double(), self.centre) @ self.turn
        t = (x.abs().amax(1) / 127).clamp(min=max(self.finest, 1e-30))
        rounded = (x / t[:, None]).round_().clamp_(-127, 127)
        values = self.device.zeros((padded_to, x.shape[1]), "int8")
        values[:q] = rounded.to(torch.int8)
        norms = x.square().sum(1).sqrt_()
        lost = (x - rounded * t[:, None]).square_().sum(1).sqrt_()
        constants = self.device.zeros((padded_to, 4))
        constants[:q, 1:] = (
            torch.stack([torch.ones_like(t), (1 + EPS) * norms, lost + EPS * norms], 1) / t[:, None]
        ).float()
        constants[q:, 0], constants[q:, 1] = float("inf"), 1.0
        return Bytes(values, constants, norms, t)

    def thresholds(self, worst: Tensor, asked: Bytes) -> Tensor:
        """thr / t (q,) of the score at these distances (q,), a little lower; -inf where nobody was that near."""
        score = self.product.score(worst, asked.norms) - 1e-12 * (asked.norms.square() + worst.square())
        return self.lowered(score, asked).where(worst < 1e299, -float("inf"))

    def lowered(self, score: Tensor, asked: Bytes) -> Tensor:
        """thr / t (q,) of scores (q,): lower by its rounding, which the terms of tiles and queries do not cover."""
        return ((score - EPS * score.abs()) / asked.steps).float()


def padded_rows(d: int) -> int:
    """Columns of bytes: what the matrix unit takes at once, or a multiple of it."""
    return 32 if d <= 32 else 64 if d <= 64 else -(-d // 128) * 128
