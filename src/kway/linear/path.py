"""The regularisation path with cross-validation: every alpha on every fold, from strong to weak, with shared work.

rows     drawn once a fold, in order
factor   one Gram matrix of all rows serves every fold and alpha: it knows no label
pairs    of L-BFGS go from alpha to alpha with an exact change: y += (new - old) s
starts   a fold starts where its own last alpha ended; of rows wider than many the first one is walked down to

Nothing else goes from fold to fold. Another fold has learned from the rows held out here: where alpha is weak and the
solver stops within its tolerance, a start from its weights is not forgotten, and scores come out too high (random
labels, alpha 1e-7: 0.50 against 0.42). Its pairs save nothing: 10 alphas x 5 folds took 7.4 s with them and 7.7 s with
own ones on 20,000 images, 4.9 and 3.3 s on 10,000 embeddings.

All folds' weights in one product over all rows, slopes of those held out masked, lose: a gradient of five folds took
1.5 times as long on 20,000 images of 10 classes, 1.15 times on 10,000 embeddings of 77. The products of one fold run
near the machine's peak already, and a fifth of the stacked ones is thrown away.

accuracy, log_loss, objective, seconds, balanced, macro_f1: (folds, alphas)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.base.class_rows import class_scores as score_classes
from kway.base.class_rows import probabilities
from kway.linear.equivalent import row_span
from kway.linear.losses import Loss, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.plan import FitPlan, choose_device, place_rows
from kway.linear.solvers.base import Control, offers
from kway.linear.solvers.choose import fastest_solver
from kway.linear.solvers.dual import Ascent
from kway.linear.solvers.lbfgs import Pairs, solve_smooth
from kway.linear.solvers.least_squares import WIDE, NormalEquations, regression_targets
from kway.linear.solvers.preconditioners import Moments, quick_moments, sample_rows
from kway.measures import class_scores, log_losses
from kway.planning import costs, guard
from kway.probabilities import Shares
from kway.threads import single_blas, spans
from kway.validation import Rows

# of the objective at theta = 0: below that, tol is relative to it. Where alpha is so weak that hardly any loss is left,
# a thousandth of it takes most of the path's time (27 of 31 s on 20,000 images, alphas down to 1e-9) and the mean
# accuracy moves by 0.0012 at most (images, embeddings of 77 classes)
LEAST_SCALE = 0.05
SWEEPS = 5  # of machines on sparse rows: on 10,000 questions of 77 intents more move the accuracy by 0.002 at most
# decades above the first alpha at which a walk over rows wider than many begins. From nothing, what is left to gain is
# misjudged there: 160 texts, alpha 3e-7, objective 0.10 where 0.002 is the least, 0.28 right where 0.88 are
STRONGER = 4
HELD_AT_ONCE = 1 << 22  # probabilities held at a time


@dataclass(frozen=True)
class Path:
    """Scores of every alpha (last axis) on every fold (first axis)."""

    alphas: NDArray[np.float64]
    folds: tuple[int, ...]
    accuracy: NDArray[np.float64]
    log_loss: NDArray[np.float64]  # nan where the loss has no probabilities
    objective: NDArray[np.float64]  # on the rows learned from
    seconds: NDArray[np.float64]
    balanced: NDArray[np.float64]
    macro_f1: NDArray[np.float64]

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
    stop: Callable[[], bool] | None = None,
    device: str = "cpu",
) -> Path:
    """Fit every alpha on every fold (or on those named by `which`); folds (n,) numbers, -1 is only learned from.

    `stop()` is asked between fits; what was not reached is nan. `device`: where the rows live while they are fitted.
    """
    order = np.argsort(-np.asarray(alphas, float), kind="stable")
    chosen = tuple(range(int(folds.max()) + 1)) if which is None else tuple(which)
    n_classes = int(codes.max()) + 1
    whole = Objective(X, Targets(codes), 1 if n_classes == 2 else n_classes, loss, Penalty(), True, weight)
    size = guard.size_of(X, n_classes)
    there = place_rows(whole, FitPlan(size, loss, Penalty(), choose_device(device, size), "auto", costs.gpu_softmax))
    whole = there.objective
    span = row_span(whole)  # rows held out lie in the span of all rows as well
    whole = whole if span is None else span.objective
    with single_blas(), there.report_memory():
        known = quick_moments(whole, sample_rows(whole)) if loss.smooth and not _shared(whole) else None
        control = Control(tol=tol, least=LEAST_SCALE * whole.value(whole.zeros()))
        held_out = X if span is None else whole.X
        parts = [_fold(whole, held_out, folds, number) for number in chosen]
        walks = [_walk(part.objective, control, known) for part in parts]
        out = np.full((6, len(chosen), len(order)), np.nan)
        for at in order:
            for f, (part, walk) in enumerate(zip(parts, walks)):
                if stop is not None and stop():
                    return Path(np.asarray(alphas, float), chosen, *out)
                begun = time.perf_counter()
                theta, value = walk.to(float(alphas[at]))
                seconds = time.perf_counter() - begun
                held = _scores(part, theta, loss)
                out[:, f, at] = (held.accuracy, held.log_loss, value, seconds, held.balanced, held.macro_f1)
    return Path(np.asarray(alphas, float), chosen, *out)


def _fold(whole: Objective, X: Rows, folds: NDArray[np.int64], number: int) -> _Fold:
    inside = folds == number
    return _Fold(whole.take(np.flatnonzero(~inside)), X[np.flatnonzero(inside)], whole.targets.codes[inside])


def _walk(objective: Objective, control: Control, known: Moments | None) -> _Walk | _SharedWalk | _SquaredWalk:
    """How a fold goes from alpha to alpha: machines that share sparse rows by sweeps, squares of dense rows by one
    Gram matrix, any other by its solver."""
    if objective.loss.aims is not None and isinstance(objective.X, np.ndarray) and objective.d <= WIDE:
        return _SquaredWalk(objective)
    return _SharedWalk(objective) if _shared(objective) else _Walk(objective, control, known)


def _shared(objective: Objective) -> bool:
    """Whether these are machines, of a hinge sharp or rounded, that share sparse rows."""
    return sp.issparse(objective.X) and "loss.hinge" in offers(objective.loss, objective.penalty)


class _SharedWalk:
    """Support vector machines on sparse rows: a few sweeps an alpha, from where the stronger one ended."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._machines: Ascent | None = None

    def to(self, alpha: float) -> tuple[NDArray, float]:
        """theta at the next alpha and the objective there."""
        if self._machines is None:
            self._machines = Ascent(replace(self._objective, penalty=Penalty(ridge=alpha)))
        self._machines.change_ridge(alpha)
        self._machines.sweep(SWEEPS)
        theta = self._machines.theta()
        return theta, self._machines.objective.value(theta)


class _SquaredWalk:
    """Least squares: one Gram matrix of the fold's rows, and a factor of it an alpha."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._equations = NormalEquations(
            objective.X, regression_targets(objective), objective.weight, objective.fit_intercept
        )

    def to(self, alpha: float) -> tuple[NDArray, float]:
        """theta at the next alpha and the objective there."""
        theta = self._equations.theta(alpha).astype(self._objective.X.dtype)
        return theta, replace(self._objective, penalty=Penalty(ridge=alpha)).value(theta)


class _Walk:
    """A fold's way from alpha to alpha, and what is known of the curvature on it."""

    def __init__(self, objective: Objective, control: Control, known: Moments | None) -> None:
        self._objective, self._control, self._known = objective, control, known
        self._pairs = Pairs()
        self._theta, self._alpha = objective.zeros(), 0.0

    def to(self, alpha: float) -> tuple[NDArray, float]:
        """theta at the next alpha and the objective there."""
        if self._alpha == 0.0 and self._objective.d >= self._objective.n:
            for decades in range(STRONGER, 0, -1):
                self._step(alpha * 10.0**decades)
        return self._step(alpha)

    def _step(self, alpha: float) -> tuple[NDArray, float]:
        self._pairs.change_ridge(alpha - self._alpha)
        self._alpha = alpha
        objective = replace(self._objective, penalty=Penalty(ridge=alpha))
        if self._known is not None:
            solution = solve_smooth(objective, self._theta, self._control, self._known, self._pairs)
            self._theta = solution.theta
            return self._theta, solution.history[-1]
        self._theta = fastest_solver(objective).solve(objective, self._theta, self._control).theta
        return self._theta, objective.value(self._theta)


class _Held(NamedTuple):
    """Scores on the rows held out; log_loss nan where the loss has no probabilities."""

    accuracy: float
    log_loss: float
    balanced: float
    macro_f1: float


def _scores(part: _Fold, theta: NDArray, loss: Loss) -> _Held:
    W, b = np.ascontiguousarray(theta[:, :-1]), np.ascontiguousarray(theta[:, -1])
    predicted, total = np.empty(len(part.codes), np.int64), 0.0
    for rows in spans(len(part.codes), max(64, HELD_AT_ONCE // max(2, len(b)))):
        f, y = score_classes(part.inside[rows], W, b), part.codes[rows]
        predicted[rows] = f[:, 0] > 0 if len(b) == 1 else f.argmax(axis=1)
        if loss.probabilities:
            p = probabilities(f, Shares(joint=loss.joint))[np.arange(len(y)), y]
            total += float(log_losses(p).sum())
    by_class = class_scores(part.codes, predicted[:, None])
    mean_loss = total / len(predicted) if loss.probabilities else np.nan
    right = float((predicted == part.codes).mean())
    return _Held(right, mean_loss, float(by_class.balanced[0]), float(by_class.macro_f1[0]))
