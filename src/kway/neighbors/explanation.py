"""Explanation: what `NeighborsClassifier.explain` says of each row, and how it prints."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.tables import Table, first_rows, short_number

_VOTERS_SHOWN = 3


class Explanation(NamedTuple):
    """One prediction a row, and who made it; (q,) and (q, k) arrays, nearest voter first."""

    labels: NDArray  # (q,) as `predict`
    classes: NDArray  # (q, m) the best classes, winner first
    probabilities: NDArray  # (q, m) their shares of the vote
    voters: NDArray[np.int64]  # (q, k) rows of the training data, -1 where there was none
    voter_labels: NDArray  # (q, k)
    weights: NDArray[np.float64]  # (q, k) share of the vote that each voter cast
    distances: NDArray  # (q, k)
    runner_up: NDArray  # (q,) the second class
    gap: NDArray[np.float64]  # (q,) by how much of the vote it was beaten

    def _table(self) -> Table:
        columns = ("label", "share", "runner-up", "voters, nearest first: row label (distance)")
        title = f"Explanation: {len(self.labels):,} rows, {self.voters.shape[1]:,} voters each"
        told = lambda i: (  # noqa: E731
            self.labels[i], short_number(self.probabilities[i, 0]), self.runner_up[i], self._voters_of(i)
        )  # fmt: skip
        return first_rows(title, len(self.labels), columns, told)

    def _voters_of(self, i: int) -> str:
        some = zip(self.voters[i, :_VOTERS_SHOWN], self.voter_labels[i], self.distances[i])
        return ", ".join(f"{row} {label} ({short_number(far)})" for row, label, far in some if row >= 0)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()
