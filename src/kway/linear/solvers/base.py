"""What solvers share: the base class, their input and output, and the check of what works with what.

    Solver      the base class of solvers, which are small frozen dataclasses; registry.py lists them by name
    Control     the parameters of the estimator that solvers read
    Point       theta with the objective and its gradient
    Solution    the result of a solver

A solver declares in `needs` which properties of the loss, the penalty and the rows it requires. `check_needs` compares
them with the properties that `list_properties` finds. Its error message lists what is missing.

`is_small` tells whether steps with the dense Hessian are cheap, for all solvers that can use it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.errors import CombinationError
from kway.linear.losses import Loss
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.memory import BLOCK_BYTES
from kway.rows.passes import IN_MEMORY

# Multiplications of a step with the dense Hessian:
QUICK_WORK = 2e7  # cheap enough to use dense steps from the start, about a millisecond (decided by row T4e)
MAX_WORK = 1e9  # affordable if other methods converge slowly, about 0.3 s (decided by row T4d and tests/attack)
# Solvers compute a bound of the excess once its estimate is below tol / PROOF_FACTOR. Earlier, most bounds are still
# above tol and have to be computed again; later, the fit takes steps that it does not need (decided by T4b and T4c).
PROOF_FACTOR = 4.0
MIN_STEP = 1e-10  # smallest step size of a line search; shorter steps change the value by its rounding only
SLOW_ITERATIONS = 100  # iterations after which a solver may change to dense steps (tests/linear/test_crowded.py)
ARMIJO = 1e-4  # a step must lower the value by this share of the predicted decrease (Nocedal and Wright, 3.1)


@dataclass
class Carry:
    """State that a solver keeps between fits to the same rows with different ridges (linear/path.py)."""

    rows: object = None
    state: Any = None

    def get(self, objective: Objective, make: Callable[[], Any]) -> Any:
        """Return the state for the rows of this objective; `make()` creates it if the rows are new."""
        if self.rows is not objective.rows:
            self.rows = objective.rows
            self.state = make()
        return self.state


@dataclass(frozen=True)
class Control:
    """The parameters of the estimator that solvers read: limits, tolerance, step sizes and callbacks."""

    max_iter: int = 1000
    tol: float = 1e-3  # largest relative excess of the objective over its optimum
    batch_size: int = 1
    learning_rate: object = "auto"
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    progress: Callable[[int, float], bool] | None = None  # (iteration, objective) -> whether to stop
    validate: Callable[[NDArray], bool] | None = None  # theta of an iteration -> whether to stop
    early_stopping: bool = False  # whether `validate` may stop the fit before the optimum
    min_scale: float = 0.0  # lower limit of the scale to which tol is relative (stopping.py)
    carry: Carry | None = None  # set for the fits of a path of alphas

    def should_stop(self, iteration: int, value: float, theta: NDArray) -> bool:
        """Call `progress` and `validate` after an iteration; return whether one of them ends the fit."""
        stopped = self.progress is not None and self.progress(iteration, value)
        return stopped or (self.validate is not None and self.validate(theta))


@dataclass(frozen=True)
class Point:
    """theta (R, d + 1), the smooth part of the objective, its gradient, and the objective including the L1 part."""

    theta: NDArray
    value: float
    gradient: NDArray
    total: float

    @staticmethod
    def at(objective: Objective, theta: NDArray) -> Point:
        """Return the point of theta, which takes one pass over the rows."""
        value, gradient = objective.value_gradient(theta)
        return Point(theta, value, gradient, value + objective.penalty.lasso_part.value(theta[:, :-1]))

    @staticmethod
    def centered_at(objective: Objective, theta: NDArray) -> Point:
        """Return the point of theta, with the mean score subtracted if the loss ignores a shift of all scores.

        Without it, rounding errors let the mean of theta drift.
        """
        point = Point.at(objective, objective.center_scores(theta))
        return replace(point, gradient=objective.center_scores(point.gradient))


@dataclass(frozen=True)
class Solution:
    """The result of a solver: theta (R, d + 1), the iterations, and what is known about the distance to the optimum."""

    theta: NDArray
    n_iter: int
    converged: bool = True
    rel_excess: float = 0.0  # excess over the optimum relative to the objective: a bound if `proved`, else an estimate
    history: list[float] = field(default_factory=list)  # objective (or mean loss) after each iteration
    advice: str = ""  # what the user can change if the solver did not converge
    proved: bool = False
    value: float | None = None  # the objective if the solver computed it; for many rows perhaps from a sample

    @property
    def distance(self) -> str:
        """Return a clause about the distance to the optimum for the warning; empty if nothing is known."""
        if self.rel_excess < 1:
            return f", {'at most' if self.proved else 'about'} {self.rel_excess:.2g} of the objective above the optimum"
        return ", at an unknown distance from the optimum" if self.rel_excess < np.inf else ""


class Solver:
    """Base class of the methods that minimize an Objective.

    Attributes
    ----------
    name : str
        The value of the parameter `solver`.
    needs : frozenset of str
        Keys of NEEDS: the properties that the loss, the penalty and the rows must have.
    guarantees_tol : bool
        Whether a converged solution is within tol of the optimum.
    standardizes : bool
        Whether small problems are solved in standard columns (linear/equivalent.py). The penalty then has another
        weight for each column, which the solver must support.
    stores_pairs : bool
        Whether the solver stores several vectors of the size of theta or matrices per class, for the cost estimate.
    """

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]] = frozenset()
    guarantees_tol: ClassVar[bool] = True
    standardizes: ClassVar[bool] = False
    stores_pairs: ClassVar[bool] = False

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Return the solution, starting from theta (R, d + 1)."""
        raise NotImplementedError

    def suits_row_span(self, objective: Objective) -> bool:
        """Return whether rows with fewer rows than columns should be solved in their span (linear/equivalent.py)."""
        return self.guarantees_tol

    def cold_start(self, objective: Objective, rng: np.random.Generator) -> NDArray:
        """Return zeros, or small random numbers for a loss that theta = 0 minimizes (the perceptron)."""
        theta = objective.zeros()
        if objective.loss.minimized_by_zero:
            theta[:, :-1] = rng.standard_normal(theta[:, :-1].shape) * 0.01 / np.sqrt(objective.d)
        return theta


NEEDS = {
    "loss.smooth": "a loss that is smooth or can be smoothed",
    "loss.gradient": "a loss with a continuous gradient",
    "loss.optimum": "a loss that W = 0 does not minimize (it minimizes the perceptron loss, which only sgd can train)",
    "loss.squared": "the squared loss",
    "loss.hessian": "a convex loss with a known Hessian: softmax, a hinge, or a loss of each score on its own",
    "loss.cross_entropy": "the softmax loss of three or more classes in one problem",
    "loss.hinge": "a hinge, sharp or rounded, in binary or one-vs-all form",
    "penalty.smooth": "a penalty without an L1 part",
    "penalty.ridge": "an L2 penalty (alpha > 0), or alpha = 0 for the hard margin",
    "penalty.soft": "alpha > 0 if the loss is a hinge",
    IN_MEMORY: "rows in the memory of this machine (device='cpu')",
}


def list_properties(loss: Loss, penalty: Penalty, rows: frozenset[str] = frozenset({IN_MEMORY})) -> set[str]:
    """Return the keys of NEEDS that hold for a loss, a penalty and the properties of the rows."""
    hinge = loss.has_margin
    properties = {
        "loss.smooth": loss.smooth or hinge,
        "loss.gradient": loss.smooth,
        "loss.optimum": not loss.minimized_by_zero,
        "loss.squared": loss.target_scores is not None,
        "loss.cross_entropy": loss.cross_entropy and loss.joint,
        "loss.hinge": (hinge or loss.rounded) and not loss.couples,
        "loss.hessian": loss.convex and (hinge or loss.cross_entropy or not loss.couples),
        "penalty.smooth": penalty.smooth,
        "penalty.ridge": penalty.smooth and (penalty.ridge > 0 or hinge),
        "penalty.soft": penalty.ridge + penalty.lasso > 0 or not hinge,
    }
    return {name for name, holds in properties.items() if holds} | rows


def check_needs(solver: Solver, loss: Loss, penalty: Penalty, rows: frozenset[str] = frozenset({IN_MEMORY})) -> None:
    """Raise CombinationError if the loss, the penalty or the rows lack a property that the solver needs."""
    missing = sorted(solver.needs - list_properties(loss, penalty, rows))
    if missing:
        raise CombinationError(
            f"solver {solver.name!r} cannot minimize the {loss.name} loss with this penalty "
            f"(ridge={penalty.ridge:g}, lasso={penalty.lasso:g}): it needs "
            + " and ".join(f"{NEEDS[need]} [{need}]" for need in missing)
            + "; use solver='auto', which picks one that works"
        )


# ---------------------------------------------------------------- problems that are small enough for a dense Hessian


def sample_size(objective: Objective) -> int:
    """Return the number of rows of a sample that represents all rows: several per column and per class."""
    return 8 * max(objective.d, objective.n_scores) + 1000


def is_small(objective: Objective, max_work: float | None = None) -> bool:
    """Return whether the rows are in memory and few enough for `has_cheap_dense_steps`."""
    return objective.in_memory and has_cheap_dense_steps(objective, max_work)


def has_cheap_dense_steps(objective: Objective, max_work: float | None = None) -> bool:
    """Return whether a step with the dense Hessian takes at most `max_work` multiplications (default QUICK_WORK)."""
    o = objective
    if not has_hessian(o) or 8 * o.n * (o.d + 1) > BLOCK_BYTES:
        return False
    return dense_step_work(o) <= (QUICK_WORK if max_work is None else max_work)


def dense_step_work(objective: Objective) -> float:
    """Return the multiplications that it takes to compute the dense Hessian from the rows and to factorize it."""
    o, loss, D = objective, objective.loss, objective.d + 1
    if not loss.couples:
        one_matrix = loss.target_scores is not None and o.penalty.smooth  # the same for all scores
        return (1 if one_matrix else o.n_scores) * (float(o.n) * D * D + D**3 / 3)
    size = float(o.n_scores) * D
    return (o.n * size * size if loss.cross_entropy else 2.0 * o.n * size * D) + size**3 / 3


def has_hessian(objective: Objective) -> bool:
    """Return whether the loss is smooth and convex, and the Hessian of each row in its scores is known."""
    loss = objective.loss
    return loss.smooth and loss.convex and (loss.cross_entropy or loss.rounded or not loss.couples)
