"""Preconditioners: an inverse of the Hessian's main part, applied to gradients (R, d + 1).

    shared      c X'X / n + ridge I, one for all scores; c = the loss's curvature at zero (joint softmax: 1 / R)
    own         c X'X / n + u_k u_k' + ridge I: the rows of class k bend score k by far the most, and most of all along
                their mean, u_k times the root of its curvature; c = the mean curvature by others' rows at theta
    per class   X' diag(h_k) X / n + ridge I for each score k, h_k the loss's curvature at theta
    newton      the whole Hessian of a joint softmax, (R D) x (R D), where that is small
    diagonal    the diagonals of these two, where a d x d matrix is too large or X is sparse and wide

X stands for [X 1] where there is a bias. A Gram matrix may come from a sample of rows; each feature's mean square is
then that of all rows (a rare feature that the sample missed would otherwise get a step of 1 / ridge). Matrices are
scaled to a unit diagonal before they are inverted, and given a floor that grows until they can be: nothing raises.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.lapack import add_gram, invert
from kway.compute.threads import pmap, shares, spans_of
from kway.data.gate import Rows
from kway.linear.losses import softmax
from kway.linear.objective.curvature import BLOCK_ROWS, mean_squares, own_rows, rooted_rows
from kway.linear.objective.objective import Objective
from kway.linear.objective.on_device import DeviceObjective
from kway.linear.solvers.preconditioners.factors import (
    Centred,
    Diagonal,
    Factor,
    PerClass,
    Shared,
    SharedAndOwn,
    Stacked,
    Whole,
)
from kway.linear.solvers.preconditioners.sampled_gram import all_grams, mirrored, sampled_gram

MOST_FEATURES = 4000  # a Gram matrix of 64 MB in float32
MOST_SPARSE_FEATURES = 1000  # sampled rows are made dense
MOST_BYTES = 1 << 30  # of all the matrices of `per class`
DOUBLE_FEATURES = 128  # up to here float64 costs nothing that matters
MOST_WHOLE = 600  # parameters of a model whose whole Hessian is factored: 3 MB, a few hundredths of a second
DEAR = 60  # gradients that matrices for each class may cost, counted in operations; theirs run twice as fast
MIXED = 0.1  # share of the shared matrix in one of a class
SEVERAL = 8  # classes from which their matrices, where small, are made and applied together
FEW_COLUMNS = 64  # of a small one: a call of LAPACK for each class takes longer than their products up to here
STACKED = 1 << 21  # numbers in all of them
# of a sample where columns are few: 26 classes of 16 columns start at 0.1 over the optimum, not 0.3
ROWS_A_PARAMETER = 6
_LEAST_BEND = 1e-6  # by others' rows, where they hardly bend any score
_FLOOR = 1e-12  # on a unit diagonal, first try


@dataclass(frozen=True)
class Moments:
    """X'X / n of some rows: the Gram matrix (D, D), or its diagonal (D,) alone where `dense` would be too large."""

    gram: NDArray
    objective: Objective

    @property
    def dense(self) -> bool:
        """Whether all of the matrix is there."""
        return self.gram.ndim == 2

    def shared(self) -> Factor:
        """The preconditioner of every score at theta = 0."""
        scale = self.objective.loss.curvature_at_zero(self.objective.all_scores)
        if not self.dense:
            return Diagonal(_ones_for_zeros(self.gram * scale + _ridges(self.objective))[None, :])
        return self._scaled(scale)

    def own(self, rows: Objective, theta: NDArray) -> Factor:
        """The shared one at theta, and in the direction of its own class's rows each score's own; D^2 R operations."""
        mass, own_mass, sums = own_rows(rows, theta)
        shared = self._scaled(max(float((mass - own_mass).mean()) / rows.n, _LEAST_BEND))
        u = (sums / np.sqrt(np.maximum(own_mass, 1e-30) * rows.n)[:, None]).astype(self.gram.dtype)
        v = u @ shared.inverse  # (R, D)
        own = v / np.sqrt(1 + np.einsum("kj,kj->k", u, v))[:, None]
        return _centred(SharedAndOwn(shared, own.astype(theta.dtype)), rows)

    def knows_own(self, rows: Objective) -> bool:
        """Whether `own` can be had: a joint softmax, all scores of each row here.

        Columns of their own, one-vs-all, bend as unlike each other as their classes are large, which one c says nothing
        of: a small class of 55 was 1.3 tol above its optimum where products with the Hessian saw no curvature so low.
        """
        all_here = rows.rows_here and 1 < rows.n_scores == rows.all_scores
        return self.dense and all_here and rows.loss.cross_entropy

    def _scaled(self, scale: float) -> Shared:
        """(scale X'X / n + ridge I)^-1."""
        inverse = safe_inverse(self.gram * self.gram.dtype.type(scale), _ridges(self.objective))
        return Shared(mirrored(inverse), self.objective.n_jobs)

    def per_class(self, rows: Objective, theta: NDArray, n_drawn: int) -> Factor:
        """One for each score from about n_drawn of `rows`, drawn in proportion to their curvature at theta."""
        if self.dense and isinstance(rows, DeviceObjective):
            found: Factor = rows.class_factor(theta, mirrored(self.gram), _ridges(rows), n_drawn, MIXED)
            return _centred(found, rows)
        # as many as have curvatures (R, n) within MOST_BYTES
        rows = rows.some(max(1024, MOST_BYTES // (theta.dtype.itemsize * rows.all_scores)))
        weights = rows.curvatures(theta)  # (R, n)
        if not self.dense:
            return self._class_diagonals(rows, weights)

        D = len(self.gram)
        if rows.n_scores >= SEVERAL and D <= FEW_COLUMNS and rows.n_scores * D * D <= STACKED:
            found = self._small_inverses(rows, weights)
            return _centred(found, rows)

        def one(k: int) -> NDArray:
            gram = sampled_gram(rows, weights[k], n_drawn, np.random.default_rng(k), self.gram, MIXED)
            return safe_inverse(gram, _ridges(rows))

        found = PerClass(pmap(one, range(rows.n_scores), rows.n_jobs), rows.n_jobs)
        return _centred(found, rows)

    def _small_inverses(self, rows: Objective, weights: NDArray) -> Factor:
        """Of every class at once; those that rounding spoils one by one."""
        grams, ridge = all_grams(rows, weights, self.gram.astype(np.float64), MIXED), _ridges(rows)
        i = np.arange(grams.shape[1])
        grams[:, i, i] = _ones_for_zeros(grams[:, i, i] + ridge)
        scale = 1 / np.sqrt(grams[:, i, i])  # (R, D)
        unit = grams * scale[:, :, None] * scale[:, None, :]
        unit[:, i, i] += _FLOOR
        try:
            np.linalg.cholesky(unit)
            return Stacked(np.linalg.inv(unit) * scale[:, :, None] * scale[:, None, :])
        except np.linalg.LinAlgError:
            none = np.zeros_like(ridge)  # it is in the diagonals already
            return Stacked(np.array([mirrored(safe_inverse(np.asfortranarray(gram), none)) for gram in grams]))

    def _class_diagonals(self, rows: Objective, weights: NDArray) -> Factor:
        """Mean h_ki x_ij^2 + ridge for each score, from all rows: one pass over them."""
        mass = weights.mean(axis=1, keepdims=True)  # (R, 1)
        diagonal = rows.laid_out(mass * (MIXED * self.gram))
        diagonal[:, : rows.d] += (1 - MIXED) * mean_squares(rows, weights)
        diagonal[:, rows.d :] += (1 - MIXED) * mass
        found = Diagonal(_ones_for_zeros(diagonal + _ridges(rows)).astype(weights.dtype))
        return _centred(found, rows)

    def cost_per_class(self, rows: Objective, n_drawn: int) -> float:
        """What `per_class` costs, in gradients over all rows."""
        if not self.dense:
            return 1.0
        D = len(self.gram)
        return D * (min(n_drawn, rows.n) + D) / (4 * max(rows.n, self.objective.n))

    def holds_per_class(self, rows: Objective) -> bool:
        """Whether one matrix a score stays within memory."""
        return not self.dense or rows.all_scores * self.gram.nbytes <= MOST_BYTES

    def affords_per_class(self, rows: Objective, n_drawn: int) -> bool:
        """Whether that, and it costs less than some tens of gradients."""
        return self.holds_per_class(rows) and self.cost_per_class(rows, n_drawn) <= DEAR


def _centred(factor: Factor, rows: Objective) -> Factor:
    """The factor, within the thetas of mean zero where a shift of all scores is free."""
    return Centred(factor, rows.centred) if rows.loss.shift_free else factor


def newton_factor(objective: Objective, theta: NDArray) -> Factor:
    """The inverse Hessian of a joint softmax at theta, in float64.

    sum_i (diag(p_i) - p_i p_i') (x) x_i x_i' = blocks X' diag(p_k) X on the diagonal, less Z'Z, Z = [p_1 x ... p_R x].
    A shift common to all scores changes no loss, so X'X / R^2 is added to every block: it pins that shift, along which
    rounding would otherwise be blown up.
    """
    R, D, n = objective.n_scores, objective.d + objective.fit_intercept, objective.n

    def part(share: slice) -> NDArray:
        A = np.zeros((R * D, R * D), order="F")
        for rows in spans_of(share, BLOCK_ROWS // 4):
            p = softmax(objective.scores(theta, rows).astype(np.float64))  # (m, R)
            root = None if objective.weight is None else np.sqrt(objective.weight[rows])
            x = rooted_rows(objective.X[rows], root, np.dtype(np.float64), objective.fit_intercept)  # (m, D)
            add_gram(A, (p[:, :, None] * x[:, None, :]).reshape(len(x), R * D), -1.0 / n)
            for k in range(R):
                block = slice(k * D, (k + 1) * D)
                A[block, block] += (x * p[:, k, None]).T @ x / n
            A += np.tile(x.T @ x / (n * R * R), (R, R))
        return A

    parts = pmap(part, shares(n, objective.n_jobs, least=512), objective.n_jobs)
    return Centred(
        Whole(safe_inverse(np.asfortranarray(np.sum(parts, axis=0)), np.tile(_ridges(objective), R), floor=1e-9)),
        objective.centred,
    )


def affords_newton(objective: Objective) -> bool:
    """Whether `newton_factor` exists and is small."""
    size, together = objective.n_scores * (objective.d + 1), objective.n_scores == objective.all_scores
    return objective.loss.cross_entropy and together and objective.rows_here and size <= MOST_WHOLE


def moments(objective: Objective, squares: NDArray | None = None) -> Moments:
    """Weighted second moments of the objective's rows; `squares` (d,) are the features' mean squares over all rows."""
    if not factorable(objective.X):
        diagonal = objective.mean_squares()[0] if squares is None else squares
        return Moments(np.append(diagonal, 1.0) if objective.fit_intercept else diagonal, objective)
    A = objective.gram(np.dtype(np.float64) if objective.d <= DOUBLE_FEATURES else objective.X.dtype)
    if squares is not None:
        i = np.arange(objective.d)
        A[i, i] = np.maximum(A[i, i], squares)
    return Moments(A, objective)


def sample_rows(objective: Objective) -> Objective | None:
    """The problem on 8 d + 1000 of its rows, or a fifth where columns are few; None where that is half or more."""
    size = sample_size(objective)
    return None if objective.n <= 2 * size else objective.some(size)


def sample_size(objective: Objective) -> int:
    """Rows that stand for all."""
    size = 8 * objective.d + 1000
    if objective.d < FEW_COLUMNS:
        size = max(size, min(ROWS_A_PARAMETER * objective.d * objective.all_scores, objective.n // 5))
    return size


def rows_a_factor(objective: Objective) -> int:
    """Rows for a factor of one class: all where features are few."""
    return 5 * objective.d if objective.d > DOUBLE_FEATURES else objective.n


def quick_moments(objective: Objective, sample: Objective | None) -> Moments:
    """Moments of all rows where they cost little, d / (4 R) gradients, else of the sample."""
    if sample is None or objective.d <= 12 * objective.all_scores or not factorable(objective.X):
        return moments(objective)
    return moments(sample, objective.mean_squares()[0])


def factorable(X: Rows) -> bool:
    """Whether a d x d matrix is affordable: d <= 4000, for sparse X d <= 1000."""
    return bool(X.shape[1] <= (MOST_SPARSE_FEATURES if sp.issparse(X) else MOST_FEATURES))


def safe_inverse(A: NDArray, ridge: NDArray, floor: float = _FLOOR) -> NDArray:
    """(A + diag(ridge))^-1, upper triangle; a floor on the diagonal grows until A can be inverted."""
    i = np.arange(len(A))
    A[i, i] = _ones_for_zeros(A[i, i] + ridge.astype(A.dtype))
    scale = 1 / np.sqrt(A[i, i])
    A *= scale
    A *= scale[:, None]
    floor = 1e-6 if A.dtype == np.float32 else floor
    kept = A.copy(order="F")
    while floor < 10:
        A[i, i] += A.dtype.type(floor)
        if invert(A):
            A *= scale
            A *= scale[:, None]
            return A
        A[:] = kept
        floor *= 30
    return np.asfortranarray(np.diag(scale * scale))


def _ones_for_zeros(diagonal: NDArray) -> NDArray:
    """Zero curvature (a feature that is always zero, no penalty) becomes one: its gradient is zero anyway."""
    return np.where(diagonal > 0, diagonal, diagonal.dtype.type(1))


def _ridges(objective: Objective) -> NDArray:
    """The penalty's part of the diagonal, (D,): none for the bias."""
    ridge = np.full(objective.d + objective.fit_intercept, objective.penalty.ridge)
    if objective.fit_intercept:
        ridge[-1] = 0
    return ridge
