"""Small problems with kinks (hinges, an L1 penalty): a primal-dual interior point method.

    F(theta) = sum_j ridge_j / 2 theta_j^2 + lasso_j |theta_j| + sum_i weight_i sum_c max(0, g_ic),   f = Z theta'

n rows, D columns including the bias, R scores per row, theta (R, D), gaps g to the margin (n, 1), or (n, R - 1) if all
classes are in one problem.

Every kink is a maximum over a box: top max(0, g) = max of a g over 0 <= a <= top, and |t| = 2 max(0, t) - t. The a are
the dual variables. With the slacks below = max(0, -g) and above = max(0, g), the optimum has complementarity:
a below = 0 and (top - a) above = 0. The method replaces these zeros by mu > 0, solves the equations by Newton's method
and reduces mu (Mehrotra 1992; Nocedal and Wright, Numerical Optimization, 16.6).

The method usually takes 8 to 30 steps for any penalty and any units of the columns, whereas coordinate ascent and
L-BFGS need more steps if the problem is badly conditioned. A step takes n D^2 multiplications per class, or
2 n R D^2 + (R D)^3 / 3 for a joint problem, so that the method suits small problems.

The duality gap bounds the excess over the optimum (`KinkedProblem.lower_bound`, which makes one assumption). `LassoRun`
is the same method for smooth losses with an L1 part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from kway.linear.equivalent import standard_columns
from kway.linear.losses import LOSSES
from kway.linear.objective import Objective
from kway.linear.solvers.base import ARMIJO, MAX_WORK, MIN_STEP, Control, Point, Solution
from kway.linear.solvers.dense_hessian import DenseHessian, inverse
from kway.linear.solvers.stopping import MIN_SCALE_SHARE, duality_gap, tol_scale
from kway.memory import BLOCK_BYTES
from kway.rows.matrices import rooted_rows
from kway.rows.passes import ON_GPU
from kway.threads import pmap, single_blas

Floats = NDArray[np.float64]
Solve = Callable[[Floats], Floats]

# Sample weights sum to 1, so a sum over n rows has a rounding error of about sqrt(n) eps, below 1e-9 for every problem
# this method accepts. A gradient residual below _ROUNDING is treated as zero. So is a total complementarity below
# _ROUNDING times the allowed gap.
_ROUNDING = 1e-9
_MAX_STEPS = 150  # the problems of tests/attack take 8 to 30 steps, or 80 with many classes; more end in rounding
_MU_FACTOR = 0.1  # factor of mu after a long step of a smooth loss (decided by tests/attack/test_optimum.py)
_BOUNDARY_SHARE = 0.995  # share of the largest step to the boundary of the boxes (Nocedal and Wright, 16.6)
ROUNDED = "the coefficients lose too many digits in float32; subtract large offsets from the columns, or pass float64"


# ---------------------------------------------------------------- kinks


class KinkStep(NamedTuple):
    """The change of the dual variables and of the two slacks."""

    a: Floats
    below: Floats
    above: Floats


@dataclass
class Kinks:
    """Dual variables a in boxes [0, top], and the slacks `below` and `above`, all of one shape.

    The targets of the products a below and (top - a) above are mu size.
    """

    top: Floats
    a: Floats
    upper_slack: Floats  # top - a
    below: Floats
    above: Floats
    size: Floats

    @staticmethod
    def at(top: Floats, gap: Floats, unit: Floats | float = 1.0) -> Kinks:
        """Return dual variables in the middle of their boxes, and slacks of at least `unit`."""
        return Kinks(top, top / 2, top / 2, np.maximum(-gap, 0) + unit, np.maximum(gap, 0) + unit, top * unit)

    @property
    def curvature(self) -> Floats:
        """Return the derivatives of the dual variables with respect to the gaps."""
        return 1 / (self.above / self.upper_slack + self.below / self.a)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Return whether each dual variable is relatively farther from the boundary of its box than the gap is from 0.

        The distance to the boundary is relative to `top`, the gap to the sum of all sizes.
        """
        distance = self.top * np.maximum(self.above, self.below) / self.size.sum()
        return np.minimum(self.a, self.upper_slack) / self.top > distance

    def complementarity(self, step: KinkStep | None = None, t: float = 0.0) -> float:
        """Return the sum of all products of dual variables and slacks after t times a step."""
        da, ds, dx = (0.0, 0.0, 0.0) if step is None else step
        upper = (self.upper_slack - t * da) * (self.above + t * dx)
        return float(((self.a + t * da) * (self.below + t * ds)).sum() + upper.sum())

    def targets(self, mu: float, step: KinkStep | None) -> tuple[Floats, Floats]:
        """Return the targets of a below and upper_slack above, corrected for the predicted step (Mehrotra)."""
        target = mu * self.size
        if step is None:
            return target, target
        return target - step.a * step.below, target + step.a * step.above

    def gap_residual(self, gap: Floats, low: Floats, high: Floats) -> Floats:
        """Return the change of the gap that the targets require before theta changes."""
        return gap - high / self.upper_slack + low / self.a

    def step(self, change: Floats, low: Floats, high: Floats) -> KinkStep:
        """Return the step for a `change` of the dual variables, with the changes of the slacks that belong to it."""
        below = low / self.a - self.below - self.below / self.a * change
        above = high / self.upper_slack - self.above + self.above / self.upper_slack * change
        return KinkStep(change, below, above)

    def max_step(self, step: KinkStep) -> float:
        """Return the largest multiple of a step that leaves no box and keeps the slacks positive."""
        pairs = ((self.a, step.a), (self.upper_slack, -step.a), (self.below, step.below), (self.above, step.above))
        return min(float((-x[dx < 0] / dx[dx < 0]).min(initial=np.inf)) for x, dx in pairs)

    def move(self, step: KinkStep, t: float) -> None:
        """Replace the arrays by those after t times a step.

        The arrays themselves must not change, because the line search moves a shallow copy that shares them.
        """
        self.a, self.upper_slack = self.a + t * step.a, self.upper_slack - t * step.a
        self.below, self.above = self.below + t * step.below, self.above + t * step.above


# ---------------------------------------------------------------- problems


@dataclass(frozen=True)
class KinkedProblem:
    """Rows Z (n, D) in standard columns with one score per row (`signs`), or one problem of R classes (`codes`)."""

    Z: Floats
    margin: float
    top: Floats  # (n,) upper limits of the boxes: sample weights with sum 1
    ridge: Floats  # (D,)
    lasso: Floats  # (D,)
    bias: bool
    n_scores: int
    codes: NDArray[np.int64]
    signs: Floats | None  # (n, 1) if there is one score

    @property
    def others(self) -> NDArray[np.int64]:
        """Return the classes other than that of each row, (n, R - 1)."""
        R = self.n_scores
        return (self.codes[:, None] + np.arange(1, R)) % R

    def gaps(self, scores: Floats) -> Floats:
        """Return the gap of each hinge to the margin, (n, 1) or (n, R - 1)."""
        return self.margin + self.gap_changes(scores)

    def gap_changes(self, scores: Floats) -> Floats:
        """Return the change of the gaps for a change of the scores (n, R)."""
        if self.signs is not None:
            return -self.signs * scores
        own_class = np.take_along_axis(scores, self.codes[:, None], 1)
        return np.take_along_axis(scores, self.others, 1) - own_class

    def slopes(self, a: Floats) -> Floats:
        """Return the derivatives (n, R) of the losses with respect to the scores; `a` has the shape of the gaps."""
        if self.signs is not None:
            return -self.signs * a
        slopes = np.zeros((len(a), self.n_scores))
        np.put_along_axis(slopes, self.others, a, 1)
        np.put_along_axis(slopes, self.codes[:, None], -a.sum(axis=1, keepdims=True), 1)
        return slopes

    def value(self, theta: Floats, gaps: Floats) -> float:
        """Return F(theta)."""
        penalty = float((theta * theta).sum(axis=0) @ self.ridge) / 2 + float(np.abs(theta).sum(axis=0) @ self.lasso)
        return penalty + float(self.top @ np.maximum(gaps, 0).sum(axis=1))

    def lower_bound(self, a: Floats, l1_slopes: Floats, theta: Floats, value: float) -> float:
        """Return the dual value of a, a lower bound of the optimum.

        With P = diag(ridge) and v = slopes(a)' Z, it is sum a margin + min over w of w'Pw / 2 + v'w + lasso |w|. The
        minimum is -max(|v| - lasso, 0)^2 / (2 ridge) for each weight, which loses its digits if the ridge is tiny.

        For any u with |u| <= lasso (`l1_slopes`) and the residual rho = P theta + v + u, the minimum is also at least
        -(theta'P theta) / 2 - |rho| |w|, because lasso |w| >= u'w and w'Pw / 2 >= theta'P w - theta'P theta / 2.
        After a full Newton step, rho is pure rounding error, and this bound does not suffer from cancellation. It is
        used only then. At the optimum, |w| <= F / lasso. Besides, |w| is assumed to be at most 10 (|theta| + margin),
        which is not proved. If |w| is larger, the bound is wrong by about 1e-9 per unit of |w|.
        """
        v = self.slopes(a).T @ self.Z
        rho = np.abs(self.ridge * theta + v + l1_slopes)
        shrunk = np.maximum(np.abs(v) - self.lasso, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.where(shrunk > 0, shrunk**2 / (2 * self.ridge), 0.0)
            max_weight = np.minimum(10 * (self.margin + np.abs(theta)), value / self.lasso)
        by_residual = self.ridge * theta**2 / 2 + rho * max_weight
        is_rounding = rho <= _ROUNDING * (1 + self.lasso + float(a.sum()))
        minima = np.where(is_rounding, np.minimum(exact, by_residual), exact)
        return self.margin * float(a.sum()) - float(minima.sum())

    def factor(self, curvature: Floats, diagonal: Floats) -> Solve:
        """Return the function x -> H^-1 x for x (R, D).

        H is the Hessian for the curvatures of the hinges, in the shape of the gaps, plus diag(diagonal). In a joint
        problem, H = sum_i B_i (x) z_i z_i' + diag(diagonal), with the curvatures h_ic of row i for c != y_i:

            B_i = diag(t_i) - h_i e_y' - e_y h_i',   t_ic = h_ic, but t_iy = sum_c h_ic
        """
        if self.signs is not None:
            solve = inverse(_gram(self.Z, curvature[:, 0]) + np.diag(diagonal[0]))
            return lambda x: solve(x.ravel()).reshape(x.shape)
        h = np.zeros((len(curvature), self.n_scores))
        np.put_along_axis(h, self.others, curvature, 1)
        t = h.copy()
        np.put_along_axis(t, self.codes[:, None], h.sum(axis=1, keepdims=True), 1)
        work = joint_work(len(h), *diagonal.shape)
        factor = self._factor_by_rows if work.by_rows < work.dense else self._factor_dense
        return factor(h, t, diagonal)

    def _factor_dense(self, h: Floats, t: Floats, diagonal: Floats) -> Solve:
        """Return x -> H^-1 x by the matrix H (R D, R D); the shift common to all biases, and weights, is fixed."""
        pinned = np.full(diagonal.shape[1], not self.lasso.any())  # an L1 penalty determines the shift of the weights
        pinned[-1] |= self.bias
        return DenseHessian(LOSSES["hinge"].joint, self.codes, self.Z, self.top, h, diagonal, pinned).factor_coupled()

    def _factor_by_rows(self, h: Floats, t: Floats, diagonal: Floats) -> Solve:
        """Return x -> H^-1 x by the Woodbury formula: a matrix (D, D) per class, and two vectors per row.

        The vectors are h_i z_i' and e_y z_i'. One more vector fixes the shift common to all biases.
        """
        Z, (n, D), codes = self.Z, self.Z.shape, self.codes
        own_class = np.eye(self.n_scores)[codes]
        pin = np.append(np.zeros(D - 1), 1.0)[:, None] * self.bias  # (D, 1)
        blocks = pmap(lambda c: inverse(_gram(Z, t[:, c]) + np.diag(diagonal[c])), range(self.n_scores))

        def vectors(c: int) -> Floats:
            """Return the part (D, 2 n + 1) of all vectors that belongs to class c."""
            return np.hstack([Z.T * h[:, c], Z.T * own_class[:, c], pin])

        small = sum(pmap(lambda c: vectors(c).T @ blocks[c](vectors(c)), range(self.n_scores)))
        size = t.sum() / self.n_scores**2 or 1.0
        coupling = np.zeros((2 * n + 1, 2 * n + 1))  # inverse of the coefficients of the vectors in H
        i = np.arange(n)
        coupling[i, i + n] = coupling[i + n, i] = -1.0
        coupling[-1, -1] = 1 / size
        lu = la.lu_factor(small + coupling, check_finite=False)

        def solve_once(x: Floats) -> Floats:
            first = np.array([block(row) for block, row in zip(blocks, x)])
            weights = la.lu_solve(lu, sum(vectors(c).T @ first[c] for c in range(self.n_scores)), check_finite=False)
            return first - np.array([block(vectors(c) @ weights) for c, block in enumerate(blocks)])

        def solve(x: Floats) -> Floats:
            solution = solve_once(x)
            scores = Z @ solution.T  # (n, R)
            coupled = t * scores - h * scores[i, codes][:, None] - own_class * (h * scores).sum(axis=1, keepdims=True)
            product = coupled.T @ Z + diagonal * solution  # H times the solution
            product[:, -1] += size * self.bias * solution[:, -1].sum()
            return solution + solve_once(x - product)  # one step of iterative refinement

        return solve


class JointWork(NamedTuple):
    """Multiplications of a step of a joint problem, with the dense Hessian and by the Woodbury formula."""

    dense: float
    by_rows: float


def joint_work(n: int, R: int, D: int) -> JointWork:
    """Return the multiplications of a step of a joint problem with n rows, R scores and D columns."""
    dense = 2.0 * n * R * D * D + (R * D) ** 3 / 3
    return JointWork(dense, R * (6.0 * n * D * D + 4.0 * n * n * D + D**3 / 3) + (2.0 * n) ** 3)


def _gram(Z: Floats, weight: Floats) -> Floats:
    root = Z * np.sqrt(weight)[:, None]
    return root.T @ root


# ---------------------------------------------------------------- the method


class Minimum(NamedTuple):
    """The best theta (R, D), its value, a lower bound of the optimum, the steps, and zeros."""

    theta: Floats
    value: float
    lower: float
    steps: int
    zero: NDArray[np.bool_]  # (R, D) weights whose dual variables of |w| are inside their boxes, so that w = 0


@dataclass
class Run:
    """One minimization."""

    problem: KinkedProblem
    theta: Floats
    hinges: Kinks
    lassos: Kinks | None
    lower: float = -np.inf

    @staticmethod
    def on(problem: KinkedProblem) -> Run:
        """Return a run that starts at theta = 0."""
        R, D = problem.n_scores, problem.Z.shape[1]
        theta, n_gaps = np.zeros((R, D)), 1 if problem.signs is not None else R - 1
        top = np.repeat(problem.top[:, None], n_gaps, axis=1)
        hinges = Kinks.at(top, np.full_like(top, problem.margin))
        strength = np.broadcast_to(problem.lasso[: D - problem.bias], (R, D - problem.bias))
        lassos = Kinks.at(2 * strength, np.zeros_like(strength), 1 / np.maximum(1.0, strength))
        return Run(problem, theta, hinges, lassos if strength.any() else None)

    def go(self, tol: float, max_steps: int) -> Minimum:
        """Take steps until the duality gap is at most tol of the value, or `max_steps` steps."""
        p, min_scale, best, best_value = self.problem, 0.0, self.theta, np.inf
        for steps in range(max_steps + 1):
            scores = p.Z @ self.theta.T
            gaps = p.gaps(scores)
            value = p.value(self.theta, gaps)
            min_scale = min_scale or MIN_SCALE_SHARE * value
            if value <= best_value:
                best_value, best = value, self.theta
            self.lower = max(self.lower, p.lower_bound(self.hinges.a, self._l1_slopes(), self.theta, best_value))
            limit = tol * tol_scale(best_value, min_scale)
            done = best_value - self.lower <= limit or self._complementarity() <= _ROUNDING * limit
            if done or steps == max_steps or not self._advance(gaps):
                break
        return Minimum(best, best_value, self.lower, steps, self._zero())

    def _advance(self, gaps: Floats) -> bool:
        """Take a predictor and a corrector step; return False if rounding leaves no step."""
        parts = [self.hinges] if self.lassos is None else [self.hinges, self.lassos]
        diagonal = self.problem.ridge + np.zeros_like(self.theta)
        if self.lassos is not None:
            diagonal[:, : self.n_weights] += self.lassos.curvature
        solve = self.problem.factor(self.hinges.curvature, diagonal)
        complementarity = self._complementarity()
        mu = complementarity / sum(2 * float(part.size.sum()) for part in parts)
        _, steps = self._direction(solve, gaps, 0.0, None)
        t = min(1.0, *(part.max_step(step) for part, step in zip(parts, steps)))
        predicted_complementarity = sum(part.complementarity(step, t) for part, step in zip(parts, steps))
        mu *= min(1.0, max(predicted_complementarity / complementarity, 1e-8)) ** 3
        move, steps = self._direction(solve, gaps, mu, steps)
        t = min(1.0, _BOUNDARY_SHARE * min(part.max_step(step) for part, step in zip(parts, steps)))
        if not (np.isfinite(move).all() and t > 1e-12):
            return False
        self.theta = self.theta + t * move
        for part, step in zip(parts, steps):
            part.move(step, t)
        return True

    def _direction(
        self, solve: Solve, gaps: Floats, mu: float, predicted: list[KinkStep] | None
    ) -> tuple[Floats, list[KinkStep]]:
        """Return the Newton step of theta and of the kinks towards products of mu."""
        p, hinges, lassos = self.problem, self.hinges, self.lassos
        low, high = hinges.targets(mu, predicted[0] if predicted else None)
        curvature, residual = hinges.curvature, hinges.gap_residual(gaps, low, high)
        gradient = p.ridge * self.theta + p.slopes(hinges.a + curvature * residual).T @ p.Z
        if lassos is None:
            move = -solve(gradient)
            return move, [hinges.step(curvature * (residual + p.gap_changes(p.Z @ move.T)), low, high)]
        lasso_low, lasso_high = lassos.targets(mu, predicted[1] if predicted else None)
        lasso_residual = lassos.gap_residual(self.theta[:, : self.n_weights], lasso_low, lasso_high)
        gradient += self._l1_slopes()
        gradient[:, : self.n_weights] += lassos.curvature * lasso_residual
        move = -solve(gradient)
        steps = [hinges.step(curvature * (residual + p.gap_changes(p.Z @ move.T)), low, high)]
        lasso_change = lassos.curvature * (lasso_residual + move[:, : self.n_weights])
        return move, [*steps, lassos.step(lasso_change, lasso_low, lasso_high)]

    def _complementarity(self) -> float:
        """Return the sum of all products, which is the duality gap after a full Newton step, up to rounding."""
        return self.hinges.complementarity() + (0.0 if self.lassos is None else self.lassos.complementarity())

    def _zero(self) -> NDArray[np.bool_]:
        zero = np.zeros(self.theta.shape, bool)
        if self.lassos is not None:
            zero[:, : self.n_weights] = self.lassos.inside
        return zero

    @property
    def n_weights(self) -> int:
        """Return the number of columns without the bias."""
        return self.theta.shape[1] - self.problem.bias

    def _l1_slopes(self) -> Floats:
        """Return the slopes (R, D) of the L1 penalty that its dual variables represent."""
        slopes = np.zeros_like(self.theta)
        if self.lassos is not None:
            slopes[:, : self.n_weights] = self.lassos.a - self.lassos.top / 2
        return slopes


# ---------------------------------------------------------------- objectives


def is_small_with_kinks(objective: Objective, max_work: float = MAX_WORK) -> bool:
    """Return whether this method can solve the problem, with at most `max_work` multiplications per step."""
    o, loss, D, R = objective, objective.loss, objective.d + 1, objective.n_scores
    suitable = loss.has_margin and not loss.rounded and o.penalty.ridge + o.penalty.lasso > 0
    if not suitable or not (o.in_memory or ON_GPU in o.rows.offers):
        return False
    if loss.joint:
        ways = joint_work(o.n, R, D)
        work = min(ways)
        numbers = max(4.0 * o.n * o.n, R * D * D) if ways.by_rows < ways.dense else float(R * D) ** 2
    else:
        work, numbers = R * (float(o.n) * D * D + D**3 / 3), float(D) * D
    if 8 * max(float(o.n) * D, numbers) > 2 * BLOCK_BYTES:
        return False
    return work <= max_work


def solve_small(objective: Objective, control: Control) -> Solution:
    """Minimize hinges to within tol. `control.validate` is not called."""
    o = objective
    counted = np.arange(o.n) if o.weight is None else np.flatnonzero(o.weight > 0)
    frame = standard_columns(o if len(counted) == o.n else o.take(counted))
    standard = frame.objective
    weight = np.full(standard.n, 1 / standard.n) if standard.weight is None else standard.weight / standard.n
    Z = rooted_rows(standard.X, None, np.dtype(np.float64), o.fit_intercept)
    ridge = standard.penalty.ridges(o.d, bias=o.fit_intercept)
    lasso = standard.penalty.lassos(o.d, bias=o.fit_intercept)
    codes, R = standard.targets.codes, o.n_scores
    problem = KinkedProblem(
        Z, o.loss.margin, weight, ridge, lasso, o.fit_intercept, R if o.loss.joint else 1, codes, None
    )
    parts = [problem] if o.loss.joint else [replace(problem, signs=signs) for signs in _signs(codes, R)]
    with single_blas():
        minima = pmap(lambda part: Run.on(part).go(control.tol / 4, min(control.max_iter, _MAX_STEPS)), parts)
    lower, steps = sum(m.lower for m in minima), max(m.steps for m in minima)
    theta = frame.back(_padded(np.vstack([m.theta for m in minima]), o.d))
    if o.penalty.lasso:
        with_zeros = frame.back(_padded(np.vstack([np.where(m.zero, 0.0, m.theta) for m in minima]), o.d))
        value = o.value(with_zeros.astype(np.float64))
        theta = with_zeros if value - lower <= control.tol / 2 * tol_scale(value) else theta
    return _finished(objective, theta, sum(m.value for m in minima), lower, steps, control)


def _padded(theta: Floats, d: int) -> Floats:
    """Return theta (R, D) as (R, d + 1), with biases of zero if it has none."""
    return theta if theta.shape[1] == d + 1 else np.column_stack([theta, np.zeros(len(theta))])


# ---------------------------------------------------------------- smooth losses with an L1 part


def solve_lasso(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """Minimize a smooth loss with an L1 part to within tol, starting from theta; columns should be standardized."""
    with single_blas():
        return LassoRun.on(objective, theta, control).go()


@dataclass
class LassoRun:
    """One minimization of f(theta) + sum_j lasso_j |w_j| with a smooth f instead of hinges.

    A step is the Newton step towards products of mu. It is shortened until the barrier function falls enough (Armijo):

        f(theta) + sum_j lasso_j (above_j + below_j) - mu size_j log(above_j below_j),   above - below = w
    """

    objective: Objective
    control: Control
    point: Point
    kinks: Kinks
    history: list[float] = field(default_factory=list)
    decrement: float = 0.0  # slope of the barrier function that the last step has not removed
    stopped: bool = False  # by a callback

    @staticmethod
    def on(objective: Objective, theta: NDArray, control: Control) -> LassoRun:
        """Return a run that starts at theta."""
        W = theta[:, :-1].astype(np.float64)
        strength = np.broadcast_to(objective.penalty.lassos(objective.d), W.shape)
        point = Point.at(objective, theta.astype(np.float64))
        unit = point.total / (2 * strength * W.size)  # all products together are as large as the objective
        return LassoRun(objective, control, point, Kinks.at(2 * strength, W, np.maximum(unit, MIN_STEP)))

    def go(self) -> Solution:
        """Take steps until the excess over the optimum is below tol."""
        lower, max_steps = -np.inf, min(self.control.max_iter, _MAX_STEPS)
        min_scale = max(self.control.min_scale, MIN_SCALE_SHARE * self.objective.value(self.objective.zeros()))
        for steps in range(max_steps + 1):
            allowed = self.control.tol / 4 * tol_scale(self.point.total, min_scale)
            end = self._with_zeros(allowed)
            if self.kinks.complementarity() <= allowed or steps in (0, max_steps):
                lower = max(lower, self._lower_bound(end))
            if end.total - lower <= allowed or self.stopped or steps == max_steps or not self._advance():
                break
        excess = max(0.0, end.total - max(lower, 0.0))  # no objective is negative
        rel_excess = excess / tol_scale(end.total, min_scale)
        converged = self.stopped or rel_excess <= self.control.tol
        advice = "" if converged else _advice(steps, self.control)
        history = [*self.history, end.total]
        return Solution(end.theta, max(1, steps), converged, rel_excess, history, advice, proved=True, value=end.total)

    def _with_zeros(self, allowed: float) -> Point:
        """Return the point with exact zeros; the point itself if they raise the objective by more than `allowed`."""
        theta = self.point.theta.copy()
        theta[:, :-1][self.kinks.inside] = 0
        new = Point.at(self.objective, theta)
        return new if new.total <= self.point.total + allowed else self.point

    def _lower_bound(self, end: Point) -> float:
        """Return a lower bound of the optimum, from the duality gap."""
        return max(point.total - duality_gap(self.objective, point) for point in (self.point, end))

    def _advance(self) -> bool:
        """Take a step; return False if rounding leaves no step."""
        kinks, point = self.kinks, self.point
        complementarity = kinks.complementarity()
        factor = _MU_FACTOR if self.decrement <= complementarity else 1.0
        mu = factor * complementarity / (2 * float(kinks.size.sum()))
        move, step = self._direction(mu)
        t = min(1.0, _BOUNDARY_SHARE * kinks.max_step(step))
        if not np.isfinite(move).all():
            return False
        before, slope = self._barrier(point, kinks, mu), self._slope(move, step, mu)
        slack = 8 * np.finfo(np.float64).eps * abs(before)
        while t > MIN_STEP:
            new, moved = Point.at(self.objective, point.theta + t * move), replace(kinks)
            moved.move(step, t)
            if self._barrier(new, moved, mu) <= before + ARMIJO * t * slope + slack:
                self.point, self.kinks, self.decrement = new, moved, -(1 - t) * slope / t
                self._report()
                return True
            t /= 2
        return False

    def _direction(self, mu: float) -> tuple[Floats, KinkStep]:
        """Return the Newton step of theta and of the kinks towards products of mu."""
        o, kinks, W = self.objective, self.kinks, self.point.theta[:, :-1]
        low, high = kinks.targets(mu, None)
        curvature, residual = kinks.curvature, kinks.gap_residual(W, low, high)
        hessian = DenseHessian.at(o, self.point.theta)
        diagonal, pinned = np.array(hessian.diagonal), hessian.pinned.copy()
        diagonal[:, : o.d] += curvature
        pinned[: o.d] = False  # the L1 part determines the shift common to the weights of all scores
        gradient = self.point.gradient.copy()
        gradient[:, :-1] += kinks.a - kinks.top / 2 + curvature * residual
        move = np.zeros_like(gradient)
        D = len(pinned)
        move[:, :D] = -replace(hessian, diagonal=diagonal, pinned=pinned).solve(gradient[:, :D])
        return move, kinks.step(curvature * (residual + move[:, :-1]), low, high)

    def _barrier(self, point: Point, kinks: Kinks, mu: float) -> float:
        logs = np.log(kinks.above) + np.log(kinks.below)
        return point.value + float(np.sum(kinks.top / 2 * (kinks.above + kinks.below) - mu * kinks.size * logs))

    def _slope(self, move: Floats, step: KinkStep, mu: float) -> float:
        """Return the slope of the barrier function along a step."""
        kinks, lasso, target = self.kinks, self.kinks.top / 2, mu * self.kinks.size
        along = (lasso - target / kinks.above) * step.above + (lasso - target / kinks.below) * step.below
        return float(np.vdot(self.point.gradient, move)) + float(along.sum())

    def _report(self) -> None:
        self.history.append(min([self.point.total, *self.history[-1:]]))
        self.stopped = self.control.should_stop(len(self.history), self.history[-1], self.point.theta)


def _signs(codes: NDArray[np.int64], n_scores: int) -> list[Floats]:
    """Return the signs (n, 1) of the labels for each column of scores; the one column of two classes is the second."""
    classes = [1] if n_scores == 1 else range(n_scores)
    return [np.where(codes == k, 1.0, -1.0)[:, None] for k in classes]


def _advice(steps: int, control: Control) -> str:
    """Return what the user can change; more than _MAX_STEPS steps are never taken, whatever max_iter is."""
    limited = steps >= control.max_iter and control.max_iter < _MAX_STEPS
    return "raise max_iter or tol, or scale the features" if limited else "raise tol, or scale the features"


def _finished(
    objective: Objective, theta: NDArray, value: float, lower: float, steps: int, control: Control
) -> Solution:
    """Return the solution; its excess includes the rounding of theta to the float type of the rows."""
    end = objective.value(theta.astype(np.float64))
    scale = tol_scale(value, max(control.min_scale, MIN_SCALE_SHARE * objective.value(objective.zeros())))
    rel_excess = max(0.0, end - lower) / scale
    if control.progress is not None:
        control.progress(max(1, steps), end)
    converged, excess_before_rounding = rel_excess <= control.tol, (value - lower) / scale
    advice = _advice(steps, control)
    if excess_before_rounding <= control.tol:
        advice = "" if converged else ROUNDED
    return Solution(theta, max(1, steps), converged, rel_excess, [end], advice, proved=True, value=end)
