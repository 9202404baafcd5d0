"""Recipe and Index, the interface of every index: rows in, the k best rows of each query out.

    recipe = Flat()                                          a frozen dataclass, never changed by a fit
    index = recipe.build(rows, metric="euclidean")           rows (n, d) -> a live index
    index.search(queries, k) -> TopK(ids, scores)            (q, k) each, best first, higher is better, -1 pads
    index.nearest(queries, k) -> Neighbors(ids, distances)   (q, k) each, nearest first, -1 and inf pad

One rule orders every result. Distances are computed in float64 and returned in the precision of the queries (float32
for float32 queries, float64 for float64 queries and under haversine). The k nearest rows are the first by (returned
distance, position). Rows whose distances are equal in float32 therefore tie, and the lower position wins. Distances
never decrease along a row of the result. A distance beyond the range of float32 is returned as the largest float32, and
such rows are ordered by their distances in float64. Ids are positions 0..n-1 unless the caller gave others.

A subclass implements `_nearest(queries, k, probes) -> Neighbors of positions`, `_append(rows)`, `_drop(positions)` and
`_state() -> (facts, arrays)`, and `_search_tensors` if tensors can be searched on a GPU. `_nearest` sets `_touched`,
the mean number of rows per query that it measured. `_append` and `_drop` replace attributes and change no array in
place, so that threads may search while another adds rows (versions.py). They may set `_needs_rebuild`. The next search
then calls `_rebuild` on a copy of the index, clears the flag of the copy, and publishes the copy as the current
version. `_rebuild` also replaces attributes, so a search that began earlier goes on with the version that it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import CombinationError, InputError, ModelFileError
from kway.rows.gpu.device import Device, as_tensor, is_tensor, on_host
from kway.search.codecs.stores import FULL, Store, drop_rows, join_rows, row_arrays, rows_of_arrays
from kway.search.distances import Distance
from kway.search.metrics import Metric, pick_metric
from kway.search.power_scaling import Scaled, Unit
from kway.search.results import Ids, Neighbors, TopK, ordered, whole_k
from kway.threads import at_most
from kway.validation import is_sparse, plain_rows
from kway.versions import current, writes, writing

_SINGLE = np.dtype(np.float32)
# end of the `why_` of an approximate index with probes="auto" that is not tuned
NO_GUARANTEE = "; no recall is guaranteed: set probes, or let NeighborsClassifier tune them"


@dataclass(frozen=True)
class Recipe:
    """Parameters from which an index is built; never changed by a fit. Base class of Flat, Landmarks and the others."""

    name: ClassVar[str]
    distances: ClassVar[tuple[Distance, ...]]  # distances that the index can search
    sparse: ClassVar[bool] = False  # whether it can search CSR rows
    narrow: ClassVar[bool] = False  # whether it computes squares in float32

    @property
    def exact(self) -> bool:
        """Whether results are those of brute force over the given rows."""
        return True

    @property
    def keeper(self) -> Store:
        """The store of the rows; full rows if the recipe names no store."""
        return getattr(self, "store", None) or FULL

    @property
    def on_cpu(self) -> Recipe:
        """The same recipe, searched on the CPU."""
        return self

    def build(
        self,
        rows: Any,
        metric: str | Metric = "euclidean",
        ids: ArrayLike | None = None,
        n_jobs: int | None = None,
    ) -> Index:
        """Build the live index over rows.

        Parameters
        ----------
        rows : array-like, sparse matrix or tensor of shape (n, d)
            At least one row. A tensor that a GPU searches stays on, or is copied to, that device.
        metric : str or Metric, default="euclidean"
            Name or metric of `kway.search`.
        ids : array-like of shape (n,) or None, default=None
            Ids of the rows, distinct whole numbers >= 0; None uses the positions.
        n_jobs : int or None, default=None
            Number of threads; None uses all cores.

        Returns
        -------
        Index
            The live index.
        """
        with at_most(n_jobs):
            metric = pick_metric(metric)
            self.check(metric, is_sparse(rows))
            gpu_rows = self._rows_on_gpu(rows, metric)
            prepared = plain_rows(rows, "rows", sparse=self.sparse) if gpu_rows is None else gpu_rows
            if prepared.shape[0] == 0 or prepared.shape[1] == 0:
                raise InputError(f"rows must have at least one row and one column, got shape {prepared.shape}")
            metric.check(prepared.shape[1])
            unit = Unit.from_exponent(0, prepared.dtype, metric.distance, self._narrow)
            if gpu_rows is None:
                prepared = metric.prepare(prepared)
                unit = Unit.of(prepared, metric.distance, self._narrow)
                prepared = unit.rows(prepared)
            index = self._make_index(prepared, metric, Ids.of(prepared.shape[0], ids))
        index.unit = unit
        index._n_jobs = n_jobs
        return index

    def _rows_on_gpu(self, rows: Any, metric: Metric) -> Any:
        """Return rows that stay on a GPU; None if the CPU reads them."""
        return None

    def build_blocks(self, blocks: Any, metric: str | Metric = "euclidean", folder: str | Path | None = None) -> Index:
        """Build the live index over rows that come in blocks.

        An index that stores full rows keeps them all in memory. With a store and `rerank=False`, such as
        `Bits(1, rerank=False)`, Flat and Landmarks keep only codes and one block. Flat with `Bits` and `rerank=True`
        requires one array of floats (a memory map if it is large), because a search measures full rows.

        Parameters
        ----------
        blocks : array, path or iterable
            An array (n, d), a folder of .npy or parquet files, or an iterable of arrays (m, d).
        metric : str or Metric, default="euclidean"
            Name or metric of `kway.search`.
        folder : path or None, default=None
            Folder of finished parts, from which an interrupted build resumes. Only indexes that store no full rows
            accept it.

        Returns
        -------
        Index
            The live index, with positions as ids.
        """
        from kway.search.codecs.block_codes import iterate_blocks

        picked = pick_metric(metric)
        self.check(picked)
        index = self._index_of_codes(blocks, picked, folder)
        if index is not None:
            index.unit = Unit.from_exponent(0, _SINGLE, picked.distance, self._narrow)  # blocks are not scaled
            return index
        if folder is not None:
            raise CombinationError(f"folder= needs an index that stores only codes, got {self}; omit folder")
        if hasattr(blocks, "shape"):
            return self.build(blocks, metric)
        parts = [plain_rows(block, "rows") for block in iterate_blocks(blocks).each]
        if len({part.shape[1] for part in parts}) != 1:
            widths = sorted({part.shape[1] for part in parts})
            raise InputError(f"blocks must have the same number of columns, got {widths or 'no blocks'}")
        return self.build(np.concatenate(parts), metric)

    def _index_of_codes(self, blocks: Any, metric: Metric, folder: str | Path | None) -> Index | None:
        """Return the index over blocks of rows of which only codes are stored; None if the rows have to be stored."""
        return None

    @property
    def _narrow(self) -> bool:
        return self.narrow or getattr(self, "store", None) is not None

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """Raise CombinationError for a metric, or sparse rows, that this index cannot search.

        Parameters
        ----------
        metric : Metric
            The metric of the search.
        sparse : bool, default=False
            Whether the rows are sparse.
        """
        if metric.distance not in self.distances:
            known = ", ".join(map(str, self.distances))
            raise CombinationError(
                f"{type(self).__name__} cannot search the metric {metric.name!r}; use one of {known} "
                "(or a kernel on them), or Flat(), which searches every metric"
            )
        if sparse and not (self.sparse and metric.distance.sparse):
            raise CombinationError(
                f"{type(self).__name__} under {metric.name!r} needs dense rows, got a sparse matrix; pass "
                "rows.toarray(), or use Flat() with 'euclidean', 'cosine' or 'dot', which accepts sparse rows"
            )

    @abstractmethod
    def _make_index(self, rows: Any, metric: Metric, ids: Ids) -> Index:
        """Build the live index over rows that are checked, prepared for the metric and scaled."""

    def _restore_index(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> Index:
        """Return the live index from the parts of a model file; by default, build it again from its rows."""
        return self._make_index(rows, metric, ids)

    @classmethod
    def restore(cls, facts: dict[str, Any], arrays: dict[str, NDArray]) -> Index:
        """Return the live index that `Index.parts` described; arrays may be memory-mapped and read-only.

        Parameters
        ----------
        facts : dict
            Facts that `Index.parts` returned.
        arrays : dict of str to ndarray
            Arrays that `Index.parts` returned.

        Returns
        -------
        Index
            The live index.
        """
        recipe = facts["recipe"].on_cpu  # the file may be read on another machine
        if type(recipe) is not cls:
            raise ModelFileError(f"the model file contains an index of {recipe}, not of {cls.__name__}")
        rows = rows_of_arrays(arrays, facts["n_rows"], facts["n_features"])
        ids = Ids(np.asarray(arrays["ids"])) if "ids" in arrays else Ids.of(facts["n_rows"], None)
        index = recipe._restore_index(rows, facts["metric"], ids, facts, arrays)
        dtype = np.dtype(np.float32) if rows is None else rows.dtype
        index.unit = Unit.from_exponent(facts.get("unit", 0), dtype, index.metric.distance, recipe._narrow)
        index.why_ = facts.get("why", index.why_)
        return index


class Index(ABC):
    """Live index over rows with ids, under one metric. Build it with a recipe, such as `Flat().build(rows)`.

    Parameters
    ----------
    recipe : Recipe
        The recipe that the index is built from.
    metric : Metric
        The metric.
    ids : Ids
        Ids of the rows.
    n_features : int
        Number of columns.

    Attributes
    ----------
    recipe, metric
        The parameters.
    why_ : str
        One sentence: how the index searches, and why this index or search was chosen.

    Examples
    --------
    >>> from kway.search import Flat
    >>> index = Flat().build([[0.0], [1.0], [5.0]])
    >>> index.add([[2.0]])
    array([3])
    >>> index.nearest([[1.6]], 2).ids
    array([[3, 1]])
    >>> index.remove([3])
    1
    """

    metric: Metric
    why_: str = ""
    unit: Unit  # scaling of the stored rows
    _needs_rebuild = False  # whether the next search has to call `_rebuild` first
    _n_jobs: int | None = None  # threads of `build` and `_rebuild`

    def __init__(self, recipe: Recipe, metric: Metric, ids: Ids, n_features: int) -> None:
        self.recipe = recipe
        self.metric = metric
        self._ids = ids
        self._n_features = n_features
        self._touched = float("nan")
        self._takes_sparse = recipe.sparse and not recipe.keeper.bits_per_value  # codes need dense rows

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self._ids)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self._n_features

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the rows (n_rows,), in the order of their positions."""
        return self._ids.ids

    @property
    def plain_ids(self) -> bool:
        """Whether the ids are the positions."""
        return self._ids.plain

    @property
    def touched_(self) -> float:
        """Mean number of rows per query whose distance the last search computed in full."""
        return self._touched

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes in memory, including rows."""

    def nearest(self, queries: Any, k: int, n_jobs: int | None = None, *, probes: int | None = None) -> Neighbors:
        """Find the k nearest rows of each query.

        Parameters
        ----------
        queries : array-like, sparse matrix or tensor of shape (n_queries, n_features)
            Queries; tensors are answered with tensors.
        k : int
            Number of neighbors.
        n_jobs : int or None, default=None
            Number of threads; None uses all cores.
        probes : int or None, default=None
            Number of probes of an approximate index for this call; None uses the index's own.

        Returns
        -------
        Neighbors
            Ids and distances (n_queries, k), nearest first; -1 and inf pad if there are fewer rows.
        """
        with at_most(n_jobs):
            index, is_on_device = self._updated(), is_tensor(queries)
            if is_on_device:
                index._touched = float(k)
                result = index._search_tensors(queries, k, probes)
                if result is not None:
                    return result
            scaled, k = index.unit.queries(index._prepared(on_host(queries), "queries")), whole_k(k)
            if index.n_rows == 0 or scaled.rows.shape[0] == 0:
                shape = (scaled.rows.shape[0], k)
                result = Neighbors(np.full(shape, -1, dtype=np.int64), np.full(shape, np.inf, scaled.result_type))
            else:
                neighbors = index._nearest(scaled.rows, index._n_to_search(scaled, k), probes)
                result = index._finish_result(scaled, neighbors, k, probes)
            return Neighbors(*map(Device(str(queries.device)).put, result)) if is_on_device else result

    def search(self, queries: Any, k: int, n_jobs: int | None = None) -> TopK:
        """Find the k best rows of each query by score, higher is better.

        Parameters
        ----------
        queries, k, n_jobs
            As in `nearest`.

        Returns
        -------
        TopK
            Ids and scores (n_queries, k), best first; -1 and -inf pad if there are fewer rows.
        """
        ids, distances = self.nearest(queries, k, n_jobs)
        if is_tensor(ids):
            if self.metric.is_plain_distance:
                return TopK(ids, self.metric.score(distances))
            return TopK(ids, as_tensor(Device(str(queries.device)), self.metric.score(on_host(distances))))
        return TopK(ids, np.where(ids >= 0, self.metric.score(distances), -np.inf))

    def _search_tensors(self, queries: Any, k: int, probes: int | None) -> Neighbors | None:
        """Return the nearest rows of a tensor, found on a GPU; None if the CPU has to search."""
        return None

    def _n_to_search(self, queries: Scaled, k: int) -> int:
        """Return the number of neighbors to search for: k + 1 if ties of float32 distances have to be noticed."""
        return min(k + (self.recipe.keeper.settles_ties and queries.result_type == _SINGLE), self.n_rows)

    def _finish_result(self, queries: Scaled, neighbors: Neighbors, k: int, probes: int | None) -> Neighbors:
        """Return the result for the caller: distances without the scaling, ties ordered, ids, padded to k."""

        def unscaled(neighbors: Neighbors, queries: Scaled) -> Neighbors:
            return Neighbors(neighbors.ids, self.unit.finish(neighbors.distances, queries))

        def search_again(which: NDArray[np.int64], k: int) -> Neighbors:
            part = queries.part(which)
            return unscaled(self._nearest(part.rows, k, probes), part)

        touched = self._touched
        n_found = min(k, self.n_rows)
        positions, distances = ordered(
            unscaled(neighbors, queries), n_found, queries.result_type, self.n_rows, search_again
        )
        self._touched = touched  # without the searches for ties
        ids = self._ids.names(positions)
        distances = self.metric.finish(distances)
        return Neighbors(ids, distances) if k <= self.n_rows else _padded(ids, distances, k)

    @writes
    def add(self, rows: ArrayLike, ids: ArrayLike | None = None) -> NDArray[np.int64]:
        """Add rows.

        Parameters
        ----------
        rows : array-like of shape (m, n_features)
            Rows.
        ids : array-like of shape (m,) or None, default=None
            Their ids; None continues after the largest id.

        Returns
        -------
        ndarray of shape (m,)
            The ids of the rows.
        """
        with at_most(self._n_jobs):
            scaled = self.unit.more_rows(self._prepared(rows, "rows"))
            first = self.n_rows
            self._ids = self._ids.joined(scaled.shape[0], ids)
            if scaled.shape[0]:
                self._append(scaled)
            return self._ids.names(np.arange(first, self.n_rows))

    @writes
    def remove(self, ids: ArrayLike) -> int:
        """Remove rows by id.

        Parameters
        ----------
        ids : array-like of int
            Ids of the rows. If one is not in the index, InputError is raised and no row is removed.

        Returns
        -------
        int
            Number of rows removed.
        """
        positions = self._ids.known(ids)
        if len(positions):
            self._drop(positions)
            self._ids = self._ids.without(positions)
        return len(positions)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write the index to a file, which `kway.load` reads.

        Parameters
        ----------
        path : str or Path
            The file; an existing one is replaced.
        force : bool, default=False
            Whether to replace a file that is not a model file of kway.

        Raises
        ------
        InputError
            If the index has no rows.
        """
        from kway.modelfile import save_index

        facts, arrays = self.parts()
        if not facts["n_rows"]:
            raise InputError("an index without rows cannot be saved; add rows first")
        save_index(facts, arrays, path, force)

    def __repr__(self) -> str:
        size = f"{self.n_rows:,} rows x {self.n_features:,} columns"
        return f"<{type(self).__name__} of {self.recipe}: {size}, metric {self.metric.name!r}; {self.why_}>"

    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the index as parts of a model file.

        Returns
        -------
        facts : dict
            Facts that `modelfile.values` can store as JSON: the recipe, the metric, numbers and text.
        arrays : dict of str to ndarray
            Arrays; `kway.search.restore(facts, arrays)` returns the index.
        """
        index = self._updated(self._has_changes)
        facts, arrays = index._state()
        if not index._ids.plain:
            arrays["ids"] = index.ids
        facts |= {
            "recipe": index.recipe,
            "metric": index.metric,
            "n_rows": index.n_rows,
            "n_features": index.n_features,
            "why": index.why_,
        }
        if index.unit.exponent:
            facts["unit"] = index.unit.exponent
        return facts, arrays

    @property
    def _has_changes(self) -> bool:
        """Whether changes since the last `_rebuild` are stored apart from the other rows."""
        return False

    def _updated(self, rebuild: bool = False) -> Self:
        """Return the current version of the index, after `_rebuild` if it is needed or `rebuild` is True."""
        index = current(self)
        if not (rebuild or (index._needs_rebuild and index.n_rows)):
            return index
        with writing(self) as new:
            if rebuild or new._needs_rebuild:  # false if another thread has rebuilt it in the meantime
                new._rebuild()
                new._needs_rebuild = False
        return new

    def _rebuild(self) -> None:  # noqa: B027 - most indexes are always up to date
        """Bring the search up to date with the rows; called before a search if `_needs_rebuild` is set."""

    def _prepared(self, rows: ArrayLike, name: str) -> Any:
        checked = plain_rows(rows, name, sparse=self._takes_sparse)
        if checked.shape[1] != self.n_features:
            raise InputError(
                f"{name} have {checked.shape[1]} columns, but the index has {self.n_features}; pass the columns that "
                "the index was built from"
            )
        return self.metric.prepare(checked)

    @abstractmethod
    def _nearest(self, queries: Any, k: int, probes: int | None) -> Neighbors:
        """Return positions and distances (q, k) of the nearest rows, k <= n_rows, and set `_touched`."""

    @abstractmethod
    def _append(self, rows: Any) -> None:
        """Append scaled rows (m, d) after the last position."""

    @abstractmethod
    def _drop(self, positions: NDArray[np.int64]) -> None:
        """Remove the rows at sorted positions; the positions of later rows decrease."""

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the facts and arrays that only the subclass stores in a model file."""


class RowsIndex(Index):
    """Base class of indexes that store their rows as one array, and are built again after rows are added or removed."""

    def __init__(self, recipe: Recipe, metric: Metric, ids: Ids, rows: Any) -> None:
        super().__init__(recipe, metric, ids, rows.shape[1])
        self._rows = rows

    @property
    def rows(self) -> Any:
        """Rows (n_rows, d) in the order of their positions."""
        return self.unit.given(self._rows)

    def _append(self, rows: Any) -> None:
        self._rows = join_rows(self._rows, rows)
        self._needs_rebuild = True

    def _drop(self, positions: NDArray[np.int64]) -> None:
        self._rows = drop_rows(self._rows, positions)
        self._needs_rebuild = True

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {}, row_arrays(self._rows)


def _padded(ids: NDArray, distances: NDArray, k: int) -> Neighbors:
    width = ((0, 0), (0, k - ids.shape[1]))
    return Neighbors(np.pad(ids, width, constant_values=-1), np.pad(distances, width, constant_values=np.inf))
