"""Can a hyperplane separate two classes? Decided by a linear program over a growing set of rows.

    least total violation  min_{w, b} sum_i max(0, 1 - y_i (x_i.w + b))  =  max_a sum_i a_i,
    0 <= a_i <= 1, sum_i a_i y_i x_i = 0, and sum_i a_i y_i = 0 where there is a bias

It is 0 where a hyperplane separates the rows, and otherwise at least 1: some a != 0 is feasible, and it can be
stretched until its largest entry is 1. Nothing lies between, so comparing with 1/2 decides safely. Rows that cannot be
separated settle the question for all; a plane that separates some is tried on all, and the rows it misses join.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.linear import dual as kernels
from kway.errors import NotSeparableError
from kway.linear.objective.sparse_rows import dense_rows
from kway.linear.solvers.newton.standard_columns import Floats, column_centres
from kway.linear.solvers.svm.machine import Machine, Plane, Problem, kernel_rows

FEASIBLE = 1e-10  # the tightest that HiGHS takes: margins down to about 1e-9 of the data's size count as margins
TRIES = 3  # rounds of sweeps: easy data is separated by then


class Violation(NamedTuple):
    """Least total violation of some rows, and a plane (w, b) that has it."""

    violation: float
    w: Floats
    b: float


def demand_separable(machine: Machine) -> None:
    """Give the machine a separating plane, or raise NotSeparableError."""
    p, rows = machine.problem, machine.usable
    if p.bias and abs(p.y[rows].sum()) == len(rows):
        return  # one class only: the bias alone does it
    for _ in range(TRIES):
        if np.isfinite(machine.best.value):
            return
        machine.work()
        machine.settle()
        machine.judge(_machine_scores(machine, machine.w))
    if not np.isfinite(machine.best.value):
        machine.best = _plane(machine)


def _plane(machine: Machine) -> Plane:
    """A separating plane by row generation; every round adds a row that was missed, so it ends."""
    p, rows = machine.problem, machine.usable
    margins = p.y * (machine.scores + machine.best.b)
    chosen = np.zeros(len(p.y), bool)
    while True:
        batch = max(2 * p.d + 200, int(chosen.sum()) // 2)
        left = rows[~chosen[rows]]
        for side in (p.y[left] > 0, p.y[left] < 0):
            own = left[side]
            chosen[own[np.argsort(margins[own], kind="stable")[:batch]]] = True
        verdict = least_violation(dense_rows(p.X[np.flatnonzero(chosen)]), p.y[chosen], p.bias)
        margins = p.y * (_machine_scores(machine, verdict.w) + verdict.b)
        if verdict.violation > 0.5:
            raise NotSeparableError(_refusal(p, int((margins[rows] <= 1e-9).sum()), len(rows)))
        reach = float(margins[rows].min())
        if reach > 0:
            return Plane(verdict.w / reach, verdict.b / reach, float(verdict.w @ verdict.w) / (2 * reach * reach))
        if chosen[rows].all():
            raise NotSeparableError(_refusal(p, int((margins[rows] <= 0).sum()), len(rows)))


def least_violation(X: Floats, y: Floats, bias: bool) -> Violation:
    """The linear program; w and b are the multipliers of its equations."""
    from scipy.optimize import linprog  # slow to load, and few ask

    middle = column_centres(X, np.ones(len(X))) if bias else np.zeros(X.shape[1])
    Z = X - middle
    scale = float(np.abs(Z).max()) or 1.0
    Z = (Z / scale * y[:, None]).T  # (d, m)
    equations = np.vstack([Z, y]) if bias else Z
    found = linprog(
        -np.ones(len(y)), A_eq=equations, b_eq=np.zeros(len(equations)), bounds=(0, 1), method="highs",
        options={"primal_feasibility_tolerance": FEASIBLE, "dual_feasibility_tolerance": FEASIBLE},
    )  # fmt: skip
    multipliers = -found.eqlin.marginals
    w = multipliers[: len(Z)] / scale
    b = float(multipliers[-1] - w @ middle) if bias else 0.0
    return Violation(-found.fun, w, b)


def _machine_scores(machine: Machine, w: NDArray) -> Floats:
    out = np.empty((1, len(machine.a)))
    kernels.scores_of_class(kernel_rows(machine.problem.X), 0, np.ascontiguousarray(w)[None], out)
    return out[0]


def _refusal(problem: Problem, wrong: int, n: int) -> str:
    through = "" if problem.bias else " through the origin"
    return (
        f"the hard margin (alpha=0) exists only where a hyperplane{through} separates {problem.sides}, but {wrong} of "
        f"{n} rows stay on the wrong side of the best one; use alpha > 0 (a soft margin, such as alpha=1e-4)"
    )
