"""Scans: queries (q, d) against all rows (n, d), one tile of keys at a time, never q x n.

BlockScan   exact search. A key is a cheap value, usually float32, that orders rows by distance up to a known rounding
            error; each Distance (distances.py) defines its own. Rows whose key is within that error of the k best
            are measured exactly in float64.
confirm     proves neighbors that were found in another space (by a tree, or among unit vectors). It is given more than
            k candidates per query, and measures all of them in float64 under the metric. If the last one is farther
            than the k-th by more than the rounding, no other row can be nearer. Queries without this proof, mostly
            those with ties, are scanned.

Euclidean keys are computed relative to the mean of the rows if that saves digits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.float32 import FLOAT32_SAFE
from kway.kernels.jit import frozen
from kway.kernels.topk import measure, merge, offer, offer_csr
from kway.memory import CACHE_BYTES, rows_per_block
from kway.rows.gpu.device import Device
from kway.search.codecs.stores import StoredRows
from kway.search.distances import COSINE, Distance, Matrix, squares
from kway.search.results import Heaps, Neighbors, empty_heaps
from kway.threads import pmap, shares, spans, spans_of, workers

if TYPE_CHECKING:
    from kway.search.certified.bounded_scan import BoundedScan

TILE_KEYS = CACHE_BYTES // 4  # keys of a tile: 2 MB as float32, 4 MB as float64
COPY_BYTES = 4 * CACHE_BYTES  # bytes of rows or queries that are converted for one tile
_MERGING = Lock()  # of heaps that several threads fill


class RowKeys(NamedTuple):
    """Scale and offset of the keys of each row, and bounds of their errors."""

    scale: NDArray  # (n,)
    offset: NDArray  # (n,)
    center: NDArray[np.float64] | None  # (d,) subtracted from rows and queries; None for the origin
    reach: float  # the largest norm of a (centered) row
    slack: float  # rounding of a key, relative to the norms
    blur: float  # largest distance of a scanned code from its full row
    dtype: type[np.floating]  # of the keys


class RowSearch(Protocol):
    """A search of rows that are in memory, in files, stored as codes, or on a GPU."""

    touched: float  # rows measured per query of the last search

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including rows."""

    def nearest(self, queries: Any, k: int) -> Neighbors:
        """Return the positions and distances (q, k) of the k <= n nearest rows, by float64 distance, then position."""


@dataclass(eq=False)
class Scan(ABC):
    """A scan of all stored rows under one distance; rows can be added and removed."""

    kept: StoredRows
    distance: Distance
    touched: float = field(default=float("nan"), init=False)

    @cached_property
    def n(self) -> int:
        """Number of rows."""
        return self.kept.shape[0]

    @cached_property
    def d(self) -> int:
        """Number of columns."""
        return self.kept.shape[1]

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including rows."""
        return self.kept.nbytes

    @abstractmethod
    def measure(self, queries: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return distances (q, c) of queries (q, d) to the rows at ids (q, c), by the kernels of the scan."""

    @abstractmethod
    def why(self) -> str:
        """Return what is scanned, and whether the results are exact."""

    def with_bounds(self) -> Scan | BoundedScan:
        """Return this scan, with bounds on the distances of its rows if they exist and save time."""
        return self

    @abstractmethod
    def nearest(self, queries: Any, k: int) -> Neighbors:
        """Return the positions and distances (q, k) of the k <= n nearest rows, by float64 distance, then position."""

    @abstractmethod
    def on_device(self, device: Device) -> Any:
        """Return the same search on a device (rows/gpu/flat_search.py)."""

    def add(self, rows: Any) -> Self:
        """Return a scan of these rows and more."""
        return replace(self, kept=self.kept.join(self.kept.like(rows)))

    def remove(self, positions: NDArray[np.int64]) -> Self:
        """Return a scan of all rows except those at positions."""
        return replace(self, kept=self.kept.drop(positions))

    def arrays(self) -> dict[str, NDArray]:
        """Return the arrays of a model file."""
        return self.kept.arrays()


class BlockScan(Scan):
    """Full rows, dense or CSR, or byte codes, scanned in blocks."""

    @cached_property
    def keys(self) -> RowKeys:
        """Keys of the rows, computed at the first scan, which a search with bounds may never need."""
        return row_keys(self.kept, self.distance)

    @property
    def rows(self) -> Any:
        """The rows or codes that are scanned: (n, d) C-contiguous, CSR, or codes."""
        return self.kept.scanned

    def why(self) -> str:
        """Return what is scanned, and whether the results are exact."""
        if self.kept.codes is None:
            kind = "sparse" if sp.issparse(self.kept.full) else "dense"
            if self.distance.bounded and kind == "dense":
                return "flat in blocks: bounds would not pay"
            return f"flat in blocks: there are no bounds for {kind} rows under {self.distance.name!r}"
        exact = "exact: codes are scanned, full rows measured" if self.kept.has_full else "approximate: only codes kept"
        return f"flat over int8 codes, {exact}"

    def on_device(self, device: Device) -> Any:
        """Return the same search on a device."""
        from kway.rows.gpu.flat_search import DeviceSearch

        return DeviceSearch.over(self, device)

    def with_bounds(self) -> Scan | BoundedScan:
        """Return this scan, with bounds if its rows are full and dense, the distance has bounds, and they save time."""
        if self.kept.codes is not None or sp.issparse(self.kept.full) or not self.distance.bounded or not self.n:
            return self
        from kway.search.certified.build import certify

        return certify(self) or self

    def measure(self, queries: NDArray[np.float64], ids: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return distances (q, c) of queries (q, d) to the rows at ids (q, c), by the kernel of the scan."""
        rows, places = self.kept.select_rows(ids)
        return measured_rows(self.distance, queries, rows, places)

    def nearest(self, queries: Matrix, k: int) -> Neighbors:
        """Return the positions and distances (q, k) of the k <= n nearest rows, by float64 distance, then position."""
        q, n, heaps = queries.shape[0], self.n, empty_heaps(queries.shape[0], k)
        blocks = spans(q, _block_size(queries))
        if len(blocks) >= workers() or n < 4096:
            counts = pmap(lambda b: self._scan(queries[b], heaps.part(b), slice(0, n)), blocks)
        else:  # few queries: the threads share the rows instead
            counts = pmap(lambda rows: self._scan(queries, heaps, rows, shared=True), shares(n))
        self.touched = sum(counts) / max(q, 1)
        return heaps.neighbors()

    def _scan(self, queries: Matrix, heaps: Heaps, rows: slice, shared: bool = False) -> int:
        """Scan a range of rows for a block of queries, tile by tile; return the number of rows measured.

        If `shared` is True, other threads scan other rows for the same heaps, so the results are merged at the end.
        """
        block = _Block.of(self, queries)
        thread_heaps = empty_heaps(*heaps.ids.shape) if shared else heaps
        needs_copy = not (
            isinstance(self.rows, np.ndarray) and self.rows.dtype == block.prepared.dtype and self.keys.center is None
        )
        chunk = max(256, TILE_KEYS // max(block.prepared.shape[0], 1))
        if needs_copy and not sp.issparse(self.rows):
            chunk = min(chunk, max(64, COPY_BYTES // (4 * self.d)))
        measured = sum(block.offer(part, thread_heaps) for part in spans_of(rows, chunk))
        if shared:
            with _MERGING:
                merge(*heaps, *thread_heaps)
        return measured


@dataclass(frozen=True)
class _Block:
    """A block of queries as a scan needs them."""

    scan: BlockScan
    queries: Matrix  # (m, d) float64 as given, for exact distances
    prepared: Matrix  # (m, d') centered and converted, as the products of keys use them
    norms: NDArray[np.float64]  # (m,) of `prepared`
    which: NDArray[np.int64]  # (m,) numbers of the queries in the block

    @staticmethod
    def of(scan: BlockScan, queries: Matrix) -> _Block:
        """Return the block of queries (m, d), sparse if the rows of the scan are sparse."""
        if sp.issparse(queries) != sp.issparse(scan.rows):
            queries = queries.toarray() if sp.issparse(queries) else sp.csr_matrix(queries)
        exact = queries.astype(np.float64)
        keys = scan.distance.query_side(_relative_to(exact, scan.keys.center))
        norms, which = np.sqrt(squares(keys)), np.arange(exact.shape[0])
        if sp.issparse(keys):
            return _Block(scan, exact, keys, norms, which)
        with np.errstate(over="ignore"):
            converted = keys.astype(scan.keys.dtype)
        fits = bool(norms.max(initial=0.0) < FLOAT32_SAFE[1])  # a distant query would overflow float32
        # tiles without products, such as Manhattan's, must not round queries
        if fits and (scan.distance.product or np.array_equal(converted, keys)):
            keys = converted
        return _Block(scan, frozen(exact), frozen(keys), norms, which)

    def offer(self, part: slice, heaps: Heaps) -> int:
        """Offer a range of rows to the heaps; return the number of rows measured."""
        scan, keys, positions = self.scan, self.scan.keys, np.arange(part.start, part.stop)
        rows, code = scan.rows[part], scan.distance.code
        if sp.issparse(rows):
            products = np.ascontiguousarray((self.prepared @ rows.T).toarray())  # (m, c)
            q, x = self.queries, rows
            arrays = (q.data, q.indices, q.indptr, x.data.astype(np.float64), x.indices, x.indptr)
            return int(
                offer_csr(
                    code, products, keys.scale[part], keys.offset[part], *arrays, positions, self.norms, keys.reach,
                    keys.slack, *heaps,
                )
            )  # fmt: skip
        products = scan.distance.tile(self.prepared, scan.distance.row_side(_relative_to(rows, keys.center)))
        full = rows if scan.kept.codes is None or scan.kept.full is None else scan.kept.full[part]
        scale, offset = (frozen(form[part].astype(products.dtype, copy=False)) for form in (keys.scale, keys.offset))
        return int(
            offer(
                code, products, scale, offset, self.queries, frozen(full), positions, self.which,
                self.norms, keys.reach, keys.slack, keys.blur, *heaps,
            )
        )  # fmt: skip


# Bounds the error of the distance of two unit vectors that are rounded to float32: the distance changes by at most the
# sum of the errors of both vectors, eps / 2 each, and float64 sums add less than that.
UNIT_ROUNDING = 4 * float(np.finfo(np.float32).eps)


def unit_rows(rows: NDArray) -> NDArray[np.float32]:
    """Return rows (n, d) scaled to length 1."""
    units = np.empty(rows.shape, dtype=np.float32)

    def work(part: slice) -> None:
        units[part] = COSINE.place(rows[part].astype(np.float64))

    pmap(work, spans(len(rows), rows_per_block(8 * rows.shape[1], CACHE_BYTES)))
    return units


def row_keys(kept: StoredRows, distance: Distance) -> RowKeys:
    """Return the keys of stored rows, in one pass over the rows."""
    scanned, (n, d) = kept.scanned, kept.shape
    dense = not sp.issparse(scanned)
    center = _center(scanned) if distance.shifts and n and dense else None
    halves = np.empty(n)
    for part in spans(n, max(64, COPY_BYTES // (8 * d))):
        exact = scanned[part].astype(np.float64)
        halves[part] = 0.5 * squares(distance.row_side(_relative_to(exact, center)))
    reach = float(np.sqrt(2.0 * halves.max(initial=0.0)))
    narrow = dense and not distance.wide and FLOAT32_SAFE[0] < reach < FLOAT32_SAFE[1]
    if not (distance.product or scanned.dtype == np.float32):
        narrow = False
    kind: type[np.floating] = np.float32 if narrow else np.float64
    scale, offset = (frozen(values.astype(kind)) for values in distance.key_form(halves))
    blur = 0.0
    if kept.codes is not None and kept.full is not None:
        blur = float(kept.codes.errors(kept.full, distance).max(initial=0.0))
    return RowKeys(scale, offset, center, distance.reach(halves, d), sum_rounding(d, kind), blur, kind)


def sum_rounding(d: int, key_type: type[np.floating]) -> float:
    """Return the relative error m u / (1 - m u) of a sum of d products with 32 more roundings, where m = d + 32."""
    unit_roundoff = 2.0**-24 if key_type == np.float32 else 2.0**-53
    error = (d + 32) * unit_roundoff
    return float(error / (1.0 - error)) if error < 0.5 else 1.0


def _relative_to(rows: Matrix, center: NDArray | None) -> Matrix:
    return rows if center is None else rows - center


def _block_size(queries: Matrix) -> int:
    """Return how many queries share a tile of rows; sparse rows are transposed once per tile and block."""
    q, d = queries.shape
    most = 256 if sp.issparse(queries) else max(16, min(256, COPY_BYTES // (8 * d)))
    return max(1, min(most, -(-q // workers())))


def _center(rows: NDArray) -> NDArray[np.float64] | None:
    """Return the mean if rows are far from the origin and close together, so that keys about it have more digits."""
    mean = np.zeros(rows.shape[1])
    total = 0.0
    for part in spans(len(rows), max(64, COPY_BYTES // (8 * rows.shape[1]))):
        exact = rows[part].astype(np.float64, copy=False)
        mean += exact.sum(axis=0)
        total += float(squares(exact).sum())
    mean /= len(rows)
    offset = float(mean @ mean)
    spread = max(0.0, total / len(rows) - offset)
    return mean if offset > 4.0 * spread else None


EXTRA = 2  # neighbors beyond k that a proof needs; with 4, a search by cosine takes 10% longer (benchmark T2b)


class Confirmed(NamedTuple):
    """Proven neighbors, and the number of rows measured for them."""

    neighbors: Neighbors
    measured: int


def confirm(scan: BlockScan, queries: NDArray, found: Neighbors, k: int, rounding: float) -> Confirmed:
    """Return the k nearest of queries (q, d), given more than k neighbors in another space. `scan` has full dense rows.

    `rounding` bounds the absolute error of the distances found. A row that was not found is at least as far as the last
    row found. 1e-12 covers the relative error of float64 distances, and `angle_rounding` the absolute error of 1 - cos.
    """
    exact = frozen(queries.astype(np.float64))
    ids, found_distances = found
    distances = measured_rows(scan.distance, exact, frozen(scan.rows), ids)
    order = np.lexsort((ids, distances), axis=1)[:, :k]
    ids, best = np.take_along_axis(ids, order, axis=1), np.take_along_axis(distances, order, axis=1)
    measured = distances.size
    if found.ids.shape[1] < len(scan.rows):
        last = found_distances[:, -1] * (1.0 - 1e-12) - rounding
        angle_rounding = sum_rounding(queries.shape[1], np.float64) if scan.distance.by_angle else 0.0
        unproven = np.flatnonzero(last <= scan.distance.gap(best[:, -1] + angle_rounding) * (1.0 + 1e-12))
        if len(unproven):
            ids[unproven], best[unproven] = scan.nearest(exact[unproven], k)
            measured += int(scan.touched * len(unproven))
    return Confirmed(Neighbors(ids, best), measured)


def measured_rows(
    distance: Distance, queries: NDArray[np.float64], rows: NDArray, places: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return distances (q, c) of queries (q, d) to the rows at places (q, c), on all threads."""
    distances = np.empty(places.shape)

    def work(part: slice) -> None:
        measure(distance.code, queries[part], rows, places[part], distances[part])

    pmap(work, shares(len(places), least=64))
    return distances
