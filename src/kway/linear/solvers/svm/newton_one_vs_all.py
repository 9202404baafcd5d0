"""Support vector machines of few features, nearly solved at once: Newton's method on the rounded hinge.

A step costs n d + m d^2 for the m rows inside the kink, and about ten reach a relative gap of 1e-3 whatever the box,
where coordinate descent visits every row tens or hundreds of times. The first steps, whose kink is wide and whose point
is rough, look at a part of the rows only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.jit import frozen
from kway.compute.kernels.linear.hinge_newton import hinge_newton, hinge_slopes
from kway.compute.threads import pmap
from kway.linear.objective.objective import Objective
from kway.linear.solvers.svm.machine import Machine, interior_first

_NARROW = 32  # features up to which Hessians cost less than the sweeps they spare: 5 to 20 times at 16, none at 64
# half the first width: at theta = 0 every gap is 1, inside the kink, and the first step is least squares
_WIDEST = 1.01
PART, FEWEST_IN_PART = 4, 4000  # every PART-th row for the first steps, where that leaves FEWEST_IN_PART rows
PART_TOL, PART_WIDTH = 1e-2, 0.1  # of those steps: a part of the rows says no more, of separable ones less
_MOST_STEPS = 60


class RowsBothWays(NamedTuple):
    """Rows both ways round, and the boxes of their dual variables."""

    X: NDArray  # (n, d)
    columns: NDArray  # (d, n)
    upper: NDArray[np.float64]  # (n,)

    def part(self, step: int) -> RowsBothWays:
        """Every step-th row, the boxes that much larger."""
        return RowsBothWays(frozen(self.X[::step]), frozen(self.columns[:, ::step]), frozen(step * self.upper[::step]))


def newton_pays(objective: Objective) -> bool:
    """Whether Newton's method can start these machines, and interior points are not quicker still."""
    n, d = objective.n, objective.d
    if objective.penalty.ridge == 0 or sp.issparse(objective.X):
        return False
    return d <= _NARROW and not interior_first(n, d)


def approach_by_newton(objective: Objective, machines: list[Machine], tol: float, most: int) -> None:
    """Hyperplanes and dual variables within tol of the optimum, or after `most` steps; machines share their boxes."""
    X = objective.X
    full = RowsBothWays(frozen(X), frozen(X.T), frozen(machines[0].problem.upper))
    few = full.part(PART) if objective.n >= PART * FEWEST_IN_PART else None
    pmap(lambda machine: _approach(machine, full, few, tol, min(most, _MOST_STEPS)), machines, objective.n_jobs)


def _approach(machine: Machine, full: RowsBothWays, few: RowsBothWays | None, tol: float, most: int) -> None:
    p, half, theta = machine.problem, _WIDEST, np.zeros(machine.problem.d + 1)
    if few is not None:
        some = p.y[::PART].copy()
        half, steps = hinge_newton(*few[:2], some, few.upper, p.bias, theta, half, PART_WIDTH, PART_TOL, most)
        machine.passes += steps / PART
    half, steps = hinge_newton(full.X, full.columns, p.y, full.upper, p.bias, theta, half, 0.0, tol, most)
    machine.passes += steps
    hinge_slopes(full.columns, p.y, full.upper, theta, half, machine.a)
    machine.w, machine.centre = theta[:-1].copy(), float(theta[-1])


def settle_or_reset(machine: Machine) -> None:
    """The bound of the dual variables found; zeros again where that is no better than zeros'."""
    machine.settle()
    if machine.lower <= 0:
        machine.a[:], machine.w[:], machine.centre, machine.b = 0.0, 0.0, 0.0, 0.0
        machine.scores = np.zeros_like(machine.scores)
