"""The best classes of each row, as many as it takes: lists of k codes and probabilities, k doubled for the rows that
are not settled. An n x K table is never built: rows go in blocks, and only the unsettled ones ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import _num_samples

from kway.base.best_columns import best_columns
from kway.compute.threads import spans
from kway.confidence.heldout import HELD_ENTRIES
from kway.data.blocks.row_blocks import rows_at

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
    n = _num_samples(X)
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
