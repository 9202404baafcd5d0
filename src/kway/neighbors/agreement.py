"""The promise of an approximate index: its votes agree with those of exact search on at least `target` of queries.

    agreement(p) = P(vote with p probes = exact vote), estimated on m training rows, each without itself
    bound(p)     = Clopper-Pearson lower bound: the a with P(Binomial(m, a) >= agreements) = 1 - confidence
    promise      = the fewest probes p with bound(p) >= target

Trying many p on one sample and keeping the best would break the confidence, so the order of the tests is fixed before
the sample is seen: a pilot on other rows picks where to start, and from there p goes down until a test fails
(fixed-sequence testing: a false promise needs the first false p of the sequence to pass, which happens with
probability 1 - confidence at most, whatever the length of the sequence). One search of all cells, nearest first, gives
the votes of every p on the way and the exact ones at its end. If the sample cannot carry the promise (0.998 at 95 %
needs 1,497 queries without one disagreement), the exact index takes over.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy
from numpy.typing import NDArray

from kway.errors import InputError
from kway.rows.gpu.device import on_host
from kway.rows.gpu.far_rows import FarRows
from kway.search.answers import Neighbors
from kway.validation import checked

_ABOVE = 4  # steps, about twice the probes: a pilot of 1,000 without a disagreement leaves room for 3 in 1,000
_MOST_BUCKETS = 64  # probes a hash table
_DEAR = 0.1  # share of the rows measured a query beyond which scanning all of them, in order, costs less
WinnersOf = Callable[[Neighbors], NDArray[np.int64]]  # the k nearest of each query -> the winning class (q,)


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
            f"queries agreed with {self.probes} probe{'s' * (self.probes != 1)} (lower bound {self.bound:.3%})"
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


def least_agreement(agreements: int, n: int, confidence: float) -> float:
    """Clopper-Pearson: the largest agreement that would show at least this many only with chance 1 - confidence.

    >>> round(least_agreement(1497, 1497, 0.95), 4)
    0.998
    """
    return float(scipy.special.betaincinv(agreements, n - agreements + 1, 1 - confidence)) if agreements else 0.0


def ladder(most: int) -> list[int]:
    """Probes worth trying, from few to many: 1 to 8, then four steps to twice as many, up to most.

    Of two steps to twice as many, MNIST's promise had to take 48 where 32 missed it by one query of 4,000.

    >>> ladder(21)
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 21]
    """
    steps = [*range(1, 8), *(part * 2**i for i in range(1, 30) for part in (4, 5, 6, 7))]
    return [p for p in steps if p < most] + [most]


def wanted(recipe: Any, target: Target | None) -> bool:
    """Whether a promise is to be made: of an index whose probes it may choose, and of bits beside full rows if asked.

    Flat bits lose a neighbour with a chance that they were given (`Bits(miss=)`); a target has that held against exact
    search, which takes over where they do not keep it.
    """
    from kway.search import Bits, Flat

    if recipe.exact:
        return False
    flat_bits = isinstance(recipe, Flat) and isinstance(recipe.store, Bits) and recipe.store.rerank
    return getattr(recipe, "probes", None) == "auto" or (flat_bits and target is not None)


def make(
    index: Any,
    rows: Any,
    ids: NDArray[np.int64] | None,
    k: int,
    winners_of: WinnersOf,
    target: Target | None = None,
    queries: Any = None,
) -> Made:
    """Set the probes of an approximate index to the fewest that keep the promise, or give the exact index instead.

    `rows` (n, d) with `ids` (None: 0..n-1) are those in the index. Asked are `queries` (m, d) where given, which must
    not be in the index and be like those to come, else a sample of the rows, each without itself.
    """
    from kway.search import Bits, Flat

    target = target or Target()
    asked = rows if queries is None else queries
    drawn = np.random.default_rng(target.seed).permutation(asked.shape[0])
    n_pilot = max(0, min(target.n_pilot, len(drawn) - target.least_queries, len(drawn) // 5))
    drawn = drawn[: n_pilot + target.n_queries]
    if len(drawn) - n_pilot < target.least_queries or n_pilot == 0:
        found = Found(len(drawn) - n_pilot, 0, 0.0, None)
    else:
        own = None if queries is not None else (drawn if ids is None else ids[drawn])
        steps = ladder(most_probes(index))
        answers = answers_of(index, rows, ids, Asked(asked[drawn], own, k), steps)
        agrees = agreement_with(answers.truth, target.of, winners_of, target.seed)
        pilot, sample = slice(0, n_pilot), slice(n_pilot, len(drawn))
        found = search_probes(steps, SomeQueries(answers, agrees, pilot), SomeQueries(answers, agrees, sample), target)
    promise = Promise(target.agreement, target.confidence, target.of, **found._asdict(), n_rows=rows.shape[0])
    if found.probes is None:
        store = getattr(index.recipe, "store", None)
        alone = store if isinstance(store, Bits) and not store.rerank else None  # codes stay alone
        exact = Flat(store=alone, device=getattr(index.recipe, "device", "cpu"))
        index = exact.build(checked(rows), index.metric, ids)
        index.why_ = f"Flat: {promise}"
    else:
        index.probes = found.probes
        index.why_ = f"{index.why_}; {promise}" if index.why_ else str(promise)
    return Made(index, promise)


class Found(NamedTuple):
    """The fewest probes that passed (None: none did), and the evidence of the last test that decided it."""

    n_queries: int
    disagreements: int
    bound: float
    probes: int | None


def search_probes(steps: list[int], pilot: ProbeTrial, sample: ProbeTrial, target: Target) -> Found:
    """Start above where the pilot stops disagreeing, and go down while the sample passes; they share no query."""
    starts = _pilot(steps, pilot, target)
    best = Found(pilot.n, starts.disagreements, 0.0, None)
    for p in reversed(starts.steps):
        wrong = sample.ask(p).disagreements
        bound = least_agreement(sample.n - wrong, sample.n, target.confidence)
        if bound < target.agreement:
            return best if best.probes else Found(sample.n, wrong, bound, None)
        best = Found(sample.n, wrong, bound, p)
    return best


class _Start(NamedTuple):
    """Steps that the sample is to try, and how often the pilot disagreed at the last it tried."""

    steps: list[int]
    disagreements: int


def _pilot(steps: list[int], pilot: ProbeTrial, target: Target) -> _Start:
    """Steps up to _ABOVE above the first that looks good; none where it gets too dear or too many before that."""
    wrong = 0
    for i, p in enumerate(steps):
        wrong, pays = pilot.ask(p)
        if not pays:
            return _Start([], wrong)
        if wrong <= 0.25 * (1 - target.agreement) * pilot.n:
            return _Start(steps[: i + 1 + _ABOVE], wrong)
    return _Start([], wrong)


# ---- the same queries answered by exact search and by an approximate index


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
        return Neighbors(*map(on_host, index.nearest(given, self.most, **how)))

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
        *most, last = index.nearest_by_probes(checked(asked.queries), asked.most, [*steps, index.n_landmarks])
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
    truth = asked.ask(exact.build(checked(rows), index.metric, ids))
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
