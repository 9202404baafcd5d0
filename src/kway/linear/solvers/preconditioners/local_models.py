"""Local models of the mean loss for proximal steps, one block a column of scores.

    model of row k:  g_k.(u - v) + scale / 2 (u - v)' M_k (u - v) + ridge / 2 ... + lasso ||u||_1

    GramModel      M_k = [X 1]' diag(h_k) [X 1] / n, h_k the loss's curvature in score k: (R, D, D), coordinate descent
    DiagonalModel  the diagonal of that, where D x D is too much or the rows are sparse: (R, D), closed form

Where there are many rows a Gram block is estimated from some, drawn in proportion to their curvature. At first it holds
only weights that are not zero, or whose slope is near enough to the lasso's to become so: of 20,000 images of digits at
alpha 1e-3 a half, then a third, which is a ninth of the products. The other weights bend by the diagonal alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.compute.gpu.far_rows import FarRows
from kway.compute.kernels.linear.coordinate import minimise_model
from kway.compute.threads import pmap
from kway.data.gate import Rows
from kway.linear.losses import Targets
from kway.linear.objective.curvature import curvatures, mean_squares, rooted_rows
from kway.linear.objective.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.point import Point
from kway.linear.solvers.power_method import largest_eigenvalue
from kway.linear.solvers.preconditioners.factors import Among, Factor
from kway.linear.solvers.preconditioners.moments import quick_moments, safe_inverse, sample_rows
from kway.linear.solvers.preconditioners.sampled_gram import columns_at, mirrored, sampled_gram

MOST_MODEL_FEATURES = 3000  # a matrix of 3000 x 3000 float32 is 36 MB a column of scores
MOST_ENTRIES = 1 << 28  # of all matrices together: 1 GB of float32
SAMPLE = 2  # rows a feature in a class's first sampled Gram matrix; each later one takes twice as many
_NEAR = 0.5  # of the lasso: a slope from which a zero is in a Gram matrix
_FEWER = 0.5  # of the coordinates, above which all of them are
_EARLY = 3  # models, after which all of them are
_PLAIN = 0.2  # share of the unweighted Gram in a sampled one
JITTER = 1e-4  # relative; keeps a float32 Gram matrix positive
MODEL_SWEEPS = 12
_SETTLED = 1e-3  # a sweep that gains this little of what the first gained ends the descent


class ModelMinimum(NamedTuple):
    """Minimiser (R, d + 1) of the model, and by how much the model promises to fall."""

    theta: NDArray
    promised: float


class LocalModel(Protocol):
    """A local model of the smooth part."""

    @property
    def start(self) -> float:
        """Scale at which the model is expected to be an upper bound."""
        ...

    def step(self, theta: NDArray, gradient: NDArray, scale: float, penalty: Penalty) -> ModelMinimum:
        """Minimise the model around theta."""
        ...

    def among(self, free: NDArray[np.bool_], ridge: float) -> Factor:
        """An inverse of the model's matrix, and a ridge, among the free coordinates (R, d + 1)."""
        ...


@dataclass(frozen=True)
class GramModel:
    """One symmetric matrix a column of scores among some `places` of its coordinates, the bias always.

    The other coordinates bend by their `diagonal` (R, d + 1) alone, as often as there are others that move: a matrix is
    never above so many times its diagonal.
    """

    blocks: list[NDArray]
    places: list[NDArray[np.int64]]
    diagonal: NDArray
    start: float
    n_jobs: int | None = None

    def step(self, theta: NDArray, gradient: NDArray, scale: float, penalty: Penalty) -> ModelMinimum:
        """Coordinate descent, a column of scores at a time: the model divided by `scale` has the plain matrix."""
        real, last = theta.dtype.type, theta.shape[1] - 1
        slope = gradient / real(scale)
        ridge, lasso = real(penalty.ridge / scale), real(penalty.lasso / scale)
        settled = real(_SETTLED)

        def column(k: int) -> tuple[NDArray, float]:
            at = self.places[k]
            penalised = int(np.searchsorted(at, last))
            return minimise_model(
                self.blocks[k], slope[k, at], theta[k, at], ridge, lasso, penalised, MODEL_SWEEPS, settled
            )

        found = pmap(column, range(len(theta)), self.n_jobs)
        others = self.others & ((theta != 0) | (np.abs(slope) > lasso))
        new, falls = theta.copy(), 0.0
        if others.any():
            h = self.diagonal * others.sum(axis=1, keepdims=True, dtype=theta.dtype) + ridge
            new[others], fallen = thresholded(theta[others], slope[others], h[others], lasso)
            falls = float(fallen.sum())
        for k, (u, _) in enumerate(found):
            new[k, self.places[k]] = u
        return ModelMinimum(new, scale * (falls + sum(promised for _, promised in found)))

    @cached_property
    def others(self) -> NDArray[np.bool_]:
        """Which weights (R, d + 1) are in no matrix."""
        found = np.ones(self.diagonal.shape, bool)
        found[:, -1] = False
        for k, at in enumerate(self.places):
            found[k, at] = False
        return found

    def among(self, free: NDArray[np.bool_], ridge: float) -> Factor:
        """A matrix a score is cut and inverted."""
        last = free.shape[1] - 1
        places = [np.flatnonzero(row) for row in free]

        def inverse(k: int) -> NDArray:
            ridges = np.where(places[k] < last, ridge, 0.0)
            return safe_inverse(np.asfortranarray(self._cut(k, places[k])), ridges)

        return Among(places, pmap(inverse, range(len(free)), self.n_jobs), self.n_jobs)

    def _cut(self, k: int, at: NDArray[np.int64]) -> NDArray:
        """The model's matrix of score k among coordinates `at`."""
        inside = np.flatnonzero(np.isin(at, self.places[k], assume_unique=True))
        found = np.diag(self.diagonal[k, at])
        rows = np.searchsorted(self.places[k], at[inside])
        found[np.ix_(inside, inside)] = self.blocks[k][np.ix_(rows, rows)]
        return found


@dataclass(frozen=True)
class DiagonalModel:
    """One positive number a weight: (R, d + 1)."""

    diagonal: NDArray
    start: float

    def step(self, theta: NDArray, gradient: NDArray, scale: float, penalty: Penalty) -> ModelMinimum:
        """Soft thresholding; entry by entry."""
        real = theta.dtype.type
        h = self.diagonal * real(scale)
        h[:, :-1] += real(penalty.ridge)
        lasso = np.full(theta.shape[1], penalty.lasso, theta.dtype)
        lasso[-1] = 0
        new, falls = thresholded(theta, gradient, h, lasso)
        return ModelMinimum(new, float(falls.sum()))

    def among(self, free: NDArray[np.bool_], ridge: float) -> Factor:
        """Entry by entry."""
        h = self.diagonal.copy()
        h[:, :-1] += h.dtype.type(ridge)
        inverse = np.where(free, 1 / h, 0).astype(h.dtype)
        return lambda gradient: gradient * inverse


@dataclass
class LocalModels:
    """Builds the models of one run; the unweighted Gram matrix and the sample's growth are shared between them."""

    objective: Objective
    rng: np.random.Generator
    built: int = 0

    def at(self, point: Point) -> LocalModel:
        """The best model that is affordable, at a point."""
        self.built += 1
        o, D, theta = self.objective, self.objective.d + 1, point.theta
        if sp.issparse(o.X) or D > MOST_MODEL_FEATURES or o.n_scores * D * D > MOST_ENTRIES:
            return _diagonal_model(o, curvatures(o, theta), self.squares, self.rng)
        if not np.any(theta[:, :-1]) and o.loss.label_free_curvature:  # every row bends alike: one matrix serves all
            bends = o.loss.curvatures(theta[:, -1][None], Targets(np.zeros(1, np.int64)))[0]
            return self._alike(np.maximum(bends, bends.dtype.type(1e-10)))
        h = curvatures(o, theta)  # (R, n)
        seeds = self.rng.integers(0, 2**63, o.n_scores)
        wanted = int(SAMPLE * D * 2 ** max(0, self.built - 2)) + 1000
        places, columns = self._places(point), range(o.n_scores)
        if 2 * wanted >= o.n and o.loss.label_free_curvature:  # others may be flat on most rows: they are mixed below
            whole = min(map(len, places)) == o.d + o.fit_intercept
            squares = np.outer(h.mean(axis=1), self.squares) if whole else _diagonals(o, h)  # (R, d + 1)
            blocks = pmap(lambda k: self._exact(h[k], places[k]), columns, o.n_jobs)
        else:
            squares, draw = _diagonals(o, h), partial(self._sampled, wanted=wanted)
            blocks = pmap(lambda k: draw(h[k], squares[k], places[k], seed=int(seeds[k])), columns, o.n_jobs)
        return self._gram(blocks, places, _bent(squares, self.squares))

    def _places(self, point: Point) -> list[NDArray[np.int64]]:
        """The coordinates that a matrix is made of, a score: those that may be other than zero after some steps.

        All of them where most may, and in later models: the way is long then, and made longer by weights outside.
        """
        o = self.objective
        near = (point.theta != 0) | (np.abs(point.gradient) > _NEAR * o.penalty.lasso)
        if isinstance(o.X, FarRows) or near.mean() > _FEWER or self.built > _EARLY:
            near[:] = True
        near[np.arange(len(near)), np.abs(point.gradient[:, :-1]).argmax(axis=1)] = True  # no matrix is empty
        near[:, -1] = o.fit_intercept
        return [np.flatnonzero(row) for row in near]

    def _alike(self, bends: NDArray) -> GramModel:
        """The plain matrix times one number a score (R,)."""
        everywhere, alike = np.arange(len(self.plain)), mirrored(self.plain)
        blocks = pmap(lambda v: self._positive(alike * v, everywhere), bends, self.objective.n_jobs)
        return self._gram(blocks, [everywhere] * len(blocks), bends[:, None] * self.squares)

    @cached_property
    def plain(self) -> NDArray:
        """[X 1]' diag(sample weights) [X 1] / n, from some rows where there are many: (D, D) upper triangle."""
        gram = quick_moments(self.objective, sample_rows(self.objective)).gram
        return np.asfortranarray(gram, self.objective.X.dtype)

    @cached_property
    def squares(self) -> NDArray:
        """Mean squares of the features, and 1 of the bias: (d + 1,)."""
        squares = mean_squares(self.objective).ravel()
        return np.append(squares, squares.dtype.type(1))

    def _positive(self, M: NDArray, at: NDArray[np.int64]) -> NDArray:
        """M with its diagonal lifted a little, and more where rows hardly bend."""
        i = np.arange(len(M))
        M[i, i] = _bent(M[i, i], self.squares[at]) * (1 + JITTER)
        return M.T if M.flags.f_contiguous else np.ascontiguousarray(M)  # symmetric: turned around it is as it was

    def _gram(self, blocks: list[NDArray], places: list[NDArray[np.int64]], diagonal: NDArray) -> GramModel:
        start = 1.2 if self.objective.loss.couples else 1.0
        return GramModel(blocks, places, diagonal, start, self.objective.n_jobs)

    def _exact(self, h: NDArray, at: NDArray[np.int64]) -> NDArray:
        o = self.objective
        if isinstance(o.X, FarRows):
            return self._positive(o.X.gram(np.sqrt(h), o.fit_intercept, o.X.dtype) / h.dtype.type(len(h)), at)
        rows = rooted_rows(columns_at(o.X, at), np.sqrt(h), o.X.dtype, o.fit_intercept)
        return self._positive(rows.T @ rows / h.dtype.type(len(h)), at)

    def _sampled(self, h: NDArray, squares: NDArray, at: NDArray[np.int64], wanted: int, seed: int) -> NDArray:
        """The matrix of a column from about `wanted` rows drawn in proportion to h, mixed with the plain one."""
        rng = np.random.default_rng(seed)
        drawn = sampled_gram(self.objective, h, wanted, rng, self.plain, _PLAIN, at)
        return self._positive(_lifted(mirrored(drawn), squares[at]), at)


def thresholded(
    theta: NDArray, gradient: NDArray, h: NDArray, lasso: NDArray | np.floating
) -> tuple[NDArray, NDArray[np.float64]]:
    """Entry by entry the minimum of gradient (u - theta) + h / 2 (u - theta)^2 + lasso |u|, and how much it falls."""
    new = theta - gradient / h
    new = np.sign(new) * np.maximum(np.abs(new) - lasso / h, 0)
    move = (new - theta).astype(np.float64)
    return new, -(gradient + h * move / 2) * move + lasso * (np.abs(theta) - np.abs(new))


def _bent(diagonal: NDArray, squares: NDArray) -> NDArray:
    """A diagonal (..., D) of curvature x square, where rows hardly bend along a feature as if they bent as elsewhere.

    Curvatures are compared, not entries: a feature in units of 1e6, or a bias of ones beside it, is as good as others.
    """
    bend = diagonal / np.where(squares > 0, squares, 1)
    usual = bend[..., squares > 0].mean(axis=-1, keepdims=True)
    return np.where(bend > 1e-10 * usual, diagonal, np.maximum(usual, 1e-10) * np.where(squares > 0, squares, 1))


def _lifted(M: NDArray, squares: NDArray) -> NDArray:
    """M with a diagonal of at least the true one: a rare feature that the sample missed would get a huge step."""
    i = np.arange(len(M))
    M[i, i] = np.maximum(squares, M[i, i])
    return M


def _diagonals(objective: Objective, h: NDArray) -> NDArray:
    """mean_i h_ki x_ij^2 and, for the bias, mean_i h_ki: (R, d + 1)."""
    return np.hstack((mean_squares(objective, h), h.mean(axis=1, keepdims=True)))


def _diagonal_model(objective: Objective, h: NDArray, squares: NDArray, rng: np.random.Generator) -> DiagonalModel:
    """Mean h_k x_j^2; the scale at which it bounds the Hessian from the power method on some rows."""
    X, n, diagonal = objective.X, objective.n, _bent(_diagonals(objective, h), squares)
    some = rng.permutation(n)[:2000]
    k = int(np.argmax(h.mean(axis=1)))
    top = _largest_ratio(X[np.sort(some)], h[k, np.sort(some)], diagonal[k, :-1], rng)
    return DiagonalModel(diagonal, max(1.0, top))


def _largest_ratio(X: Rows, h: NDArray, diagonal: NDArray, rng: np.random.Generator) -> float:
    """Largest eigenvalue of D^-1/2 (X' diag(h) X / m) D^-1/2."""
    root, m = 1 / np.sqrt(diagonal), X.dtype.type(len(h))
    start = rng.standard_normal(len(diagonal)).astype(diagonal.dtype)
    return largest_eigenvalue(lambda v: root * (X.T @ (h * (X @ (root * v)))) / m, start)
