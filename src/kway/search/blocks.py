"""Blocks: queries (q, d) against rows (n, d), a tile of at most 2 MB of keys at a time, never q x n.

`top_products` gives the k best of scale_r * (q . x_r) + offset_r as they are computed, which is how a linear model
predicts. `BlockScan` searches rows exactly: the distance (distances.py) says what the tile's keys are, in float32 where
that is safe, and the few rows whose key might be among the k best, rounding included, are measured in float64.
Euclidean keys are taken about the mean where that saves digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.certified.sparse import offer_csr
from kway.compute.kernels.distances import KEY
from kway.compute.kernels.float32 import FLOAT32_SAFE
from kway.compute.kernels.jit import frozen, plainly
from kway.compute.kernels.topk import merge, offer
from kway.compute.threads import pmap, shares, spans, workers
from kway.search.heaps import Heaps, empty_heaps
from kway.search.index import TopK, whole_k
from kway.search.spaces.distances import Distance, Matrix, squares
from kway.search.stores.base import Store
from kway.search.stores.kept import FarKept, KeptRows

TILE_KEYS = 2**19  # keys in a tile: 2 MB in float32, about the second cache
COPY_BYTES = 2**23  # rows or queries converted for one tile


class RowKeys(NamedTuple):
    """What the keys need of each row, taken in one pass over all of them."""

    scale: NDArray  # (n,)
    offset: NDArray  # (n,)
    centre: NDArray[np.float64] | None  # (d,)
    reach: float  # the largest norm of a (centred) row
    slack: float  # rounding of a key, relative to the norms
    blur: float  # how far a scanned row may lie from the full one
    dtype: type[np.floating]  # of keys


@dataclass(frozen=True)
class BlockScan:
    """Rows that are scanned in blocks under one distance."""

    kept: KeptRows
    distance: Distance

    @cached_property
    def keys(self) -> RowKeys:
        """Taken at the first scan: where bounds spare the rows (flat.py), there may never be one."""
        return row_keys(self.kept, self.distance)

    @property
    def rows(self) -> Any:
        """What is scanned: (n, d) C-contiguous, CSR, or codes."""
        return self.kept.scanned

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included."""
        keys = vars(self).get("keys")
        return int(self.kept.nbytes + (0 if keys is None else keys.scale.nbytes + keys.offset.nbytes))

    def scan(self, queries: Matrix, heaps: Heaps, first: int = 0, n_jobs: int | None = None) -> int:
        """Offer every row, called first, first + 1, ..., to the heaps of the queries; rows measured in full."""
        q, n = queries.shape[0], self.rows.shape[0]
        with plainly(q * n * (1 if self.distance.product else queries.shape[1])) as plain:
            if plain:
                return self._scan(queries, heaps, slice(0, n), first, nearest_first=True)
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

    def _scan(self, queries: Matrix, heaps: Heaps, rows: slice, first: int, nearest_first: bool = False) -> int:
        """One thread's work: a block of queries against rows[start:stop], tile by tile."""
        block = _Block.of(self, queries)
        d = queries.shape[1]
        given = isinstance(self.rows, np.ndarray) and self.rows.dtype == block.keys.dtype and self.keys.centre is None
        chunk = max(256, TILE_KEYS // block.keys.shape[0])
        if not given and not sp.issparse(self.rows):
            chunk = min(chunk, max(64, COPY_BYTES // (4 * d)))
        measured = 0
        for a in range(rows.start, rows.stop, chunk):
            part = slice(a, min(rows.stop, a + chunk))
            names = np.arange(first + part.start, first + part.stop)
            measured += block.offer(part, names, heaps, nearest_first)
        return measured


@dataclass(frozen=True)
class _Block:
    """A block of queries as one scan needs them."""

    scan: BlockScan
    queries: Matrix  # (m, d) float64 as given, for exact distances
    keys: Matrix  # (m, d') as they enter the keys
    norms: NDArray[np.float64]  # (m,)
    which: NDArray[np.int64]  # (m,)

    @staticmethod
    def of(scan: BlockScan, queries: Matrix) -> _Block:
        if sp.issparse(queries) != sp.issparse(scan.rows):
            queries = queries.toarray() if sp.issparse(queries) else sp.csr_matrix(queries)
        exact = queries.astype(np.float64)
        keys = scan.distance.query_side(_about(exact, scan.keys.centre))
        norms, which = np.sqrt(squares(keys)), np.arange(exact.shape[0])
        if sp.issparse(keys):
            return _Block(scan, exact, keys, norms, which)
        with np.errstate(over="ignore"):
            narrow = keys.astype(scan.keys.dtype)
        single = bool(norms.max(initial=0.0) < FLOAT32_SAFE[1])  # a query far out would overflow
        if single and (scan.distance.product or np.array_equal(narrow, keys)):  # a tile may round no query
            keys = narrow
        return _Block(scan, frozen(exact), frozen(keys), norms, which)

    def offer(self, part: slice, names: NDArray[np.int64], heaps: Heaps, nearest_first: bool) -> int:
        s, k = self.scan, self.scan.keys
        rows, code = s.rows[part], s.distance.code
        if sp.issparse(rows):
            products = np.ascontiguousarray((self.keys @ rows.T).toarray())  # (m, c)
            q, x = self.queries, rows
            arrays = (q.data, q.indices, q.indptr, x.data.astype(np.float64), x.indices, x.indptr)
            return int(
                offer_csr(
                    code, products, k.scale[part], k.offset[part], *arrays, names, self.norms, k.reach, k.slack, *heaps
                )
            )
        products = s.distance.tile(self.keys, s.distance.row_side(_about(rows, k.centre)))
        measured = rows if s.kept.codes is None or s.kept.full is None else s.kept.full[part]
        scale, offset = (frozen(form[part].astype(products.dtype, copy=False)) for form in (k.scale, k.offset))
        if nearest_first:  # in whatever order rows come, few are then measured
            order = np.argsort((scale * products + offset).min(axis=0))
            products, scale, offset = np.ascontiguousarray(products[:, order]), scale[order], offset[order]
            measured, names = measured[order], names[order]
        return int(
            offer(
                code, products, scale, offset, self.queries, frozen(measured), names, self.which,
                self.norms, k.reach, k.slack, k.blur, *heaps,
            )
        )  # fmt: skip


def block_scan(rows: Matrix | KeptRows, distance: Distance, store: Store | None = None) -> BlockScan:
    """Rows (n, d), dense float, CSR, or as an index keeps them, ready to be scanned under a distance."""
    kept = rows if isinstance(rows, KeptRows) else KeptRows.of(rows, store, distance)
    if not isinstance(kept, FarKept) and isinstance(kept.full, np.ndarray):
        kept = KeptRows(frozen(kept.full), kept.codes)
    return BlockScan(kept, distance)


def row_keys(kept: KeptRows, distance: Distance) -> RowKeys:
    """Half squares about the centre, and what follows from them.

    With codes and full rows at hand, `blur` lets pass whoever the codes' error cannot rule out.
    """
    scanned, (n, d) = kept.scanned, kept.shape
    dense = not sp.issparse(scanned)
    centre = _centre(scanned) if distance.shifts and n and dense else None
    halves = np.empty(n)
    for part in spans(n, max(64, COPY_BYTES // (8 * d))):
        exact = scanned[part].astype(np.float64)
        halves[part] = 0.5 * squares(distance.row_side(_about(exact, centre)))
    reach = float(np.sqrt(2.0 * halves.max(initial=0.0)))
    narrow = dense and not distance.wide and FLOAT32_SAFE[0] < reach < FLOAT32_SAFE[1]
    if not (distance.product or scanned.dtype == np.float32):
        narrow = False
    kind: type[np.floating] = np.float32 if narrow else np.float64
    scale, offset = (frozen(values.astype(kind)) for values in distance.key_form(halves))
    blur = 0.0
    if kept.codes is not None and kept.full is not None:
        blur = float(kept.codes.errors(kept.full, distance).max(initial=0.0))
    return RowKeys(scale, offset, centre, distance.reach(halves, d), sum_rounding(d, kind), blur, kind)


def sum_rounding(d: int, key_type: type[np.floating]) -> float:
    """Relative error of a sum of d products in any order, d u / (1 - d u), and of the conversions around it."""
    unit_roundoff = 2.0**-24 if key_type == np.float32 else 2.0**-53
    error = (d + 32) * unit_roundoff
    return float(error / (1.0 - error)) if error < 0.5 else 1.0


def _about(rows: Matrix, centre: NDArray | None) -> Matrix:
    return rows if centre is None else rows - centre


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
        total += float(squares(exact).sum())
    mean /= len(rows)
    away = float(mean @ mean)
    spread = max(0.0, total / len(rows) - away)
    return mean if away > 4.0 * spread else None


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
    q, n, k = queries.shape[0], len(rows), whole_k(k)
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
        copied = COPY_BYTES // (kind.itemsize * rows.shape[1]) if sp.issparse(block) else n
        chunk = max(256, min(TILE_KEYS // m, copied))
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
