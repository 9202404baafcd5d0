"""Support vector machines from their dual: the hinge in binary and one-vs-all form, soft margin and hard.

    soft  min ridge / 2 ||w||^2 + mean_i weight_i max(0, 1 - y_i (x_i.w + b))
    hard  (ridge = 0)  min ||w||^2 / 2  with y_i (x_i.w + b) >= 1; refused where no hyperplane separates the classes

Each class is a problem of its own (machine.py): sweeps of coordinate descent while they pay, and an interior
point method on the rows that are still undecided. Both start close to the optimum where that is cheap: few features
from Newton's method on a rounded hinge (newton_one_vs_all.py), many rows from a rough solution of it, sparse rows of
many classes from sweeps over all classes at once (shared_rows.py). The bias is not penalised. A run ends on the duality
gap, so `miss` is a proof: the objective is at most that much, relatively, above its optimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.linear import dual as kernels
from kway.compute.threads import pmap
from kway.linear.losses.hinge import rounded_slope
from kway.linear.objective.curvature import row_squares
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.lbfgs import LBFGS
from kway.linear.solvers.stopping import WIDE_GAP, tol_scale
from kway.linear.solvers.svm.machine import Machine, Problem, judge_all
from kway.linear.solvers.svm.newton_one_vs_all import approach_by_newton, newton_pays, settle_or_reset
from kway.linear.solvers.svm.separable import demand_separable
from kway.linear.solvers.svm.shared_rows import shares_rows, sweep_together

MANY = 1 << 22  # values in X above which a rough solution comes first
START_WIDTH = 0.3  # of the rounded hinge there
START_TOL, START_STEPS = 1e-2, 100
_NEAR = 0.4  # share of the tolerance that Newton's method goes to; a machine under half of it is done


@dataclass(frozen=True)
class Dual:
    """Dual coordinate descent and interior points, classes in parallel."""

    name: ClassVar[str] = "dual"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.hinge", "penalty.ridge", "rows.here"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """From the dual's zero to an optimum; theta says nothing about the dual variables and is not used."""
        machines = started_machines(objective, control)
        hard = objective.penalty.ridge == 0
        if hard:
            pmap(demand_separable, machines, objective.n_jobs)
        history = improve_all(objective, machines, control)
        value, gap = sum(m.best.value for m in machines), sum(m.gap for m in machines)
        theta = planes(machines).astype(objective.X.dtype)
        if not hard and np.isfinite(value):  # what rounding to the columns' number format adds
            kept = objective.value(theta.astype(np.float64)) / objective.penalty.ridge
            gap += max(0.0, kept - value)
        converged = gap <= control.tol * tol_scale(value)
        miss = gap / value if np.isfinite(value) and value > 0 else 0.0 if converged else np.inf
        advice = "" if converged else WIDE_GAP
        return Solution(theta, passes(machines), converged, miss, history, advice, proved=True)


def improve_all(objective: Objective, machines: list[Machine], control: Control) -> list[float]:
    """Rounds until the gap, over all classes, is under the tolerance, or max_iter passes; history of the objective."""
    history: list[float] = []
    scale = objective.penalty.ridge or 1.0
    while True:
        value, gap = sum(m.best.value for m in machines), sum(m.gap for m in machines)
        history.append(scale * value)
        done = gap <= control.tol * tol_scale(value) or passes(machines) >= control.max_iter
        done = done or (control.progress is not None and control.progress(len(history), history[-1]))
        if done or (control.validate is not None and control.validate(planes(machines))):
            return history
        todo = [m for m in machines if m.gap > control.tol / 2 * m.best.value and not m.hopeless]
        if not todo:
            return history
        pmap(lambda m: m.improve(control.tol), todo, objective.n_jobs)
        judge_all(objective, todo)


def started_machines(objective: Objective, control: Control) -> list[Machine]:
    """One machine a column of scores, started from a solution under the rounded hinge where that is cheap."""
    fresh = blank_machines(objective, control)
    if newton_pays(objective):
        approach_by_newton(objective, fresh, _NEAR * control.tol, control.max_iter)
        judge_all(objective, fresh)
        pmap(settle_or_reset, fresh, objective.n_jobs)
        return fresh
    if shares_rows(objective) and objective.penalty.ridge > 0:
        sweep_together(objective, fresh, control.tol / 2, control.max_iter)
        return fresh
    values = objective.X.nnz if sp.issparse(objective.X) else objective.X.size
    if values <= MANY or objective.penalty.ridge == 0:
        return fresh
    smooth = objective.with_loss(objective.loss.smoothed(START_WIDTH))
    rough = LBFGS().solve(smooth, objective.zeros(), Control(tol=START_TOL, max_iter=START_STEPS))
    for machine, row in zip(fresh, rough.theta.astype(np.float64)):
        machine.w, machine.centre = row[:-1].copy(), float(row[-1])
    judge_all(objective, fresh)
    pmap(guess_dual, fresh, objective.n_jobs)
    judge_all(objective, fresh)
    return fresh


def guess_dual(machine: Machine) -> None:
    """Dual variables of the rounded hinge, C times its slope: at its optimum w is the sum of their rows."""
    p = machine.problem
    margin = p.y * (machine.scores + machine.centre)
    machine.a = p.upper * rounded_slope(1 - margin, START_WIDTH)
    machine.settle()


def blank_machines(objective: Objective, control: Control) -> list[Machine]:
    """One machine a column of scores, at zero."""
    codes, ridge, n, R = objective.targets.codes, objective.penalty.ridge, objective.n, objective.n_scores
    weight = np.ones(n) if objective.weight is None else objective.weight.astype(np.float64)
    upper = np.where(weight > 0, kernels.HUGE, 0.0) if ridge == 0 else weight / (n * ridge)
    square = row_squares(objective.X)

    def machine(item: tuple[int, np.random.Generator]) -> Machine:
        k, rng = item
        y = np.where(codes == (1 if R == 1 else k), 1.0, -1.0)
        sides = "the two classes" if R == 1 else f"class number {k} and the rest"
        return Machine(Problem(objective.X, y, upper, square, objective.fit_intercept, ridge == 0, sides), rng)

    return pmap(machine, enumerate(control.rng.spawn(R)), objective.n_jobs)


def planes(machines: list[Machine]) -> NDArray:
    """theta (R, d + 1) of the best hyperplanes."""
    return np.array([[*m.best.w, m.best.b] for m in machines])


def passes(machines: list[Machine]) -> int:
    """Visits to rows, over the number of rows, of the machine that worked most."""
    return int(np.ceil(max(m.passes for m in machines)))
