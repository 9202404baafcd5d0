"""Landmarks: IVF (inverted file), approximate search by vector quantization.

k-means places landmarks, each row belongs to the cell of its nearest landmark, and a search reads only the `probes`
cells whose landmarks are nearest to the query. Queries are grouped by cell, so that each cell is one matrix product for
all queries that search it. Projections (cells.py) or codes (bit_cells.py) rule out most of its rows before they are
measured.

Distances are exact float64 values, or those of the codes if full rows are not stored. A neighbor in a cell that was not
probed is missed. A search that finds fewer than k rows probes more cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway import progress
from kway.errors import CombinationError
from kway.kernels.cells import CellFinder
from kway.kernels.distances import KEY
from kway.kernels.jit import frozen
from kway.kernels.topk import EMPTY, offer, settle
from kway.memory import CACHE_BYTES, rows_per_block
from kway.parameters import AUTO, check_parameters, whole
from kway.search.bit_cells import BitCells
from kway.search.cells import (
    CellGroups,
    CellLayout,
    CellTable,
    Projected,
    Projection,
    by_cell,
    learn_projection,
    projection_sample,
)
from kway.search.codecs.stores import STORE, Store, StoredRows
from kway.search.distances import COSINE, DOT, EUCLIDEAN, GREAT_CIRCLE
from kway.search.index import NO_GUARANTEE, Index, Recipe
from kway.search.kmeans import ROUNDS, kmeans_sample, nearest_centers, place_centers
from kway.search.metrics import Metric
from kway.search.results import Heaps, Ids, Neighbors, empty_heaps, whole_k
from kway.threads import even_spans, pmap, spans

PROBES = 24  # default number of cells per query: a recall of 0.996 on images with 2 sqrt(n) cells in benchmark T3


@dataclass(frozen=True)
class Landmarks(Recipe):
    """IVF (inverted file): approximate search of the cells around k-means landmarks.

    Parameters
    ----------
    n_landmarks : int or "auto", default="auto"
        Number of cells; "auto" is twice the square root of the number of rows.
    probes : int or "auto", default="auto"
        Number of cells that a query searches. `NeighborsClassifier` tunes "auto" until its votes agree with exact
        search. An index that is built directly uses 24 and guarantees no recall: if rows are not in clusters, such as
        rows in random directions, most neighbors may be missed. Compare the results with those of `Flat`.
    seed : int, default=0
        Seed of the samples and of the first landmarks.
    store : None, Int8 or Bits, default=None
        How rows are stored: in full, as bytes or as bits. Codes save memory, not time: a search of `Bits` is slower
        than one of full rows in memory. Use ``Bits(rerank=False)`` if the rows do not fit in memory.
    verbose : bool, default=False
        Whether to show the progress of k-means.

    References
    ----------
    Jegou, Douze and Schmid, "Product quantization for nearest neighbor search", IEEE TPAMI 33, 2011 (IVF).

    Examples
    --------
    >>> rows = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    >>> index = Landmarks(20, probes=5).build(rows)
    >>> index.nearest(rows[:2], 1).ids.ravel()
    array([0, 1])
    """

    n_landmarks: int | str = "auto"
    probes: int | str = "auto"
    seed: int = 0
    store: Store | None = None
    verbose: bool = False

    name = "landmarks"
    distances = (EUCLIDEAN, COSINE, DOT, GREAT_CIRCLE)
    narrow = True

    def __post_init__(self) -> None:
        check_parameters(self, n_landmarks=AUTO | whole(1), probes=AUTO | whole(1), seed=whole(0), store=STORE)

    @property
    def exact(self) -> bool:
        """Whether results are exact: never, cells that are not probed may contain a neighbor."""
        return False

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """Raise an error for rows or metrics that cannot be searched, such as codes under manhattan or haversine.

        Parameters
        ----------
        metric : Metric
            The metric of the search.
        sparse : bool, default=False
            Whether the rows are sparse.
        """
        super().check(metric, sparse)
        if self.store is not None and not metric.distance.by_products:
            raise CombinationError(
                f"Landmarks(store={self.store}) cannot search {metric.name!r}, which needs full rows; use store=None"
            )
        self.keeper.check(metric.distance, sparse)

    def _index_of_codes(self, blocks: Any, metric: Metric, folder: str | Path | None) -> Index | None:
        index = LandmarksIndex(self, metric, Ids.of(0, None), 0)
        n = self.keeper.fill_cells(index, blocks, folder)
        if n is None:
            return None
        index._ids, index._n_features = Ids.of(n, None), len(index._projection.mean)
        return index

    def _make_index(self, rows: Any, metric: Metric, ids: Ids) -> LandmarksIndex:
        index = LandmarksIndex(self, metric, ids, rows.shape[1])
        index._train(rows)
        return index

    def _restore_index(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> LandmarksIndex:
        index = LandmarksIndex(self, metric, ids, facts["n_features"])
        index._projection = Projection(np.asarray(arrays["mean"]), frozen(arrays["basis"]), facts["length"])
        index._landmarks, index._trained = frozen(arrays["landmarks"]), facts["trained"]
        index._set(self.keeper.table().from_arrays(rows, arrays, index._layout()))
        index.probes = facts["probes"]
        return index


class Probed(NamedTuple):
    """The result of a search with one number of probes."""

    neighbors: Neighbors
    touched: float  # mean number of rows measured per query


class LandmarksIndex(Index):
    """An IVF index that searches can use and that can change; `probes` may be set at any time."""

    recipe: Landmarks
    _projection: Projection
    _landmarks: NDArray[np.float32]  # (c, m)
    _finder: CellFinder
    _trained: int  # number of rows when the landmarks were placed
    _table: CellTable | BitCells

    def __init__(self, recipe: Landmarks, metric: Metric, ids: Ids, n_features: int) -> None:
        super().__init__(recipe, metric, ids, n_features)
        self.probes: int = PROBES if recipe.probes == "auto" else int(recipe.probes)

    @property
    def n_landmarks(self) -> int:
        """Number of cells."""
        return len(self._landmarks)

    @property
    def max_probes(self) -> int:
        """Largest number of probes worth trying: with half of the cells, exact search is cheaper."""
        return max(1, self.n_landmarks // 2)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, including rows."""
        return self._table.nbytes + self._landmarks.nbytes

    @property
    def ends_exact(self) -> bool:
        """Whether a search of all cells is the reference of a guarantee."""
        return self._table.ends_exact

    @property
    def rows(self) -> Any:
        """Rows (n_rows, d) in the order of their positions: an array, or Codes if only codes are stored."""
        return self.unit.given(self._table.best)

    @property
    def cells_(self) -> NDArray[np.int64]:
        """Cell (n_rows,) of each row, in the order of their positions."""
        return self._table.cells

    @property
    def landmarks_(self) -> NDArray[np.float64]:
        """Landmarks (n_landmarks, d): among unit rows for cosine, among points on the sphere for haversine."""
        return np.asarray(self.unit.given(self._layout().centers().astype(np.float64)))

    def _layout(self) -> CellLayout:
        return CellLayout(self.metric.distance, self._projection, self._landmarks, self.recipe.keeper)

    def _train(self, rows: NDArray) -> None:
        """Learn the projection, place the landmarks, and assign each row to the nearest."""
        self._place(rows)
        cells = self._nearest_landmarks(rows)
        self._arrange(self.recipe.keeper.table().keep(rows, cells, self._layout()), cells)

    def _place(self, rows: NDArray, n: int | None = None) -> None:
        """Set the projection and the landmarks for rows (n, d), or for n rows like these."""
        recipe, rng = self.recipe, np.random.default_rng(self.recipe.seed)
        distance, n = self.metric.distance, n or len(rows)
        sample = distance.place(projection_sample(rows, recipe.seed))
        projection = learn_projection(sample, distance.order > 0, recipe.seed)
        width = projection.basis.shape[1]
        self._projection = replace(projection, length=width) if recipe.keeper.learns_long and width else projection
        n_landmarks = round(2.0 * n**0.5) if recipe.n_landmarks == "auto" else int(recipe.n_landmarks)
        n_landmarks = min(len(rows), max(1, n_landmarks))
        points = self._projection.project(distance.place(kmeans_sample(rows, n_landmarks, rng)), long=False).leading
        with progress.bar("landmarks", ROUNDS, asked=recipe.verbose) as tell:
            self._landmarks = frozen(place_centers(points, n_landmarks, rng, tell=tell))
        self._trained = n

    def _arrange(self, kept: StoredRows, cells: NDArray[np.int64]) -> None:
        """Set the table of rows with these cells (n,)."""
        self._set(self.recipe.keeper.table().of(kept, cells, self._layout()))

    def _set(self, table: CellTable | BitCells) -> None:
        self._table = table
        self._finder = self._layout().finder()
        self.why_ = (
            f"{self.n_landmarks} landmarks over {len(table.names):,} rows: approximate, searches the cells nearest "
            f"to each query{NO_GUARANTEE if self.recipe.probes == 'auto' else ''}"
        )

    def _nearest_landmarks(self, rows: Any) -> NDArray[np.int64]:
        """Return the nearest landmark (n,) of each row (n, d)."""
        nearest, place = np.empty(len(rows), dtype=np.int64), self.metric.distance.place

        def work(part: slice) -> None:
            points = self._projection.project(place(rows[part]), long=False).leading
            nearest[part] = nearest_centers(points, self._landmarks).centers

        pmap(work, spans(len(rows), rows_per_block(4 * rows.shape[1], 2 * CACHE_BYTES)))
        return nearest

    def _probes(self, probes: int | None) -> int:
        return max(1, min(self.probes if probes is None else int(probes), self.n_landmarks))

    def _nearest(self, queries: NDArray, k: int, probes: int | None) -> Neighbors:
        n_probes = self._probes(probes)
        heaps = empty_heaps(len(queries), k)
        if len(queries) == 1:
            measured = self._search(queries, heaps, n_probes)
        else:
            blocks = even_spans(len(queries), self._block)
            measured = sum(pmap(lambda b: self._search(queries[b], heaps.part(b), n_probes), blocks))
        self._touched = measured / len(queries)
        return heaps.neighbors()

    def nearest_by_probes(self, queries: ArrayLike, k: int, steps: Sequence[int]) -> list[Probed]:
        """Return the results of `nearest` with several numbers of probes, from one search.

        Each step searches only the cells that the steps before it have not searched, so all steps together cost as much
        as the last one. A step of all cells gives the exact result.

        Parameters
        ----------
        queries : array-like of shape (n_queries, n_features)
            Queries.
        k : int
            Number of neighbors.
        steps : sequence of int
            Numbers of probes, ascending.

        Returns
        -------
        list of Probed
            Neighbors, and rows measured per query, of each step.
        """
        checked, k = self.unit.queries(self._prepared(queries, "queries")), whole_k(k)
        rows, n_search = checked.rows, self._n_to_search(checked, k)
        q = len(rows)
        results = [empty_heaps(q, n_search) for _ in steps]
        blocks = even_spans(q, min(self._block, max(64, rows_per_block(16 * self.n_landmarks))))
        measured = pmap(lambda b: self._search_steps(rows[b], [heaps.part(b) for heaps in results], steps), blocks)
        probed = []
        for step, heaps, touched in zip(steps, results, np.sum(measured, axis=0) / q):
            neighbors = heaps.neighbors()
            incomplete = np.flatnonzero(neighbors.ids[:, -1] < 0)
            if len(incomplete):  # `nearest` probes more cells for these queries
                neighbors.ids[incomplete], neighbors.distances[incomplete] = self._nearest(
                    rows[incomplete], n_search, step
                )
            probed.append(Probed(self._finish_result(checked, neighbors, k, step), float(touched)))
        return probed

    def _search_steps(self, queries: NDArray, results: list[Heaps], steps: Sequence[int]) -> list[int]:
        """Search the cells of one step after another, copying the heaps to the results of each step.

        Returns the number of rows measured up to each step.
        """
        exact = frozen(queries.astype(np.float64))
        projected = self._projection.project(self.metric.distance.place(exact), self._table.long.shape[1] > 0)
        keys = self._finder.marks - projected.leading @ self._landmarks.T  # (q, c)
        cells = np.argsort(keys, axis=1, kind="stable")  # nearest first
        keys = np.take_along_axis(keys, cells, axis=1)
        heaps, previous, measured = empty_heaps(len(queries), results[0].ids.shape[1]), 0, [0]
        for step, result in zip(steps, results):
            groups = self._groups(slice(previous, step), cells, keys, projected, heaps)
            measured.append(measured[-1] + self._table.search_groups(exact, projected, heaps, groups))
            result.distances[:], result.ids[:] = heaps
            previous = step
        return measured[1:]

    @property
    def _block(self) -> int:
        """Number of queries that are searched together; decided by the IVF benchmark (T3)."""
        return min(8192, max(256, rows_per_block(16 * self.n_features)))

    def _search(self, queries: NDArray, heaps: Heaps, probes: int) -> int:
        """Search a block of queries; those that found fewer than k rows probe four times as many cells."""
        exact = frozen(queries.astype(np.float64))
        placed = frozen(self.metric.distance.place(exact)) if self.metric.distance.transforms_rows else exact
        if len(queries) == 1:
            measured = self._table.search_single(exact, placed, self._finder, probes, heaps)
        else:  # the nearest cell first: it gives a small k-th distance, which rules out more rows of the others
            projected = self._projection.project(placed, self._table.long.shape[1] > 0)
            keys, cells = self._probe(projected, probes)  # (q, probes), nearest first
            measured = self._table.search_groups(exact, projected, heaps, by_cell(cells[:, :1], self.n_landmarks))
            others = self._groups(slice(1, None), cells, keys, projected, heaps)
            measured += self._table.search_groups(exact, projected, heaps, others)
        (incomplete,) = (heaps.distances[:, 0] >= EMPTY).nonzero()
        if probes < self.n_landmarks and len(incomplete):
            wider = empty_heaps(len(incomplete), heaps.ids.shape[1])
            measured += self._search(queries[incomplete], wider, min(4 * probes, self.n_landmarks))
            heaps.distances[incomplete], heaps.ids[incomplete] = wider
        return measured

    def _groups(
        self, ring: slice, cells: NDArray[np.int64], keys: NDArray, projected: Projected, heaps: Heaps
    ) -> CellGroups:
        """Group queries by a range of their cells (q, any); cells whose bounds exclude all their rows are left out."""
        bounds = self._table.bounds
        if bounds is None:
            return by_cell(cells[:, ring], self.n_landmarks)
        return by_cell(bounds.skip_far(ring, cells, keys, projected, heaps.distances[:, 0]), self.n_landmarks)

    def _probe(self, projected: Projected, probes: int) -> Heaps:
        """Return keys and numbers (q, probes) of the nearest cells of each query, nearest first."""
        q = len(projected.short)
        products = projected.leading @ self._landmarks.T  # (q, c)
        marks = self._finder.marks
        scale, cells = frozen(np.full_like(marks, -1)), np.arange(len(marks))
        heaps, unused, which = empty_heaps(q, probes), frozen(np.empty((q, 0))), np.arange(q)
        offer(KEY, products, scale, marks, unused, unused, cells, which, np.zeros(q), 0.0, 0.0, 0.0, *heaps)
        settle(*heaps)
        return heaps

    def _append(self, rows: NDArray) -> None:
        cells = self._nearest_landmarks(rows)
        kept = self._table.rows().join(self._table.more(rows, cells, self._layout()))
        if self.n_rows > 2 * self._trained and kept.full is not None:  # codes alone keep their landmarks
            self._train(kept.full)
            return
        self._arrange(kept, np.concatenate([self.cells_, cells]))

    def _drop(self, positions: NDArray[np.int64]) -> None:
        self._arrange(self._table.rows().drop(positions), np.delete(self.cells_, positions))

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        arrays = self._table.arrays() | {"landmarks": self._landmarks}
        arrays |= {"mean": self._projection.mean, "basis": self._projection.basis}
        return {"length": self._projection.length, "trained": self._trained, "probes": self.probes}, arrays
