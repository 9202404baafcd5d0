"""Drawn problems and their optima: what `tol` promises, put to the test.

    draw(seed)         rows, labels, weights and an estimator: any shape, units, alpha, dtype, loss, penalty and solver
    optimum(problem)   float64 bounds of F* = min alpha R(W) + mean_i w_i loss(f_i, y_i), from code of its own

The oracle centres and scales the columns, works in the span of the rows where those are fewer, and rounds what has a
kink: |w| as sqrt(w^2 + e^2), a hinge max(0, g) as (g + sqrt(g^2 + e^2)) / 2. The rounded objective F_e lies above F by
at most `lift` = e (lasso's weights + half the hinges' weights), so with a Newton decrement D

    F_e(theta) - D^2 - lift <= F* <= F(theta)

and Newton's method with whole Hessians follows e down. Its Hessians see a kink through a dual variable of its own, kept
in [-1, 1] and moved along (Chan, Golub and Mulet), as an interior point method does: else steps shrink with e. A fit
misses where its objective, in float64, exceeds even the upper bound by more than tol of max(F*, FLOOR F(0)).
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from kway.compute.threads import single_blas
from kway.linear.classifier import LinearClassifier

FLOOR = 1e-6  # an objective below this share of the one at W = 0 counts as that much
SHARPEST = 1e-9


# ---------------------------------------------------------------- problems


@dataclass(frozen=True)
class Problem:
    """Rows, labels and how they are to be learned."""

    seed: int
    X: Any  # (n, d)
    y: np.ndarray  # (n,)
    weight: np.ndarray | None
    options: dict[str, Any]  # of LinearClassifier
    traits: tuple[str, ...] = ()

    @property
    def joint(self) -> bool:
        """Whether all classes are in one problem."""
        return self.options["multiclass"] == "joint" and self.y.max() > 1

    @property
    def kind(self) -> tuple[str, str, str]:
        """What is minimised and how."""
        form = "" if self.options["loss"] == "softmax" else " joint" if self.joint else " ova"
        return self.options["loss"] + form, self.options["penalty"], self.options["solver"]


SHAPES = {  # rows, features, classes: ranges that are drawn from on a logarithmic scale
    "tiny": ((5, 40), (1, 10), (2, 5)),
    "tall": ((200, 5000), (1, 60), (2, 6)),
    "square": ((30, 300), (20, 200), (2, 6)),
    "wide": ((10, 100), (200, 20_000), (2, 5)),
    "classes": ((60, 1500), (1, 12), (20, 200)),
    "spread": ((60, 3000), (2, 30), (2, 20)),
}
SOLVERS = {
    "softmax": {"smooth": ["lbfgs", "proximal", "gradient"], "l1": ["proximal"]},
    "squared": {"smooth": ["least-squares", "lbfgs", "proximal", "gradient"], "l1": ["proximal"]},
    "hinge": {"smooth": ["lbfgs", "proximal"], "l1": ["proximal"]},
}


def draw(seed: int, stochastic: bool = False, least: bool = False) -> Problem:
    """A problem of any kind; `stochastic`: for solver="sgd"; `least`: a small one."""
    rng = np.random.default_rng(seed)
    shape = str(rng.choice(list(SHAPES)))
    loss = str(rng.choice(["softmax", "hinge", "squared"], p=[0.45, 0.35, 0.2]))
    joint = bool(rng.random() < 0.6)
    penalty = str(rng.choice(["l2", "l1", "elasticnet", "none"], p=[0.5, 0.2, 0.2, 0.1]))
    n, d, K = (_between(rng, *range_) for range_ in SHAPES[shape])
    if least:
        n, d, K = min(n, 300), min(d, 40 if penalty in ("l1", "elasticnet") else 3000), min(K, 12)
    n, d, K = _affordable(n, d, K, loss, joint, penalty, 120 if least else 500)
    X, traits = _rows(rng, n, d)
    y = _labels(rng, X, K, traits)
    K = int(y.max()) + 1
    X = _units(rng, X, traits)
    single = bool(rng.random() < 0.4)
    X = X.astype(np.float32 if single else np.float64)
    if rng.random() < 0.25:
        X = sp.csr_matrix(X)
        traits.append("csr")
    weight = rng.lognormal(size=n) * (rng.random(n) < 0.9) if rng.random() < 0.25 else None
    if weight is not None and (np.bincount(y, weight) > 0).sum() == K:
        traits.append("weights")
    else:
        weight = None
    alpha = float(10 ** rng.uniform(-8, 1)) if penalty != "none" else 0.0
    if loss == "hinge" and penalty == "none":
        penalty, alpha = "l2", 1e-8  # without a penalty it is the hard margin, another problem
    options = {
        "loss": loss,
        "penalty": penalty,
        "alpha": alpha,
        "multiclass": "joint" if joint else "one-vs-all",
        "solver": _solver(rng, loss, penalty, joint and K > 2, stochastic),
        "fit_intercept": bool(rng.random() < 0.85),
        "tol": 1e-3 if single or rng.random() < 0.7 else 1e-6,
        "random_state": 0,
    }
    return Problem(seed, X, y, weight, options, (shape, "float32" if single else "float64", *traits))


def _between(rng: np.random.Generator, low: int, high: int) -> int:
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))


def _affordable(n: int, d: int, K: int, loss: str, joint: bool, penalty: str, most: int) -> tuple[int, int, int]:
    """A shape whose whole Hessian the oracle can factor."""
    kinks = loss == "hinge" or penalty in ("l1", "elasticnet")
    parameters = most if kinks else 2 * most
    if penalty in ("l1", "elasticnet"):
        d = min(d, 400)
    each = d if penalty in ("l1", "elasticnet") else min(n, d)
    if joint and K > 2:
        while K * (each + 1) > parameters and K > 3:
            K -= 1
        if K * (each + 1) > parameters:
            n, d = (n, parameters // K) if each == d else (parameters // K, d)
    return max(n, K, 5), max(d, 1), max(2, min(K, n))


def _rows(rng: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, list[str]]:
    """Standard rows with the faults that real ones have."""
    traits = []
    X = rng.normal(size=(n, d))
    if rng.random() < 0.3:
        rank = max(1, d // 4)
        X = X[:, :rank] @ rng.normal(size=(rank, d)) / np.sqrt(rank) + 0.05 * rng.normal(size=(n, d))
        traits.append("correlated")
    if d > 1 and rng.random() < 0.15:
        X[:, rng.integers(d)] = X[:, 0]
        X[:, -1] = 1.0
        traits.append("repeats")
    if rng.random() < 0.15:
        X = X[rng.integers(0, max(2, n // 2), n)]
        traits.append("equal rows")
    if rng.random() < 0.15:
        X *= rng.random((n, d)) < 0.2
        traits.append("zeros")
    return X, traits


def _labels(rng: np.random.Generator, X: np.ndarray, K: int, traits: list[str]) -> np.ndarray:
    """Classes of a linear teacher, with noise of any size; each class has a row."""
    noise = float(rng.choice([0.0, 0.3, 1.0, 10.0]))
    scores = X @ rng.normal(size=(X.shape[1], K)) / np.sqrt(X.shape[1]) + noise * rng.normal(size=(len(X), K))
    y = scores.argmax(axis=1)
    y[rng.permutation(len(X))[:K]] = np.arange(K)
    traits.append(f"noise {noise:g}")
    return y


def _units(rng: np.random.Generator, X: np.ndarray, traits: list[str]) -> np.ndarray:
    """Columns in units of their own, and away from zero."""
    units = str(rng.choice(["equal", "lognormal", "any", "large", "small"], p=[0.5, 0.2, 0.1, 0.1, 0.1]))
    d = X.shape[1]
    if rng.random() < 0.2:
        X = X + rng.choice([1.0, 100.0]) * rng.normal(size=d)
        traits.append("offset")
    exponent = {"equal": 0.0, "lognormal": rng.normal(size=d), "any": rng.uniform(-12, 12, d)}
    power = exponent.get(units, rng.uniform(3, 12) if units == "large" else rng.uniform(-12, -3))
    if units != "equal":
        traits.append(f"units {units}")
    return X * 10.0**power


def _solver(rng: np.random.Generator, loss: str, penalty: str, joint: bool, stochastic: bool) -> str:
    if stochastic:
        return "sgd"
    if rng.random() < 0.7:
        return "auto"
    able = SOLVERS[loss]["l1" if penalty in ("l1", "elasticnet") else "smooth"]
    if loss == "hinge" and not joint and penalty == "l2":
        able = [*able, "dual"]
    return str(rng.choice(able))


# ---------------------------------------------------------------- values


class Bounds(NamedTuple):
    """lower <= F* <= upper, and F at W = 0 with the best bias or none."""

    lower: float
    upper: float
    zero: float

    @property
    def scale(self) -> float:
        """What tol is relative to."""
        return max(self.upper, FLOOR * self.zero)


def dense(X: Any) -> np.ndarray:
    """Rows in float64."""
    return np.asarray(X.toarray() if sp.issparse(X) else X, np.float64)


def objective(problem: Problem, coef: np.ndarray, intercept: np.ndarray) -> float:
    """F in float64, as documented."""
    W = np.asarray(coef, np.float64)
    scores = dense(problem.X) @ W.T + np.asarray(intercept, np.float64)
    ridge, lasso = _strengths(problem)
    return float(
        ridge / 2 * np.sum(W * W) + lasso * np.abs(W).sum() + _weights(problem) @ _model(problem).value(scores)
    )


def _strengths(problem: Problem) -> tuple[float, float]:
    alpha = problem.options["alpha"]
    share = {"l2": 0.0, "l1": 1.0, "elasticnet": 0.5, "none": 0.0}[problem.options["penalty"]]
    return (0.0, 0.0) if problem.options["penalty"] == "none" else (alpha * (1 - share), alpha * share)


def _weights(problem: Problem) -> np.ndarray:
    weight = np.ones(len(problem.y)) if problem.weight is None else problem.weight.astype(np.float64)
    return weight / weight.sum()


@dataclass(frozen=True)
class Model:
    """A loss of the scores (n, R): values (n,), slopes (n, R), and what curvatures are made of (n, R)."""

    loss: str
    joint: bool
    y: np.ndarray
    n_scores: int

    @property
    def signs(self) -> np.ndarray:
        if self.n_scores == 1:
            return np.where(self.y == 1, 1.0, -1.0)[:, None]
        return np.where(np.arange(self.n_scores) == self.y[:, None], 1.0, -1.0)

    def value(self, f: np.ndarray, e: float = 0.0) -> np.ndarray:
        if self.loss == "softmax" and self.joint:
            gaps = f - f[np.arange(len(f)), self.y][:, None]
            top = np.maximum(gaps.max(axis=1), 0)
            own = np.exp(gaps - top[:, None])
            own[np.arange(len(f)), self.y] = 0
            return np.where(top > 0, top + np.log(own.sum(axis=1) + np.exp(-top)), np.log1p(own.sum(axis=1)))
        if self.loss == "softmax":
            t = self.signs * f
            return (np.maximum(-t, 0) + np.log1p(np.exp(-np.abs(t)))).sum(axis=1)
        if self.loss == "squared":
            target = (self.signs + 1) / 2 if self.joint else self.signs
            return np.square(f - target).sum(axis=1)
        g = self.gaps(f)
        return (((g + np.sqrt(g * g + e * e)) / 2) * self.counted).sum(axis=1)

    @property
    def counted(self) -> np.ndarray:
        return (self.signs < 0).astype(float) if self.joint else np.ones((len(self.y), self.n_scores))

    def gaps(self, f: np.ndarray) -> np.ndarray:
        return 1 + f - f[np.arange(len(f)), self.y][:, None] if self.joint else 1 - self.signs * f

    def slopes(self, f: np.ndarray, e: float, dual: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
        """Slopes (n, R), and what bends: p of a softmax, else second derivatives, a hinge's as its dual sees them."""
        if self.loss == "softmax" and self.joint:
            p = np.exp(f - f.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            rows = np.arange(len(f))
            slope = p.copy()
            slope[rows, self.y] = 0
            slope[rows, self.y] = -slope.sum(axis=1)
            return slope, p
        if self.loss == "softmax":
            t = self.signs * f
            small = np.exp(-np.abs(t))
            p = np.where(t >= 0, small, 1) / (1 + small)  # sigma(-t)
            return -self.signs * p, small / (1 + small) ** 2
        if self.loss == "squared":
            target = (self.signs + 1) / 2 if self.joint else self.signs
            return 2 * (f - target), np.full_like(f, 2.0)
        g = self.gaps(f)
        root = np.sqrt(g * g + e * e)
        push, bend = (1 + g / root) / 2 * self.counted, (1 - dual * g / root) / (2 * root) * self.counted
        if not self.joint:
            return -self.signs * push, bend
        push[np.arange(len(f)), self.y] = -push.sum(axis=1)
        return push, bend


def _model(problem: Problem) -> Model:
    R = 1 if problem.y.max() == 1 else int(problem.y.max()) + 1
    return Model(problem.options["loss"], problem.joint, problem.y, R)


# ---------------------------------------------------------------- optima


@dataclass
class Rounded:
    """The rounded objective over theta (R, D) in columns of unit size."""

    Z: np.ndarray  # (n, D)
    model: Model
    weight: np.ndarray  # of sum 1
    ridge: np.ndarray  # (D,)
    lasso: np.ndarray  # (D,)
    pulls: np.ndarray = field(init=False)  # duals of |w| (R, D)
    pushes: np.ndarray = field(init=False)  # duals of the hinges (n, R)

    def __post_init__(self) -> None:
        self.pulls = np.zeros((self.model.n_scores, self.Z.shape[1]))
        self.pushes = np.zeros((len(self.Z), self.model.n_scores))

    def value(self, theta: np.ndarray, e: float) -> float:
        penalty = float(np.sum(theta * theta @ self.ridge) / 2 + np.sum(np.hypot(theta, self._widths(e)) @ self.lasso))
        return penalty + float(self.weight @ self.model.value(self.Z @ theta.T, e))

    def lift(self, e: float) -> float:
        hinges = self.weight @ self.model.counted.sum(axis=1) / 2 if self.model.loss == "hinge" else 0.0
        return float(self.model.n_scores * self.lasso @ self._widths(e) + e * hinges)

    def _widths(self, e: float) -> np.ndarray:
        """e of each weight, less where its lasso is large."""
        return e / np.maximum(1.0, self.lasso)

    def newton(self, theta: np.ndarray, e: float) -> tuple[np.ndarray, np.ndarray]:
        """Gradient and Newton step, (R, D) each."""
        slope, bend = self.model.slopes(self.Z @ theta.T, e, self.pushes)
        root = np.hypot(theta, self._widths(e))
        root = np.where(root > 0, root, 1)
        gradient = (slope * self.weight[:, None]).T @ self.Z + theta * self.ridge + self.lasso * theta / root
        diagonal = self.ridge + self.lasso * (1 - self.pulls * theta / root) / root  # (R, D)
        bend = bend * self.weight[:, None]
        if self.model.joint and self.model.loss != "squared":
            H = self._softmax(bend) if self.model.loss == "softmax" else self._pairs(bend)
            H[np.diag_indices(len(H))] += diagonal.ravel()
            return gradient, -_solve(H, gradient.ravel()).reshape(theta.shape)
        each = [_gram(self.Z, bend[:, k]) + np.diag(diagonal[k]) for k in range(len(theta))]
        return gradient, np.array([-_solve(H, g) for H, g in zip(each, gradient)])

    def _softmax(self, bend: np.ndarray) -> np.ndarray:
        """sum_i weight_i (diag(p_i) - p_i p_i') (x) z_i z_i'."""
        (n, R), D = bend.shape, self.Z.shape[1]
        stacked = (bend[:, :, None] * self.Z[:, None, :]).reshape(n, R * D)
        H = -stacked.T @ (stacked / self.weight[:, None])
        for k in range(R):
            H[k * D : (k + 1) * D, k * D : (k + 1) * D] += _gram(self.Z, bend[:, k])
        return H

    def _pairs(self, bend: np.ndarray) -> np.ndarray:
        """sum_i sum_c bend_ic (e_c - e_y) (e_c - e_y)' (x) z_i z_i'."""
        R, D = bend.shape[1], self.Z.shape[1]
        H = np.zeros((R, D, R, D))
        for k in range(R):
            own = self.model.y == k
            z, h = self.Z[own], bend[own]
            H[k, :, k] += _gram(self.Z, bend[:, k]) + _gram(z, h.sum(axis=1))
            cross = ((h[:, :, None] * z[:, None, :]).reshape(len(z), R * D).T @ z).reshape(R, D, D)
            H[:, :, k] -= cross
            H[k] -= cross.transpose(2, 0, 1)
        return H.reshape(R * D, R * D)

    def minimise(self, theta: np.ndarray, e: float, enough: float) -> tuple[np.ndarray, float]:
        """Damped Newton to a decrement, squared, under `enough` of the value."""
        value, decrement = self.value(theta, e), np.inf
        for _ in range(100):
            gradient, step = self.newton(theta, e)
            decrement = max(0.0, -float(np.sum(gradient * step)))
            if decrement <= enough * max(value, 1e-12):
                break
            t = 1.0
            while (new := self.value(theta + t * step, e)) > value - 0.1 * t * decrement and t > 1e-9:
                t /= 2
            if new >= value:
                break
            self._follow(theta, t * step, e)
            theta, value = theta + t * step, new
        return theta, decrement

    def _follow(self, theta: np.ndarray, step: np.ndarray, e: float) -> None:
        """Both kinds of duals, linearised around u root = theta."""
        if self.lasso.any():
            self.pulls = _moved(self.pulls, theta, step, self._widths(e))
        if self.model.loss == "hinge":
            f, turn = self.Z @ theta.T, self.Z @ step.T
            gaps = self.model.gaps(f)
            self.pushes = _moved(self.pushes, gaps, self.model.gaps(f + turn) - gaps, e)


def _moved(dual: np.ndarray, at: np.ndarray, by: np.ndarray, e: Any) -> np.ndarray:
    root = np.sqrt(at * at + e * e)
    new = at / root + (1 - dual * at / root) / root * by
    return np.clip(new, -1, 1)


def _gram(Z: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return (Z * weight[:, None]).T @ Z


def _factor(H: np.ndarray) -> Any:
    """x -> H^-1 x, H scaled to a unit diagonal and lifted until it can be factored."""
    diagonal = np.diag(H)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
    unit, lift = H * scale * scale[:, None], 1e-14
    while True:
        try:
            factor = la.cho_factor(unit + lift * np.eye(len(H)), lower=True)
            return lambda x: scale * la.cho_solve(factor, scale * x)
        except la.LinAlgError:
            lift *= 10


def _solve(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    return np.asarray(_factor(H)(g))


def rounded(problem: Problem) -> Rounded:
    """The problem in columns of unit size: centred where the bias allows, in the span of few rows."""
    X, (ridge, lasso) = dense(problem.X), _strengths(problem)
    weight, bias = _weights(problem), problem.options["fit_intercept"]
    counted = weight > 0
    X, weight = X[counted], weight[counted]
    if bias:
        X = X - weight @ X
    X[:, np.abs(X).max(axis=0) <= 1e-13 * np.abs(dense(problem.X)).max(axis=0)] = 0
    if len(X) < X.shape[1] and not lasso:  # largest columns first: then QR with pivots keeps the small ones' digits
        order = np.argsort(-np.abs(X).max(axis=0), kind="stable")
        triangle, turn = la.qr(X[:, order].T, mode="r", pivoting=True)
        _, first, which = np.unique(X, axis=0, return_index=True, return_inverse=True)
        X = np.empty_like(triangle[: len(X)].T)
        X[turn] = triangle[: len(X)].T
        X = X[first[which.ravel()]]  # equal rows stay equal, or rounding would tell them apart
    unit = np.sqrt(np.mean(X * X, axis=0))
    unit[unit == 0] = 1
    Z, ridges, lassos = X / unit, ridge / unit**2, lasso / unit
    if bias:
        Z, ridges, lassos = np.column_stack([Z, np.ones(len(Z))]), np.append(ridges, 0.0), np.append(lassos, 0.0)
    model = _model(problem)
    model = Model(model.loss, model.joint, model.y[counted], model.n_scores)
    return Rounded(Z, model, weight, ridges, lassos)


def optimum(problem: Problem) -> Bounds:
    """Bounds of F*."""
    with single_blas():
        return _optimum(problem, rounded(problem))


def _optimum(problem: Problem, smooth: Rounded) -> Bounds:
    theta = np.zeros((smooth.model.n_scores, smooth.Z.shape[1]))
    zero, tol = smooth.value(theta, 0.0), problem.options["tol"]
    kinks = bool(smooth.lasso.any()) or smooth.model.loss == "hinge"
    e = 0.3 if kinks else 0.0
    best = zero
    while True:
        theta, decrement = smooth.minimise(theta, e, 1e-3 * min(tol, 1e-3) if e <= 1e-5 or not kinks else 1e-5)
        best = min(best, smooth.value(theta, 0.0))
        lower = max(0.0, smooth.value(theta, e) - 2 * decrement - smooth.lift(e))
        if not kinks or best - lower <= tol / 20 * max(best, FLOOR * zero) or e < SHARPEST:
            return Bounds(lower, best, zero)
        e /= 4


# ---------------------------------------------------------------- verdicts


class Verdict(NamedTuple):
    """A fit against its optimum: `excess` over it in units of tol, and what was said."""

    problem: Problem
    excess: float
    warned: bool
    error: str
    seconds: float
    bounds: Bounds

    @property
    def silent_miss(self) -> bool:
        """Above tol, and nobody was told."""
        return bool(self.error) or (not self.warned and not self.excess <= 1)

    def __str__(self) -> str:
        p = self.problem
        said = self.error or ("warned" if self.warned else "silent")
        return (
            f"seed {p.seed}: {'/'.join(p.kind)} alpha {p.options['alpha']:.1e} tol {p.options['tol']:g} {p.X.shape} "
            f"K {p.y.max() + 1} {' '.join(p.traits)}{'' if p.options['fit_intercept'] else ' no bias'}: "
            f"{self.excess:.3g} tol above {self.bounds.upper:.3g} (zero: {self.bounds.zero:.3g}), {said}, "
            f"{self.seconds:.2f} s"
        )


def judge(problem: Problem) -> Verdict:
    """Fit and compare."""
    bounds = optimum(problem)
    model = LinearClassifier(**problem.options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        begun = time.perf_counter()
        try:
            model.fit(problem.X, problem.y, sample_weight=problem.weight)
        except Exception as error:
            return Verdict(problem, np.inf, False, f"{type(error).__name__}: {error}", 0.0, bounds)
        seconds = time.perf_counter() - begun
    warned = any(issubclass(w.category, ConvergenceWarning) for w in said)
    with np.errstate(all="ignore"):
        found = objective(problem, model.coef_, model.intercept_)
    excess = (found - bounds.upper) / (problem.options["tol"] * bounds.scale)
    return Verdict(problem, excess, warned, "", seconds, bounds)


# ---------------------------------------------------------------- time


def peers(problem: Problem) -> list[Any]:
    """scikit-learn's estimators of the same objective: softmax and binary log loss with L2, and ridge regression."""
    o, n = problem.options, problem.X.shape[0]
    if o["penalty"] != "l2" or (o["loss"] == "softmax" and problem.y.max() > 1 and not problem.joint):
        return []
    if o["loss"] == "softmax":
        C = 1 / (o["alpha"] * n)  # its weights add up to their sum: scaled to a mean of 1 before
        more = {"C": C, "fit_intercept": o["fit_intercept"], "max_iter": 1000}
        tols = (1e-4, 1e-7)
        solvers = ("lbfgs", "newton-cholesky")
        return [LogisticRegression(solver=s, tol=tol, **more) for s in solvers for tol in tols]
    return []


def peer_seconds(problem: Problem, bounds: Bounds) -> float:
    """The least CPU time of a peer that reaches the optimum within tol; infinite if none does."""
    weight = _weights(problem) * len(problem.y)
    best = np.inf
    for peer in peers(problem):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            begun = time.process_time()
            try:
                peer.fit(problem.X, problem.y, sample_weight=None if problem.weight is None else weight)
            except Exception:
                continue
            seconds = time.process_time() - begun
        with np.errstate(all="ignore"):
            found = objective(problem, peer.coef_, peer.intercept_)
        if found - bounds.upper <= problem.options["tol"] * bounds.scale:
            best = min(best, seconds)
    return best


def time_ratio(verdict: Verdict) -> float:
    """kway's CPU time over the best peer's; nan where there is no peer, 0 where none reaches the optimum."""
    problem = verdict.problem
    if problem.options["solver"] != "auto" or not peers(problem):
        return np.nan
    best = peer_seconds(problem, verdict.bounds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        begun = time.process_time()
        LinearClassifier(**problem.options).fit(problem.X, problem.y, sample_weight=problem.weight)
    return (time.process_time() - begun) / best
