"""What the plan counts a linear fit as: the formula of its solver, where its rows and classes will be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.linear.losses import Loss
from kway.linear.penalties import Penalty, pick_penalty
from kway.linear.placing import choose_device, splits_classes
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.many_classes.sampled import Sampled
from kway.linear.solvers.registry import samples
from kway.linear.solvers.stochastic.sgd import SGD
from kway.planning import far_ways, gpu_ways, guard, linear_ways
from kway.planning.size import Size
from kway.planning.way import Formula
from kway.progress import note

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier

_IN_PASSES = ("sgd", "gradient", "dual", "least-squares")  # solvers that keep neither pairs nor a factor a class


def fit_way(model: LinearClassifier, size: Size, hard: bool) -> Formula:
    """What the plan counts a fit as; `hard`: rows have one label each."""
    there = way_there(model, size, hard)
    if choose_device(model.device, size, there).device is not None:
        return there
    whole = hard and not model.label_smoothing
    if whole and may_split(model, *loss_and_penalty(model, size)) and splits_classes(size, model.solver == "auto"):
        return far_ways.split_softmax
    if asks_for_sampled(model):
        return sampled_way(model, size)
    if chooses_sampled(model, size, hard):
        note(f"{type(model).__name__}: {size.K:,} classes are too many to sum over, so they are sampled")
        return sampled_way(model, size)
    if model.solver in _IN_PASSES or isinstance(model.solver, SGD):
        return linear_ways.stochastic
    return linear_ways.one_vs_all if model.multiclass == "one-vs-all" else linear_ways.softmax_way


def way_there(model: LinearClassifier, size: Size, hard: bool) -> Formula:
    """The same on a GPU, where all classes are summed over until that takes hours too."""
    sampled = chooses_sampled(model, size, hard) and guard.beyond_gpu_steps(size)
    return gpu_ways.gpu_sampled if sampled or asks_for_sampled(model) else gpu_ways.gpu_fit


def asks_for_sampled(model: LinearClassifier) -> bool:
    """Whether its solver is sampled softmax by name."""
    return model.solver == "sampled" or isinstance(model.solver, Sampled)


def chooses_sampled(model: LinearClassifier, size: Size, hard: bool) -> bool:
    """Whether "auto" samples classes."""
    if model.solver != "auto" or not hard or model.label_smoothing:
        return False
    return samples(*loss_and_penalty(model, size), size)


def loss_and_penalty(model: LinearClassifier, size: Size) -> tuple[Loss, Penalty]:
    """The form of its loss for so many classes, and its penalty."""
    return model._form(size.K), pick_penalty(model.penalty, model.l1_ratio).times(model.alpha)


def sampled_way(model: LinearClassifier, size: Size) -> Formula:
    """With weights in memory or, where they are larger than that, in a file."""
    folder = model.solver.weights if isinstance(model.solver, Sampled) else None
    if folder is None and guard.has_room(size.parameters * size.itemsize):
        return linear_ways.sampled_softmax
    if folder is None:
        note(f"{type(model).__name__}: {size.parameters:,} weights are larger than memory, so they lie in a file")
    return linear_ways.mapped_softmax


def may_split(model: LinearClassifier, loss: Loss, penalty: Penalty) -> bool:
    """Whether a cluster may split the classes of this fit: a softmax by L-BFGS that nobody watches from rows."""
    lbfgs = model.solver in ("auto", "lbfgs") or isinstance(model.solver, LBFGS)
    return lbfgs and loss.cross_entropy and loss.joint and penalty.smooth and not model.early_stopping
