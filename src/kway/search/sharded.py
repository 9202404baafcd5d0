"""Sharded: rows split into consecutive parts with one index each, whose results are merged.

    Sharded(Flat(), shards=8)       eight flat indexes in this process

The same recipe, built inside `with kway.cluster():`, makes eight actors on the cluster's nodes. With `replicas`,
several actors have the same shard.

Shard s contains the rows from position e_s on. Each shard returns its k nearest rows as (distance in float64, e_s +
position). The first k of all by (distance, position) are the result. If the inner index is exact, the result is that of
one index over all rows, to the last bit. A query sends 4 d bytes to each shard and receives 16 k bytes.

If the cluster has a folder (`kway.cluster(folder=...)`), each shard is written to it. The name of the file contains a
digest of recipe, metric and rows (for rows in a file: its path, time and size, and a sample of the rows). A shard that
starts again on any node opens its file, and an interrupted build resumes after the finished shards.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from kway.errors import InputError, ModelFileError
from kway.kernels.topk import merge
from kway.memory import CACHE_BYTES, rows_per_block
from kway.modelfile import container
from kway.modelfile.schemas.index import check_index
from kway.modelfile.values import decode_value, encode_value
from kway.parameters import check_parameters, whole
from kway.rows.cluster.session import shared_folder
from kway.rows.cluster.shards import Carried, FilePlace, Shards, make_shards, row_source
from kway.search.distances import DISTANCES
from kway.search.flat import Flat
from kway.search.index import Index, Recipe, RowsIndex
from kway.search.metrics import Metric
from kway.search.power_scaling import Unit
from kway.search.results import Ids, Neighbors, empty_heaps
from kway.threads import at_most, cores, workers


class ShardAnswer(NamedTuple):
    """Positions within the shard with their float64 distances, (q, k) each, and rows measured per query."""

    neighbors: Neighbors
    touched: float


@dataclass
class Shard:
    """A live index over one part of the rows."""

    index: Index

    def nearest(self, queries: Any, k: int, n_jobs: int | None, probes: int | None) -> ShardAnswer:
        """Return the k nearest of its rows, or all of them if there are fewer."""
        with at_most(n_jobs):
            neighbors = self.index._nearest(queries, min(k, self.index.n_rows), probes)
        return ShardAnswer(neighbors, self.index.touched_)

    def held_bytes(self) -> int:
        """Return the bytes of the index, including rows."""
        return self.index.nbytes


def open_shard(
    recipe: Recipe, metric: Metric, source: FilePlace | Carried, folder: Path | None = None, n_jobs: int | None = None
) -> Shard:
    """Open the index from the folder if it was written before, else build it over prepared and scaled rows."""
    rows = source.rows()
    if folder is None:
        return Shard(_build(recipe, metric, rows, n_jobs))
    file = folder / f"shard-{_digest(recipe, metric, source, rows)}.kway"
    try:
        return _open(recipe, file, rows.shape)
    except (FileNotFoundError, ModelFileError):  # there is no file, or it is incomplete or damaged
        facts, arrays = _build(recipe, metric, rows, n_jobs).parts()
        container.write(file, {"index": encode_value(facts, "index")}, arrays)
        return _open(recipe, file, rows.shape)


def _open(recipe: Recipe, file: Path, shape: tuple[int, int]) -> Shard:
    """Return the shard from its file, checked."""
    stored = container.read(file)
    facts = decode_value(stored.manifest.get("index"))
    check_index(facts, stored.tensors, shape)
    return Shard(type(recipe).restore(facts, stored.tensors))


def _build(recipe: Recipe, metric: Metric, rows: Any, n_jobs: int | None) -> Index:
    """Build the index over rows that are prepared and scaled."""
    with at_most(n_jobs):
        index = recipe._make_index(rows, metric, Ids.of(rows.shape[0], None))
    index._n_jobs = n_jobs
    index.unit = Unit.from_exponent(0, rows.dtype, metric.distance, recipe._narrow)
    return index


def _digest(recipe: Recipe, metric: Metric, source: FilePlace | Carried, rows: Any) -> str:
    """Return a digest of what the index is built from; of a file, which may be large, evenly spaced rows only."""
    facts = [repr(recipe), repr(metric), rows.shape, rows.dtype.str]
    if isinstance(source, FilePlace):
        status = os.stat(source.path)
        facts += [source.path, source.offset, status.st_size, status.st_mtime_ns]
        n_sampled = rows_per_block(rows.dtype.itemsize * rows.shape[1], CACHE_BYTES)
        rows = rows[np.unique(np.linspace(0, rows.shape[0] - 1, n_sampled).astype(np.int64))]
    digest = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode())
    for array in (rows.data, rows.indices, rows.indptr) if sp.issparse(rows) else (rows,):
        digest.update(np.ascontiguousarray(array).view(np.uint8).data)
    return digest.hexdigest()[:24]


@dataclass(frozen=True)
class Sharded(Recipe):
    """Rows split into parts with one index each, in this process or on a cluster.

    Parameters
    ----------
    recipe : Recipe, default=Flat()
        Recipe of the index over each part.
    shards : int, default=2
        Number of parts.
    replicas : int, default=1
        Number of actors per part on a cluster.

    Examples
    --------
    >>> Sharded(Flat(), shards=2).build([[0.0], [1.0], [5.0]]).nearest([[4.0]], 2).ids
    array([[2, 1]])
    """

    recipe: Recipe = field(default_factory=Flat)
    shards: int = 2
    replicas: int = 1

    name = "sharded"
    distances = DISTANCES
    sparse = True  # `check` asks the inner recipe

    def __post_init__(self) -> None:
        if not isinstance(self.recipe, Recipe) or isinstance(self.recipe, Sharded):
            raise InputError(f"recipe must be an index that is not sharded itself, such as Flat(), got {self.recipe!r}")
        check_parameters(self, shards=whole(1), replicas=whole(1))

    @property
    def exact(self) -> bool:
        """Whether the inner index is exact."""
        return self.recipe.exact

    @property
    def on_cpu(self) -> Sharded:
        """The same recipe, searched on the CPU."""
        return replace(self, recipe=self.recipe.on_cpu)

    @property
    def _narrow(self) -> bool:
        return self.recipe._narrow

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """Raise CombinationError for a metric, or sparse rows, that the inner index cannot search.

        Parameters
        ----------
        metric : Metric
            The metric of the search.
        sparse : bool, default=False
            Whether the rows are sparse.
        """
        self.recipe.check(metric, sparse)

    def _make_index(self, rows: Any, metric: Metric, ids: Ids) -> ShardedIndex:
        return ShardedIndex(self, metric, ids, rows)


class ShardedIndex(RowsIndex):
    """The shards of an index; `coverage_` is the share of rows that the last search covered, 1 if no shard is lost."""

    recipe: Sharded
    _shards: Shards
    _edges: list[int]  # first position of every shard, then n

    def __init__(self, recipe: Sharded, metric: Metric, ids: Ids, rows: Any) -> None:
        super().__init__(recipe, metric, ids, rows)
        self.coverage_ = 1.0
        self._rebuild()

    def _rebuild(self) -> None:
        """Build the shards, in parallel on a cluster. The old actors stop after the searches that still use them."""
        recipe, n = self.recipe, self._rows.shape[0]
        shards = min(recipe.shards, n)
        self._edges = [n * s // shards for s in range(shards)] + [n]
        sources = [row_source(self._rows, slice(a, b)) for a, b in itertools.pairwise(self._edges)]
        make = partial(open_shard, recipe.recipe, self.metric, folder=shared_folder(), n_jobs=_n_jobs())
        self._shards = make_shards([partial(make, source) for source in sources], recipe.replicas)
        self.why_ = f"{shards} shard{'' if shards == 1 else 's'} of {recipe.recipe.name} {self._shards.place}"

    @property
    def nbytes(self) -> int:
        """Bytes in memory on all nodes, including rows."""
        return sum(size or 0 for size in self._shards.ask("held_bytes"))

    def _nearest(self, queries: Any, k: int, probes: int | None) -> Neighbors:
        inner = self.recipe.recipe
        if sp.issparse(queries) and (not inner.sparse or inner.keeper.bits_per_value):
            queries = queries.toarray()
        answers = self._shards.ask("nearest", queries, k, _n_jobs(), probes)
        heaps, n_covered, touched = empty_heaps(queries.shape[0], k), 0, 0.0
        for (first, last), answer in zip(itertools.pairwise(self._edges), answers):
            if answer is None:  # no replica of the shard answered
                continue
            ids, distances = answer.neighbors
            merge(*heaps, distances.astype(np.float64), np.where(ids >= 0, ids + first, -1))
            n_covered += last - first
            touched += answer.touched
        self._touched, self.coverage_ = touched, n_covered / self._edges[-1]
        return heaps.neighbors()

    def close(self) -> None:
        """End the actors of the shards and free their memory."""
        self._shards.close()


def _n_jobs() -> int | None:
    """Return the number of threads of this call; None for all, because nodes may have different numbers of cores."""
    return None if workers() == cores() else workers()
