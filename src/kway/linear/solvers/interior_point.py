"""Small problems with kinks (hinges, an L1 penalty): a primal-dual interior point method with a proof.

    F(theta) = sum_j ridge_j / 2 theta_j^2 + lasso_j |theta_j| + sum_i weight_i sum_c max(0, g_ic),   f = Z theta'

Every kink is a maximum over a box: top max(0, g) = max of a g over 0 <= a <= top, and |t| = 2 max(0, t) - t. With
slacks below = max(0, -g) and above = max(0, g) the optimum has a below = 0 and (top - a) above = 0. The method solves
these equations with mu in place of 0 by Newton's method and lets mu fall (Mehrotra 1992; Nocedal and Wright, Numerical
Optimization, 16.6). A hard margin has top = infinity.

It takes about 15 steps for any penalty and any units of the columns; coordinate ascent and L-BFGS need more steps if
the problem is badly conditioned. A step costs n D^2 products per class, or 2 n R D^2 + (R D)^3 / 3 for a joint
problem. So it serves small problems.

The proof is the duality gap (`KinkedProblem.lower_bound`). `LassoRun` does the same for smooth losses with an L1 part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.linear.solvers.base import ARMIJO, MOST_WORK, SHORTEST_STEP, Control, Point, Solution
from kway.linear.solvers.certificates import LEAST_FALL, duality_gap, tol_scale
from kway.linear.solvers.dense_hessian import DenseHessian, inverse
from kway.linear.solvers.standard_columns import standard_columns, standardize
from kway.memory import BLOCK_BYTES
from kway.rows.matrices import rooted_rows
from kway.rows.passes import FETCHED
from kway.threads import pmap, single_blas

Floats = NDArray[np.float64]
Solve = Callable[[Floats], Floats]

_ROUNDING = 1e-9  # of slopes that add up to 1, or of the allowed gap: less is rounding (the drawn problems)
_MOST_STEPS = 150  # most drawn problems take 8 to 30, some of many classes 80; more than that end in rounding
_NARROWER = 0.1  # factor of mu after a long step of a smooth loss (the drawn problems)
_SHY = 0.995  # share of the way to the nearest wall (Nocedal and Wright, 16.6)
ROUNDED = "the coefficients, rounded to float32, are that far off: take large offsets off the columns, or pass float64"


# ---------------------------------------------------------------- kinks


class KinkStep(NamedTuple):
    """The change of the dual variables and of the two slacks."""

    a: Floats
    below: Floats
    above: Floats


@dataclass
class Kinks:
    """Dual variables in boxes [0, top] and the slacks on both sides; mu size is the target of their products."""

    top: Floats
    a: Floats
    room: Floats  # top - a; infinite if there is no box
    below: Floats
    above: Floats
    size: Floats

    @staticmethod
    def at(top: Floats, gap: Floats, unit: Floats | float = 1.0) -> Kinks:
        """In the middle of the boxes, the slacks at least `unit`."""
        boxed = np.isfinite(top)
        a = np.where(boxed, top / 2, 1.0)
        below, above = np.maximum(-gap, 0) + unit, np.where(boxed, np.maximum(gap, 0) + unit, 0.0)
        return Kinks(top, a, top - a, below, above, np.where(boxed, top, 1.0) * unit)

    @property
    def curvature(self) -> Floats:
        """d a / d gap."""
        return 1 / (self.above / self.room + self.below / self.a)

    @property
    def inside(self) -> NDArray[np.bool_]:
        """Whether each dual variable is farther from the walls of its box than the gap is from 0."""
        farthest = self.top * np.maximum(self.above, self.below) / self.size.sum()
        return np.minimum(self.a, self.room) / self.top > farthest

    def energy(self, step: KinkStep | None = None, t: float = 0.0) -> float:
        """The sum of all products, t along a step."""
        da, ds, dx = (0.0, 0.0, 0.0) if step is None else step
        upper = np.where(self.above > 0, self.room - t * da, 0.0) * (self.above + t * dx)
        return float(((self.a + t * da) * (self.below + t * ds)).sum() + upper.sum())

    def targets(self, mu: float, step: KinkStep | None) -> tuple[Floats, Floats]:
        """Return the targets of the products a below and room above, corrected for the predicted step."""
        low = high = mu * self.size
        if step is not None:
            low, high = low - step.a * step.below, high + step.a * step.above
        return low, np.where(self.above > 0, high, 0.0)

    def pull(self, gap: Floats, low: Floats, high: Floats) -> Floats:
        """What the targets ask of the gap, before theta moves."""
        return gap - high / self.room + low / self.a

    def step(self, change: Floats, low: Floats, high: Floats) -> KinkStep:
        """The slacks' change that belongs to the dual variables' `change`."""
        below = low / self.a - self.below - self.below / self.a * change
        above = high / self.room - self.above + self.above / self.room * change
        return KinkStep(change, below, above)

    def reach(self, step: KinkStep) -> float:
        """The longest step that crosses no wall."""
        pairs = ((self.a, step.a), (self.room, -step.a), (self.below, step.below), (self.above, step.above))
        return min(float((-x[dx < 0] / dx[dx < 0]).min(initial=np.inf)) for x, dx in pairs)

    def move(self, step: KinkStep, t: float) -> None:
        """Go t along a step."""
        self.a, self.room = self.a + t * step.a, self.room - t * step.a
        self.below, self.above = self.below + t * step.below, self.above + t * step.above


# ---------------------------------------------------------------- problems


@dataclass(frozen=True)
class KinkedProblem:
    """Rows Z (n, D) in standard columns with one score per row (signs), or R that compete (codes)."""

    Z: Floats
    margin: float
    top: Floats  # (n,) the boxes: sample weights of sum 1, or infinite
    ridge: Floats  # (D,)
    lasso: Floats  # (D,)
    bias: bool
    n_scores: int
    codes: NDArray[np.int64]
    signs: Floats | None  # (n, 1) if there is one score

    @property
    def others(self) -> NDArray[np.int64]:
        """(n, R - 1): the classes that a row's own competes with."""
        R = self.n_scores
        return (self.codes[:, None] + np.arange(1, R)) % R

    def gaps(self, scores: Floats) -> Floats:
        """By how much each hinge's margin is missed, (n, 1) or (n, R - 1)."""
        return self.margin + self.turn(scores)

    def turn(self, scores: Floats) -> Floats:
        """The change of the gaps by a change of the scores (n, R)."""
        if self.signs is not None:
            return -self.signs * scores
        own = np.take_along_axis(scores, self.codes[:, None], 1)
        return np.take_along_axis(scores, self.others, 1) - own

    def slopes(self, a: Floats) -> Floats:
        """d loss / d score (n, R) of dual variables of the gaps' shape."""
        if self.signs is not None:
            return -self.signs * a
        slopes = np.zeros((len(a), self.n_scores))
        np.put_along_axis(slopes, self.others, a, 1)
        np.put_along_axis(slopes, self.codes[:, None], -a.sum(axis=1, keepdims=True), 1)
        return slopes

    def stretched_value(self, theta: Floats, gaps: Floats) -> float:
        """F of a hard margin at theta stretched until it reaches the margin on the closest row; inf if it cannot."""
        reach = float((self.margin - gaps).min())
        return float((theta * theta).sum(axis=0) @ self.ridge) / (2 * reach * reach) if reach > 0 else np.inf

    def value(self, theta: Floats, gaps: Floats) -> float:
        """F."""
        penalty = float((theta * theta).sum(axis=0) @ self.ridge) / 2 + float(np.abs(theta).sum(axis=0) @ self.lasso)
        return penalty + float(self.top @ np.maximum(gaps, 0).sum(axis=1))

    def lower_bound(self, a: Floats, pulls: Floats, theta: Floats, value: float) -> float:
        """The dual value of a: sum a margin + min over w of w'Pw / 2 + v'w + lasso |w|, v = slopes(a)' Z.

        With pulls u in the boxes of |w| and rho = P theta + v + u, the minimum is at least -(theta'P theta) / 2 -
        |rho| |w| as well, which keeps its digits if P is tiny. rho is rounding after a full step, and used only then.
        |w| is at most F / lasso at the optimum, and taken to be no more than ten times its size here or the margin's.
        """
        v = self.slopes(a).T @ self.Z
        rho = np.abs(self.ridge * theta + v + pulls)
        shrunk = np.maximum(np.abs(v) - self.lasso, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.where(shrunk > 0, shrunk**2 / (2 * self.ridge), 0.0)
            farthest = np.minimum(10 * (self.margin + np.abs(theta)), value / self.lasso)
        near = self.ridge * theta**2 / 2 + rho * farthest
        rounding = rho <= _ROUNDING * (1 + self.lasso + float(a.sum()))
        return self.margin * float(a.sum()) - float(np.where(rounding, np.minimum(exact, near), exact).sum())

    def factor(self, curvature: Floats, diagonal: Floats) -> Solve:
        """Return x -> H^-1 x, (R, D) each, for the curvatures of the hinges (shape of the gaps) and diagonal (R, D).

        Of a joint problem, H = sum_i B_i (x) z_i z_i' + diag(diagonal), with the curvatures h_ic of row i for c != y_i:

            B_i = diag(t_i) - h_i e_y' - e_y h_i',   t_ic = h_ic, but t_iy = sum_c h_ic
        """
        if self.signs is not None:
            return _shaped(_gram(self.Z, curvature[:, 0]) + np.diag(diagonal[0]))
        h = np.zeros((len(curvature), self.n_scores))
        np.put_along_axis(h, self.others, curvature, 1)
        t = h.copy()
        np.put_along_axis(t, self.codes[:, None], h.sum(axis=1, keepdims=True), 1)
        work = joint_work(len(h), *diagonal.shape)
        return self._factor_by_rows(h, t, diagonal) if work.by_rows < work.whole else self._factor_whole(h, t, diagonal)

    def _factor_whole(self, h: Floats, t: Floats, diagonal: Floats) -> Solve:
        """Return H^-1 by the whole matrix."""
        R, D = diagonal.shape
        H = np.zeros((R, D, R, D))
        for c in range(R):
            rows = self.codes == c
            z = self.Z[rows]
            H[c, :, c] += _gram(self.Z, t[:, c])
            cross = ((h[rows][:, :, None] * z[:, None, :]).reshape(len(z), R * D).T @ z).reshape(R, D, D)
            H[:, :, c] -= cross
            H[c] -= cross.transpose(2, 0, 1)
        whole = H.reshape(R * D, R * D)
        whole[np.diag_indices(R * D)] += diagonal.ravel()
        return _shaped(self._pinned(whole, R, D))

    def _factor_by_rows(self, h: Floats, t: Floats, diagonal: Floats) -> Solve:
        """Return H^-1 by the Woodbury formula: a matrix (D, D) per class, and two vectors per row.

        The vectors are h_i z_i' and e_y z_i'. One more vector pins the shift common to all biases.
        """
        Z, (n, D), codes = self.Z, self.Z.shape, self.codes
        own = np.eye(self.n_scores)[codes]
        pin = np.append(np.zeros(D - 1), 1.0)[:, None] * self.bias  # (D, 1)
        blocks = pmap(lambda c: inverse(_gram(Z, t[:, c]) + np.diag(diagonal[c])), range(self.n_scores))
        vectors = lambda c: np.hstack([Z.T * h[:, c], Z.T * own[:, c], pin])  # (D, 2 n + 1), the part of class c  # noqa: E731
        small = sum(pmap(lambda c: vectors(c).T @ blocks[c](vectors(c)), range(self.n_scores)))
        size = t.sum() / self.n_scores**2 or 1.0
        coupling = np.zeros((2 * n + 1, 2 * n + 1))  # the inverse of the vectors' coefficients in H
        at = np.arange(n)
        coupling[at, at + n] = coupling[at + n, at] = -1.0
        coupling[-1, -1] = 1 / size
        lu = la.lu_factor(small + coupling, check_finite=False)

        def once(x: Floats) -> Floats:
            first = np.array([block(row) for block, row in zip(blocks, x)])
            weights = la.lu_solve(lu, sum(vectors(c).T @ first[c] for c in range(self.n_scores)), check_finite=False)
            return first - np.array([block(vectors(c) @ weights) for c, block in enumerate(blocks)])

        def solve(x: Floats) -> Floats:
            found = once(x)
            scores = Z @ found.T  # (n, R)
            coupled = t * scores - h * scores[at, codes][:, None] - own * (h * scores).sum(axis=1, keepdims=True)
            product = coupled.T @ Z + diagonal * found
            product[:, -1] += size * self.bias * found[:, -1].sum()
            return found + once(x - product)  # once more for what rounding left

        return solve

    def _pinned(self, H: Floats, R: int, D: int) -> Floats:
        """H with a matrix of rank one per column added along the shift common to all classes, which no loss sees.

        An L1 penalty settles the shift of the weights by itself; that of the biases is always free.
        """
        pin = np.ones(D) if not self.lasso.any() else np.append(np.zeros(D - 1), float(self.bias))
        size = np.diag(H).reshape(R, D).mean(axis=0) * pin / R
        at = np.arange(D)
        H.reshape(R, D, R, D)[:, at, :, at] += size[:, None, None]
        return H


class JointWork(NamedTuple):
    """Products of a step of a joint problem, by the whole matrix and by the Woodbury formula."""

    whole: float
    by_rows: float


def joint_work(n: int, R: int, D: int) -> JointWork:
    """Return the products of a step of a joint problem with n rows, R scores and D columns."""
    whole = 2.0 * n * R * D * D + (R * D) ** 3 / 3
    return JointWork(whole, R * (6.0 * n * D * D + 4.0 * n * n * D + D**3 / 3) + (2.0 * n) ** 3)


def _gram(Z: Floats, weight: Floats) -> Floats:
    root = Z * np.sqrt(weight)[:, None]
    return root.T @ root


def _shaped(H: Floats) -> Solve:
    solve = inverse(H)
    return lambda x: solve(x.ravel()).reshape(x.shape)


# ---------------------------------------------------------------- the method


class Minimum(NamedTuple):
    """The best theta (R, D), its value, a lower bound of the optimum, the last theta, and the steps taken."""

    theta: Floats
    value: float
    lower: float
    last: Floats
    steps: int
    zero: NDArray[np.bool_]  # (R, D) where the dual variables of |theta| are inside their boxes


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
        """From theta = 0."""
        R, D = problem.n_scores, problem.Z.shape[1]
        theta, n_gaps = np.zeros((R, D)), 1 if problem.signs is not None else R - 1
        top = np.repeat(problem.top[:, None], n_gaps, axis=1)
        hinges = Kinks.at(top, np.full_like(top, problem.margin))
        strength = np.broadcast_to(problem.lasso[: D - problem.bias], (R, D - problem.bias))
        lassos = Kinks.at(2 * strength, np.zeros_like(strength), 1 / np.maximum(1.0, strength))
        return Run(problem, theta, hinges, lassos if strength.any() else None)

    def go(self, tol: float, most: int) -> Minimum:
        """Step until the gap is at most tol of the value, or `most` times."""
        p, least, best, value = self.problem, 0.0, self.theta, np.inf
        for steps in range(most + 1):
            scores = p.Z @ self.theta.T
            gaps = p.gaps(scores)
            found = p.value(self.theta, gaps) if np.isfinite(p.top[0]) else p.stretched_value(self.theta, gaps)
            least = least or (LEAST_FALL * found if np.isfinite(found) else 0.0)
            if found <= value:
                value, best = found, self.theta
            self.lower = max(self.lower, p.lower_bound(self.hinges.a, self._pulls(), self.theta, value))
            limit = tol * tol_scale(value, least) if np.isfinite(value) else 0.0
            done = value - self.lower <= limit or self._energy() <= _ROUNDING * limit
            if done or steps == most or not self._advance(gaps):
                break
        return Minimum(best, value, self.lower, self.theta, steps, self._zero())

    def _advance(self, gaps: Floats) -> bool:
        """A predictor and a corrector step; returns whether rounding has left anything of them."""
        parts = [self.hinges] if self.lassos is None else [self.hinges, self.lassos]
        diagonal = self.problem.ridge + np.zeros_like(self.theta)
        if self.lassos is not None:
            diagonal[:, : self.weights] += self.lassos.curvature
        solve = self.problem.factor(self.hinges.curvature, diagonal)
        energy = self._energy()
        mu = energy / sum(2 * float(part.size.sum()) for part in parts)
        _, steps = self._direction(solve, gaps, 0.0, None)
        t = min(1.0, *(part.reach(step) for part, step in zip(parts, steps)))
        left = sum(part.energy(step, t) for part, step in zip(parts, steps))
        mu *= min(1.0, max(left / energy, 1e-8)) ** 3
        move, steps = self._direction(solve, gaps, mu, steps)
        t = min(1.0, _SHY * min(part.reach(step) for part, step in zip(parts, steps)))
        if not (np.isfinite(move).all() and t > 1e-12):
            return False
        self.theta = self.theta + t * move
        for part, step in zip(parts, steps):
            part.move(step, t)
        return True

    def _direction(
        self, solve: Solve, gaps: Floats, mu: float, predicted: list[KinkStep] | None
    ) -> tuple[Floats, list[KinkStep]]:
        """The Newton step towards products of mu."""
        p, hinges, lassos = self.problem, self.hinges, self.lassos
        low, high = hinges.targets(mu, predicted[0] if predicted else None)
        bend, pull = hinges.curvature, hinges.pull(gaps, low, high)
        gradient = p.ridge * self.theta + p.slopes(hinges.a + bend * pull).T @ p.Z
        if lassos is None:
            move = -solve(gradient)
            return move, [hinges.step(bend * (pull + p.turn(p.Z @ move.T)), low, high)]
        near, far = lassos.targets(mu, predicted[1] if predicted else None)
        curve, wish = lassos.curvature, lassos.pull(self.theta[:, : self.weights], near, far)
        gradient += self._pulls()
        gradient[:, : self.weights] += curve * wish
        move = -solve(gradient)
        steps = [hinges.step(bend * (pull + p.turn(p.Z @ move.T)), low, high)]
        return move, [*steps, lassos.step(curve * (wish + move[:, : self.weights]), near, far)]

    def _energy(self) -> float:
        """The sum of all products, which is the gap but for rounding."""
        return self.hinges.energy() + (0.0 if self.lassos is None else self.lassos.energy())

    def _zero(self) -> NDArray[np.bool_]:
        zero = np.zeros(self.theta.shape, bool)
        if self.lassos is not None:
            zero[:, : self.weights] = self.lassos.inside
        return zero

    @property
    def weights(self) -> int:
        """The number of columns that are penalized."""
        return self.theta.shape[1] - self.problem.bias

    def _pulls(self) -> Floats:
        """The slopes (R, D) of the L1 penalty that the dual variables stand for."""
        pulls = np.zeros_like(self.theta)
        if self.lassos is not None:
            pulls[:, : self.weights] = self.lassos.a - self.lassos.top / 2
        return pulls


# ---------------------------------------------------------------- objectives


def is_small_with_kinks(objective: Objective, most: float = MOST_WORK) -> bool:
    """Return whether this method knows the problem, and a step of it costs at most so many products."""
    o, loss, D, R = objective, objective.loss, objective.d + 1, objective.n_scores
    knows = loss.has_margin and not loss.rounded and o.penalty.ridge + o.penalty.lasso > 0
    at_hand = o.in_memory or FETCHED in o.rows.offers
    if not knows or not at_hand:
        return False
    if loss.joint:
        each = joint_work(o.n, R, D)
        by_rows = each.by_rows < each.whole
        work, numbers = min(each), max(4.0 * o.n * o.n, R * D * D) if by_rows else float(R * D) ** 2
    else:
        work, numbers = R * (float(o.n) * D * D + D**3 / 3), float(D) * D
    if 8 * max(float(o.n) * D, numbers) > 2 * BLOCK_BYTES:
        return False
    return work <= most


def solve_small(objective: Objective, control: Control) -> Solution:
    """Minimize hinges to within tol, with a proof."""
    o = objective
    counted = np.arange(o.n) if o.weight is None else np.flatnonzero(o.weight > 0)
    frame = standard_columns(o if len(counted) == o.n else o.take(counted))
    standard = frame.objective
    weight = np.full(standard.n, 1 / standard.n) if standard.weight is None else standard.weight / standard.n
    Z = rooted_rows(standard.X, None, np.dtype(np.float64), o.fit_intercept)
    free = [0.0] if o.fit_intercept else []
    ridge, lasso = np.append(standard.penalty.ridges(o.d), free), np.append(standard.penalty.lassos(o.d), free)
    codes, R = standard.targets.codes, o.n_scores
    whole = KinkedProblem(
        Z, o.loss.margin, weight, ridge, lasso, o.fit_intercept, R if o.loss.joint else 1, codes, None
    )
    parts = [whole] if o.loss.joint else [replace(whole, signs=signs) for signs in _signs(codes, R)]
    with single_blas():
        found = pmap(lambda part: Run.on(part).go(control.tol / 4, min(control.max_iter, _MOST_STEPS)), parts)
    lower, steps = sum(m.lower for m in found), max(m.steps for m in found)
    theta = frame.back(_padded(np.vstack([m.theta for m in found]), o.d))
    if o.penalty.lasso:
        zeros = frame.back(_padded(np.vstack([np.where(m.zero, 0.0, m.theta) for m in found]), o.d))
        value = o.value(zeros.astype(np.float64))
        theta = zeros if value - lower <= control.tol / 2 * tol_scale(value) else theta
    return _finished(objective, theta, sum(m.value for m in found), lower, steps, control)


def _padded(theta: Floats, d: int) -> Floats:
    """Return theta (R, D) as (R, d + 1), with zeros for the bias if it has none."""
    return theta if theta.shape[1] == d + 1 else np.column_stack([theta, np.zeros(len(theta))])


class HardMargin(NamedTuple):
    """w (d,) of a hard margin and a lower bound of |w|^2 / 2."""

    w: Floats
    lower: float


def solve_hard(X: Floats, y: Floats, bias: bool, tol: float) -> HardMargin:
    """Minimize |w|^2 / 2 with y_i (x_i.w + b) >= 1 over rows (n, d) that can be separated."""
    X, ones = X.copy(), np.ones(len(y))
    units = standardize(X, ones, bias)
    ridge = np.append(1 / units.unit**2, [0.0] if bias else [])
    scale = float(ridge.max(initial=0.0)) or 1.0  # |w|^2 in units of its largest part
    Z = np.column_stack([X, ones]) if bias else X
    codes = np.zeros(len(y), np.int64)
    problem = KinkedProblem(Z, 1.0, np.inf * ones, ridge / scale, 0 * ridge, bias, 1, codes, y[:, None])
    with single_blas():
        found = Run.on(problem).go(tol, _MOST_STEPS)
    return HardMargin(units.back(_padded(found.last, X.shape[1]))[0, :-1], scale * found.lower)


# ---------------------------------------------------------------- smooth losses with an L1 part


def solve_lasso(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """Minimize a smooth loss with an L1 part, from theta to within tol; best in standard columns."""
    with single_blas():
        return LassoRun.on(objective, theta, control).go()


@dataclass
class LassoRun:
    """One minimization of f(theta) + sum_j lasso_j |w_j|, f smooth: the same kinks, and the loss in place of hinges.

    A step is Newton's towards products of mu, shortened until the barrier function falls (Armijo):

        f(theta) + sum_j lasso_j (above_j + below_j) - mu size_j log(above_j below_j),   above - below = w
    """

    objective: Objective
    control: Control
    point: Point
    kinks: Kinks
    history: list[float] = field(default_factory=list)
    decrement: float = 0.0  # what the last step has left of the slope of the barrier function
    stopped: bool = False  # by the caller

    @staticmethod
    def on(objective: Objective, theta: NDArray, control: Control) -> LassoRun:
        """Start at theta."""
        W = theta[:, :-1].astype(np.float64)
        strength = np.broadcast_to(objective.penalty.lassos(objective.d), W.shape)
        point = Point.at(objective, theta.astype(np.float64))
        unit = point.total / (2 * strength * W.size)  # all products together are as large as the objective
        return LassoRun(objective, control, point, Kinks.at(2 * strength, W, np.maximum(unit, SHORTEST_STEP)))

    def go(self) -> Solution:
        """Step until the excess over the optimum is under tol."""
        lower, most = -np.inf, min(self.control.max_iter, _MOST_STEPS)
        least = max(self.control.least, LEAST_FALL * self.objective.value(self.objective.zeros()))
        for steps in range(most + 1):
            enough = self.control.tol / 4 * tol_scale(self.point.total, least)
            end = self._with_zeros(enough)
            if self.kinks.energy() <= enough or steps in (0, most):
                lower = max(lower, self._lower_bound(end))
            if end.total - lower <= enough or self.stopped or steps == most or not self._advance():
                break
        miss = max(0.0, end.total - max(lower, 0.0)) / tol_scale(end.total, least)  # no objective is below 0
        converged = self.stopped or miss <= self.control.tol
        advice = "" if converged else "raise max_iter or tol, or scale the features"
        history = [*self.history, end.total]
        return Solution(end.theta, max(1, steps), converged, miss, history, advice, True, end.total)

    def _with_zeros(self, enough: float) -> Point:
        """Return the point with zeros for the weights that are best at zero if no other moves, unless it is worse."""
        o, theta = self.objective, self.point.theta.copy()
        bend = o.mean_squares(o.curvatures(theta)) + o.penalty.ridges(o.d)
        theta[:, :-1][np.abs(self.point.gradient[:, :-1] - bend * theta[:, :-1]) <= o.penalty.lassos(o.d)] = 0
        new = Point.at(o, theta)
        return new if new.total <= self.point.total + enough else self.point

    def _lower_bound(self, end: Point) -> float:
        """Return a lower bound of the optimum, from the duality gap."""
        return max(point.total - duality_gap(self.objective, point) for point in (self.point, end))

    def _advance(self) -> bool:
        """Take a step; return whether rounding has left anything of it."""
        kinks, point = self.kinks, self.point
        energy = kinks.energy()
        mu = energy / (2 * float(kinks.size.sum())) * (_NARROWER if self.decrement <= energy else 1.0)
        move, step = self._direction(mu)
        t = min(1.0, _SHY * kinks.reach(step))
        if not np.isfinite(move).all():
            return False
        before, slope = self._barrier(point, kinks, mu), self._slope(move, step, mu)
        slack = 8 * np.finfo(np.float64).eps * abs(before)
        while t > SHORTEST_STEP:
            new, moved = Point.at(self.objective, point.theta + t * move), replace(kinks)
            moved.move(step, t)
            if self._barrier(new, moved, mu) <= before + ARMIJO * t * slope + slack:
                self.point, self.kinks, self.decrement = new, moved, -(1 - t) * slope / t
                self._report()
                return True
            t /= 2
        return False

    def _direction(self, mu: float) -> tuple[Floats, KinkStep]:
        """Return the Newton step towards products of mu."""
        o, kinks, W = self.objective, self.kinks, self.point.theta[:, :-1]
        low, high = kinks.targets(mu, None)
        curvature, pull = kinks.curvature, kinks.pull(W, low, high)
        hessian = DenseHessian.at(o, self.point.theta)
        diagonal, pinned = np.array(hessian.diagonal), hessian.pinned.copy()
        diagonal[:, : o.d] += curvature
        pinned[: o.d] = False  # the L1 part settles a shift of the weights of all scores
        gradient = self.point.gradient.copy()
        gradient[:, :-1] += kinks.a - kinks.top / 2 + curvature * pull
        move = np.zeros_like(gradient)
        D = len(pinned)
        move[:, :D] = -replace(hessian, diagonal=diagonal, pinned=pinned).solve(gradient[:, :D])
        return move, kinks.step(curvature * (pull + move[:, :-1]), low, high)

    def _barrier(self, point: Point, kinks: Kinks, mu: float) -> float:
        logs = np.log(kinks.above) + np.log(kinks.below)
        return point.value + float(np.sum(kinks.top / 2 * (kinks.above + kinks.below) - mu * kinks.size * logs))

    def _slope(self, move: Floats, step: KinkStep, mu: float) -> float:
        """Return the slope of the barrier function along a step."""
        kinks, lasso, target = self.kinks, self.kinks.top / 2, mu * self.kinks.size
        along = (lasso - target / kinks.above) * step.above + (lasso - target / kinks.below) * step.below
        return float(np.vdot(self.point.gradient, move)) + float(along.sum())

    def _report(self) -> None:
        control = self.control
        self.history.append(min([self.point.total, *self.history[-1:]]))
        self.stopped = control.progress is not None and control.progress(len(self.history), self.history[-1])
        if control.validate is not None and control.validate(self.point.theta):
            self.stopped = True


def _signs(codes: NDArray[np.int64], n_scores: int) -> list[Floats]:
    """(n, 1) for each column of scores; the one score of two classes is the second's."""
    classes = [1] if n_scores == 1 else range(n_scores)
    return [np.where(codes == k, 1.0, -1.0)[:, None] for k in classes]


def _finished(
    objective: Objective, theta: NDArray, value: float, lower: float, steps: int, control: Control
) -> Solution:
    """The solution, in the number format of the rows; what rounding to it adds counts towards the miss."""
    end = objective.value(theta.astype(np.float64))
    scale = tol_scale(value, LEAST_FALL * objective.value(objective.zeros()))
    miss, excess = max(0.0, end - lower) / scale, (value - lower) / scale
    if control.progress is not None:
        control.progress(max(1, steps), end)
    converged = miss <= control.tol
    advice = "" if converged else ROUNDED if excess <= control.tol else "raise max_iter or tol, or scale the features"
    return Solution(theta, max(1, steps), converged, miss, [end], advice, proved=True, value=end)
