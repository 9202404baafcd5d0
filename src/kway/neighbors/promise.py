"""The promise of an approximate index: its votes agree with those of exact search on at least `target` of queries.

    agreement(p) = P(vote with p probes = exact vote), estimated on m training rows, each without itself
    bound(p)     = Clopper-Pearson lower bound: the a with P(Binomial(m, a) >= agreements) = 1 - confidence
    promise      = the fewest probes p with bound(p) >= target

Trying many p on one sample and keeping the best would break the confidence, so the order of the tests is fixed before
the sample is seen: a pilot on other rows picks where to start, and from there p goes down until a test fails
(fixed-sequence testing: a false promise needs the first false p of the sequence to pass, which happens with
probability 1 - confidence at most, whatever the length of the sequence). Where the sample cannot carry the promise
(0.998 at 95 % needs 1,497 queries without one disagreement) the exact index takes over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from kway.errors import InputError
from kway.neighbors.training import without_self
from kway.search.index import Neighbors

_MOST_BUCKETS = 64  # probes a hash table
_ABOVE = 2  # steps, about twice the probes: a pilot of 1,000 without a disagreement leaves room for 3 in 1,000
_DEAR = 0.1  # share of the rows measured a query beyond which scanning all of them, in order, costs less
Vote = Callable[[Neighbors], NDArray[np.int64]]  # the k nearest of each query -> the winning class (q,)


@dataclass(frozen=True)
class Target:
    """What an approximate index must promise, and how many queries may be spent to find out.

    of : "votes" (the classifier's own vote is the same) | "recall" (a true neighbour, drawn at random, was found).
    """

    agreement: float = 0.998
    confidence: float = 0.95
    of: str = "votes"
    n_queries: int = 4000
    n_pilot: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 < self.agreement < 1 and 0 < self.confidence < 1):
            raise InputError(
                f"agreement and confidence must lie between 0 and 1, got {self.agreement} and {self.confidence}; "
                "an agreement of 1 is what the exact index gives: index='flat'"
            )
        if self.of not in ("votes", "recall"):
            raise InputError(f"a promise is of 'votes' or of 'recall', got {self.of!r}")

    @property
    def least_queries(self) -> int:
        """Queries without a single disagreement that the promise needs.

        >>> Target().least_queries
        1497
        """
        return math.ceil(math.log(1 - self.confidence) / math.log(self.agreement))


@dataclass(frozen=True)
class Promise:
    """What was promised, on what evidence; `str(promise)` is a sentence."""

    target: float
    confidence: float
    of: str
    n_queries: int
    disagreements: int
    bound: float
    probes: int | None  # None: the exact index
    n_rows: int  # rows in the index when it was made

    @property
    def observed(self) -> float:
        """Share of the sample that agreed."""
        return 1.0 - self.disagreements / self.n_queries if self.n_queries else math.nan

    @property
    def exact(self) -> bool:
        """Whether the exact index stands in, so that the agreement is 1 by construction."""
        return self.probes is None

    def __str__(self) -> str:
        what = "votes as exact search does" if self.of == "votes" else "finds a true neighbour"
        asked = f"{self.target:.2%} of queries at {self.confidence:.0%} confidence"
        if self.exact:
            return f"stays exact: {self._why_exact()}, so {asked} could not be promised to an approximate index"
        return (
            f"{what} on at least {asked}: {self.n_queries - self.disagreements:,} of {self.n_queries:,} held-out "
            f"queries agreed with {self.probes} probes (lower bound {self.bound:.3%})"
        )

    def _why_exact(self) -> str:
        if self.disagreements:
            return f"{self.disagreements} of {self.n_queries:,} held-out queries disagreed with as many probes as pay"
        need = Target(self.target, self.confidence).least_queries
        if self.n_queries < need:
            return f"{self.n_queries:,} queries are too few (at least {need:,} without a disagreement are needed)"
        return "more probes than pay were needed"


class Made(NamedTuple):
    """The index that keeps the promise, and the promise."""

    index: Any
    promise: Promise


def lower_bound(agreements: int, n: int, confidence: float) -> float:
    """Clopper-Pearson: the largest agreement that would show at least this many only with chance 1 - confidence.

    >>> round(lower_bound(1497, 1497, 0.95), 4)
    0.998
    """
    return float(betaincinv(agreements, n - agreements + 1, 1 - confidence)) if agreements else 0.0


def ladder(most: int) -> list[int]:
    """Probes worth trying, from few to many: 1, 2, 3, 4, 6, 8, 12, ..., most.

    >>> ladder(20)
    [1, 2, 3, 4, 6, 8, 12, 16, 20]
    """
    steps = sorted({1, *(2**i for i in range(1, 32)), *(3 * 2**i for i in range(30))})
    return [p for p in steps if p < most] + [most]


def make(
    index: Any,
    rows: Any,
    ids: NDArray[np.int64] | None,
    k: int,
    vote: Vote,
    target: Target | None = None,
    n_jobs: int | None = None,
    queries: Any = None,
) -> Made:
    """Set the probes of an approximate index to the fewest that keep the promise, or give the exact index instead.

    `rows` (n, d) with `ids` (None: 0..n-1) are those in the index. Asked are `queries` (m, d) where given, which must
    not be in the index and be like those to come, else a sample of the rows, each without itself.
    """
    from kway.search import Flat

    target = target or Target()
    exact = Flat().build(rows, metric=index.metric, ids=ids)
    names = (np.arange(rows.shape[0]) if ids is None else ids) if queries is None else None
    asked = rows if queries is None else queries
    n = asked.shape[0]
    drawn = np.random.default_rng(target.seed).permutation(n)
    n_pilot = max(0, min(target.n_pilot, n - target.least_queries, n // 5))
    pilot, sample = drawn[:n_pilot], drawn[n_pilot : n_pilot + target.n_queries]
    if len(sample) < target.least_queries or n_pilot == 0:
        return _stay_exact(exact, target, len(sample), 0, 0.0)

    def trials(some: NDArray[np.int64]) -> Trials:
        own = None if names is None else names[some]
        truth = _others(exact, asked[some], own, k, n_jobs)
        return Trials(index, asked[some], own, k, _judge(target.of, truth, vote, target.seed), n_jobs)

    found = search_probes(ladder(_most_probes(index)), trials(pilot), trials(sample), target)
    if found.probes is None:
        return _stay_exact(exact, target, found.n_queries, found.disagreements, found.bound)
    index.probes = found.probes
    promise = Promise(target.agreement, target.confidence, target.of, **found._asdict(), n_rows=rows.shape[0])
    index.why_ = f"{index.why_}; {promise}" if index.why_ else str(promise)
    return Made(index, promise)


class Found(NamedTuple):
    """The fewest probes that passed (None: none did), and the evidence of the last test that decided it."""

    n_queries: int
    disagreements: int
    bound: float
    probes: int | None


class Trial(Protocol):
    """Queries that can be asked with any number of probes."""

    @property
    def n(self) -> int:
        """Queries."""

    def disagreements(self, probes: int) -> int:
        """Queries on which this many probes answer otherwise than exact search."""

    def pays(self) -> bool:
        """Whether the last search was still cheaper than exact search would be."""


def search_probes(steps: list[int], pilot: Trial, sample: Trial, target: Target) -> Found:
    """Start above where the pilot stops disagreeing, and go down while the sample passes; they share no query."""
    starts = _pilot(steps, pilot, target)
    if not starts.steps:
        return Found(pilot.n, starts.disagreements, 0.0, None)
    best = None
    for p in reversed(starts.steps):
        wrong = sample.disagreements(p)
        bound = lower_bound(sample.n - wrong, sample.n, target.confidence)
        if bound < target.agreement:
            return best or Found(sample.n, wrong, bound, None)
        best = Found(sample.n, wrong, bound, p)
    return best or Found(sample.n, 0, 0.0, None)


class _Start(NamedTuple):
    """Steps that the sample is to try, and how often the pilot disagreed at the last it tried."""

    steps: list[int]
    disagreements: int


def _pilot(steps: list[int], pilot: Trial, target: Target) -> _Start:
    """Steps up to two above the first that looks good; none where it gets too dear or too many before that."""
    wrong = 0
    for i, p in enumerate(steps):
        wrong = pilot.disagreements(p)
        if not pilot.pays():
            return _Start([], wrong)
        if wrong <= 0.25 * (1 - target.agreement) * pilot.n:
            return _Start(steps[: i + 1 + _ABOVE], wrong)
    return _Start([], wrong)


@dataclass(frozen=True)
class Trials:
    """Queries and how to tell whether an answer agrees with that of exact search."""

    index: Any
    queries: Any  # (m, d)
    own: NDArray[np.int64] | None  # (m,) the ids of the queries where they are rows of the index
    k: int
    agrees: Callable[[Neighbors], NDArray[np.bool_]]
    n_jobs: int | None

    @property
    def n(self) -> int:
        """Queries."""
        return int(self.queries.shape[0])

    def disagreements(self, probes: int) -> int:
        """Queries on which this many probes answer otherwise than exact search."""
        found = _others(self.index, self.queries, self.own, self.k, self.n_jobs, probes=probes)
        return self.n - int(np.count_nonzero(self.agrees(found)))

    def pays(self) -> bool:
        """Whether the last search was still cheaper than exact search would be."""
        return bool(self.index.touched_ <= _DEAR * self.index.n_rows)


def _most_probes(index: Any) -> int:
    """Half of the cells of landmarks, beyond which exact search is cheaper; of hash tables, some dozen buckets."""
    return max(1, index.n_landmarks // 2) if hasattr(index, "n_landmarks") else _MOST_BUCKETS


def _others(index: Any, queries: Any, own: NDArray | None, k: int, n_jobs: int | None, **options: Any) -> Neighbors:
    """The k nearest of each query that are not the query itself."""
    if own is None:
        return index.nearest(queries, k, n_jobs, **options)
    return without_self(index.nearest(queries, k + 1, n_jobs, **options), own)


def _judge(of: str, truth: Neighbors, vote: Vote, seed: int) -> Callable[[Neighbors], NDArray[np.bool_]]:
    if of == "votes":
        winners = vote(truth)
        return lambda found: vote(found) == winners
    # one true neighbour a query, drawn at random: independent trials whose mean is the recall, so the bound is exact
    column = np.random.default_rng(seed).integers(0, np.maximum(1, (truth.ids >= 0).sum(axis=1)))
    wanted = truth.ids[np.arange(len(column)), column]
    return lambda found: (found.ids == wanted[:, None]).any(axis=1)


def _stay_exact(exact: Any, target: Target, n_queries: int, disagreements: int, bound: float) -> Made:
    promise = Promise(
        target.agreement, target.confidence, target.of, n_queries, disagreements, bound, None, exact.n_rows
    )
    exact.why_ = f"Flat: {promise}"
    return Made(exact, promise)
