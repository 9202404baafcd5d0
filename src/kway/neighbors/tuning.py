"""Scores of every k and every vote of a kNN classifier on the folds of a cross-validation, from one search.

Each row searches all rows once, for a few more than k_max neighbors. Rows of its own fold are dropped from the result.
The others are its nearest rows outside the fold, in order. If fewer than k_max remain, the search is repeated with more
neighbors. One pass of the classifier's vote kernel gives the votes of k = 1..k_max. Leave-one-out is one fold per row.
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
from kway.measures import class_scores, log_losses
from kway.memory import rows_per_block
from kway.neighbors.votes import VoterWeights, class_votes, pick_ties
from kway.search.auto import choose
from kway.search.metrics import Metric, pick_metric
from kway.search.results import Neighbors
from kway.threads import pmap, shares, spans
from kway.validation import Rows, checked, plain_rows


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
        """Setting with the highest mean accuracy; ties go to the first vote, then to the smallest k."""
        mean = self.accuracy.mean(axis=0)  # (votes, k_max)
        vote, k = np.unravel_index(int(mean.argmax()), mean.shape)
        return Best(int(k) + 1, self.votes[vote], float(mean[vote, k]))

    def records(self) -> list[dict[str, Any]]:
        """Return one record per vote, k and fold."""
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
    """Score k = 1..k_max under each vote on each fold.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
        Rows.
    codes : ndarray of shape (n_samples,)
        Class codes 0..K-1.
    folds : ndarray of shape (n_samples,) or None
        Fold of each row, 0..F-1; None leaves one row out at a time.
    k_max : int, default=50
        Largest number of neighbors.
    votes : tuple of str, default=("uniform", "distance")
        Values of `weights` of NeighborsClassifier.
    metric, ties, class_weight
        As in NeighborsClassifier; class weights come from the rows of all folds.

    Returns
    -------
    Sweep
        Accuracy, log loss, balanced accuracy and macro F1 of shape (folds, votes, k_max).
    """
    X = plain_rows(X, sparse=True)
    metric, own_fold = pick_metric(metric), np.arange(X.shape[0]) if folds is None else np.asarray(folds)
    outside = X.shape[0] - np.bincount(own_fold).max()
    if not 1 <= k_max <= outside:
        raise InputError(f"k_max must be between 1 and {outside}, the rows outside the largest fold, got {k_max}")
    neighbors = OutsideSearch(X, own_fold, k_max, metric).nearest()
    groups = np.zeros(len(own_fold), np.int64) if folds is None else own_fold
    electors = Electors(codes, tuple(votes), metric, ties, class_weight)
    return score_every_k(neighbors, codes, groups, electors)


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
    voters, weights = electors.voters.weigh(neighbors, vote)
    winners, true_shares = np.empty(voters.shape, np.int64), np.empty(voters.shape)

    def work(part: slice) -> None:
        classes, totals = np.empty_like(winners[part]), np.empty_like(true_shares[part])
        count(
            voters[part], weights[part], electors.rank(), classes, totals, codes[part], winners[part],
            true_shares[part],
        )  # fmt: skip

    pmap(work, shares(len(voters)))
    return Votes(winners, log_losses(true_shares))


def score_every_k(
    neighbors: Neighbors, codes: NDArray[np.int64], groups: NDArray[np.int64], electors: Electors
) -> Sweep:
    """Return the scores of queries with class codes (q,) in groups (q,) 0..G-1, from their nearest rows (q, k_max)."""
    scores = []
    for vote in electors.votes:
        winners, losses = votes_of_every_k(neighbors, codes, electors, vote)
        members = (groups == g for g in range(groups.max() + 1))
        scores.append([_fold_scores(codes[rows], winners[rows], losses[rows]) for rows in members])
    return Sweep(electors.votes, *np.moveaxis(np.array(scores), (2, 1, 0), (0, 1, 2)))  # from (votes, groups, 4, k)


class OutsideSearch:
    """An index of all rows, in which a row searches for its nearest rows outside its fold; fold -1 has no queries."""

    def __init__(self, X: Rows, folds: NDArray[np.int64], k: int, metric: str | Metric) -> None:
        self.metric = pick_metric(metric)
        self._X, self._folds, self._k = plain_rows(X, sparse=True), folds, k
        n, d = self._X.shape
        self._index = choose(n, d, self.metric, sp.issparse(self._X)).recipe.build(checked(self._X), self.metric)

    def nearest(self, rows: NDArray[np.int64] | None = None) -> Neighbors:
        """Return the k nearest rows outside its fold (q, k) of each of the rows at positions (q,); None for all."""
        n, k = len(self._folds), self._k
        rows = np.arange(n) if rows is None else rows
        ids, distances = np.empty((len(rows), k), np.int64), np.empty((len(rows), k))
        share = np.bincount(self._folds[self._folds >= 0]).max() / n
        # about `share` of the neighbors are in the same fold; three standard deviations more, so that few are too few
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


def _fold_scores(codes: NDArray, winners: NDArray, losses: NDArray) -> list[NDArray]:
    """Return accuracy, log loss, balanced accuracy and macro F1 of the rows of a fold, (k_max,) each."""
    return [(winners == codes[:, None]).mean(axis=0), losses.mean(axis=0), *class_scores(codes, winners)]
