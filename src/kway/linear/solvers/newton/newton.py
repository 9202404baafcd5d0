"""Newton's method with whole Hessians, for every convex loss and penalty of a problem that is not large.

    smooth   steps until the fall that is left is proved to be far under the tolerance, and that one taken, too
    kinked   (hinges, L1) the same on kinks rounded over e = 0.3, 0.04, ... until the duality gap is under the tolerance

L1 on many columns: the same on a set of them that grows as it must (working_set.py). Columns are centred and scaled
first (standard_columns.py), so units do not matter. It ends with a proof (rounded_objective.py): a solution that says
it has converged is within tol of the optimum, relative to the objective or, where hardly any objective is left, to a
millionth of the one at zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from numpy.typing import NDArray

from kway.compute.threads import single_blas
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution, offers
from kway.linear.solvers.newton.hessians import step_work
from kway.linear.solvers.newton.newton_run import NewtonRun
from kway.linear.solvers.newton.working_set import solve_on_columns

MOST_WORK = 5e9  # products of a step: some tenths of a second
MOST_PROOF = 1e9  # of a step that is spent on proving what another method found
WORTH = 40  # passes over the rows: a few products with the Hessian, each two of them, prove the same
_MOST_NUMBERS = 1 << 24  # in Z, and in a matrix


@dataclass(frozen=True)
class Newton:
    """Whole Hessians in standard columns."""

    name: ClassVar[str] = "newton"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.hessian", "loss.optimum", "penalty.soft", "rows.here"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """From theta to within tol of the optimum."""
        with single_blas():
            if objective.penalty.lasso and objective.d > columns(objective):
                return solve_on_columns(objective, theta, control)
            return NewtonRun.on(objective, control).go(theta)


def columns(objective: Objective) -> int:
    """Columns that steps are about: under an L1 penalty hardly more than twice as many as there are rows."""
    return min(objective.d, 2 * objective.n) if objective.penalty.lasso else objective.d


def affordable(objective: Objective, most: float = MOST_WORK) -> bool:
    """Whether the method knows this loss and a step is cheap enough."""
    loss, D, R = objective.loss, columns(objective) + 1, objective.n_scores
    if (
        not objective.rows_here
        or not Newton.needs <= offers(loss, objective.penalty)
        or loss.rounded
        or objective.n * D > _MOST_NUMBERS
    ):
        return False
    if ((R * D) ** 2 if loss.couples else D * D) > _MOST_NUMBERS:
        return False
    return _work(objective) <= most


def proves_cheaply(objective: Objective) -> bool:
    """Whether a step proves what another method found, and for less than products with the Hessian do."""
    passes = float(objective.n) * (objective.d + 1) * objective.n_scores
    return affordable(objective, MOST_PROOF) and _work(objective) <= WORTH * passes


def _work(objective: Objective) -> float:
    """Products of a step."""
    alike = objective.loss.aims is not None and objective.penalty.smooth
    return step_work(objective.loss, objective.n, columns(objective) + 1, objective.n_scores, alike)


def finish(objective: Objective, found: Solution, control: Control) -> Solution:
    """A solution brought to within tol, with a proof."""
    left = replace(control, max_iter=max(1, control.max_iter - found.n_iter))
    end = Newton().solve(objective, found.theta, left)
    return replace(end, n_iter=found.n_iter + end.n_iter, history=[*found.history, *end.history])
