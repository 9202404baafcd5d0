"""The default solver: preconditioned L-BFGS for every smooth loss, and for hinges through smoothing.

    1  Compute the Hessian at zero, shared by all scores, from a sample of the rows, or from all rows if that is cheap.
    2  Run at most 30 iterations of L-BFGS on the sample to find a start.
    3  Run L-BFGS on all rows, with a preconditioner per class that follows the curvature (preconditioners.py).
    4  When the quadratic model predicts little further gain, compute a Newton step by conjugate gradients. It bounds
       the excess over the optimum (stopping.py). Stop if the bound is below tol, else take the step. If it gains less
       than half of what the model predicts, take a quarter more iterations before the next bound. Rounded hinges are
       straight at most rows, so their bound is the duality gap, which every iteration gives.

In a small problem each iteration is a Newton step with the dense Hessian, which gives the bound at no extra cost.

direction   H_k g by the two-loop recursion over the last pairs (s, y) = (step, change of the gradient). The initial
            matrix is the preconditioner M, scaled by s.y / y.My (Nocedal and Wright, Numerical Optimization,
            Algorithm 7.4).
step size   1, reduced by a parabola until the value falls enough (Armijo condition). If the fall is below the rounding
            of the values, until the directional derivative has fallen to 0.9 of its size.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.linear.solvers import stopping
from kway.linear.solvers.base import ARMIJO, MIN_STEP, PROOF_FACTOR, Carry, Control, Point, Solution, Solver, is_small
from kway.linear.solvers.interior_point import is_small_with_kinks, solve_small
from kway.linear.solvers.preconditioners import Factor, Moments, Schedule, quick_moments, sample_rows
from kway.linear.solvers.smoothing import solve_smoothed
from kway.linear.solvers.stopping import ADVICE_ROUNDING, SEPARABLE, NewtonStep, newton_step, tol_scale
from kway.planning.costs import LBFGS_PAIRS
from kway.threads import single_blas

MEMORY = LBFGS_PAIRS  # pairs that L-BFGS stores
# The descent on a sample ends after this number of iterations, or if the expected gain is below this share of the
# objective. A more exact optimum of the sample is no better start for all rows (decided by row T4).
SAMPLE_ITERATIONS = 30
SAMPLE_TOL = 6e-3
EXACT_SHARE = 1e-2  # share of tol at which exact Newton steps end, so that equal problems get equal solutions


@dataclass
class PathState:
    """The state that one fit of a regularization path passes to the next, which has another ridge."""

    moments: Moments
    pairs: Pairs
    ridge: float = 0.0
    schedule: Schedule | None = None


@dataclass(frozen=True)
class LBFGS(Solver):
    """Preconditioned limited-memory BFGS."""

    name: ClassVar[str] = "lbfgs"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.smooth", "loss.optimum", "penalty.smooth"})
    standardizes: ClassVar[bool] = True
    stores_pairs: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Minimize the objective from theta until it is within tol of the optimum, relative to its value."""
        with single_blas():
            if objective.loss.smooth:
                if control.carry is not None and not is_small(objective):
                    return self._solve_next(objective, theta, control, control.carry)
                return Descent(objective, control, Pairs(), prove=True).run(theta)
            if is_small_with_kinks(objective):
                return solve_small(objective, control)
            known_moments = quick_moments(objective, sample_rows(objective))
            return solve_smoothed(objective, theta, control, partial(solve_smooth, known_moments=known_moments))

    def _solve_next(self, objective: Objective, theta: NDArray, control: Control, carry: Carry) -> Solution:
        """Minimize with the state of the previous ridge; only the first fit of a path is proved."""
        past = carry.get(objective, lambda: PathState(quick_moments(objective, sample_rows(objective)), Pairs()))
        past.pairs.change_ridge(objective.penalty.ridge - past.ridge)
        past.ridge = objective.penalty.ridge
        descent = Descent(objective, control, past.pairs, prove=past.schedule is None)
        solution = descent.run(theta, past.moments, past.schedule)
        past.schedule = descent.schedule
        return solution


def solve_smooth(
    objective: Objective,
    theta: NDArray,
    control: Control,
    known_moments: Moments | None = None,
    prove: bool = False,
) -> Solution:
    """Minimize a smooth objective.

    Parameters
    ----------
    objective, theta, control
        The problem, the start, and the limits of the iterations.
    known_moments : Moments, optional
        The moments of the same rows under another loss or penalty, which are used again.
    prove : bool
        Continue until a bound of the excess over the optimum, not only an estimate, is below tol.
    """
    return Descent(objective, control, Pairs(), prove).run(theta, known_moments)


# ---------------------------------------------------------------- the start


def start_from(
    objective: Objective, theta: NDArray, known_moments: Moments | None, earlier: Schedule | None
) -> tuple[Point, Schedule]:
    """Return the start of the descent on all rows, and the schedule of its preconditioners.

    The start is theta if it is a good one. Otherwise a descent from theta on a sample of the rows finds it. An earlier
    schedule, of another ridge, goes on.
    """
    theta = objective.rows.with_layout(theta)
    if earlier is not None:
        earlier.change_ridge(objective, theta)
        return Point.centered_at(objective, theta), earlier
    if is_small(objective):
        schedule = Schedule(objective, Moments(np.empty(0), objective), lambda gradient: gradient)
        return Point.centered_at(objective, theta), schedule
    sample = sample_rows(objective)
    moments = replace(known_moments, objective=objective) if known_moments else quick_moments(objective, sample)
    warm = bool(theta.any())
    if sample is not None and warm:
        warm = known_moments is not None or sample.value(theta) < 0.7 * sample.value(np.zeros_like(theta))
    if sample is not None and not warm:
        origin = Point.centered_at(sample, theta)
        learned = _descend_on_sample(sample, origin, moments.shared())
        point = Point.centered_at(objective, learned)
        if point.value < origin.value:  # otherwise the optimum of the sample is far from that of all rows
            return point, Schedule(objective, moments, moments.best_at(objective, learned, sample))
    factor = moments.best_at(objective, theta, objective) if warm else moments.shared()
    return Point.centered_at(objective, theta), Schedule(objective, moments, factor)


def _descend_on_sample(sample: Objective, point: Point, factor: Factor) -> NDArray:
    """Return theta after at most SAMPLE_ITERATIONS iterations on the sample."""
    pairs = Pairs()
    for _ in range(SAMPLE_ITERATIONS):
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
    """The state of one minimization."""

    objective: Objective
    control: Control
    pairs: Pairs
    prove: bool
    schedule: Schedule = field(init=False)
    history: list[float] = field(default_factory=list)
    next_biases: int = 0  # iteration before which the biases are not moved again
    next_proof: int = 0  # iteration before which no bound is computed
    excess: float = np.inf  # F minus its minimum: a bound if `proved`, else an estimate
    proved: bool = False

    def run(
        self, theta: NDArray, known_moments: Moments | None = None, earlier: Schedule | None = None
    ) -> Solution:  # fmt: skip
        """Iterate from theta until the excess is below tol, no step lowers the value, or max_iter is reached."""
        o = self.objective
        point, self.schedule = start_from(o, theta, known_moments, earlier)
        self.has_decrement = self.prove and stopping.has_decrement(self.objective)
        self.has_gap = self.prove and not self.has_decrement and stopping.has_gap(self.objective)
        self.history.append(point.value)
        for iteration in range(1, max(1, self.control.max_iter) + 1):
            if stopping.separated(self.objective, point.value):
                return self._end(point, SEPARABLE)
            if self.has_gap:
                point = self._with_gap(iteration, point)
                if self.excess <= self._allowed_excess(point) * (EXACT_SHARE if self.schedule.exact else 1.0):
                    return self._end(point)
            step = self._step(iteration, point)
            if step.excess <= self._allowed_excess(point) and not self.schedule.exact:
                return self._end(point)
            new = search_along(self.objective, point, step)
            new = self._restart(point, step) if new is None else new
            if new is None:
                return self._end_stuck(point, step)
            self.pairs.add(point, new)
            self.history.append(new.value)
            done = self._is_done(step, point, new)
            if self.proved and point.value - new.value < step.slope / 4:  # half of what the quadratic model predicts
                self.next_proof = iteration + 1 + iteration // 4
            point = new
            if self.control.should_stop(iteration, point.value, point.theta):
                self.excess = 0.0  # the caller asked to stop, which counts as converged: the fit does not warn
                return self._end(point)
            if done:
                break
        if self.excess <= self._allowed_excess(point):
            self._bound(point)
        return self._end(point)

    def _bound(self, point: Point) -> None:
        """Replace an estimate of the excess by a bound, if the objective has one."""
        if self.has_gap or (self.has_decrement and not self.proved):
            allowed = self._allowed_excess(point)
            self.excess = stopping.bound_excess(self.objective, point, lambda: self.schedule.factor, allowed)
            self.proved = True

    def _is_done(self, step: NewtonStep, old: Point, new: Point) -> bool:
        """Return whether the new point is within tol of the optimum; update the excess.

        After a bound was computed, the excess is the bound minus the gain of the step. Exact Newton steps, which
        converge quadratically, continue until the bound before the step is a hundredth of tol. Without a bound, the
        gain of the last third of the iterations is the estimate.
        """
        if self.proved and self.schedule.exact:
            return step.excess <= EXACT_SHARE * self._allowed_excess(old)
        if self.proved:
            self.excess = max(0.0, step.excess - (old.value - new.value))
            return self.excess <= self._allowed_excess(new)
        if self.has_gap or self.has_decrement:
            return False
        self.excess = max(stopping.recent_gain(self.history), step.slope / 2)
        return self.excess <= self._allowed_excess(new)

    def _step(self, iteration: int, point: Point) -> NewtonStep:
        """Return the next step, with a bound of the excess at this point if a proof is due."""
        if self.has_decrement:
            self.schedule.turn_exact(iteration)
        if self.schedule.exact:
            step = newton_step(self.objective, point.theta, point.gradient)
            self.proved, self.excess = self.has_decrement, step.excess
            return step
        factor = self.schedule.at(point)
        step = self.pairs.step(point, factor)
        self.proved, self.excess = False, step.slope / 2
        due = self.has_decrement and iteration >= self.next_proof
        if not due or PROOF_FACTOR * step.slope / 2 > self._allowed_excess(point):
            return step
        factor = self.schedule.for_proof(iteration, point) or factor
        proved = stopping.decrement(self.objective, point, factor, self._allowed_excess(point))
        self.proved, self.excess = True, proved.excess
        return proved if proved.slope > 0 else step._replace(excess=proved.excess)

    def _restart(self, point: Point, step: NewtonStep) -> Point | None:
        """Return a point along a plainer step: without the pairs, then with the factor of all classes.

        Return None if rounding explains that no step lowers the value, or if none does.
        """
        if self.schedule.exact or step.slope / 2 <= loss_rounding(point) * abs(point.value):
            return None
        self.pairs.clear()
        for factor in (self.schedule.factor, self.schedule.moments.shared()):
            new = search_along(self.objective, point, self.pairs.step(point, factor))
            if new is not None:
                self.schedule.factor = factor
                return new
        return None

    def _with_gap(self, iteration: int, point: Point) -> Point:
        """Compute the duality gap; move the biases if only they keep it open, for a tenth of the iterations at most."""
        tried = iteration < self.next_biases
        gap = stopping.close_gap(self.objective, point, np.inf if tried else self._allowed_excess(point))
        if gap.point is not point:
            self.next_biases = iteration + 1 + iteration // 10
        self.proved, self.excess = True, gap.excess
        return gap.point

    def _end_stuck(self, point: Point, step: NewtonStep) -> Solution:
        """Return the solution when rounding hides any further fall."""
        self._bound(point)
        if not (self.has_decrement or self.has_gap):
            gain = self.history[max(0, len(self.history) - 2 - len(self.history) // 3)] - point.value
            self.excess = max(min(step.slope / 2, gain), loss_rounding(point) * abs(point.value))
        return self._end(point, ADVICE_ROUNDING)

    def _allowed_excess(self, point: Point) -> float:
        """Return the excess over the optimum that tol allows."""
        return self.control.tol * tol_scale(point.value, self.control.min_scale)

    def _end(self, point: Point, advice: str = "") -> Solution:
        rel_excess = np.inf if advice == SEPARABLE else self.excess / tol_scale(point.value, self.control.min_scale)
        converged = rel_excess <= self.control.tol
        advice = "" if converged else advice or "raise max_iter, or tol, or scale the features"
        n_iter = len(self.history) - 1
        return Solution(
            point.theta, n_iter, converged, rel_excess, self.history, advice, proved=self.proved, value=point.value
        )


def search_along(objective: Objective, point: Point, step: NewtonStep) -> Point | None:
    """Return the first point along -direction, from step size 1 down, whose value falls enough; None if none does."""
    size, slack, slope = 1.0, loss_rounding(point) * abs(point.value), step.slope
    if not 0 < slope < np.inf:
        return None
    real = point.theta.dtype.type
    while size > MIN_STEP:
        new = Point.centered_at(objective, point.theta - real(size) * step.direction)
        fall = point.value - new.value
        if fall >= ARMIJO * size * slope and fall > 0:
            return new
        if fall >= -slack and size * slope < 10 * slack:
            if abs(inner(new.gradient, step.direction)) <= 0.9 * slope:
                return new
            if size < 0.1:
                return None
        # the parabola through the value, the slope and the rejected value
        curvature = 2 * (slope - fall / size)
        size *= min(0.5, max(0.1, slope / curvature)) if np.isfinite(curvature) and curvature > 0 else 0.1
    return None


def loss_rounding(point: Point) -> float:
    """Return the relative rounding error of the objective; losses have the precision of theta, their sum is float64."""
    return 1e-7 if point.theta.dtype == np.float32 else 1e-15


# ---------------------------------------------------------------- the pairs


class Pair(NamedTuple):
    """A step s, the change y of the gradient, both (R, d + 1), and s.y."""

    move: NDArray
    change: NDArray
    product: float


class Pairs:
    """The last MEMORY pairs with s.y > 0, and the L-BFGS direction from them."""

    def __init__(self) -> None:
        self._pairs: deque[Pair] = deque(maxlen=MEMORY)  # oldest pair first

    def __len__(self) -> int:
        return len(self._pairs)

    def clear(self) -> None:
        """Remove all pairs."""
        self._pairs.clear()

    def step(self, point: Point, factor: Factor) -> NewtonStep:
        """Return the step from a point. If it does not descend, remove all pairs and return the step of the factor."""
        direction = self.direction(point.gradient, factor)
        slope = inner(point.gradient, direction)
        if not slope > 0 and len(self):
            self.clear()
            direction = factor(point.gradient)
            slope = inner(point.gradient, direction)
        return NewtonStep(direction, slope, np.inf)

    def add(self, old: Point, new: Point) -> None:
        """Add the pair of two points if s.y is positive; it replaces the oldest pair if there are MEMORY pairs."""
        move, change = new.theta - old.theta, new.gradient - old.gradient
        product = inner(move, change)
        if product > 1e-12 * np.sqrt(inner(move, move) * inner(change, change)):
            self._pairs.append(Pair(move, change, product))

    def change_ridge(self, by: float) -> None:
        """Update the pairs for the same loss with a ridge larger by `by`: y += by s, except for the bias.

        Remove all pairs if rounding makes a curvature s.y negative.
        """
        for at, (move, change, _) in enumerate(self._pairs):
            change[:, :-1] += change.dtype.type(by) * move[:, :-1]
            self._pairs[at] = Pair(move, change, inner(move, change))
        if any(not pair.product > 0 for pair in self._pairs):
            self.clear()

    def direction(self, gradient: NDArray, factor: Factor) -> NDArray:
        """Return H gradient, an ascent direction, by the two-loop recursion."""
        if not self._pairs:
            return factor(gradient)
        q, weights, number = gradient.copy(order="K"), [], gradient.dtype.type
        for move, change, product in reversed(self._pairs):
            weights.append(inner(move, q) / product)
            q -= number(weights[-1]) * change
        newest = self._pairs[-1]
        q = factor(q)
        q *= number(newest.product / max(inner(newest.change, factor(newest.change)), 1e-300))
        for (move, change, product), weight in zip(self._pairs, reversed(weights)):
            q += number(weight - inner(change, q) / product) * move
        return q


def inner(a: NDArray, b: NDArray) -> float:
    """Return the inner product of two contiguous arrays of the same memory layout."""
    return float(np.dot(a.ravel(order="K"), b.ravel(order="K")))
