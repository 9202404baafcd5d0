"""Scores of every k and every vote of a kNN classifier, on all folds or some, from one search.

Each row searches all rows once, for a few more than k_max neighbors. Rows of its own fold are dropped from the list.
The rest are its nearest rows outside the fold, in order. If too few are left, the row searches again for more. One pass
of the classifier's vote kernel over the list gives the votes of k = 1..k_max. Leave-one-out is one fold per row.

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
    """Best k and vote of a sweep, and their mean accuracy over the folds."""

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
        """Setting of the highest mean accuracy; ties go to the vote named first, then to the smallest k."""
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
    found = OutsideSearch(X, own_fold, k_max, metric).nearest()
    groups = np.zeros(len(own_fold), np.int64) if folds is None else own_fold
    electors = Electors(codes, tuple(votes), metric, ties, class_weight)
    return score_every_k(found, codes, groups, electors)


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
        """Return the rank of classes in a tie."""
        return pick_ties(self.ties, self.counts)

    @cached_property
    def voters(self) -> VoterWeights:
        """Weights of votes, as in NeighborsClassifier."""
        heavier = class_votes(self.class_weight, np.arange(len(self.counts)), self.counts.astype(np.float64))
        return VoterWeights(self.codes, self.metric, heavier)


class Votes(NamedTuple):
    """The winning class and the log loss of each query for every k, (q, k_max) each."""

    winners: NDArray[np.int64]
    losses: NDArray[np.float64]


def votes_of_every_k(found: Neighbors, codes: NDArray[np.int64], electors: Electors, vote: str) -> Votes:
    """Count a vote for every k among the nearest rows (q, k_max) of queries with class codes (q,)."""
    voters, weights = electors.voters.weigh(found, vote)
    winners, own_shares = np.empty(voters.shape, np.int64), np.empty(voters.shape)

    def part(s: slice) -> None:
        listed = np.empty_like(winners[s]), np.empty_like(own_shares[s])
        count(voters[s], weights[s], electors.rank(), *listed, codes[s], winners[s], own_shares[s])

    pmap(part, shares(len(voters)))
    return Votes(winners, log_losses(own_shares))


def score_every_k(found: Neighbors, codes: NDArray[np.int64], groups: NDArray[np.int64], electors: Electors) -> Sweep:
    """Return the scores of queries with class codes (q,) in groups (q,) 0..G-1, given their nearest rows (q, k_max)."""
    scores = []
    for vote in electors.votes:
        winners, losses = votes_of_every_k(found, codes, electors, vote)
        every_group = (groups == g for g in range(groups.max() + 1))
        scores.append([_fold_scores(codes[own], winners[own], losses[own]) for own in every_group])
    return Sweep(electors.votes, *np.moveaxis(np.array(scores), (2, 1, 0), (0, 1, 2)))  # from (votes, groups, 4, k)


class OutsideSearch:
    """One index of all rows, in which every row finds its nearest rows of other folds."""

    def __init__(self, X: Rows, folds: NDArray[np.int64], k: int, metric: str | Metric) -> None:
        self.metric = pick_metric(metric)
        self._X, self._folds, self._k = plain_rows(X, sparse=True), folds, k
        n, d = self._X.shape
        self._index = choose(n, d, self.metric, sp.issparse(self._X)).recipe.build(checked(self._X), self.metric)

    def nearest(self, asked: NDArray[np.int64] | None = None) -> Neighbors:
        """Return the k nearest rows outside its fold (q, k) of each row of `asked` (q,), by default of all rows."""
        n, k = len(self._folds), self._k
        asked = np.arange(n) if asked is None else asked
        ids, distances = np.empty((len(asked), k), np.int64), np.empty((len(asked), k))
        share = np.bincount(self._folds).max() / n
        # about `share` of the nearest are of the own fold: with three standard deviations more, few search again
        wanted = min(n, int((k + 3 * np.sqrt(k * share)) / (1 - share)) + 2)
        for group in spans(len(asked), rows_per_block(64 * wanted)):  # ids, distances, folds and places of each
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


def _fold_scores(codes: NDArray, winners: NDArray, losses: NDArray) -> list[NDArray]:
    """Return accuracy, log loss, balanced accuracy and macro F1 of the rows of a fold, (k,) each."""
    return [(winners == codes[:, None]).mean(axis=0), losses.mean(axis=0), *class_scores(codes, winners)]
