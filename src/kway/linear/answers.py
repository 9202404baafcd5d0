"""What a linear model's scores mean: probabilities, the features behind an answer, and the rows on the margin.

The scores themselves, f = X W^T + b, and the best k of them are those of any class rows (kway.base.class_rows).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.base.class_rows import CLASS_BLOCK, LogWeights
from kway.compute.threads import pmap, spans
from kway.data.gate import Rows
from kway.linear.losses import Loss, sigmoid, softmax
from kway.search.index import TopK
from kway.tables import Table, first_rows, short_number

if TYPE_CHECKING:
    from kway.linear.objective.objective import Objective

_REASONS_SHOWN = 3
_ONCE = 2**26  # numbers of theta above which no second copy of it is made
_CLOSED = 2**20  # numbers moved at a time


class DecidingFeatures(NamedTuple):
    """Why each row got its class: the score of `labels` leads that of `runners_up` by `gaps`.

    `features` (n, m) are the columns that moved the lead most, `contributions` (n, m) by how much, each
    (w_label - w_runner_up)_j x_j; together with all other columns and the biases they add up to the gap.
    """

    labels: NDArray
    runners_up: NDArray
    gaps: NDArray
    features: NDArray[np.int64]
    contributions: NDArray

    def _table(self) -> Table:
        told = lambda i: (self.labels[i], self.runners_up[i], short_number(self.gaps[i]), self._reasons(i))  # noqa: E731
        columns = ("label", "before", "by", "columns that moved the lead most")
        return first_rows(f"DecidingFeatures: {len(self.labels):,} rows", len(self.labels), columns, told)

    def _reasons(self, i: int) -> str:
        some = zip(self.features[i, :_REASONS_SHOWN], self.contributions[i, :_REASONS_SHOWN])
        return ", ".join(f"{j} {value:+.3g}" for j, value in some)

    def __repr__(self) -> str:
        return self._table().text()

    def _repr_html_(self) -> str:
        return self._table().html()


class ClassRows(NamedTuple):
    """A row (K, d) and a bias (K,) a class, whose largest score is the answer; two classes have (0, w)."""

    W: NDArray
    b: NDArray


def split_weights(theta: NDArray) -> ClassRows:
    """W and b of theta (R, d + 1), which is used up where it is large: its rows close up where they lie."""
    b = theta[:, -1].copy()
    if theta.size <= _ONCE or not (theta.flags.c_contiguous and theta.flags.writeable):
        return ClassRows(np.ascontiguousarray(theta[:, :-1]), b)
    R, d = theta.shape[0], theta.shape[1] - 1
    flat = theta.reshape(-1)
    for rows in spans(R, max(1, _CLOSED // (d + 1))):
        flat[rows.start * d : rows.stop * d] = theta[rows, :-1].ravel()  # a copy: they overlap
    return ClassRows(flat[: R * d].reshape(R, d), b)


def best_of_two(f: NDArray, k: int) -> TopK:
    """Codes (n, k) and scores (n, k) of two classes with the scores -f and f, from f (n,)."""
    first = (f > 0).astype(np.int64)
    codes = np.stack([first, 1 - first], axis=1)
    return TopK(codes[:, :k], np.stack([np.abs(f), -np.abs(f)], axis=1)[:, :k])


def probabilities(scores: NDArray, loss: Loss, temperature: float) -> NDArray:
    """(n, K) from scores (n, R): softmax(f / T) in the joint form, else sigmoid(f / T) normalised over the columns."""
    if loss.joint:
        return softmax(scores, temperature)
    p = sigmoid(scores / scores.dtype.type(temperature))
    if scores.shape[1] == 1:
        return np.hstack([sigmoid(-scores / scores.dtype.type(temperature)), p])
    total = p.sum(axis=1, keepdims=True)
    return np.divide(p, total, out=np.full_like(p, 1 / p.shape[1]), where=total > 0)


def log_weights(loss: Loss, temperature: float) -> LogWeights:
    """What makes the same probabilities of scores (m, c), before they are normalised: f / T, or log sigmoid(f / T)."""
    if loss.joint:
        return lambda f: f / f.dtype.type(temperature)
    return lambda f: -np.logaddexp(0, -f / f.dtype.type(temperature))


def deciding_features(X: Rows, codes: NDArray, classes: NDArray, rows: ClassRows, n_features: int) -> DecidingFeatures:
    """The lead of each row's class over its runner-up, codes (n, 2), and the features it came from."""
    m, kind = min(n_features, X.shape[1]), np.result_type(X.dtype, rows.W.dtype)
    gaps, features = np.empty(X.shape[0], kind), np.empty((X.shape[0], m), np.int64)
    contributions = np.empty((X.shape[0], m), kind)
    for some in spans(X.shape[0], max(1, CLASS_BLOCK // X.shape[1])):
        x = X[some].toarray() if sp.issparse(X) else X[some]
        first, second = codes[some, 0], codes[some, 1]
        lead = x * (rows.W[first] - rows.W[second])  # (m, d)
        order = np.argsort(-np.abs(lead), axis=1, kind="stable")[:, :m]
        gaps[some] = np.maximum(0, lead.sum(axis=1) + rows.b[first] - rows.b[second])
        features[some], contributions[some] = order, np.take_along_axis(lead, order, axis=1)
    return DecidingFeatures(classes[codes[:, 0]], classes[codes[:, 1]], gaps, features, contributions)


def support(objective: Objective, theta: NDArray, slack: float = 1e-3) -> NDArray[np.int64]:
    """Rows on or inside the margin of some class: those whose hinge is active at 1 + slack."""
    widened = objective.with_loss(objective.loss.smoothed(1e-12))

    def block(rows: slice) -> NDArray:
        f = widened.scores(theta, rows) / theta.dtype.type(1 + slack)  # y f <= 1 + slack
        value, _ = widened.loss.value_gradient(f, widened.block_targets(rows))
        return value > 0

    parts = pmap(block, spans(objective.n, max(16, CLASS_BLOCK // objective.n_scores)), objective.n_jobs)
    return np.flatnonzero(np.concatenate(parts))
