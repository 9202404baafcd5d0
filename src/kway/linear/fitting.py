"""How a linear classifier learns: gate -> targets and weights -> Objective -> solver -> what the model keeps.

Solvers and the plan are loaded from here, so that a model that only answers loads none of them.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning

from kway.base.own_threads import on_own_threads
from kway.data import gate
from kway.data.labels import Labels, encode_as
from kway.errors import BudgetError, InputError
from kway.linear import answers, problem
from kway.linear.fit_ways import may_split, way_there
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective.distinct_rows import condensed
from kway.linear.objective.objective import Objective
from kway.linear.penalties import pick_penalty
from kway.linear.placing import keeping, placed, room
from kway.linear.problem import WeightedRows
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.registry import pick_solver
from kway.linear.solvers.solver_at_work import Work, cold_start
from kway.linear.solvers.stochastic.schedules import LEARNING_RATE
from kway.linear.solvers.stochastic.sgd import SGD
from kway.linear.solvers.watching import shown
from kway.parameters import checked_rng
from kway.planning import guard

if TYPE_CHECKING:
    from kway.compute.gpu.device import Device
    from kway.linear.classifier import LinearClassifier


@on_own_threads
def fit_linear(model: LinearClassifier, X: Any, y: Any, sample_weight: ArrayLike | None) -> None:
    """LinearClassifier.fit."""
    model._check_parameters()
    last = _theta(model) if model.warm_start and hasattr(model, "coef_") else None
    model._forget()
    soft = LOSSES[model.loss].joint.probabilities
    X, labels = gate.rows_and_labels(model, X, y, soft=soft, squared=True, device=_stays_there(model, X))
    problem.refuse_one_class(labels, type(model).__name__)
    given, X = X.dtype, problem.wide_enough(X, model.tol)
    size = guard.size_of(X, labels.n_classes)
    guard.before_fit(type(model).__name__, model._way(size, labels.soft is None), size)
    model.classes_ = labels.classes
    try:
        model._learn(problem.weighted_rows(X, labels, gate.weights(sample_weight, X), model.class_weight), last)
    except BudgetError:
        model._forget()  # nothing is half fitted
        raise
    if given != X.dtype:
        model.coef_, model.intercept_ = model.coef_.astype(given), model.intercept_.astype(given)


def learn(model: LinearClassifier, given: WeightedRows, last: NDArray | None) -> None:
    """Minimise the objective from `last`, the solution of the last fit (None: from the beginning)."""
    whole = objective_of(model, given)
    size = guard.size_of(whole.X, len(model.classes_))
    way = way_there(model, size, whole.targets.soft is None)
    there = placed(whole, model.device, way, may_split(model, whole.loss, whole.penalty), model.solver == "auto")
    objective, why, _ = there
    control = control_of(model)
    learned, validation = problem.set_aside(condensed(objective), model.early_stopping, control.rng)
    work = Work.on(learned, model.solver)
    start = work.start(_of_shape(last, objective), control.rng)
    title = f"{type(model).__name__} {work.solver.name}"
    with room(there), shown(title, model.max_iter, model.verbose) as progress:
        solution = _solved(work, start, replace(control, progress=progress, validate=validation))
    if validation is not None:  # it learned from some rows
        best = solution.theta if validation.theta is None else validation.theta
        solution = replace(solution, theta=best, value=None)
    if why:
        model.why_ = why
    keep(model, objective, solution, work.solver.name, given.kept)


@on_own_threads
def partial_fit(
    model: LinearClassifier, X: Any, y: Any, classes: ArrayLike | None, sample_weight: ArrayLike | None
) -> None:
    """LinearClassifier.partial_fit."""
    model._check_parameters()
    first = not hasattr(model, "coef_")
    X, labels = gate.rows_and_labels(model, X, y, reset=first, squared=True, device=_stays_there(model, X))
    if first:
        model.classes_ = (
            labels.classes if classes is None else gate.labels_of(classes, len(np.asarray(classes))).classes
        )
    labels = Labels(model.classes_, encode_as(labels.classes[labels.codes], model.classes_))
    problem.refuse_one_class(labels, type(model).__name__)
    given = problem.weighted_rows(X, labels, gate.weights(sample_weight, X), model.class_weight)
    there = placed(objective_of(model, given), model.device)
    objective = there.objective
    solver = model.solver if isinstance(model.solver, SGD) else SGD()
    pick_solver(solver, objective)
    epoch = getattr(model, "epochs_", 0)
    control = control_of(model, epoch)
    last = None if first else _of_shape(_theta(model), objective)
    start = cold_start(objective, control.rng) if last is None else last
    with room(there):
        theta = solver.epoch(objective, start, control, epoch)
    model.epochs_ = epoch + 1
    history = [*getattr(model, "history_", []), objective.value(theta)]
    keep(model, objective, Solution(theta, model.epochs_, history=history), solver.name, given.kept)


# ---- parts


def _stays_there(model: LinearClassifier, X: Any) -> Device | None:
    """Where the rows of a fit stay, if they are a tensor; None: they are read here."""
    return keeping(model.device, X) if model._answers_there() else None


def objective_of(model: LinearClassifier, given: WeightedRows) -> Objective:
    """What the model minimises on these rows."""
    X, labels, weight, _ = given
    form = model._form()
    soft = problem.soft_targets(labels, model.label_smoothing, X.dtype)
    if soft is not None and not form.soft_targets:
        raise InputError(f"the {form.name} loss takes one label a row, not distributions or label_smoothing")
    n_scores = 1 if labels.n_classes == 2 else labels.n_classes
    penalty = pick_penalty(model.penalty, model.l1_ratio).times(model.alpha)
    targets = Targets(labels.codes, soft)
    return Objective(X, targets, n_scores, form, penalty, model.fit_intercept, weight, model.n_jobs)


def control_of(model: LinearClassifier, epoch: int = 0) -> Control:
    """When its solver ends, and the draws of an epoch."""
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
    return theta.astype(objective.X.dtype)


def _solved(work: Work, start: NDArray, control: Control) -> Solution:
    """The solver's solution; a factorisation that fails says what to do, not what LAPACK thinks."""
    try:
        return work.solve(start, control)
    except np.linalg.LinAlgError as error:
        raise InputError(
            f"the {work.solver.name} solver met a matrix that rounding left without a factor ({error}): columns of X "
            "differ too much in size for its float type; scale them (StandardScaler), pass float64, or a larger alpha"
        ) from error


def keep(
    model: LinearClassifier, objective: Objective, solution: Solution, solver: str, kept: NDArray[np.int64]
) -> None:
    """The model's learned attributes; a warning where the solver has not converged."""
    value = objective.value(solution.theta) if solution.value is None else solution.value
    for name in ("support_", "margin_"):  # of an earlier call, perhaps with another loss
        model.__dict__.pop(name, None)
    if objective.loss.has_margin:
        model.support_ = kept[answers.support(objective, solution.theta)]
    model.coef_, model.intercept_ = answers.split_weights(solution.theta)
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
