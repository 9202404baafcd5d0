"""Exact search behind a filter of int8 products, whose error is known.

x = s x^ + e_x and q = t q^ + e_q are operands (exact_search.py) after a random rotation, which spreads large values
over all columns. x^ and q^ are integers in -127..127, and s is one number per tile of 128 rows. Then
q.x = s t q^.x^ + e_q.(s x^) + q.e_x, and by Cauchy-Schwarz, with maxima over the tile,

    |q.x - s t q^.x^| <= |q| max|e_x| + |e_q| max|s x^|

So one integer per query and tile decides which rows of the tile may be neighbors. Operands and errors are float64.
EPS covers the float32 arithmetic of that integer. Rows are sorted by norm, so that the offset o of the score q.x - o is
nearly constant within a tile, and tiles are shuffled, so that any range of them is a sample.

A search scans a sample of the tiles, or all tiles if they are few, for a first threshold. It lists the rows that may
reach the threshold of their query, measures them in float64, and keeps the k nearest. If the sample was not all tiles,
it does so in rounds, each with a tighter threshold. Queries whose lists overflow are searched again with the threshold
that they have reached, and then by exact_search.py. int8_kernels.py has the kernels and the meaning of all arrays.

Float32 queries are answered by (distance in float32, position). The thresholds are lowered by the rounding to float32,
so that all rows that tie with the k-th neighbor are listed, and the kernels compare rounded distances.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.float32 import FLOAT32_SAFE
from kway.rows.gpu.device import Device, Tensor, row_blocks, rows_that_fit
from kway.rows.gpu.exact_search import METRICS, DeviceMetric, ExactRows, NearestRows, all_within
from kway.rows.gpu.tile_plans import ROTATED, TILE, Int8Plan, plan_int8

FLOAT32_EPS = float(np.finfo(np.float32).eps)  # also the finest step, relative to the largest norm
EPS = 32 * FLOAT32_EPS  # relative error of each term of a bound: eight roundings by eps / 2, times eight
LIST_SIZE = 4096  # candidates that are listed per query, at most (decided by the benchmark gpu_search)
READ_AT_ONCE = 512  # entries of a list that keep_nearest compares at a time; most lists are shorter (gpu_search)
SMALL_PAIRS = 2**24  # (query, tile) pairs up to which one scan of the tiles costs less than rounds (gpu_flashlib)
MAX_SAMPLE = 8192  # tiles of a sample: set_thresholds holds their scores in registers (gpu_flashlib)
SAMPLE_SHARE, ROUNDS = 0.01, 4  # share of the tiles in the sample of larger work, and its rounds (gpu_search)
MAX_INT8_NEIGHBORS = 64  # the largest k for which the lists hold enough candidates (gpu_search)
GATHERED = 32  # flagged queries that are multiplied together with a tile (gpu_search)
RECORDED_SHARE = 1 / 256  # of the GPU's memory that the arrays of a recorded batch may keep (gpu_flashlib)
LISTING_PROGRAMS = 1024  # programs of list_candidates that occupy the largest GPU (gpu_flashlib)
OVERFLOWED, UNSAFE = 1, 2  # flags of int8_kernels.py
_KINDS = {name: kind for kind, name in enumerate(METRICS)}  # the kernels' numbers of the metrics


@dataclass(frozen=True)
class Int8Queries:
    """Queries as int8 digits; int8_kernels.py describes the arrays."""

    digits: Tensor  # (2, p, w) int8: first and second digits
    constants: Tensor  # (5, p) float32; the first row are the thresholds
    norms: Tensor  # (q,) float64
    steps: Tensor  # (q,) float64
    counts: Tensor  # (p,) int32: zeros
    flags: Tensor  # (q,) uint8: UNSAFE or 0

    @property
    def thresholds(self) -> Tensor:
        """Thresholds (p,) of the scores, in units of the steps."""
        return self.constants[0]


@dataclass(frozen=True)
class Int8Tiles:
    """All rows as int8, in tiles of 128 rows."""

    device: Device
    metric: DeviceMetric
    center: Tensor | None  # (d,) float64
    rotation: Tensor  # (d, w) float64, orthonormal rows
    order: Tensor  # (nt * 128,) int32: the row at each place, -1 for padding
    values: Tensor  # (nt, 128, w) int8
    upper: Tensor  # (nt, 4) float32: 1 / s, o / s, |e_x| / s and |s x^| / s
    lower: Tensor  # (nt, 4) float32: s, o, |e_x| and |s x^|
    finest: float  # the smallest step; a smaller one could overflow the integer arithmetic

    @staticmethod
    def build(rows: ExactRows) -> Int8Tiles:
        """Quantize rows that are on the device."""
        device, torch = rows.device, rows.device.torch
        n, d = rows.rows.shape
        width = padded_width(d)
        generator = torch.Generator(device=device.name).manual_seed(0)
        options = {"generator": generator, "device": device.name, "dtype": torch.float64}
        rotation = torch.linalg.qr(torch.randn((width, width), **options))[0][:d].contiguous()
        order = torch.nn.functional.pad(rows.offset.argsort().int(), (0, -n % TILE), value=-1).view(-1, TILE)
        order = order[torch.randperm(len(order), generator=generator, device=device.name)]
        nt = len(order)
        tiles = Int8Tiles(
            device, rows.metric, rows.center, rotation, order.reshape(-1),
            values=device.empty((nt, TILE, width), "int8"),
            upper=device.empty((nt, 4)),
            lower=device.empty((nt, 4)),
            finest=max(FLOAT32_EPS * rows.reach, 1e-30),
        )  # fmt: skip
        for part in row_blocks(nt, 8 * TILE * width):
            tiles._fill(rows.rows, order[part], part)
        return tiles

    def _fill(self, rows: Tensor, places: Tensor, part: slice) -> None:
        """Quantize the rows of some tiles (m, 128); padding repeats the first row of its tile."""
        torch = self.device.torch
        exact = rows[places.where(places >= 0, places[:, :1]).reshape(-1).long()]
        operands = self.metric.operand(exact, self.center)
        offsets = self.metric.offsets(operands.square().sum(1)).view(places.shape)
        x = (operands @ self.rotation).view(*places.shape, -1)  # (m, 128, w)
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

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of columns w, with padding."""
        return int(self.values.shape[2])

    def quantize(self, queries: Tensor, limit: float) -> Int8Queries:
        """Rotate and quantize contiguous queries (q, d), and flag those that are unsafe.

        A query is safe if it is zero, or if its largest absolute value is between 1 / limit and limit, and float32
        holds its products.
        """
        from kway.rows.gpu.int8_kernels import quantize_queries, rotate_queries

        device, (q, d), width = self.device, queries.shape, self.width
        padded = _padded(q)
        int8 = Int8Queries(
            digits=device.empty((2, padded, width), "int8"),
            constants=device.empty((5, padded)),
            norms=device.empty(q, "float64"),
            steps=device.empty(q, "float64"),
            counts=device.empty(padded, "int32"),
            flags=device.empty(q, "uint8"),
        )
        operands = device.empty((q, width), "float64")
        centered, by_angle = self.center is not None, self.metric.name == "cosine"
        rotate_queries[(-(-q // ROTATED), width // (2 * ROTATED))](
            queries, self.center if centered else self.rotation, self.rotation, operands, q, d, centered, by_angle,
            width, ROTATED, num_warps=4,
        )  # fmt: skip
        quantize_queries[(padded,)](
            queries, operands, int8.digits[0], int8.digits[1], int8.constants, int8.norms, int8.steps, int8.counts,
            int8.flags, q, padded, d, self.finest, 1 / limit, min(limit, FLOAT32_SAFE[1]), width, min(width, TILE),
            EPS, num_warps=1,
        )  # fmt: skip
        return int8

    @cached_property
    def descriptor(self) -> Any:
        """The rows (nt * 128, w) for the tensor memory accelerator, in blocks of 128 rows and one chunk."""
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor.from_tensor(self.values.view(-1, self.width), [TILE, min(TILE, self.width)])


def padded_width(d: int) -> int:
    """Return the columns of int8 rows: what a matrix product takes at once, or a multiple of it."""
    return 32 if d <= 32 else 64 if d <= 64 else -(-d // TILE) * TILE


class BatchOrder(NamedTuple):
    """How a batch is answered: the number of neighbors, the order of distances, and the range of safe queries."""

    k: int
    in_float32: bool  # distances are rounded to float32 before they are compared
    limit: float  # of the absolute values of a query, and of their inverse


class RecordedBatch:
    """The CUDA graph of a small batch: seven kernels and their launch parameters, which the CPU starts by one call.

    A shape of queries is recorded when it comes a second time in a row. The arrays of the graph serve one thread at a
    time, until its answer is copied; other threads start the kernels themselves. No library is called in the graph,
    because the workspace of cuBLAS would be shared with other graphs. The graph ends with a copy of the flags to the
    host.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._shape: tuple[tuple[int, ...], Any, BatchOrder] | None = None
        self._graph: Any = None
        self._batch: _Batch | None = None
        self._flags: Any = None  # a tensor (q,) in page-locked memory of the host

    def __reduce__(self) -> tuple[type[RecordedBatch], tuple[()]]:
        return RecordedBatch, ()  # a copy of the index records its own batches

    def search(self, search: ExactSearch, queries: Tensor, order: BatchOrder) -> NearestRows | None:
        """Return the nearest rows of safe queries; None if another search is needed to get them."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            shape = (tuple(queries.shape), queries.dtype, order)
            if shape != self._shape:
                self._shape, self._graph, self._batch = shape, None, None
                return None
            batch = self._batch or self._record(search, queries, order)
            batch.queries.copy_(queries)
            self._graph.replay()
            # distances that were rounded to float32 are returned as float32
            dtype = queries.dtype if order.in_float32 else batch.nearest.distances.dtype
            nearest = NearestRows(batch.nearest.ids.clone(), batch.nearest.distances.to(dtype, copy=True))
            search.rows.device.torch.cuda.current_stream(queries.device).synchronize()
            return None if self._flags.any() else nearest
        finally:
            self._lock.release()

    def _record(self, search: ExactSearch, queries: Tensor, order: BatchOrder) -> _Batch:
        torch = search.rows.device.torch
        with torch.inference_mode(False), torch.no_grad():
            queries = queries.clone()
            _Batch(search, queries, order).search(sample=True)  # compiles the kernels, which a recording cannot do
            flags = torch.empty(len(queries), dtype=torch.uint8, pin_memory=True)
            graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream(queries.device)
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                batch = _Batch(search, queries, order)
                batch.search(sample=True)
                flags.copy_(batch.int8.flags, non_blocking=True)
        self._graph, self._batch, self._flags = graph, batch, flags.numpy()
        return batch


@dataclass(frozen=True)
class ExactSearch:
    """Exact search over rows on a device, behind the int8 filter if there are int8 rows."""

    rows: ExactRows
    tiles: Int8Tiles | None = None
    plan: Int8Plan | None = None  # launch parameters of the kernels
    recorded: RecordedBatch = field(default_factory=RecordedBatch)

    @staticmethod
    def filtered(rows: ExactRows, plan: Int8Plan) -> ExactSearch:
        """Quantize the rows for the filter."""
        return ExactSearch(rows, Int8Tiles.build(rows), plan)

    def nearest(self, queries: Tensor, k: int) -> NearestRows:
        """Return the k nearest rows of finite queries (q, d) by (float64 distance, position)."""
        if not self._can_filter(k):
            return self.rows.nearest(queries, k)
        return self._filter(queries, BatchOrder(k, in_float32=False, limit=float("inf")))[0]

    def nearest_in_float32(self, queries: Tensor, k: int, limit: float) -> NearestRows | None:
        """Return the k < n nearest rows of queries (q, d) by (distance in float32, position).

        Return None if a query has NaN, infinity, or a largest absolute value outside of 1 / limit to limit. Float64
        queries are answered by (float64 distance, position).
        """
        if queries.dtype == self.rows.device.torch.float32 and self._can_filter(k):
            nearest, flags = self._filter(queries, BatchOrder(k, in_float32=True, limit=limit))
            return None if (flags & UNSAFE).any() and not all_within(queries, limit) else nearest
        if not all_within(queries, limit):
            return None
        return self.rows.nearest_in_float32(queries, k) if queries.dtype.itemsize == 4 else self.nearest(queries, k)

    def _can_filter(self, k: int) -> bool:
        """Return whether the filter can be used: float32 holds the products, and lists hold enough rows."""
        return (
            self.tiles is not None
            and k <= MAX_INT8_NEIGHBORS
            and (k <= len(self.tiles) or len(self.rows) <= LIST_SIZE)
            and FLOAT32_SAFE[0] < self.rows.reach < FLOAT32_SAFE[1]
        )

    def _filter(self, queries: Tensor, order: BatchOrder) -> tuple[NearestRows, NDArray[np.uint8]]:
        """Return the nearest rows of queries, and the flags (q,) of the queries.

        The answers are also correct for queries whose lists overflow and for finite queries that are not safe, because
        these are searched again.
        """
        torch = self.rows.device.torch
        queries = queries.detach().contiguous()
        batches = len(row_blocks(len(queries), 8 * LIST_SIZE))  # 8 bytes per candidate: its distance
        with self.rows.device.selected():
            if batches == 1:
                return self._filter_batch(queries, order)
            parts = [self._filter_batch(part, order) for part in queries.tensor_split(batches)]
        nearest = NearestRows(*(torch.cat(arrays) for arrays in zip(*(part[0] for part in parts))))
        return nearest, np.concatenate([part[1] for part in parts])

    def _filter_batch(self, queries: Tensor, order: BatchOrder) -> tuple[NearestRows, NDArray[np.uint8]]:
        device = self.rows.device
        if device.is_gpu and self._scans_once(len(queries)) and self._may_record(len(queries)):
            nearest = self.recorded.search(self, queries, order)
            if nearest is not None:
                return nearest, np.zeros(len(queries), np.uint8)
        batch = _Batch(self, queries, order)
        batch.search(sample=True)
        flags, nearest = batch.flags(), batch.nearest
        if not flags.any():
            return nearest, flags
        left = device.put(np.flatnonzero(flags & OVERFLOWED))
        if len(left):
            again = _Batch(self, queries[left], order)
            again.int8.thresholds[: len(left)] = batch.int8.thresholds[left]  # the thresholds still hold
            again.search(sample=False)
            nearest.ids[left], nearest.distances[left] = again.nearest
            left = left[device.put(again.flags() & OVERFLOWED) > 0]
        left = device.torch.cat([left, device.put(np.flatnonzero(flags & UNSAFE))])
        if len(left):
            nearest_rows = self.rows.nearest_in_float32 if order.in_float32 else self.rows.nearest
            nearest.ids[left], nearest.distances[left] = nearest_rows(queries[left], order.k)
        return nearest, flags

    def _may_record(self, q: int) -> bool:
        """Return whether the arrays of a batch, mostly its lists, are small enough to stay allocated."""
        return 12 * LIST_SIZE * q <= RECORDED_SHARE * self.rows.device.total_bytes  # 12 bytes: a row and a distance

    def _scans_once(self, q: int) -> bool:
        """Return whether one scan of all tiles costs less than rounds with tighter thresholds."""
        return len(self.tiles or ()) * _padded(q) <= SMALL_PAIRS


def _padded(q: int) -> int:
    """Return the number of queries that the kernels read for q of them: a multiple of a tile."""
    return -(-q // TILE) * TILE


class _Batch:
    """A batch of queries, their lists of candidates, and the nearest rows so far."""

    def __init__(self, search: ExactSearch, queries: Tensor, order: BatchOrder) -> None:
        from kway.rows.gpu import int8_kernels

        assert search.tiles is not None
        assert search.plan is not None

        self.kernels: Any = int8_kernels
        self.rows, self.tiles, self.plan = search.rows, search.tiles, search.plan
        self.queries, self.order = queries, order
        q, device, shape = len(self.queries), search.rows.device, (len(self.queries), order.k)
        self.once = search._scans_once(q)
        self.int8 = self.tiles.quantize(queries, order.limit)
        self.padded = len(self.int8.counts)
        self.lists = device.empty((q, LIST_SIZE), "int32")
        self.distances = device.empty((q, LIST_SIZE), "float64")
        self.nearest = NearestRows(device.empty(shape, "int64"), device.empty(shape, "float64"))

    def flags(self) -> NDArray[np.uint8]:
        """Wait for the search and return the flags (q,) on the host."""
        return self.tiles.device.fetch(self.int8.flags)

    def search(self, sample: bool) -> None:
        """Search all tiles; if `sample`, begin with thresholds from a sample, else with those that the queries have."""
        device, n_tiles = self.tiles.device, len(self.tiles)
        ends = self._ends()
        if sample or ends[0] == n_tiles:
            products = device.empty((ends[0], self.padded), "int32")
            self._scan(0, ends[0], products, flags=False)
        if sample:
            self._set_thresholds(products)
        if ends[0] == n_tiles:
            self._list(0, n_tiles, products, products, flags=False)
            self._keep_nearest()
            return
        part = min(n_tiles, rows_that_fit(5 * self.padded))
        flags = device.empty((part, self.padded), "uint8")
        buffer = device.empty((part, self.padded), "int32")
        for first, last in zip([0, *ends[1:]], ends[1:]):
            for start in range(first, last, part):
                stop = min(last, start + part)
                self._scan(start, stop, flags, flags=True)
                self._list(start, stop, flags, buffer, flags=True)
            if first < last:
                self._keep_nearest()

    def _ends(self) -> list[int]:
        """Return the number of tiles of the sample, and those that each round has read at its end."""
        n_tiles = len(self.tiles)
        if self.once:
            return [min(n_tiles, MAX_SAMPLE), n_tiles]
        shares = [SAMPLE_SHARE ** (1 - i / ROUNDS) for i in range(ROUNDS + 1)]
        ends = [min(n_tiles, max(4 * self.order.k, round(share * n_tiles))) for share in shares]
        return [min(ends[0], MAX_SAMPLE), *ends[1:]]

    def _scan(self, first: int, last: int, out: Tensor, flags: bool) -> None:
        """Write the flag or the largest product (tiles, p) of each tile from first to last and each query."""
        blocks, plan, tiles = self.padded // TILE, self.plan, self.tiles
        each = min(128, max(4, blocks * (last - first) // 1024))  # 1,024 programs occupy the largest GPU
        self.kernels.scan_tiles[(blocks * -(-(last - first) // each),)](
            self.int8.digits, self.int8.constants, tiles.descriptor, tiles.upper, out, blocks, self.padded, first, last,
            each, tiles.width, plan.chunk, TILE, flags, plan.scan_stages, plan.unroll, num_warps=4,
            num_stages=plan.scan_stages,
        )  # fmt: skip

    def _set_thresholds(self, products: Tensor) -> None:
        """Set first thresholds from the largest products (tiles, p) of a sample."""
        size = max(32, 1 << (len(products) - 1).bit_length())
        self.kernels.set_thresholds[(len(self.queries),)](
            products, self.int8.constants, self.tiles.lower, self.padded, len(products), self.order.k, size, EPS,
            num_warps=min(16, max(1, size // 512)),
        )  # fmt: skip

    def _list(self, first: int, last: int, scanned: Tensor, buffer: Tensor, flags: bool) -> None:
        """List the candidates among the rows of the tiles from first to last."""
        tiles, blocks = self.tiles, max(1, self.padded // TILE * (last - first) // LISTING_PROGRAMS)
        together = TILE * min(1 << (blocks.bit_length() - 1), 16 if flags else 4)  # queries of a program
        self.kernels.list_candidates[(last - first, -(-self.padded // together))](
            scanned, self.int8.digits[0], self.int8.digits[1], self.int8.constants, tiles.values, tiles.order,
            tiles.upper, self.int8.counts, self.lists, buffer, self.padded, first, tiles.width, self.plan.chunk,
            LIST_SIZE, flags, together, GATHERED, self.plan.expand_stages, num_warps=4,
        )  # fmt: skip

    def _keep_nearest(self) -> None:
        """Measure the candidates in float64, keep the k nearest per query, and tighten the thresholds."""
        (q, d), kind, int8 = self.queries.shape, _KINDS[self.rows.metric.name], self.int8
        programs = max(2, min(16, 4096 // q))  # per query, so that a few queries occupy the GPU as well
        self.kernels.measure_candidates[(q, programs)](
            self.rows.rows, self.queries, int8.counts, self.lists, self.distances, d, kind, LIST_SIZE, num_warps=4,
            enable_fp_fusion=False,
        )  # fmt: skip
        self.kernels.keep_nearest[(q,)](
            int8.counts, self.lists, self.distances, *self.nearest, int8.flags, int8.constants, int8.norms, int8.steps,
            self.padded, EPS, kind, self.order.in_float32, self.order.k, LIST_SIZE, READ_AT_ONCE, num_warps=1,
        )  # fmt: skip


def build_exact_search(device: Device, rows: Tensor, name: str) -> ExactSearch:
    """Return the search over rows (n, d), a tensor on the device or codes that decode like one, under a metric."""
    exact = ExactRows.build(device, rows, METRICS[name])
    filtered = isinstance(rows, device.torch.Tensor) and len(exact) >= rows.shape[1]  # else the rotation is larger
    if not (filtered and device.multiplies_int8 and find_spec("triton") is not None):
        return ExactSearch(exact)
    plan = plan_int8(padded_width(rows.shape[1]), device.shared_bytes)
    return ExactSearch(exact) if plan is None else ExactSearch.filtered(exact, plan)
