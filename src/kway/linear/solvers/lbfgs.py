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

from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.linear.solvers import stopping
from kway.linear.solvers.base import ARMIJO, MIN_STEP, PROOF_FACTOR, Carry, Control, Point, Solution, Solver, is_small
from kway.linear.solvers.interior_point import is_small_with_kinks, solve_small
from kway.linear.solvers.preconditioners import Factor, Moments, Schedule, quick_moments, sample_rows
from kway.linear.solvers.smoothing import solve_smoothed
from kway.linear.solvers.stopping import ADVICE_ROUNDING, SEPARABLE, NewtonStep, newton_step, tol_scale
from kway.memory import CACHE_BYTES
from kway.planning.costs import LBFGS_PAIRS
from kway.threads import pmap, shares, single_blas

MEMORY = LBFGS_PAIRS  # pairs that L-BFGS stores
# The descent on a sample ends after this number of iterations, or if the expected gain is below this share of the
# objective. A more exact optimum of the sample is no better start for all rows (decided by row T4).
SAMPLE_ITERATIONS = 30
SAMPLE_TOL = 6e-3


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
    pairs: Pairs | None = None,
    prove: bool = False,
) -> Solution:
    """Minimize a smooth objective.

    Parameters
    ----------
    objective, theta, control
        The problem, the start, and the limits of the iterations.
    known_moments : Moments, optional
        The moments of the same rows under another loss or penalty, which are used again.
    pairs : Pairs, optional
        The pairs of a similar problem; the pairs of this fit are added in place.
    prove : bool
        Continue until a bound of the excess over the optimum, not only an estimate, is below tol.
    """
    return Descent(objective, control, Pairs() if pairs is None else pairs, prove).run(theta, known_moments)


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
                if self.excess <= self._allowed_excess(point) * (1e-2 if self.schedule.exact else 1.0):
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
                self.excess = 0.0
                return self._end(point)
            if done:
                break
        if self.excess <= self._allowed_excess(point):
            self._bound(point)
        return self._end(point)

    def _bound(self, point: Point) -> None:
        """Replace an estimate of the excess by a bound, if the objective has one."""
        if self.has_decrement and not self.proved:
            bound = stopping.decrement(self.objective, point, self.schedule.factor, self._allowed_excess(point)).excess
            self.proved, self.excess = True, bound
        elif self.has_gap:
            self.proved, self.excess = True, stopping.duality_gap(self.objective, point)

    def _is_done(self, step: NewtonStep, old: Point, new: Point) -> bool:
        """Return whether the new point is within tol of the optimum; update the excess.

        After a bound was computed, the excess is the bound minus the gain of the step. Exact Newton steps continue
        until the bound before the step is a hundredth of tol. They converge quadratically, so that equal problems get
        equal solutions. Without a bound, the gain of the last third of the iterations is the estimate.
        """
        if self.proved and self.schedule.exact:
            return step.excess <= 1e-2 * self._allowed_excess(old)
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
            o, gradient = self.objective, point.gradient
            step = newton_step(o, point.theta, o.center_scores(gradient) if o.loss.shift_free else gradient)
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


class Pairs:
    """The last MEMORY pairs of steps s and changes of the gradient y with s.y > 0, and the L-BFGS direction from them.

    The pairs are rows of two matrices (MEMORY, P); the P numbers are in the memory order of theta. The products s_i.y_j
    are stored, so that both loops of the recursion run over a few numbers, and a direction reads each vector twice, by
    matrix products on all cores.

    Invariants:

    - `_order` is a permutation of the rows 0 .. len(self) - 1, oldest pair first.
    - `_products[i, j]` is s_i.y_j only if s_i is no newer than y_j. The other entries are outdated or uninitialized,
      and the recursion does not read them.
    """

    def __init__(self) -> None:
        self._moves = self._changes = np.empty((0, 0))
        self._products = np.empty((0, 0))  # s_i.y_j, valid if s_i is no newer than y_j
        self._order: list[int] = []  # rows in use, oldest pair first
        self._shape: tuple[int, ...] = ()
        self._layout: Literal["C", "F"] = "C"

    def __len__(self) -> int:
        return len(self._order)

    def clear(self) -> None:
        """Remove all pairs."""
        self._order.clear()

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
        """Update the pairs in place for the same loss with a ridge larger by `by`: y += by s, except for the bias.

        Remove all pairs if rounding makes a curvature s.y negative.
        """
        for row in self._order:
            change, move = (a[row].reshape(self._shape, order=self._layout) for a in (self._changes, self._moves))
            change[:, :-1] += change.dtype.type(by) * move[:, :-1]
        for row in self._order:
            self._products[:, row] = self._against(self._moves, self._changes[row])
        if any(not self._products[row, row] > 0 for row in self._order):
            self.clear()

    def direction(self, gradient: NDArray, factor: Factor) -> NDArray:
        """Return H gradient, an ascent direction, by the two-loop recursion.

        The loops compute the coefficients of the rows; the sums of rows are matrix products.
        """
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
        """Return rows (m, P) @ vector (P,), padded with zeros to (MEMORY,); each worker has a share of the columns."""
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
    """Return the inner product of two arrays of the same memory layout."""
    return float(np.dot(flattened(a), flattened(b)))


def flattened(a: NDArray) -> NDArray:
    """Return a view of the entries of a contiguous array, in memory order."""
    return a.ravel(order="K")
