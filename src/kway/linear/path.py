"""The regularization path: every alpha on the training rows of one fold, from strong to weak.

Each fit uses the plan, the columns and the solvers of the estimator (`prepare`, `Task.solve`), with two exceptions that
save time: `tol` is relative to at least a share of the objective at theta = 0 (`MIN_SCALE`), and linear SVMs on sparse
rows stop after `MAX_SWEEPS` sweeps. The solver is chosen at the first alpha. A fit starts at the solution of the
previous alpha, and the solver keeps the state that depends little on alpha (`Carry`): the second moments of the rows,
preconditioners and pairs, normal equations, or dual variables.

No solution is passed between folds, because the weights of another fold were trained on the held-out rows of this one.
A solver that stops within its tolerance still depends on its start. So a start at the weights of another fold would
leak the held-out rows into the fit, and the scores would be too high.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.base.class_rows import class_scores, probabilities
from kway.linear.equivalent import merge_equal_rows
from kway.linear.losses import Loss, Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.plan import FitPlan, choose_device, place_rows
from kway.linear.solvers.base import Carry, Control, Solution
from kway.linear.solvers.dual import Dual
from kway.linear.solvers.registry import Task, prepare
from kway.measures import log_losses
from kway.memory import rows_per_block
from kway.planning import costs
from kway.probabilities import Shares
from kway.threads import single_blas, spans
from kway.validation import Rows

# tol is relative to at least this share of the objective at theta = 0. Weak alphas leave almost no loss, and fits to a
# thousandth of it would take most of the time of a comparison (decided by rows T5 and T11).
MIN_SCALE = 0.05
# Sweeps over sparse rows per alpha of a linear SVM; they start from the dual variables of the previous alpha (row T11).
MAX_SWEEPS = 5


class Path(NamedTuple):
    """The results of every alpha: objectives (alphas,), and predictions (m, alphas) for the m held-out rows."""

    objective: NDArray[np.float64]  # on the training rows; nan if not run
    predicted: NDArray[np.int64]  # classes; -1 if not run
    losses: NDArray[np.float64]  # log losses; nan if not run or without probabilities


class RidgePath:
    """Fits an objective for several alphas; call `fit` from the largest alpha to the smallest."""

    def __init__(self, objective: Objective, control: Control) -> None:
        self.objective, self.control = objective, replace(control, carry=Carry())
        self.task: Task | None = None
        self.theta: NDArray | None = None  # of the previous alpha

    def fit(self, alpha: float) -> Solution:
        """Fit the next alpha, from the solution of the previous one."""
        if self.task is None:
            self.task = prepare(replace(self.objective, penalty=Penalty(ridge=alpha)), "auto")
        task, control = self.task.with_ridge(alpha), self.control
        if isinstance(task.solver, Dual) and sp.issparse(self.objective.X):
            control = replace(control, max_iter=MAX_SWEEPS)
        solution = task.solve(task.start(self.theta, control.rng), control)
        self.theta = solution.theta
        value = task.original.value(solution.theta) if solution.value is None else solution.value
        return replace(solution, value=value)


def alpha_path(
    X: Rows,
    codes: NDArray[np.int64],
    loss: Loss,
    alphas: Sequence[float],
    n_train: int,
    weight: NDArray | None = None,
    tol: float = 1e-3,
    stop: Callable[[], bool] | None = None,
    device: str = "cpu",
) -> Path:
    """Fit every alpha on the first `n_train` rows, and predict the others.

    `stop()` is called before each fit and ends the path if it returns True.
    """
    n_classes = int(codes.max()) + 1
    objective = Objective(X, Targets(codes), 1 if n_classes == 2 else n_classes, loss, Penalty(), True, weight)
    size = costs.size_of(X, n_classes)
    placed = place_rows(
        objective, FitPlan(size, loss, Penalty(), choose_device(device, size), "auto", costs.gpu_softmax)
    )
    objective, held_out = placed.objective, slice(n_train, len(codes))
    objectives, shape = np.full(len(alphas), np.nan), (len(codes) - n_train, len(alphas))
    predicted, losses = np.full(shape, -1), np.full(shape, np.nan)
    with single_blas(), placed.report_memory():
        control = Control(tol=tol, min_scale=MIN_SCALE * objective.value(objective.zeros()))
        path = RidgePath(merge_equal_rows(objective.take(slice(n_train))), control)
        for a in np.argsort(-np.asarray(alphas, float), kind="stable"):
            if stop is not None and stop():
                break
            solution = path.fit(float(alphas[a]))
            objectives[a] = solution.value
            predicted[:, a], losses[:, a] = _predict(solution.theta, X[held_out], codes[held_out], loss)
    return Path(objectives, predicted, losses)


def _predict(
    theta: NDArray, X: Rows, codes: NDArray[np.int64], loss: Loss
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the predicted classes (m,) and log losses (m,) of rows with these codes; nan without probabilities."""
    W, b = np.ascontiguousarray(theta[:, :-1]), np.ascontiguousarray(theta[:, -1])
    predicted, losses = np.empty(len(codes), np.int64), np.full(len(codes), np.nan)
    for rows in spans(len(codes), rows_per_block(8 * max(2, len(b)))):
        f, y = class_scores(X[rows], W, b), codes[rows]
        predicted[rows] = f[:, 0] > 0 if len(b) == 1 else f.argmax(axis=1)
        if loss.probabilities:
            losses[rows] = log_losses(probabilities(f, Shares(joint=loss.joint))[np.arange(len(y)), y])
    return predicted, losses
