"""FitPlan: what is decided about a fit of a linear classifier, once, before it starts.

size      rows, columns, classes and the bytes of a number
loss      the form of the loss for this number of classes
penalty   with its weight alpha
device    the GPU, or None for this machine's processors, and why
solver    as the model names it; classes are sampled if "auto" cannot sum over all of them
formula   what the fit costs by the plan (kway.planning)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from kway.labels import Labels
from kway.linear.losses import Loss
from kway.linear.penalties import Penalty, pick_penalty
from kway.linear.placing import choose_device
from kway.linear.solvers.choose import samples
from kway.linear.solvers.sampled import Sampled
from kway.linear.solvers.sgd import SGD
from kway.memory import has_room
from kway.planning import costs, guard
from kway.planning.costs import Formula, Size
from kway.progress import note
from kway.rows.gpu.device import ChosenDevice

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier

_ONE_VECTOR = ("sgd", "gradient", "dual", "least-squares")  # solvers that keep no history and no factor per class


class FitPlan(NamedTuple):
    """What is decided about a fit before it starts."""

    size: Size
    loss: Loss
    penalty: Penalty
    device: ChosenDevice
    solver: Any
    formula: Formula

    @property
    def n_scores(self) -> int:
        """R: one score for two classes, or if the score is the number of the class; else one per class."""
        return 1 if self.size.K == 2 or self.loss.numbers else self.size.K


def plan_fit(model: LinearClassifier, X: Any, labels: Labels, solver: Any) -> FitPlan:
    """The plan for checked rows with labels and a solver; raises BudgetError if the fit needs too much memory."""
    size = guard.size_of(X, labels.n_classes)
    loss, penalty = model._form(size.K), penalty_of(model)
    if loss.numbers:
        plan = FitPlan(size, loss, penalty, ChosenDevice(None, ""), "least-squares", costs.softmax)
        size = replace(size, K=2)  # one score
    else:
        plan = _plan(model, X, size, solver, labels.soft is None)
    guard.check_fit(type(model).__name__, plan.formula, size)
    return plan


def _plan(model: LinearClassifier, X: Any, size: Size, solver: Any, hard: bool) -> FitPlan:
    loss, penalty = model._form(size.K), penalty_of(model)
    by_name, by_choice = asks_for_sampled(solver), solver == "auto" and chooses_sampled(model, size, hard)
    sampled = by_name or (by_choice and guard.exceeds_gpu_steps(size))
    formula: Formula = costs.gpu_sampled if sampled else costs.gpu_softmax
    device = choose_device(model.device, size, formula, X)
    if device.device is not None:
        if by_choice:
            solver = "sampled" if sampled else SGD(adagrad=True)
        return FitPlan(size, loss, penalty, device, solver, formula)
    if by_choice:
        note(f"{type(model).__name__}: {size.K:,} classes are too many to sum over, so they are sampled")
        solver = "sampled"
    if by_choice or by_name:
        formula = sampled_formula(model, size)
    elif solver in _ONE_VECTOR or isinstance(solver, SGD):
        formula = costs.stochastic
    else:
        formula = costs.one_vs_all if model.multiclass == "one-vs-all" else costs.softmax
    return FitPlan(size, loss, penalty, device, solver, formula)


def penalty_of(model: LinearClassifier) -> Penalty:
    """The penalty of a model, with its weight."""
    return pick_penalty(model.penalty, model.l1_ratio).times(model.alpha)


def asks_for_sampled(solver: Any) -> bool:
    """Whether a solver is sampled softmax, by name or itself."""
    return solver == "sampled" or isinstance(solver, Sampled)


def chooses_sampled(model: LinearClassifier, size: Size, hard: bool) -> bool:
    """Whether "auto" samples classes; `hard`: rows have one label each."""
    return hard and not model.label_smoothing and samples(model._form(size.K), penalty_of(model), size)


def sampled_formula(model: LinearClassifier, size: Size) -> Formula:
    """Of sampled softmax with its weights in memory or, if they are larger than that, in a file."""
    folder = model.solver.weights if isinstance(model.solver, Sampled) else None
    if folder is None and has_room(size.parameters * size.itemsize):
        return costs.sampled_softmax
    if folder is None:
        note(f"{type(model).__name__}: {size.parameters:,} weights are larger than memory, so they lie in a file")
    return costs.mapped_softmax
