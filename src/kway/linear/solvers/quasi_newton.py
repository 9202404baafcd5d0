"""L-BFGS with a preconditioner for its first matrix: minimises a smooth objective from a point.

direction   H_k g by the two loops over the last 20 pairs (s, y) = (move, change of gradient), the preconditioner
            scaled by s.y / y.My in the middle
step        1, shortened along a parabola until the value falls enough; where the fall drowns in rounding, until
            the slope along the direction has not turned
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import pmap, shares
from kway.linear.objective.objective import Objective
from kway.linear.solvers.point import ARMIJO, Point
from kway.linear.solvers.preconditioners.factors import Factor

MEMORY = 20
_LONG = 1 << 20  # of more numbers half as many are kept: a tenth more iterations, each with half the reading
LEAST_SHARE = 1 << 16  # numbers a worker's share of a vector has at least
_SHORTEST = 1e-10


class Pairs:
    """The last moves s and changes of the gradient y with s.y > 0: what is known of the curvature.

    Kept as rows of two matrices (MEMORY, P), P numbers in whatever order theta lies in memory, with the products
    s_i.y_j: both loops then run over a few numbers, and a direction reads each vector twice, by matrix products on
    every core, where one vector at a time is read or written eight times. Where others hold the rest of theta, `total`
    adds their products to these (Objective.total), and everybody finds the same coefficients.
    """

    def __init__(self, n_jobs: int | None = None, total: Callable[[NDArray], NDArray] = lambda part: part) -> None:
        self.n_jobs = n_jobs
        self._total = total
        self._moves = self._changes = np.empty((0, 0))
        self._products = np.empty((0, 0))  # s_i.y_j
        self._order: list[int] = []  # rows in use, oldest first
        self._shape: tuple[int, ...] = ()
        self._layout: Literal["C", "F"] = "C"

    def __len__(self) -> int:
        return len(self._order)

    def clear(self) -> None:
        """Forget all."""
        self._order.clear()

    def add(self, old: Point, new: Point) -> None:
        """Remember a step if the curvature along it was positive."""
        move, change = flattened(new.theta - old.theta), flattened(new.gradient - old.gradient)
        products = inner(move, change), inner(move, move), inner(change, change), move.size
        curvature, moved, changed, size = self._total(np.array(products, np.float64))
        if not curvature > 1e-12 * np.sqrt(moved * changed):
            return
        if not self._moves.size:
            self._shape, self._layout = new.theta.shape, layout(new.theta)
            memory = MEMORY if size <= _LONG else MEMORY // 2
            self._moves, self._changes = np.empty((2, memory, move.size), move.dtype)
            self._products = np.empty((memory, memory))
        row = self._order.pop(0) if len(self) == len(self._moves) else len(self)
        self._moves[row], self._changes[row] = move, change
        self._order.append(row)
        self._products[:, row] = self._against(self._moves, change)

    def change_ridge(self, by: float) -> None:
        """The pairs of the same loss under a ridge larger by so much, exactly: y += by s, but for the bias."""
        for row in self._order:
            change, move = (a[row].reshape(self._shape, order=self._layout) for a in (self._changes, self._moves))
            change[:, :-1] += change.dtype.type(by) * move[:, :-1]
        for row in self._order:
            self._products[:, row] = self._against(self._moves, self._changes[row])
        if any(not self._products[row, row] > 0 for row in self._order):  # rounding
            self.clear()

    def direction(self, gradient: NDArray, factor: Factor) -> NDArray:
        """H gradient, an ascent direction: the two loops, on the coefficients of the moves and changes."""
        if not self._order:
            return factor(gradient)
        order, products = self._order, self._products
        along = self._against(self._moves, flattened(gradient))  # s_i.g
        weights = np.zeros(len(self._moves))
        for at, i in reversed(list(enumerate(order))):
            newer = order[at + 1 :]
            weights[i] = (along[i] - products[i, newer] @ weights[newer]) / products[i, i]
        q = np.empty_like(gradient)
        flattened(q)[:] = flattened(gradient) - self._sum(weights, self._changes)
        last = order[-1]
        newest = self._changes[last].reshape(self._shape, order=self._layout)
        q = factor(q)
        bent = float(self._total(np.array([inner(newest, factor(newest))]))[0])
        q *= q.dtype.type(products[last, last] / max(bent, 1e-300))
        across = self._against(self._changes, flattened(q))  # y_i.q
        gains = np.zeros(len(self._moves))
        for at, i in enumerate(order):
            older = order[:at]
            gains[i] = weights[i] - (across[i] + products[older, i] @ gains[older]) / products[i, i]
        flattened(q)[:] += self._sum(gains, self._moves)
        return q

    def _against(self, rows: NDArray, vector: NDArray) -> NDArray:
        """rows (m, P) times vector (P,), a share of the columns a worker."""
        m = len(self._order)
        parts = pmap(
            lambda s: rows[:m, s] @ vector[s], shares(len(vector), self.n_jobs, least=LEAST_SHARE), self.n_jobs
        )
        out = np.zeros(len(self._moves))
        out[:m] = self._total(np.asarray(np.sum(parts, axis=0, dtype=np.float64)))
        return out

    def _sum(self, coefficients: NDArray, rows: NDArray) -> NDArray:
        """sum_i coefficients_i rows_i, (P,)."""
        m, out = len(self._order), np.empty(rows.shape[1], rows.dtype)
        used = coefficients[:m].astype(rows.dtype)

        def part(share: slice) -> None:
            np.matmul(used, rows[:m, share], out=out[share])

        pmap(part, shares(len(out), self.n_jobs, least=LEAST_SHARE), self.n_jobs)
        return out


@dataclass(frozen=True)
class Step:
    """One iteration: where it led, and the fall that the quadratic model promised before it."""

    point: Point
    promised: float
    stuck: bool = False  # rounding hides any further fall


def descend(
    objective: Objective,
    point: Point,
    factor: Factor,
    refactor: Callable[[int, Point], Factor | None] | None = None,
    pairs: Pairs | None = None,
) -> Iterator[Step]:
    """Steps without end, until the caller has enough or the last is `stuck`.

    `refactor(iteration, point)` may give a better preconditioner on the way; the pairs stay valid. `pairs` of a
    problem much like this one are a start, and are added to.
    """
    pairs = Pairs(objective.n_jobs, objective.total) if pairs is None else pairs
    noise, iteration = loss_rounding(point.theta.dtype), 0
    while True:
        iteration += 1
        factor = (refactor(iteration, point) if refactor else None) or factor
        direction = pairs.direction(point.gradient, factor)
        slope = _along(objective, point.gradient, direction)
        if not slope > 0 and len(pairs):
            pairs.clear()
            direction = factor(point.gradient)
            slope = _along(objective, point.gradient, direction)
        promised = slope / 2
        new = search_along(objective, point, direction, slope, noise) if slope > 0 and np.isfinite(slope) else None
        if new is None and len(pairs) and promised > noise * abs(point.value):
            pairs.clear()  # old curvature led astray
            continue
        if new is None:
            yield Step(point, promised, stuck=True)
            return
        pairs.add(point, new)
        point = new
        yield Step(point, promised)


def search_along(objective: Objective, point: Point, direction: NDArray, slope: float, noise: float) -> Point | None:
    """The first point along -direction, from step 1 down, that falls enough; None where there is none."""
    step, slack = 1.0, noise * abs(point.value)
    real = point.theta.dtype.type
    while step > _SHORTEST:
        theta = point.theta - real(step) * direction
        new = Point.centred_at(objective, theta)
        fall = point.value - new.value
        if fall >= ARMIJO * step * slope and fall > 0:
            return new
        if fall >= -slack and step * slope < 10 * slack:
            turned = _along(objective, new.gradient, direction)
            if abs(turned) <= 0.9 * slope:
                return new
            if step < 0.1:
                return None
        step *= _shorter(step, slope, fall)
    return None


def _along(objective: Objective, gradient: NDArray, direction: NDArray) -> float:
    """The slope along a direction, whoever holds the rest of it."""
    return float(objective.total(np.array([inner(gradient, direction)]))[0])


def _shorter(step: float, slope: float, fall: float) -> float:
    """Minimum of the parabola through the value, the slope and the failed value, within [0.1, 0.5]."""
    bend = 2 * (slope - fall / step)
    return min(0.5, max(0.1, slope / bend)) if np.isfinite(bend) and bend > 0 else 0.1


def loss_rounding(dtype: np.dtype) -> float:
    """Relative rounding of the objective: rows' losses are of the data's precision, their sum is float64."""
    return 1e-7 if dtype == np.float32 else 1e-15


def inner(a: NDArray, b: NDArray) -> float:
    """Sum of the products of all entries."""
    return float(np.dot(flattened(a), flattened(b)))


def flattened(a: NDArray) -> NDArray:
    """The entries as they lie in memory, no copy."""
    return a.ravel(order="K")


def layout(a: NDArray) -> Literal["C", "F"]:
    """The order in which the entries of a matrix lie."""
    return "C" if a.flags.c_contiguous else "F"
