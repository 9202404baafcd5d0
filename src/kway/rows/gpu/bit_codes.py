"""Codes of a few bits per column (kway.search.codecs.bits) on a device: encoding and search.

EncodedBits, EncodedBytes    codes of rows on the device; they equal the CPU's up to the rounding of a product
BitCodes                     search for the k nearest rows by their codes

Symbols, for n rows of D rotated columns and B bits per column:

    y_r (D,)    odd integers, the sum over the bit planes b of 2^(B - 1 - b) times +1 or -1
    f_r         factor of row r: f_r y_r approximates the rotated row
    key_r       half_r - f_r <q, y_r>, the estimate; half_r is added only if distances are roots
    low_r       key_r - (bar + slack) f_r |q|, where slack covers the rounding of <q, y_r> / |q| in half precision

1. Multiply all rows in blocks, and keep the `keep` rows with the smallest low_r.
2. Measure them in full if full rows are stored, else estimate their distances in float32.
3. If the largest low_r kept is above the key of the k-th distance, every other row is farther, unless its estimate is
   wrong by more than its error bar. Otherwise keep more rows, and in the end all.

A filter of signs (sign_codes.py) goes first if there is one. Queries that it does not decide are searched as above.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from kway.rows.gpu import exact_search
from kway.rows.gpu.device import Device, Tensor, load_torch, row_blocks, rows_that_fit
from kway.rows.gpu.exact_search import GROUP, Answers, NearestRows
from kway.rows.gpu.sign_codes import BITS, BLOCK_CODES, CODE_TILE, SignFilter, pack_bits, unpack_codes
from kway.threads import spans

CenteredBlock = Callable[[slice], Tensor]  # returns a slice of the rows, with their center subtracted


class EncodedBits(NamedTuple):
    """Codes of n rows."""

    room: Tensor  # the words, with rows of zeros up to a whole number of tiles
    words: Tensor  # (n, B D / 32) int32, plane by plane
    factor: Tensor  # (n,) float32
    half: Tensor  # (n,) float32, |z|^2 / 2
    widest: float  # the largest error of an estimate, in units of f |q|


def encode_bits(
    device: Device, rows: CenteredBlock, n: int, rotation: Tensor, bits: int, steps: Sequence[float]
) -> EncodedBits:
    """Encode n rows, rotated by rotation (d, D); each row uses the grid step of `steps` that fits it best."""
    width = rotation.shape[1]
    room = device.zeros((-(-n // CODE_TILE) * CODE_TILE, bits * width // 32), "int32")
    factor, half, widest = device.empty(n), device.empty(n), device.zeros(())
    with device.full_precision():
        for part in row_blocks(n, 64 * width):
            z = rows(part).to(rotation.dtype) @ rotation  # (m, D)
            square = z.square().sum(1)
            levels, along, length = _best_levels(z, square, bits, steps)
            f = (square / along.where(along > 0, 1.0)).where(along > 0, 0.0)
            error = (length - square / f.where(f > 0, 1.0).square()).clamp(min=0.0).where(f > 0, 0.0)
            widest = device.torch.maximum(widest, (error.amax() / max(1, width - 1)).sqrt())
            room[part], factor[part], half[part] = _words(levels, bits), f, 0.5 * square
    return EncodedBits(room, room[:n], factor, half, float(widest))


class _Levels(NamedTuple):
    """Grid levels of rotated rows z (m, D), and how well y, the odd integers of the levels, fits them."""

    levels: Tensor  # (m, D), 0..2^B - 1
    along: Tensor  # <z, y> (m,)
    length: Tensor  # |y|^2 (m,)


def _levels(z: Tensor, step: Tensor, bits: int) -> _Levels:
    highest = 2**bits - 1
    levels = (z * (1.0 / step)[:, None] + 0.5 * (highest + 1)).floor_().clamp_(0, highest)
    y = 2 * levels - highest
    return _Levels(levels, (y * z).sum(1), y.square().sum(1))


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
    """Pack levels (m, D) into (m, B D / 32) int32, the plane of the highest bit first."""
    torch, u = load_torch(), levels.int()
    planes = torch.stack([(u >> shift) & 1 for shift in range(bits - 1, -1, -1)], 1)  # (m, B, D)
    return pack_bits(planes.flatten(1))


@dataclass(frozen=True)
class EncodedBytes:
    """Rows (n, d) as int8, which decode to float32 when they are indexed like a tensor."""

    codes: Tensor  # (n, d) int8
    scale: Tensor  # (n,) float32
    center: Tensor  # (d,) float32

    @staticmethod
    def encode(device: Device, rows: Tensor, center: Tensor) -> EncodedBytes:
        """Encode rows (n, d) with the center (d,) float32 subtracted."""
        codes, scale = device.empty(rows.shape, "int8"), device.empty(len(rows))
        for part in row_blocks(len(rows), 16 * rows.shape[1]):
            centered = rows[part] - center
            peaks = centered.abs().amax(1)
            scale[part] = (peaks / 127.0).where(peaks > 0, 1.0).float()
            codes[part] = (centered / scale[part][:, None]).round_().clamp_(-127, 127).to(codes.dtype)
        return EncodedBytes(codes, scale, center)

    @property
    def shape(self) -> Any:
        """Shape (n, d) of the rows."""
        return self.codes.shape

    @property
    def dtype(self) -> Any:
        """Dtype of the decoded rows: float32."""
        return self.scale.dtype

    @property
    def device(self) -> Any:
        """Device of the codes."""
        return self.codes.device

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, where: Any) -> Tensor:
        return self.codes[where] * self.scale[where][..., None] + self.center


_HALF, _SINGLE = (float(np.finfo(kind).eps) / 2 for kind in (np.float16, np.float32))  # relative rounding errors

MeasureRows = Callable[[Tensor, Tensor], Tensor]  # (which queries (m,), ids (m, c)) -> distances (m, c) float64


class CodeQueries(NamedTuple):
    """Rotated queries (q, D) float32, their norms (q,) float64, and bases (q,) float64.

    The base is ||q||^2 if distances are roots, else the difference of a distance and its key.
    """

    rotated: Tensor
    norms: Tensor
    base: Tensor

    def take(self, which: Tensor) -> CodeQueries:
        """Return the queries with these numbers."""
        return CodeQueries(*(values[which] for values in self))


@dataclass(frozen=True)
class BitCodes:
    """Codes of n rows on a device, searched by their estimates."""

    device: Device
    bits: int
    words: Tensor  # (n, B D / 32) int32, plane by plane, the sign's first
    factor: Tensor  # (n,) float32
    half: Tensor | None  # (n,) float32 if distances are roots
    bar: float  # error bar of an estimate in units of f |q|; 0 if estimates are the answer
    least: float  # the smallest distance
    filter: SignFilter | None = None

    def __len__(self) -> int:
        return int(self.words.shape[0])

    def nearest(self, queries: CodeQueries, k: int, measure: MeasureRows, rounded: bool = False) -> NearestRows:
        """Return the k <= n nearest by (measured distance, position); if `rounded`, by the distance in float32."""
        answers = Answers(self.device, len(queries.rotated), k, rounded)
        signs, keep = self.filter, min(len(self), _first_kept(k))
        if signs is not None:
            answers.search(
                exact_search.BLOCK_QUERIES,
                lambda part: self._search_lists(signs, queries.take(part), answers, partial(measure, part)),
            )
        while len(answers.left):
            answers.search(
                min(exact_search.BLOCK_QUERIES, rows_that_fit(8 * keep)),
                lambda part, keep=keep: self._filter(queries.take(part), keep, answers, partial(measure, part)),
            )
            keep = min(len(self), exact_search.MORE_KEPT * keep)
        return answers.nearest

    def _search_lists(
        self, signs: SignFilter, queries: CodeQueries, answers: Answers, measure: Callable[[Tensor], Tensor]
    ) -> tuple[NearestRows, Tensor]:
        """Return the nearest rows of the filter's lists, and whether (q,) every other row is farther."""
        lists, norms = signs.lists(queries.rotated), queries.norms.float()[:, None]
        slack = 4 * BITS * _SINGLE * queries.rotated.abs().sum(1, keepdim=True)
        lows = -self.factor[lists.ids] * (lists.products + self.bar * norms + slack)
        if self.half is not None:
            lows += self.half[lists.ids] * (1 - 2.0**-20)
        at = exact_search.smallest_keys(lows.where(lists.real, float("inf")), _first_kept(answers.k))
        ids, order = lists.ids.gather(1, at.ids).sort(1)
        real = at.distances.isfinite().gather(1, order)
        distances = answers.as_compared(measure(ids)).where(real, float("inf"))
        nearest = exact_search.sort_nearest(distances, ids, answers.k)
        keys = self._keys(answers.reach(nearest), queries.base)
        measured_all = lows.shape[1] == real.shape[1]  # rows of the lists
        beyond = measured_all | ~real.all(1) | (at.distances.double().amax(1) > keys)
        return nearest, beyond & signs.covers(keys, queries.norms, self.half is not None, lists.listed_within)

    def _filter(
        self, queries: CodeQueries, keep: int, answers: Answers, measure: Callable[[Tensor], Tensor]
    ) -> tuple[NearestRows, Tensor]:
        """Return the nearest of the `keep` rows of the smallest low, and whether (q,) every other row is farther."""
        smallest = self._smallest(queries, keep)
        return answers.prove(len(self), smallest, measure, lambda worst: self._keys(worst, queries.base))

    def _keys(self, distances: Tensor, base: Tensor) -> Tensor:
        """Return the keys (q,) of rows at these distances (q,)."""
        return distances - base if self.half is None else 0.5 * (distances.square() - base)

    def _smallest(self, queries: CodeQueries, keep: int) -> NearestRows:
        """Return positions and values (q, keep) of the smallest low."""
        torch, norms = self.device.torch, queries.norms.float()[:, None]
        q, wide = queries.rotated.shape
        unit = queries.rotated / norms.where(norms > 0, 1.0)
        rounding = (_HALF if self.device.is_gpu else _SINGLE) + 2 * wide * _SINGLE
        reach = self.bar + (2**self.bits - 1) * (rounding * unit.abs().sum(1, keepdim=True) + wide * 2.0**-24)
        kind = torch.float16 if self.device.is_gpu else torch.float32
        unit, reach = unit.to(kind), reach * -norms

        def lows(part: slice) -> Tensor:
            keys = self._products(unit, unpack_codes(self.words[part], self.bits, kind)).mul_(-norms).add_(reach)
            keys.mul_(self.factor[part])
            # float32 rounds the sum
            return keys if self.half is None else keys.add_(self.half[part] * (1 - 2.0**-20))

        size = min(BLOCK_CODES, rows_that_fit(4 * q) // GROUP * GROUP)
        return exact_search.smallest_of_blocks(lows, spans(len(self), max(keep, size)), keep)

    def _products(self, queries: Tensor, grid: Tensor) -> Tensor:
        """Return q.y (q, c), summed in float32."""
        if self.device.is_gpu:
            return self.device.torch.mm(queries, grid.T, out_dtype=self.device.torch.float32)
        return queries @ grid.T

    def estimates(self, queries: CodeQueries, ids: Tensor) -> Tensor:
        """Return estimated distances (q, c) float64 of the rows at ids (q, c)."""
        torch, (q, c) = self.device.torch, ids.shape
        products = []
        for part in row_blocks(q, 4 * c * queries.rotated.shape[1]):
            grid = unpack_codes(self.words[ids[part].reshape(-1)], self.bits, torch.float32)
            products.append((grid.view(-1, c, queries.rotated.shape[1]) @ queries.rotated[part][:, :, None])[:, :, 0])
        keys = -(self.factor[ids] * torch.cat(products)).double()
        if self.half is None:
            return (keys + queries.base[:, None]).clamp(min=self.least)
        return (2 * (keys + self.half[ids].double()) + queries.base[:, None]).clamp(min=0.0).sqrt()


def _first_kept(k: int) -> int:
    """Return the rows to keep first: as many as a search of full rows keeps in its second attempt."""
    return exact_search.MORE_KEPT * (k + exact_search.EXTRA_KEPT)
