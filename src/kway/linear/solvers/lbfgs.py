"""The default solver: preconditioned L-BFGS for every smooth loss, and through smoothing for hinges.

    1  the Hessian at zero, shared by all scores, from a sample of 8 d + 1000 rows (all rows if that is cheap)
    2  L-BFGS on the sample, at most 30 iterations: a start
    3  L-BFGS on all rows, with factors per class that follow the curvature (preconditioners.py)
    4  when the quadratic model sees little left to gain, a Newton step by conjugate gradients bounds the excess over
       the optimum (certificates.py): under tol it is the end, else it is the next step

A small problem has the Newton step of its whole Hessian in every iteration, and its bound for nothing.

direction   H_k g by the two loops over the last pairs (s, y) = (move, change of gradient), the preconditioner scaled
            by s.y / y.My in the middle (Nocedal and Wright, Numerical Optimization, Algorithm 7.4)
step        1, shortened along a parabola until the value falls enough (Armijo); if the fall drowns in rounding, until
            the slope along the direction has not turned
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.linear.solvers import certificates
from kway.linear.solvers.base import ARMIJO, NEAR, SHORTEST_STEP, Carry, Control, Point, Solution, is_small
from kway.linear.solvers.certificates import HIDDEN, SEPARABLE, NewtonStep, newton_step, tol_scale
from kway.linear.solvers.preconditioners import Factor, Moments, Schedule, quick_moments, sample_rows
from kway.linear.solvers.smoothing import solve_smoothed
from kway.memory import CACHE_BYTES
from kway.threads import pmap, shares, single_blas

MEMORY = 10  # pairs; with 20 no row of T4 and T4b takes fewer iterations
SAMPLE_STEPS, SAMPLE_TOL = 30, 6e-3  # iterations on the sample, and the relative gain at which they end (T4)


@dataclass
class Past:
    """What a fit leaves for the next one with another ridge."""

    moments: Moments
    pairs: Pairs
    ridge: float = 0.0


@dataclass(frozen=True)
class LBFGS:
    """Preconditioned limited-memory BFGS."""

    name: ClassVar[str] = "lbfgs"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.smooth", "loss.optimum", "penalty.smooth"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Minimize from theta to within tol of the optimum, relative to the objective."""
        with single_blas():
            if objective.loss.smooth:
                if control.carry is not None and not is_small(objective):
                    return self._solve_next(objective, theta, control, control.carry)
                return Descent(objective, control, Pairs(), prove=True).run(theta)
            return solve_smoothed(objective, theta, control, solve_smooth)

    def _solve_next(self, objective: Objective, theta: NDArray, control: Control, carry: Carry) -> Solution:
        """Minimize with the moments and pairs of the last ridge; only the first of them needs a proof."""
        past = carry.get(objective, lambda: Past(quick_moments(objective, sample_rows(objective)), Pairs()))
        first, change = past.ridge == 0, objective.penalty.ridge - past.ridge
        past.pairs.change_ridge(change)
        past.ridge = objective.penalty.ridge
        return solve_smooth(objective, theta, control, past.moments, past.pairs, prove=first)


def solve_smooth(
    objective: Objective,
    theta: NDArray,
    control: Control,
    known: Moments | None = None,
    pairs: Pairs | None = None,
    prove: bool = False,
) -> Solution:
    """Minimize a smooth objective.

    Parameters
    ----------
    objective, theta, control
        The problem, where to start, and how long and well to solve it.
    known : Moments, optional
        Of the same rows under another loss or penalty: they are not computed again.
    pairs : Pairs, optional
        What L-BFGS learned on a problem much like this one; they are added to.
    prove : bool
        Go on until a bound, not an estimate, is under tol.
    """
    return Descent(objective, control, Pairs() if pairs is None else pairs, prove).run(theta, known)


# ---------------------------------------------------------------- the start


class Start(NamedTuple):
    """Where the descent on all rows starts, and its factors."""

    theta: NDArray
    schedule: Schedule


def start_from(objective: Objective, theta: NDArray, known: Moments | None) -> Start:
    """Return a start from theta, through a sample of the rows if theta is no good start."""
    theta = objective.laid_out(theta)
    if is_small(objective):
        return Start(theta, Schedule(objective, Moments(np.empty(0), objective), lambda gradient: gradient))
    sample = sample_rows(objective)
    found = known.under(objective) if known else quick_moments(objective, sample)
    warm = bool(theta.any())
    if sample is not None and warm:
        warm = known is not None or sample.value(theta) < 0.7 * sample.value(np.zeros_like(theta))
    if sample is None or warm:
        factor = found.best_at(objective, theta) if warm else found.shared()
        return Start(theta, Schedule(objective, found, factor))
    theta = _descend_on_sample(sample, theta, found.shared())
    if found.suits_class_means(objective):
        return Start(theta, Schedule(objective, found, found.with_class_means(sample, theta)))
    if np.isfinite(found.cost_per_class(objective)):
        return Start(theta, Schedule(objective, found, found.per_class(sample, theta)))
    return Start(theta, Schedule(objective, found, found.shared()))


def _descend_on_sample(sample: Objective, theta: NDArray, factor: Factor) -> NDArray:
    """Return theta after some iterations on the sample."""
    pairs, point = Pairs(), Point.centered_at(sample, theta)
    for _ in range(SAMPLE_STEPS):
        step = pairs.step(point, factor)
        new = search_along(sample, point, step)
        if new is None:
            break
        pairs.add(point, new)
        point = new
        if step.slope / 2 < SAMPLE_TOL * point.value:
            break
    return point.theta


# ---------------------------------------------------------------- the descent


@dataclass
class Descent:
    """One minimization: its factors, its pairs, and the values so far."""

    objective: Objective
    control: Control
    pairs: Pairs
    prove: bool
    schedule: Schedule = field(init=False)
    history: list[float] = field(default_factory=list)
    excess: float = np.inf  # bound, or estimate, of F above its minimum
    proved: bool = False
    first_near: int = 0  # iteration at which a proof seemed near
    open_gap: float = np.inf  # of the weights of a hinge, where the whole gap was too wide

    def run(self, theta: NDArray, known: Moments | None = None) -> Solution:
        """Step from theta until the excess is under tol, nothing is gained any more, or max_iter."""
        theta, self.schedule = start_from(self.objective, theta, known)
        self.has_gap = self.prove and not self.schedule.exact and certificates.has_gap(self.objective)
        self.has_decrement = self.prove and certificates.has_decrement(self.objective)
        point = Point.centered_at(self.objective, theta)
        self.history.append(point.value)
        for iteration in range(1, max(1, self.control.max_iter) + 1):
            if certificates.separated(self.objective, point.value):
                return self._end(point, SEPARABLE)
            closed = self._closed_gap(point)
            if closed is not None:
                return self._end(closed)
            step = self._step(iteration, point)
            if step.excess <= self._enough(point) and not self.schedule.exact:
                return self._end(point)
            new = search_along(self.objective, point, step)
            if new is None and len(self.pairs) and step.slope / 2 > loss_rounding(point) * abs(point.value):
                self.pairs.clear()  # old curvature led astray
                new = search_along(self.objective, point, self._step(iteration, point))
            if new is None:
                return self._stuck(point, step)
            self.pairs.add(point, new)
            self.history.append(new.value)
            done = self._is_done(step, point, new)
            point = new
            if self._told_to_stop(iteration, point):
                self.excess = 0.0
                return self._end(point)
            if done:
                break
        return self._end(point)

    def _is_done(self, step: NewtonStep, old: Point, new: Point) -> bool:
        """Return whether the step has led to within tol: what it gained is gone from the bound.

        An exact step is taken from a hundredth of tol: what is left is then squared, and equal problems have equal
        solutions. Without a proof the gain of the last third of the iterations is the estimate of the excess.
        """
        if self.proved and self.schedule.exact:
            return step.excess <= 1e-2 * self._enough(old)
        if self.proved:
            self.excess = max(0.0, step.excess - (old.value - new.value))
            return self.excess <= self._enough(new)
        if self.has_gap or self.has_decrement:
            return False
        self.excess = max(certificates.recent_gain(self.history), step.slope / 2)
        return self.excess <= self._enough(new)

    def _step(self, iteration: int, point: Point) -> NewtonStep:
        """Return the next step; with a bound of the excess here if one was due."""
        if self.has_decrement and not self.has_gap:
            self.schedule.turn_exact(iteration)
        if self.schedule.exact:
            o, gradient = self.objective, point.gradient
            step = newton_step(o, point.theta, o.center_scores(gradient) if o.loss.shift_free else gradient)
            self.proved, self.excess = self.has_decrement, step.excess
            return step
        factor = self.schedule.at(iteration, point)
        step = self.pairs.step(point, factor)
        if not self._is_proof_due(iteration, point, step):
            return step
        factor = self.schedule.for_proof(iteration, point) or factor
        proved = certificates.decrement(self.objective, point, factor, self._enough(point))
        self.proved, self.excess = True, proved.excess
        return proved if proved.slope > 0 else step._replace(excess=proved.excess)

    def _is_proof_due(self, iteration: int, point: Point, step: NewtonStep) -> bool:
        """Return whether little is left to gain. A hinge is given as many steps more to close its gap."""
        self.proved, self.excess = False, step.slope / 2
        if not self.has_decrement or NEAR * step.slope / 2 > self._enough(point):
            return False
        self.first_near = self.first_near or iteration
        return not self.has_gap or iteration >= 2 * self.first_near + SAMPLE_STEPS

    def _closed_gap(self, point: Point) -> Point | None:
        """Return the point, its intercepts solved for, if the duality gap of a rounded hinge is under tol."""
        if not self.has_gap:
            return None
        least = certificates.gap_of_weights(self.objective, point)
        if least > min(self._enough(point), self.open_gap):
            return None
        found = certificates.gap_of_hinge(self.objective, point)
        if found.excess > self._enough(found.point):
            self.open_gap = least / 2  # solving for intercepts takes some passes
            return None
        self.proved, self.excess = True, found.excess
        return found.point

    def _stuck(self, point: Point, step: NewtonStep) -> Solution:
        """Rounding hides any further fall: the end, which only a bound can say is near."""
        if self.has_decrement and not self.proved:
            found = certificates.decrement(self.objective, point, self.schedule.factor, self._enough(point))
            self.proved, self.excess = True, found.excess
        elif not self.has_decrement:
            gained = self.history[max(0, len(self.history) - 2 - len(self.history) // 3)] - point.value
            self.excess = max(min(step.slope / 2, gained), loss_rounding(point) * abs(point.value))
        return self._end(point, HIDDEN)

    def _told_to_stop(self, iteration: int, point: Point) -> bool:
        control = self.control
        told = control.progress is not None and control.progress(iteration, point.value)
        return told or (control.validate is not None and control.validate(point.theta))

    def _enough(self, point: Point) -> float:
        """Return the excess over the optimum that tol allows."""
        return self.control.tol * tol_scale(point.value, self.control.least)

    def _end(self, point: Point, advice: str = "") -> Solution:
        miss = np.inf if advice == SEPARABLE else self.excess / tol_scale(point.value, self.control.least)
        near = miss <= self.control.tol
        advice = "" if near else advice or "raise max_iter, or tol, or scale the features"
        return Solution(point.theta, len(self.history) - 1, near, miss, self.history, advice, self.proved, point.value)


def search_along(objective: Objective, point: Point, step: NewtonStep) -> Point | None:
    """Return the first point along -direction, from step 1 down, that falls enough; None if there is none."""
    size, slack, slope = 1.0, loss_rounding(point) * abs(point.value), step.slope
    if not 0 < slope < np.inf:
        return None
    real = point.theta.dtype.type
    while size > SHORTEST_STEP:
        new = Point.centered_at(objective, point.theta - real(size) * step.direction)
        fall = point.value - new.value
        if fall >= ARMIJO * size * slope and fall > 0:
            return new
        if fall >= -slack and size * slope < 10 * slack:
            if abs(inner(new.gradient, step.direction)) <= 0.9 * slope:
                return new
            if size < 0.1:
                return None
        bend = 2 * (slope - fall / size)  # the parabola through the value, the slope and the failed value
        size *= min(0.5, max(0.1, slope / bend)) if np.isfinite(bend) and bend > 0 else 0.1
    return None


def loss_rounding(point: Point) -> float:
    """Return the relative rounding of the objective: losses are of the data's precision, their sum is float64."""
    return 1e-7 if point.theta.dtype == np.float32 else 1e-15


# ---------------------------------------------------------------- what it remembers


class Pairs:
    """The last moves s and changes of the gradient y with s.y > 0: what is known of the curvature.

    Kept as rows of two matrices (MEMORY, P), P numbers in whatever order theta lies in memory, with the products
    s_i.y_j: both loops then run over a few numbers, and a direction reads each vector twice, by matrix products on
    every core.
    """

    def __init__(self) -> None:
        self._moves = self._changes = np.empty((0, 0))
        self._products = np.empty((0, 0))  # s_i.y_j
        self._order: list[int] = []  # rows in use, oldest first
        self._shape: tuple[int, ...] = ()
        self._layout: Literal["C", "F"] = "C"

    def __len__(self) -> int:
        return len(self._order)

    def clear(self) -> None:
        """Forget all."""
        self._order.clear()

    def step(self, point: Point, factor: Factor) -> NewtonStep:
        """Return the step from a point; the factor's alone if the pairs do not lead down."""
        direction = self.direction(point.gradient, factor)
        slope = inner(point.gradient, direction)
        if not slope > 0 and len(self):
            self.clear()
            direction = factor(point.gradient)
            slope = inner(point.gradient, direction)
        return NewtonStep(direction, slope, np.inf)

    def add(self, old: Point, new: Point) -> None:
        """Remember a step if the curvature along it was positive."""
        move, change = flattened(new.theta - old.theta), flattened(new.gradient - old.gradient)
        curvature = inner(move, change)
        if not curvature > 1e-12 * np.sqrt(inner(move, move) * inner(change, change)):
            return
        if not self._moves.size:
            self._shape, self._layout = new.theta.shape, "C" if new.theta.flags.c_contiguous else "F"
            self._moves, self._changes = np.empty((2, MEMORY, move.size), move.dtype)
            self._products = np.empty((MEMORY, MEMORY))
        row = self._order.pop(0) if len(self) == MEMORY else len(self)
        self._moves[row], self._changes[row] = move, change
        self._order.append(row)
        self._products[:, row] = self._against(self._moves, change)

    def change_ridge(self, by: float) -> None:
        """Make them the pairs of the same loss under a ridge larger by so much: y += by s, except for the bias."""
        for row in self._order:
            change, move = (a[row].reshape(self._shape, order=self._layout) for a in (self._changes, self._moves))
            change[:, :-1] += change.dtype.type(by) * move[:, :-1]
        for row in self._order:
            self._products[:, row] = self._against(self._moves, self._changes[row])
        if any(not self._products[row, row] > 0 for row in self._order):  # rounding
            self.clear()

    def direction(self, gradient: NDArray, factor: Factor) -> NDArray:
        """Return H gradient, an ascent direction: the two loops, on the coefficients of the moves and changes."""
        if not self._order:
            return factor(gradient)
        order, products = self._order, self._products
        along = self._against(self._moves, flattened(gradient))  # s_i.g
        weights = np.zeros(MEMORY)
        for at, i in reversed(list(enumerate(order))):
            newer = order[at + 1 :]
            weights[i] = (along[i] - products[i, newer] @ weights[newer]) / products[i, i]
        q = np.empty_like(gradient)
        flattened(q)[:] = flattened(gradient) - self._sum(weights, self._changes)
        last = order[-1]
        newest = self._changes[last].reshape(self._shape, order=self._layout)
        q = factor(q)
        q *= q.dtype.type(products[last, last] / max(inner(newest, factor(newest)), 1e-300))
        across = self._against(self._changes, flattened(q))  # y_i.q
        gains = np.zeros(MEMORY)
        for at, i in enumerate(order):
            older = order[:at]
            gains[i] = weights[i] - (across[i] + products[older, i] @ gains[older]) / products[i, i]
        flattened(q)[:] += self._sum(gains, self._moves)
        return q

    def _against(self, rows: NDArray, vector: NDArray) -> NDArray:
        """Return rows (m, P) times vector (P,), each worker a share of the columns."""
        m, out = len(self._order), np.zeros(MEMORY)
        parts = pmap(lambda s: rows[:m, s] @ vector[s], shares(len(vector), least=CACHE_BYTES // vector.itemsize))
        out[:m] = np.sum(parts, axis=0, dtype=np.float64)
        return out

    def _sum(self, coefficients: NDArray, rows: NDArray) -> NDArray:
        """Return sum_i coefficients_i rows_i, (P,)."""
        m, out = len(self._order), np.empty(rows.shape[1], rows.dtype)
        used = coefficients[:m].astype(rows.dtype)

        def part(share: slice) -> None:
            np.matmul(used, rows[:m, share], out=out[share])

        pmap(part, shares(len(out), least=CACHE_BYTES // out.itemsize))
        return out


def inner(a: NDArray, b: NDArray) -> float:
    """Return the sum of the products of all entries."""
    return float(np.dot(flattened(a), flattened(b)))


def flattened(a: NDArray) -> NDArray:
    """Return the entries as they lie in memory, no copy."""
    return a.ravel(order="K")
