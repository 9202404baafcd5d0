"""Exact search behind a filter of int8 products, whose error is known.

x = s x^ + e_x and q = t q^ + e_q are operands (exact_search.py) rotated at random. x^ and q^ are in -127..127, and s is
one number per tile of 128 rows. Then q.x = s t q^.x^ + e_q.(s x^) + q.e_x, and by Cauchy-Schwarz, with maxima over the
tile,

    |q.x - s t q^.x^| <= |q| max|e_x| + |e_q| max|s x^|

One integer per query and tile therefore decides which products may belong to a neighbor. Operands and errors are
float64; EPS covers the float32 arithmetic of that integer. Rows are sorted by norm, so that o is nearly constant within
a tile, and tiles are shuffled, so that any range of them is a sample.

A search scans a sample of the tiles for a first threshold, then all tiles in rounds. Rows of tiles that may hold a
neighbor are multiplied again, with two digits of the query (q = t (q^ + q~ / 254) + e_q'). Survivors are measured in
float64 and tighten the thresholds. Queries whose lists overflow are searched by exact_search.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from kway.kernels.float32 import FLOAT32_SAFE
from kway.rows.gpu.device import Device, Tensor, row_blocks, rows_that_fit
from kway.rows.gpu.exact_search import METRICS, DeviceMetric, ExactRows, NearestRows
from kway.rows.gpu.tile_plans import TILE, Int8Plan, plan_int8

FLOAT32_EPS = float(np.finfo(np.float32).eps)  # also the finest scale, relative to the largest norm
FINER = 2.0 * np.iinfo(np.int8).max  # units of the second digit in one of the first
EPS = 32 * FLOAT32_EPS  # relative error of each term: eight roundings, with a margin of eight
LIST_SIZE = 4096  # survivors listed per query, at most; as many as tiles if these are fewer (G1)
SHORT_LIST = 512  # survivors of a list that the faster selection handles; nearly all lists are short (G1)
SAMPLE_SHARE, ROUNDS = 0.01, 4  # share of the tiles in the sample, and rounds that scan all tiles (G1)
SMALL_WORK, SMALL_SHARE, SMALL_ROUNDS = 2**41, 0.1, 2  # products up to which launches cost more than survivors (G1)
MAX_INT8_NEIGHBORS = 64  # the largest k that lists of survivors hold (G1)
GATHERED = 32  # marked queries that are multiplied together with a tile (G1)
_KINDS = {name: kind for kind, name in enumerate(METRICS)}  # the kernels' numbers of the metrics


@dataclass(frozen=True)
class Int8Queries:
    """Queries as two digits (nqp, DP) int8 with constants (nqp, 5); norms (q,) and steps t (q,) are float64."""

    values: Tensor
    fine: Tensor
    constants: Tensor
    norms: Tensor
    steps: Tensor


@dataclass(frozen=True)
class Int8Tiles:
    """All rows as int8, in tiles of 128 rows."""

    device: Device
    metric: DeviceMetric
    center: Tensor | None  # (d,) float64
    rotation: Tensor  # (d, DP) float64, orthonormal rows
    order: Tensor  # (nt * 128,) int32: the row at each place, -1 for padding
    values: Tensor  # (nt, 128, DP) int8
    upper: Tensor  # (nt, 4) float32
    lower: Tensor  # (nt, 4) float32
    finest: float  # the smallest scale; a smaller one could overflow the integer arithmetic

    @staticmethod
    def build(rows: ExactRows) -> Int8Tiles:
        """Quantize rows that are on the device."""
        device, torch = rows.device, rows.device.torch
        n, d = rows.rows.shape
        wide = padded_width(d)
        source = torch.Generator(device=device.name).manual_seed(0)
        kind = {"generator": source, "device": device.name, "dtype": torch.float64}
        rotation = torch.linalg.qr(torch.randn((wide, wide), **kind))[0][:d].contiguous()
        order = torch.nn.functional.pad(rows.offset.argsort().int(), (0, -n % TILE), value=-1).view(-1, TILE)
        order = order[torch.randperm(len(order), generator=source, device=device.name)]
        nt, finest = len(order), max(FLOAT32_EPS * rows.reach, 1e-30)
        values, upper, lower = device.empty((nt, TILE, wide), "int8"), device.empty((nt, 4)), device.empty((nt, 4))
        tiles = Int8Tiles(
            device, rows.metric, rows.center, rotation, order.reshape(-1), values, upper, lower, finest
        )  # fmt: skip
        for part in row_blocks(nt, 8 * TILE * wide):
            tiles._fill(rows.rows, order[part], part)
        return tiles

    def _fill(self, rows: Tensor, places: Tensor, part: slice) -> None:
        """Quantize the rows of some tiles (m, 128); padding repeats the first row of its tile."""
        torch = self.device.torch
        exact = rows[places.where(places >= 0, places[:, :1]).reshape(-1).long()].double()
        operands = self.metric.operand(exact, self.center)
        offsets = self.metric.offsets(operands.square().sum(1)).view(places.shape)
        x = (operands @ self.rotation).view(*places.shape, -1)  # (m, 128, DP)
        s = (x.abs().amax((1, 2)) / 127).clamp(min=self.finest)
        step = s[:, None, None]
        rounded = (x / step).round_().clamp_(-127, 127)
        self.values[part] = rounded.to(torch.int8)
        x -= rounded * step
        longest = (rounded * step).square_().sum(2).amax(1).sqrt_()
        error = x.square_().sum(2).amax(1).sqrt_() + EPS * longest
        low, high = offsets.amin(1), offsets.amax(1)
        upper = torch.stack([torch.ones_like(s), EPS * high - low, error, (1 + EPS) * longest], 1)
        self.upper[part] = (upper / s[:, None]).float()
        self.lower[part] = torch.stack([s, (1 + EPS) * high, error, (1 + EPS) * longest], 1).float()

    def quantize(self, queries: Tensor, padded_to: int) -> Int8Queries:
        """Quantize queries (q, d); padding queries have no neighbors."""
        torch, q = self.device.torch, len(queries)
        x = self.metric.operand(queries.double(), self.center) @ self.rotation
        t = (x.abs().amax(1) / 127).clamp(min=self.finest)
        norms = x.square().sum(1).sqrt_()
        digits = self.device.zeros((2, padded_to, x.shape[1]), "int8")
        terms = [torch.ones_like(t), (1 + EPS) * norms]
        for values, step in zip(digits, (t, t / FINER)):
            rounded = (x / step[:, None]).round_().clamp_(-127, 127)
            values[:q] = rounded
            x = x.addcmul_(rounded, step[:, None], value=-1)  # what is left
            terms.append(x.square().sum(1).sqrt_() + EPS * norms)
        constants = self.device.zeros((padded_to, 5))
        constants[:q, 1:] = torch.stack(terms, 1) / t[:, None]
        constants[q:, 0], constants[q:, 1] = float("inf"), 1.0
        return Int8Queries(digits[0], digits[1], constants, norms, t)

    @property
    def list_size(self) -> int:
        """Survivors listed per query: a power of two."""
        return min(LIST_SIZE, max(2 * SHORT_LIST, 1 << (len(self.values) - 1).bit_length()))

    def lower_scores(self, score: Tensor, queries: Int8Queries) -> Tensor:
        """Return score / t (q,), lowered by its rounding error, which the tiles' terms do not cover."""
        return ((score - EPS * score.abs()) / queries.steps).float()


def padded_width(d: int) -> int:
    """Return the columns of int8 rows: what a matrix product takes at once, or a multiple of it."""
    return 32 if d <= 32 else 64 if d <= 64 else -(-d // TILE) * TILE


@dataclass(frozen=True)
class ExactSearch:
    """Exact search over rows on a device, behind the int8 filter if there are int8 rows."""

    rows: ExactRows
    tiles: Int8Tiles | None = None
    plan: Int8Plan | None = None  # launch parameters of the kernels

    @staticmethod
    def filtered(rows: ExactRows, plan: Int8Plan) -> ExactSearch:
        """Quantize the rows for the filter."""
        return ExactSearch(rows, Int8Tiles.build(rows), plan)

    def filters(self, queries: Tensor, k: int) -> bool:
        """Return whether the filter can be used: k is small enough and float32 holds the numbers."""
        largest = float(queries.abs().max())
        return (
            k <= min(MAX_INT8_NEIGHBORS, len(self.rows) // (2 * TILE))
            and largest < FLOAT32_SAFE[1]
            and FLOAT32_SAFE[0] < self.rows.reach < FLOAT32_SAFE[1]
        )

    def nearest(self, queries: Tensor, k: int) -> NearestRows:
        """Return the k nearest rows of queries (q, d) by (float64 distance, position)."""
        if self.tiles is None or not self.filters(queries, k):
            return self.rows.nearest(queries, k)
        batches = len(row_blocks(len(queries), 8 * self.tiles.list_size))  # 8 bytes per survivor: its distance
        with self.rows.device.selected():
            parts = [self._search_batch(part, k) for part in queries.tensor_split(batches)]
        return parts[0] if batches == 1 else NearestRows(*map(self.rows.device.torch.cat, zip(*parts)))

    def _search_batch(self, queries: Tensor, k: int) -> NearestRows:
        first = _Batch(self, queries, k)
        first.sample()
        first.run()
        found, bad = first.found(), first.overflowed()
        if len(bad):
            second = _Batch(self, queries[bad], k)
            second.int8.constants[: len(bad), 0] = first.int8.constants[bad, 0]
            second.run()
            found.ids[bad], found.distances[bad] = second.found()
            bad = bad[second.overflowed()]
        if len(bad):
            found.ids[bad], found.distances[bad] = self.rows.nearest(queries[bad], k)
        return found


class _Batch:
    """A batch of queries, their lists of survivors, and the k nearest rows so far."""

    def __init__(self, search: ExactSearch, queries: Tensor, k: int) -> None:
        from kway.rows.gpu import search_kernels

        assert search.tiles is not None
        assert search.plan is not None

        self.kernels: Any = search_kernels
        self.rows, self.tiles, self.plan, self.k = search.rows, search.tiles, search.plan, k
        device, self.q = search.rows.device, len(queries)
        self.queries, self.padded = queries.contiguous(), -(-self.q // TILE) * TILE
        self.int8 = self.tiles.quantize(queries, self.padded)
        self.counts, self.size = device.zeros(self.padded, "int32"), self.tiles.list_size
        self.lists = device.empty((self.padded, self.size), "int32")
        self.away = device.empty((self.q, self.size), "float64")
        self.best = device.empty((self.q, k), "float64")
        self.ids = device.empty((self.q, k), "int32")
        self.over = device.zeros(self.q, "int32")
        small = self.padded * self.tiles.values.numel() <= SMALL_WORK
        share, rounds = (SMALL_SHARE, SMALL_ROUNDS) if small else (SAMPLE_SHARE, ROUNDS)
        seen = [share ** (1 - i / rounds) * self.n_tiles for i in range(rounds + 1)]
        self.ends = [min(self.n_tiles, max(4 * k, round(tiles))) for tiles in seen]
        from triton.tools.tensor_descriptor import TensorDescriptor

        values = self.tiles.values.view(-1, self.tiles.values.shape[2])
        self.row_tiles = TensorDescriptor.from_tensor(values, [TILE, search.plan.chunk])

    @property
    def n_tiles(self) -> int:
        """Number of tiles."""
        return len(self.tiles.values)

    def found(self) -> NearestRows:
        """Return the k nearest rows."""
        return NearestRows(self.ids.long(), self.best)

    def overflowed(self) -> Tensor:
        """Return the queries whose lists lost rows."""
        return self.over.nonzero()[:, 0]

    def sample(self) -> None:
        """Set first thresholds: the k-th best of the sampled tiles' best scores, which belong to different rows."""
        bounds = self.tiles.device.empty((self.ends[0], self.padded))
        self._scan(0, self.ends[0], bounds, tiles_each=32, sample=True)
        kth = bounds.T.contiguous().topk(self.k, 1).values[: self.q, -1].double()
        self.int8.constants[: self.q, 0] = self.tiles.lower_scores(kth, self.int8)

    def run(self) -> None:
        """Scan all tiles in rounds."""
        device, part = self.tiles.device, min(self.n_tiles, rows_that_fit(5 * self.padded))
        flags, room = (device.empty((part, self.padded), kind) for kind in ("uint8", "int32"))
        for a, b in zip([0, *self.ends[1:]], self.ends[1:]):
            for first in range(a, b, part):
                last = min(b, first + part)
                self._scan(first, last, flags, tiles_each=128 if b == self.n_tiles else 32)
                self._expand(first, last, flags, room)
            if a < b:
                self._choose()

    def _scan(self, a: int, b: int, out: Tensor, tiles_each: int, sample: bool = False) -> None:
        """Mark which tiles from a to b may contain a neighbor of each query."""
        wide, blocks, plan = self.tiles.values.shape[2], self.padded // TILE, self.plan
        self.kernels.scan[(blocks * -(-(b - a) // tiles_each),)](
            self.int8.values, self.int8.constants, self.row_tiles, self.tiles.upper, self.tiles.lower, out, blocks,
            self.padded, a, b, wide, plan.chunk, TILE, tiles_each, sample, plan.scan_stages, plan.unroll, num_warps=4,
            num_stages=plan.scan_stages,
        )  # fmt: skip

    def _expand(self, a: int, b: int, flags: Tensor, room: Tensor) -> None:
        """Append the rows of marked tiles that may be neighbors to the queries' lists."""
        wide, together, tiles = self.tiles.values.shape[2], 2048, self.tiles
        self.kernels.expand[(b - a, -(-self.padded // together))](
            flags, self.int8.values, self.int8.fine, self.int8.constants, tiles.values, tiles.upper, self.counts,
            self.lists, room, self.padded, a, wide, self.plan.chunk, self.size, together, GATHERED,
            self.plan.expand_stages, num_warps=4,
        )  # fmt: skip

    def _choose(self) -> None:
        """Measure the survivors in float64, keep the k nearest per query, and raise the thresholds."""
        d, kind = self.rows.rows.shape[1], _KINDS[self.rows.metric.name]
        columns = min(128, max(16, 1 << (d - 1).bit_length()))
        self.kernels.measure_near[(self.q,)](
            self.rows.rows, self.queries, self.tiles.order, self.counts, self.lists, self.away, d, kind, self.size,
            min(128, 4096 // columns), columns, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
        for low, size in ((-1, SHORT_LIST), (SHORT_LIST, self.size)):
            self.kernels.select[(self.q,)](
                self.tiles.order, self.counts, self.lists, self.away, self.best, self.ids, self.over,
                self.int8.constants, self.int8.norms, self.int8.steps, EPS, kind, self.k, self.size, low, size,
                num_warps=size // SHORT_LIST if size <= 4 * SHORT_LIST else 4,
            )  # fmt: skip


def build_exact_search(device: Device, rows: Tensor, name: str) -> ExactSearch:
    """Return the search over rows (n, d), a tensor on the device or codes that decode like one, under a metric."""
    exact = ExactRows.build(device, rows, METRICS[name])
    large = isinstance(rows, device.torch.Tensor) and len(exact) >= max(LIST_SIZE, 4 * rows.shape[1])
    if not (large and device.multiplies_int8 and find_spec("triton") is not None):
        return ExactSearch(exact)
    plan = plan_int8(padded_width(rows.shape[1]), device.shared_bytes)
    return ExactSearch(exact) if plan is None else ExactSearch.filtered(exact, plan)
