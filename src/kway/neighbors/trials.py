"""Trials: the same queries answered by exact search and by an approximate index with any number of probes.

truth (m, k)        the k nearest others of each query, by exact search
at(probes) (m, k)   the same by the index
agrees (m,)         whether the vote is the same, or a true neighbour drawn at random was found
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import on_host
from kway.compute.gpu.far_rows import FarRows
from kway.data.gate import checked
from kway.search.index import Neighbors

_MOST_BUCKETS = 64  # probes a hash table
_DEAR = 0.1  # share of the rows measured a query beyond which scanning all of them, in order, costs less
WinnersOf = Callable[[Neighbors], NDArray[np.int64]]  # the k nearest of each query -> the winning class (q,)


class Disagreement(NamedTuple):
    """Queries that some number of probes answers otherwise than exact search, and whether it still costs less."""

    disagreements: int
    pays: bool


class ProbeTrial(Protocol):
    """Queries that can be asked with any number of probes."""

    @property
    def n(self) -> int:
        """Queries."""

    def ask(self, probes: int) -> Disagreement:
        """How these queries fare with so many probes."""


@dataclass(frozen=True)
class Asked:
    """Queries (m, d) and how many others each should find; own (m,): their ids where they are rows of the index."""

    queries: Any
    own: NDArray[np.int64] | None
    k: int
    n_jobs: int | None

    @property
    def most(self) -> int:
        """Neighbours to ask for: a row finds itself too."""
        return self.k if self.own is None else self.k + 1

    def part(self, some: slice) -> Asked:
        """Some of the queries."""
        return replace(self, queries=self.queries[some], own=None if self.own is None else self.own[some])

    def ask(self, index: Any, **how: Any) -> Neighbors:
        """What an index answers, here; queries that are on a device are asked there."""
        far = isinstance(self.queries, FarRows)
        given = self.queries.tensor if far else checked(self.queries)
        return Neighbors(*map(on_host, index.nearest(given, self.most, self.n_jobs, **how)))

    def others(self, found: Neighbors) -> Neighbors:
        """The k nearest of each query that are not the query itself."""
        return found if self.own is None else without_self(found, self.own)


class ProbedAnswers(Protocol):
    """What exact search finds, and what the index finds with any number of probes."""

    @property
    def truth(self) -> Neighbors:
        """The exact answer to every query."""

    def at(self, probes: int, some: slice) -> Outlay:
        """The answer to some of the queries."""


class Outlay(NamedTuple):
    """The k nearest others of some queries, and the share of all rows that were measured a query to find them."""

    found: Neighbors
    share: float


@dataclass(frozen=True)
class InOneSearch:
    """Answers of landmarks: their cells, looked into one after the other, give every step and in the end the truth."""

    truth: Neighbors
    steps: dict[int, Outlay]

    @staticmethod
    def of(index: Any, asked: Asked, steps: list[int]) -> InOneSearch:
        """All answers at once."""
        *most, last = index.nearest_by_probes(
            checked(asked.queries), asked.most, [*steps, index.n_landmarks], asked.n_jobs
        )
        kept = {p: Outlay(asked.others(found), touched / index.n_rows) for p, (found, touched) in zip(steps, most)}
        return InOneSearch(asked.others(last.found), kept)

    def at(self, probes: int, some: slice) -> Outlay:
        """The answer to some of the queries."""
        (ids, distances), share = self.steps[probes]
        return Outlay(Neighbors(ids[some], distances[some]), share)


@dataclass(frozen=True)
class OneByOne:
    """Answers of an index that is asked anew for every number of probes; the truth is an exact index's."""

    truth: Neighbors
    index: Any
    asked: Asked

    def at(self, probes: int, some: slice) -> Outlay:
        """The answer to some of the queries."""
        asked = self.asked.part(some)
        found = asked.ask(self.index, probes=probes)
        return Outlay(asked.others(found), self.index.touched_ / self.index.n_rows)


def answers_of(index: Any, rows: Any, ids: NDArray[np.int64] | None, asked: Asked, steps: list[int]) -> ProbedAnswers:
    """Answers over rows (n, d) with ids (None: 0..n-1): from one search where the index can end it in the truth."""
    from kway.search import Flat

    if hasattr(index, "nearest_by_probes") and index.ends_exact:
        return InOneSearch.of(index, asked, steps)
    exact = Flat(device=index.recipe.device if isinstance(rows, FarRows) else "cpu")
    truth = asked.ask(exact.build(checked(rows), index.metric, ids, asked.n_jobs))
    return OneByOne(asked.others(truth), index, asked)


@dataclass(frozen=True)
class SomeQueries:
    """Some of the queries, and how to tell whether an answer agrees with that of exact search."""

    answers: ProbedAnswers
    agrees: Callable[[Neighbors, slice], NDArray[np.bool_]]
    some: slice

    @property
    def n(self) -> int:
        """Queries."""
        return int(self.some.stop - self.some.start)

    def ask(self, probes: int) -> Disagreement:
        """How these queries fare with so many probes."""
        found, share = self.answers.at(probes, self.some)
        return Disagreement(self.n - int(np.count_nonzero(self.agrees(found, self.some))), share <= _DEAR)


def without_self(found: Neighbors, own: NDArray[np.int64]) -> Neighbors:
    """(q, k + 1) nearest of rows of the index -> the (q, k) nearest others; own (q,) are the rows' ids.

    A row that more than k others coincide with may not be among its own nearest: then the last goes.
    """
    q, k = found.ids.shape[0], found.ids.shape[1] - 1
    is_self = found.ids == own[:, None]
    is_self[~is_self.any(axis=1), -1] = True
    return Neighbors(found.ids[~is_self].reshape(q, k), found.distances[~is_self].reshape(q, k))


def most_probes(index: Any) -> int:
    """Half of the cells of landmarks, beyond which exact search is cheaper; of hash tables, some dozen buckets.

    Flat bits are one cell.
    """
    if hasattr(index, "n_landmarks"):
        return max(1, index.n_landmarks // 2)
    return _MOST_BUCKETS if hasattr(index, "probes") else 1


def agreement_with(
    truth: Neighbors, of: str, winners_of: WinnersOf, seed: int
) -> Callable[[Neighbors, slice], NDArray[np.bool_]]:
    """Whether the answers to some of the queries agree with the truth (m, k): in their votes, or by recall."""
    if of == "votes":
        winners = winners_of(truth)
        return lambda found, some: winners_of(found) == winners[some]
    # one true neighbour a query, drawn at random: independent trials whose mean is the recall, so the bound is exact
    column = np.random.default_rng(seed).integers(0, np.maximum(1, (truth.ids >= 0).sum(axis=1)))
    wanted = truth.ids[np.arange(len(column)), column]
    return lambda found, some: (found.ids == wanted[some, None]).any(axis=1)
