"""One binary support vector machine: its dual variables, its duality gap, and the exact best bias.

Scaled so that the box is the penalty:  P(w, b) = ||w||^2 / 2 + sum_i C_i max(0, 1 - y_i (x_i.w + b)),
D(a) = sum_i a_i - ||sum_i a_i y_i x_i||^2 / 2, 0 <= a_i <= C_i, and sum_i a_i y_i = 0 where there is a bias.
The hard margin is C = infinity: then P is ||w||^2 / 2 of the direction w stretched until every y_i f_i >= 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.jit import frozen
from kway.compute.kernels.linear import dual as kernels
from kway.compute.threads import pmap, spans
from kway.data.gate import Rows
from kway.linear.objective.objective import Objective
from kway.linear.objective.sparse_rows import add_scores, dense_rows
from kway.linear.solvers.newton.standard_columns import Floats, column_centres
from kway.linear.solvers.svm.interior_point import Undecided, solve_box

SWEEPS_A_ROUND = 20  # a round: then the scores of all rows say which to visit next
INTERIOR_FIRST = 3e6  # products of an interior point step up to which they come first,
INTERIOR_LATER = 1e9  # up to which they follow when sweeps have slowed down,
INTERIOR_LAST = 2e10  # and up to which they follow when sweeps have slowed down a lot
SLOW_SWEEPS, LATE_SWEEPS = 60, 600  # sweeps after which that is so


class Plane(NamedTuple):
    """A hyperplane x.w + b and its primal value P."""

    w: Floats
    b: float
    value: float


@dataclass(frozen=True)
class Problem:
    """One class against the rest: y (n,) in -1, +1; upper (n,) the boxes C; square (n,) the ||x_i||^2."""

    X: Rows
    y: Floats
    upper: Floats
    square: Floats
    bias: bool
    hard: bool
    sides: str = "the two classes"  # what it separates, for messages

    @property
    def d(self) -> int:
        """Features."""
        return int(self.X.shape[1])


@dataclass
class Machine:
    """The state of one class's problem; w is always sum_i a_i y_i x_i."""

    problem: Problem
    rng: np.random.Generator
    a: Floats = field(init=False)
    w: Floats = field(init=False)
    scores: Floats = field(init=False)  # x_i . w when last judged (n,)
    best: Plane = field(init=False)
    b: float = 0.0  # the best bias for those scores; that of `best` belongs to another w
    lower: float = 0.0  # best dual value
    centre: float = 0.0
    passes: float = 0.0  # visits to rows, over the number of rows
    sweeps: int = 0
    stuck: int = 0  # interior point runs in a row that did not halve the gap
    tried: float = np.inf  # the gap before the last of them
    spread: float = 1.0  # of the projected gradients at the end of the last sweep

    def __post_init__(self) -> None:
        p = self.problem
        self.a, self.w, self.scores = np.zeros(len(p.y)), np.zeros(p.d), np.zeros(len(p.y))
        self.usable = np.flatnonzero((p.upper > 0) & ((p.square > 0) | p.bias))
        self.stiffness = float(p.square.mean()) if p.bias else 0.0
        self.state = self.rng.integers(1, 2**63, 1).astype(np.uint64)
        self.best = Plane(self.w.copy(), 0.0, np.inf)
        self.judge(self.scores)

    @property
    def hopeless(self) -> bool:
        """Whether the number format allows no better."""
        return self.stuck >= 3

    @property
    def gap(self) -> float:
        """Upper bound on P(best) - P*."""
        return max(0.0, self.best.value - self.lower)

    def improve(self, tol: float) -> None:
        """A round of sweeps, or interior points where they are cheap or where sweeps have slowed down."""
        if self._prefers_interior():
            self.stuck = self.stuck + 1 if self.gap > 0.5 * self.tried else 0
            self.tried = self.gap
            self.finish(tol / 10)
        else:
            self.work()
        self.settle()
        self.passes += 1  # over all rows, to judge the result

    def _prefers_interior(self) -> bool:
        cost = interior_work(len(self.usable), self.problem.d)
        if cost <= INTERIOR_FIRST or self.sweeps < SLOW_SWEEPS:
            return cost <= INTERIOR_FIRST
        return cost <= INTERIOR_LATER or (
            self.sweeps >= LATE_SWEEPS and interior_work(len(self._undecided()), self.problem.d) <= INTERIOR_LAST
        )

    # ---------------------------------------------------------------- coordinate descent

    def work(self) -> None:
        """Sweeps over a copy of the rows that may still move, until they hardly do: the copy stays in the cache."""
        p, chosen = self.problem, self._movable()
        X = p.X if len(chosen) == len(p.y) else p.X[chosen]
        rows, y, square, upper, a = kernel_rows(X), p.y[chosen], p.square[chosen], p.upper[chosen], self.a[chosen]
        most = max(SWEEPS_A_ROUND, len(p.y) // max(1, len(chosen)))
        _, self.centre, count, visits, self.spread = kernels.sweeps(
            rows, y, square, upper, a, self.w, float(self.a @ p.y), self.centre, self.stiffness,
            np.arange(len(chosen)), self.state, most,
        )  # fmt: skip
        self.sweeps += count
        self.passes += visits / len(p.y)
        self.a[chosen] = a

    def _movable(self) -> NDArray[np.int64]:
        """Rows inside their box, or at a wall and pulled away from it, or within reach of the last gradients."""
        p, rows = self.problem, self.usable
        slope = p.y[rows] * (self.scores[rows] + self.b) - 1
        a, reach = self.a[rows], min(1.0, self.spread)
        rests = ((a <= 0) & (slope > reach)) | ((a >= p.upper[rows]) & (slope < -reach))
        return rows if rests.all() else rows[~rests]

    # ---------------------------------------------------------------- interior points

    def finish(self, tol: float) -> None:
        """An interior point method on the undecided rows, the others held where they are."""
        p, chosen = self.problem, self._undecided()
        held = self.a * p.y
        held[chosen] = 0
        w0, s0 = np.zeros(p.d), float(held.sum())
        kernels.combine(kernel_rows(p.X), held, w0)
        X = dense_rows(p.X[chosen])
        middle = (
            column_centres(X, np.ones(len(X))) if p.bias else np.zeros(p.d)
        )  # a free bias makes the problem blind to shifts
        X -= middle
        scale = float(np.sqrt(np.einsum("ij,ij->", X, X) / len(X))) or 1.0
        y, upper = p.y[chosen], np.where(p.hard, np.inf, p.upper[chosen] * scale**2)
        X *= (y / scale)[:, None]
        found = solve_box(Undecided(X, y, upper, (w0 - s0 * middle) * scale, s0 * scale**2, p.bias), tol)
        self.a[chosen] = np.clip(found.a, 0, upper) / scale**2
        self.centre = found.b - float(self.w @ middle)

    def _undecided(self) -> NDArray[np.int64]:
        """All usable rows if they are few, else the free ones and as many again by their distance to the margin."""
        p, rows = self.problem, self.usable
        if interior_first(len(rows), p.d):
            return rows
        free = (self.a[rows] > 0) & (self.a[rows] < p.upper[rows])
        away = np.where(free, -1.0, np.abs(1 - p.y[rows] * (self.scores[rows] + self.b)))
        most = 2 * int(free.sum()) + 2 * p.d + 200
        return np.sort(rows[np.argsort(away, kind="stable")[:most]])

    # ---------------------------------------------------------------- values

    def settle(self) -> None:
        """w made anew from a, and the dual value of variables that meet sum a y = 0: the heavier side is shrunk."""
        p = self.problem
        rows, signed = kernel_rows(p.X), self.a * p.y
        kernels.combine(rows, signed, self.w)
        w, total = self.w, float(self.a.sum())
        if p.bias:
            plus, minus = float(signed[p.y > 0].sum()), -float(signed[p.y < 0].sum())
            side = min(plus, minus) / max(plus, minus, 1e-300)
            shrunk = np.where((p.y > 0) == (plus > minus), side * signed, signed)
            w, total = np.zeros_like(w), float(np.abs(shrunk).sum())
            kernels.combine(rows, shrunk, w)
        norm = float(w @ w)
        value = total * total / (2 * max(norm, 1e-300)) if p.hard and total else total - norm / 2
        self.lower = max(self.lower, value)

    def judge(self, scores: Floats) -> None:
        """The primal value at w, from the scores x_i . w."""
        self.scores = scores
        plane = self._hard_plane() if self.problem.hard else self._soft_plane()
        self.b = plane.b
        if plane.value < self.best.value or not np.isfinite(self.best.value):
            self.best = plane

    def _soft_plane(self) -> Plane:
        p, f = self.problem, self.scores
        b = best_hinge_bias(p.y - f, p.y, p.upper) if p.bias else 0.0
        loss = p.upper @ np.maximum(0, 1 - p.y * (f + b))
        return Plane(self.w.copy(), b, float(self.w @ self.w / 2 + loss))

    def _hard_plane(self) -> Plane:
        """w stretched to reach 1 on the closest row; infinite where it does not separate."""
        f, y = self.scores[self.usable], self.problem.y[self.usable]
        if self.problem.bias and abs(y.sum()) == len(y):  # one class: nothing to separate
            return Plane(np.zeros_like(self.w), float(y[0]), 0.0)
        b = -(f[y > 0].min() + f[y < 0].max()) / 2 if self.problem.bias else 0.0
        reach = float((y * (f + b)).min())
        if reach <= 0:
            return Plane(self.w.copy(), b, np.inf)
        return Plane(self.w / reach, b / reach, float(self.w @ self.w) / (2 * reach * reach))


def judge_all(objective: Objective, machines: list[Machine]) -> None:
    """Scores of all rows for several machines in one pass."""
    scores = scores_of_all(objective, np.array([m.w for m in machines]))
    pmap(lambda item: item[0].judge(item[1]), zip(machines, scores), objective.n_jobs)


def scores_of_all(objective: Objective, W: Floats) -> Floats:
    """x_i . w_k, (R, n), of every row for W (R, d)."""
    X, n = objective.X, objective.n
    by_row = np.zeros((n, len(W)))
    by_feature = np.ascontiguousarray(W.T) if sp.issparse(X) else W  # a CSR row then reads runs, a fifth of the time

    def block(part: slice) -> None:
        if sp.issparse(X):
            add_scores(X, part, by_feature, by_row[part])
        else:
            out = np.empty((len(W), part.stop - part.start))
            kernels.scores_of_class(kernel_rows(X), part.start, W, out)
            by_row[part] = out.T

    pmap(block, spans(n, 4096), objective.n_jobs)
    return np.ascontiguousarray(by_row.T)


def interior_work(rows: int, d: int) -> float:
    """Of numbers, in one interior point step."""
    return float(rows) * d * min(rows, d)


def interior_first(rows: int, d: int) -> bool:
    """Whether interior points are the quickest from the start."""
    return interior_work(rows, d) <= INTERIOR_FIRST


def best_hinge_bias(turns: Floats, y: Floats, weight: Floats) -> float:
    """argmin_b sum_i weight_i max(0, 1 - y_i (f_i + b)): exact.

    Row i's hinge turns at b = y_i - f_i, where the slope of the sum rises by weight_i; it starts at minus the weight of
    the positive rows, so the best b is the turn at which the weights passed reach that.
    """
    order = np.argsort(turns)
    passed = np.cumsum(weight[order])
    k = int(np.searchsorted(passed, weight[y > 0].sum() * (1 - 1e-15)))
    return float(turns[order[min(k, len(order) - 1)]])


def kernel_rows(X: Rows) -> Any:
    """Rows as the kernels read them: (n, d), or the triple of a CSR array."""
    return tuple(frozen(part) for part in (X.data, X.indices, X.indptr)) if sp.issparse(X) else frozen(X)
