"""How far a point is from the minimum of a smooth objective, where its Hessian is too large to be written down.

    D = g' H^-1 g by conjugate gradients on products H v, preconditioned by what a descent knows of H^-1

    F(theta) - F* <= D / 2 exp(r)   r the most that the Newton step H^-1 g changes a score, times the loss's
                                    `hessian_change`

A product costs about as much as a gradient. What is missing from D after some of them is r' H^-1 r, r the residual: at
most r' M r over the smallest eigenvalue of the preconditioned Hessian, which the method's own coefficients estimate.
That is never above 1: along the last step of the descent M is H^-1, whether r has any of it or not. The step they lead
to is Newton's, and is there to be taken.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import offers

_MOST_NUMBERS = 1 << 26  # in the curvatures (n, R)
_SETTLED = 0.25  # of D: what may be missing from it when Newton's step is good enough
_SURE = 0.8  # of what is enough: where a step gains a little less than its model says, the bound is still under it
CAUTION = 10.0  # the smallest eigenvalue seen is an overestimate
_LEAST_STEPS, _MOST_STEPS = 3, 40  # after one or two the smallest eigenvalue seen says little
_FAR = 40.0

Precondition = Callable[[NDArray], NDArray]


class Decrement(NamedTuple):
    """Newton's step (R, d + 1) as an ascent direction, its slope D, a bound of the excess, and the products it took.

    `settled`: the last of them added little. `residual` r (R, d + 1): the gradient less H times the step; `stretch`:
    what r' H^-1 r is to r' M r at most, and what the change of the Hessian over the step adds to that.
    """

    direction: NDArray
    slope: float
    excess: float
    products: int
    settled: bool
    residual: NDArray
    stretch: float


def provable(objective: Objective) -> bool:
    """Whether the loss is convex, its Hessian and how fast that changes are known, and its curvatures fit.

    Of rows in files they need not.
    """
    loss = objective.loss
    known = loss.smooth and loss.hessian_change is not None and "loss.hessian" in offers(loss, objective.penalty)
    here = not objective.rows_in_files
    return known and here and objective.n * objective.n_scores <= _MOST_NUMBERS


def decrement(
    objective: Objective,
    theta: NDArray,
    gradient: NDArray,
    precondition: Precondition,
    enough: float = 0.0,
    taken: bool = False,
) -> Decrement:
    """D at theta, whose gradient is known; an excess of no more than `enough` ends the search for a better bound.

    The objective is `provable`. A step that will be `taken` gains D / 2, which is then gone from the excess.
    """
    bends = objective.bends(theta)
    per_score = objective.loss.hessian_change
    assert per_score is not None
    x, r = np.zeros_like(gradient), gradient.copy()
    z = precondition(r)
    p, rz, D = z, _dot(r, z), 0.0
    lengths: list[float] = []
    ratios: list[float] = []
    excess, stretch, settled = 0.0 if rz == 0 else np.inf, CAUTION, False
    while len(lengths) < _MOST_STEPS and rz > 0:
        Hp = bends.product(p)
        curvature = _dot(p, Hp)
        if not (0 < curvature < np.inf and rz < np.inf):
            return Decrement(x, D, np.inf, len(lengths), False, r, np.inf)
        t = rz / curvature
        x += x.dtype.type(t) * p
        D += t * rz
        r -= r.dtype.type(t) * Hp
        z = precondition(r)
        rz, old = _dot(r, z), rz
        lengths.append(t)
        if not rz >= 0:  # rounding, of which a bound knows nothing
            return Decrement(x, D, np.inf, len(lengths), False, r, np.inf)
        ratios.append(rz / old)
        missed = CAUTION / _smallest(lengths, ratios)
        tail = missed * rz
        change = float(np.exp(min(_FAR, per_score * bends.advance(t))))
        excess, stretch = (D + tail) / 2 * change, missed * change
        left = excess - D / 2 if taken else excess
        settled = len(lengths) >= _LEAST_STEPS and (left <= _SURE * enough or tail <= _SETTLED * D)
        if settled or (not taken and D / 2 > enough > 0):  # no bound will be under enough
            break
        p = z + p.dtype.type(ratios[-1]) * p
    return Decrement(x, D, excess, len(lengths), settled, r, stretch)


def _smallest(lengths: list[float], ratios: list[float]) -> float:
    """Smallest eigenvalue of the preconditioned Hessian that the steps have seen (Lanczos), no more than 1."""
    t, b = np.array(lengths), np.array(ratios[:-1])
    if not (np.isfinite(1 / t).all() and np.isfinite(b).all()):
        return 1e-300
    diagonal = 1 / t
    diagonal[1:] += b / t[:-1]
    return min(max(float(eigvalsh_tridiagonal(diagonal, np.sqrt(b) / t[:-1])[0]), 1e-300), 1.0)


def _dot(a: NDArray, b: NDArray) -> float:
    return float(np.vdot(a, b))
