"""Products with the Hessian of the mean loss: what a change of theta does to the gradient, without writing it down.

    H V = mean_i w_i (B_i f(V)_i) [x_i 1] + ridge V,   B_i (R, R) the Hessian of row i's loss in its scores

B_i = diag(p) - p p' for softmax; for joint hinges the pairs of the row's own class with each other; else diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.kernels.linear import fused
from kway.compute.threads import pmap, shares, spans_of
from kway.data.gate import Rows
from kway.linear.losses import Loss, Targets
from kway.linear.objective.fused_pass import FusedPass

if TYPE_CHECKING:
    from kway.linear.objective.objective import Objective

_BLOCK = 1 << 20  # numbers of a block of rows, or of its scores


class Bends(Protocol):
    """Products with the Hessian at a theta, and how far a sum of the directions moves any score."""

    def product(self, V: NDArray) -> NDArray:
        """H V, (R, d + 1)."""
        ...

    def advance(self, t: float) -> float:
        """Go t along the direction of the last product; the farthest that any score has come."""
        ...


@dataclass(frozen=True)
class HostBends:
    """Bends from curvatures (n, R) of each row's loss, in this machine's memory."""

    objective: Objective
    bend: NDArray
    turn: NDArray = field(init=False)  # (n, R): how far each score has come
    turned: NDArray = field(init=False)  # (n, R): how the last direction turned it

    def __post_init__(self) -> None:
        object.__setattr__(self, "turn", np.zeros(self.bend.shape, self.bend.dtype))
        object.__setattr__(self, "turned", np.empty_like(self.bend))

    def product(self, V: NDArray) -> NDArray:
        """H V, a share of the rows a worker."""
        o = self.objective
        V = o.laid_out(V)
        diagonal = not o.loss.couples

        def read_once(share: slice) -> NDArray:
            one = FusedPass.of(V, o.X.dtype)
            fused.fused_bends(not diagonal, self.bend[share], self.turned[share], *o.fused_rows(share), *one)
            return one.gradient(o.d)

        def part(share: slice) -> NDArray:
            out = np.zeros(V.shape, V.dtype)
            for rows in spans_of(share, _height(o)):
                o.fill_scores(V, rows, self.turned[rows])
                slope = self._slopes(rows, self.turned[rows])
                out[:, :-1] += transposed_product(slope, o.X[rows])
                out[:, -1] += slope.sum(axis=0)
            return out

        way = read_once if o.fused and (diagonal or o.loss.cross_entropy) else part
        return with_ridge(o, np.sum(pmap(way, shares(o.n, o.n_jobs, least=256), o.n_jobs), axis=0), V)

    def advance(self, t: float) -> float:
        """turn += t turned."""
        o = self.objective

        def part(share: slice) -> float:
            turn = self.turn[share]
            turn += turn.dtype.type(t) * self.turned[share]
            return float(max(turn.max(initial=0.0), -turn.min(initial=0.0)))

        return max(pmap(part, shares(o.n, o.n_jobs, least=256), o.n_jobs), default=0.0)

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


def bends_of_rows(objective: Objective, theta: NDArray) -> NDArray:
    """Curvatures of each row's loss at theta, (n, R): of softmax its probabilities."""
    bend = np.empty((objective.n, objective.n_scores), theta.dtype)
    loss = objective.loss

    def part(share: slice) -> None:
        for rows in spans_of(share, _height(objective)):
            here, targets = bend[rows], objective.block_targets(rows)
            objective.fill_scores(theta, rows, here)
            if loss.cross_entropy:
                _to_probabilities(loss, here, targets)
            else:
                here[:] = loss.curvatures(here, targets)
            if loss.hinge and loss.couples:
                here[np.arange(len(here)), targets.codes] = 0

    pmap(part, shares(objective.n, objective.n_jobs, least=256), objective.n_jobs)
    return bend


def _to_probabilities(loss: Loss, scores: NDArray, targets: Targets) -> None:
    """Scores (m, R) turned into softmax(scores) in place: slopes p - Y, and Y again. Half of what numpy takes."""
    loss.value_gradient(scores, targets, scores)
    if targets.soft is None:
        scores[np.arange(len(scores)), targets.codes] += 1
    else:
        scores += targets.soft


def with_ridge(objective: Objective, total: NDArray, V: NDArray) -> NDArray:
    """H V of the objective from the sum over its rows."""
    total /= total.dtype.type(objective.n)
    total[:, :-1] += total.dtype.type(objective.penalty.ridge) * V[:, :-1]
    if not objective.fit_intercept:
        total[:, -1] = 0
    return objective.laid_out(total)


def transposed_product(slope: NDArray, X: Rows) -> NDArray:
    """slope^T X, (R, d), for dense or CSR rows."""
    return np.asarray((X.T @ slope).T) if sp.issparse(X) else slope.T @ X


def _height(objective: Objective) -> int:
    return max(64, _BLOCK // max(objective.d, objective.n_scores))
