"""Codes of a few bits a column (kway.search.stores.bits) on a device: the k nearest among all that they leave in doubt.

    y_r (D,)    odd whole numbers, sum over planes b of 2^(B - 1 - b) (+-1)
    key_r       half_r - f_r <q, y_r>, half only where distances are roots: the estimate
    low_r       key_r - (bar + slack) f_r |q|     slack: what half precision may lose of <q, y_r> / |q|

1. the `keep` rows of the least `low`, all rows multiplied in blocks
2. measured: in full where full rows are kept, else estimated in float32
3. proof: the largest `low` kept lies above the key of the k-th distance, so nobody else's estimate, less its error bar,
   does not; else again with more kept, in the end all rows

So the answer is the k nearest of at least the rows whose estimate lies within the error bar of the k-th distance. The
CPU's (kernels/codes/bit_scan.py) asks for the same, and may lose a row before, to its filter of signs. Where there is
such a filter here (sign_filter.py), it goes first, and whoever it does not settle is multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import NamedTuple

from kway.compute.gpu.codes.codes import BITS
from kway.compute.gpu.codes.sign_filter import LIST_TOGETHER, SignFilter
from kway.compute.gpu.device import Device, Tensor
from kway.compute.gpu.search.exact import KEYS, MORE, VALUES, FoundRows, first_few, least_few, least_of_both, parts_of

_EXTRA = 246  # kept beyond k: near rows rule out the others with far fewer
_QUERIES = 4096  # of a block
_LISTED = 2**27  # rows kept, of all queries of a block
_ROWS = 2**18  # of a block
_UNPACKED = 64  # rows of a program of the kernel
_HALF, _SINGLE = 2.0**-11, 2.0**-24  # how much a number may be rounded by

MeasureSome = Callable[[Tensor, Tensor], Tensor]  # (which queries (m,), ids (m, c)) -> distances (m, c) float64


class CodeQueries(NamedTuple):
    """Turned queries (q, D) float32, their norms (q,) and bases (q,) float64: ||q||^2, or what a key lacks."""

    turned: Tensor
    norms: Tensor
    base: Tensor

    def take(self, which: Tensor) -> CodeQueries:
        """Some of the queries."""
        return CodeQueries(*(values[which] for values in self))


@dataclass(frozen=True)
class BitCodes:
    """Codes of n rows."""

    device: Device
    bits: int
    words: Tensor  # (n, B D / 32) int32, plane by plane, the sign's first
    factor: Tensor  # (n,) float32
    half: Tensor | None  # (n,) float32 where distances are roots
    bar: float  # of an estimate, in units of f |q|; 0 where estimates are the answer
    least: float  # the smallest distance
    filter: SignFilter | None = None

    def __len__(self) -> int:
        return int(self.words.shape[0])

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        held = (self.words, self.factor) if self.half is None else (self.words, self.factor, self.half)
        return sum(int(t.numel() * t.element_size()) for t in held)

    def nearest(self, asked: CodeQueries, k: int, measure: MeasureSome) -> FoundRows:
        """The k <= n nearest, by (the distance measured, position)."""
        torch, q = self.device.torch, len(asked.turned)
        ids, distances = self.device.empty((q, k), "int64"), self.device.empty((q, k), "float64")
        left, keep = torch.arange(q, device=self.device.name), min(len(self), k + _EXTRA)
        with self.device.full_precision():
            if self.filter is not None:
                undecided = []
                for some in left.split(LIST_TOGETHER):
                    found, proven = self._listed(self.filter, asked.take(some), k, partial(measure, some))
                    ids[some], distances[some] = found
                    undecided.append(some[~proven])
                left = torch.cat(undecided)
            while len(left):
                undecided = []
                for some in left.split(max(1, min(_QUERIES, _LISTED // keep))):
                    found, proven = self._filtered(asked.take(some), k, keep, partial(measure, some))
                    ids[some], distances[some] = found
                    undecided.append(some[~proven])
                left, keep = torch.cat(undecided), min(len(self), MORE * keep)
        return FoundRows(ids, distances)

    def _listed(
        self, signs: SignFilter, asked: CodeQueries, k: int, measure: Callable[[Tensor], Tensor]
    ) -> tuple[FoundRows, Tensor]:
        """The k nearest among those of the filter's lists, and whether (q,) nobody else is in doubt."""
        listed, norms = signs.lists(asked.turned), asked.norms.float()[:, None]
        slack = 4 * BITS * _SINGLE * asked.turned.abs().sum(1, keepdim=True)
        lows = -self.factor[listed.ids] * (listed.products + self.bar * norms + slack)
        if self.half is not None:
            lows += self.half[listed.ids] * (1 - 2.0**-20)
        at = least_few(lows.where(listed.real, float("inf")), k + _EXTRA)
        ids, order = listed.ids.gather(1, at.ids).sort(1)
        real = at.distances.isfinite().gather(1, order)
        found = first_few(measure(ids).where(real, float("inf")), ids, k)
        keys = self._keys(found.distances[:, -1], asked.base)
        every = lows.shape[1] == real.shape[1]  # of those listed
        beyond = every | ~real.all(1) | (at.distances.double().amax(1) > keys)
        return found, beyond & signs.enough(keys, asked.norms, self.half is not None, listed.most)

    def _filtered(
        self, asked: CodeQueries, k: int, keep: int, measure: Callable[[Tensor], Tensor]
    ) -> tuple[FoundRows, Tensor]:
        """The k nearest among those kept, and whether (q,) nobody else is in doubt."""
        ids, lows = self._least(asked, keep)
        ids = ids.sort(1).values
        found = first_few(measure(ids), ids, k)
        if keep == len(self):
            return found, self.device.torch.ones_like(asked.norms, dtype=self.device.torch.bool)
        return found, lows.double().amax(1) > self._keys(found.distances[:, -1], asked.base)

    def _keys(self, distances: Tensor, base: Tensor) -> Tensor:
        """The key of a row at this distance (q,)."""
        return distances - base if self.half is None else 0.5 * (distances.square() - base)

    def _least(self, asked: CodeQueries, keep: int) -> FoundRows:
        """Positions and `low` (q, keep) of the least."""
        torch, norms = self.device.torch, asked.norms.float()[:, None]
        q, wide = asked.turned.shape
        unit = asked.turned / norms.where(norms > 0, 1.0)
        rounding = (_HALF if self.device.is_gpu else _SINGLE) + 2 * wide * _SINGLE
        reach = self.bar + (2**self.bits - 1) * (rounding * unit.abs().sum(1, keepdim=True) + wide * 2.0**-24)
        kind = torch.float16 if self.device.is_gpu else torch.float32
        unit, reach, best = unit.to(kind), reach * -norms, None
        for part in parts_of(len(self), max(keep, min(_ROWS, KEYS // (4 * q) // 64 * 64))):
            lows = self._products(unit, self.grid(self.words[part], kind)).mul_(-norms).add_(reach)
            lows.mul_(self.factor[part])
            if self.half is not None:
                lows.add_(self.half[part] * (1 - 2.0**-20))  # float32 rounds the sum
            best = least_of_both(best, least_few(lows, keep), part.start, keep)
        assert best is not None
        return best

    def _products(self, queries: Tensor, grid: Tensor) -> Tensor:
        """q.y (q, c), added in float32."""
        if self.device.is_gpu:
            return self.device.torch.mm(queries, grid.T, out_dtype=self.device.torch.float32)
        return queries @ grid.T

    def grid(self, words: Tensor, kind: object) -> Tensor:
        """y (m, D) of words (m, B D / 32)."""
        torch, m = self.device.torch, len(words)
        if self.device.is_gpu and find_spec("triton") is not None:
            out = torch.empty((m, 32 * words.shape[1] // self.bits), dtype=kind, device=words.device)
            unpack_there(words, out, self.bits)
            return out
        byte = torch.arange(256, device=words.device)[:, None] >> torch.arange(8, device=words.device)
        signs = ((byte & 1) * 2 - 1).to(kind)  # (256, 8)
        planes = words.view(torch.uint8).view(m, self.bits, -1)  # (m, B, D / 8)
        found = torch.nn.functional.embedding(planes[:, 0].int(), signs)
        for b in range(1, self.bits):
            found = found * 2 + torch.nn.functional.embedding(planes[:, b].int(), signs)
        return found.view(m, -1)

    def estimates(self, asked: CodeQueries, ids: Tensor) -> Tensor:
        """Estimated distances (q, c) float64 of the rows at ids (q, c)."""
        torch, (q, c) = self.device.torch, ids.shape
        products = []
        for part in parts_of(q, VALUES // (4 * c * asked.turned.shape[1])):
            grid = self.grid(self.words[ids[part].reshape(-1)], torch.float32).view(-1, c, asked.turned.shape[1])
            products.append((grid @ asked.turned[part][:, :, None])[:, :, 0])
        keys = -(self.factor[ids] * torch.cat(products)).double()
        if self.half is None:
            return (keys + asked.base[:, None]).clamp(min=self.least)
        return (2 * (keys + self.half[ids].double()) + asked.base[:, None]).clamp(min=0.0).sqrt()


def unpack_there(words: Tensor, out: Tensor, bits: int) -> None:
    """`BitCodes.grid` by a kernel: one pass, where a table of bytes takes several."""
    from kway.compute.gpu.codes.code_lists import unpack_planes

    m, wide = out.shape
    unpack_planes[(-(-m // _UNPACKED), wide // 32)](words.contiguous(), out, m, wide // 32, bits, _UNPACKED)
