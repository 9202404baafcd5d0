"""VotingClassifier: rows that were learned from vote on the class of a query; their shares are the scores.

score(c) = probability(c) = share of the vote that went to c, of the best k rows only: never n x K on the way
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.base import Classifier
from kway.neighbors.votes import CountedVotes, dense, filled_up
from kway.search.index import TopK


class Voters(NamedTuple):
    """Training rows (q, k), nearest first, -1 where there is none, and their shares of the vote (q, k)."""

    rows: NDArray[np.int64]
    shares: NDArray[np.float64]


class VotingClassifier(Classifier):
    """Base of the classifiers whose scores are shares of a vote; a class without a vote has share 0."""

    def _count(self, rows: Any) -> CountedVotes:
        """The votes on a block of checked rows."""
        raise NotImplementedError(f"{type(self).__name__} has no _count")

    def _class_counts(self) -> NDArray:
        """Training rows a class (K,): classes without a vote are listed from the most frequent on."""
        raise NotImplementedError(f"{type(self).__name__} has no _class_counts")

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        return TopK(*filled_up(self._count(rows), k, self._class_counts()))

    def _scores(self, rows: Any) -> NDArray:
        return dense(self._count(rows), len(self.classes_), self._answer_type(rows))
