"""Dual coordinate ascent: hinges of separate classes (binary and one-vs-all), sharp or rounded, soft margin and hard.

    P(w, b) = |w|^2 / 2 + sum_i C_i phi(1 - y_i (x_i.w + b)),   phi the hinge, its kink rounded over `width` or sharp
    D(a)    = sum_i (a_i - width a_i^2 / (2 C_i)) - |sum_i a_i y_i x_i|^2 / 2,   0 <= a_i <= C_i,  sum_i a_i y_i = 0

for each class against the rest; C_i = weight_i / (n ridge), so P is the objective over ridge. A visit to a row
maximizes D over its a_i for all classes at once (kernels/linear/dual.py). Rows are visited in random order, and rows
that rest at the walls of their boxes are left out until the next round (Hsieh, Chang, Lin, Keerthi and Sundararajan
2008, the method of LIBLINEAR; Shalev-Shwartz and Zhang 2013). The bias has no penalty: the method of multipliers.

A run ends on the duality gap P - D, in float64, so `miss` is a proof. Small problems are solved by interior points
(interior_point.py); larger ones, if a step of one class is cheap enough, after as many sweeps as there are
columns, which cost about as much. Problems with few features start from Newton's method on a rounded hinge
(hinge_newton.py).

The hard margin is C = infinity, where P is |w|^2 / 2 of the direction w stretched until every y_i f_i >= 1. It is
refused if no hyperplane separates the classes (`separating_plane`).
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
from kway.linear.objective import Objective
from kway.linear.solvers.base import MOST_WORK, QUICK_WORK, SLOW, Control, Solution
from kway.linear.solvers.certificates import WIDE_GAP, tol_scale
from kway.linear.solvers.hinge_newton import RoundedOptimum, solve_rounded
from kway.linear.solvers.interior_point import is_small_with_kinks, solve_hard, solve_small
from kway.linear.solvers.standard_columns import column_centers
from kway.memory import rows_per_block
from kway.rows.matrices import dense_rows, rooted_rows, row_squares
from kway.rows.passes import IN_MEMORY
from kway.threads import pmap, spans, workers
from kway.validation import Rows

Floats = NDArray[np.float64]

_ROUND = 10  # sweeps between two looks at the gap, each about as expensive as a sweep (T4d)
SLOW_SWEEPS = 2 * _ROUND  # sweeps, at least, after which interior points take over (T4d: letter)
FEW_FEATURES = 32  # features up to which Newton's method replaces most sweeps: many times faster at 16 (T4d: letter)
WIDEST_GROUP = 64  # classes of a group: their dual variables are an (n, 64) array (T4d, texts of 150 classes)
# of the bias, over the mean square of a row: 1 takes three times as many sweeps on texts, 0.001 as many (T4d)
STIFFNESS = 0.03
FEASIBLE = 1e-10  # the smallest tolerance that HiGHS accepts: smaller margins count as none


@dataclass(frozen=True)
class Dual:
    """Dual coordinate ascent over all classes at once."""

    name: ClassVar[str] = "dual"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.hinge", "penalty.ridge", IN_MEMORY})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Minimize from the dual's zero; theta says nothing about the dual variables and is not used."""
        if is_small_with_kinks(objective, QUICK_WORK):
            return solve_small(objective, control)
        if control.carry is None:
            ascent = Ascent(objective, control)
        else:
            ascent = control.carry.get(objective, lambda: Ascent(objective, control))
            ascent.change_ridge(objective.penalty.ridge)
        history = ascent.approach(control) if ascent.suits_newton else []
        history += ascent.climb(control, min(ascent.sweeps + max(SLOW_SWEEPS, objective.d), control.max_iter))
        if objective.penalty.ridge == 0 and not ascent.closed(control):
            ascent.separate()
            if is_small_with_kinks(replace(objective, penalty=replace(objective.penalty, ridge=1.0))):
                ascent.finish_hard(control)
        done = ascent.closed(control) or ascent.stopped
        if not done and is_small_with_kinks(objective, objective.n_scores * MOST_WORK):
            left = replace(control, max_iter=max(1, control.max_iter - ascent.sweeps))
            end = solve_small(objective, left)
            return replace(end, n_iter=ascent.sweeps + end.n_iter, history=[*history, *end.history])
        history += ascent.climb(control, control.max_iter)
        return ascent.solution(history, control)


class Side(NamedTuple):
    """What is known of each class: planes [w b] (R, d + 1), their primal values and the lower bounds (R,)."""

    theta: Floats
    values: Floats
    lowers: Floats


@dataclass(frozen=True)
class Group:
    """Classes first, first + 1, ...: a (n, k) dual variables, W their rows' sums, bias, center and s (k,)."""

    first: int
    a: NDArray
    W: NDArray  # (d, k) for CSR rows, (k, d) for dense ones
    bias: NDArray
    center: NDArray
    s: NDArray

    @staticmethod
    def at_zero(objective: Objective, first: int, last: int) -> Group:
        """No row has moved. The bias starts at -1, where a row of none of these classes is content."""
        k, d, dtype = last - first, objective.d, objective.X.dtype
        start = np.full(k, -1.0 if objective.fit_intercept and k > 1 else 0.0, dtype)
        shape = (d, k) if sp.issparse(objective.X) else (k, d)
        a, W = np.zeros((objective.n, k), dtype), np.zeros(shape, dtype)
        return Group(first, a, W, start, start.copy(), np.zeros(k, dtype))

    @property
    def classes(self) -> slice:
        """Columns of scores."""
        return slice(self.first, self.first + self.a.shape[1])


class Ascent:
    """Every class against the rest; `sweep` goes on from where the last one ended."""

    def __init__(self, objective: Objective, control: Control | None = None) -> None:
        X, dtype = objective.X, objective.X.dtype
        self.objective, self.sweeps, self.stopped = objective, 0, False
        self._number, self._rows = dtype.type, kernel_rows(X)
        self._square = np.asarray(row_squares(X, dtype), dtype)
        self._stiffness = self._number(STIFFNESS * max(float(self._square.mean()), 1e-30) * objective.fit_intercept)
        rng = np.random.default_rng(0) if control is None else control.rng
        self.groups = [Group.at_zero(objective, a, b) for a, b in _cuts(objective.n_scores)]
        self._rngs = rng.spawn(len(self.groups))
        self.upper, self.best = self._boxes(), self._no_planes()
        self._active = np.flatnonzero((self.upper > 0) & ((self._square > 0) | objective.fit_intercept))
        self._hard = objective.penalty.ridge == 0

    def _no_planes(self) -> Side:
        R = self.objective.n_scores
        return Side(np.zeros((R, self.objective.d + 1)), np.full(R, np.inf), np.zeros(R))

    # ---------------------------------------------------------------- sweeps

    def climb(self, control: Control, most: int) -> list[float]:
        """Rounds of sweeps until the gap is under the tolerance, or `most` sweeps; the history of the objective."""
        history: list[float] = []
        while self.sweeps < most and not self.stopped and not self.closed(control):
            self.sweep(min(_ROUND, most - self.sweeps))
            self.look()
            history.append(self._report(control, len(history) + 1))
        return history

    def _report(self, control: Control, count: int) -> float:
        """Return the objective, after asking the caller whether to stop."""
        value = (self.objective.penalty.ridge or 1.0) * float(self.best.values.sum())
        self.stopped = control.progress is not None and control.progress(count, value)
        if control.validate is not None and control.validate(self.best.theta):
            self.stopped = True
        return value

    def sweep(self, count: int) -> None:
        """Visit the rows `count` times: all of them in the first sweep of a round, then those that do not rest."""
        pmap(lambda item: self._sweep(*item, count), zip(self.groups, self._rngs))
        self.sweeps += count

    def _sweep(self, group: Group, rng: np.random.Generator, count: int) -> None:
        codes, order, quadratic = self.codes - group.first, self._active, self._quadratic()
        for t in range(count):
            order = self._active.copy() if t % _ROUND == 0 else order
            rng.shuffle(order)
            kept = ascend(
                self._rows, codes, self._square, self.upper, quadratic, self._stiffness, order, group.a, group.W,
                group.bias, group.s,
            )  # fmt: skip
            if self._stiffness:
                group.center[:] += self._stiffness * group.s
                group.bias[:] = group.center + self._stiffness * group.s
            order = order[:kept]

    def change_ridge(self, ridge: float) -> None:
        """Go on with the same rows under another penalty: from zero if a box becomes smaller."""
        self.objective = replace(self.objective, penalty=replace(self.objective.penalty, ridge=ridge))
        old, self.upper = self.upper, self._boxes()
        if (self.upper < old).any():
            edges = [(g.classes.start, g.classes.stop) for g in self.groups]
            self.groups = [Group.at_zero(self.objective, a, b) for a, b in edges]
        self.sweeps, self.stopped, self.best = 0, False, self._no_planes()

    def theta(self) -> NDArray:
        """[W b] (R, d + 1) of the last sweep, laid out as products read it."""
        o = self.objective
        theta = np.empty((o.n_scores, o.d + 1), self._number, order="F" if sp.issparse(o.X) else "C")
        for group in self.groups:
            theta[group.classes, :-1] = group.W.T if sp.issparse(o.X) else group.W
            theta[group.classes, -1] = group.bias
        return theta

    @property
    def codes(self) -> NDArray[np.int64]:
        """The class each row speaks for; of two classes the one column of scores is the second's, so 1 is none."""
        codes = self.objective.targets.codes
        return 1 - codes if self.objective.n_scores == 1 else codes

    def _quadratic(self) -> NDArray:
        """width / C (n,); a row of no weight stays at 0 in any case."""
        return self._number(self.objective.loss.width) / np.where(self.upper > 0, self.upper, self._number(1))

    def _boxes(self) -> NDArray:
        """C_i = weight_i / (n ridge)."""
        o = self.objective
        weight = np.ones(o.n) if o.weight is None else o.weight.astype(np.float64)
        if o.penalty.ridge == 0:
            return np.where(weight > 0, float(np.finfo(o.X.dtype).max) / 1e3, 0.0).astype(o.X.dtype)
        return np.asarray(weight / (o.n * o.penalty.ridge), o.X.dtype)

    # ---------------------------------------------------------------- Newton's method, if features are few

    @property
    def suits_newton(self) -> bool:
        """Whether steps with Hessians cost less than the sweeps that they replace."""
        o = self.objective
        return not (self._hard or o.loss.width or sp.issparse(o.X)) and o.d <= FEW_FEATURES

    def approach(self, control: Control) -> list[float]:
        """Move every class near its optimum by Newton's method on the rounded hinge; return the objective."""
        o, upper = self.objective, self.upper.astype(np.float64)
        Z = rooted_rows(o.X, None, np.dtype(np.float64), o.fit_intercept)
        ridge = np.append(np.ones(o.d), [0.0] if o.fit_intercept else [])

        def one(k: int) -> RoundedOptimum:
            y = np.where(self.codes == k, 1.0, -1.0)
            return solve_rounded(Z, y, upper, ridge, control.tol, min(control.max_iter, SLOW))

        found = pmap(one, range(o.n_scores))
        for group in self.groups:
            for at, end in enumerate(found[group.classes]):
                signed = np.where(self.codes == group.first + at, end.a, -end.a)
                group.a[:, at], group.W[at], group.s[at] = end.a, (signed @ Z)[: o.d], signed.sum()
                group.bias[at] = end.theta[-1] if o.fit_intercept else 0.0
            group.center[:] = group.bias - self._stiffness * group.s
            self._judge(group.classes, np.array([end.theta[: o.d] for end in found[group.classes]]), group.bias)
        self.sweeps += max(end.steps for end in found)
        self.look()
        return [self._report(control, 1)]

    # ---------------------------------------------------------------- the duality gap

    @property
    def gap(self) -> float:
        """Upper bound of the excess over the optimum, of all classes."""
        return float(np.maximum(self.best.values - self.best.lowers, 0).sum())

    def closed(self, control: Control) -> bool:
        """Return whether the gap over all classes is at most tol of the objective."""
        value = float(self.best.values.sum())
        if not np.isfinite(value):
            return False
        return bool(self.gap <= control.tol * tol_scale(value, control.least / (self.objective.penalty.ridge or 1.0)))

    def look(self) -> None:
        """Evaluate both sides at the dual variables, in float64; per class, the best of each side is kept."""
        for group in self.groups:
            signed, totals, quadratics = self._balanced(group)
            W = self._combine(signed)  # (k, d)
            norms = np.einsum("kj,kj->k", W, W)
            self._judge(group.classes, W, group.bias)
            with np.errstate(divide="ignore", invalid="ignore"):
                lowers = totals**2 / (2 * norms) if self._hard else totals - quadratics / 2 - norms / 2
            self._raise_bounds(group.classes, np.nan_to_num(lowers, nan=0.0, posinf=0.0))

    def _raise_bounds(self, classes: slice, lowers: Floats) -> None:
        np.maximum(self.best.lowers[classes], lowers, out=self.best.lowers[classes])

    def _balanced(self, group: Group) -> tuple[Floats, Floats, Floats]:
        """y a (n, k) with sum y a = 0, the heavier side shrunk; sum a and sum width a^2 / C (k,)."""
        own = self.codes[:, None] == np.arange(group.classes.start, group.classes.stop)
        a = group.a.astype(np.float64)
        if self.objective.fit_intercept:
            ours, others = a.sum(axis=0, where=own), a.sum(axis=0, where=~own)
            most, least = np.maximum(np.maximum(ours, others), 1e-300), np.minimum(ours, others)
            a *= np.where(own == (ours > others), least / most, 1.0)
        quadratics = self._quadratic().astype(np.float64) @ np.square(a)
        return np.where(own, a, -a), a.sum(axis=0), quadratics

    def _combine(self, signed: Floats) -> Floats:
        """signed' X (k, d)."""
        X = self.objective.X
        if sp.issparse(X):
            return np.ascontiguousarray((X.T @ signed).T)

        def part(rows: slice) -> Floats:
            return signed[rows].T @ X[rows].astype(np.float64)

        return np.asarray(sum(pmap(part, spans(self.objective.n, rows_per_block(8 * self.objective.d)))))

    def _judge(self, classes: slice, W: Floats, biases: NDArray) -> None:
        """Keep the planes that are better than the best so far; a sharp hinge's bias is solved for."""
        X = self.objective.X
        if sp.issparse(X):
            scores = X @ W.T
        else:
            parts = spans(self.objective.n, rows_per_block(8 * self.objective.d))
            scores = np.concatenate(pmap(lambda rows: X[rows].astype(np.float64) @ W.T, parts))

        def one(at: int) -> None:
            k = classes.start + at
            y = np.where(self.codes == k, 1.0, -1.0)
            w, b, value = self._plane(W[at], np.ascontiguousarray(scores[:, at]), y, float(biases[at]))
            if value < self.best.values[k]:
                self.best.theta[k, :-1], self.best.theta[k, -1], self.best.values[k] = w, b, value

        pmap(one, range(len(W)))

    def _plane(self, w: Floats, f: Floats, y: Floats, b: float) -> tuple[Floats, float, float]:
        """w, its best bias, and the primal value."""
        o = self.objective
        if self._hard:
            return stretched(w, f, y, self.upper > 0, o.fit_intercept)
        upper = self.upper.astype(np.float64)
        if o.fit_intercept and not o.loss.width:
            b = best_hinge_bias(y - f, y, upper)
        gap = 1 - y * (f + b * o.fit_intercept)
        width = o.loss.width
        inside = np.clip(gap, 0, width)
        loss = inside * (gap - inside / 2) / width if width else np.maximum(gap, 0)
        return w, b * o.fit_intercept, float(w @ w) / 2 + float(upper @ loss)

    def solution(self, history: list[float], control: Control) -> Solution:
        """The best planes, in the number format of the rows; what rounding to it adds counts towards the miss."""
        o, value, gap = self.objective, float(self.best.values.sum()), self.gap
        theta = o.rows.with_layout(self.best.theta.astype(o.X.dtype))
        end = o.value(theta.astype(np.float64))
        if not self._hard and np.isfinite(value):
            gap += max(0.0, end / o.penalty.ridge - value)
        scale = tol_scale(value, control.least / (o.penalty.ridge or 1.0))
        miss = gap / scale if np.isfinite(value) else np.inf
        converged = miss <= control.tol
        advice = "" if converged else WIDE_GAP
        return Solution(theta, self.sweeps, converged, miss, history or [value], advice, proved=True, value=end)

    # ---------------------------------------------------------------- the hard margin

    def separate(self) -> None:
        """Give every class a separating plane, or raise NotSeparableError."""
        pmap(self._separate_class, np.flatnonzero(~np.isfinite(self.best.values)).tolist())

    def _separate_class(self, k: int) -> None:
        o, counted = self.objective, np.flatnonzero(self.upper > 0)
        y = np.where(self.codes[counted] == k, 1.0, -1.0)
        sides = "the two classes" if o.n_scores == 1 else f"class number {k} and the rest"
        rows = o.X if len(counted) == o.n else o.X[counted]
        w, b = separating_plane(rows, y, o.fit_intercept, sides)
        self.best.theta[k], self.best.values[k] = np.append(w, b), float(w @ w) / 2

    def finish_hard(self, control: Control) -> None:
        """Interior points for the classes whose gap is open."""
        o, best = self.objective, self.best
        todo = np.flatnonzero(best.values - best.lowers > control.tol / 2 * best.values).tolist()
        counted = np.flatnonzero(self.upper > 0)
        X, codes = dense_rows(o.X[counted]), self.codes[counted]

        def one(k: int) -> None:
            y = np.where(codes == k, 1.0, -1.0)
            found = solve_hard(X, y, o.fit_intercept, control.tol / 4)
            w, b, value = stretched(found.w, X @ found.w, y, np.ones(len(y), bool), o.fit_intercept)
            if value < best.values[k]:
                best.theta[k], best.values[k] = np.append(w, b), value
            best.lowers[k] = max(best.lowers[k], found.lower)

        pmap(one, todo)


def _cuts(n_scores: int) -> Iterator[tuple[int, int]]:
    """Classes cut into groups of about equal size, a multiple of the workers."""
    parts = workers()
    parts *= -(-n_scores // (parts * WIDEST_GROUP))
    edges = [n_scores * i // parts for i in range(parts + 1)]
    return ((a, b) for a, b in itertools.pairwise(edges) if b > a)


def kernel_rows(X: Rows) -> Any:
    """Rows as the kernels read them: (n, d), or the triple of a CSR array."""
    return tuple(frozen(part) for part in (X.data, X.indices, X.indptr)) if sp.issparse(X) else frozen(X)


def best_hinge_bias(turns: Floats, y: Floats, weight: Floats) -> float:
    """argmin_b sum_i weight_i max(0, 1 - y_i (f_i + b)), exactly.

    Row i's hinge turns at b = y_i - f_i, where the slope of the sum rises by weight_i; it starts at minus the weight of
    the positive rows, so the best b is the turn at which the weights passed reach that.
    """
    order = np.argsort(turns)
    passed = np.cumsum(weight[order])
    k = int(np.searchsorted(passed, weight[y > 0].sum() * (1 - 1e-15)))
    return float(turns[order[min(k, len(order) - 1)]])


def stretched(
    w: Floats, scores: Floats, y: Floats, counted: NDArray[np.bool_], bias: bool
) -> tuple[Floats, float, float]:
    """w and its bias stretched to reach 1 on the closest row, and |w|^2 / 2; infinite if w does not separate."""
    f, y = scores[counted], y[counted]
    if bias and abs(y.sum()) == len(y):  # one class: nothing to separate
        return np.zeros_like(w), float(y[0]), 0.0
    b = -(f[y > 0].min() + f[y < 0].max()) / 2 if bias else 0.0
    reach = float((y * (f + b)).min())
    if reach <= 0:
        return w, b, np.inf
    return w / reach, b / reach, float(w @ w) / (2 * reach * reach)


# ---------------------------------------------------------------- can a hyperplane separate two classes?


class Violation(NamedTuple):
    """Least total violation of some rows, and a plane (w, b) that has it."""

    violation: float
    w: Floats
    b: float


def separating_plane(X: Rows, y: Floats, bias: bool, sides: str) -> tuple[Floats, float]:
    """Return w, b with y_i (x_i.w + b) >= 1 for all rows, or raise NotSeparableError.

    A linear program over a growing set of rows: rows that cannot be separated settle the question for all; a plane that
    separates some is tried on all, and the rows it misses join. Every round adds a row, so it ends.
    """
    margins, chosen = np.zeros(len(y)), np.zeros(len(y), bool)
    while True:
        batch = max(2 * X.shape[1] + 200, int(chosen.sum()) // 2)
        for side in (y > 0, y < 0):
            own = np.flatnonzero(side & ~chosen)
            chosen[own[np.argsort(margins[own], kind="stable")[:batch]]] = True
        found = least_violation(dense_rows(X[np.flatnonzero(chosen)]), y[chosen], bias)
        margins = y * (np.asarray(X @ found.w).ravel() + found.b)
        reach = float(margins.min())
        if found.violation <= 0.5 and reach > 0:
            return found.w / reach, found.b / reach
        if found.violation > 0.5 or chosen.all():
            through, wrong = "" if bias else " through the origin", int((margins <= 1e-9).sum())
            raise NotSeparableError(
                f"the hard margin (alpha=0) exists only where a hyperplane{through} separates {sides}, but {wrong} of "
                f"{len(y)} rows stay on the wrong side of the best one; use alpha > 0 (a soft margin, such as "
                "alpha=1e-4)"
            )


def least_violation(X: Floats, y: Floats, bias: bool) -> Violation:
    """Solve min sum_i max(0, 1 - y_i (x_i.w + b)), in its dual form; w and b are the multipliers of its equations.

        max_a sum_i a_i,   0 <= a_i <= 1,  sum_i a_i y_i x_i = 0,  and sum_i a_i y_i = 0 if there is a bias

    The violation is 0 if a hyperplane separates the rows, and otherwise at least 1: some a != 0 is feasible, and it can
    be stretched until its largest entry is 1. Nothing lies between, so comparing with 1/2 decides safely.
    """
    from scipy.optimize import linprog  # slow to load, and few ask

    middle = column_centers(X, np.ones(len(X))) if bias else np.zeros(X.shape[1])
    Z = X - middle
    scale = float(np.abs(Z).max()) or 1.0
    Z = (Z / scale * y[:, None]).T  # (d, m)
    equations = np.vstack([Z, y]) if bias else Z
    found = linprog(
        -np.ones(len(y)), A_eq=equations, b_eq=np.zeros(len(equations)), bounds=(0, 1), method="highs",
        options={"primal_feasibility_tolerance": FEASIBLE, "dual_feasibility_tolerance": FEASIBLE},
    )  # fmt: skip
    multipliers = -found.eqlin.marginals
    w = multipliers[: len(Z)] / scale
    b = float(multipliers[-1] - w @ middle) if bias else 0.0
    return Violation(-found.fun, w, b)
