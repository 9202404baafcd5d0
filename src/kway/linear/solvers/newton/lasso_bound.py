"""How far a point is from the minimum under an L1 penalty, where its Hessian is too large to be written down.

    F(u) = f(u) + lasso |u|_1 >= f(u) + v.u = G(u)   for any v within +-lasso, so that
    F(w) - F* <= lasso |w|_1 - v.w + G(w) - min G,   G(w) - min G <= q' H^-1 q / 2 exp(r),   q = f'(w) + v

(decrement.py). Weights that are not zero are `free`: v = lasso sign(w), and the first part vanishes. At the others
q = H x, x the Newton step of the free ones alone: it leaves the zeros where they are, and no other v says as much. A
zero whose v were beyond lasso for that joins the free ones, unless what is beyond it counts for little; a weight that x
carries through zero leaves them, and costs lasso |w| - v w; it may come back on the other side.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective.objective import Objective
from kway.linear.solvers.newton.decrement import Precondition, decrement
from kway.linear.solvers.point import Point

_ROUNDS = 4  # in which weights join and leave
_SLACK = 0.1  # of what is enough: v may be so much too large, relatively, which costs as much of the objective

FactorOf = Callable[[NDArray[np.bool_]], Precondition]  # free (R, d + 1) -> an inverse of the Hessian among them


def lasso_excess(objective: Objective, point: Point, factor_of: FactorOf, enough: float) -> float:
    """A bound of F above its minimum at the point; one of no more than `enough` is as good as any, inf is none."""
    lasso = np.full(objective.d + 1, objective.penalty.lasso)
    lasso[-1] = 0
    weights = point.theta.astype(np.float64)
    weights[:, -1] = 0  # intercepts cost nothing
    slopes = point.gradient.astype(np.float64)
    slack = _SLACK * enough / max(point.total, enough)
    free = (weights != 0) | (np.abs(slopes) > (1 + slack) * lasso)
    free[:, -1] = objective.fit_intercept
    side = np.where(weights != 0, np.sign(weights), -np.sign(slopes))
    for _ in range(_ROUNDS):
        q = np.where(free, slopes + lasso * side, 0).astype(point.theta.dtype)
        found = decrement(objective, point.theta, q, factor_of(free), enough)
        v = np.where(free, lasso * side, -found.residual - slopes)  # of a zero H x, q having been nothing there
        held = np.clip(v, -lasso, lasso)
        steep = ~free & (np.abs(v) > (1 + slack) * lasso)
        steep[:, -1] = False
        beyond = np.where(steep, held - v, 0).astype(q.dtype)  # what is left of q, as a residual is
        more = float(np.vdot(beyond, factor_of(free | steep)(beyond))) if steep.any() else 0.0
        cost = float(np.sum(lasso * np.abs(weights) - held * weights)) + slack * point.total
        bound = found.excess + found.stretch * more / 2 + cost
        crossing = free & (side * weights > 0) & (side * (weights - found.direction) < 0)
        crossing &= found.excess > enough / 2  # else nobody need leave, and those who join come to an end
        if bound <= enough or not found.excess < np.inf or not (steep.any() or crossing.any()):
            return bound
        side = np.where(steep, np.sign(v), side)
        free = (free | steep) & ~crossing
    return np.inf
