"""The default solver: preconditioned L-BFGS for every smooth loss, and through smoothing for hinges.

    1  factor the Hessian at zero, shared by all scores, from a sample of 8 d + 1000 rows (all rows where that is cheap)
    2  L-BFGS on the sample, at most 30 iterations: a start
    3  where that was slow, or they are cheap, one factor a score at that start; where a class has fewer rows than there
       are columns, the shared one corrected along the mean of each class's rows, which costs next to nothing
    4  L-BFGS on all rows; a better factor (a score's own, or the whole Hessian where it is small) after as many
       iterations as it costs, and again as rows stop to bend, while the optimum is still far

It stops when the last third of its iterations has gained less than tol of the objective. The fall that a quadratic
model promises understates the excess over the optimum by 2 to 50 times, the gradient's norm overstates it by up to
10,000 (and the duality gap of the slopes is the same number); the gain of a third of the way bounded it on the ten data
sets it was tried on. Once the factor is the whole Hessian, what it promises is the excess. Then, unless rows are many,
gradients fused and the promise is far under tol (for which a few steps more are taken where they are fast), that is
proved (newton/decrement.py): a few products with the Hessian, preconditioned by all that L-BFGS has learned, bound the
excess; where it is still above tol their result is Newton's step, which is taken, what it gains taken off the bound,
and so on. A rounded hinge is held against its dual first (newton/gap.py), for as many steps more as there were. Where a
proof is to follow anyway it is tried as soon as the promise is an eighth of tol (a sixteenth for the gap): earlier it
takes more products than it saves steps, later the gain of a third of the way asks for steps in vain (30 where 24 do on
77 classes at alpha 1e-6); at a quarter with the factor that knows the means of the classes, whose promise is nearer to
what is left (13 steps become 6 on 77 classes at alpha 1e-4). Small problems are run to a hundredth of tol before, in a
few steps more, and to rounding where there is no such proof or a whole Hessian is cheap: equal problems then have equal
solutions.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import single_blas
from kway.linear.objective.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.lbfgs_start import SAMPLE_STEPS, Start, class_means, resumed, start_from
from kway.linear.solvers.newton.decrement import decrement, provable
from kway.linear.solvers.newton.gap import close, closes
from kway.linear.solvers.newton.newton import MOST_PROOF, affordable, proves_cheaply
from kway.linear.solvers.point import Point
from kway.linear.solvers.preconditioners.factors import Factor
from kway.linear.solvers.preconditioners.moments import DEAR, Moments, affords_newton, newton_factor, rows_a_factor
from kway.linear.solvers.quasi_newton import Pairs, Step, descend, loss_rounding, search_along
from kway.linear.solvers.shards.step_files import kept_steps
from kway.linear.solvers.stopping import SEPARABLE, separated, tol_scale
from kway.linear.solvers.svm.smoothing import solve_smoothed

SMALL_PASS = 1 << 20  # products of one pass over the rows: under a millisecond
_BEYOND = 1e-2  # of tol: where small problems stop that are then held against a proof
_FASTER = 3  # operations of a factor to one of a gradient in the same time, where rows are few and hardly any bend
_MEANS_DUE = 7  # iterations from theta = 0, after which the means of the classes are worth knowing
_FALLEN = 0.7  # of the objective at the last factor: below this rows bend otherwise than they did

MANY_ROWS, SHORT = 10, 15.0  # rows a feature; times that a promise may fall short
_PROOF_SHARE = 0.1  # of the iterations before it, in gradients, may be spent on factors for a proof
_PATIENCE, _FAST = 3, 0.2  # steps, each cheaper than a product with the Hessian; fall of two of them to two before
_AHEAD, _AHEAD_BY_MEANS, _AHEAD_OF_GAP = 8.0, 4.0, 16.0  # times that the promise is under tol where a proof is tried
HIDDEN = "rounding hides any further progress: scale the features, or pass float64"


@dataclass(frozen=True)
class LBFGS:
    """Preconditioned limited-memory BFGS."""

    name: ClassVar[str] = "lbfgs"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.smooth", "loss.optimum", "penalty.smooth"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """From theta to within tol of the optimum, relative to the objective."""
        with single_blas(), kept_steps(objective, control, self.name) as kept:
            if objective.loss.smooth:
                return solve_smooth(objective, theta, kept, prove=not proves_cheaply(objective))
            return solve_smoothed(objective, theta, kept, solve_smooth)


@dataclass
class Legacy:
    """What a problem leaves to the next that is much like it, of the same rows under another alpha say."""

    pairs: Pairs
    slow: bool = True  # whether factors for each class are worth their price from the start


def solve_smooth(
    objective: Objective,
    theta: NDArray,
    control: Control,
    known: Moments | None = None,
    legacy: Legacy | None = None,
    prove: bool = False,
) -> Solution:
    """The four stages; `known` moments, of another loss over the same rows, save the first, a `legacy` some steps.

    `prove`: go on until a bound, not an estimate, is under the tolerance.
    """
    theta = objective.laid_out(theta)
    small = objective.n * (objective.d + 1) * objective.all_scores <= SMALL_PASS
    legacy = Legacy(Pairs(objective.n_jobs, objective.total)) if legacy is None else legacy
    has_gap, has_hessian = closes(objective), provable(objective)
    prove = prove and (has_gap or has_hessian)
    aim = _BEYOND * control.tol if prove else 1e-3 * loss_rounding(theta.dtype)
    watch = Watch(objective, control, aim if small else control.tol)
    watch.proof_ahead = prove and not (watch.many and objective.fused)
    watch.steps_more = _PATIENCE if prove and watch.many else 0
    trail = control.diary.trail(objective)
    if trail.points:
        start, point = resumed(objective, trail, legacy.pairs), trail.points[-1]
        watch.history = list(trail.history)
    else:
        start = start_from(objective, theta, known, not small, legacy.slow)
        watch.ahead = _AHEAD_OF_GAP if has_gap else _AHEAD_BY_MEANS if start.by_means else _AHEAD
        point = Point.centred_at(objective, start.theta)
        watch.begin(point)
        control.diary.enter(0, point)
    refactoring = Refactoring(start, objective, watch, legacy)
    steps = descend(objective, point, start.factor, refactoring, legacy.pairs)
    for step in steps:
        point = step.point
        if watch.done(point, step.promised, step.stuck):
            break
    if prove and watch.trusted and has_gap:
        point, excess = close(objective, point, watch.more(steps), watch.enough)
        if excess <= watch.enough(point):
            watch.miss = excess / watch.scale(point.value)
            return replace(watch.solution(point), proved=True)
    if prove and has_hessian and watch.trusted and (watch.proof_ahead or watch.doubtful or not watch.clear):
        return _proved(objective, point, watch, refactoring, watch.factor or start.factor)
    return watch.solution(point)


def _proved(objective: Objective, point: Point, watch: Watch, refactoring: Refactoring, factor: Factor) -> Solution:
    """Newton's steps by conjugate gradients until the excess is bounded by tol, or nothing is gained any more.

    Products that do not settle cost more than a whole Hessian: where one can be had, a proof by it follows.
    """
    noise, used, pairs = loss_rounding(point.theta.dtype), 0, refactoring.legacy.pairs
    whole = affordable(objective, MOST_PROOF)
    while True:
        fresh = refactoring.for_proof(point, len(watch.history))
        precondition = fresh or partial(pairs.direction, factor=factor)
        newton_step = decrement(objective, point.theta, point.gradient, precondition, watch.enough(point), True)
        used += newton_step.products
        watch.miss = newton_step.excess / watch.scale(point.value)
        if watch.miss <= watch.control.tol:
            return replace(watch.solution(point), proved=True)
        given_up = whole and not newton_step.settled
        if given_up or len(watch.history) + used > watch.control.max_iter or not newton_step.slope > 0:
            return watch.solution(point)
        new = search_along(objective, point, newton_step.direction, newton_step.slope, noise)
        if new is None:
            watch.advice = watch.advice or HIDDEN
            return watch.solution(point)
        pairs.add(point, new)
        left, point = newton_step.excess - (point.value - new.value), new
        watch.history.append(point.value)
        watch.control.diary.enter(len(watch.history) - 1, point)
        if left <= watch.enough(point):  # what the step gained is gone from the bound
            watch.miss = max(0.0, left) / watch.scale(point.value)
            return replace(watch.solution(point), proved=True)


@dataclass
class Refactoring:
    """A better factor after as many iterations as it costs, and again, while the optimum is far.

    Again after as many where the objective has fallen meanwhile, after twice as many where it has hardly: rows that
    come to their right sides stop to bend. 5,000 raw images of digits, separable at the default alpha, are within tol
    after 200 iterations, with the factors of the start not after 1,000.
    """

    start: Start
    objective: Objective
    watch: Watch
    legacy: Legacy
    means_due: float = field(init=False)  # once, where the first factor is of theta = 0
    class_due: int = field(init=False)
    whole_due: int = field(init=False)
    class_gap: int = field(init=False)
    fallen_from: float = field(init=False, default=np.inf)  # objective at the last factor of the classes

    def __post_init__(self) -> None:
        o = self.objective
        cost = self.start.moments.cost_per_class(o, rows_a_factor(o))
        self.class_gap = max(4, int(min(cost, max(DEAR, cost / _FASTER))))
        self.class_due = self.class_gap * (2 if self.start.all_drawn else 1)
        self.means_due = _MEANS_DUE if self.start.at_zero else np.inf
        self.whole_due = max(4, o.n_scores * (o.d + 1) // 10)  # measured: P parameters cost about P / 5 gradients

    def __call__(self, iteration: int, point: Point) -> Factor | None:
        """A score's own, or the whole Hessian where that is small; None: the last one will do."""
        far, moments = self.watch.miss > 3 * self.watch.tol, self.start.moments
        if affords_newton(self.objective) and iteration >= self.whole_due:
            self.whole_due *= 2
            if far:
                self.watch.exact = True
                self.watch.factor = newton_factor(self.objective, point.theta)
                return self.watch.factor
        if iteration >= self.means_due and far:
            self.means_due = np.inf
            if by_means := class_means(moments, self.objective, self.objective, point.theta):
                self.watch.factor, self.watch.ahead = by_means, _AHEAD_BY_MEANS
                return by_means
        if not self.watch.exact and iteration >= self.class_due and moments.holds_per_class(self.objective):
            self.class_gap *= 1 if point.value < _FALLEN * self.fallen_from else 2
            self.class_due, self.fallen_from = iteration + self.class_gap, point.value
            if far:
                self.legacy.slow = True
                self.watch.factor = moments.per_class(self.objective, point.theta, rows_a_factor(self.objective))
                return self.watch.factor
        return None

    def for_proof(self, point: Point, iterations: int) -> Factor | None:
        """A score's own at this point, where that costs a tenth of the way here.

        What a long way has learned is of points long past: the Hessian it preconditions had eigenvalues from 1e-7 to
        1e10 on 191 rows of 180 classes, the gradient none of the small ones, and three products "proved" what was 3 tol
        above the optimum. With the factors of the point itself they reach from 1e-4 to 2.
        """
        o, moments = self.objective, self.start.moments
        if not moments.holds_per_class(o) or moments.cost_per_class(o, rows_a_factor(o)) > _PROOF_SHARE * iterations:
            return None
        return moments.per_class(o, point.theta, rows_a_factor(o))


@dataclass
class Watch:
    """Looks on: keeps the history, tells the caller, decides when to stop and what to say then."""

    objective: Objective
    control: Control
    tol: float
    history: list[float] = field(default_factory=list)
    miss: float = np.inf  # estimated relative excess over the optimum
    promised: float = np.inf  # fall of the objective that the last step's model saw ahead
    advice: str = ""
    finished: bool = False
    factor: Factor | None = None  # the latest
    exact: bool = False  # it is the inverse Hessian: what it promises is the excess
    proof_ahead: bool = False  # a proof follows, whatever is estimated
    ahead: float = _AHEAD
    steps_more: int = 0  # that may be taken for the promise to come far under tol, which spares or shortens a proof
    doubtful: bool = False  # steps more were slow: a proof follows

    def begin(self, point: Point) -> None:
        """The value before the first step."""
        self.history.append(point.value)

    def done(self, point: Point, promised: float, stuck: bool) -> bool:
        """Whether this step was the last."""
        self.history.append(point.value)
        iteration = len(self.history) - 1
        self.miss, self.promised = self._estimate(promised, stuck), promised
        if separated(self.objective, point.value):
            self.advice, self.miss = SEPARABLE, np.inf
            return True
        if stuck:
            self.advice = HIDDEN
            return True
        told = self.control.progress is not None and self.control.progress(iteration, point.value)
        told = self.control.diary.enter(iteration, point) or told
        if told or (self.control.validate is not None and self.control.validate(point.theta)):
            self.finished = True
            return True
        due = self.proof_ahead and self.ahead * promised <= self.tol * self.scale(point.value)
        return due or self._near_enough() or iteration >= self.control.max_iter

    def more(self, steps: Iterator[Step]) -> Iterator[Point]:
        """Where the next steps lead, for as many as there were."""
        most = min(len(self.history) + SAMPLE_STEPS, self.control.max_iter - len(self.history))
        for step in itertools.islice(steps, max(0, most)):
            self.done(step.point, step.promised, step.stuck)
            if step.stuck or self.finished:
                return
            yield step.point

    def scale(self, value: float) -> float:
        """What tol is relative to."""
        return tol_scale(value, self.control.least)

    def enough(self, point: Point) -> float:
        """The excess over the optimum that tol allows."""
        return self.control.tol * self.scale(point.value)

    def _near_enough(self) -> bool:
        """Whether the excess is thought to be under tol, and a step more would hardly spare a proof or shorten it."""
        if self.miss > self.tol or self.clear or not self.steps_more:
            return self.miss <= self.tol
        self.steps_more -= 1
        self.doubtful = self.doubtful or not self._fast
        return False

    @property
    def _fast(self) -> bool:
        """Whether the last two steps fell by far less than the two before, as will the next: little is left to gain."""
        if len(self.history) < 5:
            return False
        first, middle, last = self.history[-5], self.history[-3], self.history[-1]
        return middle - last <= _FAST * (first - middle)

    @property
    def many(self) -> bool:
        """Whether rows are many: a proof would take as long as a third of the iterations on 60,000 images."""
        return self.objective.n >= MANY_ROWS * self.objective.d and not affordable(self.objective, MOST_PROOF)

    @property
    def clear(self) -> bool:
        """Whether rows are many and the promise is far under tol: there the estimate was never short of the excess."""
        limit = self.control.tol * self.scale(self.history[-1])
        return self.many and SHORT * self.promised <= limit and self.miss <= self.control.tol

    @property
    def trusted(self) -> bool:
        """Whether the descent ended because it thought itself at the optimum."""
        return not self.finished and self.advice != SEPARABLE and len(self.history) <= self.control.max_iter

    def solution(self, point: Point) -> Solution:
        """What to hand back."""
        near = self.finished or self.miss <= self.control.tol
        advice = "" if near else self.advice or "raise max_iter, or tol, or scale the features"
        return Solution(point.theta, len(self.history) - 1, near, self.miss, self.history, advice, False, point.value)

    def _estimate(self, promised: float, stuck: bool) -> float:
        """Gain of the last third of the iterations, relative to the objective."""
        value, iteration = self.history[-1], len(self.history) - 1
        scale = self.scale(value)
        window = iteration // 3 + 1
        if stuck:  # what a far preconditioner promises is no excess that anybody could gain
            gained = self.history[max(0, iteration - window)] - value
            return max(min(promised, gained) / scale, loss_rounding(self.objective.X.dtype)) if value > 0 else 0.0
        gain = max(self.history[-1 - window] - value, promised) if iteration >= window else np.inf
        return min(gain, 4 * promised if self.exact else np.inf) / scale
