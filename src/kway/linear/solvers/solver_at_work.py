"""A solver at work: a problem in the columns that suit it, solved, and what `tol` promises made sure of.

    rows fewer than columns   the solver sees the problem in the span of the rows (objective/row_span.py)
    a perceptron              sees columns in units of their own (objective/own_units.py)
    a solution without proof  Newton's method goes on from it until there is one, where steps are cheap (newton/)

So whichever solver was asked for, a fit that says nothing is within tol of its optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective.objective import Objective
from kway.linear.objective.own_units import OwnUnits, in_own_units
from kway.linear.objective.row_span import RowSpan, row_span
from kway.linear.solvers.base import Control, Solution, Solver
from kway.linear.solvers.many_classes.sampled import Sampled
from kway.linear.solvers.newton.newton import MOST_PROOF, affordable, finish
from kway.linear.solvers.newton.newton_run import NEWTON_ROUNDING
from kway.linear.solvers.registry import pick_solver
from kway.linear.solvers.stopping import least_of, tol_scale


@dataclass(frozen=True)
class Work:
    """A problem with its solver; `frame` leads from the columns of the problem `given` to those of `objective`."""

    objective: Objective
    solver: Solver
    given: Objective
    frame: RowSpan | OwnUnits | None = None

    @staticmethod
    def on(objective: Objective, solver: Any) -> Work:
        """The solver of a name, or "auto", on the objective in the columns that suit it."""
        asked = pick_solver(solver, objective)
        frame: RowSpan | OwnUnits | None = row_span(objective) if asked.spans else None
        if objective.loss.minimised_by_zero and not (objective.penalty.ridge or objective.penalty.lasso):
            frame = in_own_units(objective)
        if frame is None:
            return Work(objective, asked, objective)
        return Work(frame.objective, pick_solver(solver, frame.objective), objective, frame)

    def start(self, theta: NDArray | None, rng: np.random.Generator) -> NDArray:
        """theta (R, d + 1) of an earlier solution in the problem's columns; a cold start if there was none."""
        if theta is None and isinstance(self.solver, Sampled):
            return self.solver.cold_start(self.objective)
        if theta is None:
            return cold_start(self.objective, rng)
        start = theta if self.frame is None else self.frame.into(theta)
        return start if self._helps(start) else cold_start(self.objective, rng)

    def _helps(self, start: NDArray) -> bool:
        """Whether a start is no worse than none: from one that was learned in other units nothing may converge."""
        o = self.objective
        if o.loss.minimised_by_zero or o.rows_in_files:
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(o.value(start) <= o.value(o.zeros()))

    def solve(self, start: NDArray, control: Control) -> Solution:
        """From a start to a solution in the columns given."""
        frame, validate = self.frame, control.validate
        if frame is None:
            return self._sure(self.solver.solve(self.objective, start, control), control)
        if validate is not None:
            control = replace(control, validate=lambda theta: validate(frame.back(theta)))
        found = self._sure(self.solver.solve(self.objective, start, control), control)
        back = replace(found, theta=frame.back(found.theta), value=None)
        return self._kept(back, self.objective.value(found.theta), control)

    def _kept(self, found: Solution, value: float, control: Control) -> Solution:
        """The solution in the columns given, where their number format keeps it: else it has not converged."""
        if not self.solver.promises or not found.converged:
            return found
        scale = tol_scale(value, least_of(self.objective))
        lost = (self.given.value(found.theta.astype(np.float64)) - value) / scale
        miss = found.miss + max(0.0, lost)
        kept = miss <= control.tol
        return replace(found, converged=kept, miss=miss, advice="" if kept else NEWTON_ROUNDING)

    def _sure(self, found: Solution, control: Control) -> Solution:
        """The solution, with a proof where one can be had."""
        if not self.solver.promises or control.validate is not None or (found.proved and found.converged):
            return found
        if not affordable(self.objective, MOST_PROOF):
            return found
        if found.n_iter >= control.max_iter and not found.converged:
            return found  # an estimate at the last iteration is held against a proof all the same: one step more
        return finish(self.objective, found, control)


def cold_start(objective: Objective, rng: np.random.Generator) -> NDArray:
    """Zeros; at random for a loss that zero minimises (the perceptron's)."""
    theta = objective.zeros()
    if objective.loss.minimised_by_zero:
        theta[:, :-1] = rng.standard_normal(theta[:, :-1].shape) * 0.01 / np.sqrt(objective.d)
    return theta
