"""L-BFGS with a preconditioner for its first matrix: minimises a smooth objective from a point.

direction   H_k g by the two loops over the last 20 pairs (s, y) = (move, change of gradient), the preconditioner
            scaled by s.y / y.My in the middle
step        1, shortened along a parabola until the value falls enough; where the fall drowns in rounding, until
            the slope along the direction has not turned
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kway.linear.factors import Factor, centred, shift_free
from kway.linear.objective import Objective

MEMORY = 20
ENOUGH = 1e-4  # share of the predicted fall that a step must bring
SHORTEST = 1e-10


@dataclass(frozen=True)
class Point:
    """Where a descent stands: theta (R, d + 1), the objective there and its gradient."""

    theta: NDArray
    value: float
    gradient: NDArray

    @staticmethod
    def at(objective: Objective, theta: NDArray) -> Point:
        """The point of theta, centred where a shift of all scores changes no loss: rounding would let theta drift."""
        if not shift_free(objective):
            return Point(theta, *objective.value_gradient(theta))
        theta = centred(theta)
        value, gradient = objective.value_gradient(theta)
        return Point(theta, value, centred(gradient))


@dataclass(frozen=True)
class Pairs:
    """The last moves s and changes of the gradient y with s.y > 0: what is known of the curvature."""

    moves: list[NDArray] = field(default_factory=list)
    changes: list[NDArray] = field(default_factory=list)

    def clear(self) -> None:
        """Forget all."""
        self.moves.clear()
        self.changes.clear()

    def add(self, old: Point, new: Point) -> None:
        """Remember a step if the curvature along it was positive."""
        move, change = new.theta - old.theta, new.gradient - old.gradient
        if dot(move, change) > 1e-12 * np.sqrt(dot(move, move) * dot(change, change)):
            self.moves.append(move)
            self.changes.append(change)
            del self.moves[:-MEMORY], self.changes[:-MEMORY]

    def direction(self, gradient: NDArray, factor: Factor) -> NDArray:
        """H gradient, an ascent direction."""
        if not self.moves:
            return factor(gradient)
        q, real, shares = gradient.copy(), gradient.dtype.type, []
        inverse = [1 / dot(s, y) for s, y in zip(self.moves, self.changes)]
        for s, y, r in zip(self.moves[::-1], self.changes[::-1], inverse[::-1]):
            shares.append(r * dot(s, q))
            q -= real(shares[-1]) * y
        last = self.changes[-1]
        q = factor(q) * real(1 / (inverse[-1] * max(dot(last, factor(last)), 1e-300)))
        for s, y, r, share in zip(self.moves, self.changes, inverse, shares[::-1]):
            q += real(share - r * dot(y, q)) * s
        return q


@dataclass(frozen=True)
class Step:
    """One iteration: where it led, and the fall that the quadratic model promised before it."""

    point: Point
    promised: float
    stuck: bool = False  # rounding hides any further fall


def descend(
    objective: Objective, point: Point, factor: Factor, refactor: Callable[[int, Point], Factor | None] | None = None
) -> Iterator[Step]:
    """Steps without end, until the caller has enough or the last is `stuck`.

    `refactor(iteration, point)` may give a better preconditioner on the way; the pairs stay valid.
    """
    pairs, noise, iteration = Pairs(), rounding(point.theta.dtype), 0
    while True:
        iteration += 1
        factor = (refactor(iteration, point) if refactor else None) or factor
        direction = pairs.direction(point.gradient, factor)
        slope = dot(point.gradient, direction)
        if not slope > 0 and pairs.moves:
            pairs.clear()
            direction = factor(point.gradient)
            slope = dot(point.gradient, direction)
        promised = slope / 2
        new = search(objective, point, direction, slope, noise) if slope > 0 and np.isfinite(slope) else None
        if new is None and pairs.moves and promised > noise * abs(point.value):
            pairs.clear()  # old curvature led astray
            continue
        if new is None:
            yield Step(point, promised, stuck=True)
            return
        pairs.add(point, new)
        point = new
        yield Step(point, promised)


def search(objective: Objective, point: Point, direction: NDArray, slope: float, noise: float) -> Point | None:
    """The first point along -direction, from step 1 down, that falls enough; None where there is none."""
    step, slack = 1.0, noise * abs(point.value)
    real = point.theta.dtype.type
    while step > SHORTEST:
        theta = point.theta - real(step) * direction
        new = Point.at(objective, theta)
        fall = point.value - new.value
        if fall >= ENOUGH * step * slope and fall > 0:
            return new
        if fall >= -slack and step * slope < 10 * slack:
            turned = dot(new.gradient, direction)
            if abs(turned) <= 0.9 * slope:
                return new
            if step < 0.1:
                return None
        step *= _shorter(step, slope, fall)
    return None


def _shorter(step: float, slope: float, fall: float) -> float:
    """Minimum of the parabola through the value, the slope and the failed value, within [0.1, 0.5]."""
    bend = 2 * (slope - fall / step)
    return min(0.5, max(0.1, slope / bend)) if np.isfinite(bend) and bend > 0 else 0.1


def rounding(dtype: np.dtype) -> float:
    """Relative rounding of the objective: rows' losses are of the data's precision, their sum is float64."""
    return 1e-7 if dtype == np.float32 else 1e-15


def dot(a: NDArray, b: NDArray) -> float:
    """Sum of the products of all entries."""
    return float(np.vdot(a, b))
