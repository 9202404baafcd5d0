"""Where a descent stands."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import NDArray

from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty

ARMIJO = 1e-4  # share of the predicted fall that a step must bring


@dataclass(frozen=True)
class Point:
    """theta (R, d + 1), the smooth part of the objective there, its gradient, and the whole with its L1 part."""

    theta: NDArray
    value: float
    gradient: NDArray
    total: float

    @staticmethod
    def at(objective: Objective, theta: NDArray) -> Point:
        """One pass over the rows."""
        value, gradient = objective.value_gradient(theta)
        return Point(theta, value, gradient, value + Penalty(lasso=objective.penalty.lasso).value(theta[:, :-1]))

    @staticmethod
    def centred_at(objective: Objective, theta: NDArray) -> Point:
        """The point of theta, centred where a shift of all scores changes no loss: rounding would let theta drift."""
        if not objective.loss.shift_free:
            return Point.at(objective, theta)
        value, gradient = objective.value_gradient(theta := objective.centred(theta))
        return Point(theta, value, objective.centred(gradient), value)
