"""From a problem to its solution: which solver, in which columns, and whether the solution may be trusted.

    choose_solver   the solver of a name, or for "auto" the fastest that can minimize this loss with this penalty
    prepare         the problem in the columns that suit its solver: `Task`
    Task.solve      the solution in the columns given; converged only if it is within tol of the optimum in them

Columns (frames) change no optimum:

    fewer rows than columns   the span of the rows (linear/equivalent.py)
    a small problem           centered and scaled columns in float64 (standard_columns.py)
    a perceptron              columns in units of their own (linear/equivalent.py)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import CombinationError, InputError
from kway.linear.equivalent import row_span, scale_columns
from kway.linear.losses import Loss
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import MOST_WORK, Control, Solution, Solver, check_needs, is_small, offers
from kway.linear.solvers.certificates import least_of, tol_scale
from kway.linear.solvers.dual import Dual
from kway.linear.solvers.gradient_descent import GradientDescent
from kway.linear.solvers.interior_point import ROUNDED, is_small_with_kinks
from kway.linear.solvers.lbfgs import LBFGS, solve_smooth
from kway.linear.solvers.least_squares import LeastSquares
from kway.linear.solvers.preconditioners import MOST_BYTES
from kway.linear.solvers.proximal import Proximal
from kway.linear.solvers.sampled import Sampled
from kway.linear.solvers.sgd import SGD
from kway.linear.solvers.standard_columns import standard_columns
from kway.planning import costs
from kway.planning.costs import Size
from kway.rows.passes import IN_MEMORY, QUICK

SOLVERS: dict[str, Solver] = {
    solver.name: solver for solver in (LeastSquares(), LBFGS(), Proximal(), Dual(), GradientDescent(), SGD(), Sampled())
}

FEW_ROWS = 30_000  # of a dense hinge: up to here `dual` is faster than `lbfgs` (T4d: Banking77 5 to 9 times, MNIST 0.7)
MANY_COLUMNS = 1000  # of sparse rows, from which `dual` needs few sweeps over a rounded hinge (T4d, texts)
_UNCHECKED = (
    "how far it is above the optimum was not checked: the problem is large, and sgd's tol only ends epochs that gain "
    "less; use solver='auto' for a fit that is within tol"
)
_ABOVE = "sgd's tol ends epochs that gain less, wherever they are: lower it, or use solver='auto'"


# ---------------------------------------------------------------- which solver


def choose_solver(asked: Any, objective: Objective) -> Solver:
    """Return the solver of a name, "auto" or an object, checked against the loss, the penalty and the rows."""
    if isinstance(asked, str):
        found: Solver | None = fastest_solver(objective) if asked == "auto" else SOLVERS.get(asked)
    else:
        known: Any = tuple(type(s) for s in SOLVERS.values())
        found = asked if isinstance(asked, known) else None
    if found is None:
        raise InputError(f"solver must be auto, {', '.join(SOLVERS)}, or one of their objects; got {asked!r}")
    if IN_MEMORY in found.needs and not objective.in_memory:
        raise CombinationError(
            f"solver {found.name!r} works on rows in this machine's memory; this device keeps them on the GPU, where "
            f"solver={_fastest_by_passes(objective).name!r} is used instead: ask for that or for 'auto', or use "
            "device='cpu'"
        )
    check_needs(found, objective.loss, objective.penalty, objective.rows.offers)
    return found


def samples(loss: Loss, penalty: Penalty, size: Size) -> bool:
    """Return whether "auto" samples classes: the loss allows it, and the plan says that all take too long."""
    return SOLVERS["sampled"].needs <= offers(loss, penalty) and costs.exceeds_softmax(size)


def fastest_solver(objective: Objective) -> Solver:
    """Return the first solver, in order of speed, whose needs are met.

    A hinge of separate classes is solved by `dual` if rows are few or sparse, a rounded one if rows are sparse and
    wide; a hinge without a penalty is the hard margin, which only `dual` knows.
    """
    if not objective.in_memory:
        return _fastest_by_passes(objective)
    offered = offers(objective.loss, objective.penalty)
    if SOLVERS["dual"].needs <= offered and _suits_dual(objective):
        return SOLVERS["dual"]
    return _first_of(("least-squares", "lbfgs", "proximal", "sgd"), offered)


def _fits(objective: Objective) -> bool:
    """Return whether one dual variable per row and class fits in memory."""
    return objective.n * objective.n_scores * objective.rows.dtype.itemsize <= MOST_BYTES


def _suits_dual(objective: Objective) -> bool:
    """Return whether coordinate ascent is faster than L-BFGS on a hinge of separate classes."""
    o, sparse = objective, sp.issparse(objective.X)
    if o.penalty.ridge == 0:
        return True
    if o.loss.smooth:
        return sparse and o.d >= MANY_COLUMNS and _fits(o)
    return o.n <= FEW_ROWS or (sparse and _fits(o))


def _fastest_by_passes(objective: Objective) -> Solver:
    """Return the first solver that needs nothing but passes over the rows."""
    offered = offers(objective.loss, objective.penalty, objective.rows.offers)
    if "penalty.soft" not in offered:
        raise CombinationError(
            "the hard margin (a hinge with alpha=0) is found on the CPU alone: use device='cpu', or alpha > 0"
        )
    return _first_of(("lbfgs", "proximal", "sgd"), offered)


def _first_of(names: tuple[str, ...], offered: set[str]) -> Solver:
    return next(SOLVERS[name] for name in names if SOLVERS[name].needs <= offered)


# ---------------------------------------------------------------- in which columns


class Frame(Protocol):
    """The same problem in other columns, and the way between its theta and that of the columns given."""

    @property
    def objective(self) -> Objective:
        """The problem in these columns."""
        ...

    def into(self, theta: NDArray) -> NDArray:
        """Return theta of the columns given, in these."""
        ...

    def back(self, theta: NDArray) -> NDArray:
        """Return theta of these columns, in those given."""
        ...


@dataclass(frozen=True)
class Task:
    """A problem `given` with its solver, and the frames from its columns to those of `objective`."""

    given: Objective
    solver: Solver
    frames: tuple[Frame, ...] = ()

    @property
    def objective(self) -> Objective:
        """The problem that the solver sees."""
        return self.frames[-1].objective if self.frames else self.given

    def into(self, theta: NDArray) -> NDArray:
        """Return theta of the columns given, in the solver's."""
        for frame in self.frames:
            theta = frame.into(theta)
        return theta

    def back(self, theta: NDArray) -> NDArray:
        """Return theta of the solver's columns, in those given."""
        for frame in reversed(self.frames):
            theta = frame.back(theta)
        return theta

    def with_ridge(self, ridge: float) -> Task:
        """Return the same task with another L2 penalty."""
        frames: Any = [replace(frame, objective=_with_ridge(frame.objective, ridge)) for frame in self.frames]  # type: ignore[type-var]
        return Task(_with_ridge(self.given, ridge), self.solver, tuple(frames))

    def start(self, theta: NDArray | None, rng: np.random.Generator) -> NDArray:
        """Return theta (R, d + 1) of an earlier solution in the solver's columns; a cold start if it is no better."""
        if theta is None and isinstance(self.solver, Sampled):
            return self.solver.cold_start(self.objective)
        if theta is None:
            return cold_start(self.objective, rng)
        start = self.into(theta)
        return start if self._helps(start) else cold_start(self.objective, rng)

    def _helps(self, start: NDArray) -> bool:
        """Return whether a start is no worse than zero: one that was learned in other units may be far out."""
        o = self.objective
        if o.loss.minimised_by_zero or QUICK not in o.rows.offers:
            return True
        with np.errstate(over="ignore", invalid="ignore"):
            return bool(o.value(start) <= o.value(o.zeros()))

    def solve(self, start: NDArray, control: Control) -> Solution:
        """Return the solution in the columns given: never worse than the start, and converged only if within tol."""
        validate = control.validate
        if validate is not None and self.frames:
            control = replace(control, validate=lambda theta: validate(self.back(theta)))
        control = replace(control, least=max(control.least, least_of(self.objective)))
        found = self.solver.solve(self.objective, start, control)
        if self.solver.promises:
            found = self._proved(found, control)
        elif isinstance(self.solver, SGD):
            found = self._held_to_tol(found, control)
        found = self._no_worse_than(start, found)
        return self._rounded(found, control) if self.frames else found

    def _proved(self, found: Solution, control: Control) -> Solution:
        """Return the solution of a small problem with a proof: Newton's method goes on from it if need be."""
        o = self.objective
        done = found.proved and (found.converged or found.n_iter >= control.max_iter)
        if done or control.early_stopping or not o.penalty.smooth or not is_small(o):
            return found
        left = replace(control, max_iter=max(1, control.max_iter - found.n_iter))
        if o.penalty.scale is None:  # not in standard columns yet
            task = Task(o, LBFGS(), (standard_columns(o),))
            end = task.solve(task.into(found.theta), left)
        else:
            end = solve_smooth(o, found.theta, left, prove=True)
        return replace(end, n_iter=found.n_iter + end.n_iter, history=[*found.history, *end.history])

    def _held_to_tol(self, found: Solution, control: Control) -> Solution:
        """Return what sgd ended at, converged if that is within tol of the optimum; large problems are not checked."""
        given = self.given
        if not {"loss.hessian", "loss.optimum", "penalty.soft"} <= offers(given.loss, given.penalty):
            return found  # no solver has a proof
        if found.miss == np.inf or control.early_stopping or not given.in_memory:
            return found
        task = prepare(given, "lbfgs" if given.penalty.smooth else "proximal")
        if not (_is_dense(task.objective) or is_small_with_kinks(task.objective)):
            return replace(found, converged=False, miss=np.inf, advice=_UNCHECKED)
        end = task.solve(task.objective.zeros(), Control(tol=min(control.tol, 1e-3) / 4))
        least, value = least_of(given), given.value(end.theta.astype(np.float64))
        lowest = max(0.0, value - end.miss * tol_scale(value, least)) if end.miss < np.inf else 0.0
        excess = given.value(found.theta.astype(np.float64)) - lowest
        miss = max(0.0, excess) / tol_scale(lowest, least)
        within = miss <= control.tol
        advice = "" if within else found.advice or _ABOVE
        return replace(found, converged=within, miss=miss, proved=end.proved, advice=advice)

    def _no_worse_than(self, start: NDArray, found: Solution) -> Solution:
        """Return the start if a run that has not converged ended above it."""
        o = self.objective
        if found.converged or not self.solver.promises or QUICK not in o.rows.offers:
            return found
        value = o.value(start)
        if value < (o.value(found.theta) if found.value is None else found.value):
            return replace(found, theta=start, value=value)
        return found

    def _rounded(self, found: Solution, control: Control) -> Solution:
        """Return the solution in the columns given, converged if their number format keeps it within tol."""
        theta = self.back(found.theta)
        value = self.given.value(theta.astype(np.float64))
        back = replace(found, theta=theta, value=value)
        if not self.solver.promises or not found.converged:
            return back
        before = self.objective.value(found.theta) if found.value is None else found.value
        miss = found.miss + max(0.0, value - before) / tol_scale(before, control.least)
        kept = miss <= control.tol
        return replace(back, converged=kept, miss=miss, advice="" if kept else ROUNDED)


def prepare(objective: Objective, asked: Any) -> Task:
    """Return the task of a solver, by name or "auto", on the problem in the columns that suit it."""
    solver = choose_solver(asked, objective)
    frames: list[Frame] = []
    if objective.loss.minimised_by_zero and not (objective.penalty.ridge or objective.penalty.lasso):
        frames.append(scale_columns(objective))
    elif solver.spans and not (isinstance(solver, Dual) and objective.loss.smooth):  # sweeps like sparse rows best
        span = row_span(objective)
        frames += [span] if span is not None else []
        problem = span.objective if span is not None else objective
        by_passes = isinstance(solver, LBFGS | Proximal | GradientDescent)  # the others read the ridge as one number
        if by_passes and _is_dense(problem):
            frames.append(standard_columns(problem))
    return Task(objective, solver, tuple(frames))


def _with_ridge(objective: Objective, ridge: float) -> Objective:
    return replace(objective, penalty=replace(objective.penalty, ridge=ridge))


def _is_dense(objective: Objective) -> bool:
    """Return whether steps with the whole Hessian are cheap enough; with an L1 part other methods are often slow."""
    return is_small(objective, MOST_WORK if objective.penalty.lasso else None)


def cold_start(objective: Objective, rng: np.random.Generator) -> NDArray:
    """Return zeros; random numbers for a loss that zero minimizes (the perceptron's)."""
    theta = objective.zeros()
    if objective.loss.minimised_by_zero:
        theta[:, :-1] = rng.standard_normal(theta[:, :-1].shape) * 0.01 / np.sqrt(objective.d)
    return theta
