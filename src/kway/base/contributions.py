"""Contributions: how much each column moved the score of a class, row by row.

    score_c(x) = baseline + sum_j values_j

A family that implements `_contributions(rows, codes)` has `explain`, which returns them:

    trees            path-dependent TreeSHAP (trees/nodes.py)
    linear           w_cj x_j, exactly. The baseline is the bias, so a column that is 0 contributes nothing
    any score        sampled Shapley values of `shapley`
    a blend          the weighted sum of its members

The score of a class is that of `decision_function`. Two classes have one score, for the second class; the score of the
first class is minus that score. These classifiers have other scores:

    TreesClassifier("extra"), two classes       the probability of the class
    LeastSquaresClassifier(targets="number")    2 c f - c^2, with the number c of the class and the fitted number f; for
                                                two classes, the difference between the class and the other one
    TemperatureScaledClassifier                 the score of the classifier inside, before the division by T
    BlendClassifier, three or more classes      the weighted sum of the log-scores of its members, which is the score
                                                plus a number per row that is the same for all classes

Shapley values compare a row x with background rows b, a sample of the training rows. Walk from b to x: the columns take
the values of x one after another, in a random order, and each column gets the change of the score. v_j is the mean over
background rows and orders. Along one walk, the changes sum to f(x) - f(b), so the sum is exact for any sample. Each
order is also walked backwards, which cancels most of the sampling error between pairs of columns [1]_.

References
----------
.. [1] R. Mitchell, J. Cooper, E. Frank and G. Holmes (2022), Sampling permutations for Shapley value estimation. JMLR.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway import memory
from kway.memory import CACHE_BYTES, rows_per_block
from kway.rows.blocks import count_rows, take_rows
from kway.text_tables import Printed, Table, first_rows, short_number
from kway.threads import spans

# Background rows of Shapley values. A row has two walks per background row; tests/base/test_contributions.py bounds the
# sampling error.
BACKGROUND_ROWS = 32
STRONGEST = ("moved most by", "then by", "and by")  # columns of a printed table

Score = Callable[[Any, NDArray[np.int64]], NDArray]  # rows (m, d) and class codes (m,) -> scores (m,)


class Parts(NamedTuple):
    """Contributions without labels and names: values (n, d), dense or CSR, and baseline (n,), in float64."""

    values: Any
    baseline: NDArray[np.float64]

    def times(self, factor: float) -> Parts:
        """Return the parts of a multiple of the score."""
        return Parts(self.values * factor, self.baseline * factor)

    def grouped(self, sources: NDArray[np.int64], width: int) -> Parts:
        """Return dense values (n, width), in which column j is the sum of the columns whose source is j."""
        check_room(len(self.baseline), width)
        member = sp.csr_matrix((np.ones(len(sources)), (np.arange(len(sources)), sources)), (len(sources), width))
        summed = self.values @ member
        return Parts(summed.toarray() if sp.issparse(summed) else summed, self.baseline)


@dataclass(frozen=True, eq=False, repr=False)
class Contributions(Printed):
    """How much each column moved the score of a class, row by row; it prints as a table.

    Attributes
    ----------
    labels : ndarray of shape (n_samples,)
        The class that is explained, by default the predicted one.
    values : ndarray or csr_matrix of shape (n_samples, n_features)
        Contributions of the columns; sparse if the rows are sparse.
    baseline : ndarray of shape (n_samples,)
        The part of the score that no column contributes.
    names : tuple of str, or None
        Names of the columns, if they are known.
    """

    labels: NDArray
    values: Any
    baseline: NDArray[np.float64]
    names: tuple[str, ...] | None = None

    @property
    def scores(self) -> NDArray[np.float64]:
        """Scores (n,): the baseline plus the contributions of all columns."""
        return self.baseline + np.asarray(self.values.sum(axis=1)).ravel()

    def name(self, column: int) -> str:
        """Return the name of a column, or its number if it has none."""
        return str(column) if self.names is None else self.names[column]

    def named(self, names: Sequence[str] | None) -> Contributions:
        """Return the same contributions with names of the columns, or without if they are not known."""
        return replace(self, names=None if names is None else tuple(map(str, names)))

    def _table(self) -> Table:
        def cells(i: int) -> tuple[Any, ...]:
            return self.labels[i], short_number(scores[i]), short_number(self.baseline[i]), *self._strongest(i)

        strongest = STRONGEST[: self.values.shape[1]]
        scores, columns = self.scores, ("label", "score", "baseline", *strongest)
        return first_rows(f"Contributions: {len(self.labels):,} rows", len(self.labels), columns, cells)

    def _strongest(self, i: int) -> list[str]:
        row = self.values[i].toarray()[0] if sp.issparse(self.values) else self.values[i]
        best = np.argsort(-np.abs(row), kind="stable")[: len(STRONGEST)]
        return [f"{self.name(j)} {row[j]:+.3g}" for j in best]


def check_room(n: int, n_columns: int) -> None:
    """Raise BudgetError before contributions (n, n_columns) are allocated that do not fit."""
    memory.check_room(8 * n * n_columns, f"explain of {n:,} rows x {n_columns:,} columns", "pass fewer rows")


def pick_scores(scores: NDArray, codes: NDArray[np.int64]) -> NDArray:
    """Return the score of one class per row from scores (n, R), where R = 1 is the score of the second of two classes.

    >>> pick_scores(np.array([[2.0], [3.0]]), np.array([0, 1]))
    array([-2.,  3.])
    """
    if scores.shape[1] == 1:
        return np.where(codes == 1, scores[:, 0], -scores[:, 0])
    return scores[np.arange(len(scores)), codes]


def background_sample(rows: Any, seed: int = 0) -> Any:
    """Return at most BACKGROUND_ROWS of the rows, in any form, drawn at random."""
    drawn = np.random.default_rng(seed).permutation(count_rows(rows))[:BACKGROUND_ROWS]
    return take_rows(rows, np.sort(drawn))


def shapley(
    score: Score,
    rows: NDArray,
    codes: NDArray[np.int64],
    background: NDArray,
    sources: NDArray[np.int64] | None = None,
    orders: int = 1,
    seed: int = 0,
) -> Parts:
    """Return sampled Shapley values of the scores of rows (n, d) against background rows (m, d).

    Columns with the same number in `sources` (d,) move together and count as one column. Each background row gets
    `orders` random orders, each of which is walked forwards and backwards; they are the same for every row.
    """
    sources = np.arange(rows.shape[1]) if sources is None else sources
    width = int(sources.max()) + 1
    check_room(len(rows), width)
    forwards = np.random.default_rng(seed).permuted(np.tile(np.arange(width), (orders * len(background), 1)), axis=1)
    step = np.concatenate([forwards, width - 1 - forwards])  # (walks, width): when a column takes the value of the row
    starts = np.tile(background, (2 * orders, 1))  # (walks, d)
    values, baseline = np.empty((len(rows), width)), np.empty(len(rows))
    for block in spans(len(rows), rows_per_block(len(step) * (width + 1) * rows[:1].nbytes, CACHE_BYTES)):
        f = _walk(score, rows[block], codes[block], starts, step, sources)  # (rows, walks, width + 1)
        values[block] = np.take_along_axis(np.diff(f, axis=2), step[None], axis=2).mean(axis=1)
        baseline[block] = f[:, :, 0].mean(axis=1)
    return Parts(values, baseline)


def _walk(
    score: Score, rows: NDArray, codes: NDArray[np.int64], starts: NDArray, step: NDArray, sources: NDArray
) -> NDArray[np.float64]:
    """Return the scores along all walks to the given rows, (rows, walks, width + 1)."""
    shape = (len(rows), len(step), step.shape[1] + 1)
    f = np.empty(int(np.prod(shape)))
    for block in spans(len(f), rows_per_block(rows[:1].nbytes, CACHE_BYTES)):
        row, walk, n_changed = np.unravel_index(np.arange(block.start, block.stop), shape)
        changed = (
            step[walk[:, None], sources] < n_changed[:, None]
        )  # (m, d): the columns that have the value of the row
        f[block] = score(np.where(changed, rows[row], starts[walk]), codes[row])
    return f.reshape(shape)
