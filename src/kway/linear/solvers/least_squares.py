"""Least squares in closed form: min over (W, b) of ridge / 2 ||W||^2 + mean_i w_i ||y_i - W x_i - b||^2.

The bias b has no penalty. Centering the columns of X and Y removes it. With Xc and Yc centered, the optimum solves
(2/n Xc'Xc + ridge I) W' = 2/n Xc'Yc:

    well conditioned      Cholesky factorization of these normal equations
    otherwise             SVD of Xc. Nothing is squared before it is factorized, and a rank-deficient X gets the
                          solution of least norm
    sparse and wide       LSMR with the centered rows as a linear operator, so that X is never made dense

Shapes: X (n, d), Y (n, R) with one target per score, W (R, d), b (R,), theta = [W b] (R, d + 1), weights w (n,).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsmr

from kway.linear.losses import TargetScores
from kway.linear.objective import Objective
from kway.linear.solvers.base import Carry, Control, Solution, Solver
from kway.planning.costs import MAX_FACTOR_FEATURES
from kway.rows.matrices import dense_rows
from kway.rows.passes import IN_MEMORY
from kway.threads import pmap, shares, spans_of
from kway.validation import Rows

Floats = NDArray[np.float64]

# Smallest reciprocal condition number of the normal equations for Cholesky. The relative error of the solution is about
# eps / 1e-9 = 2e-7 (eps = 2e-16 is the rounding of float64), so that about seven digits are correct.
MIN_CONDITION = 1e-9


@dataclass(frozen=True)
class LeastSquares(Solver):
    """Closed form for the squared loss."""

    name: ClassVar[str] = "least-squares"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.squared", "penalty.smooth", IN_MEMORY})

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """Return the optimum; theta only sets the float type."""
        o, Y, ridge = objective, regression_targets(objective), objective.penalty.ridge
        if sp.issparse(o.X) and o.d > MAX_FACTOR_FEATURES:
            optimum = solve_sparse_and_wide(o.X, Y, ridge, o.weight, o.fit_intercept)
        else:
            carry = control.carry or Carry()
            optimum = carry.get(o, lambda: NormalEquations(o.X, Y, o.weight, o.fit_intercept)).solve(ridge)
        optimum = optimum.astype(theta.dtype)
        return Solution(optimum, 1, history=[objective.value(optimum)])


def regression_targets(objective: Objective) -> Floats:
    """Return the target of each score, (n, R), averaged with soft targets as weights if the rows have them."""
    own, other = objective.loss.target_scores or TargetScores(1.0, 0.0)
    codes, soft = objective.targets
    if soft is None:
        width = objective.n_scores
        soft = np.zeros((objective.n, width))
        soft[np.arange(objective.n), 0 if width == 1 else codes] = codes if width == 1 else 1
    return (own - other) * np.asarray(soft, np.float64) + other


def solve_sparse_and_wide(X: Rows, Y: NDArray, ridge: float, weight: NDArray | None, fit_intercept: bool) -> Floats:
    """Return theta = [W b] (R, d + 1) for targets Y (n, R)."""
    w = np.ones(X.shape[0]) if weight is None else np.asarray(weight, np.float64)
    x_mean, y_mean = _means(X, Y, w, fit_intercept)
    W = _solve_by_lsmr(X, Y - y_mean, x_mean, ridge * w.sum() / 2, np.sqrt(w))
    return np.hstack([W, (y_mean - W @ x_mean)[:, None]])


class NormalEquations:
    """Xc' diag(w) Xc and Xc' diag(w) Yc of centered rows and targets, computed once for all ridges."""

    def __init__(self, X: Rows, Y: NDArray, weight: NDArray | None = None, fit_intercept: bool = True) -> None:
        self._w = np.ones(X.shape[0]) if weight is None else np.asarray(weight, np.float64)
        self._x_mean, self._y_mean = _means(X, Y, self._w, fit_intercept)
        self._X, self._Y = X, Y - self._y_mean
        self._gram, self._cross = _normal_equations(X, self._Y, self._x_mean, self._w)

    def solve(self, ridge: float) -> Floats:
        """Return [W b] (R, d + 1), from the rows themselves if the equations are badly conditioned."""
        damping = ridge * self._w.sum() / 2
        damped = self._gram.copy()
        damped[np.diag_indices_from(damped)] += damping
        W = _solve_by_cholesky(damped, self._cross)
        if W is None:
            W = _solve_by_svd(self._X, self._Y, self._x_mean, damping, np.sqrt(self._w))
        return np.hstack([W, (self._y_mean - W @ self._x_mean)[:, None]])


class _Means(NamedTuple):
    """Weighted means of the columns (d,) and of the targets (R,); zeros without a bias."""

    columns: Floats
    targets: Floats


def _means(X: Rows, Y: NDArray, w: NDArray, fit_intercept: bool) -> _Means:
    if not fit_intercept:
        return _Means(np.zeros(X.shape[1]), np.zeros(Y.shape[1]))
    return _Means(np.asarray(w @ X, np.float64).ravel() / w.sum(), w @ Y / w.sum())


def _normal_equations(X: Rows, Y: NDArray, x_mean: NDArray, w: NDArray) -> tuple[NDArray, NDArray]:
    """Return Xc' diag(w) Xc (d, d) and Xc' diag(w) Y (d, R) in float64; each worker sums a share of the rows."""

    def sum_share(share: slice) -> tuple[NDArray, NDArray]:
        gram, cross = np.zeros((X.shape[1],) * 2), np.zeros((X.shape[1], Y.shape[1]))
        for rows in spans_of(share, 2048):
            x = (dense_rows(X[rows]) - x_mean) * np.sqrt(w[rows, None])
            gram += x.T @ x
            cross += x.T @ (Y[rows] * np.sqrt(w[rows, None]))
        return gram, cross

    parts = pmap(sum_share, shares(X.shape[0], least=512))
    return np.sum([gram for gram, _ in parts], axis=0), np.sum([cross for _, cross in parts], axis=0)


def _solve_by_cholesky(gram: NDArray, cross: NDArray) -> NDArray | None:
    """Return W (R, d), or None if the normal equations are too badly conditioned."""
    try:
        factor = la.cho_factor(gram, lower=True)
    except la.LinAlgError:
        return None
    norm = np.abs(gram).sum(axis=0).max()
    condition, _ = la.lapack.dpocon(factor[0], norm, uplo="L")
    return None if condition < MIN_CONDITION else la.cho_solve(factor, cross).T


def _solve_by_svd(X: Rows, Y: NDArray, x_mean: NDArray, damping: float, root_weight: NDArray) -> NDArray:
    """Return W (R, d) of least norm; singular values below the rounding of X count as zero."""
    n, d = X.shape
    scaled = (dense_rows(X[:n]) - x_mean) * root_weight[:, None]
    u, s, vt = la.svd(scaled, full_matrices=False, overwrite_a=True, check_finite=False)
    keep = s > max(n, d) * np.finfo(np.float64).eps * s.max(initial=0.0)
    inverse = np.where(keep, s, 0) / np.where(keep, s * s + damping, 1)
    return (vt.T @ (inverse[:, None] * (u.T @ (Y * root_weight[:, None])))).T


def _solve_by_lsmr(X: Rows, Y: NDArray, x_mean: NDArray, damping: float, root_weight: NDArray) -> NDArray:
    """Return W (R, d); each worker solves for some of the scores."""
    n, d = X.shape
    operator = LinearOperator(
        (n, d),
        matvec=lambda v: root_weight * (X @ v.ravel() - x_mean @ v.ravel()),
        rmatvec=lambda u: X.T @ (root_weight * u.ravel()) - x_mean * (root_weight @ u.ravel()),
        dtype=np.float64,
    )

    def solve_score(k: int) -> NDArray:
        result = lsmr(operator, root_weight * Y[:, k], damp=np.sqrt(damping), atol=1e-10, btol=1e-10, maxiter=20 * d)
        return np.asarray(result[0])

    return np.array(pmap(solve_score, range(Y.shape[1])))
