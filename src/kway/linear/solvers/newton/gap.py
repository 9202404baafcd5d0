"""How far a point is from the minimum of a rounded hinge, by the gap between it and its dual.

    F(W, b) - F* <= ||dF/dW||^2 / (2 ridge)      where dF/db = 0

since the slopes at (W, b) are a point of the dual problem whenever they add up to zero over the rows, as intercepts
have no penalty. So intercepts are solved for first, the weights as they are: a problem of R numbers. What rounding
leaves of their slopes counts as often as an intercept may still move: no further than to where all rows are on one
side.

A proof by Newton's step (decrement.py) knows the Hessian of a rounded hinge only as far as its kinks are wide: on
60,000 images of ten classes ten steps of 30 products each were needed, 13 s, where 25 more steps of the descent close
the gap in half a second.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import pmap, spans
from kway.linear.objective.curvature import row_squares
from kway.linear.objective.objective import Objective
from kway.linear.solvers.point import Point

MOST_SCORES = 64  # intercepts to be solved for
_MOST_NUMBERS = 1 << 26  # in the scores (n, R)
_BLOCK_ROWS = 4096
_MOST_STEPS = 200


class Gap(NamedTuple):
    """A point, its intercepts solved for, and a bound of its excess over the minimum."""

    point: Point
    excess: float


def closes(objective: Objective) -> bool:
    """Whether the gap can be had: a rounded hinge under a squared penalty, rows in memory, few intercepts."""
    o = objective
    here = o.rows_here and not (o.on_device or o.rows_apart or o.classes_apart)
    fits = o.n * o.n_scores <= _MOST_NUMBERS and (o.n_scores <= MOST_SCORES or not o.fit_intercept)
    return bool(here and fits and o.loss.rounded and o.loss.convex and o.penalty.ridge > 0 and not o.penalty.lasso)


def close(objective: Objective, start: Point, more: Iterator[Point], enough: Callable[[Point], float]) -> Gap:
    """Where the gap is at most `enough`, at the start or one of `more`; the last of them, and inf, where it stays open.

    Solving for intercepts takes some passes, so after a try in vain the rest of the gap is to halve before the next.
    """
    point, limit = start, np.inf
    for point in itertools.chain([start], more):
        least = least_excess(objective, point)
        if least <= min(enough(point), limit):
            found = gap(objective, point)
            if found.excess <= enough(found.point):
                return found
            limit = least / 2
    return Gap(point, np.inf)


def least_excess(objective: Objective, point: Point) -> float:
    """||dF/dW||^2 / (2 ridge): the gap without what the intercepts add."""
    slopes = point.gradient[:, :-1].astype(np.float64)
    return float(np.vdot(slopes, slopes)) / (2 * objective.penalty.ridge)


def gap(objective: Objective, point: Point) -> Gap:
    """The gap at the point, or where its intercepts are solved for."""
    if not objective.fit_intercept:
        return Gap(point, least_excess(objective, point))
    scores = _scores(objective, point.theta)
    intercepts = _solved(objective, scores, point.theta[:, -1].astype(np.float64))
    theta = point.theta.copy()
    theta[:, -1] = intercepts
    value, slopes = _slopes(objective, scores, intercepts)  # (n, R)
    gradient = np.empty_like(point.gradient)
    gradient[:, :-1] = _product(objective, slopes) / objective.n + objective.penalty.ridge * theta[:, :-1]
    gradient[:, -1] = left = slopes.mean(axis=0)
    value += objective.penalty.value(theta[:, :-1])
    new = Point(theta, value, gradient, value)
    return Gap(new, least_excess(objective, new) + float(np.abs(left).sum()) * _reach(objective, new))


def _scores(objective: Objective, theta: NDArray) -> NDArray[np.float64]:
    """X W^T (n, R), without the intercepts."""
    bare = theta.copy()
    bare[:, -1] = 0
    parts = pmap(lambda rows: objective.scores(bare, rows), spans(objective.n, _BLOCK_ROWS), objective.n_jobs)
    return np.concatenate(parts).astype(np.float64)


def _slopes(objective: Objective, scores: NDArray, intercepts: NDArray) -> tuple[float, NDArray[np.float64]]:
    """The mean loss, and weighted slopes (n, R)."""

    def part(rows: slice) -> tuple[float, NDArray]:
        value, slopes = objective.loss.value_gradient(scores[rows] + intercepts, objective.block_targets(rows))
        if objective.weight is None:
            return float(value.sum()), slopes
        weight = objective.weight[rows].astype(np.float64)
        return float(value @ weight), slopes * weight[:, None]

    parts = pmap(part, spans(objective.n, _BLOCK_ROWS), objective.n_jobs)
    return sum(value for value, _ in parts) / objective.n, np.concatenate([slopes for _, slopes in parts])


def _solved(objective: Objective, scores: NDArray, start: NDArray) -> NDArray[np.float64]:
    """The intercepts (R,) that are best with these scores."""
    from scipy.optimize import minimize

    def mean_loss(intercepts: NDArray) -> tuple[float, NDArray]:
        value, slopes = _slopes(objective, scores, intercepts)
        return value, slopes.mean(axis=0)

    options = {"gtol": 1e-14, "maxiter": _MOST_STEPS}
    return np.asarray(minimize(mean_loss, start, jac=True, method="BFGS", options=options).x)


def _product(objective: Objective, slopes: NDArray) -> NDArray:
    """slopes^T X (R, d)."""

    def part(rows: slice) -> NDArray:
        X = objective.X[rows]
        return np.asarray(slopes[rows].astype(X.dtype).T @ X)

    parts = pmap(part, spans(objective.n, _BLOCK_ROWS), objective.n_jobs)
    return np.asarray(np.sum(parts, axis=0, dtype=np.float64))


def _reach(objective: Objective, point: Point) -> float:
    """How far the best intercepts of the best weights can be from these.

    Beyond the largest score of any row, and the margin, every row of one side is right and a step back costs nothing.
    A score is at most ||x|| ||w||, and ridge / 2 ||w||^2 at most the objective.
    """

    def largest(rows: slice) -> float:
        return float(row_squares(objective.X[rows], objective.X.dtype).max(initial=0.0))

    norm = np.sqrt(max(pmap(largest, spans(objective.n, _BLOCK_ROWS), objective.n_jobs)))
    weights = np.sqrt(2 * max(point.value, 0.0) / objective.penalty.ridge)
    loss = objective.loss
    return 2 * float(np.abs(point.theta[:, -1]).max() + loss.margin + loss.width + norm * weights)
