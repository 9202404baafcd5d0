"""A solver at work: the problem in as few columns as it has, solved, and what `tol` promises made sure of.

    rows fewer than columns   the solver sees the problem in the span of the rows (objective/row_span.py)
    a solution without proof  Newton's method goes on from it until there is one (newton/newton.py), where steps are cheap

So whichever solver was asked for, a fit that says nothing is within tol of its optimum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from kway.linear.objective.objective import Objective
from kway.linear.objective.row_span import Span, row_span
from kway.linear.solvers.base import Control, Solution, Solver, check
from kway.linear.solvers.newton.newton import MOST_PROOF, affordable, finish
from kway.linear.solvers.registry import pick_solver


@dataclass(frozen=True)
class Work:
    """A problem with its solver."""

    objective: Objective
    solver: Solver
    span: Span | None = None

    @staticmethod
    def on(objective: Objective, solver: Any) -> Work:
        """The solver of a name, or "auto", on the objective in the span of its rows where that is smaller."""
        check(pick_solver(solver, objective), objective.loss, objective.penalty)
        span = row_span(objective)
        work = objective if span is None else span.objective
        return Work(work, pick_solver(solver, work), span)

    def solve(self, theta: NDArray, control: Control) -> Solution:
        """From theta (R, d + 1) to a solution in all columns."""
        if self.span is None:
            return self._sure(self.solver.solve(self.objective, theta, control), control)
        span, validate = self.span, control.validate
        if validate is not None:
            control = replace(control, validate=lambda reduced: validate(span.back(reduced)))
        found = self._sure(self.solver.solve(self.objective, span.into(theta), control), control)
        return replace(found, theta=span.back(found.theta))

    def _sure(self, found: Solution, control: Control) -> Solution:
        """The solution, with a proof where one can be had."""
        if not self.solver.promises or control.validate is not None or (found.proved and found.converged):
            return found
        if found.n_iter >= control.max_iter or not affordable(self.objective, MOST_PROOF):
            return found
        return finish(self.objective, found, control)
