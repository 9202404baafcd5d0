"""Votes of every k and every rule of a kNN classifier on the folds of a cross-validation, from one search.

Each row searches all rows once, for a few more than k_max neighbors. Rows of its own fold are dropped from the result.
The others are its nearest rows outside the fold, in order. If fewer than k_max remain, the search is repeated with more
neighbors. One pass of the classifier's vote kernel gives the votes of k = 1..k_max.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import InputError
from kway.kernels.votes import count
from kway.measures import log_losses
from kway.memory import rows_per_block
from kway.neighbors.votes import VoterWeights, class_votes, pick_ties
from kway.search.auto import choose
from kway.search.metrics import Metric, pick_metric
from kway.search.results import Neighbors
from kway.threads import pmap, shares, spans
from kway.validation import Rows, checked, plain_rows


def sweep(
    X: Rows,
    codes: NDArray[np.int64],
    folds: NDArray[np.int64],
    k_max: int = 50,
    votes: tuple[str, ...] = ("uniform", "distance"),
    metric: str | Metric = "euclidean",
    ties: str = "nearest",
) -> NDArray[np.float64]:
    """Return the accuracy (folds, votes, k_max) of k = 1..k_max under each vote on each fold.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
        Rows.
    codes : ndarray of shape (n_samples,)
        Class codes 0..K-1.
    folds : ndarray of shape (n_samples,)
        Fold of each row, 0..F-1; one fold per row is leave-one-out.
    k_max : int, default=50
        Largest number of neighbors.
    votes : tuple of str, default=("uniform", "distance")
        Values of `weights` of NeighborsClassifier.
    metric, ties
        As in NeighborsClassifier.

    Returns
    -------
    ndarray of shape (folds, votes, k_max)
        The accuracies.
    """
    sizes = np.bincount(folds)
    metric = pick_metric(metric)
    neighbors, electors = OutsideSearch(X, folds, k_max, metric).nearest(), Electors(codes, votes, metric, ties)
    accuracy = np.empty((len(sizes), len(votes), k_max))
    for v, vote in enumerate(votes):
        is_right = votes_of_every_k(neighbors, codes, electors, vote).winners == codes[:, None]  # (n, k_max)
        accuracy[:, v] = [is_right[folds == fold].mean(axis=0) for fold in range(len(sizes))]
    return accuracy


@dataclass(frozen=True)
class Electors:
    """Class codes (n,) of the rows that may vote, and the votes and tie rule to score."""

    codes: NDArray[np.int64]
    votes: tuple[str, ...]
    metric: Metric
    ties: str = "nearest"
    class_weight: Any = None

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of rows per class (K,)."""
        return np.bincount(self.codes)

    def rank(self) -> NDArray[np.int64]:
        """Return the rank of each class, which decides ties."""
        return pick_ties(self.ties, self.counts)

    @cached_property
    def voters(self) -> VoterWeights:
        """Weights of votes, as in NeighborsClassifier."""
        weights = class_votes(self.class_weight, np.arange(len(self.counts)), self.counts.astype(np.float64))
        return VoterWeights(self.codes, self.metric, weights)


class Votes(NamedTuple):
    """The winning class and the log loss of each query for every k, (q, k_max) each."""

    winners: NDArray[np.int64]
    losses: NDArray[np.float64]


def votes_of_every_k(neighbors: Neighbors, codes: NDArray[np.int64], electors: Electors, vote: str) -> Votes:
    """Count a vote for every k among the nearest rows (q, k_max) of queries with class codes (q,)."""
    voter_codes, weights = electors.voters.weigh(neighbors, vote)
    winners, true_shares = np.empty(voter_codes.shape, np.int64), np.empty(voter_codes.shape)

    def work(part: slice) -> None:
        classes, totals = np.empty_like(winners[part]), np.empty_like(true_shares[part])
        count(
            voter_codes[part], weights[part], electors.rank(), classes, totals, codes[part], winners[part],
            true_shares[part],
        )  # fmt: skip

    pmap(work, shares(len(voter_codes)))
    return Votes(winners, log_losses(true_shares))


class OutsideSearch:
    """An index of all rows, in which a row searches for its nearest rows outside its fold; fold -1 has no queries."""

    def __init__(self, X: Rows, folds: NDArray[np.int64], k: int, metric: Metric) -> None:
        self._largest_fold = np.bincount(folds[folds >= 0]).max()
        outside = len(folds) - self._largest_fold
        if not 1 <= k <= outside:
            raise InputError(f"k_max must be between 1 and {outside}, the rows outside the largest fold, got {k}")
        self._X, self._folds, self._k = plain_rows(X, sparse=True), folds, k
        n, d = self._X.shape
        self._index = choose(n, d, metric, sp.issparse(self._X)).recipe.build(checked(self._X), metric)

    def nearest(self, rows: NDArray[np.int64] | None = None) -> Neighbors:
        """Return the k nearest rows outside its fold (q, k) of each of the rows at positions (q,); None for all."""
        n, k = len(self._folds), self._k
        rows = np.arange(n) if rows is None else rows
        ids, distances = np.empty((len(rows), k), np.int64), np.empty((len(rows), k))
        share = self._largest_fold / n
        # about `share` of the neighbors are in the same fold, plus three standard deviations, so that few searches must
        # be repeated
        first_search = min(n, int((k + 3 * np.sqrt(k * share)) / (1 - share)) + 2)
        for block in spans(len(rows), rows_per_block(64 * first_search)):
            remaining, n_search = np.arange(block.start, block.stop), first_search
            while len(remaining):
                queries = rows[remaining]
                neighbors = self._index.nearest(checked(self._X[queries]), n_search)
                outside = self._folds[neighbors.ids] != self._folds[queries][:, None]  # (m, n_search)
                n_outside = np.cumsum(outside, axis=1)
                done = n_outside[:, -1] >= k
                keep = outside & (n_outside <= k)
                keep[~done] = False
                ids[remaining[done]] = neighbors.ids[keep].reshape(-1, k)
                distances[remaining[done]] = neighbors.distances[keep].reshape(-1, k)
                remaining, n_search = remaining[~done], min(n, 2 * n_search)
        return Neighbors(ids, distances)
