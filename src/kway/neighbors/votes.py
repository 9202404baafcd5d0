"""Weights of votes, counting of votes, and the base class of classifiers that vote.

The class codes and distances (q, k) of the k nearest rows give the classes voted for (q, k), best first. No array has
one column per class.

    "uniform"      every voter has the same weight
    "distance"     1 / d; voters at distance 0 get all votes
    "similarity"   sim(x_i, x') of the metric, clipped at 0 and normalized in log space, so that no kernel underflows
    callable       weights = f(distances), (q, k) -> (q, k)

Only the proportions of the weights of a query matter. If all of them are zero, its voters have the same weight. A row
of sample weight w counts as w copies of the row: the nearest rows vote until their weights sum to k, the last one in
part. Class weights multiply the votes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.base.class_rows import lift_winners
from kway.base.classifier import Classifier, reads
from kway.errors import CombinationError, InputError
from kway.kernels.votes import complete, count
from kway.parameters import at_least
from kway.search.metrics import Metric
from kway.search.results import Neighbors, TopK
from kway.text_tables import Table, first_rows, short_number


class Vote(Protocol):
    """A rule for the weight of each vote."""

    def weigh(self, distances: NDArray, metric: Metric) -> NDArray[np.float64]:
        """Return weights (q, k) >= 0 of voters at these distances (q, k), inf if there is no voter."""


@dataclass(frozen=True)
class Uniform:
    """The same weight for every voter."""

    def weigh(self, distances: NDArray, metric: Metric) -> NDArray[np.float64]:
        """Return ones."""
        return np.isfinite(distances).astype(np.float64)


@dataclass(frozen=True)
class InverseDistance:
    """1 / d, relative to the nearest voter: d_min / d cannot overflow."""

    def weigh(self, distances: NDArray, metric: Metric) -> NDArray[np.float64]:
        """Return d_min / d; if d_min is 0, one for the voters at distance 0 and zero for the others."""
        if metric.distance.signed:
            raise CombinationError(
                "weights='distance' needs distances >= 0, but the metric 'dot' has negative ones; "
                "use weights='similarity', or metric='cosine'"
            )
        d = distances.astype(np.float64)  # (q, k)
        d_min = d.min(axis=1, keepdims=True, initial=np.inf)  # (q, 1)
        at_zero = (d == 0).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(d_min > 0, np.where(np.isfinite(d), d_min / d, 0.0), at_zero)


@dataclass(frozen=True)
class Similarity:
    """The metric's own similarity, exp(log sim - largest log sim of the row)."""

    def weigh(self, distances: NDArray, metric: Metric) -> NDArray[np.float64]:
        """Return similarities relative to the most similar voter."""
        is_voter = np.isfinite(distances)
        logs = np.full(distances.shape, -np.inf)
        logs[is_voter] = metric.log_similarity(distances[is_voter].astype(np.float64))
        largest = logs.max(axis=1, keepdims=True, initial=-np.inf)  # (q, 1)
        return np.exp(logs - np.where(np.isfinite(largest), largest, 0.0))


@dataclass(frozen=True)
class Custom:
    """A function of the distances."""

    function: Callable[[NDArray], Any]

    def weigh(self, distances: NDArray, metric: Metric) -> NDArray[np.float64]:
        """Return f(distances), checked; missing voters have weight 0."""
        weights = np.asarray(self.function(distances), dtype=np.float64)
        if weights.shape != distances.shape:
            raise InputError(
                f"weights(distances) returned shape {weights.shape} for distances of shape {distances.shape}; "
                "return one weight per distance"
            )
        weights = np.where(np.isfinite(distances), weights, 0.0)
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise InputError("weights(distances) returned a negative or infinite weight; return weights >= 0")
        return weights


VOTES: dict[str, Vote] = {"uniform": Uniform(), "distance": InverseDistance(), "similarity": Similarity()}


def pick_vote(weights: Any) -> Vote:
    """Return the rule with this name, or the rule of a function of the distances."""
    if callable(weights):
        return Custom(weights)
    if isinstance(weights, str) and weights in VOTES:
        return VOTES[weights]
    known = ", ".join(map(repr, VOTES))
    raise InputError(f"unknown weights {weights!r}; use one of {known}, or a function of the distances")


# Arguments of the kernel `count` that ask for no results of fewer than k neighbors.
_NO_SMALLER_K = np.empty(0, np.int64), np.empty((0, 0), np.int64), np.empty((0, 0))
BY_NEAREST = np.zeros(0, np.int64)  # no ranks: of tied classes, the class of the nearest voter wins


def _by_nearest(counts: NDArray) -> NDArray[np.int64]:
    return BY_NEAREST


def _by_label(counts: NDArray) -> NDArray[np.int64]:
    return np.arange(len(counts))


def _by_prior(counts: NDArray) -> NDArray[np.int64]:
    rank = np.empty(len(counts), np.int64)
    rank[prior_order(counts)] = np.arange(len(counts))
    return rank


TIES: dict[str, Callable[[NDArray], NDArray[np.int64]]] = {
    "nearest": _by_nearest,  # of tied classes, the class of the nearest voter wins
    "smallest": _by_label,  # the class with the smallest label
    "prior": _by_prior,  # the most frequent class in training
}


def pick_ties(ties: Any, counts: NDArray) -> NDArray[np.int64]:
    """Return the rank of each class (K,), from rows per class (K,).

    Of tied classes, the one with the lower rank wins. An empty array stands for the class of the nearest voter.
    """
    if not isinstance(ties, str) or ties not in TIES:
        raise InputError(f"unknown ties {ties!r}; use one of {', '.join(map(repr, TIES))}")
    return TIES[ties](counts)


def prior_order(counts: NDArray) -> NDArray[np.int64]:
    """Return the classes from the most to the least frequent, ties in the order of their labels."""
    return np.argsort(-np.asarray(counts, np.float64), kind="stable")


class CountedVotes(NamedTuple):
    """Classes voted for (q, m), best first, -1 pads, and their shares of the vote (q, m)."""

    classes: NDArray[np.int64]
    shares: NDArray[np.float64]


def count_votes(codes: NDArray[np.int64], weights: NDArray[np.float64], rank: NDArray[np.int64]) -> CountedVotes:
    """Add up the weights (q, k) of the voters' class codes (q, k); code -1 does not vote.

    >>> count_votes(np.array([[2, 0, 0]]), np.array([[1.0, 1.0, 1.0]]), np.zeros(0, np.int64)).classes
    array([[ 0,  2, -1]])
    """
    codes = np.ascontiguousarray(codes, dtype=np.int64)
    classes, totals = np.empty_like(codes), np.empty(codes.shape)
    count(codes, np.ascontiguousarray(weights, dtype=np.float64), rank, classes, totals, *_NO_SMALLER_K)
    shares = totals / _nonzero(totals.sum(axis=1, keepdims=True))
    return CountedVotes(classes, np.minimum.accumulate(shares, axis=1))  # totals that tie may differ by rounding


def shares_of(weights: NDArray[np.float64], is_voter: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return weights (q, k) scaled so that those of each query sum to 1; if all are zero, voters have equal weights."""
    weights = np.where(is_voter, weights, 0.0)
    totals = weights.sum(axis=1, keepdims=True)
    weights = np.where(totals > 0, weights, is_voter.astype(np.float64))
    return weights / _nonzero(weights.sum(axis=1, keepdims=True))


def take_weight(row_weights: NDArray[np.float64], k: int) -> NDArray[np.float64]:
    """Return the parts (q, m) of the weights of voters that count: nearest first, until they sum to k.

    >>> take_weight(np.array([[2.0, 0.5, 4.0, 1.0]]), 3)
    array([[2. , 0.5, 0.5, 0. ]])
    """
    before = np.cumsum(row_weights, axis=1) - row_weights
    return np.clip(k - before, 0.0, row_weights)


def best_classes_of_votes(votes: CountedVotes, k: int, counts: NDArray) -> CountedVotes:
    """Return the k best classes: those voted for, then the others at share 0, the most frequent first; counts (K,)."""
    q, m = votes.classes.shape
    if k <= m and (votes.classes[:, k - 1] >= 0).all():  # the usual case: there are votes for k classes
        return CountedVotes(votes.classes[:, :k], votes.shares[:, :k])
    order = prior_order(counts)
    classes, shares = np.full((q, k), -1, np.int64), np.zeros((q, k))
    classes[:, :m], shares[:, :m] = votes.classes[:, :k], votes.shares[:, :k]
    complete(classes, shares, order, min(m, k))
    return CountedVotes(classes, shares)


def dense(votes: CountedVotes, n_classes: int, dtype: Any) -> NDArray:
    """Return shares (q, K) whose argmax is the winner, which is larger than tied classes by one rounding unit."""
    shares = np.zeros((len(votes.classes), n_classes), dtype)
    rows, columns = np.nonzero(votes.classes >= 0)
    shares[rows, votes.classes[rows, columns]] = votes.shares[rows, columns]
    return lift_winners(shares, np.maximum(votes.classes[:, 0], 0))


def class_votes(class_weight: Any, classes: NDArray, counts: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the weight of a vote for each class (K,), None if all are the same.

    "balanced" is n / (K * rows of the class), as in scikit-learn.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise InputError(f"class_weight must be None, 'balanced' or a dict, got {class_weight!r}")
        return np.where(counts > 0, counts.sum() / (len(counts) * np.maximum(counts, 1e-300)), 0.0)
    if not isinstance(class_weight, dict):
        raise InputError(f"class_weight must be None, 'balanced' or a dict, got {type(class_weight).__name__}")
    votes = np.ones(len(classes))
    for label, weight in class_weight.items():
        if not at_least(0).allows(weight):
            raise InputError(f"class_weight of {label!r} must be a number >= 0, got {weight!r}")
        votes[classes == label] = weight
    return votes


def _nonzero(totals: NDArray) -> NDArray:
    return np.where(totals > 0, totals, 1.0)


class Ballot(NamedTuple):
    """The voters on each query: ids, class codes (-1: does not vote), shares of the vote and distances, (q, k) each."""

    ids: NDArray[np.int64]
    codes: NDArray[np.int64]
    shares: NDArray[np.float64]
    distances: NDArray


class WeightedVotes(NamedTuple):
    """Class codes of voters, -1 if they do not vote, and the weights of their votes, (q, k) each."""

    codes: NDArray[np.int64]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class VoterWeights:
    """Class codes of the rows that may vote, and what the weights of their votes depend on."""

    codes: NDArray[np.int64]  # (n,)
    metric: Metric
    class_votes: NDArray[np.float64] | None = None  # (K,) weight of a vote for each class; None: all the same
    max_distance: float | None = None
    parts: Callable[[NDArray[np.int64]], NDArray[np.float64]] | None = None  # ids (q, k) -> part that counts; None: 1

    def weigh(self, neighbors: Neighbors, vote: Any) -> WeightedVotes:
        """Return the class codes of neighbors, and the weights of their votes under a rule."""
        weights = pick_vote(vote).weigh(neighbors.distances, self.metric)
        is_voter = neighbors.ids >= 0
        if self.parts is not None:
            parts = self.parts(neighbors.ids)
            weights = weights * parts
            is_voter = is_voter & (parts > 0)
        if self.max_distance is not None:
            is_voter = is_voter & (neighbors.distances <= self.max_distance)
        codes = np.where(is_voter, self.codes[np.maximum(neighbors.ids, 0)], -1)
        if self.class_votes is not None:
            weights = weights * self.class_votes[np.maximum(codes, 0)]
        return WeightedVotes(codes, weights)

    def vote(self, neighbors: Neighbors, vote: Any) -> Ballot:
        """Return the ballot of neighbors under a rule."""
        codes, weights = self.weigh(neighbors, vote)
        return Ballot(neighbors.ids, codes, shares_of(weights, codes >= 0), neighbors.distances)


# ---- classifiers whose rows vote


class Voters(NamedTuple):
    """Training rows that vote (q, k), nearest first, -1 pads, and their shares of the vote (q, k)."""

    rows: NDArray[np.int64]
    shares: NDArray[np.float64]


class VotingClassifier(Classifier):
    """Base class of classifiers whose scores are shares of a vote; a class without a vote has share 0."""

    _rank: NDArray[np.int64] = BY_NEAREST  # ranks of the classes, which decide ties

    def _ballot(self, rows: Any) -> Ballot:
        """Return the voters on a block of checked rows."""
        raise NotImplementedError(f"{type(self).__name__} has no _ballot")

    def _class_counts(self) -> NDArray:
        """Return the training rows per class (K,), which order the classes without a vote."""
        raise NotImplementedError(f"{type(self).__name__} has no _class_counts")

    def _counted(self, ballot: Ballot) -> CountedVotes:
        return count_votes(ballot.codes, ballot.shares, self._rank)

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        counts = self._class_counts()
        ballots = (self._ballot(block) for block in self._blocks(rows, self._entries()))
        parts = [best_classes_of_votes(self._counted(ballot), k, counts) for ballot in ballots]
        return TopK(*parts[0]) if len(parts) == 1 else TopK(*map(np.concatenate, zip(*parts)))

    def _scores(self, rows: Any) -> NDArray:
        return dense(self._counted(self._ballot(rows)), len(self.classes_), self._answer_type(rows))

    def _whole_ballot(self, X: Any) -> Ballot:
        """Return the ballot of all rows of X."""
        parts = (self._ballot(block) for block in self._blocks(self._rows(X), self._entries()))
        return Ballot(*map(np.concatenate, zip(*parts)))

    @reads
    def voters(self, X: Any) -> Voters:
        """Return the training rows that vote on each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Queries.

        Returns
        -------
        Voters
            Positions of the training rows, best first, -1 pads, and their shares of the vote, (n_queries, k) each.
        """
        ballot = self._whole_ballot(X)
        return Voters(np.where(ballot.codes >= 0, ballot.ids, -1), ballot.shares)


class Explanation(NamedTuple):
    """Predictions and the rows that voted for them.

    Attributes
    ----------
    labels : ndarray of shape (n_queries,)
        Predictions, as of `predict`.
    classes, probabilities : ndarray of shape (n_queries, m)
        Best classes, winner first, and their shares of the vote.
    voters, voter_labels : ndarray of shape (n_queries, k)
        Positions of the voters in the training data, nearest first, -1 pads, and their labels.
    weights, distances : ndarray of shape (n_queries, k)
        Share of the vote, and distance, of each voter.
    runner_up : ndarray of shape (n_queries,)
        Second class.
    gap : ndarray of shape (n_queries,)
        Share of the winner minus that of the runner-up.
    """

    labels: NDArray
    classes: NDArray
    probabilities: NDArray
    voters: NDArray[np.int64]
    voter_labels: NDArray
    weights: NDArray[np.float64]
    distances: NDArray
    runner_up: NDArray
    gap: NDArray[np.float64]

    def _table(self) -> Table:
        columns = ("label", "share", "runner-up", "voters, nearest first: row label (distance)")
        title = f"Explanation: {len(self.labels):,} rows, {self.voters.shape[1]:,} voters each"

        def cells(i: int) -> tuple[Any, ...]:
            return self.labels[i], short_number(self.probabilities[i, 0]), self.runner_up[i], self._list_voters(i)

        return first_rows(title, len(self.labels), columns, cells)

    def _list_voters(self, i: int, n_listed: int = 3) -> str:
        voters = zip(self.voters[i, :n_listed], self.voter_labels[i], self.distances[i])
        return ", ".join(f"{row} {label} ({short_number(far)})" for row, label, far in voters if row >= 0)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()
