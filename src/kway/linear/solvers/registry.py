"""Solvers by name, and `solver="auto"`: the fastest that can minimise this loss with this penalty."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from kway.errors import InputError
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Solver, check, has
from kway.linear.solvers.gradient_descent import GradientDescent
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.least_squares import LeastSquares
from kway.linear.solvers.newton.newton import Newton, affordable
from kway.linear.solvers.proximal import Proximal
from kway.linear.solvers.sgd import SGD
from kway.linear.solvers.svm.dual import Dual

SOLVERS: dict[str, Solver] = {
    solver.name: solver for solver in (LeastSquares(), LBFGS(), Newton(), Proximal(), Dual(), GradientDescent(), SGD())
}

FEW_ROWS = 30_000
QUICK = 2e7  # products of a Newton step, about a millisecond: other methods' iterations cost as much, and are more
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
    check(found, objective.loss, objective.penalty)
    return found


def auto(objective: Objective) -> Solver:
    """The first, in order of speed, whose needs are met; hinges of separate classes by `dual` while rows are few.

    Measured: on 10,000 embeddings of 77 classes `dual` is 5 to 9 times faster than `lbfgs`, on 60,000 images of 10
    classes 1.4 times slower. A hinge without a penalty is the hard margin, which only `dual` knows.
    """
    offered = has(objective.loss, objective.penalty)
    kinked = not (objective.loss.smooth and objective.penalty.smooth)
    if not SOLVERS["dual"].needs <= offered and affordable(objective, KINKED if kinked else QUICK):
        return SOLVERS["newton"]
    if SOLVERS["dual"].needs <= offered:
        few = objective.n <= FEW_ROWS or sp.issparse(objective.X)
        return SOLVERS["dual" if few or objective.penalty.ridge == 0 else "lbfgs"]
    return next(
        SOLVERS[name] for name in ("least-squares", "lbfgs", "proximal", "sgd") if SOLVERS[name].needs <= offered
    )
