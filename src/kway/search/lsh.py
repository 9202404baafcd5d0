"""LSH: approximate search by locality-sensitive hashes, which near rows tend to share.

Each of `n_tables` tables hashes a row by `n_bits` random projections t_i = a_i . x (Charikar 2002; Datar, Immorlica,
Indyk and Mirrokni 2004):

    cosine, dot                  h_i = [t_i > 0]                  a_i Gaussian (random hyperplanes)
    euclidean, haversine         h_i = floor((t_i + s_i) / w_i)   a_i Gaussian (2-stable), points on the sphere
    manhattan                    h_i = floor((t_i + s_i) / w_i)   a_i Cauchy (1-stable)

key = sum_i h_i r_i. A query also looks into the buckets next to its own (`probes` per table): those reached by changing
the h_i nearest to a boundary (multi-probe LSH, Lv et al. 2007). dot becomes cosine by one more coordinate,
sqrt(max ||x||^2 - ||x||^2) for rows and 0 for queries (Neyshabur and Srebro 2015). All rows found are measured exactly.
A query that found fewer than k rows uses more probes, and finally scans all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.kernels.jit import frozen
from kway.kernels.topk import EMPTY, offer_buckets
from kway.memory import rows_per_block
from kway.parameters import AUTO, check_parameters, whole
from kway.search.block_scan import BlockScan
from kway.search.codecs.stores import StoredRows, drop_rows, join_rows
from kway.search.distances import COSINE, DOT, EUCLIDEAN, GREAT_CIRCLE, MANHATTAN, squares
from kway.search.index import Index, Recipe
from kway.search.kmeans import SAMPLE_ROWS
from kway.search.metrics import Metric
from kway.search.results import Heaps, Ids, Neighbors, empty_heaps
from kway.threads import pmap, spans, workers

_PROBES = 32  # buckets per table that a query looks into (decided, as the other numbers of LSH, by tests of its recall)
BUCKET = 8  # wanted rows per bucket; if a row shares its bucket with four times as many, buckets are made smaller
MOST_MOVED = 10  # boundaries that probing considers: 2^10 buckets per table at most
MOST_BITS = np.iinfo(np.int64).bits - 2  # of a key


@dataclass(frozen=True)
class LSH(Recipe):
    """Locality-sensitive hashing with several probes per table; approximate.

    Parameters
    ----------
    n_tables : int, default=8
        Number of hash tables.
    n_bits : int or "auto", default="auto"
        Hashes per table, at most 62; "auto" takes as many as give buckets of about 8 rows.
    probes : int or "auto", default="auto"
        Buckets per table that a query looks into; "auto" is 32, and a NeighborsClassifier tunes it.
    seed : int, default=0
        Seed of the random projections.

    References
    ----------
    Datar, Immorlica, Indyk and Mirrokni, "Locality-sensitive hashing scheme based on p-stable distributions", 2004.
    Lv, Josephson, Wang, Charikar and Li, "Multi-probe LSH: efficient indexing for high-dimensional similarity
    search", VLDB 2007.

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(100, 4))
    >>> LSH().build(rows).nearest(rows[:1], 1).ids
    array([[0]])
    """

    n_tables: int = 8
    n_bits: int | str = "auto"
    probes: int | str = "auto"
    seed: int = 0

    name = "lsh"
    distances = (EUCLIDEAN, MANHATTAN, COSINE, DOT, GREAT_CIRCLE)
    narrow = True

    def __post_init__(self) -> None:
        check_parameters(self, n_tables=whole(1), n_bits=AUTO | whole(1), probes=AUTO | whole(1), seed=whole(0))
        if self.n_bits != "auto" and int(self.n_bits) > MOST_BITS:
            raise InputError(f"n_bits must be at most {MOST_BITS}, got {self.n_bits}")

    @property
    def exact(self) -> bool:
        """Whether answers are exact: never, a neighbor may share no bucket with the query."""
        return False

    def _live(self, rows: Any, metric: Metric, ids: Ids) -> LSHIndex:
        return LSHIndex(self, metric, ids, rows)

    def _revive(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> LSHIndex:
        index = LSHIndex(self, metric, ids, rows, _Hashes(**{key: arrays[key] for key in _Hashes._fields}))
        index.probes = facts["probes"]
        return index


class _Hashes(NamedTuple):
    """Random functions of T tables of b hashes each, B = T b; width 0 means hyperplanes."""

    directions: NDArray[np.float32]  # (d', B)
    shift: NDArray[np.float64]  # (B,)
    width: NDArray[np.float64]  # (B,), 0 for hyperplanes
    factor: NDArray[np.uint64]  # (T, b)
    longest: NDArray[np.float64]  # (1,) the largest norm of a row, for dot


class LSHIndex(Index):
    """Live hash tables; `probes` may be set at any time."""

    recipe: LSH

    def __init__(self, recipe: LSH, metric: Metric, ids: Ids, rows: NDArray, hashes: _Hashes | None = None) -> None:
        super().__init__(recipe, metric, ids, rows.shape[1])
        self._rows = frozen(rows)
        self._hashes = self._draw() if hashes is None else hashes
        self.probes: int = _PROBES if recipe.probes == "auto" else int(recipe.probes)
        self._fill()

    @property
    def most_probes(self) -> int:
        """Largest number of probes worth trying: twice the default."""
        return 2 * _PROBES

    @property
    def rows(self) -> NDArray:
        """The rows (n_rows, d) in the order of their positions."""
        return np.asarray(self.unit.given(self._rows))

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including rows."""
        return int(self._rows.nbytes + self._keys.nbytes + self._members.nbytes + self._hashes.directions.nbytes)

    def _draw(self) -> _Hashes:
        """Draw random projections, with more bits (hyperplanes) or smaller widths (others) until buckets are small."""
        recipe, n = self.recipe, len(self._rows)
        longest = np.array([np.sqrt(squares(self._rows).max())])
        some = np.random.default_rng(recipe.seed).choice(n, min(n, SAMPLE_ROWS), replace=False)
        points = self._points(self._rows[some], float(longest[0]), query=False)
        auto = recipe.n_bits == "auto"
        bits = min(MOST_BITS, max(1, round(np.log2(max(2.0, n / BUCKET))))) if auto else int(recipe.n_bits)
        share = 1.5  # width of a hash relative to the middle half of the projections: two to three values per hash
        while True:
            self._hashes = hashes = self._functions(points, bits, share, longest)
            crowd = n * _collisions(self._keys_of(points @ hashes.directions))
            if not auto or crowd <= 4 * BUCKET or bits == MOST_BITS or share < 0.1:
                return hashes
            if hashes.width.any():
                share *= 0.75
            else:
                bits += 1

    def _functions(self, points: NDArray, bits: int, share: float, longest: NDArray) -> _Hashes:
        distance, rng = self.metric.distance, np.random.default_rng(self.recipe.seed + 1)
        tables = self.recipe.n_tables
        shape = (points.shape[1], tables * bits)
        draw = rng.standard_cauchy(shape) if distance.order == 1 else rng.standard_normal(shape)
        directions = draw.astype(np.float32)
        if distance.by_direction:  # random hyperplanes
            none = np.zeros(tables * bits)
            return _Hashes(directions, none, none, np.tile(2 ** np.arange(bits, dtype=np.uint64), (tables, 1)), longest)
        low, middle, high = np.percentile(points @ directions, [25, 50, 75], axis=0)
        width = np.where(high > low, share * (high - low), 1.0)
        shift = rng.uniform(0.0, 1.0, tables * bits) * width - middle
        factor = rng.integers(1, 2**63, (tables, bits), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
        return _Hashes(directions, shift, width, factor, longest)

    def _points(self, rows: NDArray, longest: float, query: bool) -> NDArray:
        """Return rows as they are hashed: in the space of the distance if it has one; signs need no unit rows."""
        distance = self.metric.distance
        if distance.order:
            return rows if distance.by_direction else np.asarray(distance.place(rows))
        more = np.zeros(len(rows)) if query else np.sqrt(np.maximum(longest**2 - squares(rows), 0.0))
        return np.column_stack([rows, more])

    def _scaled(self, products: NDArray) -> NDArray[np.float64]:
        """Return the projections (n, T, b) in units of the width; those on hyperplanes unchanged."""
        h, t = self._hashes, products.astype(np.float64)
        if h.width.any():
            t = (t + h.shift) / h.width
        return t.reshape(len(t), *h.factor.shape)

    def _keys_of(self, products: NDArray) -> NDArray[np.uint64]:
        """Return the keys (n, T) of rows with these projections (n, B)."""
        h = self._hashed(self._scaled(products)).astype(np.uint64)
        return (h * self._hashes.factor).sum(axis=2, dtype=np.uint64)

    def _hashed(self, t: NDArray) -> NDArray[np.int64]:
        return np.floor(t).astype(np.int64) if self._hashes.width.any() else (t > 0).astype(np.int64)

    def _fill(self) -> None:
        """Sort the rows of each table by key."""
        factor = self._hashes.factor
        keys = np.empty((len(factor), len(self._rows)), dtype=np.uint64)
        for part in spans(len(self._rows), rows_per_block(8 * max(self.n_features, factor.size))):
            points = self._points(self._rows[part], float(self._hashes.longest[0]), query=False)
            keys[:, part] = self._keys_of(points @ self._hashes.directions).T
        members = np.argsort(keys, axis=1, kind="stable")
        self._keys = frozen(np.take_along_axis(keys, members, axis=1))  # (T, n)
        self._members = frozen(members.astype(np.int32 if len(self._rows) < 2**31 else np.int64))  # (T, n)
        self._scan = BlockScan(StoredRows(self._rows), self.metric.distance)
        tables, bits = factor.shape
        self.why_ = f"{tables} hash tables of {bits} bits over {len(self._rows):,} rows: approximate"

    def _nearest(self, queries: NDArray, k: int, probes: int | None) -> Neighbors:
        wanted = max(1, self.probes if probes is None else int(probes))
        heaps = empty_heaps(len(queries), k)
        blocks = spans(len(queries), max(1, min(256, -(-len(queries) // workers()))))
        measured = sum(pmap(lambda b: self._search(queries[b], heaps.part(b), wanted), blocks))
        self._touched = measured / len(queries)
        return heaps.neighbors()

    def _search(self, queries: NDArray, heaps: Heaps, probes: int) -> int:
        """Search a block of queries; those that found fewer than k rows use more probes, finally all rows."""
        exact = frozen(queries.astype(np.float64))
        first, last = self._buckets(exact, probes)
        seen = np.full(len(self._rows), -1, dtype=np.int32)
        code = self.metric.distance.code
        measured = int(offer_buckets(code, exact, self._rows, self._members, first, last, seen, *heaps))
        where = np.flatnonzero(heaps.distances[:, 0] >= EMPTY)
        if len(where):
            again = empty_heaps(len(where), heaps.ids.shape[1])
            most = 2 ** min(MOST_MOVED, self._hashes.factor.shape[1])
            if probes < most:
                measured += self._search(queries[where], again, 8 * probes)
            else:
                found = self._scan.nearest(exact[where], heaps.ids.shape[1])
                again.ids[:], again.distances[:] = found.ids[:, ::-1], found.distances[:, ::-1]  # the worst first
                measured += int(self._scan.touched * len(where))
            heaps.distances[where], heaps.ids[where] = again
        return measured

    def _buckets(self, queries: NDArray, probes: int) -> tuple[NDArray, NDArray]:
        """Return the first and last places of the probed buckets in the sorted keys, (q, T, probes) each."""
        factor = self._hashes.factor
        points = self._points(queries, float(self._hashes.longest[0]), query=True)
        t = self._scaled(points @ self._hashes.directions)  # (q, T, b)
        h = self._hashed(t)
        keys = (h.astype(np.uint64) * factor).sum(axis=2, dtype=np.uint64)  # (q, T)
        margin, step = _moves(t, h, bool(self._hashes.width.any()))
        moved = min(h.shape[2], MOST_MOVED, max(1, int(np.ceil(np.log2(probes))) + 2))
        nearest = np.argsort(margin, axis=2)[:, :, :moved]  # the hashes that most likely differ
        margin = np.take_along_axis(margin, nearest, axis=2)
        delta = np.take_along_axis(step.astype(np.uint64) * factor, nearest, axis=2)
        subsets = (np.arange(2**moved)[:, None] >> np.arange(moved)) & 1  # (S, moved)
        costs = margin**2 @ subsets.T.astype(np.float64)  # (q, T, S)
        count = min(probes, len(subsets))
        best = np.argsort(costs, axis=2, kind="stable")[:, :, :count]
        shifts = (delta[:, :, None, :] * subsets[best].astype(np.uint64)).sum(axis=3, dtype=np.uint64)
        probed = keys[:, :, None] + shifts  # (q, T, P)
        first, last = np.empty(probed.shape, np.int64), np.empty(probed.shape, np.int64)
        for table, sorted_keys in enumerate(self._keys):
            first[:, table] = np.searchsorted(sorted_keys, probed[:, table], side="left")
            last[:, table] = np.searchsorted(sorted_keys, probed[:, table], side="right")
        return first, last

    def _append(self, rows: NDArray) -> None:
        self._rows = frozen(join_rows(self._rows, rows))
        longest = np.sqrt(squares(rows).max())
        if longest > self._hashes.longest[0]:  # dot: every row's extra coordinate depends on it
            self._hashes = self._hashes._replace(longest=np.array([longest]))
        self._fill()

    def _drop(self, positions: NDArray[np.int64]) -> None:
        self._rows = frozen(drop_rows(self._rows, positions))
        self._fill()

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {"probes": self.probes}, {"rows": self._rows, **self._hashes._asdict()}


def _collisions(keys: NDArray[np.uint64]) -> float:
    """Return the probability that two rows share a bucket, from the keys (n, T) of a sample."""
    n = len(keys)
    if n < 2:
        return 0.0
    counts = [np.unique(column, return_counts=True)[1].astype(np.float64) for column in keys.T]
    return float(np.mean([(c * (c - 1)).sum() for c in counts]) / (n * (n - 1)))


def _moves(t: NDArray, h: NDArray, stable: bool) -> tuple[NDArray, NDArray]:
    """Return the distance of each hash to its nearest boundary, and the step (+1 or -1) across it."""
    if not stable:
        return np.abs(t), 1 - 2 * h
    above = t - h  # 0 at the lower boundary, 1 at the upper
    return np.minimum(above, 1.0 - above), np.where(above < 0.5, -1, 1)
