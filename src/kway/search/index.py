"""What every index is: rows in, the k best rows of each query out.

    recipe = Flat()                                     a frozen dataclass, never changed by a fit
    index = recipe.build(rows, metric="euclidean")      rows (n, d) -> a live index
    index.search(queries, k) -> TopK(ids, scores)       (q, k) each, best first, higher is better, -1 pads
    index.nearest(queries, k) -> Neighbors(ids, distances)   the same answer as distances, lower is better, inf pads

Ties are ordered by the lower position of the row; for float32 queries, distances that are equal in float32 are ties.
Ids are positions 0..n-1 unless the caller gave others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from kway.search.metrics import Metric


class TopK(NamedTuple):
    """The k best of each query: ids (q, k), -1 where fewer exist, and scores (q, k), higher is better."""

    ids: NDArray
    scores: NDArray


class Neighbors(NamedTuple):
    """The k nearest of each query: ids (q, k) int64, -1 where fewer exist, and distances (q, k), inf there."""

    ids: NDArray[np.int64]
    distances: NDArray


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
