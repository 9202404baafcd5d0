"""The power method: largest eigenvalues of matrices that are only multiplied with, for step sizes and scales.

largest_moment    of X'X / n
largest_bend      of a row's Hessian in its scores (R, R): what the loss declares, or an estimate from its slopes
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses import Targets
from kway.linear.objective import Objective
from kway.validation import Rows

_ROUNDS = 10  # within a few per cent: enough for the size of a step
TRIED_ROWS = 256  # rows that the bend of a loss is estimated from
_FARTHEST = 3.0  # size of the scores at which a bend is looked for; every loss so far bends most near zero


def largest_eigenvalue(times: Callable[[NDArray], NDArray], start: NDArray) -> float:
    """Return the largest eigenvalue of a positive matrix A given by v -> A v; `start` is no other eigenvector."""
    v, size = start, float(np.linalg.norm(start))
    for _ in range(_ROUNDS):
        if size == 0:
            return 0.0
        v = times(v / v.dtype.type(size))
        size = float(np.linalg.norm(v))
    return size


def largest_moment(X: Rows) -> float:
    """Largest eigenvalue of X'X / n."""
    n = X.dtype.type(X.shape[0])
    return largest_eigenvalue(lambda v: np.asarray(X.T @ (X @ v)) / n, np.ones(X.shape[1], X.dtype))


def largest_bend(objective: Objective) -> float:
    """Most second derivative of a row's loss along any direction of its scores.

    Not declared: the largest eigenvalue of some rows' Hessians together, at scores from zero to a few units away.
    """
    loss = objective.loss
    if loss.bend is not None:
        return loss.bend
    rng = np.random.default_rng(0)
    rows = rng.integers(objective.n, size=TRIED_ROWS)
    soft = objective.targets.soft
    targets = Targets(objective.targets.codes[rows], None if soft is None else soft[rows])
    away = np.linspace(0, _FARTHEST, TRIED_ROWS)[:, None]
    scores = away * rng.standard_normal((TRIED_ROWS, objective.n_scores))
    return largest_eigenvalue(lambda v: loss.bent(scores, targets, v), rng.standard_normal(scores.shape))
