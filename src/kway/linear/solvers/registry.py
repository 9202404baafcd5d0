"""Solvers by name, and `solver="auto"`: the fastest that can minimise this loss with this penalty."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from kway.errors import CombinationError, InputError
from kway.linear.losses import Loss
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Solver, check_needs, offers
from kway.linear.solvers.gradient_descent import GradientDescent
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.least_squares import LeastSquares
from kway.linear.solvers.many_classes.sampled import Sampled
from kway.linear.solvers.newton.newton import Newton, affordable
from kway.linear.solvers.proximal import Proximal
from kway.linear.solvers.shards.class_shards import ClassSharded
from kway.linear.solvers.stochastic.sgd import SGD
from kway.linear.solvers.svm.dual import Dual
from kway.linear.solvers.svm.sweeps import Sweeps
from kway.planning import guard
from kway.planning.size import Size

SOLVERS: dict[str, Solver] = {
    solver.name: solver
    for solver in (LeastSquares(), LBFGS(), Newton(), Proximal(), Dual(), Sweeps(), GradientDescent(), SGD(), Sampled())
}

FEW_ROWS = 30_000
QUICK = 2e7  # products of a Newton step, about a millisecond: other methods' iterations cost as much, and are more
MANY_COLUMNS = 1000  # from which rows have little in common and sweeps are few: 4 of iris take 940, texts 5 to 10
MOST_VARIABLES = 1 << 28  # of sweeps, one a row and class: a gigabyte; lbfgs keeps none
KINKED = 1e9  # where there are kinks, which Newton's method passes in tens of steps and others in thousands


def pick_solver(solver: Any, objective: Objective) -> Solver:
    """The solver of a name or itself, checked against the loss and the penalty."""
    if isinstance(solver, str):
        found: Solver | None = auto(objective) if solver == "auto" else SOLVERS.get(solver)
    else:
        known: Any = tuple(type(s) for s in SOLVERS.values())
        found = solver if isinstance(solver, known) else None
    if found is None:
        raise InputError(f"solver must be auto, {', '.join(SOLVERS)}, or one of their objects; got {solver!r}")
    if objective.on_device and "rows.here" in found.needs:
        raise CombinationError(
            f"solver {found.name!r} works on rows in this machine's memory; this device keeps them on the GPU, where "
            f"solver={_on_device(objective).name!r} is used instead: ask for that or for 'auto', or use device='cpu'"
        )
    if objective.classes_apart:
        found = ClassSharded()  # the problem was placed so because its solver is L-BFGS (placing.py)
    check_needs(found, objective.loss, objective.penalty, objective.on_device)
    return found


def samples(loss: Loss, penalty: Penalty, size: Size) -> bool:
    """Whether "auto" samples classes: the loss allows it, and by the plan all of them take too much time or memory."""
    return SOLVERS["sampled"].needs <= offers(loss, penalty) and guard.beyond_softmax(size)


def auto(objective: Objective) -> Solver:
    """The first, in order of speed, whose needs are met.

    Hinges of separate classes by `dual` while rows are few, rounded ones by `sweeps` where rows are sparse and wide.

    Where the plan says that a sum over all classes takes hours or more memory than there is, they are `sampled`.

    Measured: on 10,000 embeddings of 77 classes `dual` is 5 to 9 times faster than `lbfgs`, on 60,000 images of 10
    classes 1.4 times slower. A hinge without a penalty is the hard margin, which only `dual` knows.
    """
    if objective.on_device:
        return _on_device(objective)
    offered = offers(objective.loss, objective.penalty)
    hard = objective.targets.soft is None
    if hard and samples(objective.loss, objective.penalty, guard.size_of(objective.X, objective.n_scores)):
        return SOLVERS["sampled"]
    kinked = not (objective.loss.smooth and objective.penalty.smooth)
    if not SOLVERS["dual"].needs <= offered and affordable(objective, KINKED if kinked else QUICK):
        return SOLVERS["newton"]
    wide = sp.issparse(objective.X) and objective.d >= MANY_COLUMNS
    if wide and SOLVERS["sweeps"].needs <= offered and objective.n * objective.n_scores <= MOST_VARIABLES:
        return SOLVERS["sweeps"]
    if SOLVERS["dual"].needs <= offered:
        few = objective.n <= FEW_ROWS or sp.issparse(objective.X)
        return SOLVERS["dual" if few or objective.penalty.ridge == 0 else "lbfgs"]
    return next(
        SOLVERS[name] for name in ("least-squares", "lbfgs", "proximal", "sgd") if SOLVERS[name].needs <= offered
    )


def _on_device(objective: Objective) -> Solver:
    """Methods of passes over all rows; where the plan says that these are too dear, batches against all classes, with a
    rate a class; where those are, classes are `sampled` there."""
    loss, penalty = objective.loss, objective.penalty
    offered = offers(loss, penalty, on_device=True)
    if "penalty.soft" not in offered:
        raise CombinationError(
            "the hard margin (a hinge with alpha=0) is found on the CPU alone: use device='cpu', or alpha > 0"
        )
    hard = objective.targets.soft is None
    size = guard.size_of(objective.X, objective.n_scores)
    if hard and samples(loss, penalty, size):
        return SOLVERS["sampled"] if guard.beyond_gpu_steps(size) else SGD(adagrad=True)
    return next(SOLVERS[name] for name in ("lbfgs", "proximal", "sgd") if SOLVERS[name].needs <= offered)
