"""The objective of a problem in float64, as documented, and the derivatives of its losses in the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from optimum_attack.problems import Problem

FLOOR = 1e-6  # an objective below this share of the one at W = 0 counts as that much


class Bounds(NamedTuple):
    """lower <= F* <= upper, and F at W = 0 with the best bias or none."""

    lower: float
    upper: float
    zero: float

    @property
    def scale(self) -> float:
        """What tol is relative to."""
        return max(self.upper, FLOOR * self.zero)


def dense(X: Any) -> np.ndarray:
    """Rows in float64."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)


def objective(problem: Problem, coef: np.ndarray, intercept: np.ndarray) -> float:
    """F in float64, as documented."""
    W = np.asarray(coef, np.float64)
    scores = dense(problem.X) @ W.T + np.asarray(intercept, np.float64)
    ridge, lasso = strengths(problem)
    return float(
        ridge / 2 * np.sum(W * W) + lasso * np.abs(W).sum() + weights(problem) @ model_of(problem).value(scores)
    )


def strengths(problem: Problem) -> tuple[float, float]:
    alpha = problem.options["alpha"]
    share = {"l2": 0.0, "l1": 1.0, "elasticnet": 0.5, "none": 0.0}[problem.options["penalty"]]
    return (0.0, 0.0) if problem.options["penalty"] == "none" else (alpha * (1 - share), alpha * share)


def weights(problem: Problem) -> np.ndarray:
    weight = np.ones(len(problem.y)) if problem.weight is None else problem.weight.astype(np.float64)
    return weight / weight.sum()


@dataclass(frozen=True)
class Model:
    """A loss of the scores (n, R): values (n,), slopes (n, R), and what curvatures are made of (n, R)."""

    loss: str
    joint: bool
    y: np.ndarray
    n_scores: int

    @property
    def signs(self) -> np.ndarray:
        if self.n_scores == 1:
            return np.where(self.y == 1, 1.0, -1.0)[:, None]
        return np.where(np.arange(self.n_scores) == self.y[:, None], 1.0, -1.0)

    def value(self, f: np.ndarray, e: float = 0.0) -> np.ndarray:
        if self.loss == "softmax" and self.joint:
            gaps = f - f[np.arange(len(f)), self.y][:, None]
            top = np.maximum(gaps.max(axis=1), 0)
            own = np.exp(gaps - top[:, None])
            own[np.arange(len(f)), self.y] = 0
            return np.where(top > 0, top + np.log(own.sum(axis=1) + np.exp(-top)), np.log1p(own.sum(axis=1)))
        if self.loss == "softmax":
            t = self.signs * f
            return (np.maximum(-t, 0) + np.log1p(np.exp(-np.abs(t)))).sum(axis=1)
        if self.loss == "squared":
            target = (self.signs + 1) / 2 if self.joint else self.signs
            return np.square(f - target).sum(axis=1)
        g = self.gaps(f)
        return (((g + np.sqrt(g * g + e * e)) / 2) * self.counted).sum(axis=1)

    @property
    def counted(self) -> np.ndarray:
        return (self.signs < 0).astype(float) if self.joint else np.ones((len(self.y), self.n_scores))

    def gaps(self, f: np.ndarray) -> np.ndarray:
        return 1 + f - f[np.arange(len(f)), self.y][:, None] if self.joint else 1 - self.signs * f

    def slopes(self, f: np.ndarray, e: float, dual: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Slopes (n, R), and what bends: p of a softmax, else second derivatives, a hinge's as its dual sees them."""
        if self.loss == "softmax" and self.joint:
            p = np.exp(f - f.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            rows = np.arange(len(f))
            slope = p.copy()
            slope[rows, self.y] = 0
            slope[rows, self.y] = -slope.sum(axis=1)
            return slope, p
        if self.loss == "softmax":
            t = self.signs * f
            small = np.exp(-np.abs(t))
            p = np.where(t >= 0, small, 1) / (1 + small)  # sigma(-t)
            return -self.signs * p, small / (1 + small) ** 2
        if self.loss == "squared":
            target = (self.signs + 1) / 2 if self.joint else self.signs
            return 2 * (f - target), np.full_like(f, 2.0)
        g = self.gaps(f)
        root = np.sqrt(g * g + e * e)
        push, bend = (1 + g / root) / 2 * self.counted, (1 - dual * g / root) / (2 * root) * self.counted
        if not self.joint:
            return -self.signs * push, bend
        push[np.arange(len(f)), self.y] = -push.sum(axis=1)
        return push, bend


def model_of(problem: Problem) -> Model:
    R = 1 if problem.y.max() == 1 else int(problem.y.max()) + 1
    return Model(problem.options["loss"], problem.joint, problem.y, R)
