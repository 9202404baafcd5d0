"""The promise of an approximate index: its votes agree with those of exact search on at least `target` of queries.

    agreement(p) = P(vote with p probes = exact vote), estimated on m training rows, each without itself
    bound(p)     = Clopper-Pearson lower bound: the a with P(Binomial(m, a) >= agreements) = 1 - confidence
    promise      = the fewest probes p with bound(p) >= target

Trying many p on one sample and keeping the best would break the confidence, so the order of the tests is fixed before
the sample is seen: a pilot on other rows picks where to start, and from there p goes down until a test fails
(fixed-sequence testing: a false promise needs the first false p of the sequence to pass, which happens with
probability 1 - confidence at most, whatever the length of the sequence). One search of all cells, nearest first, gives
the votes of every p on the way and the exact ones at its end (trials.py). Where the sample cannot carry the promise
(0.998 at 95 % needs 1,497 queries without one disagreement) the exact index takes over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kway.data.gate import checked
from kway.errors import InputError
from kway.neighbors.trials import (
    Asked,
    ProbeTrial,
    SomeQueries,
    WinnersOf,
    agreement_with,
    answers_of,
    most_probes,
)

_ABOVE = 4  # steps, about twice the probes: a pilot of 1,000 without a disagreement leaves room for 3 in 1,000


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
    n_jobs: int | None = None,
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
        answers = answers_of(index, rows, ids, Asked(asked[drawn], own, k, n_jobs), steps)
        agrees = agreement_with(answers.truth, target.of, winners_of, target.seed)
        pilot, sample = slice(0, n_pilot), slice(n_pilot, len(drawn))
        found = search_probes(steps, SomeQueries(answers, agrees, pilot), SomeQueries(answers, agrees, sample), target)
    promise = Promise(target.agreement, target.confidence, target.of, **found._asdict(), n_rows=rows.shape[0])
    if found.probes is None:
        store = getattr(index.recipe, "store", None)
        alone = store if isinstance(store, Bits) and not store.rerank else None  # codes stay alone
        exact = Flat(store=alone, device=getattr(index.recipe, "device", "cpu"))
        index = exact.build(checked(rows), index.metric, ids, n_jobs)
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
