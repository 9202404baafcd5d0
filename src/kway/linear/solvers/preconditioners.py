"""Preconditioners of L-BFGS: approximate inverses of the Hessian, which map a gradient (R, d + 1) to a step.

    shared      the inverse of c X'X / n + ridge I, for all scores. c is the curvature of the loss at theta = 0, 1 / R
                for joint softmax
    corrected   the same, with u_k u_k' added for each score k, if classes have fewer rows than there are columns. u_k
                is along the mean of the rows of class k: these rows have most of the curvature of score k
    per class   the inverse of X' diag(h_k) X / n + ridge I for each score k. h_k is the curvature of the loss at theta
    dense       the inverse of the Hessian itself, if the problem is small (dense_hessian.py). L-BFGS is then Newton's
                method

X stands for [X 1] if there is a bias. If a d x d matrix is too large, the diagonals of these matrices are used. A Gram
matrix may be computed from a sample of the rows. Its diagonal is then at least the mean square of each feature over all
rows, because a rare feature that the sample missed would otherwise get a step of 1 / ridge. `Schedule` decides which
preconditioner is used at which iteration.

Letters: n rows, d features, D = d + 1 (d without a bias), R scores per row, h (R, n) curvatures of the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.linear.objective import Objective
from kway.linear.solvers.base import MAX_WORK, SLOW_ITERATIONS, Point, dense_step_work, is_small, sample_size
from kway.planning.costs import MAX_FACTOR_BYTES, MAX_FACTOR_FEATURES
from kway.rows.matrices import add_gram, invert, multiply, rooted_rows
from kway.rows.passes import ON_GPU, SteppingRows
from kway.threads import pmap, shares, spans
from kway.validation import Rows

Factor = Callable[[NDArray], NDArray]

MAX_SPARSE_FEATURES = 1000  # features of sparse rows above which Gram matrices are too slow (row T4b, texts)
# Matrices of at most this number of features are float64, and computed from as many rows as those of this number. They
# cost little, and float32 makes classes with few features need more iterations (row T4b, letter).
FLOAT64_FEATURES = 128
PLAIN_SHARE = 0.1  # share of the unweighted matrix in the matrix of a class, so that no direction is without curvature
MIN_GAP = 8.0  # smallest number of iterations between two computations of the factors per class (row T4b, letter)


# ---------------------------------------------------------------- the preconditioners


@dataclass(frozen=True)
class Diagonal:
    """Divides by (1, D) or (R, D) curvatures."""

    curvature: NDArray

    def __call__(self, gradient: NDArray) -> NDArray:
        """Return gradient (R, d + 1) / curvature."""
        out = np.zeros_like(gradient)
        D = self.curvature.shape[1]
        np.divide(gradient[:, :D], self.curvature, out=out[:, :D])
        return out


@dataclass(frozen=True)
class Shared:
    """One inverse A^-1 (D, D) for all scores, optionally with a rank-one correction per score: (A + u_k u_k')^-1.

    By the Sherman-Morrison formula, the product with g is A^-1 g - v_k (v_k.g) / (1 + u_k.v_k) with v_k = A^-1 u_k. The
    rows of `corrections` are v_k / sqrt(1 + u_k.v_k).
    """

    inverse: NDArray
    corrections: NDArray | None = None  # (R, D)

    def __call__(self, gradient: NDArray) -> NDArray:
        """Return gradient (R, d + 1) times the inverse; each worker computes a share of the columns."""
        out, D = np.zeros_like(gradient), len(self.inverse)
        g = np.ascontiguousarray(gradient[:, :D], self.inverse.dtype)

        def part(columns: slice) -> None:
            out[:, columns] = g @ self.inverse[:, columns]

        pmap(part, shares(D, least=max(64, 1_000_000 // (D * len(g)))))
        if self.corrections is not None:
            out[:, :D] -= np.einsum("kj,kj->k", self.corrections, gradient[:, :D])[:, None] * self.corrections
        return out


@dataclass(frozen=True)
class PerClass:
    """The upper triangle of one inverse (D, D) per score."""

    inverses: list[NDArray]

    def __call__(self, gradient: NDArray) -> NDArray:
        """Return each row of gradient (R, d + 1) times its own inverse."""
        out, D = np.zeros_like(gradient), len(self.inverses[0])

        def part(classes: slice) -> None:
            product = np.empty(D, self.inverses[0].dtype)
            for k in range(classes.start, classes.stop):
                multiply(self.inverses[k], np.ascontiguousarray(gradient[k, :D], product.dtype), product)
                out[k, :D] = product

        pmap(part, shares(len(gradient)))
        return out


def _centered(factor: Factor, rows: Objective) -> Factor:
    """Return the factor restricted to thetas with mean zero over the scores, if the loss ignores a shift of all scores.

    The optimum is such a theta. A gradient g is mapped to P factor(P g), where P subtracts the mean over the scores.
    """
    return lambda gradient: rows.center_scores(factor(rows.center_scores(gradient)))


# ---------------------------------------------------------------- their computation


@dataclass(frozen=True)
class Moments:
    """X'X / n of some rows: the Gram matrix (D, D), or its diagonal (D,) alone if the matrix would be too large."""

    gram: NDArray
    objective: Objective

    @property
    def dense(self) -> bool:
        """Return whether the Gram matrix is known, not only its diagonal."""
        return self.gram.ndim == 2

    def shared(self) -> Factor:
        """Return the preconditioner of all scores at theta = 0."""
        scale = self.objective.loss.curvature_at_zero(self.objective.n_scores)
        if not self.dense:
            return Diagonal(_ones_for_zeros(self.gram * scale + _ridges(self.objective))[None, :])
        return Shared(self._inverse(scale))

    def with_class_means(self, rows: Objective, theta: NDArray) -> Factor:
        """Return the shared preconditioner at theta, corrected along the mean of each class, in D^2 R operations."""
        mass, own_mass, sums = rows.class_sums(theta)
        inverse = self._inverse(max(float((mass - own_mass).mean()) / rows.n, 1e-6))
        u = (sums / np.sqrt(np.maximum(own_mass, 1e-30) * rows.n)[:, None]).astype(self.gram.dtype)
        v = u @ inverse  # (R, D)
        corrections = v / np.sqrt(1 + np.einsum("kj,kj->k", u, v))[:, None]
        return _centered(Shared(inverse, corrections.astype(theta.dtype)), rows)

    def suits_class_means(self, objective: Objective) -> bool:
        """Return whether class means correct the shared factor: a joint softmax with fewer rows per class than columns.

        One-vs-all losses are excluded, because their curvatures differ as much as the sizes of the classes, which one
        factor c cannot represent. On Banking77 the corrected factor takes 15 passes, the shared one 25 (T4b).
        """
        o = objective
        has_class_sums = o.in_memory or ON_GPU in o.rows.offers
        return self.dense and has_class_sums and o.loss.cross_entropy and o.n < o.n_scores * o.d

    def _inverse(self, scale: float) -> NDArray:
        """Return (scale X'X / n + ridge I)^-1."""
        return mirrored(safe_inverse(self.gram * self.gram.dtype.type(scale), _ridges(self.objective)))

    def per_class(self, rows: Objective, theta: NDArray, min_share: float = PLAIN_SHARE) -> Factor:
        """Return one preconditioner per score.

        Each is computed from rows that are drawn in proportion to their curvature at theta. A share of the unweighted
        matrix is added, scaled by the mean curvature of the score (`plain_mass`, which has `min_share`).
        """
        n_drawn = rows_per_class(rows)
        if self.dense and ON_GPU in rows.rows.offers:
            settings = (mirrored(self.gram), _ridges(rows), n_drawn, PLAIN_SHARE)
            return _centered(cast(SteppingRows, rows.rows).class_factor(theta, rows.losses, *settings), rows)
        max_rows = max(1024, MAX_FACTOR_BYTES // (theta.dtype.itemsize * rows.n_scores))  # with curvatures (R, n)
        if not rows.in_memory:  # rows in files are copied, so that no more are read than are drawn
            max_rows = min(max_rows, 4 * n_drawn * rows.n_scores)
        rows = rows.subsample(max_rows)
        h = rows.curvatures(theta)  # (R, n)
        if not self.dense:
            return _centered(self._class_diagonals(rows, h), rows)
        mass = plain_mass(h, min_share)
        uniform = np.random.default_rng(0).random(rows.n)  # shared by all classes: drawing costs more than the products

        def invert_class(k: int) -> NDArray:
            gram = sampled_gram(rows, h[k], n_drawn, uniform, self.gram, mass[k])
            return safe_inverse(gram, _ridges(rows))

        return _centered(PerClass(pmap(invert_class, range(rows.n_scores))), rows)

    def _class_diagonals(self, rows: Objective, h: NDArray) -> Factor:
        """Return the division by mean_i h_ki x_ij^2 + ridge for each score k."""
        diagonal = rows.rows.with_layout(plain_mass(h)[:, None] * self.gram)
        diagonal[:, : rows.d] += (1 - PLAIN_SHARE) * rows.mean_squares(h)
        diagonal[:, rows.d :] += (1 - PLAIN_SHARE) * h.mean(axis=1, keepdims=True)
        return Diagonal(_ones_for_zeros(diagonal + _ridges(rows)).astype(h.dtype))

    def best_at(self, objective: Objective, theta: NDArray, rows: Objective) -> Factor:
        """Return the best factor at a nonzero theta, from a sample of the rows, or from all if that is cheap."""
        if self.suits_class_means(objective):
            return self.with_class_means(rows.subsample(sample_size(objective)), theta)
        cost = self.cost_per_class(objective)
        if cost <= MIN_GAP or (rows is not objective and cost < np.inf):
            return self.per_class(rows, theta)
        return self.shared()

    def cost_per_class(self, objective: Objective) -> float:
        """Return the cost of `per_class` in gradients over all rows; inf if the matrices do not fit in memory."""
        if not self.dense:
            return 1.0
        D = len(self.gram)
        if objective.n_scores * self.gram.nbytes > MAX_FACTOR_BYTES:
            return np.inf
        return D * (min(rows_per_class(objective), objective.n) + D) / (4 * objective.n)


def moments(objective: Objective, squares: NDArray | None = None) -> Moments:
    """Return the weighted second moments of the rows; `squares` (d,) are the features' mean squares over all rows."""
    if not factorable(objective.X):
        diagonal = objective.mean_squares()[0] if squares is None else squares
        return Moments(np.append(diagonal, 1.0) if objective.fit_intercept else diagonal, objective)
    A = objective.gram(np.dtype(np.float64) if objective.d <= FLOAT64_FEATURES else objective.X.dtype)
    if squares is not None:
        i = np.arange(objective.d)
        A[i, i] = np.maximum(A[i, i], squares)
    return Moments(A, objective)


def quick_moments(objective: Objective, sample: Objective | None) -> Moments:
    """Return the moments of all rows if they cost little (d / (4 R) gradients), else those of the sample."""
    if sample is None or objective.d <= 12 * objective.n_scores or not factorable(objective.X):
        return moments(objective)
    return moments(sample, objective.mean_squares()[0])


def factor_at(objective: Objective, theta: NDArray) -> Factor:
    """Return factors per class at theta, or the shared factor if they do not fit in memory.

    The diagonal of the Hessian is not enough for a bound of the excess. With 3,574 rows of 79 related columns in units
    from 0.01 to 100, a few products missed small eigenvalues, and an excess of 21 tol was accepted.
    """
    known = quick_moments(objective, sample_rows(objective))
    return known.per_class(objective, theta) if np.isfinite(known.cost_per_class(objective)) else known.shared()


def sample_rows(objective: Objective) -> Objective | None:
    """Return the problem on a sample of its rows; None if that is half of them or more."""
    size = sample_size(objective)
    return None if objective.n <= 2 * size else objective.subsample(size)


def rows_per_class(objective: Objective) -> int:
    """Return the number of rows from which the matrix of a class is computed."""
    return 5 * max(objective.d, FLOAT64_FEATURES)


def factorable(X: Rows) -> bool:
    """Return whether a Gram matrix (d, d) of the rows is affordable."""
    return bool(X.shape[1] <= (MAX_SPARSE_FEATURES if sp.issparse(X) else MAX_FACTOR_FEATURES))


def plain_mass(h: NDArray, min_share: float = PLAIN_SHARE) -> NDArray:
    """Return the factor (R,) of the unweighted matrix [X 1]' [X 1] / n in the matrix of each score, for h (R, n).

    The factor is a share of the mean curvature of the score. Without it, a direction that the drawn rows missed would
    get a huge step. A score without curvature, such as that of a class whose probability is 0 for every row, gets at
    least the share `min_share` of the mean of all scores.
    """
    mass = h.mean(axis=1)
    return PLAIN_SHARE * np.maximum(mass, min_share * mass.mean())


def sampled_gram(rows: Objective, h: NDArray, n_drawn: int, uniform: NDArray, plain: NDArray, mass: float) -> NDArray:
    """Return an estimate of [X 1]' diag(h) [X 1] / n (D, D): the upper triangle in Fortran order, in plain's dtype.

    It is computed from about n_drawn rows, drawn in proportion to h (n,), which includes the sample weights. Row i is
    drawn if `uniform`_i, a random number in [0, 1), is below its chance. `mass` times `plain`, the unweighted matrix
    [X 1]' [X 1] / n, is added.
    """
    h_per_draw = max(float(h.sum()), 1e-30) / n_drawn if n_drawn < rows.n else 0.0  # 0: all rows are drawn
    drawn = np.flatnonzero(uniform * h_per_draw < h) if h_per_draw else np.arange(rows.n)
    A = np.asfortranarray(plain * plain.dtype.type(mass))
    weight = (1 - PLAIN_SHARE) * np.maximum(h[drawn], h_per_draw)  # h / chance, with chance = min(1, h / h_per_draw)
    if not rows.in_memory:
        A += rows.rows.take(drawn).gram(weight, rows.fit_intercept, A.dtype) * A.dtype.type(len(drawn) / rows.n)
        return A
    add_gram(A, rooted_rows(rows.X[drawn], np.sqrt(weight), A.dtype, rows.fit_intercept), 1.0 / rows.n)
    return A


def mirrored(upper: NDArray) -> NDArray:
    """Return the symmetric matrix of an upper triangle, (D, D) in Fortran order."""
    matrix = np.array(upper, order="F")
    for columns in spans(len(matrix), 64):  # few enough to stay in the cache
        corner = matrix[columns, columns]
        matrix[columns, columns] = np.triu(corner) + np.triu(corner, 1).T
        matrix[columns.stop :, columns] = matrix[columns, columns.stop :].T
    return matrix


def safe_inverse(A: NDArray, ridge: NDArray) -> NDArray:
    """Return the upper triangle of (A + diag(ridge))^-1, and overwrite A.

    A is scaled to a unit diagonal. Its diagonal is increased, beginning with ten times the rounding of its float type,
    until it can be inverted. If none of these increases suffices, return the inverse of the diagonal.
    """
    i = np.arange(len(A))
    A[i, i] = _ones_for_zeros(A[i, i] + ridge.astype(A.dtype))
    scale = 1 / np.sqrt(A[i, i])
    A *= scale
    A *= scale[:, None]
    increase = 10 * float(np.finfo(A.dtype).eps)
    original = A.copy(order="F")
    while increase < 10:
        A[i, i] += A.dtype.type(increase)
        if invert(A):
            A *= scale
            A *= scale[:, None]
            return A
        A[:] = original
        increase *= 30
    return np.asfortranarray(np.diag(scale * scale))


def _ones_for_zeros(diagonal: NDArray) -> NDArray:
    """Replace zeros by ones. A feature that is always zero has no curvature, but its gradient is zero anyway."""
    return np.where(diagonal > 0, diagonal, diagonal.dtype.type(1))


def _ridges(objective: Objective) -> NDArray:
    """Return the ridge of each column (D,), zero for the bias."""
    return objective.penalty.ridges(objective.d, bias=objective.fit_intercept)


# ---------------------------------------------------------------- the schedule


@dataclass
class Schedule:
    """Decides which preconditioner an iteration uses.

    A small problem uses the dense Hessian at every point. Other problems recompute the factors per class from time to
    time, because rows that are classified correctly lose their curvature. New factors cost as much as `gap` iterations,
    so they are computed after `gap` iterations, and the gap doubles each time. The fits of a path of ridges count their
    iterations together, and keep the factors. If the iterations so far have cost as
    much as one step with the dense Hessian, and that step is affordable, the rest of the fit is Newton's method.
    Problems with few rows per class and a weak penalty need this.
    """

    objective: Objective
    moments: Moments
    factor: Factor
    iterations: int = 0  # on all rows, without exact steps
    gap: float = field(init=False)
    next_update: float = field(init=False)  # iteration of the next factors
    updated: bool = False  # whether the factor was computed by the schedule
    exact: bool = field(init=False)  # whether every step is the Newton step of the dense Hessian

    def __post_init__(self) -> None:
        self.exact = is_small(self.objective)
        self.gap = self.next_update = max(MIN_GAP, self.moments.cost_per_class(self.objective))

    def turn_exact(self, iteration: int) -> None:
        """Use the dense Hessian from now on if the iterations so far have cost as much as one step with it."""
        o = self.objective
        gradients = dense_step_work(o) / (2.0 * o.n * (o.d + 1) * o.n_scores)
        self.exact = self.exact or (iteration > max(SLOW_ITERATIONS, gradients) and is_small(o, MAX_WORK))

    def change_ridge(self, objective: Objective, theta: NDArray) -> None:
        """Go on with the same rows under another ridge, from theta."""
        self.objective, self.moments = objective, replace(self.moments, objective=objective)
        self.exact = is_small(objective)
        if not self.updated:
            self.factor = self.moments.best_at(objective, theta, objective)

    def at(self, point: Point) -> Factor:
        """Return the factor to use at a point of a problem that is not small."""
        self.iterations += 1
        if self.iterations >= self.next_update:
            self.gap *= 2
            self.next_update = self.iterations + self.gap
            self.factor = self.moments.per_class(self.objective, point.theta)
            self.updated = True
        return self.factor

    def for_proof(self, iteration: int, point: Point) -> Factor | None:
        """Return factors per class at this point, for a bound, if they cost at most a tenth of the iterations so far.

        Factors of earlier points can be far off: on 191 rows of 180 classes the preconditioned Hessian had eigenvalues
        from 1e-7 to 1e10, and a bound from three products accepted a point 3 tol above the optimum.
        """
        if self.moments.cost_per_class(self.objective) > 0.1 * iteration:
            return None
        return self.moments.per_class(self.objective, point.theta, min_share=0.0)
