"""What solvers share: the interface, the check of what works with what, and which problems are small.

A solver takes an objective and a start and returns a Solution. It declares what it `needs`; `check_needs` compares that
with the loss, the penalty and the rows, and its message lists what is missing. Solvers are small frozen dataclasses;
`SOLVERS` in choose.py has them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.errors import CombinationError
from kway.linear.losses import Loss
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.memory import BLOCK_BYTES
from kway.rows.passes import IN_MEMORY

QUICK_WORK = 2e7  # products of a dense step, about a millisecond, that pays from the start (T4e)
MOST_WORK = 1e9  # the same, some tenths of a second, that pays if other methods are slow (T4d, the drawn problems)
# a proof is tried when the expected gain is below tol / NEAR: earlier it fails, later costs steps (T4b, T4c)
NEAR = 4.0
SHORTEST_STEP = 1e-10  # share of a step below which rounding is all that a line search finds (the drawn problems)
SLOW = 100  # iterations after which another method counts as slow (tests/linear/test_crowded.py)
ARMIJO = 1e-4  # share of the predicted fall that a step must bring (Nocedal and Wright, 3.1)


@dataclass
class Carry:
    """What a solver keeps for the next fit to the same rows with another ridge: a path of alphas (linear/path.py)."""

    rows: object = None
    kept: Any = None

    def get(self, objective: Objective, make: Callable[[], Any]) -> Any:
        """Return what was kept for these rows; `make()` if they are others."""
        if self.rows is not objective.rows:
            self.rows, self.kept = objective.rows, make()
        return self.kept


@dataclass(frozen=True)
class Control:
    """The estimator's parameters that solvers read: limits of the iterations, tolerance, step sizes and callbacks."""

    max_iter: int = 1000
    tol: float = 1e-3  # relative excess of the objective over its optimum that is aimed at
    batch_size: int = 1
    learning_rate: object = "auto"
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    progress: Callable[[int, float], bool] | None = None  # (iteration, objective) -> stop now?
    validate: Callable[[NDArray], bool] | None = None  # theta of an iteration -> stop now?
    early_stopping: bool = False  # whether `validate` means to stop before the optimum
    least: float = 0.0  # an objective below this counts as this much where tol is relative to it
    carry: Carry | None = None  # set on a path of alphas


@dataclass(frozen=True)
class Point:
    """theta (R, d + 1), the smooth part of the objective at theta, its gradient, and the objective with its L1 part."""

    theta: NDArray
    value: float
    gradient: NDArray
    total: float

    @staticmethod
    def at(objective: Objective, theta: NDArray) -> Point:
        """Return the point of theta: one pass over the rows."""
        value, gradient = objective.value_gradient(theta)
        return Point(theta, value, gradient, value + objective.penalty.lasso_part.value(theta[:, :-1]))

    @staticmethod
    def centered_at(objective: Objective, theta: NDArray) -> Point:
        """Return the point of theta, centered if a shift of all scores changes no loss: rounding lets theta drift."""
        if not objective.loss.shift_free:
            return Point.at(objective, theta)
        value, gradient = objective.value_gradient(theta := objective.center_scores(theta))
        return Point(theta, value, objective.center_scores(gradient), value)


@dataclass(frozen=True)
class Solution:
    """The result of a solver: theta (R, d + 1), the iterations, and what is known about the distance to the optimum."""

    theta: NDArray
    n_iter: int
    converged: bool = True
    miss: float = 0.0  # estimated relative excess over the optimum, where known
    history: list[float] = field(default_factory=list)  # objective (or mean loss) an iteration
    advice: str = ""  # what to change if it did not converge
    proved: bool = False  # `miss` is a bound, not an estimate
    value: float | None = None  # the objective, where the solver knows it; of many rows perhaps as estimated on some

    @property
    def distance(self) -> str:
        """A clause about the distance to the optimum, for the end of a sentence; empty if nothing is known."""
        if self.miss < 1:
            return f", {'at most' if self.proved else 'about'} {self.miss:.2g} of the objective above the optimum"
        return ", too far from the optimum to tell how far" if self.miss < np.inf else ""


class Solver(Protocol):
    """A method that minimizes an Objective."""

    name: ClassVar[str]
    needs: ClassVar[frozenset[str]]
    promises: ClassVar[bool]  # that a converged solution is within tol of the optimum
    spans: ClassVar[bool]  # wide rows suit it better in the columns of their span

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Return the solution, starting from theta."""
        ...


NEEDS = {
    "loss.smooth": "a loss that is smooth or can be smoothed",
    "loss.gradient": "a loss whose gradient does not jump",
    "loss.optimum": "a loss that W = 0 does not minimize (the perceptron's does: only mistake-driven sgd trains it)",
    "loss.squared": "the squared loss",
    "loss.hessian": "a convex loss whose Hessian is known: softmax, a hinge, or one that takes each score by itself",
    "loss.cross_entropy": "the softmax loss of three or more classes in one problem",
    "loss.hinge": "a hinge, sharp or rounded, in binary or one-vs-all form",
    "penalty.smooth": "a penalty without an L1 part",
    "penalty.ridge": "an L2 penalty (alpha > 0), or alpha = 0 for the hard margin",
    "penalty.soft": "alpha > 0 where the loss is a hinge",
    IN_MEMORY: "rows in this machine's memory (device='cpu')",
}


def offers(loss: Loss, penalty: Penalty, rows: frozenset[str] = frozenset({IN_MEMORY})) -> set[str]:
    """Return the properties of a loss, a penalty and rows that solvers may need."""
    hinge = loss.has_margin
    facts = {
        "loss.smooth": loss.smooth or hinge,
        "loss.gradient": loss.smooth,
        "loss.optimum": not loss.minimised_by_zero,
        "loss.squared": loss.aims is not None,
        "loss.cross_entropy": loss.cross_entropy and loss.joint,
        "loss.hinge": (hinge or loss.rounded) and not loss.couples,
        "loss.hessian": loss.convex and (hinge or loss.cross_entropy or not loss.couples),
        "penalty.smooth": penalty.smooth,
        "penalty.ridge": penalty.smooth and (penalty.ridge > 0 or hinge),
        "penalty.soft": penalty.ridge + penalty.lasso > 0 or not hinge,
    }
    return {name for name, true in facts.items() if true} | rows


def check_needs(solver: Solver, loss: Loss, penalty: Penalty, rows: frozenset[str] = frozenset({IN_MEMORY})) -> None:
    """Raise CombinationError if the solver needs something that the loss, the penalty or the rows do not offer."""
    missing = sorted(solver.needs - offers(loss, penalty, rows))
    if missing:
        raise CombinationError(
            f"solver {solver.name!r} cannot minimize the {loss.name} loss with this penalty "
            f"(ridge={penalty.ridge:g}, lasso={penalty.lasso:g}): it needs "
            + " and ".join(f"{NEEDS[need]} [{need}]" for need in missing)
            + "; use solver='auto', which picks one that works"
        )


# ---------------------------------------------------------------- problems that are small enough for a dense Hessian


def sample_size(objective: Objective) -> int:
    """Return the rows of a sample that stands for all: several per column and per class."""
    return 8 * max(objective.d, objective.n_scores) + 1000


def is_small(objective: Objective, most: float | None = None) -> bool:
    """Return whether the whole Hessian is known and a step with it takes at most so many products (QUICK_WORK)."""
    o = objective
    if not (o.in_memory and has_hessian(o)) or 8 * o.n * (o.d + 1) > BLOCK_BYTES:
        return False
    return step_work(o) <= (QUICK_WORK if most is None else most)


def step_work(objective: Objective) -> float:
    """Return the products of a step with the whole Hessian: forming it from the rows, and factoring it."""
    o, loss, D = objective, objective.loss, objective.d + 1
    if not loss.couples:
        alike = loss.aims is not None and o.penalty.smooth
        return (1 if alike else o.n_scores) * (float(o.n) * D * D + D**3 / 3)
    size = float(o.n_scores) * D
    return (o.n * size * size if loss.cross_entropy else 2.0 * o.n * size * D) + size**3 / 3


def has_hessian(objective: Objective) -> bool:
    """Return whether the loss is smooth and convex, and the Hessian in the scores of a row is known."""
    loss = objective.loss
    return loss.smooth and loss.convex and (loss.cross_entropy or loss.rounded or not loss.couples)
