"""Every k and every vote of a kNN classifier, on all folds or some, from ONE search.

Each row asks for its nearest among all rows, once, for a few more than k_max; rows of its own fold are struck from
the list, and what is left are its nearest outside the fold, in order. Where too few are left the row asks again for
more. The votes of k = 1..k_max come from one pass over that list. Leave-one-out is a fold a row.

    accuracy (folds, votes, k_max), log_loss, balanced and macro_f1 likewise
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.kernels.voting.votes import count
from kway.measures import class_scores, log_losses
from kway.neighbors.votes import VoterWeights, Weighed, class_votes, count_votes, dense, pick_ties
from kway.search.auto import choose
from kway.search.metrics import Metric, pick_metric
from kway.search.results import Neighbors
from kway.threads import pmap, shares, spans
from kway.validation import Rows, checked, plain_rows

_GROUP = 8192  # rows asked for at a time, so that memory does not grow with n


class Best(NamedTuple):
    """The best k and vote of a sweep, and their mean accuracy over the folds."""

    n_neighbors: int
    weights: str
    accuracy: float


@dataclass(frozen=True)
class Sweep:
    """Scores of every k = 1..k_max (last axis) and vote (middle axis) on every fold (first axis)."""

    votes: tuple[str, ...]
    accuracy: NDArray[np.float64]  # (folds, votes, k_max)
    log_loss: NDArray[np.float64]  # (folds, votes, k_max)
    balanced: NDArray[np.float64]  # (folds, votes, k_max)
    macro_f1: NDArray[np.float64]  # (folds, votes, k_max)

    @property
    def best(self) -> Best:
        """Highest mean accuracy; among equals the vote named first, then the smallest k."""
        mean = self.accuracy.mean(axis=0)  # (votes, k_max)
        vote, k = np.unravel_index(int(mean.argmax()), mean.shape)
        return Best(int(k) + 1, self.votes[vote], float(mean[vote, k]))

    def records(self) -> list[dict[str, Any]]:
        """One plain record a vote, k and fold."""
        return [
            {"weights": vote, "n_neighbors": k + 1, "fold": fold, "accuracy": float(self.accuracy[fold, v, k]),
             "log_loss": float(self.log_loss[fold, v, k])}
            for fold in range(self.accuracy.shape[0]) for v, vote in enumerate(self.votes)
            for k in range(self.accuracy.shape[2])
        ]  # fmt: skip


def sweep(
    X: Rows,
    codes: NDArray[np.int64],
    folds: NDArray[np.int64] | None,
    k_max: int = 50,
    votes: tuple[str, ...] = ("uniform", "distance"),
    metric: str | Metric = "euclidean",
    ties: str = "nearest",
    class_weight: Any = None,
) -> Sweep:
    """Score k = 1..k_max under each vote on each fold; folds (n,) numbers 0..F-1, None leaves one out at a time.

    `class_weight` as in NeighborsClassifier, from the rows of all folds.
    """
    X = plain_rows(X, sparse=True)
    metric, own_fold = pick_metric(metric), np.arange(X.shape[0]) if folds is None else np.asarray(folds)
    outside = X.shape[0] - np.bincount(own_fold).max()
    if not 1 <= k_max <= outside:
        raise InputError(f"k_max must be between 1 and the {outside} rows outside the largest fold, got {k_max}")
    found = OutsideSearch(X, own_fold, k_max, metric).nearest()
    groups = np.zeros(len(own_fold), np.int64) if folds is None else own_fold
    electors = Electors(codes, tuple(votes), metric, ties, class_weight)
    return score_every_k(found, codes, groups, electors)


@dataclass(frozen=True)
class Electors:
    """Rows that may vote, by their class codes (n,), and how they do."""

    codes: NDArray[np.int64]
    votes: tuple[str, ...]
    metric: Metric
    ties: str = "nearest"
    class_weight: Any = None

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Rows of each class (K,)."""
        return np.bincount(self.codes)

    def rank(self) -> NDArray[np.int64]:
        """The order of classes that drew."""
        return pick_ties(self.ties, self.counts)

    @cached_property
    def voters(self) -> VoterWeights:
        """What votes count, as in NeighborsClassifier."""
        heavier = class_votes(self.class_weight, np.arange(len(self.counts)), self.counts.astype(np.float64))
        return VoterWeights(self.codes, self.metric, heavier)

    def weigh(self, found: Neighbors, vote: str) -> Weighed:
        """Class codes of those found, and what their votes weigh, (q, k) each."""
        return self.voters.weigh(found, vote)


def vote_shares(found: Neighbors, electors: Electors, n_neighbors: int, vote: str) -> NDArray[np.float64]:
    """The share of the vote of each class (q, K), cast by the nearest n_neighbors of those found."""
    nearest = Neighbors(found.ids[:, :n_neighbors], found.distances[:, :n_neighbors])
    ballot = electors.voters.vote(nearest, vote)
    return dense(count_votes(ballot.codes, ballot.shares, electors.rank()), len(electors.counts), np.float64)


def score_every_k(found: Neighbors, codes: NDArray[np.int64], groups: NDArray[np.int64], electors: Electors) -> Sweep:
    """Scores of queries with class codes (q,) in groups (q,), 0..G-1, whose nearest electors were found (q, k_max)."""
    scores = []
    for vote in electors.votes:
        winners, losses = _votes_of_every_k(codes, *electors.weigh(found, vote), electors.rank())
        every_group = (groups == g for g in range(groups.max() + 1))
        scores.append([_fold_scores(codes[own], winners[own], losses[own]) for own in every_group])
    # (votes, groups, 4, k) before
    return Sweep(electors.votes, *np.moveaxis(np.array(scores), (2, 1, 0), (0, 1, 2)))


class OutsideSearch:
    """One index of all rows, in which rows of any fold find their nearest among the rows of other folds."""

    def __init__(self, X: Rows, folds: NDArray[np.int64], k: int, metric: str | Metric) -> None:
        self.metric = pick_metric(metric)
        self._X, self._folds, self._k = plain_rows(X, sparse=True), folds, k
        n, d = self._X.shape
        self._index = choose(n, d, self.metric, sp.issparse(self._X)).recipe.build(checked(self._X), self.metric)

    def nearest(self, asked: NDArray[np.int64] | None = None) -> Neighbors:
        """The k nearest outside its fold of each row asked for by number (q,), by default of all: (q, k)."""
        n, k = len(self._folds), self._k
        asked = np.arange(n) if asked is None else asked
        ids, distances = np.empty((len(asked), k), np.int64), np.empty((len(asked), k))
        share = np.bincount(self._folds).max() / n
        # of those nearest, about `share` are of the own fold: three standard deviations more, and few ask again
        wanted = min(n, int((k + 3 * np.sqrt(k * share)) / (1 - share)) + 2)
        for group in spans(len(asked), _GROUP):
            places, ask = np.arange(group.start, group.stop), wanted
            while len(places):
                rows = asked[places]
                found = self._index.nearest(checked(self._X[rows]), ask)
                outside = self._folds[found.ids] != self._folds[rows][:, None]  # (m, ask)
                place = np.cumsum(outside, axis=1)
                done = place[:, -1] >= k
                keep = outside & (place <= k)
                keep[~done] = False
                ids[places[done]] = found.ids[keep].reshape(-1, k)
                distances[places[done]] = found.distances[keep].reshape(-1, k)
                places, ask = places[~done], min(n, 2 * ask)
        return Neighbors(ids, distances)


def _votes_of_every_k(codes: NDArray, voters: NDArray, weights: NDArray, rank: NDArray) -> tuple[NDArray, NDArray]:
    """The class that wins each row (n, k), and the row's log loss (n, k), for every k."""
    winners, own_shares = np.empty(voters.shape, np.int64), np.empty(voters.shape)

    def part(s: slice) -> None:
        listed = np.empty_like(winners[s]), np.empty_like(own_shares[s])
        count(voters[s], weights[s], rank, *listed, codes[s], winners[s], own_shares[s])

    pmap(part, shares(len(voters)))
    return winners, log_losses(own_shares)


def _fold_scores(codes: NDArray, winners: NDArray, losses: NDArray) -> list[NDArray]:
    """Accuracy, log loss, balanced accuracy and macro F1 (k,) each of the rows of a fold."""
    return [(winners == codes[:, None]).mean(axis=0), losses.mean(axis=0), *class_scores(codes, winners)]
