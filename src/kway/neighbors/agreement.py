"""Tuning an approximate index until its votes agree with those of exact search on a guaranteed share of queries.

    agreement(p) = P(vote with p probes = exact vote), estimated on m training rows, each without itself
    bound(p)     = Clopper-Pearson lower bound: the a with P(Binomial(m, a) >= agreements) = 1 - confidence
    result       = the fewest probes p with bound(p) >= target

Trying many p on one sample and keeping the best would break the confidence. So the order of the tests is fixed before
the sample is seen: a pilot on other rows chooses where to start, and from there p goes down until a test fails. This is
fixed-sequence testing: a false guarantee needs the first false p of the sequence to pass, which has probability
1 - confidence at most, whatever the length of the sequence.

Landmarks on the CPU answer all p in one search: cells are visited nearest first, and the last cell completes the exact
result. If the sample is too small for the target (0.998 at 95% needs 1,497 queries without a disagreement), or if so
many probes are needed that scanning all rows is cheaper, the exact index is used instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kway.errors import InputError
from kway.rows.gpu.device import on_host
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.index import NO_GUARANTEE
from kway.search.results import Neighbors
from kway.validation import checked

_STEPS_ABOVE = 4  # steps of the ladder above the first good one where the sample starts, twice the probes (T3)
_LARGEST_SHARE = 0.1  # share of the rows measured per query above which scanning all of them is cheaper (T3)
WinnersOf = Callable[[Neighbors], NDArray[np.int64]]  # the k nearest of each query -> the winning class (q,)


@dataclass(frozen=True)
class Target:
    """The agreement with exact search that an approximate index must reach.

    Parameters
    ----------
    agreement : float, default=0.998
        Share of queries on which the approximate index must agree with exact search, between 0 and 1.
    confidence : float, default=0.95
        Probability, over the sample of queries, that the guarantee holds.
    of : {"votes", "recall"}, default="votes"
        What must agree: "votes", the class that the classifier predicts; "recall", a true neighbor, drawn at random
        per query, is found.
    n_queries : int, default=4000
        Maximum number of queries that test the agreement.
    n_pilot : int, default=1000
        Maximum number of other queries that choose where the tests start.
    seed : int, default=0
        Seed of the sample.

    Examples
    --------
    >>> Target(agreement=0.99).least_queries
    299
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
                f"agreement and confidence must be between 0 and 1, got {self.agreement} and {self.confidence}; "
                "for an agreement of 1 use the exact index: index='flat'"
            )
        if self.of not in ("votes", "recall"):
            raise InputError(f"of must be 'votes' or 'recall', got {self.of!r}")

    @property
    def least_queries(self) -> int:
        """Number of queries without a single disagreement that the guarantee needs."""
        return math.ceil(math.log(1 - self.confidence) / math.log(self.agreement))


def as_target(agreement: Any) -> Target | None:
    """Return the target of a classifier's parameter `agreement`: None, a share of queries, or a Target."""
    if agreement is None or isinstance(agreement, Target):
        return agreement
    if isinstance(agreement, bool) or not isinstance(agreement, float | int):
        raise InputError(f"agreement must be None, a number between 0 and 1, or Target(...), got {agreement!r}")
    return Target(agreement=float(agreement))


@dataclass(frozen=True)
class Agreement:
    """The agreement with exact search that was guaranteed, and the evidence; `str()` gives one sentence.

    Attributes
    ----------
    target, confidence, of : float, float, str
        Those of the Target.
    n_queries : int
        Queries of the test that decided.
    disagreements : int
        How many of them disagreed with exact search.
    bound : float
        Lower bound of the agreement at this confidence.
    probes : int or None
        The number of probes that was chosen; None if the exact index is used instead.
    n_rows : int
        Rows in the index when it was tuned.
    """

    target: float
    confidence: float
    of: str
    n_queries: int
    disagreements: int
    bound: float
    probes: int | None
    n_rows: int

    @property
    def observed(self) -> float:
        """Share of the queries that agreed."""
        return 1.0 - self.disagreements / self.n_queries if self.n_queries else math.nan

    @property
    def exact(self) -> bool:
        """Whether the exact index is used, so that the agreement is 1."""
        return self.probes is None

    def __str__(self) -> str:
        what = "votes as exact search does" if self.of == "votes" else "finds a true neighbor"
        asked = f"{self.target:.2%} of queries at {self.confidence:.0%} confidence"
        if self.exact:
            return f"stays exact: {self._why_exact()}, so no approximate index is guaranteed to agree on {asked}"
        return (
            f"{what} on at least {asked}: {self.n_queries - self.disagreements:,} of {self.n_queries:,} held-out "
            f"queries agreed with {self.probes} probe{'s' * (self.probes != 1)} (lower bound {self.bound:.3%})"
        )

    def _why_exact(self) -> str:
        if self.disagreements:
            return f"{self.disagreements} of {self.n_queries:,} held-out queries disagreed at the most probes that pay"
        need = Target(self.target, self.confidence).least_queries
        if self.n_queries < need:
            return f"{self.n_queries:,} queries are too few (at least {need:,} without a disagreement are needed)"
        return "more probes than pay were needed"


class TunedIndex(NamedTuple):
    """The index that reaches the target, and the evidence."""

    index: Any
    agreement: Agreement


def least_agreement(agreements: int, n: int, confidence: float) -> float:
    """Return the Clopper-Pearson lower bound of an agreement that was seen in so many of n queries.

    >>> round(least_agreement(1497, 1497, 0.95), 4)
    0.998
    """
    return float(scipy.special.betaincinv(agreements, n - agreements + 1, 1 - confidence)) if agreements else 0.0


def ladder(most: int) -> list[int]:
    """Return the numbers of probes to try: 1 to 8, then four steps per doubling, up to most.

    >>> ladder(21)
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 21]
    """
    steps = [*range(1, 8), *(part * 2**i for i in range(1, 30) for part in (4, 5, 6, 7))]
    return [p for p in steps if p < most] + [most]


def needs_tuning(recipe: Any, target: Target | None) -> bool:
    """Return whether an index is tuned: if its probes are "auto", and Flat(store=Bits()) if a target is given."""
    from kway.search import Bits, Flat

    if recipe.exact:
        return False
    flat_bits = isinstance(recipe, Flat) and isinstance(recipe.store, Bits) and recipe.store.rerank
    return getattr(recipe, "probes", None) == "auto" or (flat_bits and target is not None)


def tune(
    index: Any,
    rows: Any,
    ids: NDArray[np.int64] | None,
    k: int,
    winners_of: WinnersOf,
    target: Target | None = None,
    queries: Any = None,
) -> TunedIndex:
    """Set the probes of an approximate index to the fewest that reach the target, or return the exact index.

    `rows` (n, d) with `ids` (None: 0..n-1) are those in the index. `queries` (m, d), if given, must not be in the index
    and should resemble later queries. By default a sample of the rows is used, each without itself.
    """
    target = target or Target()
    pool = rows if queries is None else queries
    drawn = np.random.default_rng(target.seed).permutation(pool.shape[0])
    n_pilot = max(0, min(target.n_pilot, len(drawn) - target.least_queries, len(drawn) // 5))
    drawn = drawn[: n_pilot + target.n_queries]
    if len(drawn) - n_pilot < target.least_queries or n_pilot == 0:
        found = ProbeResult(len(drawn) - n_pilot, 0, 0.0, None)
    else:
        own = None if queries is not None else (drawn if ids is None else ids[drawn])
        sample, steps = QuerySample(pool[drawn], own, k), ladder(getattr(index, "most_probes", 1))
        truth, find = answer_at_steps(index, rows, ids, sample, steps)
        agrees = compare_with(truth, target.of, winners_of, target.seed)

        def trial(some: slice) -> Trial:
            return lambda probes: _disagreement(find(probes, some), agrees, some, index.n_rows)

        found = search_probes(steps, trial(slice(0, n_pilot)), trial(slice(n_pilot, len(drawn))), target)
    agreement = Agreement(target.agreement, target.confidence, target.of, **found._asdict(), n_rows=rows.shape[0])
    if found.probes is None:
        index = _exact_index(index, rows, ids)
        index.why_ = f"Flat: {agreement}"
    else:
        index.probes = found.probes
        index.why_ = f"{index.why_.removesuffix(NO_GUARANTEE)}; {agreement}"
    return TunedIndex(index, agreement)


def _exact_index(index: Any, rows: Any, ids: NDArray[np.int64] | None) -> Any:
    """Return a flat index over the same rows; if only bits were kept, it keeps only bits."""
    from kway.search import Bits, Flat

    store = getattr(index.recipe, "store", None)
    alone = store if isinstance(store, Bits) and not store.rerank else None
    exact = Flat(store=alone, device=getattr(index.recipe, "device", "cpu"))
    return exact.build(checked(rows), index.metric, ids)


# ---- the sequence of tests


class ProbeResult(NamedTuple):
    """The fewest probes that passed (None: none did), and the evidence of the test that decided."""

    n_queries: int
    disagreements: int
    bound: float
    probes: int | None


class Disagreement(NamedTuple):
    """Queries, how many of their results differ, and whether so many probes are cheaper than scanning all rows."""

    n: int
    disagreements: int
    pays: bool


Trial = Callable[[int], Disagreement]  # number of probes -> how the same queries are answered with it


def search_probes(steps: list[int], pilot: Trial, sample: Trial, target: Target) -> ProbeResult:
    """Return the fewest of the steps that reach the target on the sample, tested downward from where the pilot says."""
    for i, p in enumerate(steps):
        tried, most = pilot(p), steps[: i + 1 + _STEPS_ABOVE]
        good = tried.disagreements <= 0.25 * (1 - target.agreement) * tried.n
        if good or not tried.pays:
            break
    best = ProbeResult(tried.n, tried.disagreements, 0.0, None)
    if not (good and tried.pays):
        return best
    for p in reversed(most):
        n, wrong, _ = sample(p)
        bound = least_agreement(n - wrong, n, target.confidence)
        if bound < target.agreement:
            return best if best.probes else ProbeResult(n, wrong, bound, None)
        best = ProbeResult(n, wrong, bound, p)
    return best


# ---- the same queries answered by exact search and by an approximate index


class StepAnswer(NamedTuple):
    """Nearest rows of some queries with a number of probes, and the mean number of rows that a query measured."""

    found: Neighbors
    touched: float


Find = Callable[[int, slice], StepAnswer]  # number of probes, and which queries of the sample


@dataclass(frozen=True)
class QuerySample:
    """Queries (m, d), the ids that each must not find (m,) if they are rows themselves, and the number of neighbors."""

    queries: Any
    own: NDArray[np.int64] | None
    k: int

    @property
    def most(self) -> int:
        """Number of neighbors to search for: one more if queries find themselves."""
        return self.k if self.own is None else self.k + 1

    def search(self, index: Any, some: slice = slice(None), probes: int | None = None) -> Neighbors:
        """Return the k nearest of some of the queries, each without itself."""
        queries = self.queries[some]
        given = queries.tensor if isinstance(queries, TensorRows) else checked(queries)
        return self.without_own(Neighbors(*map(on_host, index.nearest(given, self.most, probes=probes))), some)

    def without_own(self, found: Neighbors, some: slice = slice(None)) -> Neighbors:
        """Return k of the neighbors found, without the query itself."""
        return found if self.own is None else without_self(found, self.own[some])


def answer_at_steps(
    index: Any, rows: Any, ids: NDArray[np.int64] | None, sample: QuerySample, steps: list[int]
) -> tuple[Neighbors, Find]:
    """Return the exact neighbors of the sample, and a function that gives those of an approximate search."""
    from kway.search import Flat

    def find(probes: int, some: slice) -> StepAnswer:
        return StepAnswer(sample.search(index, some, probes), index.touched_)

    if getattr(index, "ends_exact", False):  # a search of all cells is exact
        return answer_in_one_search(index, sample, steps)
    exact = Flat(device=index.recipe.device if isinstance(rows, TensorRows) else "cpu")
    return sample.search(exact.build(checked(rows), index.metric, ids)), find


def answer_in_one_search(index: Any, sample: QuerySample, steps: list[int]) -> tuple[Neighbors, Find]:
    """Return what `answer_at_steps` does, for landmarks whose last cell completes the exact result."""
    *tried, last = index.nearest_by_probes(checked(sample.queries), sample.most, [*steps, index.n_landmarks])
    answers = {p: (sample.without_own(found), touched) for p, (found, touched) in zip(steps, tried)}

    def find(probes: int, some: slice) -> StepAnswer:
        (ids, distances), touched = answers[probes]
        return StepAnswer(Neighbors(ids[some], distances[some]), touched)

    return sample.without_own(last.found), find


Agrees = Callable[[Neighbors, slice], NDArray[np.bool_]]  # neighbors of some queries -> whether each agrees


def _disagreement(answer: StepAnswer, agrees: Agrees, some: slice, n_rows: int) -> Disagreement:
    agreed = agrees(answer.found, some)
    return Disagreement(len(agreed), int((~agreed).sum()), answer.touched <= _LARGEST_SHARE * n_rows)


def without_self(found: Neighbors, own: NDArray[np.int64]) -> Neighbors:
    """Return the k nearest others (q, k) of rows with ids own (q,), from their k + 1 nearest.

    If more than k other rows coincide with a row, it may not be among its own nearest; then the last is dropped.
    """
    q, k = found.ids.shape[0], found.ids.shape[1] - 1
    is_self = found.ids == own[:, None]
    is_self[~is_self.any(axis=1), -1] = True
    return Neighbors(found.ids[~is_self].reshape(q, k), found.distances[~is_self].reshape(q, k))


def compare_with(truth: Neighbors, of: str, winners_of: WinnersOf, seed: int) -> Agrees:
    """Return a function that compares answers to some queries with the truth (m, k), by votes or by recall."""
    if of == "votes":
        winners = winners_of(truth)
        return lambda found, some: winners_of(found) == winners[some]
    # one true neighbor per query, drawn at random: independent trials whose mean is the recall, so the bound is exact
    column = np.random.default_rng(seed).integers(0, np.maximum(1, (truth.ids >= 0).sum(axis=1)))
    wanted = truth.ids[np.arange(len(column)), column]
    return lambda found, some: (found.ids == wanted[some, None]).any(axis=1)
