"""Local models of the mean loss for proximal steps, one block a column of scores.

    model of row k:  g_k.(u - v) + scale / 2 (u - v)' M_k (u - v) + ridge / 2 ... + lasso ||u||_1

    GramModel      M_k = [X 1]' diag(h_k) [X 1] / n, h_k the loss's curvature in score k: (R, D, D), coordinate descent
    DiagonalModel  the diagonal of that, where D x D is too much or the rows are sparse: (R, D), closed form

Where there are many rows a Gram block is estimated from some, drawn in proportion to their curvature.
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
from kway.linear.solvers.power_method import largest_eigenvalue
from kway.linear.solvers.preconditioners.factors import Among, Factor
from kway.linear.solvers.preconditioners.moments import quick_moments, safe_inverse, sample_rows
from kway.linear.solvers.preconditioners.sampled_gram import mirrored, sampled_gram

MOST_MODEL_FEATURES = 3000  # a matrix of 3000 x 3000 float32 is 36 MB a column of scores
MOST_ENTRIES = 1 << 28  # of all matrices together: 1 GB of float32
SAMPLE = 2  # rows a feature in a class's first sampled Gram matrix; each later one takes twice as many
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
    """One symmetric (D, D) matrix a column of scores; D = d + 1, or d without a bias."""

    blocks: list[NDArray]
    start: float
    n_jobs: int | None = None

    def step(self, theta: NDArray, gradient: NDArray, scale: float, penalty: Penalty) -> ModelMinimum:
        """Coordinate descent, a column of scores at a time: the model divided by `scale` has the plain matrix."""
        D, real = len(self.blocks[0]), theta.dtype.type
        slope = gradient / real(scale)
        ridge, lasso = real(penalty.ridge / scale), real(penalty.lasso / scale)
        settled = real(_SETTLED)

        def column(k: int) -> tuple[NDArray, float]:
            around = np.ascontiguousarray(theta[k, :D])
            along = np.ascontiguousarray(slope[k, :D])
            return minimise_model(
                self.blocks[k], along, around, ridge, lasso, theta.shape[1] - 1, MODEL_SWEEPS, settled
            )

        found = pmap(column, range(len(theta)), self.n_jobs)
        new = np.zeros_like(theta)
        for k, (u, _) in enumerate(found):
            new[k, :D] = u
        return ModelMinimum(new, scale * sum(promised for _, promised in found))

    def among(self, free: NDArray[np.bool_], ridge: float) -> Factor:
        """A matrix a score is cut and inverted."""
        D = len(self.blocks[0])
        places = [np.flatnonzero(row[:D]) for row in free]

        def inverse(k: int) -> NDArray:
            at = places[k]
            ridges = np.where(at < free.shape[1] - 1, ridge, 0.0)
            return safe_inverse(np.asfortranarray(self.blocks[k][np.ix_(at, at)]), ridges)

        return Among(places, pmap(inverse, range(len(free)), self.n_jobs), self.n_jobs)


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
        new = theta - gradient / h
        W = new[:, :-1]
        new[:, :-1] = np.sign(W) * np.maximum(np.abs(W) - real(penalty.lasso) / h[:, :-1], 0)
        move = (new - theta).astype(np.float64)
        fall = -float(np.vdot(gradient, move)) - float(np.sum(h * move * move)) / 2
        lasso = Penalty(lasso=penalty.lasso)
        return ModelMinimum(new, fall + lasso.value(theta[:, :-1]) - lasso.value(new[:, :-1]))

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

    def at(self, theta: NDArray) -> LocalModel:
        """The best model that is affordable, at theta."""
        self.built += 1
        o, D = self.objective, self.objective.d + 1
        if sp.issparse(o.X) or D > MOST_MODEL_FEATURES or o.n_scores * D * D > MOST_ENTRIES:
            return _diagonal_model(o, curvatures(o, theta), self.squares, self.rng)
        if (
            not np.any(theta[:, :-1]) and o.loss.label_free_curvature
        ):  # every row bends alike: one matrix serves all columns
            h = o.loss.curvatures(theta[:, -1][None], Targets(np.zeros(1, np.int64)))[0]
            alike = mirrored(self.plain)
            return self._gram(pmap(lambda v: self._positive(alike * v), np.maximum(h, h.dtype.type(1e-10)), o.n_jobs))
        h = curvatures(o, theta)  # (R, n)
        seeds = self.rng.integers(0, 2**63, o.n_scores)
        wanted = int(SAMPLE * D * 2 ** max(0, self.built - 2)) + 1000
        if 2 * wanted >= o.n and o.loss.label_free_curvature:  # others may be flat on most rows: they are mixed below
            return self._gram(pmap(lambda k: self._exact(h[k]), range(o.n_scores), o.n_jobs))
        squares = _diagonals(o, h)  # (R, d + 1)
        draw = partial(self._sampled, wanted=wanted)
        return self._gram(pmap(lambda k: draw(h[k], squares[k], seed=int(seeds[k])), range(o.n_scores), o.n_jobs))

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

    def _positive(self, M: NDArray) -> NDArray:
        """M with its diagonal lifted a little, and more where rows hardly bend."""
        i = np.arange(len(M))
        M[i, i] = _bent(M[i, i], self.squares[: len(M)]) * (1 + JITTER)
        return M.T if M.flags.f_contiguous else np.ascontiguousarray(M)  # symmetric: turned around it is as it was

    def _gram(self, blocks: list[NDArray]) -> GramModel:
        return GramModel(blocks, 1.2 if self.objective.loss.couples else 1.0, self.objective.n_jobs)

    def _exact(self, h: NDArray) -> NDArray:
        o = self.objective
        if isinstance(o.X, FarRows):
            return self._positive(o.X.gram(np.sqrt(h), o.fit_intercept, o.X.dtype) / h.dtype.type(len(h)))
        rows = rooted_rows(o.X, np.sqrt(h), o.X.dtype, o.fit_intercept)
        return self._positive(rows.T @ rows / h.dtype.type(len(h)))

    def _sampled(self, h: NDArray, squares: NDArray, wanted: int, seed: int) -> NDArray:
        """The matrix of a column from about `wanted` rows drawn in proportion to h, mixed with the plain one."""
        drawn = sampled_gram(self.objective, h, wanted, np.random.default_rng(seed), self.plain, _PLAIN)
        return self._positive(_lifted(mirrored(drawn), squares))


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
    M[i, i] = np.maximum(squares[: len(M)], M[i, i])
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
