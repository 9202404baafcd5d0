"""The regularisation path with cross-validation: every alpha on every fold, from strong to weak, with shared work.

rows     drawn once a fold, in order
factor   one Gram matrix of all rows serves every fold and alpha: a preconditioner need not be exact
starts   fold 0 starts where its last alpha ended, the others there plus the move that fold 0 just made

accuracy, log_loss, objective, seconds: (folds, alphas)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import single_blas, spans
from kway.data.gate import Rows
from kway.linear import answers
from kway.linear.lbfgs import solve_smooth
from kway.linear.losses import Loss, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.precondition import Moments, quick_moments, sample_rows
from kway.linear.solver import Control
from kway.linear.solvers import auto

LEAST_PROBABILITY = 1e-6  # what log loss counts at least, as for votes
BLOCK = 1 << 22  # probabilities held at a time


@dataclass(frozen=True)
class Path:
    """Scores of every alpha (last axis) on every fold (first axis)."""

    alphas: NDArray[np.float64]
    folds: tuple[int, ...]
    accuracy: NDArray[np.float64]
    log_loss: NDArray[np.float64]  # nan where the loss has no probabilities
    objective: NDArray[np.float64]  # on the rows learned from
    seconds: NDArray[np.float64]

    @property
    def best(self) -> float:
        """The alpha of the highest mean accuracy; among equals the strongest."""
        return float(self.alphas[int(self.accuracy.mean(axis=0).argmax())])


class _Fold(NamedTuple):
    """A fold's problem, its rows held out, and their codes."""

    objective: Objective
    inside: Rows
    codes: NDArray[np.int64]


def alpha_path(
    X: Rows,
    codes: NDArray[np.int64],
    loss: Loss,
    alphas: Sequence[float],
    folds: NDArray[np.int64],
    which: Sequence[int] | None = None,
    weight: NDArray | None = None,
    tol: float = 1e-3,
    n_jobs: int | None = None,
    stop: Callable[[], bool] | None = None,
) -> Path:
    """Fit every alpha on every fold (or on those named by `which`); folds (n,) numbers, -1 is only learned from.

    `stop()` is asked between fits; what was not reached is nan.
    """
    order = np.argsort(-np.asarray(alphas, float), kind="stable")
    chosen = tuple(range(int(folds.max()) + 1)) if which is None else tuple(which)
    n_classes = int(codes.max()) + 1
    whole = Objective(X, Targets(codes), 1 if n_classes == 2 else n_classes, loss, Penalty(), True, weight, n_jobs)
    with single_blas():
        known = quick_moments(whole, sample_rows(whole)) if loss.smooth else None
        parts = [_fold(whole, folds, number) for number in chosen]
        out = np.full((4, len(chosen), len(order)), np.nan)
        thetas = [whole.zeros() for _ in chosen]
        for at in order:
            move = None
            for f, part in enumerate(parts):
                if stop is not None and stop():
                    return Path(np.asarray(alphas, float), chosen, *out)
                before = thetas[f]
                begun = time.perf_counter()
                start = before if move is None else before + move
                thetas[f], value = _solve(part.objective, start, float(alphas[at]), tol, known)
                seconds = time.perf_counter() - begun
                move = thetas[f] - before if f == 0 else move
                out[:, f, at] = (*_scores(part, thetas[f], loss, n_jobs), value, seconds)
    return Path(np.asarray(alphas, float), chosen, *out)


def _fold(whole: Objective, folds: NDArray[np.int64], number: int) -> _Fold:
    inside = folds == number
    return _Fold(whole.rows(np.flatnonzero(~inside)), whole.X[np.flatnonzero(inside)], whole.targets.codes[inside])


def _solve(
    objective: Objective, start: NDArray, alpha: float, tol: float, known: Moments | None
) -> tuple[NDArray, float]:
    """theta and the objective there."""
    objective = replace(objective, penalty=Penalty(ridge=alpha))
    control = Control(tol=tol)
    if known is not None:
        solution = solve_smooth(objective, start, control, known)
    else:
        solution = auto(objective).solve(objective, start, control)
    return solution.theta, objective.value(solution.theta)


def _scores(part: _Fold, theta: NDArray, loss: Loss, n_jobs: int | None) -> tuple[float, float]:
    """Accuracy and log loss on the rows held out."""
    W, b = np.ascontiguousarray(theta[:, :-1]), np.ascontiguousarray(theta[:, -1])
    right, total = 0, 0.0
    for rows in spans(len(part.codes), max(64, BLOCK // max(2, len(b)))):
        f, y = answers.scores(part.inside[rows], W, b, n_jobs), part.codes[rows]
        right += int(((f[:, 0] > 0) == y).sum() if len(b) == 1 else (f.argmax(axis=1) == y).sum())
        if loss.probabilities:
            p = answers.probabilities(f, loss, 1.0)[np.arange(len(y)), y]
            total += float(-np.log(np.maximum(p, LEAST_PROBABILITY)).sum())
    n = len(part.codes)
    return right / n, total / n if loss.probabilities else np.nan
