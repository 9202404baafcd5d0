"""Sharded: rows cut into runs, an index of its own over each, the k best of all merged.

    Sharded(Flat(), shards=8)                       eight flat indexes in this process
    with kway.cluster(): the same, `.build(rows)`   eight actors on the cluster's nodes, `replicas` of each

Shard s holds the positions from e_s on. Each gives its k nearest as (distance in float64, e_s + position), and the
first k of all by (distance, position) are the answer: where the inner index is exact, that of one index over all rows,
to the last bit. A query costs 4 d bytes to each shard and 16 k bytes back.

Where the cluster has a folder (`kway.cluster(folder=...)`), shards are written there (shard.py): one that starts again,
on the same node or another, opens its file, and a build that was killed goes on behind the shards that were done.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.cluster.crew import Crew
from kway.compute.cluster.row_source import row_source
from kway.compute.cluster.session import make_crew, shared_folder
from kway.compute.kernels.topk import merge
from kway.errors import InputError
from kway.parameters import check_parameters, whole
from kway.search.flat import Flat
from kway.search.heaps import empty_heaps
from kway.search.ids import Ids
from kway.search.index import Neighbors
from kway.search.live import LiveIndex, Recipe
from kway.search.shard import open_shard
from kway.search.spaces.distances import DISTANCES
from kway.search.spaces.metrics import Metric
from kway.search.spaces.rows import drop_rows, join_rows, row_arrays


@dataclass(frozen=True)
class Sharded(Recipe):
    """Rows in `shards` runs, each searched by the inner recipe; on a cluster `replicas` actors hold each run."""

    recipe: Recipe = field(default_factory=Flat)
    shards: int = 2
    replicas: int = 1

    name = "sharded"
    distances = DISTANCES
    sparse = True  # as far as the inner recipe takes them

    def __post_init__(self) -> None:
        if not isinstance(self.recipe, Recipe) or isinstance(self.recipe, Sharded):
            raise InputError(f"recipe must be that of an index of one machine, such as Flat(), got {self.recipe!r}")
        check_parameters(self, shards=whole(1), replicas=whole(1))

    @property
    def exact(self) -> bool:
        """As the inner index is."""
        return self.recipe.exact

    @property
    def _narrow(self) -> bool:
        return self.recipe._narrow

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """What the inner index cannot search is refused."""
        self.recipe.check(metric, sparse)

    def facts(self) -> dict[str, Any]:
        """JSON facts of the recipe, the inner one within."""
        inner = self.recipe.facts()
        return {"index": self.name, "recipe": inner, "shards": self.shards, "replicas": self.replicas}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Recipe:
        """The recipe that `facts()` described."""
        from kway.search.auto import INDEXES

        inner = INDEXES[facts["recipe"]["index"]].from_facts(facts["recipe"])
        return cls(inner, facts["shards"], facts["replicas"])

    def _live(self, rows: Any, metric: Metric, ids: Ids, n_jobs: int | None) -> ShardedIndex:
        return ShardedIndex(self, metric, ids, rows, n_jobs)

    def _revive(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> ShardedIndex:
        return ShardedIndex(self, metric, ids, rows)


class ShardedIndex(LiveIndex):
    """Live shards. `coverage_` is the share of the rows that the last search heard of: 1 unless a shard was lost."""

    recipe: Sharded
    _crew: Crew
    _edges: list[int]  # the first position of every shard, and n

    def __init__(self, recipe: Sharded, metric: Metric, ids: Ids, rows: Any, n_jobs: int | None = None) -> None:
        super().__init__(recipe, metric, ids, rows.shape[1])
        self._rows, self._n_jobs = rows, n_jobs
        self.coverage_ = 1.0
        self._spread()

    def _spread(self) -> None:
        """Make the shards, all at once where there is a cluster."""
        recipe, n = self.recipe, self._rows.shape[0]
        shards = min(recipe.shards, n)
        self._edges = [n * s // shards for s in range(shards)] + [n]
        sources = [row_source(self._rows, slice(a, b)) for a, b in itertools.pairwise(self._edges)]
        opened = partial(open_shard, recipe.recipe, self.metric, folder=shared_folder(), n_jobs=self._n_jobs)
        self._crew = make_crew([partial(opened, source) for source in sources], recipe.replicas)
        self.why_ = f"{shards} shard{'' if shards == 1 else 's'} of {recipe.recipe.name} {self._crew.place}"
        self._stale = False

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included, on all machines."""
        return sum(found or 0 for found in self._crew.ask("held_bytes"))

    @property
    def rows(self) -> Any:
        """The rows (n_rows, d) in the order of their positions."""
        return self.unit.given(self._rows)

    def _nearest(self, queries: Any, k: int, n_jobs: int | None, probes: int | None) -> Neighbors:
        if self._stale:
            self.close()
            self._spread()
        if sp.issparse(queries) and not self.recipe.recipe.sparse:
            queries = queries.toarray()
        answers = self._crew.ask("nearest", queries, k, n_jobs, probes)
        heaps, heard, touched = empty_heaps(queries.shape[0], k), 0, 0.0
        for (first, last), answer in zip(itertools.pairwise(self._edges), answers):
            if answer is None:
                continue
            ids, distances = answer.found
            merge(*heaps, distances.astype(np.float64), np.where(ids >= 0, ids + first, -1))
            heard, touched = heard + last - first, touched + answer.touched
        self._touched, self.coverage_ = touched, heard / self._edges[-1]
        return heaps.neighbors()

    def _append(self, rows: Any) -> None:
        self._rows, self._stale = join_rows(self._rows, rows), True

    def _drop(self, positions: NDArray[np.int64]) -> None:
        self._rows, self._stale = drop_rows(self._rows, positions), True

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {}, row_arrays(self._rows)

    def close(self) -> None:
        """Let the shards go: actors end, their memory is given back."""
        self._crew.close()
