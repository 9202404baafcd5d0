"""Tuning an approximate index until its votes agree with those of exact search on a guaranteed share of queries.

    agreement(p) = P(vote with p probes = exact vote), estimated on m training rows, each without itself
    bound(p)     = Clopper-Pearson lower bound: the a with P(Binomial(m, a) >= agreements) = 1 - confidence
    result       = the fewest probes p with bound(p) >= target

Trying many p on one sample and keeping the best would break the confidence. So the order of the tests is fixed before
the sample is seen: a pilot on other rows chooses where to start, and from there p goes down until a test fails. This is
fixed-sequence testing: a false guarantee needs the first false p of the sequence to pass, which has probability
1 - confidence at most, whatever the length of the sequence.

Exact search measures every row that is stored: full rows, or codes if the index stores no full rows. `Landmarks` on the
CPU answers all p in one search: cells are visited nearest first, and the last cell completes the exact result. If the
sample is too small for the target (0.998 at 95% needs 1,497 queries without a disagreement), or if a full scan is
cheaper than the probes that are needed, the exact index is used instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from kway.errors import InputError
from kway.parameters import check_parameters, whole
from kway.rows.gpu.device import on_host
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.index import NO_GUARANTEE
from kway.search.results import Neighbors
from kway.validation import checked

# The tests start this many steps of the ladder above the step that the pilot accepts: four steps double the probes
_STEPS_ABOVE = 4  # decided by the landmarks benchmark (T3)
_MAX_MEASURED = 0.1  # share of the rows measured per query up to which an index is cheaper than a full scan (T3)
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
        check_parameters(self, n_queries=whole(1), n_pilot=whole(1), seed=whole(0))

    @property
    def least_queries(self) -> int:
        """Size of the smallest test sample that can certify the target, if every query agrees."""
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
        Agreement, confidence and criterion of the Target.
    n_queries : int
        Number of queries of the test that decided.
    disagreements : int
        Number of these queries on which the index disagreed with exact search.
    bound : float
        Lower bound of the agreement at this confidence.
    probes : int or None
        The number of probes that was chosen; None if the exact index is used instead.
    n_rows : int
        Number of rows in the index when it was tuned.
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
        """Whether exact search over the stored rows or codes is used instead of probes."""
        return self.probes is None

    def __str__(self) -> str:
        criterion = "votes as exact search does" if self.of == "votes" else "finds a true neighbor"
        share = f"{self.target:.2%} of queries at {self.confidence:.0%} confidence"
        if self.exact:
            return f"stays exact: {self._why_exact()}, so no approximate index is guaranteed to agree on {share}"
        return (
            f"{criterion} on at least {share}: {self.n_queries - self.disagreements:,} of {self.n_queries:,} held-out "
            f"queries agreed with {self.probes} probe{'s' * (self.probes != 1)} (lower bound {self.bound:.3%})"
        )

    def _why_exact(self) -> str:
        need = Target(self.target, self.confidence).least_queries
        if self.disagreements:
            return (
                f"{self.disagreements} of {self.n_queries:,} held-out queries disagreed with the largest number of "
                "probes that was tested"
            )
        if self.n_queries < need:
            return f"{self.n_queries:,} queries are too few (at least {need:,} without a disagreement are needed)"
        return "a full scan is cheaper than the probes that are needed"


class TunedIndex(NamedTuple):
    """The index that reaches the target, and the evidence."""

    index: Any
    agreement: Agreement


def agreement_lower_bound(agreements: int, n: int, confidence: float) -> float:
    """Return the Clopper-Pearson lower bound of the agreement, for `agreements` successes in n trials.

    >>> round(agreement_lower_bound(1497, 1497, 0.95), 4)
    0.998
    """
    return float(scipy.special.betaincinv(agreements, n - agreements + 1, 1 - confidence)) if agreements else 0.0


def ladder(max_probes: int) -> list[int]:
    """Return the numbers of probes to try: 1 to 8, then four steps per doubling, up to max_probes.

    >>> ladder(21)
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 21]
    """
    steps = [*range(1, 8), *(part * 2**i for i in range(1, 30) for part in (4, 5, 6, 7))]
    return [p for p in steps if p < max_probes] + [max_probes]


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
) -> TunedIndex:
    """Set the probes of an approximate index to the fewest that reach the target, or return the exact index.

    `rows` (n, d) are the full rows that the index was built over, and `ids` (n,) their ids; None stands for 0..n-1. A
    sample of the rows serves as queries, each without itself.
    """
    target = target or Target()
    result = _find_probes(index, rows, ids, k, winners_of, target)
    agreement = Agreement(target.agreement, target.confidence, target.of, **result._asdict(), n_rows=rows.shape[0])
    if result.probes is None:
        index = _exact_index(index, rows, ids)
        stored = "" if index.recipe.store is None else " over all codes"
        index.why_ = f"Flat{stored}: {agreement}"
    else:
        index.probes = result.probes
        index.why_ = f"{index.why_.removesuffix(NO_GUARANTEE)}; {agreement}"
    return TunedIndex(index, agreement)


def _find_probes(
    index: Any, rows: Any, ids: NDArray[np.int64] | None, k: int, winners_of: WinnersOf, target: Target
) -> ProbeResult:
    """Draw the queries of the pilot and of the test, and return the fewest probes that pass, if there are any."""
    drawn = np.random.default_rng(target.seed).permutation(rows.shape[0])
    n_pilot = min(target.n_pilot, len(drawn) - target.least_queries, max(1, len(drawn) // 5))
    n_queries = min(target.n_queries, len(drawn) - max(1, n_pilot))
    if n_queries < target.least_queries:
        return ProbeResult(max(0, n_queries), 0, 0.0, None)
    drawn = drawn[: n_pilot + n_queries]
    sample = QuerySample(rows[drawn], drawn if ids is None else ids[drawn], k)
    steps = ladder(getattr(index, "max_probes", 1))
    truth, search = search_at_steps(index, rows, ids, sample, steps)
    agrees = compare_with(truth, target.of, winners_of, target.seed)

    def compare(probes: int, part: slice) -> Trial:
        """Return how often a part of the sample disagrees with exact search."""
        neighbors, touched = search(probes, part)
        agreed = agrees(neighbors, part)
        return Trial(len(agreed), int((~agreed).sum()), touched <= _MAX_MEASURED * index.n_rows)

    pilot, test = partial(compare, part=slice(0, n_pilot)), partial(compare, part=slice(n_pilot, len(drawn)))
    return choose_probes(steps, pilot, test, target)


def _exact_index(index: Any, rows: Any, ids: NDArray[np.int64] | None) -> Any:
    """Return a flat index over the same rows; over their codes if the index stores only bits."""
    from kway.search import Bits, Flat

    store = getattr(index.recipe, "store", None)
    only_bits = isinstance(store, Bits) and not store.rerank
    exact = Flat(store=store if only_bits else None, device=getattr(index.recipe, "device", "cpu"))
    return exact.build(checked(rows), index.metric, ids)


# ---- the sequence of tests


class ProbeResult(NamedTuple):
    """The fewest probes that passed (None: none did), and the evidence of the test that decided."""

    n_queries: int
    disagreements: int
    bound: float
    probes: int | None


class Trial(NamedTuple):
    """Number of queries, number of disagreements, and whether the probes are cheaper than a full scan."""

    n: int
    disagreements: int
    is_cheap: bool


Try = Callable[[int], Trial]  # number of probes -> the result of the same queries with it


def choose_probes(steps: list[int], pilot: Try, test: Try, target: Target) -> ProbeResult:
    """Return the fewest probes that reach the target.

    The pilot decides from which of the steps the tests go down. The tests stop at the first failure. Their order must
    not depend on their results, or the guarantee does not hold. A step that passes but costs more than a full scan is
    not used.
    """
    for p in steps:
        trial = pilot(p)
        # a quarter of the disagreements that the target allows: the bound of the test needs a margin
        is_good = trial.disagreements <= 0.25 * (1 - target.agreement) * trial.n
        if is_good or not trial.is_cheap:
            break
    result = ProbeResult(trial.n, trial.disagreements, 0.0, None)
    if not (is_good and trial.is_cheap):
        return result
    tested = steps[: steps.index(p) + 1 + _STEPS_ABOVE]
    for p in reversed(tested):
        n, disagreements, is_cheap = test(p)
        bound = agreement_lower_bound(n - disagreements, n, target.confidence)
        passed = bound >= target.agreement
        if passed or result.probes is None:
            result = ProbeResult(n, disagreements, bound, p if passed and is_cheap else None)
        if not passed:
            break
    return result


# ---- the same queries answered by exact search and by an approximate index


class StepResult(NamedTuple):
    """Nearest rows of queries with a number of probes, and the mean number of rows measured per query."""

    neighbors: Neighbors
    touched: float


Search = Callable[[int, slice], StepResult]  # number of probes, part of the sample -> result
Agrees = Callable[[Neighbors, slice], NDArray[np.bool_]]  # neighbors of a part of the sample -> whether each agrees


@dataclass(frozen=True)
class QuerySample:
    """Rows (m, d) that serve as queries, their ids (m,), which they must not find, and the number of neighbors."""

    queries: Any
    self_ids: NDArray[np.int64]
    k: int

    def search(self, index: Any, part: slice = slice(None), probes: int | None = None) -> Neighbors:
        """Return the k nearest of a part of the queries, each without itself."""
        queries = self.queries[part]
        queries = queries.tensor if isinstance(queries, TensorRows) else checked(queries)
        neighbors = index.nearest(queries, self.k + 1, probes=probes)
        return without_self(Neighbors(*map(on_host, neighbors)), self.self_ids[part])


def search_at_steps(
    index: Any, rows: Any, ids: NDArray[np.int64] | None, sample: QuerySample, steps: list[int]
) -> tuple[Neighbors, Search]:
    """Return the exact neighbors of the sample, and a function that returns those of an approximate search."""
    from kway.search import Flat

    def search(probes: int, part: slice) -> StepResult:
        return StepResult(sample.search(index, part, probes), index.touched_)

    if getattr(index, "ends_exact", False):  # a search of all cells is exact
        return search_all_steps(index, sample, steps)
    exact = Flat(device=index.recipe.device if isinstance(rows, TensorRows) else "cpu")
    return sample.search(exact.build(checked(rows), index.metric, ids)), search


def search_all_steps(index: Any, sample: QuerySample, steps: list[int]) -> tuple[Neighbors, Search]:
    """Return the result of `search_at_steps`, from one search that ends with the exact result."""
    *probed, last = index.nearest_by_probes(checked(sample.queries), sample.k + 1, [*steps, index.n_landmarks])
    results = {
        p: StepResult(without_self(found, sample.self_ids), touched) for p, (found, touched) in zip(steps, probed)
    }

    def search(probes: int, part: slice) -> StepResult:
        (ids, distances), touched = results[probes]
        return StepResult(Neighbors(ids[part], distances[part]), touched)

    return without_self(last.neighbors, sample.self_ids), search


def without_self(neighbors: Neighbors, self_ids: NDArray[np.int64]) -> Neighbors:
    """Return the k nearest other rows (q, k) of rows with ids self_ids (q,), from their k + 1 nearest.

    If more than k other rows coincide with a row, it may not be among its own nearest; then the last is dropped.
    """
    q, k = neighbors.ids.shape[0], neighbors.ids.shape[1] - 1
    is_self = neighbors.ids == self_ids[:, None]
    is_self[~is_self.any(axis=1), -1] = True
    return Neighbors(neighbors.ids[~is_self].reshape(q, k), neighbors.distances[~is_self].reshape(q, k))


def compare_with(truth: Neighbors, criterion: str, winners_of: WinnersOf, seed: int) -> Agrees:
    """Return a function that compares the neighbors of a part of the sample with the truth (m, k)."""
    if criterion == "votes":
        winners = winners_of(truth)
        return lambda neighbors, part: winners_of(neighbors) == winners[part]
    # one true neighbor per query, drawn at random: independent trials whose mean is the recall, so the bound is exact
    columns = np.random.default_rng(seed).integers(0, np.maximum(1, (truth.ids >= 0).sum(axis=1)))
    true_ids = truth.ids[np.arange(len(columns)), columns]
    return lambda neighbors, part: (neighbors.ids == true_ids[part, None]).any(axis=1)
