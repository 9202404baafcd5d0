"""Answers of class rows: scores f = X W^T + b, the best k of them, probabilities, and why.

Nothing here but `scores` is of size n x K; the rest goes block by block, so K may be a million.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.threads import pmap, spans
from kway.data.gate import Rows
from kway.data.row_blocks import row_blocks
from kway.linear.losses import Loss, sigmoid, softmax
from kway.linear.objective.objective import Objective
from kway.search.blocks import top_products
from kway.search.index import TopK

BLOCK = 1 << 20  # scores computed at a time by a worker


class Explanation(NamedTuple):
    """Why each row got its class: the score of `labels` leads that of `runners_up` by `gaps`.

    `features` (n, m) are the columns that moved the lead most, `contributions` (n, m) by how much, each
    (w_label - w_runner_up)_j x_j; together with all other columns and the biases they add up to the gap.
    """

    labels: NDArray
    runners_up: NDArray
    gaps: NDArray
    features: NDArray[np.int64]
    contributions: NDArray


def scores(X: Rows, W: NDArray, b: NDArray, n_jobs: int | None = None) -> NDArray:
    """(n, R); the caller has checked that this fits."""
    out = np.empty((X.shape[0], len(b)), np.result_type(X.dtype, W.dtype))

    def block(rows: slice) -> None:
        np.add(np.asarray(X[rows] @ W.T), b, out=out[rows])

    pmap(block, row_blocks(X, max(16, BLOCK // len(b))), n_jobs)
    return out


def best(X: Rows, W: NDArray, b: NDArray, n_jobs: int | None = None) -> NDArray[np.int64]:
    """Code of the best class of each row (n,)."""
    if len(b) == 1:
        return (scores(X, W, b, n_jobs)[:, 0] > 0).astype(np.int64)
    return top_products(X, W, 1, offset=b, n_jobs=n_jobs)[0][:, 0]


def top(X: Rows, W: NDArray, b: NDArray, k: int, n_jobs: int | None = None) -> TopK:
    """Codes and scores of the k best classes; two classes have the scores -f and f."""
    if len(b) > 1:
        return TopK(*top_products(X, W, k, offset=b, n_jobs=n_jobs))
    f = scores(X, W, b, n_jobs)[:, 0]
    first = (f > 0).astype(np.int64)
    both = np.stack([np.abs(f), -np.abs(f)], axis=1)
    return TopK(np.stack([first, 1 - first], axis=1)[:, :k], both[:, :k])


def probabilities(scores: NDArray, loss: Loss, temperature: float) -> NDArray:
    """(n, K) from scores (n, R): softmax(f / T) in the joint form, else sigmoid(f / T) normalised over the columns."""
    if loss.joint:
        return softmax(scores, temperature)
    p = sigmoid(scores / scores.dtype.type(temperature))
    if scores.shape[1] == 1:
        return np.hstack([sigmoid(-scores / scores.dtype.type(temperature)), p])
    total = p.sum(axis=1, keepdims=True)
    return np.divide(p, total, out=np.full_like(p, 1 / p.shape[1]), where=total > 0)


def top_probabilities(
    X: Rows, W: NDArray, b: NDArray, best_scores: NDArray, loss: Loss, temperature: float, n_jobs: int | None
) -> NDArray:
    """Probabilities of scores (n, k) that are the best of their rows."""
    if len(b) == 1:
        return sigmoid(best_scores / temperature)
    log_total = _log_normaliser(X, W, b, loss, temperature, n_jobs)
    own = best_scores / temperature if loss.joint else -np.logaddexp(0, -best_scores / temperature)
    return np.exp(own - log_total[:, None])


def _log_normaliser(X: Rows, W: NDArray, b: NDArray, loss: Loss, temperature: float, n_jobs: int | None) -> NDArray:
    """log sum_c exp(f_c / T), or log sum_c sigmoid(f_c / T), over blocks of rows and classes."""
    out = np.full(X.shape[0], -np.inf, np.result_type(X.dtype, W.dtype))
    wide = min(len(b), 1 << 14)

    def block(rows: slice) -> None:
        for classes in spans(len(b), wide):
            f = (np.asarray(X[rows] @ W[classes].T) + b[classes]) / temperature
            if not loss.joint:
                f = -np.logaddexp(0, -f)
            peak = f.max(axis=1)
            out[rows] = np.logaddexp(out[rows], peak + np.log(np.exp(f - peak[:, None]).sum(axis=1)))

    pmap(block, row_blocks(X, max(16, BLOCK // wide)), n_jobs)
    return out


def explain(X: Rows, classes: NDArray, W: NDArray, b: NDArray, n_features: int, n_jobs: int | None) -> Explanation:
    """The lead of each row's class over its runner-up, and the features it came from."""
    ids, found = top(X, W, b, 2, n_jobs)
    m = min(n_features, X.shape[1])
    features, contributions = np.empty((X.shape[0], m), np.int64), np.empty((X.shape[0], m), found.dtype)
    for rows in spans(X.shape[0], max(1, BLOCK // X.shape[1])):
        x = X[rows].toarray() if sp.issparse(X) else X[rows]
        lead = x * (np.where(ids[rows, :1] == 1, W, -W) if len(b) == 1 else W[ids[rows, 0]] - W[ids[rows, 1]])
        order = np.argsort(-np.abs(lead), axis=1, kind="stable")[:, :m]
        features[rows], contributions[rows] = order, np.take_along_axis(lead, order, axis=1)
    gap = found[:, 0] if len(b) == 1 else found[:, 0] - found[:, 1]
    return Explanation(classes[ids[:, 0]], classes[ids[:, 1]], gap, features, contributions)


def support(objective: Objective, theta: NDArray, slack: float = 1e-3) -> NDArray[np.int64]:
    """Rows on or inside the margin of some class: those whose hinge is active at 1 + slack."""
    widened = objective.with_loss(objective.loss.smoothed(1e-12))

    def block(rows: slice) -> NDArray:
        f = widened.scores(theta, rows) / theta.dtype.type(1 + slack)  # y f <= 1 + slack
        value, _ = widened.loss.value_gradient(f, widened.block_targets(rows))
        return value > 0

    parts = pmap(block, spans(objective.n, max(16, BLOCK // objective.n_scores)), objective.n_jobs)
    return np.flatnonzero(np.concatenate(parts))
