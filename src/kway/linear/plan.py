"""The decisions before a fit of a linear classifier (`FitPlan`), and the placement of its rows.

    plan_fit      decides once, before the fit, on the loss, the device and the solver, and checks the memory
    place_rows    moves the rows to the planned device: "cpu" keeps them in this process, "cuda" moves them to the GPU,
                  and "auto" moves them if the cost formulas (kway.planning) say that it is faster

Inside `kway.cluster(...)` the rows of a large problem are split over the nodes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import scipy.sparse as sp
from numpy.typing import NDArray

from kway.labels import Labels
from kway.linear.losses import Loss
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty, pick_penalty
from kway.linear.solvers.base import Solver, list_properties
from kway.linear.solvers.registry import SOLVERS
from kway.linear.solvers.sampled import Sampled
from kway.linear.solvers.sgd import SGD
from kway.memory import BLOCK_BYTES, has_room
from kway.planning import costs
from kway.planning.costs import Formula, Size
from kway.planning.rates import Rates
from kway.progress import note
from kway.rows.cluster.linear_passes import ClusterRows, saved_theta
from kway.rows.cluster.session import current, format_nodes, n_nodes
from kway.rows.gpu.device import ChosenDevice, Device, has_gpu, is_tensor, names_gpu, resolve
from kway.rows.gpu.tensor_rows import TensorRows
from kway.rows.passes import wrap_rows
from kway.units import format_bytes

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier


class FitPlan(NamedTuple):
    """The decisions about a fit."""

    size: Size  # rows, columns, classes, and bytes per number
    loss: Loss  # in the form for this number of classes
    penalty: Penalty  # including alpha
    device: ChosenDevice  # the GPU, or None for the CPU, and the reason
    solver: Any  # as given by the user; "sampled" or SGD if "auto" finds too many classes to sum over
    formula: Formula  # cost formula of the fit (kway.planning)

    @property
    def n_scores(self) -> int:
        """Return R: one score for two classes, or if the score is the number of the class; else one per class."""
        return 1 if self.size.K == 2 or self.loss.class_number else self.size.K


def plan_fit(model: LinearClassifier, X: Any, labels: Labels, solver: Any) -> FitPlan:
    """Return the plan for validated rows; raise BudgetError if the fit needs more memory than is available."""
    size = costs.size_of(X, labels.n_classes)
    loss = model._form(size.K)
    if loss.class_number:
        plan = FitPlan(size, loss, model_penalty(model), ChosenDevice(None, ""), "least-squares", costs.softmax)
        size = replace(size, K=2)  # one score
    else:
        plan = _plan_device_and_solver(model, X, size, solver, labels.soft is None)
    costs.check_fit(type(model).__name__, plan.formula, size)
    return plan


def _plan_device_and_solver(model: LinearClassifier, X: Any, size: Size, solver: Any, hard: bool) -> FitPlan:
    loss, penalty = model._form(size.K), model_penalty(model)
    too_many = solver == "auto" and prefers_sampling(model, size, hard)  # classes to sum over on the CPU
    sampled = is_sampled(solver) or (too_many and costs.exceeds_gpu_steps(size))
    formula: Formula = costs.gpu_sampled if sampled else costs.gpu_softmax
    device = choose_device(model.device, size, formula, X)
    if device.device is not None:
        if too_many:
            solver = "sampled" if sampled else SGD(adagrad=True)
        return FitPlan(size, loss, penalty, device, solver, formula)
    if too_many:
        note(f"{type(model).__name__}: {size.K:,} classes are too many to sum over, so they are sampled")
        solver = "sampled"
    return FitPlan(size, loss, penalty, device, solver, _cpu_formula(model, size, solver))


def _cpu_formula(model: LinearClassifier, size: Size, solver: Any) -> Formula:
    """Return the cost formula of a fit on the CPU."""
    if is_sampled(solver):
        return sampled_formula(model, size)
    chosen = SOLVERS.get(solver) if isinstance(solver, str) else solver
    if isinstance(chosen, Solver) and not chosen.stores_pairs:
        return costs.stochastic
    return costs.one_vs_all if model.multiclass == "one-vs-all" else costs.softmax


def model_penalty(model: LinearClassifier) -> Penalty:
    """Return the penalty of a model, with its weight."""
    return pick_penalty(model.penalty, model.l1_ratio).times(model.alpha)


def is_sampled(solver: Any) -> bool:
    """Return whether a solver, by name or as an object, is sampled softmax."""
    return solver == "sampled" or isinstance(solver, Sampled)


def prefers_sampling(model: LinearClassifier, size: Size, hard: bool) -> bool:
    """Return whether "auto" is sampled softmax: each row has one label (`hard`), and all classes take too long."""
    properties = list_properties(model._form(size.K), model_penalty(model))
    return hard and not model.label_smoothing and Sampled.needs <= properties and costs.exceeds_softmax(size)


def sampled_formula(model: LinearClassifier, size: Size) -> Formula:
    """Return the cost formula of sampled softmax, with its weights in memory or, if they are too large, in a file."""
    if isinstance(model.solver, Sampled) and model.solver.weights is not None:
        return costs.mapped_softmax
    if has_room(size.parameters * size.itemsize):
        return costs.sampled_softmax
    note(f"{type(model).__name__}: {size.parameters:,} weights are larger than memory, so they are kept in a file")
    return costs.mapped_softmax


# ---- devices


def choose_device(device: str, size: Size, formula: Formula = costs.gpu_softmax, X: Any = None) -> ChosenDevice:
    """Return the device for a fit of this size, which costs `formula` on a GPU; rows X on a GPU keep their device."""
    if isinstance(X, TensorRows):
        return ChosenDevice(X.device, resolve(device).why)
    if device != "auto":
        return resolve(device)
    verdict = costs.judge_gpu(size, Rates(), formula, sys.maxsize)
    chosen = resolve(device, verdict.pays)
    if chosen.device is not None:
        verdict = costs.judge_gpu(size, Rates(), formula, chosen.device.free_bytes())
    elif verdict.pays:
        return chosen
    place = "GPU" if verdict.pays else "CPU"
    return ChosenDevice(chosen.device if verdict.pays else None, f"on the {place}: {verdict.why}")


def tensor_device(device: str, X: Any) -> Device | None:
    """Return the device on which a tensor X is fitted; None if X is copied to the host. "auto" leaves it in place."""
    if not is_tensor(X) or device == "cpu" or (device == "auto" and not X.is_cuda):
        return None
    return resolve(device).device


def prediction_device(device: str, n: int, coef: NDArray) -> Device | None:
    """Return the GPU that scores n rows, or None for the CPU; "auto" uses a GPU if it saves time."""
    R, d = coef.shape
    name = device if names_gpu(device) else "cuda"
    pays = name == device or costs.gpu_pays_for_predictions(Size(n, d, max(2, R)), Rates())
    return Device(name) if pays and has_gpu(name) else None


# ---- where the rows of a fit are placed


class PlacedObjective(NamedTuple):
    """An objective with its rows on the planned device, and the reason for it (empty if there was no choice)."""

    objective: Objective
    why: str
    planned: int = 0  # bytes on the device, by the cost formula
    device: Device | None = None

    def report_memory(self) -> AbstractContextManager[None]:
        """Turn an out-of-memory error of the device into a BudgetError that gives the planned bytes."""
        o = self.objective
        if self.device is None:
            return nullcontext()
        planned = f"planned for {format_bytes(self.planned)} on the device"
        return self.device.room(f"a fit of {o.n:,} rows x {o.d:,} features, {o.n_scores:,} scores, {planned},")


def place_rows(objective: Objective, plan: FitPlan) -> PlacedObjective:
    """Move the rows to the planned device, or to the nodes of a cluster; raise BudgetError if they do not fit."""
    chosen = plan.device
    if chosen.device is not None:
        what, free = f"the {objective.loss.name} loss", chosen.device.free_bytes()
        planned = costs.check_gpu_fit(what, plan.formula, plan.size, free, chosen.device.name)
        rows = wrap_rows(objective.X, chosen.device)
        return PlacedObjective(replace(objective, rows=rows), chosen.why, planned, chosen.device)
    session, X = current(), objective.X
    if session is None or not objective.in_memory or (session.split != "rows" and _count_bytes(X) < BLOCK_BYTES):
        return PlacedObjective(objective, chosen.why)  # passes over few rows are faster on one machine
    rows = wrap_rows(X, cluster=True)
    return PlacedObjective(replace(objective, rows=rows), f"rows on the {format_nodes(n_nodes())}")


def _count_bytes(X: Any) -> int:
    return int(X.data.nbytes + X.indices.nbytes if sp.issparse(X) else X.nbytes)


@contextmanager
def resumed_theta(objective: Objective) -> Iterator[NDArray | None]:
    """Yield the theta that an interrupted run of the same fit on a cluster saved, if any; remove it after the fit."""
    rows, saved = objective.rows, None
    if isinstance(rows, ClusterRows):
        problem = (objective.n_scores, objective.loss, objective.penalty, objective.fit_intercept)
        saved = saved_theta(rows.n, rows.X, *objective.targets, objective.weight, *problem)
        rows.on_theta = None if saved is None else saved.save
    yield None if saved is None else saved.load()
    if saved is not None:
        saved.forget()
