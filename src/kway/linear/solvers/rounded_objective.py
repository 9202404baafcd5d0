"""The rounded objective F_e of a standard problem, its Newton steps, and the proof of how far it is above the optimum.

    F_e(theta) = sum_j ridge_j / 2 theta_j^2 + lasso_j |theta_j|_e + sum_i weight_i loss_e(f_i, y_i),   f = Z theta'

Slopes of rounded kinks are feasible dual variables of the true ones, so where F_e has no gradient, F is above its
optimum by no more than what rounding cost each kink there, sum lasso_j (|theta_j| - u_j theta_j) + sum weight_i (max(0,
g) - a g). What gradient is left counts by Newton's decrement, D = g' H^-1 g: a loss whose third derivative is bounded
by its second (`hessian_change`) can fall by D / 2 exp(r), r that times the most that a Newton step changes a score.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses import softmax
from kway.linear.losses.hinge import gaps, own_scores
from kway.linear.solvers.kinks import followed, rounded
from kway.linear.solvers.newton_step import DenseHessian
from kway.linear.solvers.standard_columns import DenseProblem, Floats

_ENOUGH = 0.1  # share of the promised fall that a step must bring
_SHORTEST = 1e-10


class Look(NamedTuple):
    """The loss at some scores: its weighted sum, slopes and curvatures (n, R), weights included."""

    value: float
    slope: Floats
    bend: Floats


class NewtonStep(NamedTuple):
    """A Newton step (R, D), the scores' change (n, R), and what it says of the distance to the minimum."""

    move: Floats
    turn: Floats
    decrement: float
    excess: float  # bound of F_e above its minimum


@dataclass
class RoundedPoint:
    """Where a descent on the rounded objective stands."""

    problem: DenseProblem
    theta: Floats  # (R, D)
    scores: Floats  # (n, R)
    pulls: Floats  # dual variables of |theta|, (R, D)
    pushes: Floats  # of the hinges (n, R)
    e: float = 0.0
    _known: tuple[Floats, dict[float, float]] | None = None  # scores, and F_e of these for some e

    @staticmethod
    def at(problem: DenseProblem, theta: Floats, e: float) -> RoundedPoint:
        """At theta, with dual variables that know nothing."""
        scores = problem.Z @ theta.T
        pushes = np.zeros_like(scores) if problem.loss.hinge else scores[:, :0]
        return RoundedPoint(problem, theta, scores, np.zeros_like(theta), pushes, e)

    def begin(self, e: float) -> None:
        """Round over e, with the dual variables that the slopes here are."""
        self.e = e
        self.pulls = rounded(self.theta, self.widths(e), self.pulls).slope
        if self.problem.loss.hinge:
            self.pushes = rounded(self._gaps(self.scores), e, self.pushes).slope

    def narrow(self, e: float) -> None:
        """Round over less, and halve theta while F_e falls.

        A rounded hinge has a tail, e^2 / 4|g|, that carries rows which are right already ever farther out, to about
        e / sqrt(lasso); the way back is a straight line, on which the curvatures out there say nothing.
        """
        self.e = e
        value = self.here(e)
        while (less := self.value(self.theta / 2, self.scores / 2, e)) < value:
            self.theta, self.scores, value = self.theta / 2, self.scores / 2, less

    @property
    def kinked(self) -> bool:
        """Whether anything has to be rounded."""
        return bool(self.problem.lasso.any()) or self.problem.loss.hinge

    # ---------------------------------------------------------------- values

    def here(self, e: float) -> float:
        """F_e at this point; a pass over the rows the first time only."""
        if self._known is None or self._known[0] is not self.scores:
            self._known = (self.scores, {})
        values = self._known[1]
        if e not in values:
            values[e] = self.value(self.theta, self.scores, e)
        return values[e]

    def value(self, theta: Floats, scores: Floats, e: float) -> float:
        """F_e; e = 0 is the objective itself."""
        p = self.problem
        penalty = float((theta * theta).sum(axis=0) @ p.ridge) / 2
        if p.lasso.any():
            penalty += float(np.hypot(theta, self.widths(e)).sum(axis=0) @ p.lasso)
        if p.loss.hinge:
            g = self._gaps(scores)
            return penalty + float(p.weight @ np.sum((g + np.hypot(g, e)) / 2, axis=1, where=self._counted))
        return penalty + float(p.weight @ p.loss.value_gradient(scores, p.targets)[0])

    def cost_of_rounding(self) -> float:
        """The duality gap of the slopes: what rounding costs the kinks where they are."""
        p, cost = self.problem, 0.0
        if p.lasso.any():
            u = rounded(self.theta, self.widths(self.e), self.pulls).slope
            cost += float((np.abs(self.theta) - u * self.theta).sum(axis=0) @ p.lasso)
        if p.loss.hinge:
            g = self._gaps(self.scores)
            slope = (1 + rounded(g, self.e, self.pushes).slope) / 2
            cost += float(p.weight @ np.sum(np.maximum(g, 0) - slope * g, axis=1, where=self._counted))
        return cost

    def widths(self, e: float) -> Floats | float:
        """e of each weight: less where its penalty is huge, as in a column of tiny units."""
        return e / np.maximum(1.0, self.problem.lasso)

    # ---------------------------------------------------------------- steps

    def step(self) -> NewtonStep:
        """Newton's step from here."""
        p, look = self.problem, self.look()
        gradient = look.slope.T @ p.Z + self.theta * p.ridge
        diagonal = np.broadcast_to(p.ridge, self.theta.shape)
        if p.lasso.any():
            here = rounded(self.theta, self.widths(self.e), self.pulls)
            gradient += p.lasso * here.slope
            diagonal = diagonal + p.lasso * here.bend
        # L1 settles a shift of all scores' weights by itself; that of the biases is always free
        pinned = np.append(np.full(p.Z.shape[1] - 1, not p.lasso.any()), p.bias or not p.lasso.any())
        hessian = DenseHessian(p.loss, p.targets.codes, p.Z, p.weight, look.bend, diagonal, pinned)
        move = -hessian.solve(gradient)
        decrement = max(0.0, -float(np.sum(gradient * move)))
        turn = p.Z @ move.T
        return NewtonStep(move, turn, decrement, 2 * decrement)

    def go(self, step: NewtonStep) -> bool:
        """Along the step as far as F_e falls enough; whether it fell."""
        before, t = self.here(self.e), 1.0
        while t > _SHORTEST:
            theta, scores = self.theta + t * step.move, self.scores + t * step.turn
            after = self.value(theta, scores, self.e)
            if after <= before - _ENOUGH * t * step.decrement and after < before:
                self._follow(t, step)
                self.theta, self.scores = theta, self.problem.Z @ theta.T
                return True
            t /= 2
        return False

    def _follow(self, t: float, step: NewtonStep) -> None:
        if self.problem.lasso.any():
            self.pulls = followed(self.pulls, self.theta, t * step.move, self.widths(self.e))
        if self.problem.loss.hinge:
            here = self._gaps(self.scores)
            turned = self._gaps(self.scores + t * step.turn)
            self.pushes = followed(self.pushes, here, turned - here, self.e)

    # ---------------------------------------------------------------- losses

    def look(self) -> Look:
        """The loss here."""
        p, f, weight = self.problem, self.scores, self.problem.weight[:, None]
        if p.loss.hinge:
            return self._look_at_hinges()
        value, slope = p.loss.value_gradient(f, p.targets)
        bend = softmax(f) if p.loss.cross_entropy else p.loss.curvatures(f, p.targets)
        return Look(float(p.weight @ value), slope * weight, bend * weight)

    def _look_at_hinges(self) -> Look:
        p, g = self.problem, self._gaps(self.scores)
        here = rounded(g, self.e, self.pushes)
        counted = self._counted * p.weight[:, None]
        value = float(np.sum((g + here.root) / 2 * counted))
        slope, bend = (1 + here.slope) / 2 * counted, here.bend / 2 * counted
        if p.loss.joint:
            slope[np.arange(len(g)), p.targets.codes] = -slope.sum(axis=1)
            return Look(value, slope, bend)
        return Look(value, np.where(self._own, -slope, slope), bend)

    def _gaps(self, scores: Floats) -> Floats:
        """By how much each hinge's margin is missed, (n, R)."""
        return gaps(self.problem.loss, scores, self.problem.targets.codes)

    @property
    def _own(self) -> NDArray[np.bool_]:
        """Scores (n, R) of the rows' own classes."""
        return own_scores(self.problem.targets.codes, self.problem.n_scores)

    @property
    def _counted(self) -> NDArray[np.bool_]:
        """Which gaps are hinges: all, but for a row's own class in the joint form."""
        return ~self._own if self.problem.loss.joint else np.ones_like(self.scores, bool)
