"""Accelerated proximal Newton: minimize smooth(theta) + lasso ||W||_1 with exact zeros; the bias has no penalty.

    step          u = argmin of a local model of the smooth part + lasso ||u||_1     (below)
    extrapolation ahead = u + (t - 1) / t' (u - previous u) with t' = (1 + sqrt(1 + 4 t^2)) / 2 (Nesterov's momentum);
                  t returns to 1 if the extrapolation points uphill
    shift         of all classes' weights of a feature by the row that minimizes the penalty, if that changes no loss.
                  Models of one class at a time would find it slowly

Only the extrapolated point is evaluated, with one pass over the rows per iteration. If its value is above the best one,
the run returns to the best point, without momentum and with a larger scale of the model. So the best value never rises.

A run ends if an estimate of the excess over the optimum, and then a bound of it (stopping.py), is below tol. If the
bound is not, it is computed again after half as many iterations more. Small problems on which steps are slow are
finished by interior points.

A local model of the mean loss has one block per score:

    model of score k:  g_k.(u - v) + scale / 2 (u - v)' M_k (u - v) + penalty of u

    GramModel      M_k = [X 1]' diag(h_k) [X 1] / n with the curvature h_k (n,) of the loss in score k. The model is
                   minimized by coordinate descent
    DiagonalModel  the diagonals of these matrices, if the rows are sparse or the matrices would be too large. The
                   minimizer is a soft threshold of each weight

v (D,) are the weights and the bias of the score at the current point, g_k (D,) the gradient there; D is d + 1, or d
without a bias. If there are many rows, M_k is estimated from a sample, drawn in proportion to the curvature.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.linear.coordinate import minimize_model
from kway.linear.losses import Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import MAX_WORK, PROOF_FACTOR, SLOW_ITERATIONS, Control, Point, Solution, Solver, is_small
from kway.linear.solvers.interior_point import is_small_with_kinks, solve_lasso, solve_small
from kway.linear.solvers.preconditioners import (
    Factor,
    mirrored,
    plain_mass,
    quick_moments,
    safe_inverse,
    sample_rows,
    sampled_gram,
)
from kway.linear.solvers.smoothing import solve_smoothed
from kway.linear.solvers.stopping import (
    duality_gap,
    has_decrement,
    has_gap,
    lasso_decrement,
    recent_gain,
    tol_scale,
)
from kway.planning.costs import MAX_FACTOR_BYTES, MAX_FACTOR_FEATURES
from kway.rows.matrices import largest_eigenvalue
from kway.threads import pmap, single_blas
from kway.validation import Rows

# Iteration at which the model is built again, and the factor to the next such iteration. The curvature changes most in
# the early steps (decided by row T4c).
_REBUILD = 5
_SCALE_GROWTH = 1.5  # factor of the model's scale after a step that raised the value (decided by row T4c)
JITTER = 1e-4  # relative increase of the diagonal that keeps a float32 Gram matrix positive definite (test_proximal.py)
# Coordinate descent over a model makes at most this number of sweeps, and ends if a sweep changes less than this share
# of the first one. A model is only an approximation, so that its exact minimum is not worth more sweeps (row T4c).
MAX_SWEEPS = 20
_SWEEP_TOL = 1e-4


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


# ---------------------------------------------------------------- the local models


class ModelMinimum(NamedTuple):
    """The minimizer (R, d + 1) of a model including the penalty, and the decrease that the model predicts."""

    theta: NDArray
    predicted_decrease: float


@dataclass(frozen=True)
class GramModel:
    """One symmetric matrix M_k (D, D) per score."""

    blocks: list[NDArray]
    start_scale: float  # at which the model is expected to be an upper bound of the mean loss

    def step(self, theta: NDArray, gradient: NDArray, scale: float, penalty: Penalty) -> ModelMinimum:
        """Minimize the model by coordinate descent, one score per task.

        The gradient and the penalties are divided by `scale` instead of multiplying the matrices.
        """
        D, d, real = len(self.blocks[0]), theta.shape[1] - 1, theta.dtype.type
        slopes = gradient[:, :D] / real(scale)
        ridges = penalty.ridges(d, bias=d < D).astype(theta.dtype) / real(scale)
        lassos = penalty.lassos(d, bias=d < D).astype(theta.dtype) / real(scale)

        def minimize(k: int) -> tuple[NDArray, float]:
            start = theta[k, :D].copy()
            return minimize_model(self.blocks[k], slopes[k].copy(), start, ridges, lassos, MAX_SWEEPS, real(_SWEEP_TOL))

        minima, new = pmap(minimize, range(len(theta))), theta.copy()
        for k, (weights, _) in enumerate(minima):
            new[k, :D] = weights
        return ModelMinimum(new, scale * sum(decrease for _, decrease in minima))

    def inverse(self, penalty: Penalty, free: NDArray[np.bool_]) -> Factor:
        """Return one inverse per score, restricted to its free weights."""
        D, d = len(self.blocks[0]), free.shape[1] - 1
        ridges = penalty.ridges(d, bias=d < D)
        free_columns = [np.flatnonzero(row[:D]) for row in free]

        def invert_block(k: int) -> NDArray:
            columns = free_columns[k]
            block = np.asfortranarray(self.blocks[k][np.ix_(columns, columns)])
            return mirrored(safe_inverse(block, ridges[columns]))

        inverses = pmap(invert_block, range(len(free_columns)))

        def apply(gradient: NDArray) -> NDArray:
            out = np.zeros_like(gradient)
            for k, columns in enumerate(free_columns):
                out[k, columns] = inverses[k] @ gradient[k, columns]
            return out

        return apply


@dataclass(frozen=True)
class DiagonalModel:
    """One positive curvature per weight and bias, (R, d + 1)."""

    diagonal: NDArray
    start_scale: float

    def step(self, theta: NDArray, gradient: NDArray, scale: float, penalty: Penalty) -> ModelMinimum:
        """Minimize the model by one soft threshold per weight."""
        d, dtype = theta.shape[1] - 1, theta.dtype
        curvatures = self.diagonal * dtype.type(scale) + penalty.ridges(d, bias=True).astype(dtype)
        new, decreases = soft_thresholds(theta, gradient, curvatures, penalty.lassos(d, bias=True).astype(dtype))
        return ModelMinimum(new, float(decreases.sum()))

    def inverse(self, penalty: Penalty, free: NDArray[np.bool_]) -> Factor:
        """Return the division by the curvature of each free weight."""
        ridges = penalty.ridges(free.shape[1] - 1, bias=True)
        curvatures = (self.diagonal + ridges).astype(self.diagonal.dtype)
        return lambda gradient: np.where(free, gradient / curvatures, 0)


LocalModel = GramModel | DiagonalModel


def soft_thresholds(
    theta: NDArray, gradient: NDArray, curvatures: NDArray, lassos: NDArray | np.floating
) -> tuple[NDArray, NDArray[np.float64]]:
    """Minimize gradient (u - theta) + curvature / 2 (u - theta)^2 + lasso |u| for each entry.

    Return the minimizers and the decreases.
    """
    new = theta - gradient / curvatures
    new = np.sign(new) * np.maximum(np.abs(new) - lassos / curvatures, 0)
    step = (new - theta).astype(np.float64)
    return new, -(gradient + curvatures * step / 2) * step + lassos * (np.abs(theta) - np.abs(new))


@dataclass
class LocalModels:
    """Builds the models of one run. They share the unweighted Gram matrix, and each is built from more rows."""

    objective: Objective
    rng: np.random.Generator
    n_built: int = 0

    def at(self, point: Point) -> LocalModel:
        """Return a model at a point: Gram matrices if they are affordable, else their diagonals."""
        self.n_built += 1
        o, D, theta = self.objective, self.objective.d + 1, point.theta
        if sp.issparse(o.X) or D > MAX_FACTOR_FEATURES or o.n_scores * D * D * o.rows.dtype.itemsize > MAX_FACTOR_BYTES:
            return _diagonal_model(o, o.curvatures(theta), self.squares, self.rng)
        if not np.any(theta[:, :-1]) and o.loss.label_free_curvature:  # all rows have the same curvature
            h = o.loss.curvatures(theta[:, -1][None], Targets(np.zeros(1, np.int64)))[0]  # (R,)
            return self._scaled_plain(np.maximum(h, h.dtype.type(1e-10)))
        h = o.curvatures(theta)  # (R, n)
        seeds = self.rng.integers(0, 2**63, o.n_scores)
        n_drawn = D * 2 ** max(0, self.n_built - 2) + 1000
        if 2 * n_drawn >= o.n and o.loss.label_free_curvature:  # other losses may have no curvature at most rows
            return self._gram_model(pmap(lambda k: self._exact_block(h[k]), range(o.n_scores)))
        squares, mass = _diagonals(o, h), plain_mass(h)
        return self._gram_model(
            pmap(lambda k: self._sampled_block(h[k], squares[k], mass[k], n_drawn, int(seeds[k])), range(o.n_scores))
        )

    @cached_property
    def plain(self) -> NDArray:
        """Return [X 1]' diag(sample weights) [X 1] / n (D, D), estimated from a sample if there are many rows.

        Only the upper triangle is valid.
        """
        gram = quick_moments(self.objective, sample_rows(self.objective)).gram
        return np.asfortranarray(gram, self.objective.X.dtype)

    @cached_property
    def squares(self) -> NDArray:
        """Return the mean square of each feature, and 1 for the bias, (d + 1,)."""
        squares = self.objective.mean_squares().ravel()
        return np.append(squares, squares.dtype.type(1))

    def _scaled_plain(self, h: NDArray) -> GramModel:
        """Return the plain matrix multiplied by one curvature per score (R,)."""
        plain = mirrored(self.plain)
        return self._gram_model(pmap(lambda curvature: self._regularized(plain * curvature), h))

    def _exact_block(self, h: NDArray) -> NDArray:
        """Return the matrix of a score with curvatures h (n,), from all rows."""
        o = self.objective
        return self._regularized(mirrored(o.rows.gram(h, o.fit_intercept, o.rows.dtype)))

    def _sampled_block(self, h: NDArray, squares: NDArray, mass: float, n_drawn: int, seed: int) -> NDArray:
        """Return the matrix of a score from about `n_drawn` rows, drawn in proportion to h (n,).

        `mass` times the plain matrix is added. The diagonal is at least `squares` (d + 1,), that of all rows, because a
        rare feature that the sample missed would otherwise get a huge step.
        """
        uniform = np.random.default_rng(seed).random(len(h))
        M = mirrored(sampled_gram(self.objective, h, n_drawn, uniform, self.plain, mass))
        i = np.arange(len(M))
        M[i, i] = np.maximum(squares[: len(M)], M[i, i])
        return self._regularized(M)

    def _regularized(self, M: NDArray) -> NDArray:
        """Return M in C order with its diagonal increased by JITTER, and more for features with almost no curvature."""
        i = np.arange(len(M))
        M[i, i] = _with_min_curvature(M[i, i], self.squares[: len(M)]) * (1 + JITTER)
        return M.T if M.flags.f_contiguous else np.ascontiguousarray(M)  # M is symmetric, so M.T is M in C order

    def _gram_model(self, blocks: list[NDArray]) -> GramModel:
        # blocks ignore the coupling of scores, so that the model of a coupled loss needs a larger scale to be a bound
        return GramModel(blocks, 1.2 if self.objective.loss.couples else 1.0)


def _with_min_curvature(diagonal: NDArray, squares: NDArray) -> NDArray:
    """Return a diagonal (..., D) of curvature times mean square, with the mean curvature for features with almost none.

    Curvatures are compared instead of entries, so that the result does not depend on the units of the features.
    """
    curvatures = diagonal / np.where(squares > 0, squares, 1)
    mean = curvatures[..., squares > 0].mean(axis=-1, keepdims=True)
    replacement = np.maximum(mean, 1e-10) * np.where(squares > 0, squares, 1)
    return np.where(curvatures > 1e-10 * mean, diagonal, replacement)


def _diagonals(objective: Objective, h: NDArray) -> NDArray:
    """Return mean_i h_ki x_ij^2 and, for the bias, mean_i h_ki, (R, d + 1)."""
    return np.hstack((objective.mean_squares(h), h.mean(axis=1, keepdims=True)))


def _diagonal_model(objective: Objective, h: NDArray, squares: NDArray, rng: np.random.Generator) -> DiagonalModel:
    """Return the diagonal model for curvatures h (R, n).

    Its scale is the largest ratio between the matrix of the score with the largest mean curvature and its diagonal,
    estimated on 2,000 rows, so that the model bounds the loss.
    """
    diagonal = _with_min_curvature(_diagonals(objective, h), squares)
    rows = np.sort(rng.permutation(objective.n)[:2000])
    k = int(np.argmax(h.mean(axis=1)))
    return DiagonalModel(diagonal, max(1.0, _largest_ratio(objective.X[rows], h[k, rows], diagonal[k, :-1], rng)))


def _largest_ratio(X: Rows, h: NDArray, diagonal: NDArray, rng: np.random.Generator) -> float:
    """Return the largest eigenvalue of D^-1/2 (X' diag(h) X / m) D^-1/2, with D = diag(diagonal) and m rows."""
    root, m = 1 / np.sqrt(diagonal), X.dtype.type(len(h))
    start = rng.standard_normal(len(diagonal)).astype(diagonal.dtype)
    return largest_eigenvalue(lambda v: root * (X.T @ (h * (X @ (root * v)))) / m, start)
