"""The fit of a linear classifier: validate -> plan -> objective -> solve -> set the learned attributes.

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
from kway.linear.solvers.registry import choose_solver, prepare
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

# tol below which float32 rows are converted to float64, about 1e-6. A loss in float32 has a relative rounding error of
# a few eps, so that a bound below 8 eps could be wrong.
FLOAT32_TOL = 8 * np.finfo(np.float32).eps
PATIENCE = 5  # iterations without a lower validation loss after which early stopping ends (tests/linear/test_stopping)


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
    warm_start_theta: NDArray | None
    dtype: np.dtype


def prepare_fit(model: LinearClassifier, X: Any, y: Any, sample_weight: ArrayLike | None) -> PreparedFit:
    """Validate the arguments of `fit` and plan it."""
    model._check_parameters()
    last = _theta(model) if model.warm_start and hasattr(model, "coef_") else None
    model._forget()
    soft = LOSSES[model.loss].joint.probabilities
    X, labels = validation.rows_and_labels(model, X, y, soft=soft, squared=True, device=_tensor_device(model, X))
    refuse_one_class(labels, type(model).__name__)
    original_dtype, X = X.dtype, _widen(X, model.tol)
    plan = plan_fit(model, X, labels, model.solver)
    rows = weighted_rows(X, labels, validation.weights(sample_weight, X), model.class_weight)
    return PreparedFit(plan, rows, last, original_dtype)


def solve_plan(model: LinearClassifier, prepared: PreparedFit, watch: Watch | None = None) -> None:
    """Minimize the objective and set the attributes of the model; `watch` gets the weights after each iteration."""
    plan, rows, warm_start_theta, dtype = prepared
    placed = place_rows(make_objective(model, plan, rows), plan)
    objective, control = placed.objective, make_control(model)
    train_objective, stopping = _hold_out(merge_equal_rows(objective), model.early_stopping, control.rng)
    task = prepare(train_objective, plan.solver)
    title = f"{type(model).__name__} {task.solver.name}"
    with resumed_theta(objective) as checkpoint_theta, placed.report_memory(), show_progress(title, model) as step:
        theta = warm_start_theta if checkpoint_theta is None else checkpoint_theta
        start = task.start(_match_shape(theta, objective), control.rng)
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
    set_learned_attributes(model, objective, solution, task.solver.name, rows.kept)
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
    choose_solver(solver, objective)  # raises CombinationError if SGD does not support the objective
    epoch = getattr(model, "epochs_", 0)
    control = make_control(model, epoch)
    last = None if first else _match_shape(_theta(model), objective)
    start = solver.cold_start(objective, control.rng) if last is None else last
    with placed.report_memory():
        theta = solver.epoch(objective, start, control, epoch)
    model.epochs_ = epoch + 1
    history = [*getattr(model, "history_", []), objective.value(theta)]
    set_learned_attributes(model, objective, Solution(theta, model.epochs_, history=history), solver.name, rows.kept)
    _refuse_infinite(model)


def _refuse_infinite(model: LinearClassifier) -> None:
    """Raise InputError if the weights are not finite: such a model could not predict its own rows."""
    ends = [end for learned in (model.coef_, model.intercept_) for end in (learned.min(), learned.max())]
    if not np.isfinite(ends).all():
        dtype = model.coef_.dtype
        model._forget()
        raise InputError(
            f"the weights overflow {dtype} or are not numbers: the values of X are too small or too large, or the "
            "steps of SGD diverged; scale X (StandardScaler), or lower learning_rate"
        )


# ---- from rows, labels and parameters to an objective


def _tensor_device(model: LinearClassifier, X: Any) -> Device | None:
    """Return the device on which a tensor X stays; None if the rows are read into the memory of this process."""
    return None if model._form(2).class_number else tensor_device(model.device, X)


def _widen(X: Rows, tol: float) -> Rows:
    """Return float32 rows as float64 if tol is below FLOAT32_TOL."""
    narrow = not isinstance(X, TensorRows) and X.dtype == np.float32
    return X.astype(np.float64) if narrow and 0 < tol < FLOAT32_TOL else X


def weighted_rows(X: Rows, labels: Labels, sample_weight: NDArray | None, class_weight: Any) -> WeightedRows:
    """Return the rows with their weights, without rows of weight zero."""
    positions = np.arange(X.shape[0])
    weight = class_weighted(sample_weight, labels, class_weight)
    if weight is None:
        return WeightedRows(X, labels, None, positions)
    kept = positions[weight > 0]
    if len(kept) < len(positions):
        X, weight = X[kept], weight[kept]
        labels = Labels(labels.classes, labels.codes[kept], None if labels.soft is None else labels.soft[kept])
    return WeightedRows(X, labels, (weight / weight.mean()).astype(X.dtype), kept)


def make_objective(model: LinearClassifier, plan: FitPlan, rows: WeightedRows) -> Objective:
    """Return the objective that the model minimizes on these rows."""
    X, labels, weight, _ = rows
    soft = soft_targets(labels, model.label_smoothing, X.dtype)
    if soft is not None and not plan.loss.soft_targets:
        raise InputError(f"the {plan.loss.name} loss takes one label per row, not distributions or label_smoothing")
    if plan.loss.class_number:
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

    share = 0.1 if early_stopping is True else float(early_stopping)
    codes = objective.targets.codes
    counts = np.bincount(codes)
    # a stratified split needs two rows of each class, and at least as many rows on each side as there are classes
    stratified = counts.min() >= 2 and min(share, 1 - share) * len(codes) >= len(counts)
    train, held_out = train_test_split(
        np.arange(objective.n),
        test_size=share,
        stratify=codes if stratified else None,
        random_state=int(rng.integers(2**31)),
    )
    return objective.take(np.sort(train)), EarlyStopping(objective.take(np.sort(held_out)))


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
    """Yield a function that shows each iteration in a progress bar, or None if the model is not verbose."""
    if not model.verbose:
        yield None
        return
    with progress.bar(title, model.max_iter) as show:

        def step(iteration: int, objective: float) -> bool:
            show(iteration, f"iteration {iteration}  objective {objective:.6g}")
            return False

        yield step


def _validation(
    stopping: EarlyStopping | None, watch: Watch | None, classes: NDArray, dtype: np.dtype
) -> Callable[[NDArray], bool] | None:
    """Return the function that a solver calls with the theta of each iteration, for early stopping and callbacks."""
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


# ---- learned attributes


def set_learned_attributes(
    model: LinearClassifier, objective: Objective, solution: Solution, solver: str, positions: NDArray[np.int64]
) -> None:
    """Set the learned attributes of the model; warn if the solver has not converged.

    `positions` are the positions of the rows of the objective among the rows given to `fit`.
    """
    value = objective.value(solution.theta) if solution.value is None else solution.value
    for name in ("support_", "margin_"):  # of an earlier partial_fit, which may have had another loss
        model.__dict__.pop(name, None)
    if objective.loss.has_margin:
        model.support_ = positions[_support(objective, solution.theta)]
    # may overwrite solution.theta, which must not be used afterwards
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
        flat[rows.start * d : rows.stop * d] = theta[rows, :-1].ravel()  # a copy, because source and target overlap
    return ClassRows(flat[: R * d].reshape(R, d), b)


def _support(objective: Objective, theta: NDArray, slack: float = 1e-3) -> NDArray[np.int64]:
    """Return the rows on or inside the margin of a class: y f <= 1 + slack, where slack covers the tolerance."""

    def block(rows: slice) -> NDArray:
        f = objective.scores(theta, rows) / theta.dtype.type(1 + slack)
        value, _ = objective.loss.value_gradient(f, objective.targets.of(rows))
        return value > 0

    parts = pmap(block, spans(objective.n, rows_per_block(theta.itemsize * objective.n_scores, CACHE_BYTES)))
    return np.flatnonzero(np.concatenate(parts))
