"""How a linear classifier is fitted: validate -> plan -> objective -> solve -> keep.

Solvers and the plan are imported here, so that a model that only predicts loads none of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from kway import progress, validation
from kway.base.callbacks import Watch
from kway.errors import InputError
from kway.labels import Labels, class_weighted, encode_as, refuse_one_class
from kway.linear.classifier import ClassRows, LinearClassifier
from kway.linear.equivalent import merge_equal_rows
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.plan import FitPlan, place_rows, plan_fit, resumed_theta, tensor_device
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.choose import choose_solver, cold_start, prepare
from kway.linear.solvers.schedules import LEARNING_RATE
from kway.linear.solvers.sgd import SGD
from kway.memory import BLOCK_BYTES, CACHE_BYTES, rows_per_block
from kway.parameters import checked_rng
from kway.rows.gpu.device import on_host
from kway.rows.gpu.tensor_rows import TensorRows
from kway.threads import pmap, spans
from kway.validation import Rows

if TYPE_CHECKING:
    from kway.rows.gpu.device import Device

HELD_OUT = 0.1  # share of the rows that early stopping keeps for validation (documented in LinearClassifier)
FLOAT32_TOL = 8 * np.finfo(np.float32).eps  # tol, about 1e-6, below which sums of float32 losses are too coarse
PATIENCE = 5  # evaluations without a lower validation loss after which early stopping ends (tests/linear/test_stopping)


class WeightedRows(NamedTuple):
    """Rows with positive weight: X (m, d), labels, weights of mean 1 (or None), and their positions among all rows."""

    X: Rows
    labels: Labels
    weight: NDArray | None
    kept: NDArray[np.int64]


class PreparedFit(NamedTuple):
    """A plan, its rows, the theta of an earlier fit to start from (or None), and the float type of the model."""

    plan: FitPlan
    rows: WeightedRows
    last: NDArray | None
    dtype: np.dtype


def prepare_fit(model: LinearClassifier, X: Any, y: Any, sample_weight: ArrayLike | None) -> PreparedFit:
    """Validate the arguments of `fit` and plan it."""
    model._check_parameters()
    last = _theta(model) if model.warm_start and hasattr(model, "coef_") else None
    model._forget()
    soft = LOSSES[model.loss].joint.probabilities
    X, labels = validation.rows_and_labels(model, X, y, soft=soft, squared=True, device=_tensor_device(model, X))
    refuse_one_class(labels, type(model).__name__)
    dtype_of_X, X = X.dtype, _widen(X, model.tol)
    plan = plan_fit(model, X, labels, model.solver)
    rows = weighted_rows(X, labels, validation.weights(sample_weight, X), model.class_weight)
    return PreparedFit(plan, rows, last, dtype_of_X)


def solve_plan(model: LinearClassifier, prepared: PreparedFit, watch: Watch | None = None) -> None:
    """Minimize the objective and keep the solution in the model; `watch` sees the weights after each iteration."""
    plan, rows, last, dtype = prepared
    placed = place_rows(make_objective(model, plan, rows), plan)
    objective, control = placed.objective, make_control(model)
    learned, stopping = _hold_out(merge_equal_rows(objective), model.early_stopping, control.rng)
    task = prepare(learned, plan.solver)
    title = f"{type(model).__name__} {task.solver.name}"
    with resumed_theta(objective) as saved, placed.report_memory(), show_progress(title, model) as step:
        start = task.start(_match_shape(last if saved is None else saved, objective), control.rng)
        try:
            validate = _validation(stopping, watch, rows.labels.classes, dtype)
            control = replace(control, progress=step, validate=validate, early_stopping=stopping is not None)
            solution = task.solve(start, control)
        except np.linalg.LinAlgError as error:
            raise InputError(
                f"solver {task.solver.name!r} could not factorize a matrix ({error}): the columns of X differ too much "
                "in size for their float type; scale them (StandardScaler), pass float64, or use a larger alpha"
            ) from error
    if stopping is not None:  # the solver saw only a part of the rows
        best = solution.theta if stopping.theta is None else stopping.theta
        solution = replace(solution, theta=best, value=None)
    if placed.why:
        model.why_ = placed.why
    model.classes_ = rows.labels.classes
    keep(model, objective, solution, task.solver.name, rows.kept)
    with np.errstate(over="ignore"):
        model.coef_ = model.coef_.astype(dtype, copy=False)
        model.intercept_ = model.intercept_.astype(dtype, copy=False)
    _refuse_infinite(model)


def partial_fit(
    model: LinearClassifier, X: Any, y: Any, classes: ArrayLike | None, sample_weight: ArrayLike | None
) -> None:
    """Run one epoch of SGD: `LinearClassifier.partial_fit`."""
    model._check_parameters()
    first = not hasattr(model, "coef_")
    X, labels = validation.rows_and_labels(model, X, y, reset=first, squared=True, device=_tensor_device(model, X))
    if first:
        named = labels if classes is None else validation.labels_of(classes, len(np.asarray(classes)))
        model.classes_ = named.classes
    labels = Labels(model.classes_, encode_as(labels.classes[labels.codes], model.classes_))
    refuse_one_class(labels, type(model).__name__)
    solver = model.solver if isinstance(model.solver, SGD) else SGD()
    plan = plan_fit(model, X, labels, solver)
    rows = weighted_rows(X, labels, validation.weights(sample_weight, X), model.class_weight)
    placed = place_rows(make_objective(model, plan, rows), plan)
    objective = placed.objective
    choose_solver(solver, objective)
    epoch = getattr(model, "epochs_", 0)
    control = make_control(model, epoch)
    last = None if first else _match_shape(_theta(model), objective)
    start = cold_start(objective, control.rng) if last is None else last
    with placed.report_memory():
        theta = solver.epoch(objective, start, control, epoch)
    model.epochs_ = epoch + 1
    history = [*getattr(model, "history_", []), objective.value(theta)]
    keep(model, objective, Solution(theta, model.epochs_, history=history), solver.name, rows.kept)
    _refuse_infinite(model)


def _refuse_infinite(model: LinearClassifier) -> None:
    """Raise InputError if the weights are not finite: such a model could not predict its own rows."""
    if not np.isfinite([model.coef_.min(), model.coef_.max()]).all():
        kind = model.coef_.dtype
        model._forget()
        raise InputError(f"the weights overflow {kind}: the values of X are too small; scale them (StandardScaler)")


# ---- from rows, labels and parameters to an objective


def _tensor_device(model: LinearClassifier, X: Any) -> Device | None:
    """Return the device on which a tensor X stays; None if the rows are read into the memory of this process."""
    return None if model._form(2).numbers else tensor_device(model.device, X)


def _widen(X: Rows, tol: float) -> Rows:
    """Return float32 rows as float64 if tol is below the rounding of float32 sums: a "proven" 1e-7 was really 1e-6."""
    narrow = not isinstance(X, TensorRows) and X.dtype == np.float32
    return X.astype(np.float64) if narrow and 0 < tol < FLOAT32_TOL else X


def weighted_rows(X: Rows, labels: Labels, sample_weight: NDArray | None, class_weight: Any) -> WeightedRows:
    """Return the rows with their weights, without rows of weight zero."""
    everything = np.arange(X.shape[0])
    weight = class_weighted(sample_weight, labels, class_weight)
    if weight is None:
        return WeightedRows(X, labels, None, everything)
    kept = everything[weight > 0]
    if len(kept) < len(everything):
        X, weight = X[kept], weight[kept]
        labels = Labels(labels.classes, labels.codes[kept], None if labels.soft is None else labels.soft[kept])
    return WeightedRows(X, labels, (weight / weight.mean()).astype(X.dtype), kept)


def make_objective(model: LinearClassifier, plan: FitPlan, rows: WeightedRows) -> Objective:
    """Return the objective that the model minimizes on these rows."""
    X, labels, weight, _ = rows
    soft = soft_targets(labels, model.label_smoothing, X.dtype)
    if soft is not None and not plan.loss.soft_targets:
        raise InputError(f"the {plan.loss.name} loss takes one label per row, not distributions or label_smoothing")
    if plan.loss.numbers:
        soft = labels.codes[:, None].astype(X.dtype)
    targets = Targets(labels.codes, soft)
    return Objective(X, targets, plan.n_scores, plan.loss, plan.penalty, model.fit_intercept, weight)


def soft_targets(labels: Labels, smoothing: float, dtype: Any) -> NDArray | None:
    """Return targets (n, R): 1 - eps for the class and eps / (K - 1) for each other; None if codes are enough."""
    if labels.soft is None and smoothing == 0:
        return None
    K = labels.n_classes
    Y = np.eye(K)[labels.codes] if labels.soft is None else labels.soft
    Y = Y * (1 - smoothing) + (1 - Y) * (smoothing / (K - 1))
    return np.ascontiguousarray(Y[:, 1:] if K == 2 else Y, dtype=dtype)


def _hold_out(
    objective: Objective, early_stopping: bool | float, rng: np.random.Generator
) -> tuple[Objective, EarlyStopping | None]:
    """Split off validation rows; return all rows and None without early stopping."""
    if not early_stopping:
        return objective, None
    from sklearn.model_selection import train_test_split  # half a second, and no prediction needs it

    part = HELD_OUT if early_stopping is True else float(early_stopping)
    codes = objective.targets.codes
    stratify = codes if np.bincount(codes).min() >= 2 and part * len(codes) >= objective.n_scores else None
    train, held = train_test_split(
        np.arange(objective.n), test_size=part, stratify=stratify, random_state=int(rng.integers(2**31))
    )
    return objective.take(np.sort(train)), EarlyStopping(objective.take(np.sort(held)))


def make_control(model: LinearClassifier, epoch: int = 0) -> Control:
    """Return the stopping rules of a solver and the random generator of an epoch."""
    LEARNING_RATE.check("learning_rate", model.learning_rate)
    seed = checked_rng(model.random_state).randint(2**31 - 1) if model.random_state is not None else 0
    rng = np.random.default_rng((seed, epoch))
    return Control(model.max_iter, model.tol, model.batch_size, model.learning_rate, rng)


def _theta(model: LinearClassifier) -> NDArray:
    return np.hstack([model.coef_, model.intercept_[:, None]])


def _match_shape(theta: NDArray | None, objective: Objective) -> NDArray | None:
    """Return the theta of an earlier fit if it has the shape of this one, else None."""
    if theta is None or theta.shape != (objective.n_scores, objective.d + 1):
        return None
    return theta.astype(objective.rows.dtype)


# ---- progress and early stopping


@contextmanager
def show_progress(title: str, model: LinearClassifier) -> Iterator[Callable[[int, float], bool] | None]:
    """Yield a function that shows each iteration, or None if the model is not verbose."""
    if not model.verbose:
        yield None
        return
    with progress.bar(title, model.max_iter) as at:

        def step(iteration: int, objective: float) -> bool:
            at(iteration, f"iteration {iteration}  objective {objective:.6g}")
            return False

        yield step


def _validation(
    stopping: EarlyStopping | None, watch: Watch | None, classes: NDArray, dtype: np.dtype
) -> Callable[[NDArray], bool] | None:
    """Return what a solver calls with the theta of each iteration: early stopping, and the callbacks of the model."""
    if watch is None:
        return stopping

    def validate(theta: NDArray) -> bool:
        done = stopping is not None and stopping(theta)
        return watch(lambda: _weights_so_far(theta, classes, dtype)) or done

    return validate


def _weights_so_far(theta: NDArray, classes: NDArray, dtype: np.dtype) -> dict[str, Any]:
    W, b = split_weights(on_host(theta).astype(dtype))
    return {"classes_": classes, "coef_": W, "intercept_": b}


@dataclass
class EarlyStopping:
    """Keep the theta with the lowest loss on validation rows; stop after PATIENCE evaluations without a lower one."""

    objective: Objective
    best: float = np.inf
    theta: NDArray | None = None
    since: int = 0

    def __call__(self, theta: NDArray) -> bool:
        """Return whether to stop now."""
        value = self.objective.value(theta)
        if value < self.best:
            self.best, self.theta, self.since = value, theta.copy(), 0
        else:
            self.since += 1
        return self.since >= PATIENCE


# ---- what the model keeps


def keep(
    model: LinearClassifier, objective: Objective, solution: Solution, solver: str, kept: NDArray[np.int64]
) -> None:
    """Set the learned attributes of the model; warn if the solver has not converged."""
    value = objective.value(solution.theta) if solution.value is None else solution.value
    for name in ("support_", "margin_"):  # from an earlier partial_fit, perhaps with another loss
        model.__dict__.pop(name, None)
    if objective.loss.has_margin:
        model.support_ = kept[_support(objective, solution.theta)]
    model.coef_, model.intercept_ = split_weights(solution.theta)
    model.n_iter_ = solution.n_iter
    model.history_ = solution.history
    model.objective_ = value
    model.solver_ = solver
    if objective.loss.has_margin:
        norms = np.linalg.norm(model.coef_, axis=1)
        margins = 1 / np.maximum(norms, np.finfo(norms.dtype).tiny)
        model.margin_ = float(margins[0]) if len(margins) == 1 else margins
    if not solution.converged:
        warnings.warn(
            f"{type(model).__name__} ({solver}) stopped after {solution.n_iter} iterations without converging"
            f"{solution.distance} (tol={model.tol:g}); {solution.advice or 'raise max_iter'}",
            ConvergenceWarning,
            stacklevel=3,
        )


def split_weights(theta: NDArray) -> ClassRows:
    """Return W and b of theta (R, d + 1); a large theta is overwritten, so that there is no second copy."""
    b = theta[:, -1].copy()
    if theta.nbytes <= 4 * BLOCK_BYTES or not (theta.flags.c_contiguous and theta.flags.writeable):
        return ClassRows(np.ascontiguousarray(theta[:, :-1]), b)
    R, d = theta.shape[0], theta.shape[1] - 1
    flat = theta.reshape(-1)
    for rows in spans(R, rows_per_block(theta[0].nbytes, CACHE_BYTES)):
        flat[rows.start * d : rows.stop * d] = theta[rows, :-1].ravel()  # ravel copies: they overlap
    return ClassRows(flat[: R * d].reshape(R, d), b)


def _support(objective: Objective, theta: NDArray, slack: float = 1e-3) -> NDArray[np.int64]:
    """Return the rows on or inside the margin of some class: those whose hinge is active at 1 + slack."""
    widened = objective.with_loss(objective.loss.smoothed(1e-12))

    def block(rows: slice) -> NDArray:
        f = widened.scores(theta, rows) / theta.dtype.type(1 + slack)  # y f <= 1 + slack
        value, _ = widened.loss.value_gradient(f, widened.block_targets(rows))
        return value > 0

    parts = pmap(block, spans(objective.n, rows_per_block(theta.itemsize * objective.n_scores, CACHE_BYTES)))
    return np.flatnonzero(np.concatenate(parts))
