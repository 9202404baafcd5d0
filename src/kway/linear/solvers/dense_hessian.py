"""Newton steps with the dense Hessian of a small problem.

    H = mean_i w_i B_i (x) z_i z_i' + diag(ridges),   z = [x 1],   (x) the Kronecker product

B_i (R, R) is the Hessian of row i's loss in its scores. It depends on how the loss couples the scores of a row:

    separate scores   B_i is diagonal (binary, one-vs-all, squared loss), and H is R blocks (D, D)
    softmax           B_i = diag(p) - p p', and H is one matrix (R D, R D)
    joint hinge       B_i = sum_c h_c (e_c - e_y)(e_c - e_y)', and H is one matrix (R D, R D); h_c is the curvature of
                      the pair (class y, c)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg as la
from numpy.typing import NDArray

from kway.linear.losses import Loss, softmax
from kway.linear.objective import Objective
from kway.memory import rows_per_block
from kway.rows.matrices import add_gram, rooted_rows
from kway.threads import pmap, shares, spans_of

Floats = NDArray[np.float64]

# First number that is added to a unit diagonal, a few times the rounding of float64. It is multiplied by 10 until
# Cholesky succeeds.
_JITTER = 64 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class DenseHessian:
    """The Hessian Z' B Z + diag(diagonal) in factored form. Methods build the dense matrix when they need it."""

    loss: Loss
    codes: NDArray[np.int64]
    Z: Floats  # (n, D), the rows [x 1], or x without a bias
    weight: Floats  # (n,), with sum 1
    curvatures: Floats  # (n, R), multiplied by the weight
    diagonal: Floats  # (R, D), the ridge of each parameter
    pinned: NDArray[np.bool_]  # (D,), columns in which a shift common to all scores is fixed (`factor_coupled`)

    @staticmethod
    def at(objective: Objective, theta: NDArray) -> DenseHessian:
        """Return the Hessian of a smooth objective at theta."""
        o = objective
        Z = rooted_rows(o.X, None, np.dtype(np.float64), o.fit_intercept)
        weight = np.full(o.n, 1 / o.n) if o.weight is None else o.weight.astype(np.float64) / o.n
        curvatures = _row_curvatures(o, theta) * weight[:, None]
        ridges = o.penalty.ridges(o.d, bias=o.fit_intercept)
        diagonal = np.broadcast_to(ridges, (o.n_scores, len(ridges)))
        pinned = np.ones(len(ridges), bool)
        pinned[: o.d] = not (o.penalty.lasso and o.penalty.ridge)  # L1 may shift the weights; a ridge makes H regular
        return DenseHessian(o.loss, o.targets.codes, Z, weight, curvatures, diagonal, pinned)

    def solve(self, gradient: Floats) -> Floats:
        """Return H^-1 gradient, (R, D)."""
        return self.factor_coupled()(gradient) if self.loss.couples else self._solve_separate(gradient)

    def _solve_separate(self, gradient: Floats) -> Floats:
        """Solve one system (D, D) per score, or one for all scores if their matrices are equal (squared loss)."""
        h = self.curvatures
        if (h == h[:, :1]).all() and (self.diagonal == self.diagonal[:1]).all():
            return solve_positive(self._gram(h[:, 0]) + np.diag(self.diagonal[0]), gradient.T).T

        def solve_score(k: int) -> Floats:
            return solve_positive(self._gram(h[:, k]) + np.diag(self.diagonal[k]), gradient[k])

        return np.array(pmap(solve_score, range(len(gradient))))

    def factor_coupled(self) -> Callable[[Floats], Floats]:
        """Return the function x -> H^-1 x for x (R, D), by one system (R D, R D).

        A shift common to all scores changes no coupled loss, so that H is singular along it. Adding a multiple of the
        projection on the shifts of the `pinned` columns makes H regular. If x has no shift, neither has the result.
        """
        R, D = self.diagonal.shape
        H = self.matrix()
        size = np.diag(H).reshape(R, D).mean(axis=0) * self.pinned / R
        at = np.arange(D)
        H.reshape(D, R, D, R, order="F")[at, :, at, :] += size[:, None, None]
        solve = inverse(H)
        return lambda x: solve(x.ravel()).reshape(R, D)

    def matrix(self) -> Floats:
        """Return H (R D, R D) in Fortran order; only the upper triangle is valid."""
        part = self._softmax_part if self.loss.cross_entropy else self._pairs_part
        height = rows_per_block(8 * self.diagonal.size)
        parts = pmap(lambda share: part(share, height), shares(len(self.Z), least=512))
        H = np.asfortranarray(sum(parts[1:], parts[0]))
        H[np.diag_indices(len(H))] += self.diagonal.ravel()
        return H

    def _softmax_part(self, share: slice, height: int) -> Floats:
        """Return sum_i w_i (diag(p_i) - p_i p_i') (x) z_i z_i' over a share of the rows, the upper triangle."""
        R, D = self.diagonal.shape
        H = np.zeros((R * D, R * D), order="F")
        root = 1 / np.sqrt(np.maximum(self.weight, np.finfo(np.float64).tiny))
        for rows in spans_of(share, height):
            z, h = self.Z[rows], self.curvatures[rows]
            stacked = (h[:, :, None] * (root[rows, None] * z)[:, None, :]).reshape(len(z), R * D)
            add_gram(H, stacked, -1.0)
            for k in range(R):
                block = slice(k * D, (k + 1) * D)
                H[block, block] += (z * h[:, k, None]).T @ z
        return H

    def _pairs_part(self, share: slice, height: int) -> Floats:
        """Return sum_i sum_c h_ic (e_c - e_y)(e_c - e_y)' (x) z_i z_i' over a share of the rows; h_iy is 0."""
        R, D = self.diagonal.shape
        H = np.zeros((R, D, R, D))
        for rows in spans_of(share, height):
            z, h, codes = self.Z[rows], self.curvatures[rows], self.codes[rows]
            for c in range(R):
                is_own = codes == c
                H[c, :, c] += (z * h[:, c, None]).T @ z + (z[is_own] * h[is_own].sum(axis=1)[:, None]).T @ z[is_own]
                cross = (h[is_own][:, :, None] * z[is_own][:, None, :]).reshape(-1, R * D).T @ z[is_own]
                H[:, :, c] -= cross.reshape(R, D, D)
                H[c] -= cross.reshape(R, D, D).transpose(2, 0, 1)
        return H.reshape(R * D, R * D)

    def _gram(self, h: Floats) -> Floats:
        """Return Z' diag(h) Z (D, D); rows with h = 0 are skipped."""
        rows = np.flatnonzero(h)
        z = self.Z[rows] * np.sqrt(h[rows])[:, None] if len(rows) < len(h) else self.Z * np.sqrt(h)[:, None]
        return z.T @ z


def _row_curvatures(objective: Objective, theta: NDArray) -> Floats:
    """Return the numbers (n, R) that define each B_i at theta: probabilities of softmax, else second derivatives."""
    loss, targets = objective.loss, objective.targets
    scores = objective.scores(theta, slice(0, objective.n)).astype(np.float64)
    if loss.cross_entropy:
        return softmax(scores)
    curvatures = loss.curvatures(scores, targets)
    if loss.couples:
        curvatures[np.arange(objective.n), targets.codes] = 0
    return curvatures


def solve_positive(H: Floats, x: Floats) -> Floats:
    """Return H^-1 x for a positive semidefinite H, of which only the upper triangle is read."""
    return inverse(H)(x)


def inverse(H: Floats) -> Callable[[Floats], Floats]:
    """Return the function x -> H^-1 x for a positive semidefinite H, of which only the upper triangle is read.

    H is scaled to a unit diagonal. The smallest power of ten with which Cholesky succeeds is added to the diagonal. If
    none succeeds, the function multiplies by the inverse of the diagonal of H.
    """
    diagonal = np.diag(H)
    scale = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1))
    unit, jitter, i = H * scale * scale[:, None], _JITTER, np.diag_indices(len(H))
    while jitter < 1:
        unit[i] = 1 + jitter
        try:
            factor = la.cho_factor(unit, lower=False, check_finite=False)
        except la.LinAlgError:
            jitter *= 10
            continue
        return lambda x: (scale * la.cho_solve(factor, (scale * x.T).T, check_finite=False).T).T
    return lambda x: (scale * scale * x.T).T
