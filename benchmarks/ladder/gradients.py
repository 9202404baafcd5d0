"""The gradient (R, d + 1) of a mean loss at weights theta = [W b]; 4 n d R operations (scores, then products).

logistic   s_i = sigma(w.x_i + b)              gradient 1/n sum_i (s_i - y_i) [x_i 1]
softmax    P_ik = exp(f_ik) / sum_l exp(f_il)  gradient of class k 1/n sum_i (P_ik - [y_i = k]) [x_i 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty

from .digits import Digits
from .rungs import Ladder, Rung


@dataclass(frozen=True)
class Batch:
    """Rows X (n, d), codes (n,) and weights theta (R, d + 1)."""

    X: NDArray
    codes: NDArray
    theta: NDArray

    @property
    def rows(self) -> int:
        return len(self.X)

    def some(self, rows: int) -> Batch:
        return Batch(self.X[:rows], self.codes[:rows], self.theta)


def logistic_scalar(p: Batch) -> NDArray:
    """Loops over rows and pixels."""
    X, codes, theta = p.X.tolist(), p.codes.tolist(), p.theta[0].tolist()
    d = len(theta) - 1
    total = [0.0] * (d + 1)
    for x, y in zip(X, codes):
        score = theta[d]
        for j in range(d):
            score += theta[j] * x[j]
        slope = 1 / (1 + math.exp(-score)) - y
        for j in range(d):
            total[j] += slope * x[j]
        total[d] += slope
    return np.array([total]) / len(X)


def logistic_half(p: Batch) -> NDArray:
    """A loop over rows, vectors within."""
    w, b = p.theta[0, :-1], p.theta[0, -1]
    total = np.zeros_like(p.theta)
    for x, y in zip(p.X, p.codes):
        slope = 1 / (1 + np.exp(-(x.dot(w) + b))) - y
        total[0, :-1] += slope * x
        total[0, -1] += slope
    return total / len(p.X)


def logistic_full(p: Batch) -> NDArray:
    """Two products."""
    slopes = 1 / (1 + np.exp(-(p.X @ p.theta[0, :-1] + p.theta[0, -1]))) - p.codes  # (n,)
    return np.append(slopes @ p.X, slopes.sum())[None] / p.X.dtype.type(len(p.X))


def softmax_scalar(p: Batch) -> NDArray:
    """Loops over rows, classes and pixels."""
    X, codes, theta = p.X.tolist(), p.codes.tolist(), p.theta.tolist()
    d = len(theta[0]) - 1
    total = [[0.0] * (d + 1) for _ in theta]
    for x, y in zip(X, codes):
        scores = []
        for w in theta:
            score = w[d]
            for j in range(d):
                score += w[j] * x[j]
            scores.append(score)
        most = max(scores)
        shares = [math.exp(s - most) for s in scores]
        sum_of_shares = sum(shares)
        for k, line in enumerate(total):
            slope = shares[k] / sum_of_shares - (k == y)
            for j in range(d):
                line[j] += slope * x[j]
            line[d] += slope
    return np.array(total) / len(X)


def softmax_half(p: Batch) -> NDArray:
    """A loop over rows; classes and pixels at once."""
    W, b = p.theta[:, :-1], p.theta[:, -1]
    total = np.zeros_like(p.theta)
    for x, y in zip(p.X, p.codes):
        scores = W @ x + b  # (K,)
        slopes = np.exp(scores - scores.max())
        slopes /= slopes.sum()
        slopes[y] -= 1
        total[:, :-1] += slopes[:, None] * x
        total[:, -1] += slopes
    return total / len(p.X)


def softmax_full(p: Batch) -> NDArray:
    """Two matrix products."""
    F = p.X @ p.theta[:, :-1].T + p.theta[:, -1]  # (n, K)
    P = np.exp(F - F.max(axis=1, keepdims=True))
    P /= P.sum(axis=1, keepdims=True)
    P[np.arange(len(P)), p.codes] -= 1
    return np.column_stack([P.T @ p.X, P.sum(axis=0)]) / p.X.dtype.type(len(p.X))


def kway_gradient(p: Batch) -> NDArray:
    """kway's kernel: each row is read once for both products, the exponentials in between."""
    forms = LOSSES["softmax"]
    loss = forms.columns if len(p.theta) == 1 else forms.joint
    return Objective(p.X, Targets(p.codes), len(p.theta), loss, Penalty()).value_gradient(p.theta)[1]


def _ladder(key: str, title: str, batch: Batch, scalar, half, full) -> Ladder:
    (n, d), R = batch.X.shape, len(batch.theta)
    operations = 4.0 * n * d * R
    by_row = 4 * d * R / (4 * (2 * d + 3 * d * R))  # the row twice; weights read, sums read and written
    whole = operations / (4 * (2 * n * d + 2 * d * R + 4 * n * R))
    once = operations / (4 * (n * d + 2 * d * R))
    rungs = (
        Rung("loops over numbers, interpreted", scalar, by_row, part=max(2, 40 // R)),
        Rung("half: a loop over rows", half, by_row, part=500),
        Rung("full: two products", full, whole),
        Rung("kway's kernel", kway_gradient, once),
    )
    exact = lambda p: full(Batch(p.X.astype(np.float64), p.codes, p.theta.astype(np.float64)))  # noqa: E731
    work = f"{n:,} digits, {d} pixels, {'2 classes' if R == 1 else f'{R} classes'}, float32"
    return Ladder(key, title, work, operations, batch, exact, rungs)


def logistic(n: int = 5000) -> Ladder:
    """0 against 1."""
    digits = Digits.load()
    two = np.flatnonzero(digits.y_train <= 1)[:n]
    batch = Batch(np.ascontiguousarray(digits.x_train[two]), digits.y_train[two], _weights(1))
    return _ladder("logistic", "Logistic gradient, 0 against 1", batch, logistic_scalar, logistic_half, logistic_full)


def softmax(n: int = 5000) -> Ladder:
    """All ten digits."""
    digits = Digits.load()
    batch = Batch(digits.x_train[:n], digits.y_train[:n], _weights(10))
    return _ladder("softmax", "Softmax gradient, ten digits", batch, softmax_scalar, softmax_half, softmax_full)


def _weights(R: int) -> NDArray[np.float32]:
    return np.random.default_rng(0).normal(0, 0.05, (R, 785)).astype(np.float32)
