"""Blocks: queries (q, d) against rows (n, d), a tile of at most 2 MB of keys at a time, never q x n.

`top_products` gives the k best of scale_r * (q . x_r) + offset_r as they are computed, which is how a linear model
predicts. `Segment` searches rows exactly: the tile's keys come from float32 (a matrix product for euclidean, cosine
and dot), and the few rows whose key might be among the k best, rounding included, are measured in float64.

    euclidean   key = ||x||^2 / 2 - q.x     = (d^2 - ||q||^2) / 2, centred on the mean where that saves digits
    cosine      key = -q.x / ||x||, q unit  = d - 1
    dot         key = -q.x                  = d
    manhattan   key = ||q - x||_1           = d
    hamming     key = number that differ    = d * columns
    haversine   key = -u.v, unit 3-vectors  = 2 sin^2(d / 2) - 1
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.distances import CODES, KEY, hamming_tile, manhattan_tile
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.sparse import offer_csr
from kway.compute.kernels.topk import EMPTY, NOBODY, merge, offer, settle
from kway.compute.threads import pmap, shares, spans, workers
from kway.search.index import Neighbors, TopK
from kway.search.stores.int8 import Coded, Int8, code_errors, coded

TILE = 2**19  # keys in a tile: 2 MB in float32, about the second cache
COPY_BYTES = 2**23  # rows or queries converted for one tile
FLOAT32_SAFE = (1e-12, 1e15)  # norms whose squares float32 neither loses nor overflows

Matrix = Any  # NDArray or CSR


class Heaps(NamedTuple):
    """The k best so far of each query, worst first: distances (q, k) float64 and positions (q, k) int64."""

    distances: NDArray[np.float64]
    ids: NDArray[np.int64]

    def part(self, where: slice) -> Heaps:
        """The heaps of some queries, sharing memory."""
        return Heaps(self.distances[where], self.ids[where])

    def neighbors(self) -> Neighbors:
        """Sort in place: nearest first, -1 and inf where nobody was."""
        settle(self.distances, self.ids)
        empty = self.ids == NOBODY
        if empty.any():
            self.ids[empty] = -1
            self.distances[empty] = np.inf
        return Neighbors(self.ids, self.distances)


def empty_heaps(q: int, k: int) -> Heaps:
    """Heaps that any row improves."""
    return Heaps(np.full((q, k), EMPTY), np.full((q, k), NOBODY, dtype=np.int64))


@dataclass(frozen=True)
class Segment:
    """Rows that are scanned in blocks under one base distance, with what the keys need of each row."""

    rows: Matrix  # (n, d) C-contiguous, CSR or Coded: what is scanned
    full: NDArray | None  # (n, d) what is measured, where that is more than what is scanned
    base: str
    scale: NDArray  # (n,)
    offset: NDArray  # (n,)
    centre: NDArray[np.float64] | None  # (d,)
    reach: float  # the largest norm of a (centred) row
    slack: float  # rounding of a key, relative to the norms
    blur: float  # how far a scanned row may lie from the full one
    key_type: type[np.floating]

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included."""
        rows = self.rows
        own = rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes if sp.issparse(rows) else rows.nbytes
        full = 0 if self.full is None else self.full.nbytes
        return int(own + full + self.scale.nbytes + self.offset.nbytes)

    def scan(self, queries: Matrix, heaps: Heaps, first: int = 0, n_jobs: int | None = None) -> int:
        """Offer every row, called first, first + 1, ..., to the heaps of the queries; rows measured in full."""
        q, n = queries.shape[0], self.rows.shape[0]
        size = _block_size(q, queries.shape[1], n_jobs)
        blocks = spans(q, size)
        if len(blocks) >= workers(n_jobs) or n < 4096:
            return sum(pmap(lambda b: self._scan(queries[b], heaps.part(b), slice(0, n), first), blocks, n_jobs))

        def lane(rows: slice) -> tuple[Heaps, int]:  # few queries: the rows are shared out instead
            own = empty_heaps(q, heaps.ids.shape[1])
            return own, self._scan(queries, own, rows, first)

        lanes = pmap(lane, shares(n, n_jobs), n_jobs)
        for own, _ in lanes:
            merge(*heaps, *own)
        return sum(measured for _, measured in lanes)

    def _scan(self, queries: Matrix, heaps: Heaps, rows: slice, first: int) -> int:
        """One thread's work: a block of queries against rows[start:stop], tile by tile."""
        block = _Block.of(self, queries)
        d = queries.shape[1]
        given = isinstance(self.rows, np.ndarray) and self.rows.dtype == block.keys.dtype and self.centre is None
        chunk = max(256, TILE // block.keys.shape[0])
        if not given and not sp.issparse(self.rows):
            chunk = min(chunk, max(64, COPY_BYTES // (4 * d)))
        measured = 0
        for a in range(rows.start, rows.stop, chunk):
            part = slice(a, min(rows.stop, a + chunk))
            names = np.arange(first + part.start, first + part.stop)
            measured += block.offer(part, names, heaps)
        return measured


@dataclass(frozen=True)
class _Block:
    """A block of queries as one segment needs them."""

    segment: Segment
    queries: Matrix  # (m, d) float64 as given, for exact distances
    keys: Matrix  # (m, d') as they enter the keys
    norms: NDArray[np.float64]  # (m,)
    which: NDArray[np.int64]  # (m,)

    @staticmethod
    def of(segment: Segment, queries: Matrix) -> _Block:
        if sp.issparse(queries) != sp.issparse(segment.rows):
            queries = queries.toarray() if sp.issparse(queries) else sp.csr_matrix(queries)
        exact = queries.astype(np.float64)
        keys = as_keys(exact, segment.base, segment.centre)
        norms = np.sqrt(_squares(keys))
        if segment.base == "cosine":
            keys = unit(keys)
        if sp.issparse(keys):
            return _Block(segment, exact, keys, norms, np.arange(exact.shape[0]))
        if segment.base in ("manhattan", "hamming"):
            kept = keys.astype(segment.key_type)
            if not np.array_equal(kept, keys):  # float64 queries against float32 rows: no query may be rounded
                kept = keys
            keys = kept
        else:
            keys = keys.astype(segment.key_type)
        return _Block(segment, frozen(exact), frozen(keys), norms, np.arange(len(exact)))

    def offer(self, part: slice, names: NDArray[np.int64], heaps: Heaps) -> int:
        s = self.segment
        code = CODES[s.base]
        rows = s.rows[part]
        if sp.issparse(rows):
            products = np.ascontiguousarray((self.keys @ rows.T).toarray())  # (m, c)
            q, x = self.queries, rows
            arrays = (q.data, q.indices, q.indptr, x.data.astype(np.float64), x.indices, x.indptr)
            return int(
                offer_csr(
                    code, products, s.scale[part], s.offset[part], *arrays, names, self.norms, s.reach, s.slack, *heaps
                )
            )
        products = TILES.get(s.base, _products)(self.keys, as_keys(rows, s.base, s.centre))
        return int(
            offer(
                code, products, s.scale[part], s.offset[part], self.queries,
                frozen(rows if s.full is None else s.full[part]), names, self.which,
                self.norms, s.reach, s.slack, s.blur, *heaps,
            )
        )  # fmt: skip


def segment(rows: Matrix, base: str, store: Int8 | None = None, codes: Coded | None = None) -> Segment:
    """Rows (n, d), dense float or CSR, ready to be scanned under a base distance; `codes` spares coding them again."""
    if codes is not None or store is not None:
        return _coded_segment(rows, base, store or Int8(), codes)
    return _plain_segment(rows if sp.issparse(rows) else frozen(rows), base)


def _plain_segment(rows: Matrix, base: str) -> Segment:
    n, d = rows.shape
    centre = _centre(rows) if base == "euclidean" and n and not sp.issparse(rows) else None
    halves = np.empty(n)
    for part in spans(n, max(64, COPY_BYTES // (8 * d))):
        halves[part] = 0.5 * _squares(as_keys(rows[part].astype(np.float64), base, centre))
    reach = float(np.sqrt(2.0 * halves.max(initial=0.0)))
    narrow = FLOAT32_SAFE[0] < reach < FLOAT32_SAFE[1] and not sp.issparse(rows) and base != "haversine"
    if base in ("manhattan", "hamming"):
        narrow = narrow and rows.dtype == np.float32
    kind: type[np.floating] = np.float32 if narrow else np.float64
    scale, offset = _scale_and_offset(base, halves)
    reach = float(d) if base == "hamming" else reach
    scale, offset = frozen(scale.astype(kind)), frozen(offset.astype(kind))
    return Segment(rows, None, base, scale, offset, centre, reach, rounding(d, kind), 0.0, kind)


def _coded_segment(rows: Any, base: str, store: Int8, codes: Coded | None) -> Segment:
    """Scan the codes; with the full rows at hand, `blur` lets pass whoever their error cannot rule out."""
    if codes is None:
        codes = coded(rows)
    scanned = _plain_segment(codes, base)
    if not store.rerank:
        return scanned
    errors = code_errors(rows, codes, base)
    if base == "cosine":  # of unit rows, and normalising moves a row by at most as much again
        errors = 2.0 * errors * np.abs(scanned.scale)
    return replace(scanned, full=frozen(rows), blur=float(errors.max(initial=0.0)))


def rounding(d: int, key_type: type[np.floating]) -> float:
    """Relative error of a sum of d products in any order, d u / (1 - d u), and of the conversions around it."""
    unit_roundoff = 2.0**-24 if key_type == np.float32 else 2.0**-53
    error = (d + 32) * unit_roundoff
    return float(error / (1.0 - error)) if error < 0.5 else 1.0


def unit(rows: Matrix) -> Matrix:
    """Rows of length one; zero rows stay zero."""
    norms = np.sqrt(_squares(rows))
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    if sp.issparse(rows):
        return sp.csr_matrix(sp.diags(inverse) @ rows)
    return rows * inverse[:, None]


def sphere(radians: NDArray) -> NDArray[np.float64]:
    """Unit vectors (n, 3) of (latitude, longitude) in radians."""
    lat, lon = radians[:, 0], radians[:, 1]
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], axis=1)


def as_keys(rows: Matrix, base: str, centre: NDArray | None) -> Matrix:
    """Rows as they enter the keys: moved to the centre, or onto the sphere."""
    if base == "haversine":
        return sphere(rows)
    return rows if centre is None else rows - centre


def _products(queries: NDArray, rows: NDArray) -> NDArray:
    return queries @ rows.astype(queries.dtype, copy=False).T  # (m, c)


def _tile(kernel: Callable[..., None]) -> Callable[[NDArray, NDArray], NDArray]:
    def tile(queries: NDArray, rows: NDArray) -> NDArray:
        out = np.empty((len(queries), len(rows)), dtype=queries.dtype)
        kernel(queries, frozen(rows.astype(queries.dtype, copy=False)), out)
        return out

    return tile


TILES = {"manhattan": _tile(manhattan_tile), "hamming": _tile(hamming_tile)}


def _block_size(q: int, d: int, n_jobs: int | None) -> int:
    most = max(16, min(256, COPY_BYTES // (8 * d)))
    return max(1, min(most, -(-q // workers(n_jobs))))


def _centre(rows: NDArray) -> NDArray[np.float64] | None:
    """The mean, where rows lie far from the origin and close together: there it saves float32 its digits."""
    mean = np.zeros(rows.shape[1])
    total = 0.0
    for part in spans(len(rows), max(64, COPY_BYTES // (8 * rows.shape[1]))):
        exact = rows[part].astype(np.float64, copy=False)
        mean += exact.sum(axis=0)
        total += float(_squares(exact).sum())
    mean /= len(rows)
    away = float(mean @ mean)
    spread = max(0.0, total / len(rows) - away)
    return mean if away > 4.0 * spread else None


def _squares(rows: Matrix) -> NDArray[np.float64]:
    """||x||^2 of each row, in float64."""
    if sp.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).ravel()
    return np.einsum("ij,ij->i", rows, rows, dtype=np.float64)


def _scale_and_offset(base: str, halves: NDArray) -> tuple[NDArray, NDArray]:
    """Scale and offset (n,) that turn products into keys."""
    ones, zeros = np.ones_like(halves), np.zeros_like(halves)
    if base == "euclidean":
        return -ones, halves
    if base == "cosine":
        norms = np.sqrt(2.0 * halves)
        return -np.divide(1.0, norms, out=zeros, where=norms > 0), np.zeros_like(halves)
    return (ones, zeros) if base in ("manhattan", "hamming") else (-ones, zeros)


def top_products(
    queries: Matrix,
    rows: NDArray,
    k: int,
    scale: NDArray | None = None,
    offset: NDArray | None = None,
    n_jobs: int | None = None,
) -> TopK:
    """The k best of scale_r * (q . x_r) + offset_r for each query (q, d), dense or CSR, over dense rows (n, d).

    Scores are as computed in the common float type; ties go to the lower position; -1 and -inf pad where n < k.
    """
    q, n = queries.shape[0], len(rows)
    kind = np.result_type(queries.dtype, rows.dtype)
    # keys are lower-is-better, so both signs turn
    turned = frozen(np.full(n, -1, kind) if scale is None else -np.asarray(scale, kind))
    moved = frozen(np.zeros(n, kind) if offset is None else -np.asarray(offset, kind))
    heaps = empty_heaps(q, k)
    nothing = frozen(np.empty((q, 0)))
    still = np.zeros(q)

    def work(where: slice) -> None:
        block = queries[where]
        m = block.shape[0]
        chunk = max(256, min(TILE // m, COPY_BYTES // (kind.itemsize * rows.shape[1]) if sp.issparse(block) else n))
        which, part = np.arange(m), heaps.part(where)
        for some in spans(n, chunk):
            products = np.ascontiguousarray(block @ rows[some].T, dtype=kind)  # (m, c)
            names = np.arange(some.start, some.stop)
            offer(
                KEY, products, turned[some], moved[some], nothing[where], nothing, names, which,
                still[where], 0.0, 0.0, 0.0, *part,
            )  # fmt: skip

    size = 4096 if sp.issparse(queries) else 256  # a sparse product copies the rows, so it must serve many queries
    pmap(work, spans(q, max(1, min(size, -(-q // workers(n_jobs))))), n_jobs)
    ids, distances = heaps.neighbors()
    return TopK(ids, (-distances).astype(kind, copy=False))
