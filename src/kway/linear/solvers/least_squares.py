"""Least squares in closed form: min ridge / 2 ||W||^2 + mean_i w_i ||y_i - W x_i - b||^2 over (W, b), b not penalised.

With columns centered (which takes the bias out) this is (2/n Xc'Xc + ridge I) W' = 2/n Xc'Yc:

    well conditioned      Cholesky of the normal equations
    otherwise             QR of [Xc Yc; sqrt(n ridge / 2) I 0], then SVD of the triangle: rank-deficient X gets the
                          solution of least norm, and nothing is squared before it is factored
    sparse and wide       LSMR on the centered operator, so X is never made dense
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, lsmr

from kway.linear.losses import Aims
from kway.linear.objective import Objective
from kway.linear.solvers.base import Control, Solution
from kway.linear.solvers.preconditioners import MOST_FEATURES
from kway.rows.matrices import dense_rows
from kway.rows.passes import IN_MEMORY
from kway.threads import pmap, shares, spans_of
from kway.validation import Rows

SAFE_CONDITION = 1e-9  # of the normal equations in float64: leaves about seven digits


@dataclass(frozen=True)
class LeastSquares:
    """Closed form for the squared loss."""

    name: ClassVar[str] = "least-squares"
    needs: ClassVar[frozenset[str]] = frozenset({"loss.squared", "penalty.smooth", IN_MEMORY})
    promises: ClassVar[bool] = True
    spans: ClassVar[bool] = True

    def solve(self, objective: Objective, theta: NDArray, control: Control) -> Solution:
        """The optimum, in one step; the start does not matter."""
        o, Y = objective, regression_targets(objective)
        if control.carry is not None and not (sp.issparse(o.X) and o.d > MOST_FEATURES):
            equations = control.carry.get(o, lambda: NormalEquations(o.X, Y, o.weight, o.fit_intercept))
            found = equations.theta(o.penalty.ridge).astype(theta.dtype)
        else:
            found = least_squares(o.X, Y, o.penalty.ridge, o.weight, o.fit_intercept).astype(theta.dtype)
        return Solution(found, 1, history=[objective.value(found)])


def regression_targets(objective: Objective) -> NDArray[np.float64]:
    """What each score should be (n, R): the loss's aims, weighed where targets are soft."""
    own, other = objective.loss.aims or Aims(1.0, 0.0)
    codes, soft = objective.targets
    if soft is None:
        width = objective.n_scores
        soft = np.zeros((objective.n, width))
        soft[np.arange(objective.n), 0 if width == 1 else codes] = codes if width == 1 else 1
    return (own - other) * np.asarray(soft, np.float64) + other


def least_squares(
    X: Rows,
    Y: NDArray,
    ridge: float = 0.0,
    weight: NDArray | None = None,
    fit_intercept: bool = True,
) -> NDArray[np.float64]:
    """theta = [W b] of shape (R, d + 1) for targets Y (n, R)."""
    w = np.ones(X.shape[0]) if weight is None else np.asarray(weight, np.float64)
    if sp.issparse(X) and X.shape[1] > MOST_FEATURES:
        center, middle = _means(X, Y, w, fit_intercept)
        W = _wide(X, Y - middle, center, ridge * w.sum() / 2, np.sqrt(w))
        return np.hstack([W, (middle - W @ center)[:, None]])
    return NormalEquations(X, Y, weight, fit_intercept).theta(ridge)


class NormalEquations:
    """Xc' diag(w) Xc and Xc' diag(w) Yc of columns and targets (n, R) centered, made once for every ridge."""

    def __init__(
        self,
        X: Rows,
        Y: NDArray,
        weight: NDArray | None = None,
        fit_intercept: bool = True,
    ) -> None:
        self._w = np.ones(X.shape[0]) if weight is None else np.asarray(weight, np.float64)
        self._center, self._middle = _means(X, Y, self._w, fit_intercept)
        self._X, self._Y = X, Y - self._middle
        self._gram, self._cross = _normal_equations(X, self._Y, self._center, self._w)

    def theta(self, ridge: float) -> NDArray[np.float64]:
        """[W b] (R, d + 1) of a ridge; where the equations cannot be trusted with it, from the rows themselves."""
        damp = ridge * self._w.sum() / 2
        damped = self._gram.copy()
        damped[np.diag_indices_from(damped)] += damp
        W = _cholesky(damped, self._cross)
        if W is None:
            W = _orthogonal(self._X, self._Y, self._center, damp, np.sqrt(self._w))
        return np.hstack([W, (self._middle - W @ self._center)[:, None]])


class _Means(NamedTuple):
    """Means of the columns (d,) and of the targets (R,); zeros without a bias."""

    columns: NDArray[np.float64]
    targets: NDArray[np.float64]


def _means(X: Rows, Y: NDArray, w: NDArray, fit_intercept: bool) -> _Means:
    if not fit_intercept:
        return _Means(np.zeros(X.shape[1]), np.zeros(Y.shape[1]))
    return _Means(np.asarray(w @ X, np.float64).ravel() / w.sum(), w @ Y / w.sum())


def _normal_equations(X: Rows, Y: NDArray, center: NDArray, w: NDArray) -> tuple[NDArray, NDArray]:
    """Xc' diag(w) Xc (d, d) and Xc' diag(w) Y (d, R), in float64, a share of the rows a worker."""

    def part(share: slice) -> tuple[NDArray, NDArray]:
        gram, cross = np.zeros((X.shape[1],) * 2), np.zeros((X.shape[1], Y.shape[1]))
        for rows in spans_of(share, 2048):
            x = (dense_rows(X[rows]) - center) * np.sqrt(w[rows, None])
            gram += x.T @ x
            cross += x.T @ (Y[rows] * np.sqrt(w[rows, None]))
        return gram, cross

    parts = pmap(part, shares(X.shape[0], least=512))
    return np.sum([p[0] for p in parts], axis=0), np.sum([p[1] for p in parts], axis=0)


def _cholesky(gram: NDArray, cross: NDArray) -> NDArray | None:
    """W (R, d), or None where the normal equations are too badly conditioned to be trusted."""
    try:
        factor = la.cho_factor(gram, lower=True)
    except la.LinAlgError:
        return None
    norm = np.abs(gram).sum(axis=0).max()
    condition, _ = la.lapack.dpocon(factor[0], norm, uplo="L")
    return None if condition < SAFE_CONDITION else la.cho_solve(factor, cross).T


def _orthogonal(X: Rows, Y: NDArray, center: NDArray, damp: float, root: NDArray) -> NDArray:
    """W (R, d) of least norm through QR and SVD; directions below the rounding of X count as absent."""
    n, d = X.shape
    scaled = (dense_rows(X[:n]) - center) * root[:, None]
    if d >= n:  # no triangle to gain: straight to the SVD
        u, s, vt = la.svd(scaled, full_matrices=False)
        right = u.T @ (Y * root[:, None])
    else:
        triangle = la.qr(np.hstack([scaled, Y * root[:, None]]), mode="r", overwrite_a=True, check_finite=False)[0]
        u, s, vt = la.svd(triangle[:d, :d])
        right = u.T @ triangle[:d, d:]
    keep = s > max(n, d) * np.finfo(np.float64).eps * s.max(initial=0.0)
    inverse = np.where(keep, s, 0) / np.where(keep, s * s + damp, 1)
    return (vt.T @ (inverse[:, None] * right)).T


def _wide(X: Rows, Y: NDArray, center: NDArray, damp: float, root: NDArray) -> NDArray:
    """W (R, d) by LSMR, one class after another on the workers."""
    n, d = X.shape
    operator = LinearOperator(
        (n, d),
        matvec=lambda v: root * (X @ v.ravel() - center @ v.ravel()),
        rmatvec=lambda u: X.T @ (root * u.ravel()) - center * (root @ u.ravel()),
        dtype=np.float64,
    )
    solve = lambda c: lsmr(operator, root * Y[:, c], damp=np.sqrt(damp), atol=1e-10, btol=1e-10, maxiter=20 * d)[0]  # noqa: E731
    return np.array(pmap(solve, range(Y.shape[1])))
