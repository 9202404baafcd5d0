"""Stopping criteria: the meaning of `tol`, and upper bounds of the distance to the optimum.

A fit may stop at theta if the relative excess of F(theta) over the optimum F* is at most tol:

    (F(theta) - F*) / tol_scale(F) <= tol,   tol_scale(F) = max(|F|, min_scale)

F* is unknown, so a solver that guarantees tol needs an upper bound of the excess F(theta) - F*. `bound_excess` returns
it, by one of two methods:

    Newton decrement   for losses with a known Hessian H: D times `largest_fall`, which is 1/2 if H changes slowly, with
                       D = g' H^-1 g and the gradient g. Small problems use the dense H (dense_hessian.py), others
                       conjugate gradients on Hessian-vector products. `lasso_decrement` is the bound for an L1 penalty
    duality gap        for hinges and any other convex loss with a penalty: the slopes of the losses give a lower bound
                       of F*. The part of unpenalized biases assumes a limit of their change (`bias_gap`)

An objective that is not convex has no such bound. Its solvers stop if the last third of the iterations gained less than
tol.

Boyd and Vandenberghe, Convex Optimization, 5.5 (duality gap) and 9.5 (decrement). Nocedal and Wright, Numerical
Optimization, 7.1 (Newton-CG).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigvalsh_tridiagonal

from kway.linear.objective import Objective, ObjectiveHessian
from kway.linear.solvers.base import Point, has_hessian, is_small, sample_size
from kway.linear.solvers.dense_hessian import DenseHessian, solve_positive
from kway.memory import BLOCK_BYTES, CACHE_BYTES, rows_per_block
from kway.rows.passes import QUICK
from kway.threads import pmap, spans

SEPARABLE = "the classes are separable and there is no penalty, so the weights grow forever; set alpha > 0"
ADVICE_DIVERGED = "lower learning_rate: the steps diverged"
ADVICE_WIDE_GAP = "raise max_iter or alpha, or scale the features to a common range"
ADVICE_ROUNDING = "rounding hides any further progress: scale the features, or pass float64"

# tol is relative to at least this share of the objective at theta = 0, because a smaller objective is mostly rounding
MIN_SCALE_SHARE = 1e-6
_MIN_SCALE_ROWS = 256  # rows from which that objective is estimated
_TINY = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)  # smallest number whose reciprocal is finite
# Hessian-vector products after which a decrement is given up, because steps of the descent cost less (row T4b)
_MAX_PRODUCTS = 40
# Safety factor of the smallest eigenvalue, which conjugate gradients overestimate. On random problems it is too large
# by far less than this factor (tests/attack/test_optimum.py).
_EIGENVALUE_SAFETY = 10.0
# Smallest change of a score in the bound of a Newton step. (exp(-u t) - 1 + u t) / u^2 loses all digits to rounding if
# u is much smaller. A larger u only increases the bound.
_MIN_SCORE_CHANGE = 1e-3
_MAX_ROUNDS = 4  # rounds in which zeros join the free weights of an L1 problem (row T4c)

Precondition = Callable[[NDArray], NDArray]


# ---------------------------------------------------------------- what tol means


def tol_scale(value: float, min_scale: float = 0.0) -> float:
    """Return the scale that tol is relative to: the objective, but at least `min_scale`, and never 0."""
    return max(abs(value), min_scale, _TINY)


def min_tol_scale(objective: Objective) -> float:
    """Return the `min_scale` of `tol_scale`: about a millionth of the objective at theta = 0.

    It is the unweighted mean loss of the first rows, because only its order of magnitude matters.
    """
    o = objective
    rows = slice(0, min(o.n, _MIN_SCALE_ROWS, rows_per_block(8 * o.n_scores, CACHE_BYTES)))
    losses, _ = o.loss.value_gradient(np.zeros((rows.stop, o.n_scores)), o.targets.of(rows))
    return MIN_SCALE_SHARE * float(losses.mean()) if len(losses) else 0.0


def separated(objective: Objective, value: float) -> bool:
    """Return whether no optimum exists because the classes are separable and there is no penalty.

    If the sum of the losses is below the loss of a single mistake, every row is classified correctly. Without a
    penalty, a larger theta then always has a smaller loss.
    """
    o = objective
    if o.penalty.ridge or o.penalty.lasso or o.targets.soft is not None or o.loss.min_error_loss is None:
        return False
    min_weight = 1.0 if o.weight is None else float(o.weight[o.weight > 0].min())
    return value * o.n < min_weight * o.loss.min_error_loss


def recent_gain(history: Sequence[float]) -> float:
    """Return the gain of the last third of the iterations, an estimate of the excess if no bound is available."""
    window = (len(history) - 1) // 3 + 1
    return history[-1 - window] - history[-1] if len(history) > window else np.inf


# ---------------------------------------------------------------- the Newton decrement


def has_decrement(objective: Objective) -> bool:
    """Return whether the Newton decrement bounds the excess: the Hessian and its rate of change are known."""
    known = has_hessian(objective) and objective.loss.hessian_change is not None
    return known and QUICK in objective.rows.offers


class NewtonStep(NamedTuple):
    """The Newton step as an ascent direction (R, d + 1), its slope D, and an upper bound of the excess."""

    direction: NDArray
    slope: float
    excess: float


def newton_step(objective: Objective, theta: NDArray, gradient: NDArray) -> NewtonStep:
    """Return the Newton step of a small problem by its dense Hessian; gradient has shape (R, d + 1)."""
    hessian = DenseHessian.at(objective, theta)
    n_columns, direction = hessian.Z.shape[1], np.zeros_like(gradient)
    direction[:, :n_columns] = hessian.solve(gradient[:, :n_columns].astype(np.float64))
    slope = max(0.0, _dot(gradient, direction))
    return NewtonStep(direction, slope, slope * largest_fall(objective, theta, direction))


def largest_fall(objective: Objective, theta: NDArray, direction: NDArray) -> float:
    """Return the largest possible fall of F along a Newton step, relative to its slope D; huge if there is no bound.

    At a fraction t of the step, the curvature of row i is at least exp(-u_i t) times its value at theta. u_i is the
    largest change of a score, or of the difference of two scores if classes couple. With the shares a_i of the
    curvature, F falls by at most

        D max_t (t - sum_i a_i (exp(-u_i t) - 1 + u_i t) / u_i^2),

    which is D / 2 if no u_i is large (Sun and Tran-Dinh, Generalized self-concordant functions, Mathematical
    Programming, 2019).

    Rows on the nodes of a cluster are represented by a sample.
    """
    objective = replace(objective, rows=objective.rows.sample())
    c = 1.0 if objective.loss.hessian_change is None else objective.loss.hessian_change  # if unknown, softmax's

    def part(rows: slice) -> NDArray:
        scores, targets = objective.scores(theta, rows).astype(np.float64), objective.targets.of(rows)
        moved = objective.scores(direction, rows).astype(np.float64)
        largest = np.abs(moved).max(axis=1)  # (m,)
        unit = moved / np.maximum(largest, _TINY)[:, None]
        curvature = np.einsum("ik,ik->i", objective.loss.hessian_product(scores, targets, unit), unit)
        curvature = np.maximum(curvature * np.square(largest), 0)
        curvature *= 1.0 if objective.weight is None else objective.weight[rows]
        return np.array([curvature, c * (np.ptp(moved, axis=1) if objective.loss.couples else largest)])

    size = rows_per_block(8 * objective.n_scores, CACHE_BYTES)
    curvature, u = np.hstack(pmap(part, spans(objective.n, size)))
    total = float(curvature.sum())
    return 0.5 if total == 0 else _largest_gain(curvature / total, np.maximum(u, _MIN_SCORE_CHANGE))


def _largest_gain(shares: NDArray, u: NDArray) -> float:
    """Return max_t (t - sum_i a_i (exp(-u_i t) - 1 + u_i t) / u_i^2) for shares a_i that add up to 1.

    The derivative is convex and falls, so Newton's method from t = 0 approaches its zero from below.
    """
    t = 0.0
    for _ in range(50):  # Newton steps; if the derivative has no zero, t grows and there is no bound
        decay = -np.expm1(-t * u)  # 1 - exp(-u t)
        slope = 1 - float(shares @ (decay / u))
        if slope <= 1e-6:
            return t - float(shares @ ((t * u - decay) / np.square(u)))
        t += slope / max(float(shares @ (1 - decay)), 1e-6)
    return 1 / _TINY


def decrement(objective: Objective, point: Point, precondition: Precondition, target: float = 0.0) -> NewtonStep:
    """Return the Newton step at a point, and an upper bound of the excess at this point.

    Parameters
    ----------
    objective : Objective
        An objective for which `has_decrement` is true.
    point : Point
        The point, with its gradient.
    precondition : callable
        An approximate inverse of the Hessian, for conjugate gradients.
    target : float
        The bound is not improved further once it is at most this large.
    """
    gradient = objective.center_scores(point.gradient)
    if is_small(objective):
        return newton_step(objective, point.theta, gradient)
    rows = _sample_by_curvature(objective, point.theta)
    hessian = rows.hessian_at(point.theta)
    return _conjugate_gradients(rows, hessian, point.theta, gradient, precondition, target)[0]


def lasso_decrement(
    objective: Objective, point: Point, precondition: Callable[[NDArray[np.bool_]], Precondition], target: float
) -> float:
    """Return an upper bound of the excess at a point w of F(u) = f(u) + lasso |u|_1, or a number above `target`.

    For any v with |v_j| <= lasso, F(u) >= G(u) = f(u) + v.u. If also v_j = lasso sign(w_j) for all nonzero weights,
    then F(w) = G(w), and the excess of the smooth G bounds that of F.

    The nonzero weights are `free`. x is the Newton step of G among the free weights. It is the Newton step of G among
    all weights if v of the zeros is chosen such that f'(w) + v = H x. A zero for which this v exceeds lasso joins the
    free weights, and the step is computed again.

    Parameters
    ----------
    objective, point, target
        The parameters of `decrement`.
    precondition : callable
        Maps free (R, d + 1) to an approximate inverse of the Hessian among the free weights, 0 for the others.
    """
    o, theta, g = objective, point.theta, point.gradient.astype(np.float64)
    lasso = o.penalty.lassos(o.d, bias=True)
    slack = 0.1 * target / tol_scale(point.total)  # |v| may exceed lasso by this share, which costs a tenth of tol
    free = (theta != 0) | (np.abs(g) > (1 + slack) * lasso)
    free[:, -1] = o.fit_intercept
    sign = np.where(theta != 0, np.sign(theta), -np.sign(g))
    rows = _sample_by_curvature(o, theta)
    hessian = rows.hessian_at(theta)
    for _ in range(_MAX_ROUNDS):
        slopes = np.where(free, g + lasso * sign, 0).astype(theta.dtype)
        step, residual = _conjugate_gradients(rows, hessian, theta, slopes, precondition(free), target)
        v = -residual - g  # v of the zeros
        steep = ~free & (np.abs(v) > (1 + slack) * lasso)
        steep[:, -1] = False
        if not steep.any() or step.excess > target:
            return step.excess + slack * point.total
        sign, free = np.where(steep, np.sign(v), sign), free | steep
    return np.inf


def _sample_by_curvature(objective: Objective, theta: NDArray) -> Objective:
    """Return the problem on a sample of its rows, drawn in proportion to their curvature, if it has many rows.

    The Hessian of the sample is within a small factor of that of all rows. Its inverse is too large on average, and
    therefore the bound as well.
    """
    size = sample_size(objective)
    if objective.rows.sample() is not objective.rows:  # the rows are on the nodes of a cluster
        return objective
    if objective.n <= 2 * size and 8 * objective.n * objective.n_scores <= BLOCK_BYTES:
        return objective
    mass = objective.curvatures(theta).sum(axis=0, dtype=np.float64)  # (n,), sample weights included
    chance = np.minimum(1.0, size * mass / max(float(mass.sum()), _TINY))
    drawn = np.flatnonzero(np.random.default_rng(0).random(objective.n) < chance)
    if len(drawn) < size // 2:
        return objective
    # a drawn row represents 1 / chance rows. The weights are relative to n, not to their own mean: a single row with a
    # small chance would otherwise dominate the others
    weight = (1.0 if objective.weight is None else objective.weight[drawn]) / chance[drawn]
    return replace(objective.take(drawn), weight=(weight * (len(drawn) / objective.n)).astype(theta.dtype))


@np.errstate(over="ignore", invalid="ignore")  # a direction without curvature: steps grow until the bound is infinite
def _conjugate_gradients(
    objective: Objective,
    hessian: ObjectiveHessian,
    theta: NDArray,
    gradient: NDArray,
    precondition: Precondition,
    target: float,
) -> tuple[NewtonStep, NDArray]:
    """Return the Newton step x by conjugate gradients, and the residual r = g - H x.

    Each iteration needs one product H v, which is about as expensive as a gradient. After some iterations, D is too
    small by r' H^-1 r. This is at most r' M r divided by the smallest eigenvalue of the preconditioned Hessian M H. The
    coefficients of the method estimate that eigenvalue (Lanczos).
    """
    x, r = np.zeros_like(gradient), gradient.copy()
    p = z = precondition(r)
    rz, D, missing = _dot(r, z), 0.0, 0.0
    if not rz >= 0:  # the gradient is not finite, or the preconditioner is not positive
        return NewtonStep(x, D, np.inf), r
    lengths: list[float] = []
    ratios: list[float] = []
    while len(lengths) < _MAX_PRODUCTS and rz > 0:
        Hp = hessian.product(p)
        curvature = _dot(p, Hp)
        if not (0 < curvature < np.inf and rz < np.inf):
            return NewtonStep(x, D, np.inf), r
        t = rz / curvature
        x += x.dtype.type(t) * p
        r -= r.dtype.type(t) * Hp
        z = precondition(r)
        rz, old, D = _dot(r, z), rz, D + t * rz
        if not rz >= 0:  # rounding, which the bound does not cover
            return NewtonStep(x, D, np.inf), r
        lengths.append(t)
        ratios.append(rz / old)
        missing = _EIGENVALUE_SAFETY / _smallest_eigenvalue(lengths, ratios) * rz
        # the eigenvalue is unreliable after fewer than three products
        if len(lengths) > 2 and (missing <= D / 8 or missing <= target / 4):
            break
        p = z + p.dtype.type(ratios[-1]) * p
    return NewtonStep(x, D, (D + missing) * largest_fall(objective, theta, x)), r


def _smallest_eigenvalue(lengths: list[float], ratios: list[float]) -> float:
    """Return an estimate of the smallest eigenvalue of the preconditioned Hessian, at most 1."""
    t, b = np.array(lengths), np.array(ratios[:-1])
    if not (np.isfinite(1 / t).all() and np.isfinite(b).all()):
        return _TINY
    diagonal = 1 / t
    diagonal[1:] += b / t[:-1]
    return min(max(float(eigvalsh_tridiagonal(diagonal, np.sqrt(b) / t[:-1])[0]), _TINY), 1.0)


def _dot(a: NDArray, b: NDArray) -> float:
    return float(np.vdot(a, b))


# ---------------------------------------------------------------- the duality gap


def duality_gap(objective: Objective, point: Point) -> float:
    """Return an upper bound of the excess of a convex objective at a point, from its gradient alone.

    Let a_i be the gradient of loss i with respect to the scores, g = sum_i a_i x_i / n, L the mean loss, and s in
    [0, 1]. By Fenchel duality, no W has an objective below

        s (L - g.W) - R*(s g),   R*(v) = sum_j max(|v_j| - lasso_j, 0)^2 / (2 ridge_j),

    because loss*(s a) <= s loss*(a) if loss >= 0. Without a ridge, s is chosen such that |s g_j| <= lasso_j for all j,
    so that R* = 0. `bias_gap` is the part of the biases, which have no penalty.
    """
    penalty = objective.penalty
    if not has_gap(objective):
        return np.inf
    W = point.theta[:, :-1].astype(np.float64)
    loss = point.value - penalty.smooth_part.value(W)
    ridges, lassos = penalty.ridges(objective.d), penalty.lassos(objective.d)
    g = point.gradient[:, :-1].astype(np.float64) - ridges * W
    support = loss - float(np.vdot(g, W))
    shrink = min(1.0, float((lassos / np.maximum(np.abs(g).max(axis=0), _TINY)).min(initial=1.0)))
    lower = shrink * support
    if penalty.ridge:
        beyond = np.square(np.maximum(np.abs(g) - lassos, 0)) / (2 * ridges)
        lower = max(lower, support - float(beyond.sum()))
    return point.total - lower + bias_gap(objective, point)


def bias_gap(objective: Objective, point: Point) -> float:
    """Return the part of the duality gap that is due to the biases.

    The biases have no penalty, so that the bound holds only within a limit of their change. The limit, the margin plus
    1 plus twice the largest bias, is a heuristic that is not proved.
    """
    limit = 1 + objective.loss.margin + 2 * float(np.abs(point.theta[:, -1]).max())
    return limit * float(np.abs(point.gradient[:, -1]).sum())


class Gap(NamedTuple):
    """The duality gap at a point."""

    point: Point
    excess: float


def close_gap(objective: Objective, point: Point, target: float) -> Gap:
    """Return the duality gap, after a Newton step of the biases if only they keep it above `target`.

    The part of the biases is proportional to their gradient, the rest to the square of the gradient. Near the
    optimum, the part of the biases is much larger than the excess that they cause.
    """
    o, gap = objective, duality_gap(objective, point)
    has_curvatures = o.loss.rounded or not o.loss.couples
    movable = has_curvatures and o.fit_intercept and o.rows.sample() is o.rows  # not on the nodes of a cluster
    if gap <= target or gap - bias_gap(o, point) > target / 2 or not movable:
        return Gap(point, gap)
    new = Point.centered_at(o, _with_newton_biases(o, point.theta))
    moved = duality_gap(o, new)
    # the objective may rise by rounding, which is a small part of the target
    better = moved < gap and new.total <= point.total + target / 8
    return Gap(new, moved) if better else Gap(point, gap)


def _with_newton_biases(objective: Objective, theta: NDArray) -> NDArray:
    """Return theta after a Newton step of the biases alone, which takes one pass over the rows."""
    o = objective

    def part(rows: slice) -> tuple[NDArray, NDArray]:
        scores, targets = o.scores(theta, rows).astype(np.float64), o.targets.of(rows)
        _, slopes = o.loss.value_gradient(scores, targets)
        weight = np.ones(len(scores)) if o.weight is None else o.weight[rows].astype(np.float64)
        h = o.loss.curvatures(scores, targets)
        hessian = np.diag(weight @ h)
        if o.loss.couples:
            is_own = np.eye(o.n_scores)[targets.codes]
            pairs = (h * (1 - is_own) * weight[:, None]).T @ is_own  # curvature of each pair (class, class of the row)
            hessian -= pairs + pairs.T
        return weight @ slopes, hessian

    parts = pmap(part, spans(o.n, rows_per_block(8 * o.n_scores, CACHE_BYTES)))
    gradient, hessian = (np.sum(sums, axis=0) for sums in zip(*parts))
    if o.loss.couples:
        hessian += hessian.trace() / o.n_scores**2  # a shift of all biases changes no loss
    moved = theta.copy(order="K")
    moved[:, -1] -= solve_positive(hessian, gradient).astype(theta.dtype)
    return moved


def has_gap(objective: Objective) -> bool:
    """Return whether `duality_gap` is finite."""
    return objective.loss.convex and bool(objective.penalty.ridge or objective.penalty.lasso)


# ---------------------------------------------------------------- the bound for any objective


def bound_excess(objective: Objective, point: Point, precondition: Callable[[], Precondition], target: float) -> float:
    """Return an upper bound of the excess, by the Newton decrement or else the duality gap; inf if neither exists.

    The penalty must be smooth if the decrement exists; use `lasso_decrement` for an L1 penalty.
    """
    if not has_decrement(objective):
        return duality_gap(objective, point)
    return decrement(objective, point, precondition(), target).excess
