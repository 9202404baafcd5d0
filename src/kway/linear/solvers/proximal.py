"""Accelerated proximal Newton: minimize smooth(theta) + lasso ||W||_1, with exact zeros; the bias has no penalty.

    step      u = argmin of a local model of the smooth part + lasso ||u||_1     (local_models.py)
    momentum  look = u + (t - 1) / t' (u - last), t' = (1 + sqrt(1 + 4 t^2)) / 2; t is reset to 1 if it points uphill
    shift     of all classes' weights of a feature by their median if that changes no loss: models of one class at a
              time find it slowly

Only `look` is evaluated: one pass over the rows per iteration. If its value is above the best one, the run returns to
the best point, without momentum and with a stiffer model. So the best value never rises.

A run ends when an estimate of the excess and then a bound of it (certificates.py) are under tol. If the bound is not,
it is computed again after half as many iterations more. Small problems on which steps are slow are finished by
interior points.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.linear.equivalent import merge_equal_rows
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import MOST_WORK, NEAR, SLOW, Control, Point, Solution, is_small
from kway.linear.solvers.certificates import (
    duality_gap,
    has_decrement,
    has_gap,
    lasso_decrement,
    recent_gain,
    tol_scale,
)
from kway.linear.solvers.interior_point import is_small_with_kinks, solve_lasso, solve_small
from kway.linear.solvers.local_models import LocalModel, LocalModels, ModelMinimum
from kway.linear.solvers.smoothing import solve_smoothed
from kway.rows.passes import wrap_rows
from kway.threads import single_blas

_REBUILD = 5  # the iteration of the first new model, and the factor to the next: early steps move curvature most (T4c)
STIFFER = 1.5  # growth of the model's scale after a step that rose


@dataclass(frozen=True)
class Proximal:
    """L1 and elastic net for every loss that is smooth or can be smoothed."""

    name: ClassVar[str] = "proximal"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.smooth", "loss.optimum"})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """From theta to an optimum; a hinge is rounded over a width that shrinks until it does not matter."""
        with single_blas():
            if is_small_with_kinks(objective):
                return solve_small(objective, control)
            if not np.any(theta[:, :-1]):
                theta = bias_alone(objective, theta, control)
            if not objective.loss.smooth:
                return solve_smoothed(objective, theta, control, _minimize_smooth)
            if objective.penalty.lasso and is_small(objective, MOST_WORK):
                return _steps_then_interior_points(objective, theta, control)
            return ProximalRun(objective, control).go(theta)


@dataclass
class ProximalRun:
    """One minimization."""

    objective: Objective
    control: Control
    history: list[float] = field(default_factory=list)
    excess: float = np.inf  # bound of F above its minimum at the end, or an estimate if there is no proof
    proved: bool = False
    next_proof: int = 0  # iteration before which none is tried

    def go(self, theta: NDArray) -> Solution:
        """Iterate to the tolerance, or to as far as the number format goes."""
        best = Point.at(self.objective, theta)
        models = LocalModels(self.objective.subsample(self.objective.n), self.control.rng)
        model = models.at(best)
        scale, inertia, last, here, due = model.start, 1.0, best.theta, best, _REBUILD
        for iteration in range(1, max(1, self.control.max_iter) + 1):
            if iteration == due:
                model, due = models.at(best), _REBUILD * due
                scale, inertia, last, here = model.start, 1.0, best.theta, best
            step = self._step(model, here, scale)
            self.history.append(best.total)
            if self._told_to_stop(iteration, best, step.theta):
                return self._end(self._last_or_best(best, step.theta), told=True)
            if self._is_near(best, step.promised * max(1.0, scale / model.start)):  # a stiffer model promises less
                end = self._last_or_best(best, step.theta)
                if self._is_proved(iteration, end, model):
                    return self._end(end)
            if float(np.vdot(here.theta - step.theta, step.theta - last)) > 0:
                inertia = 1.0
            ahead = (1 + np.sqrt(1 + 4 * inertia * inertia)) / 2
            look = self.objective.minimize_penalty_shift(
                step.theta + theta.dtype.type((inertia - 1) / ahead) * (step.theta - last)
            )
            plain = inertia == 1.0
            inertia, last, here = ahead, step.theta, Point.at(self.objective, look)
            if here.total <= best.total:
                best, scale = here, max(model.start, 0.9 * scale)
                continue
            if plain and step.promised <= self._rounding(best):
                self.excess = self._rounding(best)
                break
            scale *= STIFFER
            inertia, last, here = 1.0, best.theta, best
        end = self._last_or_best(best, step.theta)
        self._is_proved(iteration, end, model)
        return self._end(end)

    def _step(self, model: LocalModel, here: Point, scale: float) -> ModelMinimum:
        """Return the model's step, shifted."""
        penalty = self.objective.penalty
        new, promised = model.step(here.theta, here.gradient, scale, penalty)
        shifted = self.objective.minimize_penalty_shift(new)
        return ModelMinimum(shifted, promised + penalty.value(new[:, :-1]) - penalty.value(shifted[:, :-1]))

    def _is_near(self, best: Point, promised: float) -> bool:
        """Return whether little seems left to gain: by the model, and by the last third of the iterations."""
        self.excess, self.proved = max(NEAR * promised, recent_gain(self.history)), False
        return self.excess <= self._enough(best) and len(self.history) >= self.next_proof

    def _is_proved(self, iteration: int, end: Point, model: LocalModel) -> bool:
        """Return whether the excess at the end is bounded by tol; without a proof the estimate is believed."""
        o, bound, enough = self.objective, duality_gap(self.objective, end), self._enough(end)
        if has_decrement(o) and bound > enough:
            bound = min(bound, lasso_decrement(o, end, lambda free: model.inverse(o.penalty, free), enough))
        elif not has_gap(o) and not has_decrement(o):
            return True
        self.excess, self.proved = bound, True
        self.next_proof = iteration + iteration // 2  # a third of the time at most
        return bound <= enough

    def _enough(self, point: Point) -> float:
        return self.control.tol * tol_scale(point.total, self.control.least)

    def _rounding(self, best: Point) -> float:
        """Return the change of the objective below which it is noise."""
        return 4 * float(np.finfo(best.theta.dtype).eps) * abs(best.total)

    def _told_to_stop(self, iteration: int, best: Point, theta: NDArray) -> bool:
        control = self.control
        told = control.progress is not None and control.progress(iteration, best.total)
        return told or (control.validate is not None and control.validate(theta))

    def _last_or_best(self, best: Point, last: NDArray) -> Point:
        """Return the last step if it is as good as the best point: its zeros are those of soft thresholding."""
        end = Point.at(self.objective, last)
        return best if end.total > best.total + self._rounding(best) else end

    def _end(self, end: Point, told: bool = False) -> Solution:
        miss = max(0.0, self.excess) / tol_scale(end.total, self.control.least)
        near = told or miss <= self.control.tol
        advice = "" if near else "raise max_iter, or scale the features to a common range"
        history = [*self.history, end.total]
        return Solution(end.theta, len(self.history), near, miss, history, advice, self.proved, end.total)


def _steps_then_interior_points(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """Minimize by proximal steps and, if they are slow, by interior points, which cost more but need few steps."""
    found = ProximalRun(objective, replace(control, max_iter=min(SLOW, control.max_iter))).go(theta)
    if found.converged or found.n_iter >= control.max_iter:
        return found
    end = solve_lasso(objective, found.theta, replace(control, max_iter=control.max_iter - found.n_iter))
    history = np.minimum.accumulate([*found.history, *end.history]).tolist()  # the best value so far
    return replace(end, n_iter=found.n_iter + end.n_iter, history=history)


def bias_alone(objective: Objective, theta: NDArray, control: Control) -> NDArray:
    """theta with W = 0 and the best bias for it: above the critical lasso it is the solution."""
    theta, objective = theta.copy(), objective.subsample(objective.n)
    if objective.fit_intercept:
        column = wrap_rows(np.zeros((objective.n, 1), theta.dtype))
        blank = merge_equal_rows(replace(objective, rows=column, penalty=Penalty()))
        start = np.zeros((objective.n_scores, 2), theta.dtype)
        start[:, 1] = theta[:, -1]
        if objective.loss.smooth:
            quiet = replace(control, tol=1e-12, max_iter=50, progress=None, validate=None)
            theta[:, -1] = ProximalRun(blank, quiet).go(start).theta[:, -1]
    return theta


def _minimize_smooth(objective: Objective, theta: NDArray, control: Control, *, prove: bool) -> Solution:
    """Minimize a smooth loss with an L1 part; every run ends with a proof if there is one."""
    return ProximalRun(objective, control).go(theta)
