"""LSH: approximate search by locality-sensitive hashes, which are often equal for near rows.

Each of `n_tables` tables hashes a row by `n_bits` random hyperplanes (Charikar 2002):

    h_i = [a_i . x > m_i]      a_i Gaussian; m_i = 0 for angles and products, else the median of a_i . x over a sample

The hashes of a table form the key sum_i h_i 2^i, and rows with the same key form a bucket. A query searches `probes`
buckets per table: its own, and those reached by changing the h_i whose hyperplanes are nearest (multi-probe LSH, Lv et
al. 2007). All rows of these buckets are measured exactly. A query that finds fewer than k rows uses more probes, and
finally scans all rows.

The metric haversine hashes points on the unit sphere. The metric dot becomes cosine by one more coordinate,
sqrt(max ||x||^2 - ||x||^2) for rows and 0 for queries (Neyshabur and Srebro 2015).

Shape letters: n rows, q queries, T tables, b hashes per table, B = T b hyperplanes, P probes, d' columns of the points.
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
from kway.rows.blocks import SAMPLE_ROWS
from kway.search.block_scan import BlockScan
from kway.search.codecs.stores import StoredRows
from kway.search.distances import COSINE, DOT, EUCLIDEAN, GREAT_CIRCLE, MANHATTAN, squares
from kway.search.index import NO_GUARANTEE, Recipe, RowsIndex
from kway.search.metrics import Metric
from kway.search.results import Heaps, Ids, Neighbors, empty_heaps
from kway.threads import pmap, spans, workers

# The tests of recall (tests/search/test_lsh.py) decide these numbers.
_PROBES = 32  # buckets per table that a query searches if probes="auto" is not tuned
BUCKET = 8  # rows per bucket that n_bits="auto" aims at; up to four times as many are accepted
MAX_FLIPS = 10  # hashes that probing may change: at most 2^10 buckets per table
MAX_BITS = np.iinfo(np.int64).bits - 2  # of a key


@dataclass(frozen=True)
class LSH(Recipe):
    """Locality-sensitive hashing with several probes per table; approximate.

    Parameters
    ----------
    n_tables : int, default=8
        Number of hash tables.
    n_bits : int or "auto", default="auto"
        Hashes per table, at most 62; "auto" chooses the number for which buckets have about 8 rows.
    probes : int or "auto", default="auto"
        Buckets per table that a query searches. A NeighborsClassifier tunes "auto" until its votes agree with exact
        search. An index that is built directly uses 32 and guarantees no recall.
    seed : int, default=0
        Seed of the random hyperplanes.

    References
    ----------
    Charikar, "Similarity estimation techniques from rounding algorithms", STOC 2002.
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
        if self.n_bits != "auto" and int(self.n_bits) > MAX_BITS:
            raise InputError(f"n_bits must be at most {MAX_BITS}, got {self.n_bits}; use more tables instead")

    @property
    def exact(self) -> bool:
        """False: a neighbor may be in none of the buckets that are searched."""
        return False

    def _make_index(self, rows: Any, metric: Metric, ids: Ids) -> LSHIndex:
        return LSHIndex(self, metric, ids, rows)

    def _restore_index(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> LSHIndex:
        index = LSHIndex(self, metric, ids, rows, _Hashes(**{key: arrays[key] for key in _Hashes._fields}))
        index.probes = facts["probes"]
        return index


class _Hashes(NamedTuple):
    """Hyperplanes, those of one table after the other, and the largest norm of a row, which only dot needs."""

    directions: NDArray[np.float32]  # (d', B)
    middle: NDArray[np.float64]  # (B,)
    longest: NDArray[np.float64]  # (1,)


class LSHIndex(RowsIndex):
    """Hash tables over rows; `probes` may be set at any time."""

    recipe: LSH

    def __init__(self, recipe: LSH, metric: Metric, ids: Ids, rows: NDArray, hashes: _Hashes | None = None) -> None:
        super().__init__(recipe, metric, ids, rows)
        self._hashes = self._draw() if hashes is None else hashes
        self.probes: int = _PROBES if recipe.probes == "auto" else int(recipe.probes)
        n_bits = self._hashes.directions.shape[1] // recipe.n_tables
        self.why_ = f"{recipe.n_tables} hash tables of {n_bits} bits: approximate"
        if recipe.probes == "auto":
            self.why_ += NO_GUARANTEE
        self._rebuild()

    @property
    def max_probes(self) -> int:
        """Largest number of probes that tuning tries: twice the default."""
        return 2 * _PROBES

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including rows."""
        return int(self._rows.nbytes + self._keys.nbytes + self._members.nbytes + self._hashes.directions.nbytes)

    def _draw(self) -> _Hashes:
        """Draw hyperplanes; "auto" adds bits until a row shares its bucket with few other rows."""
        recipe, n = self.recipe, len(self._rows)
        longest = np.array([np.sqrt(squares(self._rows).max())])
        sampled = np.random.default_rng(recipe.seed).choice(n, min(n, SAMPLE_ROWS), replace=False)
        points = self._points(self._rows[sampled], float(longest[0]), query=False)
        auto = recipe.n_bits == "auto"
        bits = min(MAX_BITS, max(1, round(np.log2(n / BUCKET)))) if auto else int(recipe.n_bits)
        while True:
            shape = points.shape[1], recipe.n_tables * bits
            directions = np.random.default_rng(recipe.seed + 1).standard_normal(shape).astype(np.float32)
            by_direction = self.metric.distance.by_direction
            middle = np.zeros(shape[1]) if by_direction else np.median(points @ directions, axis=0).astype(np.float64)
            self._hashes = _Hashes(directions, middle, longest)
            if not auto or bits == MAX_BITS or n * _collisions(_keys(self._above(points) > 0)) <= 4 * BUCKET:
                return self._hashes
            bits += 1

    def _points(self, rows: NDArray, longest: float, query: bool) -> NDArray:
        """Return rows (n, d) in the space of the hashes (n, d')."""
        distance = self.metric.distance
        if distance.order:
            return rows if distance.by_direction else np.asarray(distance.place(rows))
        added = np.zeros(len(rows)) if query else np.sqrt(np.maximum(longest**2 - squares(rows), 0.0))
        return np.column_stack([rows, added])

    def _above(self, points: NDArray) -> NDArray[np.float64]:
        """Return the signed heights (n, T, b) of points above each hyperplane, times the norm of its direction."""
        heights = points @ self._hashes.directions - self._hashes.middle
        return np.asarray(heights.reshape(len(points), self.recipe.n_tables, -1), np.float64)

    def _rebuild(self) -> None:
        """Sort the rows of every table by key."""
        self._rows = frozen(self._rows)
        longest = np.sqrt(squares(self._rows).max(initial=0.0))
        if longest > self._hashes.longest[0]:  # dot: the added coordinate of every row depends on it
            self._hashes = self._hashes._replace(longest=np.array([longest]))
        tables, width = self.recipe.n_tables, self._hashes.directions.shape[1]
        keys = np.empty((tables, len(self._rows)), dtype=np.int64)
        for part in spans(len(self._rows), rows_per_block(8 * max(self.n_features, width))):
            points = self._points(self._rows[part], float(self._hashes.longest[0]), query=False)
            keys[:, part] = _keys(self._above(points) > 0).T
        members = np.argsort(keys, axis=1, kind="stable")
        self._keys = frozen(np.take_along_axis(keys, members, axis=1))  # (T, n)
        self._members = frozen(members.astype(np.int32 if len(self._rows) < 2**31 else np.int64))  # (T, n)
        self._scan = BlockScan(StoredRows(self._rows), self.metric.distance)

    def _nearest(self, queries: NDArray, k: int, probes: int | None) -> Neighbors:
        probes = max(1, self.probes if probes is None else int(probes))
        heaps = empty_heaps(len(queries), k)
        blocks = spans(len(queries), max(1, min(256, -(-len(queries) // workers()))))
        measured = sum(pmap(lambda b: self._search(queries[b], heaps.part(b), probes), blocks))
        self._touched = measured / len(queries)
        return heaps.neighbors()

    def _search(self, queries: NDArray, heaps: Heaps, probes: int) -> int:
        """Search a block of queries; those that find fewer than k rows use more probes, and finally scan all rows."""
        exact = frozen(queries.astype(np.float64))
        first, last = self._buckets(exact, probes)
        seen = np.full(len(self._rows), -1, dtype=np.int32)
        code = self.metric.distance.code
        measured = int(offer_buckets(code, exact, self._rows, self._members, first, last, seen, *heaps))
        short = np.flatnonzero(heaps.distances[:, 0] >= EMPTY)
        if len(short):
            new_heaps = empty_heaps(len(short), heaps.ids.shape[1])
            max_probes = 2 ** min(MAX_FLIPS, self._hashes.directions.shape[1] // self.recipe.n_tables)
            if probes < max_probes:
                measured += self._search(queries[short], new_heaps, 8 * probes)
            else:
                ids, distances = self._scan.nearest(exact[short], heaps.ids.shape[1])
                new_heaps.ids[:], new_heaps.distances[:] = ids[:, ::-1], distances[:, ::-1]  # the worst first
                measured += int(self._scan.touched * len(short))
            heaps.distances[short], heaps.ids[short] = new_heaps
        return measured

    def _buckets(self, queries: NDArray, probes: int) -> tuple[NDArray, NDArray]:
        """Return the ranges (q, T, P) of sorted keys that each query searches, the most likely buckets first."""
        heights = self._above(self._points(queries, float(self._hashes.longest[0]), query=True))  # (q, T, b)
        n_flips = min(heights.shape[2], MAX_FLIPS, max(1, int(np.ceil(np.log2(probes))) + 2))
        nearest = np.argsort(np.abs(heights), axis=2)[:, :, :n_flips]  # the hashes that most likely differ
        margins = np.take_along_axis(heights, nearest, axis=2)
        delta = np.where(margins > 0, -1, 1) << nearest  # change of the key if this hash is flipped
        subsets = (np.arange(2**n_flips)[:, None] >> np.arange(n_flips)) & 1  # (S, n_flips)
        costs = margins**2 @ subsets.T.astype(np.float64)  # (q, T, S)
        best = np.argsort(costs, axis=2, kind="stable")[:, :, :probes]
        probed = _keys(heights > 0)[:, :, None] + (delta[:, :, None, :] * subsets[best]).sum(axis=3)  # (q, T, P)
        first, last = np.empty(probed.shape, np.int64), np.empty(probed.shape, np.int64)
        for table, sorted_keys in enumerate(self._keys):
            first[:, table] = np.searchsorted(sorted_keys, probed[:, table], side="left")
            last[:, table] = np.searchsorted(sorted_keys, probed[:, table], side="right")
        return first, last

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {"probes": self.probes}, {"rows": self._rows, **self._hashes._asdict()}


def _keys(hashes: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the keys (n, T) of hashes (n, T, b)."""
    return hashes @ (1 << np.arange(hashes.shape[2], dtype=np.int64))


def _collisions(keys: NDArray[np.int64]) -> float:
    """Return the probability that two rows share a bucket, from the keys (n, T) of a sample."""
    n = len(keys)
    if n < 2:
        return 0.0
    counts = [np.unique(column, return_counts=True)[1].astype(np.float64) for column in keys.T]
    return float(np.mean([(c * (c - 1)).sum() for c in counts]) / (n * (n - 1)))
