"""Optima by an oracle of its own.

The oracle centres and scales the columns, works in the span of the rows where those are fewer, and rounds what has a
kink: |w| as sqrt(w^2 + e^2), a hinge max(0, g) as (g + sqrt(g^2 + e^2)) / 2. The rounded objective F_e lies above F by
at most `lift` = e (lasso's weights + half the hinges' weights), so with a Newton decrement D

    F_e(theta) - D^2 - lift <= F* <= F(theta)

and Newton's method with whole Hessians follows e down. Its Hessians see a kink through a dual variable of its own, kept
in [-1, 1] and moved along (Chan, Golub and Mulet), as an interior point method does: else steps shrink with e. A fit
misses where its objective, in float64, exceeds even the upper bound by more than tol of max(F*, FLOOR F(0)).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg as la

from kway.threads import single_blas
from optimum_attack.problems import Problem
from optimum_attack.values import FLOOR, Bounds, Model, dense, model_of, strengths, weights

SHARPEST = 1e-9


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
    X, (ridge, lasso) = dense(problem.X), strengths(problem)
    weight, bias = weights(problem), problem.options["fit_intercept"]
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
    model = model_of(problem)
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
