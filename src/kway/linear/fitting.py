"""How a linear classifier learns: check -> plan -> objective -> solve -> keep.

Solvers and the plan are loaded from here, so that a model that only answers loads none of them.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import compute_class_weight

from kway import validation
from kway.base.class_rows import CLASS_BLOCK
from kway.errors import BudgetError, InputError
from kway.labels import Labels, encode_as, refuse_one_class
from kway.linear.classifier import ClassRows, LinearClassifier
from kway.linear.distinct_rows import condensed
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.placing import keeping, placed, restarted, room
from kway.linear.plan import FitPlan, plan_fit
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.choose import choose_solver, cold_start, prepare
from kway.linear.solvers.schedules import LEARNING_RATE
from kway.linear.solvers.sgd import SGD
from kway.linear.solvers.watching import Validation, shown
from kway.parameters import checked_rng
from kway.rows.gpu.tensor_rows import TensorRows
from kway.threads import pmap, spans
from kway.validation import Rows

if TYPE_CHECKING:
    from kway.rows.gpu.device import Device

HELD_OUT = 0.1  # share of the rows that early stopping keeps for validation
FLOAT32_HOLDS = 1e-6  # relative excess of an objective below which sums of float32 losses tell nothing (T1)
_ONCE = 2**26  # numbers of theta above which no second copy of it is made
_MOVED = 2**20  # numbers moved at a time


class WeightedRows(NamedTuple):
    """Rows that count: X (m, d), their labels and weights of mean 1 (or None), and their positions among all rows."""

    X: Rows
    labels: Labels
    weight: NDArray | None
    kept: NDArray[np.int64]


def fit_linear(model: LinearClassifier, X: Any, y: Any, sample_weight: ArrayLike | None) -> None:
    """LinearClassifier.fit."""
    model._check_parameters()
    last = _theta(model) if model.warm_start and hasattr(model, "coef_") else None
    model._forget()
    soft = LOSSES[model.loss].joint.probabilities
    X, labels = validation.rows_and_labels(model, X, y, soft=soft, squared=True, device=_kept_on(model, X))
    refuse_one_class(labels, type(model).__name__)
    given, X = X.dtype, _wide_enough(X, model.tol)
    plan = plan_fit(model, X, labels, model.solver)
    rows = weighted_rows(X, labels, validation.weights(sample_weight, X), model.class_weight)
    model.classes_ = labels.classes
    try:
        solve_plan(model, plan, rows, last)
    except BudgetError:
        model._forget()  # nothing is half fitted
        raise
    if given != X.dtype:
        model.coef_, model.intercept_ = model.coef_.astype(given), model.intercept_.astype(given)


def solve_plan(model: LinearClassifier, plan: FitPlan, rows: WeightedRows, last: NDArray | None) -> None:
    """Minimize the objective from `last`, the solution of the last fit if there was one, and keep the solution."""
    there = placed(make_objective(model, plan, rows), plan.device, plan.size, plan.formula)
    objective, control = there.objective, control_of(model)
    learned, watched = _hold_out(condensed(objective), model.early_stopping, control.rng)
    work = prepare(learned, plan.solver)
    title = f"{type(model).__name__} {work.solver.name}"
    with restarted(objective) as saved, room(there), shown(title, model.max_iter, model.verbose) as progress:
        start = work.start(_of_shape(last if saved is None else saved, objective), control.rng)
        control = replace(control, progress=progress, validate=watched)
        try:
            solution = work.solve(start, control)
        except np.linalg.LinAlgError as error:
            raise InputError(
                f"the {work.solver.name} solver met a matrix that rounding left without a factor ({error}): columns of "
                "X differ too much in size for its float type; scale them (StandardScaler), pass float64, or a larger "
                "alpha"
            ) from error
    if watched is not None:  # it learned from some rows
        best = solution.theta if watched.theta is None else watched.theta
        solution = replace(solution, theta=best, value=None)
    if there.why:
        model.why_ = there.why
    keep(model, objective, solution, work.solver.name, rows.kept)


def partial_fit(
    model: LinearClassifier, X: Any, y: Any, classes: ArrayLike | None, sample_weight: ArrayLike | None
) -> None:
    """LinearClassifier.partial_fit."""
    model._check_parameters()
    first = not hasattr(model, "coef_")
    X, labels = validation.rows_and_labels(model, X, y, reset=first, squared=True, device=_kept_on(model, X))
    if first:
        named = labels if classes is None else validation.labels_of(classes, len(np.asarray(classes)))
        model.classes_ = named.classes
    labels = Labels(model.classes_, encode_as(labels.classes[labels.codes], model.classes_))
    refuse_one_class(labels, type(model).__name__)
    solver = model.solver if isinstance(model.solver, SGD) else SGD()
    plan = plan_fit(model, X, labels, solver)
    rows = weighted_rows(X, labels, validation.weights(sample_weight, X), model.class_weight)
    there = placed(make_objective(model, plan, rows), plan.device, plan.size, plan.formula)
    objective = there.objective
    choose_solver(solver, objective)
    epoch = getattr(model, "epochs_", 0)
    control = control_of(model, epoch)
    last = None if first else _of_shape(_theta(model), objective)
    start = cold_start(objective, control.rng) if last is None else last
    with room(there):
        theta = solver.epoch(objective, start, control, epoch)
    model.epochs_ = epoch + 1
    history = [*getattr(model, "history_", []), objective.value(theta)]
    keep(model, objective, Solution(theta, model.epochs_, history=history), solver.name, rows.kept)


# ---- from rows, labels and parameters to an objective


def _kept_on(model: LinearClassifier, X: Any) -> Device | None:
    """Where the rows of a fit stay if they are a tensor; None: they are read into this machine's memory."""
    return None if model._form(2).numbers else keeping(model.device, X)


def _wide_enough(X: Rows, tol: float) -> Rows:
    """The rows in a float type that can tell an excess of tol: float64 if float32 cannot.

    A gap of 1e-7 that float32 arithmetic "proved" was one of 1e-6.
    """
    narrow = not isinstance(X, TensorRows) and X.dtype == np.float32
    return X.astype(np.float64) if narrow and 0 < tol < FLOAT32_HOLDS else X


def weighted_rows(X: Rows, labels: Labels, sample_weight: NDArray | None, class_weight: Any) -> WeightedRows:
    """Rows with their weights, without those of weight zero."""
    everything = np.arange(X.shape[0])
    weight = _class_weighted(sample_weight, labels, class_weight)
    if weight is None:
        return WeightedRows(X, labels, None, everything)
    kept = everything[weight > 0]
    if len(kept) < len(everything):
        X, weight = X[kept], weight[kept]
        labels = Labels(labels.classes, labels.codes[kept], None if labels.soft is None else labels.soft[kept])
    return WeightedRows(X, labels, (weight / weight.mean()).astype(X.dtype), kept)


def _class_weighted(weight: NDArray | None, labels: Labels, class_weight: Any) -> NDArray | None:
    """Sample weights times the weights of their classes; "balanced" counts a row by its weight."""
    if class_weight is None:
        return weight
    classes, codes = labels.classes, labels.codes
    if isinstance(class_weight, str) and weight is not None:
        totals = np.bincount(codes, weight, minlength=len(classes))
        each = weight.sum() / (len(classes) * np.maximum(totals, np.finfo(float).tiny))
    else:
        try:
            each = compute_class_weight(class_weight, classes=classes, y=classes[codes])
        except (ValueError, TypeError) as error:
            raise InputError(f"class_weight does not fit the labels: {error}") from error
        if not (np.isfinite(each) & (each >= 0)).all():
            raise InputError(f"class_weight must be finite weights >= 0 by label, got {class_weight!r:.100}")
    return each[codes] if weight is None else weight * each[codes]


def make_objective(model: LinearClassifier, plan: FitPlan, rows: WeightedRows) -> Objective:
    """What the model minimizes on these rows."""
    X, labels, weight, _ = rows
    soft = soft_targets(labels, model.label_smoothing, X.dtype)
    if soft is not None and not plan.loss.soft_targets:
        raise InputError(f"the {plan.loss.name} loss takes one label per row, not distributions or label_smoothing")
    if plan.loss.numbers:
        soft = labels.codes[:, None].astype(X.dtype)
    targets = Targets(labels.codes, soft)
    return Objective(X, targets, plan.n_scores, plan.loss, plan.penalty, model.fit_intercept, weight)


def soft_targets(labels: Labels, smoothing: float, dtype: Any) -> NDArray | None:
    """(n, R) targets if they are not plain codes: 1 - eps for the class and eps / (K - 1) for each other."""
    if labels.soft is None and smoothing == 0:
        return None
    K = labels.n_classes
    Y = np.eye(K)[labels.codes] if labels.soft is None else labels.soft
    Y = Y * (1 - smoothing) + (1 - Y) * (smoothing / (K - 1))
    return np.ascontiguousarray(Y[:, 1:] if K == 2 else Y, dtype=dtype)


def _hold_out(
    objective: Objective, early_stopping: bool | float, rng: np.random.Generator
) -> tuple[Objective, Validation | None]:
    """The problem on the rows to learn from, and what watches the others; all rows and None without early stopping."""
    if not early_stopping:
        return objective, None
    from sklearn.model_selection import train_test_split  # half a second, and no prediction needs it

    part = HELD_OUT if early_stopping is True else float(early_stopping)
    codes = objective.targets.codes
    stratify = codes if np.bincount(codes).min() >= 2 and part * len(codes) >= objective.n_scores else None
    train, held = train_test_split(
        np.arange(objective.n), test_size=part, stratify=stratify, random_state=int(rng.integers(2**31))
    )
    return objective.take(np.sort(train)), Validation(objective.take(np.sort(held)))


def control_of(model: LinearClassifier, epoch: int = 0) -> Control:
    """When its solver ends, and the random numbers of an epoch."""
    LEARNING_RATE.check("learning_rate", model.learning_rate)
    seed = checked_rng(model.random_state).randint(2**31 - 1) if model.random_state is not None else 0
    rng = np.random.default_rng((seed, epoch))
    return Control(model.max_iter, model.tol, model.batch_size, model.learning_rate, rng)


def _theta(model: LinearClassifier) -> NDArray:
    return np.hstack([model.coef_, model.intercept_[:, None]])


def _of_shape(theta: NDArray | None, objective: Objective) -> NDArray | None:
    """theta of an earlier fit where it has the shape of this one's."""
    if theta is None or theta.shape != (objective.n_scores, objective.d + 1):
        return None
    return theta.astype(objective.rows.dtype)


# ---- what the model keeps


def keep(
    model: LinearClassifier, objective: Objective, solution: Solution, solver: str, kept: NDArray[np.int64]
) -> None:
    """The model's learned attributes; warns if the solver has not converged."""
    value = objective.value(solution.theta) if solution.value is None else solution.value
    for name in ("support_", "margin_"):  # of an earlier call, perhaps with another loss
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
    """W and b of theta (R, d + 1); a large theta is overwritten, as its rows move up in place."""
    b = theta[:, -1].copy()
    if theta.size <= _ONCE or not (theta.flags.c_contiguous and theta.flags.writeable):
        return ClassRows(np.ascontiguousarray(theta[:, :-1]), b)
    R, d = theta.shape[0], theta.shape[1] - 1
    flat = theta.reshape(-1)
    for rows in spans(R, max(1, _MOVED // (d + 1))):
        flat[rows.start * d : rows.stop * d] = theta[rows, :-1].ravel()  # a copy: they overlap
    return ClassRows(flat[: R * d].reshape(R, d), b)


def _support(objective: Objective, theta: NDArray, slack: float = 1e-3) -> NDArray[np.int64]:
    """Rows on or inside the margin of some class: those whose hinge is active at 1 + slack."""
    widened = objective.with_loss(objective.loss.smoothed(1e-12))

    def block(rows: slice) -> NDArray:
        f = widened.scores(theta, rows) / theta.dtype.type(1 + slack)  # y f <= 1 + slack
        value, _ = widened.loss.value_gradient(f, widened.block_targets(rows))
        return value > 0

    parts = pmap(block, spans(objective.n, max(16, CLASS_BLOCK // objective.n_scores)))
    return np.flatnonzero(np.concatenate(parts))
