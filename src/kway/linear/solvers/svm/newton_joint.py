"""Newton's method for the rounded joint hinge of a small problem: all R (d + 1) numbers of theta at once, in float64.

    F(theta) = ridge / 2 ||W||^2 + mean_i weight_i sum_{c != y} phi(gap_ic),   gap_ic = 1 - f_iy + f_ic

phi, the rounded hinge (losses/hinge.py), bends by 1 / width within the kink and not at all elsewhere, so the Hessian
is a sum over the few pairs (i, c) within it: z_i z_i' in the blocks (c, c) and (y, y), -z_i z_i' in (c, y) and (y, c),
with z = [x 1]. Where classes are nearly separable the minimum lies in a narrow valley: steps from gradients alone crawl
along it for thousands of iterations, Newton's takes tens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from kway.compute.threads import single_blas
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.svm.interior_point import Floats

MOST_NUMBERS, MOST_ROWS = 150, 20_000  # numbers in theta and rows up to which steps are cheap and few
HAIR = 1e-9
EXACT = 1e-12  # decrease, relative, that is not worth a step
SLOPE_LEFT = 0.1  # share of the slope at the start of a step that may be left at its end


def joint_newton_pays(objective: Objective) -> bool:
    """Whether a joint hinge is small enough for full Hessians."""
    small = (
        objective.n_scores * (objective.d + 1) <= MOST_NUMBERS
        and objective.n <= MOST_ROWS
        and not sp.issparse(objective.X)
    )
    return small and objective.loss.hinge and objective.loss.joint and objective.penalty.ridge > 0


@dataclass
class Valley:
    """The objective over scores that move with theta: Z (n, D) rows with a one, weight (n,) of sum 1."""

    objective: Objective
    Z: Floats
    weight: Floats
    theta: Floats  # (R, D)
    scores: Floats  # (n, R)

    @staticmethod
    def at(objective: Objective, theta: NDArray) -> Valley:
        """At a theta (R, d + 1)."""
        one = np.full((objective.n, 1), float(objective.fit_intercept))
        Z = np.hstack([objective.X.astype(np.float64), one])
        weight = np.ones(objective.n) if objective.weight is None else objective.weight.astype(np.float64)
        exact = theta.astype(np.float64)
        return Valley(objective, Z, weight / objective.n, exact, Z @ exact.T)

    def look(self, scores: Floats) -> tuple[float, Floats]:
        """Weighted loss at some scores, and its slopes (n, R)."""
        value, slope = self.objective.loss.value_gradient(scores, self.objective.targets)
        return float(value @ self.weight), slope * self.weight[:, None]

    def gradient(self) -> tuple[float, Floats]:
        """F and its gradient (R, D)."""
        ridge, W = self.objective.penalty.ridge, self.theta[:, :-1]
        value, slope = self.look(self.scores)
        gradient = slope.T @ self.Z
        gradient[:, :-1] += ridge * W
        return value + ridge / 2 * float(np.sum(W * W)), gradient

    def hessian(self) -> Floats:
        """(R D, R D), a hair above singular: a constant on all biases changes nothing."""
        Z, codes, (R, D) = self.Z, self.objective.targets.codes, self.theta.shape
        inside = self.objective.loss.curvatures(self.scores, self.objective.targets) * self.weight[:, None]  # (n, R)
        H = np.zeros((R, D, R, D))
        for a in range(R):
            H[a, :, a] = _gram(Z, inside[:, a])
            for b in range(R):
                if a != b:
                    pairs = _gram(Z, np.where(codes == a, inside[:, b], 0.0))
                    H[a, :, b] -= pairs
                    H[b, :, a] -= pairs
        square = H.reshape(R * D, R * D)
        square[np.arange(R * D), np.arange(R * D)] += np.tile([*[self.objective.penalty.ridge] * (D - 1), HAIR], R)
        return square

    def move(self, step: Floats) -> None:
        """Along the step (R, D) to where the slope has nearly gone: secants in a bracket, as F is convex."""
        turn, ridge = self.Z @ step.T, self.objective.penalty.ridge
        tilt, bend = float(np.sum(self.theta[:, :-1] * step[:, :-1])), float(np.sum(step[:, :-1] ** 2))

        def slope(t: float) -> float:
            return ridge * (tilt + t * bend) + float(np.sum(self.look(self.scores + t * turn)[1] * turn))

        t = _root(slope)
        self.theta = self.theta + t * step
        self.scores = self.Z @ self.theta.T


def solve_joint_newton(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """From theta to the minimum, as exact as float64 allows, or max_iter steps."""
    with single_blas():
        return _descend(Valley.at(objective, theta), theta.dtype, control)


def _descend(valley: Valley, dtype: np.dtype, control: Control) -> Solution:
    history: list[float] = []
    while True:
        value, gradient = valley.gradient()
        step = -cho_solve(cho_factor(valley.hessian(), check_finite=False), gradient.ravel()).reshape(gradient.shape)
        promised = -float(np.sum(gradient * step)) / 2
        stuck = len(history) > 0 and value >= history[-1] * (1 - 1e-15)
        history.append(value)
        miss = promised / max(value, 1e-300)
        done = miss <= EXACT or stuck or len(history) > control.max_iter
        done = done or (control.progress is not None and control.progress(len(history), value))
        if done or (control.validate is not None and control.validate(valley.theta.astype(dtype))):
            return Solution(valley.theta.astype(dtype), len(history), miss <= control.tol, miss, history)
        valley.move(step)


def _gram(Z: Floats, weight: Floats) -> Floats:
    """sum_i weight_i z_i z_i' over the rows that have any."""
    rows = np.flatnonzero(weight)
    part = Z[rows] * np.sqrt(weight[rows])[:, None]
    return part.T @ part


def _root(slope: Callable[[float], float]) -> float:
    """t at which a rising slope, negative at 0, has nearly gone; 0 where it is not negative there.

    Secants within a bracket, the value of the older end halved while it stays (Illinois).
    """
    low, at_low, high = 0.0, slope(0.0), 1.0
    if at_low >= 0:
        return 0.0
    enough, found = -SLOPE_LEFT * at_low, slope(1.0)
    while found < -enough and high < 64:
        low, at_low, high = high, found, 2 * high
        found = slope(high)
    t, at_high = high, found
    for _ in range(60):
        if abs(found) <= enough or at_high <= 0:
            return t
        t = low + (high - low) * at_low / (at_low - at_high)
        found = slope(t)
        if found > 0:
            high, at_high, at_low = t, found, at_low / 2
        else:
            low, at_low, at_high = t, found, at_high / 2
    return low
