"""Accelerated proximal Newton: minimise smooth(theta) + lasso ||W||_1, with exact zeros; the bias is free.

    step      u = argmin of a local model of the smooth part + lasso ||u||_1     (preconditioners/local_models.py)
    momentum  look = u + (t - 1) / t' (u - last), t' = (1 + sqrt(1 + 4 t^2)) / 2, t back to 1 when it points uphill
    shift     of all classes' weights of a feature by their median, where that changes no loss: models of one class at
              a time find it slowly, and stopped at 3.5 times the tolerance for it (8,000 rows of 10 classes)

Only `look` is evaluated: one pass over the rows an iteration. A look above the best value seen takes the run back to
that best point, without momentum and with a stiffer model. So the best value never rises, for convex losses and others
alike.

It ends when an estimate of the excess is under tol and, where the problem is too large for a proof by Newton's method,
a bound is, too (newton/lasso_bound.py); one that is not is tried again after half as many iterations more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import single_blas
from kway.linear.objective.distinct_rows import condensed
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.newton.decrement import provable
from kway.linear.solvers.newton.lasso_bound import lasso_excess
from kway.linear.solvers.newton.newton import MOST_PROOF, affordable
from kway.linear.solvers.point import Point
from kway.linear.solvers.preconditioners.local_models import LocalModel, LocalModels, ModelMinimum
from kway.linear.solvers.shards.diary import NO_DIARY
from kway.linear.solvers.shards.step_files import kept_steps
from kway.linear.solvers.stopping import tol_scale

_REFRESH = (3, 10, 30, 90, 270, 810)  # iterations that rebuild the model: early ones move the curvature most
# caution in `ProximalRun.excess`: on ill-conditioned problems either estimate alone falls short
PROMISE, TAIL = 10.0, 3.0
_LATELY = 4  # estimates that must agree, or a third of all: a single one is short of the excess now and then
_LATER = 1.5  # a bound above tol is tried again after so many times the iterations: a tenth of their time
_BELIEVED, _TRIES = 1e-2, 3  # of tol: estimates of half of the way that are believed where so many bounds were too high
_KINKS = 10.0  # how short estimates may be of a rounded hinge, whose slopes change at its kinks alone
STIFFER = 1.5  # growth of the model's scale after a step that rose
LAST_WIDTH = 1e-4  # of a rounded hinge


@dataclass(frozen=True)
class Proximal:
    """L1 and elastic net for every loss that is smooth or can be smoothed."""

    name: ClassVar[str] = "proximal"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.smooth", "loss.optimum"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """From theta to an optimum; a hinge is rounded over a width that shrinks until it does not matter."""
        with single_blas(), kept_steps(objective, control, self.name, remembered=1) as kept:
            if not np.any(theta[:, :-1]):
                theta = bias_alone(objective, theta, control)
            if objective.loss.smooth:
                proves = provable(objective) and not affordable(objective, MOST_PROOF)  # where Newton's method will
                doubt = _KINKS if objective.loss.rounded and not proves else 1.0
                return ProximalRun(objective, kept, doubt=doubt, proves=proves).go(theta)
            return _through_smoothed(objective, theta, kept)


@dataclass
class ProximalRun:
    """One minimisation."""

    objective: Objective
    control: Control
    history: list[float] = field(default_factory=list)
    promised: float = np.inf  # by how much the last model promised to fall
    estimates: list[float] = field(default_factory=list)  # of the excess, an iteration
    doubt: float = 1.0  # how short they may be of it
    proves: bool = False  # whether they are held against a bound
    due: int = 0  # the iteration of the next one
    tries: int = 0  # how many there were
    bound: float = np.inf  # of the excess at the end

    def go(self, theta: NDArray) -> Solution:
        """Iterate to the tolerance, or to as far as the number format goes."""
        control = self.control
        best = self._begin(theta)
        models = LocalModels(self.objective.some(self.objective.n), control.rng)
        model = models.at(best)
        scale, inertia, last, here = model.start, 1.0, best.theta, best
        first = len(self.history) + 1
        for iteration in range(first, max(first, control.max_iter) + 1):
            if iteration in _REFRESH:
                model = models.at(best)
                scale, inertia, last, here = model.start, 1.0, best.theta, best
            step = self._stepped(model, here, scale)
            self.promised = step.promised * max(1.0, scale / model.start)  # a stiffer model promises less
            self.estimates.append(self.excess())
            self.history.append(best.total)
            stop = control.progress is not None and control.progress(iteration, best.total)
            stop = control.diary.enter(iteration - 1, best) or stop
            stop = stop or (control.validate is not None and control.validate(step.theta))
            if stop or self.close(best, step.theta, model):
                return self.land(best, step.theta, iteration, True)
            if float(np.vdot(here.theta - step.theta, step.theta - last)) > 0:
                inertia = 1.0
            ahead = (1 + np.sqrt(1 + 4 * inertia * inertia)) / 2
            look = self.objective.shifted(step.theta + theta.dtype.type((inertia - 1) / ahead) * (step.theta - last))
            plain = inertia == 1.0
            inertia, last, here = ahead, step.theta, Point.at(self.objective, look)
            if here.total <= best.total:
                best, scale = here, max(model.start, 0.9 * scale)
                continue
            if plain and self.promised <= self.rounding(best):
                return self._at_rounding(best, step.theta, iteration, model)
            scale *= STIFFER
            inertia, last, here = 1.0, best.theta, best
        if not self.proves:
            return self.land(best, step.theta, control.max_iter, False)
        return self._at_rounding(best, step.theta, control.max_iter, model)

    def _begin(self, theta: NDArray) -> Point:
        """theta's point, or the best of an earlier run, whose last iteration is done again."""
        trail = self.control.diary.trail(self.objective)
        if not trail.points:
            return Point.at(self.objective, theta)
        self.history = trail.history[:-1]
        return trail.points[-1]

    def _stepped(self, model: LocalModel, here: Point, scale: float) -> ModelMinimum:
        """The model's step, shifted."""
        penalty = self.objective.penalty
        new, promised = model.step(here.theta, here.gradient, scale, penalty)
        shifted = self.objective.shifted(new)
        return ModelMinimum(shifted, promised + penalty.value(new[:, :-1]) - penalty.value(shifted[:, :-1]))

    def rounding(self, best: Point) -> float:
        """Changes of the objective below this are noise."""
        return 4 * float(np.finfo(best.theta.dtype).eps) * abs(best.total)

    def close(self, best: Point, last: NDArray, model: LocalModel) -> bool:
        """Whether the excess over the optimum is under the tolerance: by proof, or by estimates that have none."""
        limit = self.control.tol * tol_scale(best.total)
        if duality_gap(self.objective, best) <= limit:
            return True
        iteration = len(self.estimates)
        if not self.proves:
            return self.doubt * max(self.estimates[-max(_LATELY, iteration // 3) :]) <= limit
        if self.estimates[-1] <= limit and iteration >= self.due:
            self.due, self.tries = int(_LATER * iteration) + 1, self.tries + 1
            self._bind(self._end(best, last), model)
        believed = self.tries > _TRIES and max(self.estimates[-(iteration // 2) :]) <= _BELIEVED * limit
        return self.bound <= limit or (believed and self.rounding(best) <= _BELIEVED * limit)

    def _at_rounding(self, best: Point, last: NDArray, iteration: int, model: LocalModel) -> Solution:
        """Where the number format hides what is left: the end, which only a bound can say is near."""
        if self.proves:
            self._bind(self._end(best, last), model)
        limit = self.control.tol * tol_scale(best.total)
        return self.land(best, last, iteration, (self.bound if self.proves else self.rounding(best)) <= limit)

    def _bind(self, end: Point, model: LocalModel) -> None:
        """Bound the excess of where it would end."""
        o = self.objective
        limit = self.control.tol * tol_scale(end.total)
        self.bound = lasso_excess(o, end, lambda free: model.among(free, o.penalty.ridge), limit)

    def excess(self) -> float:
        """Estimate: what the model promises, and the tail of the past decreases taken as a geometric series."""
        m = max(4, len(self.history) // 6)
        if len(self.history) <= 2 * m:
            return np.inf
        before, between, now = self.history[-2 * m - 1], self.history[-m - 1], self.history[-1]
        ratio = min(0.99, (between - now) / max(before - between, 1e-300))
        return max(PROMISE * self.promised, TAIL * (between - now) * ratio / (1 - ratio))

    def land(self, best: Point, last: NDArray, iteration: int, converged: bool) -> Solution:
        """The last step if it is as good as the best point: its zeros are those of soft thresholding."""
        end = self._end(best, last)
        gap = min(duality_gap(self.objective, end), duality_gap(self.objective, best))  # end is no worse than best
        proved = self.bound <= self.control.tol * tol_scale(end.total)
        miss = max(0.0, self.bound if proved else min(self.bound, gap, self.excess())) / tol_scale(end.total)
        advice = "" if converged else "raise max_iter, or scale the features to a common range"
        history = [*self.history, end.total]
        return Solution(end.theta, iteration, converged, miss, history, advice, proved, end.total)

    def _end(self, best: Point, last: NDArray) -> Point:
        """The last step, or the best point where that is worse."""
        end = Point.at(self.objective, last)
        return best if end.total > best.total + self.rounding(best) else end


def duality_gap(objective: Objective, point: Point) -> float:
    """Upper bound on the excess of a convex objective at point, the bias taken to move by its own size at most.

    Fenchel: with a_i the loss's gradient in the scores, s in [0, 1] and g = sum_i a_i x_i / n, no W does better than
    s (L - g.W) - R*(s g), since loss*(s a) <= s loss*(a) where loss >= 0. Its R*(v) = sum_j max(|v_j| - lasso, 0)^2 /
    (2 ridge); without a ridge it is 0 while |v_j| <= lasso everywhere, which s sees to.
    """
    ridge, lasso = objective.penalty.ridge, objective.penalty.lasso
    if not objective.loss.convex:
        return np.inf
    W = point.theta[:, :-1].astype(np.float64)
    loss = point.value - Penalty(ridge).value(W)
    g = point.gradient[:, :-1].astype(np.float64) - ridge * W
    support = loss - float(np.vdot(g, W))
    shrink = min(1.0, lasso / max(float(np.abs(g).max()), 1e-300))
    lower = shrink * support
    if ridge:
        lower = max(lower, support - float(np.square(np.maximum(np.abs(g) - lasso, 0)).sum()) / (2 * ridge))
    reach = 1 + objective.loss.margin + 2 * float(np.abs(point.theta[:, -1]).max())
    return point.total - lower + reach * float(np.abs(point.gradient[:, -1]).sum())


def bias_alone(objective: Objective, theta: NDArray, control: Control) -> NDArray:
    """theta with W = 0 and the bias that is best there: above the critical lasso it is the solution."""
    theta, objective = theta.copy(), objective.some(objective.n)
    if objective.fit_intercept:
        blank = condensed(replace(objective, X=np.zeros((objective.n, 1), theta.dtype), penalty=Penalty()))
        start = np.zeros((objective.n_scores, 2), theta.dtype)
        start[:, 1] = theta[:, -1]
        if objective.loss.smooth:
            quiet = replace(control, tol=1e-12, max_iter=50, progress=None, validate=None, diary=NO_DIARY)
            theta[:, -1] = ProximalRun(blank, quiet).go(start).theta[:, -1]
    return theta


def _through_smoothed(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """Rounded over 1, 1/4, 1/16, ...: each solution starts the next, until rounding costs under half the tolerance."""
    width, used = 1.0, 0
    history: list[float] = []
    while True:
        diary = control.diary.chapter(width)
        left = replace(control, tol=control.tol / 2, max_iter=max(1, control.max_iter - used), diary=diary)
        rounded = objective.with_loss(objective.loss.smoothed(width))
        found = diary.ended() or ProximalRun(rounded, left).go(theta)
        diary.end(found)
        theta, used, history = found.theta, used + found.n_iter, history + found.history
        lift = objective.loss.lift(width, objective.n_scores) / tol_scale(history[-1])
        if lift <= control.tol / 2 or width <= LAST_WIDTH or used >= control.max_iter:
            return replace(found, n_iter=used, history=history, miss=found.miss + lift, value=None)
        width /= 4
