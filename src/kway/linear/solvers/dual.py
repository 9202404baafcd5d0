"""Dual coordinate ascent for linear SVMs: binary, or one class against the rest; soft margin or hard margin.

    primal   P(w, b) = ||w||^2 / 2 + sum_i C_i phi(1 - y_i (x_i.w + b)),   C_i = weight_i / (n ridge)
    dual     D(a) = sum_i (a_i - width a_i^2 / (2 C_i)) - ||sum_i a_i y_i x_i||^2 / 2
             subject to 0 <= a_i <= C_i and sum_i a_i y_i = 0

P is the objective divided by the ridge. phi is the hinge max(0, g), or the hinge with its kink rounded over `width`.
Each class has its own a and w. A step maximizes D over the a_i of one row, for all classes at once
(kernels/linear/dual.py). A sweep visits the rows in random order. Rows whose a_i stay at a bound are skipped until the
next round of sweeps (shrinking). This is the method of LIBLINEAR [1]_, [2]_. The bias has no penalty, so that its
constraint sum_i a_i y_i = 0 is enforced by the method of multipliers.

The fit stops when the duality gap P - D, computed in float64, is at most tol of the objective. Two other methods help:

    few features     Newton's method on rounded hinges finds the start (hinge_newton.py)
    interior points  (interior_point.py) solve small problems from the start. They take over from the sweeps after d
                     sweeps, which cost about as much as one of their steps, or after 5 d if a step takes long

The hard margin is C_i = infinity. Then P is ||w||^2 / 2 of the separating w, scaled until y_i f_i >= 1 for all rows. If
no hyperplane separates the classes, the fit raises NotSeparableError (`separating_plane`).

.. [1] Hsieh, Chang, Lin, Keerthi and Sundararajan (2008), A dual coordinate descent method for large-scale linear SVM.
.. [2] Shalev-Shwartz and Zhang (2013), Stochastic dual coordinate ascent methods for regularized loss minimization.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.errors import NotSeparableError
from kway.kernels.jit import frozen
from kway.kernels.linear.dual import ascend
from kway.linear.equivalent import column_centers
from kway.linear.losses import Targets
from kway.linear.objective import Objective
from kway.linear.solvers.base import MAX_WORK, QUICK_WORK, SLOW_ITERATIONS, Control, Solution, Solver
from kway.linear.solvers.hinge_newton import RoundedOptimum, solve_rounded
from kway.linear.solvers.interior_point import is_small_with_kinks, solve_small
from kway.linear.solvers.stopping import ADVICE_WIDE_GAP, MIN_SCALE_SHARE, tol_scale
from kway.memory import rows_per_block
from kway.rows.matrices import dense_rows, rooted_rows, row_squares
from kway.rows.passes import IN_MEMORY, wrap_rows
from kway.threads import pmap, spans, workers
from kway.validation import Rows

Floats = NDArray[np.float64]

_ROUND = 10  # sweeps between two computations of the gap, which cost about as much as a sweep (row T4d)
SLOW_SWEEPS = 2 * _ROUND  # smallest number of sweeps after which interior points take over (row T4d, letter)
# Sweeps per column after which interior points take over although a step takes seconds, or after half of the allowed
# sweeps. They cost 6 d sweeps on 20,000 images of MNIST (alpha=1e-6), and 10 d on Banking77, where 2 d are enough.
PATIENCE = 5
# Number of features up to which Newton's method on rounded hinges finds the start. With 16 features (row T4d, letter),
# fits without it take 20 times as long.
NEWTON_FEATURES = 32
# Stiffness of the constraint of the bias, relative to the mean of ||x_i||^2. With 1 or 0.001, the fits of row T4d take
# three times as many sweeps.
STIFFNESS = 0.03


@dataclass(frozen=True)
class Dual(Solver):
    """Dual coordinate ascent over all classes at once."""

    name: ClassVar[str] = "dual"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.hinge", "penalty.ridge", IN_MEMORY})

    def suits_row_span(self, objective: Objective) -> bool:
        """Return False for rounded hinges, whose sweeps are fast on the sparse rows themselves."""
        return not objective.loss.smooth

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Minimize from a = 0; theta is not used, because it does not determine the dual variables."""
        if is_small_with_kinks(objective, QUICK_WORK):
            return solve_small(objective, control)
        if control.carry is None:
            ascent = Ascent(objective, control)
        else:
            ascent = control.carry.get(objective, lambda: Ascent(objective, control))
            ascent.change_ridge(objective.penalty.ridge)
        history = ascent.start_by_newton(control) if ascent.suits_newton else []
        history += ascent.climb(control, min(ascent.sweeps + max(SLOW_SWEEPS, objective.d), control.max_iter))
        if objective.penalty.ridge == 0 and not ascent.closed(control):
            ascent.separate()
            if is_small_with_kinks(replace(objective, penalty=replace(objective.penalty, ridge=1.0))):
                ascent.finish_hard(control)
        patience = min(PATIENCE * objective.d, control.max_iter // 2)
        for max_sweeps, max_work in ((0, objective.n_scores * MAX_WORK), (patience, np.inf)):
            history += ascent.climb(control, max_sweeps)
            left = control.max_iter - ascent.sweeps
            if ascent.closed(control) or ascent.stopped or left <= 0:
                break
            if is_small_with_kinks(objective, max_work):
                end = solve_small(objective, replace(control, max_iter=left))
                return replace(end, n_iter=ascent.sweeps + end.n_iter, history=[*history, *end.history])
        history += ascent.climb(control, control.max_iter)
        return ascent.solution(history, control)


class BestSolutions(NamedTuple):
    """The best [w b] of each class (R, d + 1), their primal values (R,) and the best dual values (R,)."""

    theta: Floats
    values: Floats
    lowers: Floats


@dataclass(frozen=True)
class Group:
    """The state of k adjacent classes: a (n, k), weights W, and bias, center and s = sum_i y_i a_i (k,)."""

    first: int
    a: NDArray
    W: NDArray  # (d, k) for CSR rows, (k, d) for dense ones
    bias: NDArray
    center: NDArray
    s: NDArray

    @staticmethod
    def at_zero(objective: Objective, first: int, last: int) -> Group:
        """Return a = 0. The bias starts at -1, the optimum of a class without rows."""
        k, d, dtype = last - first, objective.d, objective.X.dtype
        start = np.full(k, -1.0 if objective.fit_intercept and k > 1 else 0.0, dtype)
        shape = (d, k) if sp.issparse(objective.X) else (k, d)
        a, W = np.zeros((objective.n, k), dtype), np.zeros(shape, dtype)
        return Group(first, a, W, start, start.copy(), np.zeros(k, dtype))

    @property
    def classes(self) -> slice:
        """Return the classes as columns of the scores."""
        return slice(self.first, self.first + self.a.shape[1])


class Ascent:
    """Dual coordinate ascent of all classes; each sweep continues from the last one."""

    def __init__(self, objective: Objective, control: Control | None = None) -> None:
        X, dtype = objective.X, objective.X.dtype
        self.objective, self.sweeps, self.stopped = objective, 0, False
        self._number, self._rows = dtype.type, kernel_rows(X)
        self._square = np.asarray(row_squares(X, dtype), dtype)
        self._stiffness = self._number(STIFFNESS * max(float(self._square.mean()), 1e-30) * objective.fit_intercept)
        rng = np.random.default_rng(0) if control is None else control.rng
        self.groups = [Group.at_zero(objective, a, b) for a, b in _class_groups(objective.n_scores)]
        self._rngs = rng.spawn(len(self.groups))
        self.upper, self.best = self._boxes(), self._no_solutions()
        self._active = np.flatnonzero((self.upper > 0) & ((self._square > 0) | objective.fit_intercept))
        self._hard = objective.penalty.ridge == 0

    def _no_solutions(self) -> BestSolutions:
        R = self.objective.n_scores
        return BestSolutions(np.zeros((R, self.objective.d + 1)), np.full(R, np.inf), np.zeros(R))

    # ---------------------------------------------------------------- sweeps

    def climb(self, control: Control, max_sweeps: int) -> list[float]:
        """Sweep until the gap is at most tol, or `max_sweeps` times; return the objective after each round."""
        history: list[float] = []
        while self.sweeps < max_sweeps and not self.stopped and not self.closed(control):
            self.sweep(min(_ROUND, max_sweeps - self.sweeps))
            self.compute_gap()
            history.append(self._report(control, len(history) + 1))
        return history

    def _report(self, control: Control, count: int) -> float:
        """Call the progress callback and early stopping, which may set `stopped`; return the objective."""
        value = (self.objective.penalty.ridge or 1.0) * float(self.best.values.sum())
        self.stopped = control.should_stop(count, value, self.best.theta)
        return value

    def sweep(self, count: int) -> None:
        """Visit all rows in the first of `count` sweeps, then the rows that are not at a bound."""
        pmap(lambda item: self._sweep(*item, count), zip(self.groups, self._rngs))
        self.sweeps += count

    def _sweep(self, group: Group, rng: np.random.Generator, count: int) -> None:
        codes, order, quadratic = self.codes - group.first, self._active, self._quadratic()
        for t in range(count):
            order = self._active.copy() if t % _ROUND == 0 else order
            rng.shuffle(order)
            n_active = ascend(
                self._rows, codes, self._square, self.upper, quadratic, self._stiffness, order, group.a, group.W,
                group.bias, group.s,
            )  # fmt: skip
            if self._stiffness:
                group.center[:] += self._stiffness * group.s
                group.bias[:] = group.center + self._stiffness * group.s
            order = order[:n_active]

    def change_ridge(self, ridge: float) -> None:
        """Continue with another ridge: from a = 0 if an upper bound C_i becomes smaller, else from the current a."""
        self.objective = replace(self.objective, penalty=replace(self.objective.penalty, ridge=ridge))
        old, self.upper = self.upper, self._boxes()
        if (self.upper < old).any():
            edges = [(g.classes.start, g.classes.stop) for g in self.groups]
            self.groups = [Group.at_zero(self.objective, a, b) for a, b in edges]
        self.sweeps, self.stopped, self.best = 0, False, self._no_solutions()

    def theta(self) -> NDArray:
        """Return [W b] (R, d + 1) after the last sweep, in the memory order of products with X."""
        o = self.objective
        theta = np.empty((o.n_scores, o.d + 1), self._number, order="F" if sp.issparse(o.X) else "C")
        for group in self.groups:
            theta[group.classes, :-1] = group.W.T if sp.issparse(o.X) else group.W
            theta[group.classes, -1] = group.bias
        return theta

    @property
    def codes(self) -> NDArray[np.int64]:
        """Return the column of scores in which each row has y = +1; the one column of two classes is the second."""
        codes = self.objective.targets.codes
        return 1 - codes if self.objective.n_scores == 1 else codes

    def _quadratic(self) -> NDArray:
        """Return width / C_i (n,)."""
        return self._number(self.objective.loss.width) / np.where(self.upper > 0, self.upper, self._number(1))

    def _boxes(self) -> NDArray:
        """Return the upper bounds C_i = weight_i / (n ridge), (n,); for the hard margin a very large number."""
        o = self.objective
        weight = np.ones(o.n) if o.weight is None else o.weight.astype(np.float64)
        if o.penalty.ridge == 0:
            return np.where(weight > 0, float(np.finfo(o.X.dtype).max) / 1e3, 0.0).astype(o.X.dtype)
        return np.asarray(weight / (o.n * o.penalty.ridge), o.X.dtype)

    # ---------------------------------------------------------------- the start, if there are few features

    @property
    def suits_newton(self) -> bool:
        """Return whether Newton steps cost less than the sweeps that they replace."""
        o = self.objective
        return not (self._hard or o.loss.width or sp.issparse(o.X)) and o.d <= NEWTON_FEATURES

    def start_by_newton(self, control: Control) -> list[float]:
        """Set the dual variables of each class by Newton's method on the rounded hinge; return the objective."""
        o, upper = self.objective, self.upper.astype(np.float64)
        Z = rooted_rows(o.X, None, np.dtype(np.float64), o.fit_intercept)
        ridge = np.append(np.ones(o.d), [0.0] if o.fit_intercept else [])

        def minimize(k: int) -> RoundedOptimum:
            y = np.where(self.codes == k, 1.0, -1.0)
            return solve_rounded(Z, y, upper, ridge, control.tol, min(control.max_iter, SLOW_ITERATIONS))

        optima = pmap(minimize, range(o.n_scores))
        for group in self.groups:
            for j, optimum in enumerate(optima[group.classes]):
                group.a[:, j], group.W[j] = optimum.a, optimum.pull[: o.d]
                if o.fit_intercept:
                    group.s[j], group.bias[j] = optimum.pull[-1], optimum.theta[-1]
            group.center[:] = group.bias - self._stiffness * group.s
            weights = np.array([optimum.theta[: o.d] for optimum in optima[group.classes]])
            self._keep_best(group.classes, weights, group.bias)
            self._raise_lower_bounds(group)
        self.sweeps += max(optimum.steps for optimum in optima)
        return [self._report(control, 1)]

    # ---------------------------------------------------------------- the duality gap

    @property
    def gap(self) -> float:
        """Return the duality gap, summed over all classes."""
        return float(np.maximum(self.best.values - self.best.lowers, 0).sum())

    def closed(self, control: Control) -> bool:
        """Return whether the duality gap is at most tol of the objective."""
        value = float(self.best.values.sum())
        if not np.isfinite(value):
            return False
        return bool(
            self.gap <= control.tol * tol_scale(value, control.min_scale / (self.objective.penalty.ridge or 1.0))
        )

    def compute_gap(self) -> None:
        """Compute the primal and the dual value of each class in float64; keep the best of each."""
        for group in self.groups:
            self._keep_best(group.classes, self._raise_lower_bounds(group), group.bias)

    def _raise_lower_bounds(self, group: Group) -> Floats:
        """Compute the dual values of a group, which are lower bounds; return the weights (k, d) of these variables."""
        signed, totals, quadratics = self._balanced(group)
        W = self._combine(signed)
        norms = np.einsum("kj,kj->k", W, W)
        with np.errstate(divide="ignore", invalid="ignore"):
            lowers = totals**2 / (2 * norms) if self._hard else totals - quadratics / 2 - norms / 2
        best = self.best.lowers[group.classes]
        np.maximum(best, np.nan_to_num(lowers, nan=0.0, posinf=0.0), out=best)
        return W

    def _balanced(self, group: Group) -> tuple[Floats, Floats, Floats]:
        """Return a feasible y a (n, k), sum a (k,) and sum width a^2 / C (k,).

        The a of the side with the larger sum, y = +1 or y = -1, are scaled down until sum y a = 0.
        """
        is_own = self.codes[:, None] == np.arange(group.classes.start, group.classes.stop)
        a = group.a.astype(np.float64)
        if self.objective.fit_intercept:
            positive, negative = a.sum(axis=0, where=is_own), a.sum(axis=0, where=~is_own)
            larger, smaller = np.maximum(np.maximum(positive, negative), 1e-300), np.minimum(positive, negative)
            a *= np.where(is_own == (positive > negative), smaller / larger, 1.0)
        quadratics = self._quadratic().astype(np.float64) @ np.square(a)
        return np.where(is_own, a, -a), a.sum(axis=0), quadratics

    def _combine(self, signed: Floats) -> Floats:
        """Return the weights signed' X (k, d)."""
        X = self.objective.X
        if sp.issparse(X):
            return np.ascontiguousarray((X.T @ signed).T)

        def part(rows: slice) -> Floats:
            return signed[rows].T @ X[rows].astype(np.float64)

        return np.asarray(sum(pmap(part, spans(self.objective.n, rows_per_block(8 * self.objective.d)))))

    def _keep_best(self, classes: slice, W: Floats, biases: NDArray) -> None:
        """Replace the best [w b] of each class whose primal value is lower now; the hinge gets its optimal bias."""
        X = self.objective.X
        if sp.issparse(X):
            scores = X @ W.T
        else:
            parts = spans(self.objective.n, rows_per_block(8 * self.objective.d))
            scores = np.concatenate(pmap(lambda rows: X[rows].astype(np.float64) @ W.T, parts))

        def update(j: int) -> None:
            k = classes.start + j
            y = np.where(self.codes == k, 1.0, -1.0)
            w, b, value = self._with_best_bias(W[j], np.ascontiguousarray(scores[:, j]), y, float(biases[j]))
            if value < self.best.values[k]:
                self.best.theta[k, :-1], self.best.theta[k, -1], self.best.values[k] = w, b, value

        pmap(update, range(len(W)))

    def _with_best_bias(self, w: Floats, f: Floats, y: Floats, b: float) -> tuple[Floats, float, float]:
        """Return w, its bias, and the primal value."""
        o = self.objective
        if self._hard:
            return scale_to_margin(w, f, y, self.upper > 0, o.fit_intercept)
        upper = self.upper.astype(np.float64)
        if o.fit_intercept and not o.loss.width:
            b = best_hinge_bias(y - f, y, upper)
        gap = 1 - y * (f + b * o.fit_intercept)
        width = o.loss.width
        inside = np.clip(gap, 0, width)
        loss = inside * (gap - inside / 2) / width if width else np.maximum(gap, 0)
        return w, b * o.fit_intercept, float(w @ w) / 2 + float(upper @ loss)

    def solution(self, history: list[float], control: Control) -> Solution:
        """Return the best solution in the float type of the rows; its excess includes the rounding to that type."""
        o, value, gap = self.objective, float(self.best.values.sum()), self.gap
        theta = o.rows.with_layout(self.best.theta.astype(o.X.dtype))
        end = o.value(theta.astype(np.float64))
        if not self._hard and np.isfinite(value):
            gap += max(0.0, end / o.penalty.ridge - value)
        scale = tol_scale(value, control.min_scale / (o.penalty.ridge or 1.0))
        rel_excess = gap / scale if np.isfinite(value) else np.inf
        converged = rel_excess <= control.tol
        advice = "" if converged else ADVICE_WIDE_GAP
        return Solution(theta, self.sweeps, converged, rel_excess, history or [value], advice, proved=True, value=end)

    # ---------------------------------------------------------------- the hard margin

    def separate(self) -> None:
        """Find a separating hyperplane for each class that has none, or raise NotSeparableError."""
        pmap(self._separate_class, np.flatnonzero(~np.isfinite(self.best.values)).tolist())

    def _separate_class(self, k: int) -> None:
        o, counted = self.objective, np.flatnonzero(self.upper > 0)
        y = np.where(self.codes[counted] == k, 1.0, -1.0)
        sides = "the two classes" if o.n_scores == 1 else f"class number {k} and the rest"
        rows = o.X if len(counted) == o.n else o.X[counted]
        w, b = separating_plane(rows, y, o.fit_intercept, sides)
        self.best.theta[k], self.best.values[k] = np.append(w, b), float(w @ w) / 2

    def finish_hard(self, control: Control) -> None:
        """Solve the classes whose gap is above tol by interior points, as soft margins that equal the hard margin.

        A soft margin with C_i = C is the hard margin if no a_i reaches C. For the hard margin, sum_i a_i is |w|^2, at
        most twice the value of any w that separates the rows. That number is a large enough C.
        """
        o, best = self.objective, self.best
        open_classes = np.flatnonzero(best.values - best.lowers > control.tol / 2 * best.values).tolist()
        counted = np.flatnonzero(self.upper > 0)
        X, codes = dense_rows(o.X[counted]), self.codes[counted]

        def finish(k: int) -> None:
            is_own = codes == k
            y, old = np.where(is_own, 1.0, -1.0), np.inf
            while best.values[k] < old / 2:  # a large C for a poor w costs digits
                old = best.values[k]
                penalty = replace(o.penalty, ridge=1 / (2 * len(y) * old))
                part = Objective(wrap_rows(X), Targets(is_own.astype(np.int64)), 1, o.loss, penalty, o.fit_intercept)
                soft = solve_small(part, Control(tol=control.tol))
                value = part.value(soft.theta)
                excess = soft.rel_excess * tol_scale(value, MIN_SCALE_SHARE)
                best.lowers[k] = max(best.lowers[k], (value - excess) / penalty.ridge)
                w = soft.theta[0, :-1]
                w, b, value = scale_to_margin(w, X @ w, y, np.ones(len(y), bool), o.fit_intercept)
                if value < best.values[k]:
                    best.theta[k], best.values[k] = np.append(w, b), value

        pmap(finish, open_classes)


def _class_groups(n_scores: int) -> Iterator[tuple[int, int]]:
    """Return the first class and the end of each group: one group of about equal size per worker."""
    parts = workers()
    edges = [n_scores * i // parts for i in range(parts + 1)]
    return ((a, b) for a, b in itertools.pairwise(edges) if b > a)


def kernel_rows(X: Rows) -> Any:
    """Return the rows as the kernels read them: (n, d), or the arrays (data, indices, indptr) of a CSR matrix."""
    return tuple(frozen(part) for part in (X.data, X.indices, X.indptr)) if sp.issparse(X) else frozen(X)


def best_hinge_bias(kinks: Floats, y: Floats, weight: Floats) -> float:
    """Return the exact minimizer b of sum_i weight_i max(0, 1 - y_i (f_i + b)).

    The kink of row i is at b = kinks_i = y_i - f_i. There the slope of the sum increases by weight_i. At b = -infinity
    the slope is minus the weight of the rows with y = +1, so the minimum is the kink at which it reaches zero.
    """
    order = np.argsort(kinks)
    passed = np.cumsum(weight[order])
    k = int(np.searchsorted(passed, weight[y > 0].sum() * (1 - 1e-15)))
    return float(kinks[order[min(k, len(order) - 1)]])


def scale_to_margin(
    w: Floats, scores: Floats, y: Floats, counted: NDArray[np.bool_], bias: bool
) -> tuple[Floats, float, float]:
    """Return w and b scaled so that the smallest y_i f_i is 1, and ||w||^2 / 2, which is inf if w does not separate."""
    f, y = scores[counted], y[counted]
    if bias and abs(y.sum()) == len(y):  # one class: nothing to separate
        return np.zeros_like(w), float(y[0]), 0.0
    b = -(f[y > 0].min() + f[y < 0].max()) / 2 if bias else 0.0
    margin = float((y * (f + b)).min())
    if margin <= 0:
        return w, b, np.inf
    return w / margin, b / margin, float(w @ w) / (2 * margin * margin)


# ---------------------------------------------------------------- can a hyperplane separate two classes?


class Violation(NamedTuple):
    """The smallest sum of hinges of some rows, and the hyperplane (w, b) that has it."""

    violation: float
    w: Floats
    b: float


def separating_plane(X: Rows, y: Floats, bias: bool, sides: str) -> tuple[Floats, float]:
    """Return w, b with y_i (x_i.w + b) >= 1 for all rows, or raise NotSeparableError.

    Solve a linear program on a growing subset of the rows. If the subset cannot be separated, neither can all rows.
    Otherwise the rows that are closest to its hyperplane, or on the wrong side, join the subset.
    """
    margins, chosen = np.zeros(len(y)), np.zeros(len(y), bool)
    while True:
        batch = max(2 * X.shape[1] + 200, int(chosen.sum()) // 2)
        for side in (y > 0, y < 0):
            rest = np.flatnonzero(side & ~chosen)
            chosen[rest[np.argsort(margins[rest], kind="stable")[:batch]]] = True
        violation, w, b = least_violation(dense_rows(X[np.flatnonzero(chosen)]), y[chosen], bias)
        margins = y * (np.asarray(X @ w).ravel() + b)
        margin = float(margins.min())
        if violation <= 0.5 and margin > 0:
            return w / margin, b / margin
        if violation > 0.5 or chosen.all():
            through, wrong = "" if bias else " through the origin", int((margins <= 1e-9).sum())
            raise NotSeparableError(
                f"the hard margin (alpha=0) exists only if a hyperplane{through} separates {sides}, but {wrong} of "
                f"{len(y)} rows are on the wrong side of the best one; use alpha > 0 (a soft margin, such as "
                "alpha=1e-4)"
            )


def least_violation(X: Floats, y: Floats, bias: bool) -> Violation:
    """Solve min sum_i max(0, 1 - y_i (x_i.w + b)), in its dual form; w and b are the multipliers of its equations.

        max_a sum_i a_i,   0 <= a_i <= 1,  sum_i a_i y_i x_i = 0,  and sum_i a_i y_i = 0 if there is a bias

    The violation is 0 if a hyperplane separates the rows. Otherwise some a != 0 is feasible, and can be scaled until
    its largest entry is 1, so that the violation is at least 1. The caller compares with 1/2.
    """
    from scipy.optimize import linprog  # slow to import, and only the hard margin needs it

    middle = column_centers(X, np.ones(len(X))) if bias else np.zeros(X.shape[1])
    Z = X - middle
    scale = float(np.abs(Z).max()) or 1.0
    Z = (Z / scale * y[:, None]).T  # (d, m)
    equations = np.vstack([Z, y]) if bias else Z
    result = linprog(
        -np.ones(len(y)), A_eq=equations, b_eq=np.zeros(len(equations)), bounds=(0, 1), method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},  # the smallest of HiGHS
    )  # fmt: skip
    multipliers = -result.eqlin.marginals
    w = multipliers[: len(Z)] / scale
    b = float(multipliers[-1] - w @ middle) if bias else 0.0
    return Violation(-result.fun, w, b)
