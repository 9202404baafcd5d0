"""Exact search below the cost of a float product: bytes rule out nearly all rows (int8_tiles.py), float64 the rest.

1. lower bounds of a sample of tiles give each query a score that K rows are known to reach
2. in rounds over more and more tiles: flags where a tile may hold a neighbour, its survivors listed, measured in
   float64, the K nearest kept; the K-th is the next round's threshold
3. a list that overflowed lost rows: again with the last thresholds, which stay proven, then by float products

10,000 queries x 10M rows x 128 columns, k = 10, on an H200: benchmarks/results/gpu_search.json.
"""

from __future__ import annotations

from dataclasses import dataclass

from kway.compute.gpu.device import Device, Tensor
from kway.compute.gpu.search.exact import ExactRows, FoundRows
from kway.compute.gpu.search.int8_tiles import INT8_TILE, Bytes, Tiles
from kway.compute.kernels.float32 import FLOAT32_SAFE

CAP = 4096  # survivors listed a query
SHORT_LIST = 512  # those of a list that is chosen from quickly; nearly all are
_SHARES = (0.01, 0.03, 0.12, 0.4, 1.0)  # of the tiles: the sample, then the ends of the rounds
FLAGS = 2**30  # bytes of flags of a batch of queries
_ROOM = 8192  # tiles whose flagged queries are gathered at once
_BLOCK = 128  # queries of a program
_MOST = 64  # neighbours that lists are kept for
LEAST_FOR_INT8 = 2**17  # rows from which on bytes pay
_KINDS = {"euclidean": 0, "cosine": 1, "dot": 2}


@dataclass(frozen=True)
class Int8Search:
    """Rows as bytes, and as they are."""

    rows: ExactRows
    tiles: Tiles

    @staticmethod
    def over(rows: ExactRows) -> Int8Search:
        """Bytes of the rows."""
        return Int8Search(rows, Tiles.of(rows))

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

    def nearest(self, queries: Tensor, k: int) -> FoundRows:
        """The k nearest of queries (q, d), by (float64 distance, position)."""
        widest = max(_SHARES[i + 1] - _SHARES[i] for i in range(1, len(_SHARES) - 1))
        batch = int(FLAGS / (widest * len(self.tiles.values))) // _BLOCK * _BLOCK
        parts = [self._batch(part, k) for part in queries.split(min(16384, max(_BLOCK, batch)))]
        return FoundRows(*(self.device.torch.cat(values) for values in zip(*parts)))

    def _batch(self, queries: Tensor, k: int) -> FoundRows:
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
        self.asked: Bytes = self.tiles.queries(queries, self.padded)
        self.counts = device.zeros(self.padded, "int32")
        self.lists = device.empty((self.padded, CAP), "int32")
        self.away = device.empty((self.q, CAP), "float64")
        self.best = device.empty((self.q, k), "float64")
        self.ids = device.empty((self.q, k), "int32")
        self.over = device.zeros(self.q, "int32")
        nt = len(self.tiles.values)
        self.ends = [min(nt, max(4 * k, round(nt * share))) for share in _SHARES]

    def found(self) -> FoundRows:
        """The k nearest."""
        return FoundRows(self.ids.long(), self.best)

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

        from kway.compute.gpu.search import int8_kernels as kernels

        wide = self.tiles.values.shape[2]
        chunk, blocks = min(128, wide), self.padded // _BLOCK
        rows = TensorDescriptor.from_tensor(self.tiles.values.view(-1, wide), [INT8_TILE, chunk])
        kernels.scan[(blocks * -(-(b - a) // tiles_each),)](
            self.asked.values, self.asked.constants, rows, self.tiles.upper, self.tiles.lower, out, blocks,
            self.padded, a, b, wide, chunk, _BLOCK, tiles_each, sample, 3, num_warps=4, num_stages=3,
        )  # fmt: skip

    def _expand(self, a: int, b: int, flags: Tensor, room: Tensor) -> None:
        from kway.compute.gpu.search import int8_kernels as kernels

        wide, together = self.tiles.values.shape[2], 2048
        for first in range(a, b, len(room)):
            grid = (min(b - first, len(room)), -(-self.padded // together))
            kernels.expand[grid](
                flags[first - a :], self.asked.values, self.asked.constants, self.tiles.values, self.tiles.upper,
                self.counts, self.lists, room, self.padded, first, wide, min(128, wide), CAP, together, 16, num_warps=4,
            )  # fmt: skip

    def _choose(self) -> None:
        """Survivors in float64, the k nearest of each query, the next thresholds; one once proven stays."""
        from kway.compute.gpu.search import int8_kernels as kernels

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
