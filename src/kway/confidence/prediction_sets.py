"""Prediction sets: how unlikely a class is as the label of a row, ranked lists as long as needed, and the sets.

Nonconformity scores; p are the probabilities of a row, largest first:

    LAC   s_c = 1 - p_c                                                    the smallest sets on average
    APS   s_c = sum of p_j > p_c  +  u * sum of p_j = p_c,  u ~ U(0, 1)    sets that grow with the row's difficulty

u is drawn once per row. Classes of equal probability (votes of neighbors) share one score, so their order in the list
does not matter. Both scores work on lists (q, k) of the best classes. k doubles for the rows whose set is not complete:
rows go in blocks, and an n x K table is never built.

References
----------
LAC: Sadinle, Lei and Wasserman (2019), "Least ambiguous set-valued classifiers with bounded error levels".
APS: Romano, Sesia and Candes (2020), "Classification with valid and adaptive coverage".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.base.class_rows import best_columns
from kway.confidence.heldout import HELD_ENTRIES
from kway.errors import InputError
from kway.rows.row_blocks import n_rows, rows_at
from kway.text_tables import Printed, Table, first_rows
from kway.threads import spans

_FIRST = 8  # classes asked for first


class Ranked(NamedTuple):
    """codes (q, k) int64 and their probabilities (q, k) float64, best first; `whole` where k is every class."""

    codes: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    whole: bool


Decide = Callable[[NDArray[np.int64], Ranked], NDArray[np.bool_]]


def ranked(estimator: Any, X: Any, k: int) -> Ranked:
    """The k most probable classes of each row."""
    classes = estimator.classes_
    if hasattr(estimator, "predict_topk"):
        labels, scores = estimator.predict_topk(X, k)
        codes = np.searchsorted(classes, labels).astype(np.int64, copy=False)
        return Ranked(codes, np.asarray(scores, np.float64), k == len(classes))
    table = np.asarray(estimator.predict_proba(X), np.float64)  # (q, K)
    order = best_columns(table, k)
    return Ranked(order, np.take_along_axis(table, order, axis=1), k == len(classes))


def ask_until_settled(estimator: Any, X: Any, decide: Decide) -> None:
    """Call `decide(rows, lists)` with longer and longer lists; it keeps what it needs and says which rows are done.

    A list of every class is the last.
    """
    width = len(estimator.classes_)
    k = min(_FIRST, width) if hasattr(estimator, "predict_topk") else width  # a whole row costs predict_proba as much
    n = n_rows(X)
    waiting = np.arange(n)
    while len(waiting):
        left = []
        for part in spans(len(waiting), max(1, HELD_ENTRIES // k)):
            rows = waiting[part]
            block = X if len(rows) == n else rows_at(X, rows)
            done = decide(rows, ranked(estimator, block, k))
            left.append(rows[~done])
        if k == width:
            return
        waiting, k = np.concatenate(left), min(2 * k, width)


@dataclass(frozen=True, eq=False, repr=False)
class PredictionSets(Printed):
    """indptr (n + 1,) int64 and the labels ids (m,).

    >>> sets = PredictionSets(np.array([0, 1, 3]), np.array(["a", "b", "a"]))
    >>> sets.to_lists(), sets.sizes.tolist(), sets.covers(["b", "b"]).tolist()
    ([['a'], ['b', 'a']], [1, 2], [False, True])
    """

    indptr: NDArray[np.int64]
    ids: NDArray

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> NDArray:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} sets")
        row %= len(self)
        return self.ids[self.indptr[row] : self.indptr[row + 1]]

    def __iter__(self) -> Iterator[NDArray]:
        return (self[row] for row in range(len(self)))

    def _table(self) -> Table:
        sizes = self.sizes
        mean = f", {sizes.mean():.2f} labels on average, {int((sizes == 0).sum()):,} empty" if len(self) else ""
        listed = lambda i: (str(sizes[i]), ", ".join(map(str, self[i].tolist())) or "–")  # noqa: E731
        return first_rows(f"PredictionSets: {len(self):,} rows{mean}", len(self), ("size", "labels"), listed)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Labels in each set (n,)."""
        return np.diff(self.indptr)

    def covers(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Whether each row's set holds its label (n,)."""
        labels = np.asarray(y)
        if labels.shape != (len(self),):
            raise InputError(f"covers takes one label a set: {len(self)} sets, y of shape {labels.shape}")
        row = np.repeat(np.arange(len(self)), self.sizes)  # (m,)
        return np.bincount(row, self.ids == labels[row], minlength=len(self)) > 0

    def to_lists(self) -> list[list[Any]]:
        """The labels of each row as a list."""
        return [labels.tolist() for labels in self]


def collect(rows: list[NDArray[np.int64]], codes: list[NDArray[np.int64]], n: int, classes: NDArray) -> PredictionSets:
    """Sets from pieces: class codes[i] belong to rows[i]; the order within a row is that of the pieces."""
    row = np.concatenate([np.empty(0, np.int64), *rows])
    code = np.concatenate([np.empty(0, np.int64), *codes])
    order = np.argsort(row, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int64)
    return PredictionSets(indptr, classes[code[order]])


class Oddness(NamedTuple):
    """Scores (q, k) of the listed classes, and the least (q,) that any other class can have."""

    scores: NDArray[np.float64]
    least: NDArray[np.float64]


class Nonconformity(Protocol):
    """One way to score classes."""

    def of(self, lists: Ranked, u: NDArray[np.float64]) -> Oddness:
        """Scores of the listed classes and a bound for the others."""


@dataclass(frozen=True)
class Lac:
    """1 - p_c."""

    def of(self, lists: Ranked, u: NDArray[np.float64]) -> Oddness:
        """Every listed class has its score; the others are no more probable than the last."""
        scores = 1.0 - lists.probabilities
        return Oddness(scores, np.full(len(scores), np.inf) if lists.whole else scores[:, -1])


@dataclass(frozen=True)
class Aps:
    """The mass of the more probable classes and a random share of the class's own."""

    def of(self, lists: Ranked, u: NDArray[np.float64]) -> Oddness:
        """Classes tied with the last of the list may go on beyond it, so they have no score yet."""
        p = lists.probabilities  # (q, k)
        column = np.arange(p.shape[1])
        falls = np.diff(p, axis=1) < 0  # (q, k - 1)
        edge = np.ones((len(p), 1), bool)
        starts = np.maximum.accumulate(np.where(np.hstack([edge, falls]), column, 0), axis=1)
        ends = np.where(np.hstack([falls, edge]), column, p.shape[1])[:, ::-1]
        ends = np.minimum.accumulate(ends, axis=1)[:, ::-1]
        total = np.cumsum(p, axis=1)
        before = np.take_along_axis(total - p, starts, axis=1)
        through = np.take_along_axis(total, ends, axis=1)
        scores = np.minimum(before + u[:, None] * (through - before), 1.0)
        scores[p <= 0] = 1.0  # all mass lies before them: exactly, whatever the sum was rounded to
        if lists.whole:
            return Oddness(scores, np.full(len(p), np.inf))
        least = np.where(p[:, -1] <= 0, 1.0, before[:, -1])
        return Oddness(np.where(starts == starts[:, -1:], np.nan, scores), least)


METHODS: dict[str, Nonconformity] = {"lac": Lac(), "aps": Aps()}


def pick_method(method: str) -> Nonconformity:
    """The nonconformity of a name."""
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    return METHODS[method]
