"""The power method: the largest eigenvalue of a matrix that is given by its products with vectors.

largest_moment    largest eigenvalue of X'X / n
max_curvature     largest second derivative of a row's loss along any direction of its scores

Solvers use these numbers to choose step sizes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.validation import Rows

_ITERATIONS = 10  # products with the matrix; they give the eigenvalue within a few percent, enough for a step size
# The curvature of a loss is estimated at random scores of this number of rows. The largest scale of the scores covers
# the region around 0 in which losses have most of their curvature (tests/linear/test_own_loss.py).
SAMPLE_ROWS = 256
_MAX_SCORE = 3.0


def largest_eigenvalue(matvec: Callable[[NDArray], NDArray], start: NDArray) -> float:
    """Return the largest eigenvalue of a positive semidefinite matrix A.

    Parameters
    ----------
    matvec : callable
        Returns A v for an array v of the shape of `start`.
    start : array
        First vector. It must not be orthogonal to the eigenvector of the largest eigenvalue.
    """
    v, norm = start, float(np.linalg.norm(start))
    for _ in range(_ITERATIONS):
        if norm == 0:
            return 0.0
        v = matvec(v / v.dtype.type(norm))
        norm = float(np.linalg.norm(v))
    return norm


def largest_moment(X: Rows) -> float:
    """Return the largest eigenvalue of X'X / n."""
    n = X.dtype.type(X.shape[0])
    return largest_eigenvalue(lambda v: np.asarray(X.T @ (X @ v)) / n, np.ones(X.shape[1], X.dtype))


def max_curvature(objective: Objective) -> float:
    """Return the largest second derivative of a row's loss along any direction of its scores.

    If the loss does not declare it, return an estimate: the largest eigenvalue of the Hessians of SAMPLE_ROWS rows, at
    random scores of size 0 to _MAX_SCORE.
    """
    loss = objective.loss
    if loss.max_curvature is not None:
        return loss.max_curvature
    rng = np.random.default_rng(0)
    rows = rng.integers(objective.n, size=SAMPLE_ROWS)
    targets = objective.targets.of(rows)
    scale = np.linspace(0, _MAX_SCORE, SAMPLE_ROWS)[:, None]
    scores = scale * rng.standard_normal((SAMPLE_ROWS, objective.n_scores))
    return largest_eigenvalue(lambda v: loss.hessian_product(scores, targets, v), rng.standard_normal(scores.shape))
