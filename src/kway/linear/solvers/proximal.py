"""Accelerated proximal Newton: minimize smooth(theta) + lasso ||W||_1 with exact zeros; the bias has no penalty.

    step          u = argmin of a local model of the smooth part + lasso ||u||_1     (proximal_models.py)
    extrapolation ahead = u + (t - 1) / t' (u - previous u) with t' = (1 + sqrt(1 + 4 t^2)) / 2 (Nesterov's momentum);
                  t returns to 1 if the extrapolation points uphill
    shift         of all classes' weights of a feature by the row that minimizes the penalty, if that changes no loss.
                  Models of one class at a time would find it slowly

Only the extrapolated point is evaluated, with one pass over the rows per iteration. If its value is above the best one,
the run returns to the best point, without momentum and with a larger scale of the model. So the best value never rises.

A run ends if an estimate of the excess over the optimum, and then a bound of it (stopping.py), is below tol. If the
bound is not, it is computed again after half as many iterations more. Small problems on which steps are slow are
finished by interior points.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.linear.solvers.base import MAX_WORK, PROOF_FACTOR, SLOW_ITERATIONS, Control, Point, Solution, Solver, is_small
from kway.linear.solvers.interior_point import is_small_with_kinks, solve_lasso, solve_small
from kway.linear.solvers.proximal_models import LocalModel, LocalModels, ModelMinimum
from kway.linear.solvers.smoothing import solve_smoothed
from kway.linear.solvers.stopping import (
    duality_gap,
    has_decrement,
    has_gap,
    lasso_decrement,
    recent_gain,
    tol_scale,
)
from kway.threads import single_blas

# Iteration at which the model is built again, and the factor to the next such iteration. The curvature changes most in
# the early steps (decided by row T4c).
_REBUILD = 5
_SCALE_GROWTH = 1.5  # factor of the model's scale after a step that raised the value (decided by row T4c)


@dataclass(frozen=True)
class Proximal(Solver):
    """L1 and elastic net for every loss that is smooth or can be smoothed."""

    name: ClassVar[str] = "proximal"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.smooth", "loss.optimum"})
    standardizes: ClassVar[bool] = True
    stores_pairs: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Return the optimum, starting from theta; hinges are rounded over smaller and smaller widths."""
        with single_blas():
            if is_small_with_kinks(objective):
                return solve_small(objective, control)
            if not objective.loss.smooth:
                return solve_smoothed(objective, theta, control, _solve_rounded)
            if objective.penalty.lasso and is_small(objective, MAX_WORK):
                return _solve_with_interior_points(objective, theta, control)
            return ProximalRun(objective, control).go(theta)


@dataclass
class ProximalRun:
    """One minimization."""

    objective: Objective
    control: Control
    history: list[float] = field(default_factory=list)
    excess: float = np.inf  # bound of F minus its minimum if `proved`, else an estimate
    proved: bool = False
    next_proof: int = 0  # first iteration at which a bound is computed again

    def go(self, theta: NDArray) -> Solution:
        """Iterate until the excess is below tol, or until rounding hides any progress."""
        best = Point.at(self.objective, theta)
        models = LocalModels(self.objective.subsample(self.objective.n), self.control.rng)
        next_rebuild = 1
        for iteration in range(1, max(1, self.control.max_iter) + 1):
            if iteration >= next_rebuild:
                model = models.at(best)
                next_rebuild = _REBUILD * next_rebuild
                scale, t, previous, point = model.start_scale, 1.0, best.theta, best
            step = self._step(model, point, scale)
            self.history.append(best.total)
            if self.control.should_stop(iteration, best.total, step.theta):
                return self._end(self._last_or_best(best, step.theta), stopped=True)
            # a larger scale predicts a smaller decrease, which says nothing about the distance to the optimum
            if self._is_near(best, step.predicted_decrease * max(1.0, scale / model.start_scale)):
                end = self._last_or_best(best, step.theta)
                if self._is_proved(iteration, end, model):
                    return self._end(end)
            if float(np.vdot(point.theta - step.theta, step.theta - previous)) > 0:
                t = 1.0
            next_t = (1 + np.sqrt(1 + 4 * t * t)) / 2
            ahead = step.theta + theta.dtype.type((t - 1) / next_t) * (step.theta - previous)
            plain = t == 1.0  # whether the step was taken without momentum
            t, previous = next_t, step.theta
            point = Point.at(self.objective, self.objective.minimize_penalty_shift(ahead))
            if point.total <= best.total:
                best, scale = point, max(model.start_scale, 0.9 * scale)
                continue
            if plain and step.predicted_decrease <= self._rounding(best):
                self.excess = self._rounding(best)
                break
            scale *= _SCALE_GROWTH
            t, previous, point = 1.0, best.theta, best
        end = self._last_or_best(best, step.theta)
        self._is_proved(iteration, end, model)
        return self._end(end)

    def _step(self, model: LocalModel, point: Point, scale: float) -> ModelMinimum:
        """Return the minimum of the model after the shift that minimizes the penalty."""
        penalty = self.objective.penalty
        new, decrease = model.step(point.theta, point.gradient, scale, penalty)
        shifted = self.objective.minimize_penalty_shift(new)
        return ModelMinimum(shifted, decrease + penalty.value(new[:, :-1]) - penalty.value(shifted[:, :-1]))

    def _is_near(self, best: Point, predicted_decrease: float) -> bool:
        """Return whether the excess seems to be below tol, by the model and by the recent gain, and a bound is due."""
        self.excess = max(PROOF_FACTOR * predicted_decrease, recent_gain(self.history))
        self.proved = False
        return self.excess <= self._allowed_excess(best) and len(self.history) >= self.next_proof

    def _is_proved(self, iteration: int, end: Point, model: LocalModel) -> bool:
        """Return whether a bound of the excess is below tol; true if no bound exists for this loss and penalty."""
        o, allowed = self.objective, self._allowed_excess(end)
        bound = duality_gap(o, end)
        if has_decrement(o) and bound > allowed:
            bound = min(bound, lasso_decrement(o, end, lambda free: model.inverse(o.penalty, free), allowed))
        elif not has_gap(o) and not has_decrement(o):
            return True
        self.excess, self.proved = bound, True
        self.next_proof = iteration + iteration // 2  # so that bounds take at most a third of the time
        return bound <= allowed

    def _allowed_excess(self, point: Point) -> float:
        """Return the excess over the optimum that tol allows."""
        return self.control.tol * tol_scale(point.total, self.control.min_scale)

    def _rounding(self, best: Point) -> float:
        """Return the rounding error of the difference of two objectives: a few eps of the float type."""
        return 4 * float(np.finfo(best.theta.dtype).eps) * abs(best.total)

    def _last_or_best(self, best: Point, last: NDArray) -> Point:
        """Return the last step if it is as good as the best point, because only steps have exact zeros."""
        end = Point.at(self.objective, last)
        return best if end.total > best.total + self._rounding(best) else end

    def _end(self, end: Point, stopped: bool = False) -> Solution:
        rel_excess = max(0.0, self.excess) / tol_scale(end.total, self.control.min_scale)
        converged = stopped or rel_excess <= self.control.tol
        advice = "" if converged else "raise max_iter, or scale the features to a common range"
        history = [*self.history, end.total]
        return Solution(
            end.theta, len(self.history), converged, rel_excess, history, advice, proved=self.proved, value=end.total
        )


def _solve_with_interior_points(objective: Objective, theta: NDArray, control: Control) -> Solution:
    """Minimize by proximal steps and, if they are slow, by interior points, which cost more but need few steps."""
    steps = ProximalRun(objective, replace(control, max_iter=min(SLOW_ITERATIONS, control.max_iter))).go(theta)
    if steps.converged or steps.n_iter >= control.max_iter:
        return steps
    end = solve_lasso(objective, steps.theta, replace(control, max_iter=control.max_iter - steps.n_iter))
    history = np.minimum.accumulate([*steps.history, *end.history]).tolist()  # the best value so far
    return replace(end, n_iter=steps.n_iter + end.n_iter, history=history)


def _solve_rounded(objective: Objective, theta: NDArray, control: Control, *, prove: bool) -> Solution:
    """Minimize a rounded hinge with an L1 part; every run ends with a bound, so that `prove` has no effect."""
    return ProximalRun(objective, control).go(theta)
