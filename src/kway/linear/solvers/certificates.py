"""When a fit may end: what `tol` means, and the two proofs that a point is within it.

    (F(theta) - F*) / tol_scale(F) <= tol,   tol_scale(F) = max(|F|, least)

Every solver that guarantees tol asks `bound_excess` (or one of the two parts of it) for a bound of F(theta) - F*:

    Newton decrement   D / 2 and more if H changes fast (`largest_fall`), D = g' H^-1 g: by the dense Hessian if the
                       problem is small, else by conjugate gradients. With an L1 part g is the subgradient of least norm
    duality gap        hinges, and whatever else has a penalty: any slopes of the losses give a lower bound of F*

Boyd and Vandenberghe, Convex Optimization, 5.5 (duality gap) and 9.5 (decrement); Nocedal and Wright, Numerical
Optimization, 7.1 (Newton-CG). An objective that is not convex has no proof: its solvers end when the last third of
their iterations gained less than tol.
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
from kway.linear.solvers.dense_hessian import DenseHessian
from kway.memory import BLOCK_BYTES, CACHE_BYTES, rows_per_block
from kway.rows.passes import QUICK
from kway.threads import pmap, spans

SEPARABLE = "the classes are separable and there is no penalty, so the weights grow for ever; set alpha > 0"
BLEW_UP = "lower learning_rate: the steps blew up"
WIDE_GAP = "raise max_iter or alpha, or scale the features to a common range"
HIDDEN = "rounding hides any further progress: scale the features, or pass float64"

LEAST_FALL = 1e-6  # tol is relative to at least this share of the objective at zero: the rest is rounding
_TINY = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)  # one over it is finite
_MOST_PRODUCTS = 40  # products of a decrement: after so many, a step of the descent costs less (T4b)
# The smallest eigenvalue that conjugate gradients have seen is too large, by far less than this (the drawn problems)
_CAUTION = 10.0
_LEAST_CHANGE = 1e-3  # of a score: rounding would hide the bound for a smaller one
_ROUNDS = 4  # in which zeros join the free weights of an L1 problem (T4c)

Precondition = Callable[[NDArray], NDArray]


# ---------------------------------------------------------------- what tol means


def tol_scale(value: float, least: float = 0.0) -> float:
    """Return what tol is relative to: the objective, but no less than `least`, and never 0."""
    return max(abs(value), least, _TINY)


def least_of(objective: Objective) -> float:
    """Return a millionth of the objective at zero, from some rows: tol is relative to no less."""
    o = objective
    rows = slice(0, min(o.n, rows_per_block(8 * o.n_scores, CACHE_BYTES)))
    losses, _ = o.loss.value_gradient(np.zeros((rows.stop, o.n_scores)), o.block_targets(rows))
    return LEAST_FALL * float(losses.mean()) if len(losses) else 0.0


def separated(objective: Objective, value: float) -> bool:
    """Return whether no optimum exists: no penalty, and the losses add up to less than one mistake's.

    Each row is then on its right side, and a larger theta is a better one.
    """
    o = objective
    if o.penalty.ridge or o.penalty.lasso or o.targets.soft is not None or o.loss.mistake is None:
        return False
    least = 1.0 if o.weight is None else float(o.weight[o.weight > 0].min())
    return value * o.n < least * o.loss.mistake


def recent_gain(history: Sequence[float]) -> float:
    """Return what the last third of the iterations has gained: an estimate of the excess for want of a proof."""
    window = (len(history) - 1) // 3 + 1
    return history[-1 - window] - history[-1] if len(history) > window else np.inf


# ---------------------------------------------------------------- the Newton decrement


def has_decrement(objective: Objective) -> bool:
    """Return whether the decrement bounds the excess: the Hessian, and how fast it changes, are known."""
    known = has_hessian(objective) and objective.loss.hessian_change is not None
    return known and QUICK in objective.rows.offers


class NewtonStep(NamedTuple):
    """The Newton step as an ascent direction (R, d + 1), its slope D, and a bound of the excess over the minimum."""

    direction: NDArray
    slope: float
    excess: float


def newton_step(objective: Objective, theta: NDArray, gradient: NDArray) -> NewtonStep:
    """Return the step of a small problem at theta, by its whole Hessian; gradient has shape (R, d + 1)."""
    hessian = DenseHessian.at(objective, theta)
    D, direction = hessian.Z.shape[1], np.zeros_like(gradient)
    direction[:, :D] = hessian.solve(gradient[:, :D].astype(np.float64))
    slope = max(0.0, _dot(gradient, direction))
    return NewtonStep(direction, slope, slope * largest_fall(objective, theta, direction))


def largest_fall(objective: Objective, theta: NDArray, direction: NDArray) -> float:
    """Return the largest possible fall of F along a Newton step, relative to its slope D; huge if there is no bound.

    After t steps, the curvature of row i is at least exp(-u_i t) times what it was. u_i is the largest change of a
    score, or of the difference of two scores if classes couple. With the shares a_i of the curvature, F falls by at
    most

        D max_t (t - sum_i a_i (exp(-u_i t) - 1 + u_i t) / u_i^2),

    which is D / 2 if no u_i is large (Sun and Tran-Dinh, Generalized self-concordant functions, Mathematical
    Programming, 2019).

    Rows on the nodes of a cluster are represented by their sample.
    """
    objective = replace(objective, rows=objective.rows.sample())
    c = 1.0 if objective.loss.hessian_change is None else objective.loss.hessian_change  # a guess: softmax's

    def part(rows: slice) -> NDArray:
        scores, targets = objective.scores(theta, rows).astype(np.float64), objective.block_targets(rows)
        moved = objective.scores(direction, rows).astype(np.float64)
        farthest = np.abs(moved).max(axis=1)  # (m,)
        unit = moved / np.maximum(farthest, _TINY)[:, None]
        along = np.einsum("ik,ik->i", objective.loss.hessian_product(scores, targets, unit), unit) * np.square(farthest)
        along = np.maximum(along, 0) * (1.0 if objective.weight is None else objective.weight[rows])
        return np.array([along, c * (np.ptp(moved, axis=1) if objective.loss.couples else farthest)])

    size = rows_per_block(8 * objective.n_scores, CACHE_BYTES)
    along, u = np.hstack(pmap(part, spans(objective.n, size)))
    total = float(along.sum())
    return 0.5 if total == 0 else _largest_gain(along / total, np.maximum(u, _LEAST_CHANGE))


def _largest_gain(shares: NDArray, u: NDArray) -> float:
    """Return max_t (t - sum_i a_i (exp(-u_i t) - 1 + u_i t) / u_i^2) for shares a_i that add up to 1.

    The derivative is convex and falls, so Newton's method from t = 0 approaches its zero from below.
    """
    t = 0.0
    for _ in range(50):  # Newton steps; if the derivative has no zero, t grows and there is no bound
        fallen = -np.expm1(-t * u)
        slope = 1 - float(shares @ (fallen / u))
        if slope <= 1e-6:
            return t - float(shares @ ((t * u - fallen) / np.square(u)))
        t += slope / max(float(shares @ (1 - fallen)), 1e-6)
    return 1 / _TINY


def decrement(objective: Objective, point: Point, precondition: Precondition, enough: float = 0.0) -> NewtonStep:
    """Return the Newton step at a point with a bound of the excess there.

    Parameters
    ----------
    objective : Objective
        One that `has_decrement`.
    point : Point
        Where; its gradient is known.
    precondition : callable
        An approximate inverse of the Hessian, for conjugate gradients.
    enough : float
        A bound of no more ends the search for a better one.
    """
    gradient = objective.center_scores(point.gradient) if objective.loss.shift_free else point.gradient
    if is_small(objective):
        return newton_step(objective, point.theta, gradient)
    rows = _heaviest_rows(objective, point.theta)
    hessian = rows.hessian_at(point.theta)
    return _conjugate_gradients(rows, hessian, point.theta, gradient, precondition, enough)[0]


def lasso_decrement(
    objective: Objective, point: Point, precondition: Callable[[NDArray[np.bool_]], Precondition], enough: float
) -> float:
    """Return a bound of the excess at a point of a problem with an L1 part.

    F(u) = f(u) + lasso |u|_1 >= f(u) + v.u = G(u) for any v within +-lasso, and G(w) = F(w) if v = lasso sign(w) for
    weights that are not zero. Those are `free`. The Newton step x of G among them leaves the zeros unchanged if
    f'(w) + v = H x for the zeros, too. A zero whose v would be beyond lasso joins the free weights.

    Parameters
    ----------
    objective, point, enough
        As `decrement` takes them.
    precondition : callable
        Maps free (R, d + 1) to an approximate inverse of the Hessian among the free weights, 0 for the others.
    """
    o, theta, g = objective, point.theta, point.gradient.astype(np.float64)
    lasso = np.append(o.penalty.lassos(o.d), 0.0)
    slack = 0.1 * enough / tol_scale(point.total)  # v may be relatively so much beyond lasso; it costs a tenth of tol
    free = (theta != 0) | (np.abs(g) > (1 + slack) * lasso)
    free[:, -1] = o.fit_intercept
    side = np.where(theta != 0, np.sign(theta), -np.sign(g))
    rows = _heaviest_rows(o, theta)
    hessian = rows.hessian_at(theta)
    for _ in range(_ROUNDS):
        slopes = np.where(free, g + lasso * side, 0).astype(theta.dtype)
        step, residual = _conjugate_gradients(rows, hessian, theta, slopes, precondition(free), enough)
        v = -residual - g  # of the zeros
        steep = ~free & (np.abs(v) > (1 + slack) * lasso)
        steep[:, -1] = False
        if not steep.any() or step.excess > enough:
            return step.excess + slack * point.total
        side, free = np.where(steep, np.sign(v), side), free | steep
    return np.inf


def least_subgradient(objective: Objective, point: Point) -> NDArray:
    """Return the subgradient of least norm (R, d + 1): zero at the optimum. NaN if a shift of all scores lowers F.

    For any v with |v_j| <= lasso_j, and v_j = lasso_j sign(w_j) where w_j is not zero, G(u) = f(u) + v.u is below F and
    touches it at w. So F(w) - F* <= G(w) - min G, which the decrement of the smooth G bounds. Without a ridge no loss
    sees a shift of all scores' weights of a column, and G has a minimum only if the v of that column add up to zero.
    """
    o, g = objective, point.gradient
    lassos, W = o.penalty.lassos(o.d), point.theta[:, :-1]
    v = np.where(W != 0, lassos * np.sign(W), np.clip(-g[:, :-1].astype(np.float64), -lassos, lassos))
    if o.loss.shift_free and not o.penalty.ridge:
        total = v.sum(axis=0)
        room = np.where(W == 0, lassos + np.sign(total) * v, 0.0)  # how far the v of zeros may move against the total
        available = room.sum(axis=0)
        v -= np.sign(total) * room * np.minimum(1.0, np.abs(total) / np.maximum(available, _TINY))
        v[:, np.abs(total) > available * (1 + 1e-9) + 1e-9 * lassos] = np.nan
    found = g.astype(np.float64)
    found[:, :-1] += v
    return found.astype(g.dtype)


def _heaviest_rows(objective: Objective, theta: NDArray) -> Objective:
    """Return the problem on a sample of its rows if it has more than twice as many, drawn in proportion to curvature.

    A Hessian of so many rows is within a small factor of that of all, and its inverse errs upwards: the bound with it.
    """
    size = sample_size(objective)
    if objective.rows.sample() is not objective.rows:  # the nodes of a cluster have them, none can be taken
        return objective
    if objective.n <= 2 * size and 8 * objective.n * objective.n_scores <= BLOCK_BYTES:
        return objective
    mass = objective.curvatures(theta).sum(axis=0, dtype=np.float64)  # (n,), sample weights included
    chance = np.minimum(1.0, size * mass / max(float(mass.sum()), _TINY))
    drawn = np.flatnonzero(np.random.default_rng(0).random(objective.n) < chance)
    if len(drawn) < size // 2:
        return objective
    # each stands for 1 / chance of n rows; divided by their own mean, one row of a small chance would hide the others
    weight = (1.0 if objective.weight is None else objective.weight[drawn]) / chance[drawn]
    return replace(objective.take(drawn), weight=(weight * (len(drawn) / objective.n)).astype(theta.dtype))


@np.errstate(over="ignore", invalid="ignore")  # a direction without curvature: steps grow until the bound is infinite
def _conjugate_gradients(
    objective: Objective,
    hessian: ObjectiveHessian,
    theta: NDArray,
    gradient: NDArray,
    precondition: Precondition,
    enough: float,
) -> tuple[NewtonStep, NDArray]:
    """Return the step from products H v, each about as expensive as a gradient, and the residual r = g - H x.

    What is missing from D after some of them is r' H^-1 r, r the residual: at most r' M r over the smallest eigenvalue
    of the preconditioned Hessian M H, which the coefficients of the method estimate (Lanczos).
    """
    x, r = np.zeros_like(gradient), gradient.copy()
    p = z = precondition(r)
    rz, D, missing = _dot(r, z), 0.0, 0.0
    lengths: list[float] = []
    ratios: list[float] = []
    while len(lengths) < _MOST_PRODUCTS and rz > 0:
        Hp = hessian.product(p)
        curvature = _dot(p, Hp)
        if not (0 < curvature < np.inf and rz < np.inf):
            return NewtonStep(x, D, np.inf), r
        t = rz / curvature
        x += x.dtype.type(t) * p
        r -= r.dtype.type(t) * Hp
        z = precondition(r)
        rz, old, D = _dot(r, z), rz, D + t * rz
        if not rz >= 0:  # rounding, of which a bound knows nothing
            return NewtonStep(x, D, np.inf), r
        lengths.append(t)
        ratios.append(rz / old)
        missing = _CAUTION / _smallest_eigenvalue(lengths, ratios) * rz
        # two products at least, or the eigenvalue says little
        if len(lengths) > 2 and (missing <= D / 8 or missing <= enough / 4):
            break
        p = z + p.dtype.type(ratios[-1]) * p
    return NewtonStep(x, D, (D + missing) * largest_fall(objective, theta, x)), r


def _smallest_eigenvalue(lengths: list[float], ratios: list[float]) -> float:
    """Return the smallest eigenvalue of the preconditioned Hessian that the steps have seen, no more than 1."""
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
    """Return a bound of the excess of a convex objective at a point, from its gradient alone.

    Fenchel: with a_i the loss's gradient in the scores, s in [0, 1] and g = sum_i a_i x_i / n, no W does better than
    s (L - g.W) - R*(s g), since loss*(s a) <= s loss*(a) if loss >= 0. R*(v) = sum_j max(|v_j| - lasso_j, 0)^2 /
    (2 ridge_j); without a ridge it is 0 while |v_j| <= lasso_j everywhere, to which s shrinks it. The bias is taken to
    move by its own size at most.
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
    reach = 1 + objective.loss.margin + 2 * float(np.abs(point.theta[:, -1]).max())
    return point.total - lower + reach * float(np.abs(point.gradient[:, -1]).sum())


def has_gap(objective: Objective) -> bool:
    """Return whether `duality_gap` is finite."""
    return objective.loss.convex and bool(objective.penalty.ridge or objective.penalty.lasso)


# ---------------------------------------------------------------- any of them


def bound_excess(objective: Objective, point: Point, precondition: Callable[[], Precondition], enough: float) -> float:
    """Return a bound of F above its minimum at a point by whichever proof there is; inf if there is none."""
    if not has_decrement(objective):
        return duality_gap(objective, point)
    return decrement(objective, point, precondition(), enough).excess
