"""Exact search through bytes with a measured error: what a product of bytes proves about a score q.x - o.

x = s x^ + e_x, q = t q^ + e_q, both as sides (exact.py) rotated at random, x^ and q^ in -127..127, s one number per
tile of 128 rows. Then q.x = s t q^.x^ + e_q.(s x^) + q.e_x, and by Cauchy-Schwarz, with maxima over the tile,

    |q.x - s t q^.x^| <= |q| max|e_x| + |e_q| max|s x^|

so one integer per query and tile says which products may belong to a neighbor. Sides and errors are float64; EPS covers
the float32 arithmetic of that integer. Rows are sorted by norm, which makes o nearly one number per tile, and tiles
shuffled, so that any range of them is a sample.

A search scans a sample of the tiles for a first threshold, then all tiles in rounds; survivors are measured in float64
and renew the thresholds. Queries whose lists overflow are searched by exact.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from kway.kernels.float32 import FLOAT32_SAFE
from kway.rows.gpu.device import Device, Tensor
from kway.rows.gpu.exact_search import BLOCK_BYTES, METRICS, DeviceMetric, ExactRows, NearestRows

INT8_TILE = 128  # rows: one scale and one test for all of them
EPS = 4e-6  # of each term: eight roundings of 2^-24 each, and more
FINEST = float(np.finfo(np.float32).eps)  # of the largest norm: a finer scale could overflow the integer's arithmetic


@dataclass(frozen=True)
class Int8Queries:
    """Queries as bytes (nqp, DP) and their constants (nqp, 4); norms and steps t (q,) float64."""

    values: Tensor
    constants: Tensor
    norms: Tensor
    steps: Tensor


@dataclass(frozen=True)
class Int8Tiles:
    """All rows as bytes."""

    device: Device
    product: DeviceMetric
    centre: Tensor | None  # (d,) float64
    turn: Tensor  # (d, DP) float64, orthonormal rows
    order: Tensor  # (nt * 128,) int32: the row at each place, -1 pads
    values: Tensor  # (nt, 128, DP) int8
    upper: Tensor  # (nt, 4) float32
    lower: Tensor  # (nt, 4) float32
    finest: float

    @staticmethod
    def of(rows: ExactRows) -> Int8Tiles:
        """Int8Queries of rows that are on the device."""
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
        made = Int8Tiles(
            device, rows.product, rows.centre, turn, order.reshape(-1), device.empty((nt, INT8_TILE, wide), "int8"),
            device.empty((nt, 4)), device.empty((nt, 4)), FINEST * rows.reach,
        )  # fmt: skip
        step = max(1, BLOCK_BYTES // (8 * INT8_TILE * wide))
        for first in range(0, nt, step):
            made._fill(rows.rows, order[first : first + step], slice(first, first + step))
        return made

    @property
    def nbytes(self) -> int:
        """Int8Queries on the device."""
        return sum(int(t.numel() * t.element_size()) for t in (self.values, self.upper, self.lower, self.order))

    def _fill(self, rows: Tensor, places: Tensor, part: slice) -> None:
        """Int8Queries and constants of some tiles (m, 128); a padded place repeats the tile's first row."""
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

    def queries(self, queries: Tensor, padded_to: int) -> Int8Queries:
        """Int8Queries of queries (q, d), padded by some that nothing is near to."""
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
        return Int8Queries(values, constants, norms, t)

    def thresholds(self, worst: Tensor, asked: Int8Queries) -> Tensor:
        """thr / t (q,) of the score at these distances (q,), a little lower; -inf where nobody was that near."""
        score = self.product.score(worst, asked.norms) - 1e-12 * (asked.norms.square() + worst.square())
        return self.lowered(score, asked).where(worst < 1e299, -float("inf"))

    def lowered(self, score: Tensor, asked: Int8Queries) -> Tensor:
        """thr / t (q,) of scores (q,): lower by its rounding, which the terms of tiles and queries do not cover."""
        return ((score - EPS * score.abs()) / asked.steps).float()


def padded_rows(d: int) -> int:
    """Columns of bytes: what the matrix unit takes at once, or a multiple of it."""
    return 32 if d <= 32 else 64 if d <= 64 else -(-d // 128) * 128


CAP = 4096  # survivors listed per query (G1)
SHORT_LIST = 512  # those of a list that is chosen from quickly; nearly all are (G1)
SAMPLED, ROUNDS = 0.01, 4  # share of the tiles that is the sample; rounds up to all of them (G3)
_SHARES = np.geomspace(SAMPLED, 1.0, ROUNDS + 1)
_ROOM = 8192  # tiles whose flagged queries are gathered at once (G1)
_BLOCK = 128  # queries of a program (G1)
_MOST = 64  # neighbors that lists are kept for (G1)
LEAST_FOR_INT8 = 2**17  # rows from which on bytes pay (G1)
_KINDS = {name: kind for kind, name in enumerate(METRICS)}  # as the kernels know them


@dataclass(frozen=True)
class Int8Search:
    """Rows as bytes, and as they are."""

    rows: ExactRows
    tiles: Int8Tiles

    @staticmethod
    def over(rows: ExactRows) -> Int8Search:
        """Int8Queries of the rows."""
        return Int8Search(rows, Int8Tiles.of(rows))

    @property
    def device(self) -> Device:
        """Where the rows are."""
        return self.rows.device

    def takes(self, queries: Tensor, k: int) -> bool:
        """Whether bytes can answer: few enough neighbours, numbers that float32 holds."""
        largest = float(queries.abs().max())
        return (
            k <= min(_MOST, len(self.rows) // (8 * INT8_TILE))
            and largest < FLOAT32_SAFE[1]
            and FLOAT32_SAFE[0] < self.rows.reach < FLOAT32_SAFE[1]
        )

    def nearest(self, queries: Tensor, k: int) -> NearestRows:
        """The k nearest of queries (q, d), by (float64 distance, position)."""
        widest = max(_SHARES[i + 1] - _SHARES[i] for i in range(1, len(_SHARES) - 1))
        batch = int(BLOCK_BYTES / (widest * len(self.tiles.values))) // _BLOCK * _BLOCK
        parts = [self._batch(part, k) for part in queries.split(min(16384, max(_BLOCK, batch)))]
        return NearestRows(*(self.device.torch.cat(values) for values in zip(*parts)))

    def _batch(self, queries: Tensor, k: int) -> NearestRows:
        first = _Round(self, queries, k)
        first.sample()
        first.run()
        found, bad = first.found(), first.overflowed()
        if len(bad):
            second = _Round(self, queries[bad], k)
            second.asked.constants[: len(bad), 0] = first.asked.constants[bad, 0]
            second.run()
            found.ids[bad], found.distances[bad] = second.found()
            bad = bad[second.overflowed()]
        if len(bad):
            found.ids[bad], found.distances[bad] = self.rows.nearest(queries[bad], k)
        return found


class _Round:
    """A batch of queries as bytes, their lists of survivors, the k nearest so far."""

    def __init__(self, search: Int8Search, queries: Tensor, k: int) -> None:
        self.rows, self.tiles, self.k = search.rows, search.tiles, k
        device, self.q = search.device, len(queries)
        self.queries, self.padded = queries.contiguous(), -(-self.q // _BLOCK) * _BLOCK
        self.asked: Int8Queries = self.tiles.queries(queries, self.padded)
        self.counts = device.zeros(self.padded, "int32")
        self.lists = device.empty((self.padded, CAP), "int32")
        self.away = device.empty((self.q, CAP), "float64")
        self.best = device.empty((self.q, k), "float64")
        self.ids = device.empty((self.q, k), "int32")
        self.over = device.zeros(self.q, "int32")
        nt = len(self.tiles.values)
        self.ends = [min(nt, max(4 * k, round(nt * share))) for share in _SHARES]

    def found(self) -> NearestRows:
        """The k nearest."""
        return NearestRows(self.ids.long(), self.best)

    def overflowed(self) -> Tensor:
        """Queries whose lists lost rows."""
        return self.over.nonzero()[:, 0]

    def sample(self) -> None:
        """First thresholds: the k-th best of the sampled tiles' best, each another row, never overstated."""
        bounds = self.tiles.device.empty((self.ends[0], self.padded))
        self._scan(0, self.ends[0], bounds, tiles_each=32, sample=True)
        kth = bounds.T.contiguous().topk(self.k, 1).values[: self.q, -1].double()
        self.asked.constants[: self.q, 0] = self.tiles.lowered(kth, self.asked)

    def run(self) -> None:
        """All rounds."""
        nt, device = len(self.tiles.values), self.tiles.device
        spans = list(zip([0, *self.ends[1:]], self.ends[1:]))
        flags = device.empty((max(b - a for a, b in spans), self.padded), "uint8")
        room = device.empty((min(_ROOM, nt), self.padded), "int32")
        for a, b in spans:
            if a < b:
                self._scan(a, b, flags, tiles_each=128 if b == nt else 32)
                self._expand(a, b, flags, room)
                self._choose()

    def _scan(self, a: int, b: int, out: Tensor, tiles_each: int, sample: bool = False) -> None:
        from triton.tools.tensor_descriptor import TensorDescriptor

        from kway.rows.gpu import search_kernels as kernels

        wide = self.tiles.values.shape[2]
        chunk, blocks = min(128, wide), self.padded // _BLOCK
        rows = TensorDescriptor.from_tensor(self.tiles.values.view(-1, wide), [INT8_TILE, chunk])
        kernels.scan[(blocks * -(-(b - a) // tiles_each),)](
            self.asked.values, self.asked.constants, rows, self.tiles.upper, self.tiles.lower, out, blocks,
            self.padded, a, b, wide, chunk, _BLOCK, tiles_each, sample, 3, num_warps=4, num_stages=3,
        )  # fmt: skip

    def _expand(self, a: int, b: int, flags: Tensor, room: Tensor) -> None:
        from kway.rows.gpu import search_kernels as kernels

        wide, together = self.tiles.values.shape[2], 2048
        for first in range(a, b, len(room)):
            grid = (min(b - first, len(room)), -(-self.padded // together))
            kernels.expand[grid](
                flags[first - a :], self.asked.values, self.asked.constants, self.tiles.values, self.tiles.upper,
                self.counts, self.lists, room, self.padded, first, wide, min(128, wide), CAP, together, 16, num_warps=4,
            )  # fmt: skip

    def _choose(self) -> None:
        """Survivors in float64, the k nearest of each query, the next thresholds; one once proven stays."""
        from kway.rows.gpu import search_kernels as kernels

        d, kind = self.rows.rows.shape[1], _KINDS[self.rows.product.name]
        kernels.measure_near[(self.q,)](
            self.rows.rows, self.queries, self.tiles.order, self.counts, self.lists, self.away, d, kind, CAP, 32, 128,
            num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
        for low, size in ((-1, SHORT_LIST), (SHORT_LIST, CAP)):
            kernels.select[(self.q,)](
                self.tiles.order, self.counts, self.lists, self.away, self.best, self.ids, self.over, self.k, CAP, low,
                size, num_warps=4,
            )  # fmt: skip
        held = self.asked.constants[: self.q, 0]
        torch = self.tiles.device.torch
        self.asked.constants[: self.q, 0] = torch.maximum(held, self.tiles.thresholds(self.best[:, -1], self.asked))


@dataclass(frozen=True)
class ExactSearch:
    """Rows on a device, and as bytes where that pays."""

    rows: ExactRows
    coded: Int8Search | None

    @property
    def device(self) -> Device:
        """Where the rows are."""
        return self.rows.device

    def nearest(self, queries: Tensor, k: int) -> NearestRows:
        """The k nearest of queries (q, d), by (float64 distance, position)."""
        if self.coded is not None and self.coded.takes(queries, k):
            return self.coded.nearest(queries, k)
        return self.rows.nearest(queries, k)


def build_exact_search(device: Device, rows: Tensor, name: str) -> ExactSearch:
    """The search over rows (n, d) on the device, a tensor or read like one, under the distance of this name."""
    kept = ExactRows.of(device, rows, METRICS[name])
    pays = (
        isinstance(rows, device.torch.Tensor)
        and device.is_gpu
        and len(kept) >= LEAST_FOR_INT8
        and find_spec("triton") is not None
    )
    return ExactSearch(kept, Int8Search.over(kept) if pays else None)
