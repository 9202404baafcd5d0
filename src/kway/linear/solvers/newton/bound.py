"""How far a point of a smooth objective is from the minimum, for a solver that knows no more of it than its slopes."""

from __future__ import annotations

import numpy as np

from kway.linear.objective.curvature import mean_squares
from kway.linear.objective.objective import Objective
from kway.linear.solvers.newton.decrement import decrement, provable
from kway.linear.solvers.newton.gap import closes, gap
from kway.linear.solvers.point import Point


def excess_bound(objective: Objective, point: Point, enough: float) -> float:
    """By the dual of a rounded hinge, else by Newton's decrement; one of no more than `enough` is as good as any."""
    if closes(objective):
        found = gap(objective, point)
        return max(0.0, point.value - found.point.value) + found.excess
    if not provable(objective):
        return float("inf")
    squares = np.append(mean_squares(objective).ravel(), 1) + objective.penalty.ridge
    units = (np.maximum(squares, np.finfo(point.theta.dtype).tiny) ** -1).astype(point.theta.dtype)
    gradient = objective.centred(point.gradient) if objective.loss.shift_free else point.gradient
    return decrement(objective, point.theta, gradient, lambda slopes: slopes * units, enough).excess
