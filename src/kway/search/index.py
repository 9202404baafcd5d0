"""What every index is: rows in, the k best rows of each query out.

    recipe = Flat()                                     a frozen dataclass, never changed by a fit
    index = recipe.build(rows, metric="euclidean")      rows (n, d) -> a live index
    index.search(queries, k) -> TopK(ids, scores)       (q, k) each, best first, higher is better, -1 pads
    index.nearest(queries, k) -> Neighbors(ids, distances)   the same answer as distances, lower is better, inf pads

One rule orders every answer. Distances are measured in float64 and returned in the queries' precision (float32 for
float32 queries; float64 for float64 ones and under haversine), and the k nearest are the first by (the distance
returned, then the lower position): pixels over 255 whose sums are equal on paper tie in float32, and go to the lower
position and not to the row whose rounding came out smaller. So distances never decrease, and each is that of its id. A
distance beyond float32's range is returned as the largest float32. Ids are positions 0..n-1 unless the caller gave
others.

An index adds `_nearest(queries, k, probes) -> Neighbors of positions`, `_append(rows)`, `_drop(positions)` and
`_state() -> (facts, arrays)`. A tensor that a device can search is answered by `_tensors`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import CombinationError, InputError, ModelFileError
from kway.rows.gpu.device import Device, as_tensor, is_tensor, on_host
from kway.search.codecs import store_from
from kway.search.codecs.stores import Store, rows_of_arrays
from kway.search.distances import Distance
from kway.search.metrics import Metric, from_facts, pick_metric
from kway.search.power_scaling import Scaled, Unit
from kway.search.results import Ids, Neighbors, TopK, ordered, whole_k
from kway.threads import at_most
from kway.validation import is_sparse, plain_rows

_SINGLE = np.dtype(np.float32)


@dataclass(frozen=True)
class Recipe:
    """How to build an index; never changed by a fit. Each subclass names its live class and its metrics."""

    name: ClassVar[str]
    distances: ClassVar[tuple[Distance, ...]]  # those it can search
    sparse: ClassVar[bool] = False
    narrow: ClassVar[bool] = False  # squares are taken in float32

    @property
    def exact(self) -> bool:
        """Whether its answers are those of brute force."""
        return True

    def build(
        self,
        rows: Any,
        metric: str | Metric = "euclidean",
        ids: ArrayLike | None = None,
        n_jobs: int | None = None,
    ) -> Index:
        """The live index over rows (n, d), n >= 1.

        A tensor that a device searches stays there, or is copied there, and the index is built on that device.
        """
        with at_most(n_jobs):
            picked = pick_metric(metric)
            self.check(picked, is_sparse(rows))
            far = self._far_rows(rows, picked)
            kept = plain_rows(rows, "rows", sparse=self.sparse) if far is None else far
            if kept.shape[0] == 0 or kept.shape[1] == 0:
                raise InputError(f"an index needs at least one row and one column, got shape {kept.shape}")
            picked.check(kept.shape[1])
            unit = Unit.again(0, kept.dtype, picked.distance, self._narrow)
            if far is None:
                kept = picked.prepare(kept)
                unit = Unit.of(kept, picked.distance, self._narrow)
                kept = unit.rows(kept)
            index = self._live(kept, picked, Ids.of(kept.shape[0], ids))
        index.unit, index._n_jobs = unit, n_jobs
        return index

    def _far_rows(self, rows: Any, metric: Metric) -> Any:
        """Rows that stay on a device, None if they are read on the CPU."""
        return None

    def build_blocks(self, blocks: Any, metric: str | Metric = "euclidean", folder: str | Path | None = None) -> Index:
        """The live index over rows that come in blocks (m, d), from an array, a folder of .npy or parquet, an iterable.

        An index whose rows are kept holds them all, once; codes of a few bits (`store=Bits(1, rerank=False)`, of Flat
        and Landmarks) hold no more than a block, and only they go on from a `folder` after a kill.
        """
        from kway.search.codecs.block_codes import iterate_blocks

        if folder is not None:
            raise CombinationError(f"{self} keeps its rows, and no parts of codes to go on from; leave out folder")
        if hasattr(blocks, "shape"):
            return self.build(blocks, metric)
        parts = [plain_rows(block, "rows") for block in iterate_blocks(blocks).each]
        if len({part.shape[1] for part in parts}) != 1:
            widths = sorted({part.shape[1] for part in parts})
            raise InputError(f"blocks must be as wide as each other, got {widths or 'none'} columns")
        return self.build(np.concatenate(parts), metric)

    @property
    def _narrow(self) -> bool:
        return self.narrow or getattr(self, "store", None) is not None

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """Refuse what this index cannot search."""
        if metric.distance not in self.distances:
            known = ", ".join(map(str, self.distances))
            raise CombinationError(
                f"{type(self).__name__} cannot search the metric {metric.name!r}; it knows {known}"
                " (and the kernels on them); Flat() searches every metric"
            )
        if sparse and not (self.sparse and metric.distance.sparse):
            raise CombinationError(
                f"{type(self).__name__} under {metric.name!r} needs dense rows, got a sparse matrix; pass "
                "rows.toarray(), or use Flat() with 'euclidean', 'cosine' or 'dot', which take sparse rows"
            )

    @abstractmethod
    def _live(self, rows: Any, metric: Metric, ids: Ids) -> Index:
        """The live index over checked and prepared rows."""

    @abstractmethod
    def _revive(self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]) -> Index:
        """The live index from its parts, without building again where the parts spare it."""

    def facts(self) -> dict[str, Any]:
        """JSON facts of the recipe; a file does not know the machine that it will be read on."""
        own = [f.name for f in fields(self) if f.name != "device"]
        return {"index": self.name, **{name: _as_facts(getattr(self, name)) for name in own}}

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> Recipe:
        """The recipe that `facts()` described."""
        given = {key: value for key, value in facts.items() if key != "index"}
        if isinstance(given.get("store"), dict):
            given["store"] = store_from(given["store"])
        return cls(**given)

    @classmethod
    def restore(cls, facts: dict[str, Any], arrays: dict[str, NDArray]) -> Index:
        """The live index that `parts()` described; arrays may be memory-mapped and read-only."""
        if facts.get("recipe", {}).get("index") != cls.name:
            raise ModelFileError(f"these are the parts of {facts.get('recipe')!r}, not of {cls.__name__}")
        recipe = cls.from_facts(facts["recipe"])
        rows = rows_of_arrays(arrays, facts["n_rows"], facts["n_features"])
        ids = Ids(np.asarray(arrays["ids"])) if "ids" in arrays else Ids.of(facts["n_rows"], None)
        index = recipe._revive(rows, from_facts(facts["metric"]), ids, facts, arrays)
        kind = np.dtype(np.float32) if rows is None else rows.dtype
        index.unit = Unit.again(facts.get("unit", 0), kind, index.metric.distance, recipe._narrow)
        index.why_ = facts.get("why", index.why_)
        return index


class Index(ABC):
    """An index over rows with ids, under one metric."""

    metric: Metric
    why_: str = ""  # one sentence: why this index, or this way to search, was chosen
    unit: Unit  # of the rows as they are kept
    _n_jobs: int | None = None  # of building, also of building again

    def __init__(self, recipe: Recipe, metric: Metric, ids: Ids, n_features: int) -> None:
        self.recipe = recipe
        self.metric = metric
        self._ids = ids
        self._n_features = n_features
        self._touched = float("nan")

    @property
    def n_rows(self) -> int:
        """Rows that can be found now."""
        return len(self._ids)

    @property
    def n_features(self) -> int:
        """Columns of a row."""
        return self._n_features

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the rows, in the order of their positions."""
        return self._ids.ids

    @property
    def plain_ids(self) -> bool:
        """Whether ids are the positions."""
        return self._ids.plain

    @property
    def touched_(self) -> float:
        """Rows whose full distance the last search computed, a query (the mean)."""
        return self._touched

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held, rows included."""

    def nearest(self, queries: Any, k: int, n_jobs: int | None = None, *, probes: int | None = None) -> Neighbors:
        """The k nearest rows of each query under the metric's distance, as tensors if queries are a tensor.

        `probes` overrides the index's own number for this call if it has one.
        """
        if is_tensor(queries):
            return self._nearest_of_tensor(queries, k, n_jobs, probes)
        with at_most(n_jobs):
            checked, k = self.unit.queries(self._prepared(queries, "queries")), whole_k(k)
            q = checked.rows.shape[0]
            if self.n_rows == 0 or q == 0:
                return Neighbors(np.full((q, k), -1, dtype=np.int64), np.full((q, k), np.inf, dtype=checked.kind))
            found = self._nearest(checked.rows, self._asked(checked, k), probes)
            return self._named(checked, found, k, probes)

    def search(self, queries: Any, k: int, n_jobs: int | None = None) -> TopK:
        """The k best rows of each query under the metric's score, as tensors if queries are a tensor."""
        ids, distances = self.nearest(queries, k, n_jobs)
        if is_tensor(ids):
            host = self.metric.score(distances if self.metric.bare else on_host(distances))
            return TopK(ids, host if self.metric.bare else as_tensor(Device(str(queries.device)), host))
        return TopK(ids, np.where(ids >= 0, self.metric.score(distances), -np.inf))

    def _nearest_of_tensor(self, queries: Any, k: int, n_jobs: int | None, probes: int | None) -> Neighbors:
        """The answer from the device, or from the CPU and copied to the device of the queries."""
        found = self._tensors(queries, k, probes)
        if found is not None:
            self._touched = float(k)
            return found
        device = Device(str(queries.device))
        return Neighbors(*map(device.put, self.nearest(on_host(queries), k, n_jobs, probes=probes)))

    def _tensors(self, queries: Any, k: int, probes: int | None) -> Neighbors | None:
        """The nearest rows of a tensor, found on a device; None if the CPU has to find them."""
        return None

    def _asked(self, queries: Scaled, k: int) -> int:
        """Neighbours to ask for, where k are wanted: one more where ties have to be seen."""
        return min(k + (queries.kind == _SINGLE), self.n_rows)

    def _named(self, queries: Scaled, found: Neighbors, k: int, probes: int | None) -> Neighbors:
        """The k nearest as the caller knows them, from the positions found: ties settled, ids for positions, padded."""
        touched = self._touched

        def again(which: NDArray[np.int64], ask: int) -> Neighbors:
            some = queries.part(which)
            return given(self._nearest(some.rows, ask, probes), some)

        def given(found: Neighbors, some: Scaled) -> Neighbors:
            return Neighbors(found.ids, self.unit.finish(found.distances, some))

        positions, distances = ordered(given(found, queries), min(k, self.n_rows), queries.kind, self.n_rows, again)
        self._touched = touched  # of the search itself
        ids, distances = self._ids.names(positions), self.metric.finish(distances)
        return Neighbors(ids, distances) if k <= self.n_rows else _padded(ids, distances, k)

    def add(self, rows: ArrayLike, ids: ArrayLike | None = None) -> NDArray[np.int64]:
        """Add rows and return their ids, which continue from the largest unless given."""
        with at_most(self._n_jobs):
            checked, first = self.unit.more_rows(self._prepared(rows, "rows")), self.n_rows
            self._ids.add(checked.shape[0], ids)
            if checked.shape[0]:
                self._append(checked)
            return self._ids.names(np.arange(first, self.n_rows))

    def remove(self, ids: ArrayLike) -> int:
        """Forget rows by id; how many there were."""
        positions = self._ids.asked(ids)
        if len(positions):
            self._drop(positions)
            self._ids.drop(positions)
        return len(positions)

    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """JSON facts and arrays; `type(recipe).restore(facts, arrays)` reverses it."""
        facts, arrays = self._state()
        if not self._ids.plain:
            arrays["ids"] = self.ids
        facts |= {
            "recipe": self.recipe.facts(),
            "metric": self.metric.facts(),
            "n_rows": self.n_rows,
            "n_features": self.n_features,
            "why": self.why_,
        }
        if self.unit.exponent:
            facts["unit"] = self.unit.exponent
        return facts, arrays

    def _prepared(self, rows: ArrayLike, name: str) -> Any:
        checked = plain_rows(rows, name, sparse=self.recipe.sparse)
        if checked.shape[1] != self.n_features:
            raise InputError(
                f"{name} have {checked.shape[1]} columns, but the index holds rows of {self.n_features}; pass the same"
            )
        return self.metric.prepare(checked)

    @abstractmethod
    def _nearest(self, queries: Any, k: int, probes: int | None) -> Neighbors:
        """Positions and distances (q, k) of the nearest, k <= n_rows."""

    @abstractmethod
    def _append(self, rows: Any) -> None:
        """Rows at the positions that follow."""

    @abstractmethod
    def _drop(self, positions: NDArray[np.int64]) -> None:
        """Forget positions (sorted); the later ones move up."""

    @abstractmethod
    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Facts and arrays of the index itself."""


def _padded(ids: NDArray, distances: NDArray, k: int) -> Neighbors:
    more = ((0, 0), (0, k - ids.shape[1]))
    return Neighbors(np.pad(ids, more, constant_values=-1), np.pad(distances, more, constant_values=np.inf))


def _as_facts(value: Any) -> Any:
    return value.facts() if isinstance(value, Store) else value
