"""How far a point of a smooth objective is from the minimum, for a solver that knows no more of it than its slopes."""

from __future__ import annotations

from kway.linear.objective.objective import Objective
from kway.linear.solvers.newton.decrement import decrement, provable
from kway.linear.solvers.newton.gap import closes, gap
from kway.linear.solvers.point import Point
from kway.linear.solvers.preconditioners.factors import Factor
from kway.linear.solvers.preconditioners.moments import quick_moments, rows_a_factor, sample_rows


def excess_bound(objective: Objective, point: Point, enough: float) -> float:
    """By the dual of a rounded hinge, else by Newton's decrement; one of no more than `enough` is as good as any."""
    if closes(objective):
        found = gap(objective, point)
        return max(0.0, point.value - found.point.value) + found.excess
    if not provable(objective):
        return float("inf")
    gradient = objective.centred(point.gradient) if objective.loss.shift_free else point.gradient
    return decrement(objective, point.theta, gradient, _factor_at(objective, point), enough).excess


def _factor_at(objective: Objective, point: Point) -> Factor:
    """Of each score at the point, where that is affordable.

    Divided by its diagonal alone the Hessian kept eigenvalues that a few products did not see: 21 times tol was proved
    to be under it (3,574 rows of 79 related columns in units from 0.01 to 100).
    """
    moments, n_drawn = quick_moments(objective, sample_rows(objective)), rows_a_factor(objective)
    if not moments.affords_per_class(objective, n_drawn):
        return moments.shared()
    return moments.per_class(objective, point.theta, n_drawn)
