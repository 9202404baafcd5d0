"""The table of all solvers, the choice among them, and the run of the chosen one.

    SOLVERS         all solvers by name; a new solver is one more entry
    choose_solver   the solver of a name or an object; for "auto", the fastest that can minimize the objective
    prepare         the task: the solver, and the problem in the columns that suit it
    Task.solve      the solution in the original columns, converged only if it is within tol of the optimum there

A solver may see the problem in other columns (a `Frame`), which have the same optimum:

    fewer rows than columns   the span of the rows (linear/equivalent.py)
    a small problem           centered and scaled columns in float64 (linear/equivalent.py)
    a perceptron              scaled columns (linear/equivalent.py)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import CombinationError, InputError
from kway.linear.equivalent import RowSpan, StandardColumns, row_span, scale_columns, standard_columns
from kway.linear.objective import Objective
from kway.linear.solvers.base import (
    MAX_WORK,
    Control,
    Solution,
    Solver,
    check_needs,
    has_cheap_dense_steps,
    is_small,
    list_properties,
)
from kway.linear.solvers.dual import Dual
from kway.linear.solvers.gradient_descent import GradientDescent
from kway.linear.solvers.interior_point import ROUNDED, is_small_with_kinks
from kway.linear.solvers.lbfgs import LBFGS, solve_smooth
from kway.linear.solvers.least_squares import LeastSquares
from kway.linear.solvers.preconditioners import factorable
from kway.linear.solvers.proximal import Proximal
from kway.linear.solvers.sampled import Sampled
from kway.linear.solvers.sgd import SGD
from kway.linear.solvers.stopping import min_tol_scale, tol_scale
from kway.planning.costs import MAX_FACTOR_BYTES
from kway.rows.passes import IN_MEMORY, ON_GPU, QUICK

SOLVERS: dict[str, Solver] = {
    solver.name: solver for solver in (LeastSquares(), LBFGS(), Proximal(), Dual(), GradientDescent(), SGD(), Sampled())
}

# Up to this number of rows of a dense hinge, `dual` is faster than `lbfgs`. Decided by the benchmark of linear SVMs
# (row T4d): with 10,000 rows (Banking77) it is 5 to 9 times as fast, with 60,000 rows (MNIST) 0.7 times.
MAX_DENSE_DUAL_ROWS = 30_000
_NOT_CHECKED = (
    "how far it is above the optimum was not checked: the problem is large, and sgd's tol only ends epochs that gain "
    "less; use solver='auto' for a fit that is within tol"
)
_ABOVE_TOL = "sgd's tol only ends epochs that gain less than tol: lower it, or use solver='auto'"


# ---------------------------------------------------------------- the choice


def choose_solver(solver: Any, objective: Objective) -> Solver:
    """Return the solver of a name, "auto" or an object, checked against the loss, the penalty and the rows."""
    chosen: Solver | None
    if isinstance(solver, str):
        chosen = fastest_solver(objective) if solver == "auto" else SOLVERS.get(solver)
    else:
        chosen = solver if isinstance(solver, Solver) else None
    if chosen is None:
        raise InputError(f"solver must be auto, {', '.join(SOLVERS)}, or one of their objects; got {solver!r}")
    if IN_MEMORY in chosen.needs and not objective.in_memory:
        raise CombinationError(
            f"solver {chosen.name!r} works on rows in the memory of this machine, but device='cuda' keeps them on the "
            f"GPU; use solver={_fastest_by_passes(objective).name!r} or 'auto', or device='cpu'"
        )
    check_needs(chosen, objective.loss, objective.penalty, objective.rows.offers)
    return chosen


def fastest_solver(objective: Objective) -> Solver:
    """Return the first solver, in order of speed, whose needs are met.

    `dual` is first if it suits a hinge of separate classes. It is the only solver of the hard margin.
    """
    if not objective.in_memory:
        return _fastest_by_passes(objective)
    properties = list_properties(objective.loss, objective.penalty)
    if SOLVERS["dual"].needs <= properties and _suits_dual(objective):
        return SOLVERS["dual"]
    return _first_of(("least-squares", "lbfgs", "proximal", "sgd"), properties)


def _suits_dual(objective: Objective) -> bool:
    """Return whether dual coordinate ascent is faster than L-BFGS on a hinge of separate classes.

    A rounded hinge is a smooth loss. L-BFGS is fast on it unless there are so many sparse columns that its
    preconditioner is only a diagonal.
    """
    o = objective
    sparse_and_fits = sp.issparse(o.X) and o.n * o.n_scores * o.rows.dtype.itemsize <= MAX_FACTOR_BYTES
    if o.penalty.ridge == 0:
        return True
    if o.loss.smooth:
        return sparse_and_fits and not factorable(o.X)
    return sparse_and_fits or o.n <= MAX_DENSE_DUAL_ROWS


def _fastest_by_passes(objective: Objective) -> Solver:
    """Return the first solver, in order of speed, that needs only passes over the rows."""
    properties = list_properties(objective.loss, objective.penalty, objective.rows.offers)
    if "penalty.soft" not in properties:
        raise CombinationError(
            "the hard margin (a hinge with alpha=0) is computed on the CPU only; use device='cpu', or alpha > 0"
        )
    return _first_of(("lbfgs", "proximal", "sgd"), properties)


def _first_of(names: tuple[str, ...], properties: set[str]) -> Solver:
    return next(SOLVERS[name] for name in names if SOLVERS[name].needs <= properties)


# ---------------------------------------------------------------- the columns


Frame = StandardColumns | RowSpan  # the problem in other columns, and the conversion of theta


def prepare(objective: Objective, solver: Any) -> Task:
    """Return the task of a solver (a name, "auto" or an object): the problem in the columns that suit the solver."""
    chosen = choose_solver(solver, objective)
    frames: list[Frame] = []
    if objective.loss.minimized_by_zero and not (objective.penalty.ridge or objective.penalty.lasso):
        frames.append(scale_columns(objective))
    elif chosen.suits_row_span(objective):
        span = row_span(objective)
        frames += [span] if span is not None else []
        problem = span.objective if span is not None else objective
        if chosen.standardizes and _suits_dense_steps(problem):
            frames.append(standard_columns(problem))
    return Task(objective, chosen, tuple(frames))


def _suits_dense_steps(objective: Objective) -> bool:
    """Return whether steps with the dense Hessian are cheap; with an L1 part they pay earlier, as others are slow.

    With an L1 part, rows on a GPU are copied to this process for such steps.
    """
    if not objective.penalty.lasso:
        return is_small(objective)
    return (objective.in_memory or ON_GPU in objective.rows.offers) and has_cheap_dense_steps(objective, MAX_WORK)


# ---------------------------------------------------------------- the run


@dataclass(frozen=True)
class Task:
    """A problem in its original columns, its solver, and the frames that lead to the solver's columns."""

    original: Objective
    solver: Solver
    frames: tuple[Frame, ...] = ()

    @property
    def objective(self) -> Objective:
        """Return the problem in the solver's columns."""
        return self.frames[-1].objective if self.frames else self.original

    def into(self, theta: NDArray) -> NDArray:
        """Convert theta from the original to the solver's columns."""
        for frame in self.frames:
            theta = frame.into(theta)
        return theta

    def back(self, theta: NDArray) -> NDArray:
        """Convert theta from the solver's to the original columns."""
        for frame in reversed(self.frames):
            theta = frame.back(theta)
        return theta

    def with_ridge(self, ridge: float) -> Task:
        """Return the same task with another L2 penalty."""
        frames = tuple(replace(frame, objective=_with_ridge(frame.objective, ridge)) for frame in self.frames)
        return Task(_with_ridge(self.original, ridge), self.solver, frames)

    def start(self, theta: NDArray | None, rng: np.random.Generator) -> NDArray:
        """Return a start in the solver's columns: an earlier solution theta (R, d + 1) unless zeros are better."""
        if theta is not None and self._is_no_worse_than_zero(start := self.into(theta)):
            return start
        return self.solver.cold_start(self.objective, rng)

    def _is_no_worse_than_zero(self, start: NDArray) -> bool:
        """Return whether the objective at the start is at most that of zeros, or is not known to be larger."""
        o = self.objective
        if o.loss.minimized_by_zero or QUICK not in o.rows.offers:
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(o.value(start) <= o.value(o.zeros()))

    def solve(self, start: NDArray, control: Control) -> Solution:
        """Return the solution in the original columns.

        It is never worse than the start. A solver that guarantees tol, or SGD on a problem that is not large, has
        converged only if the solution is within tol of the optimum in the original columns and their float type.
        """
        validate = control.validate
        if validate is not None and self.frames:
            control = replace(control, validate=lambda theta: validate(self.back(theta)))
        control = replace(control, min_scale=max(control.min_scale, min_tol_scale(self.objective)))
        solution = self.solver.solve(self.objective, start, control)
        if self.solver.guarantees_tol:
            solution = self._finish_small_problem(solution, control)
        elif isinstance(self.solver, SGD):
            solution = self._check_against_optimum(solution, control)
        solution = self._no_worse_than(start, solution)
        return self._in_original_columns(solution, control) if self.frames else solution

    def _finish_small_problem(self, solution: Solution, control: Control) -> Solution:
        """Return a proved solution of a small smooth problem: Newton's method continues if the solver had no proof."""
        o = self.objective
        done = solution.proved and (solution.converged or solution.n_iter >= control.max_iter)
        if done or control.early_stopping or not o.penalty.smooth or not is_small(o):
            return solution
        rest = replace(control, max_iter=max(1, control.max_iter - solution.n_iter))
        if o.penalty.scale is None:  # not in standard columns yet
            task = Task(o, LBFGS(), (standard_columns(o),))
            end = task.solve(task.into(solution.theta), rest)
        else:
            end = solve_smooth(o, solution.theta, rest, prove=True)
        return replace(end, n_iter=solution.n_iter + end.n_iter, history=[*solution.history, *end.history])

    def _check_against_optimum(self, solution: Solution, control: Control) -> Solution:
        """Return the solution of SGD, converged if it is within tol of an optimum that another solver computes.

        Large problems are not checked. They count as not converged.
        """
        o = self.original
        if not {"loss.hessian", "loss.optimum", "penalty.soft"} <= list_properties(o.loss, o.penalty):
            return solution  # no solver has a proof
        if solution.rel_excess == np.inf or control.early_stopping or not o.in_memory:
            return solution
        task = prepare(o, "lbfgs" if o.penalty.smooth else "proximal")
        if not (_suits_dense_steps(task.objective) or is_small_with_kinks(task.objective)):
            return replace(solution, converged=False, rel_excess=np.inf, advice=_NOT_CHECKED)
        optimum = task.solve(task.objective.zeros(), Control(tol=min(control.tol, 1e-3) / 4))
        min_scale, value = min_tol_scale(o), o.value(optimum.theta.astype(np.float64))
        lower_bound = 0.0  # no loss is negative
        if optimum.rel_excess < np.inf:
            lower_bound = max(0.0, value - optimum.rel_excess * tol_scale(value, min_scale))
        excess = o.value(solution.theta.astype(np.float64)) - lower_bound
        rel_excess = max(0.0, excess) / tol_scale(lower_bound, min_scale)
        converged = rel_excess <= control.tol
        advice = "" if converged else solution.advice or _ABOVE_TOL
        return replace(solution, converged=converged, rel_excess=rel_excess, proved=optimum.proved, advice=advice)

    def _no_worse_than(self, start: NDArray, solution: Solution) -> Solution:
        """Return the start as the solution if a run that has not converged ended above it."""
        o = self.objective
        if solution.converged or not self.solver.guarantees_tol or QUICK not in o.rows.offers:
            return solution
        value = o.value(start)
        if value < (o.value(solution.theta) if solution.value is None else solution.value):
            return replace(solution, theta=start, value=value)
        return solution

    def _in_original_columns(self, solution: Solution, control: Control) -> Solution:
        """Return the solution in the original columns, converged if it is within tol after rounding to their type."""
        theta = self.back(solution.theta)
        value = self.original.value(theta.astype(np.float64))
        converted = replace(solution, theta=theta, value=value)
        if not self.solver.guarantees_tol or not solution.converged:
            return converted
        value_before = self.objective.value(solution.theta) if solution.value is None else solution.value
        rel_excess = solution.rel_excess + max(0.0, value - value_before) / tol_scale(value_before, control.min_scale)
        converged = rel_excess <= control.tol
        return replace(converted, converged=converged, rel_excess=rel_excess, advice="" if converged else ROUNDED)


def _with_ridge(objective: Objective, ridge: float) -> Objective:
    return replace(objective, penalty=replace(objective.penalty, ridge=ridge))
