"""Codes of a few bits per column (kway.search.codecs.bits) on a device: made there, and searched there.

EncodedBits, EncodedBytes    codes of rows that are on the device, those of the CPU up to the rounding of a product
BitCodes                 the k nearest among all rows that the codes leave in doubt
    y_r (D,)    odd whole numbers, sum over planes b of 2^(B - 1 - b) (+-1)
    key_r       half_r - f_r <q, y_r>, half only if distances are roots: the estimate
    low_r       key_r - (bar + slack) f_r |q|     slack: what half precision may lose of <q, y_r> / |q|
    1. the `keep` rows of the least `low`, all rows multiplied in blocks
    2. measured: in full if full rows are kept, else estimated in float32
    3. proof: the largest `low` kept lies above the key of the k-th distance, so that no other row's estimate, less its
       error bar, lies below it; else again with more kept, in the end all rows
    A filter of signs (sign_codes.py) goes first if there is one; the queries that it does not settle are multiplied.
CellCodes                codes about landmarks, in the order of their cells, read as rows are (cells.py)
    r = R (x - m_c), y and f its code; q' = R (q - mean), m' = R (m - mean)
    x'  = m' + f y                        what represents the row in products
    o   = |m'|^2 / 2 + half + f m'.y      so that o - q'.x' = half - f <q' - m', y> + |m'|^2 / 2 - q'.m', the key
    dot has no o: its distance is -q'.x', with a mean of 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from kway.rows.gpu.device import Device, Tensor, load_torch
from kway.rows.gpu.exact_search import (
    BLOCK_BYTES,
    BLOCK_QUERIES,
    LISTED,
    MORE,
    NearestRows,
    merge_smallest,
    parts_of,
    smallest_keys,
    sort_nearest,
    unit_rows,
)
from kway.rows.gpu.sign_codes import BITS, BLOCK_CODES, LIST_TOGETHER, TILE, SignFilter

SomeRows = Callable[[slice], Tensor]  # rows of a part, about their centre


class EncodedBits(NamedTuple):
    """Codes of n rows: words (n, B D / 32) int32, plane by plane, of a room with rows of zeros up to whole tiles."""

    room: Tensor
    words: Tensor
    factor: Tensor  # (n,) float32
    half: Tensor  # (n,) float32, |z|^2 / 2
    widest: float  # the largest error of an estimate, a unit of f |q|


def encode_bits(device: Device, rows: SomeRows, n: int, turn: Tensor, bits: int, steps: Sequence[float]) -> EncodedBits:
    """Codes of n rows that turn (d, D) turns; steps: those that are tried."""
    wide = turn.shape[1]
    room = device.zeros((-(-n // TILE) * TILE, bits * wide // 32), "int32")
    factor, half, widest = device.empty(n), device.empty(n), device.zeros(())
    with device.full_precision():
        for part in parts_of(n, BLOCK_BYTES // (64 * wide)):
            z = rows(part).to(turn.dtype) @ turn  # (m, D)
            square = z.square().sum(1)
            levels, along, length = _best_levels(z, square, bits, steps)
            f = (square / along.where(along > 0, 1.0)).where(along > 0, 0.0)
            lost = (length - square / f.where(f > 0, 1.0).square()).clamp(min=0.0).where(f > 0, 0.0)
            widest = device.torch.maximum(widest, (lost.amax() / max(1, wide - 1)).sqrt())
            room[part], factor[part], half[part] = _words(levels, bits), f, 0.5 * square
    return EncodedBits(room, room[:n], factor, half, float(widest))


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
class EncodedBytes:
    """Rows (n, d) as bytes, which are read like a tensor of float32: what is cut out of it is decoded."""

    codes: Tensor  # (n, d) int8
    scale: Tensor  # (n,) float32
    centre: Tensor  # (d,) float32

    @staticmethod
    def of(device: Device, rows: Tensor, centre: Tensor) -> EncodedBytes:
        """Int8Queries of rows (n, d) about the centre (d,) float32."""
        codes, scale = device.empty(rows.shape, "int8"), device.empty(len(rows))
        for part in parts_of(len(rows), BLOCK_BYTES // (16 * rows.shape[1])):
            moved = rows[part] - centre
            widest = moved.abs().amax(1)
            scale[part] = (widest / 127.0).where(widest > 0, 1.0).float()
            codes[part] = (moved / scale[part][:, None]).round_().clamp_(-127, 127).to(codes.dtype)
        return EncodedBytes(codes, scale, centre)

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


_EXTRA = 246  # kept beyond k: near rows rule out the others with far fewer (G1)
_UNPACKED = 64  # rows of a program of the kernel (G1)
_HALF, _SINGLE = (float(np.finfo(kind).eps) / 2 for kind in (np.float16, np.float32))  # of rounding a number

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
        """Int8Queries on the device."""
        held = (self.words, self.factor) if self.half is None else (self.words, self.factor, self.half)
        return sum(int(t.numel() * t.element_size()) for t in held)

    def nearest(self, asked: CodeQueries, k: int, measure: MeasureSome) -> NearestRows:
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
                for some in left.split(max(1, min(BLOCK_QUERIES, LISTED // keep))):
                    found, proven = self._filtered(asked.take(some), k, keep, partial(measure, some))
                    ids[some], distances[some] = found
                    undecided.append(some[~proven])
                left, keep = torch.cat(undecided), min(len(self), MORE * keep)
        return NearestRows(ids, distances)

    def _listed(
        self, signs: SignFilter, asked: CodeQueries, k: int, measure: Callable[[Tensor], Tensor]
    ) -> tuple[NearestRows, Tensor]:
        """The k nearest among those of the filter's lists, and whether (q,) nobody else is in doubt."""
        listed, norms = signs.lists(asked.turned), asked.norms.float()[:, None]
        slack = 4 * BITS * _SINGLE * asked.turned.abs().sum(1, keepdim=True)
        lows = -self.factor[listed.ids] * (listed.products + self.bar * norms + slack)
        if self.half is not None:
            lows += self.half[listed.ids] * (1 - 2.0**-20)
        at = smallest_keys(lows.where(listed.real, float("inf")), k + _EXTRA)
        ids, order = listed.ids.gather(1, at.ids).sort(1)
        real = at.distances.isfinite().gather(1, order)
        found = sort_nearest(measure(ids).where(real, float("inf")), ids, k)
        keys = self._keys(found.distances[:, -1], asked.base)
        every = lows.shape[1] == real.shape[1]  # of those listed
        beyond = every | ~real.all(1) | (at.distances.double().amax(1) > keys)
        return found, beyond & signs.enough(keys, asked.norms, self.half is not None, listed.most)

    def _filtered(
        self, asked: CodeQueries, k: int, keep: int, measure: Callable[[Tensor], Tensor]
    ) -> tuple[NearestRows, Tensor]:
        """The k nearest among those kept, and whether (q,) nobody else is in doubt."""
        ids, lows = self._least(asked, keep)
        ids = ids.sort(1).values
        found = sort_nearest(measure(ids), ids, k)
        if keep == len(self):
            return found, self.device.torch.ones_like(asked.norms, dtype=self.device.torch.bool)
        return found, lows.double().amax(1) > self._keys(found.distances[:, -1], asked.base)

    def _keys(self, distances: Tensor, base: Tensor) -> Tensor:
        """The key of a row at this distance (q,)."""
        return distances - base if self.half is None else 0.5 * (distances.square() - base)

    def _least(self, asked: CodeQueries, keep: int) -> NearestRows:
        """Positions and `low` (q, keep) of the least."""
        torch, norms = self.device.torch, asked.norms.float()[:, None]
        q, wide = asked.turned.shape
        unit = asked.turned / norms.where(norms > 0, 1.0)
        rounding = (_HALF if self.device.is_gpu else _SINGLE) + 2 * wide * _SINGLE
        reach = self.bar + (2**self.bits - 1) * (rounding * unit.abs().sum(1, keepdim=True) + wide * 2.0**-24)
        kind = torch.float16 if self.device.is_gpu else torch.float32
        unit, reach, best = unit.to(kind), reach * -norms, None
        for part in parts_of(len(self), max(keep, min(BLOCK_CODES, BLOCK_BYTES // (4 * q) // 64 * 64))):
            lows = self._products(unit, self.grid(self.words[part], kind)).mul_(-norms).add_(reach)
            lows.mul_(self.factor[part])
            if self.half is not None:
                lows.add_(self.half[part] * (1 - 2.0**-20))  # float32 rounds the sum
            best = merge_smallest(best, smallest_keys(lows, keep), part.start, keep)
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
            unpack_bits(words, out, self.bits)
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
        for part in parts_of(q, BLOCK_BYTES // (4 * c * asked.turned.shape[1])):
            grid = self.grid(self.words[ids[part].reshape(-1)], torch.float32).view(-1, c, asked.turned.shape[1])
            products.append((grid @ asked.turned[part][:, :, None])[:, :, 0])
        keys = -(self.factor[ids] * torch.cat(products)).double()
        if self.half is None:
            return (keys + asked.base[:, None]).clamp(min=self.least)
        return (2 * (keys + self.half[ids].double()) + asked.base[:, None]).clamp(min=0.0).sqrt()


def unpack_bits(words: Tensor, out: Tensor, bits: int) -> None:
    """`BitCodes.grid` by a kernel: one pass, where a table of bytes takes several."""
    from kway.rows.gpu.search_kernels import unpack_planes

    m, wide = out.shape
    unpack_planes[(-(-m // _UNPACKED), wide // 32)](words.contiguous(), out, m, wide // 32, bits, _UNPACKED)


@dataclass(frozen=True)
class CellCodes:
    """Codes of n rows in the order of cells; `squared`: distances are roots, `by_angle`: rows have length one."""

    codes: BitCodes
    cells: Tensor  # (n,) int64
    landmarks: Tensor  # (c, D) float32: m'
    mean: Tensor  # (d,) float64
    turn: Tensor  # (d, D) float64
    squared: bool
    by_angle: bool
    scale: Tensor  # (n,) 1
    offset: Tensor  # (n,)

    @staticmethod
    def of(
        codes: BitCodes, cells: Tensor, centres: Tensor, mean: Tensor, turn: Tensor, squared: bool, by_angle: bool
    ) -> CellCodes:
        """Codes (their half known where distances are not dot's) about centres (c, d) float64."""
        landmarks = ((centres - mean) @ turn).float()
        scale, offset = codes.device.zeros(len(cells)) + 1, codes.device.zeros(len(cells))
        if codes.half is not None:
            squares = 0.5 * landmarks.square().sum(1)
            for part in parts_of(len(cells), BLOCK_BYTES // (8 * turn.shape[1])):
                along = (landmarks[cells[part]] * codes.grid(codes.words[part], landmarks.dtype)).sum(1)
                offset[part] = squares[cells[part]] + codes.half[part] + codes.factor[part] * along
        return CellCodes(codes, cells, landmarks, mean, turn, squared, by_angle, scale, offset)

    def __len__(self) -> int:
        return len(self.cells)

    @property
    def device(self) -> Device:
        """Where they are."""
        return self.codes.device

    def asked(self, queries: Tensor) -> Tensor:
        """q' (q, D) of queries (q, d) float64."""
        return ((unit_rows(queries) if self.by_angle else queries) - self.mean) @ self.turn

    def sides(self, at: Tensor, kind: object) -> Tensor:
        """x' (..., D) of the rows at places (...)."""
        grid = self.codes.grid(self.codes.words[at.reshape(-1)], self.landmarks.dtype).view(*at.shape, -1)
        return (grid * self.codes.factor[at][..., None] + self.landmarks[self.cells[at]]).to(kind)

    def limit(self, worst: Tensor, norms: Tensor) -> Tensor:
        """No key is too large: estimates err by more than their rounding, for which some more than k are kept."""
        return worst.new_full(worst.shape, -float("inf"))

    def measured(self, queries: Tensor, places: Tensor) -> Tensor:
        """Estimated distances (q, c) float64 to the rows at places (q, c)."""
        step = max(1, BLOCK_BYTES // (16 * places.shape[1] * self.turn.shape[1]))
        parts = parts_of(len(queries), step)
        return self.device.torch.cat([self._estimated(queries[part], places[part]) for part in parts])

    def _estimated(self, queries: Tensor, places: Tensor) -> Tensor:
        turned, codes = self.asked(queries).float()[:, None], self.codes  # (q, 1, D)
        m = self.landmarks[self.cells[places]]  # (q, c, D)
        grid = codes.grid(codes.words[places.reshape(-1)], m.dtype).view(*m.shape)
        local = turned.expand_as(m) if codes.half is None else turned - m
        keys = -(codes.factor[places] * (local * grid).sum(2)).double()
        if codes.half is None:
            return keys - (turned * m).sum(2).double()
        squares = local.double().square().sum(2) + 2 * (keys + codes.half[places].double())
        if self.squared:
            return squares.clamp(min=0.0).sqrt()
        blank = (queries.square().sum(1, keepdim=True) == 0).double()  # a cosine of 0 to everything
        return (0.5 * (squares + blank)).clamp(min=0.0)
