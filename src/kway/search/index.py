"""What every index is: rows in, the k best rows of each query out.

    recipe = Flat()                                     a frozen dataclass, never changed by a fit
    index = recipe.build(rows, metric="euclidean")      rows (n, d) -> a live index
    index.search(queries, k) -> TopK(ids, scores)       (q, k) each, best first, higher is better, -1 pads
    index.nearest(queries, k) -> Neighbors(ids, distances)   the same answer as distances, lower is better, inf pads

One rule orders every answer. Distances are measured in float64 and given in the queries' precision (float32 for
float32 queries; float64 for float64 ones and under haversine), and the k nearest are the first by (the distance given,
then the lower position): pixels over 255 whose sums are equal on paper tie in float32, and go to the lower position and
not to the row whose rounding came out smaller. So distances never decrease, and each is that of its id. One beyond
float32's range is given as the largest float32. Ids are positions 0..n-1 unless the caller gave others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.parameters import whole
from kway.tables import Table, first_rows, short_number

if TYPE_CHECKING:
    from kway.search.spaces.metrics import Metric


_AT_LEAST_ONE = whole(1)
_COLUMNS_SHOWN = 5  # of the best of a row that are printed


class TopK(NamedTuple):
    """The k best of each query: ids (q, k), -1 where fewer exist, and scores (q, k), higher is better."""

    ids: NDArray
    scores: NDArray

    def _table(self) -> Table:
        return _best_first("TopK", "scores", self.ids, self.scores)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


class Neighbors(NamedTuple):
    """The k nearest of each query: ids (q, k) int64, -1 where fewer exist, and distances (q, k), inf there."""

    ids: NDArray[np.int64]
    distances: NDArray

    def _table(self) -> Table:
        return _best_first("Neighbors", "distances", self.ids, self.distances)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


def _best_first(name: str, values_name: str, ids: Any, values: Any) -> Table:
    """The first rows of answers (q, k), the first columns of each."""
    ids, values = np.asarray(ids), np.asarray(values)
    if ids.ndim != 2 or ids.shape != values.shape:  # taken apart by hand
        return Table(f"{name}: ids of shape {ids.shape}, {values_name} of shape {values.shape}", (), ())
    q, k = ids.shape
    shown = min(k, _COLUMNS_SHOWN)
    title = f"{name}: {q:,} rows x {k:,} best, with their {values_name}" + (
        f" (the first {shown})" if k > shown else ""
    )
    return first_rows(
        title,
        q,
        [str(j + 1) for j in range(shown)],
        lambda i: (f"{ids[i, j]} ({short_number(values[i, j])})" for j in range(shown)),
    )


class Index(ABC):
    """A live index over rows (n, d) under one metric."""

    metric: Metric
    why_: str = ""  # one sentence: why this index, or this way of searching, was chosen

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """Rows that can be found now."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Columns of a row."""

    @abstractmethod
    def nearest(self, queries: ArrayLike, k: int, n_jobs: int | None = None) -> Neighbors:
        """The k nearest rows of each query under the metric's distance."""

    def search(self, queries: ArrayLike, k: int, n_jobs: int | None = None) -> TopK:
        """The k best rows of each query under the metric's score."""
        ids, distances = self.nearest(queries, k, n_jobs)
        scores = np.where(ids >= 0, self.metric.score(distances), -np.inf)
        return TopK(ids, scores)

    @abstractmethod
    def add(self, rows: ArrayLike, ids: ArrayLike | None = None) -> None:
        """More rows; their ids go on from the largest unless given."""

    @abstractmethod
    def remove(self, ids: ArrayLike) -> int:
        """Forget rows by id; how many there were. An index that cannot says so and what to do."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes held, rows included."""

    @property
    def touched_(self) -> float:
        """Rows whose full distance the last search computed, a query (the mean)."""
        return float("nan")

    @abstractmethod
    def parts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """What a model file needs: JSON facts and arrays; the recipe's `restore(facts, arrays)` reverses it."""


def whole_k(k: Any) -> int:
    """How many are asked for, as an int; anything but a whole number of at least 1 is refused."""
    _AT_LEAST_ONE.check("k", k)
    return int(k)
