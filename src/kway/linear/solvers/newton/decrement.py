"""How far a point is from the minimum of a smooth objective, where its Hessian is too large to be written down.

    D = g' H^-1 g by conjugate gradients on products H v, preconditioned by what a descent knows of H^-1

    F(theta) - F* <= D / 2 exp(r)   r the most that the Newton step H^-1 g changes a score (softmax, logistic), 0 where
                                    the Hessian is the same everywhere, by the width of its kinks for a rounded hinge

A product costs about as much as a gradient. What is missing from D after some of them is r' H^-1 r, r the residual: at
most r' M r over the smallest eigenvalue of the preconditioned Hessian, which the method's own coefficients estimate.
The step they lead to is Newton's, and is there to be taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from kway.compute.threads import pmap, shares, spans
from kway.linear.losses import softmax
from kway.linear.objective.objective import Objective, transposed_product
from kway.linear.solvers.base import has

MOST_NUMBERS = 1 << 26  # in the curvatures (n, R)
BLOCK = 1 << 20
SETTLED = 0.25  # of D: what may be missing from it when Newton's step is good enough
CAUTION = 10.0  # the smallest eigenvalue seen is an overestimate
MOST_STEPS = 40
FAR = 40.0
KINK = 4.0  # a rounded hinge bends over its width only: a step that changes gaps by a quarter of it may leave that

Precondition = Callable[[NDArray], NDArray]


class Decrement(NamedTuple):
    """Newton's step (R, d + 1) as an ascent direction, its slope D, a bound of the excess, and the products it took."""

    direction: NDArray
    slope: float
    excess: float
    products: int


@dataclass(frozen=True)
class Bends:
    """Curvatures of each row's loss at a theta: what a change of scores (m, R) does to the slopes."""

    objective: Objective
    bend: NDArray  # (n, R)

    @staticmethod
    def at(objective: Objective, theta: NDArray) -> Bends:
        """All rows' curvatures at theta."""
        bend = np.empty((objective.n, objective.n_scores), theta.dtype)
        loss = objective.loss

        def part(rows: slice) -> None:
            f = objective.scores(theta, rows)
            bend[rows] = softmax(f) if loss.cross_entropy else loss.curvatures(f, objective.block_targets(rows))
            if loss.hinge and loss.couples:
                bend[rows][np.arange(len(f)), objective.targets.codes[rows]] = 0

        pmap(part, spans(objective.n, _height(objective)), objective.n_jobs)
        return Bends(objective, bend)

    def product(self, V: NDArray, turned: NDArray) -> NDArray:
        """H V (R, d + 1); `turned` (n, R) receives the scores' change."""
        o = self.objective
        V = o.laid_out(V)

        def part(share: slice) -> NDArray:
            out = np.zeros(V.shape, V.dtype)
            for s in spans(share.stop - share.start, _height(o)):
                rows = slice(share.start + s.start, share.start + s.stop)
                turned[rows] = o.scores(V, rows)
                slope = self._slopes(rows, turned[rows])
                out[:, :-1] += transposed_product(slope, o.X[rows])
                out[:, -1] += slope.sum(axis=0)
            return out

        total: NDArray = np.sum(pmap(part, shares(o.n, o.n_jobs, least=256), o.n_jobs), axis=0)
        total /= total.dtype.type(o.n)
        total[:, :-1] += total.dtype.type(o.penalty.ridge) * V[:, :-1]
        if not o.fit_intercept:
            total[:, -1] = 0
        return o.laid_out(total)

    def _slopes(self, rows: slice, turn: NDArray) -> NDArray:
        """What a change of scores does to the slopes of some rows."""
        o, bend = self.objective, self.bend[rows]
        if o.loss.cross_entropy:
            slope = bend * (turn - np.einsum("ij,ij->i", bend, turn)[:, None])
        elif o.loss.couples:
            own = np.arange(len(turn)), o.targets.codes[rows]
            slope = bend * (turn - turn[own][:, None])
            slope[own] = -slope.sum(axis=1)
        else:
            slope = bend * turn
        return slope if o.weight is None else slope * o.weight[rows, None]


def provable(objective: Objective) -> bool:
    """Whether the loss is convex with a known Hessian, and its curvatures fit."""
    known = objective.loss.smooth and "loss.hessian" in has(objective.loss, objective.penalty)
    return known and objective.n * objective.n_scores <= MOST_NUMBERS


def decrement(
    objective: Objective, theta: NDArray, gradient: NDArray, precondition: Precondition, enough: float = 0.0
) -> Decrement:
    """D at theta, whose gradient is known; an excess of no more than `enough` ends the search for a better bound."""
    bends = Bends.at(objective, theta)
    loss = objective.loss
    per_score = 0.0 if loss.aims is not None else KINK / loss.width if loss.hinge else 1.0
    x, r = np.zeros_like(gradient), gradient.copy()
    turn, turned = np.zeros_like(bends.bend), np.empty_like(bends.bend)
    z = precondition(r)
    p, rz, D = z, _dot(r, z), 0.0
    lengths: list[float] = []
    ratios: list[float] = []
    excess = np.inf
    while len(lengths) < MOST_STEPS and rz > 0:
        Hp = bends.product(p, turned)
        curvature = _dot(p, Hp)
        if not (0 < curvature < np.inf and rz < np.inf):
            break
        t = rz / curvature
        x += x.dtype.type(t) * p
        turn += turn.dtype.type(t) * turned
        D += t * rz
        r -= r.dtype.type(t) * Hp
        z = precondition(r)
        rz, old = _dot(r, z), rz
        lengths.append(t)
        ratios.append(max(rz, 0.0) / old)
        tail = CAUTION * max(rz, 0.0) / _smallest(lengths, ratios)
        reach = min(FAR, per_score * float(np.abs(turn).max(initial=0.0)))
        excess = (D + tail) / 2 * float(np.exp(reach))
        if excess <= enough or (len(lengths) >= 3 and tail <= SETTLED * D):
            break
        p = z + p.dtype.type(ratios[-1]) * p
    return Decrement(x, D, excess, len(lengths))


def _smallest(lengths: list[float], ratios: list[float]) -> float:
    """Smallest eigenvalue of the preconditioned Hessian that the steps have seen (Lanczos)."""
    t, b = np.array(lengths), np.array(ratios[:-1])
    if not (np.isfinite(1 / t).all() and np.isfinite(b).all()):
        return 1e-300
    diagonal = 1 / t
    diagonal[1:] += b / t[:-1]
    return max(float(eigvalsh_tridiagonal(diagonal, np.sqrt(b) / t[:-1])[0]), 1e-300)


def _height(objective: Objective) -> int:
    return max(64, BLOCK // max(objective.d, objective.n_scores))


def _dot(a: NDArray, b: NDArray) -> float:
    return float(np.vdot(a, b))
