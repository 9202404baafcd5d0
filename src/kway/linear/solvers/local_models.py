"""Local quadratic models of the mean loss for proximal steps, one block per column of scores.

    model of row k:  g_k.(u - v) + scale / 2 (u - v)' M_k (u - v) + ridge / 2 ... + lasso ||u||_1

    GramModel      M_k = [X 1]' diag(h_k) [X 1] / n, h_k the loss's curvature in score k: (R, D, D), coordinate descent
    DiagonalModel  the diagonal of that if D x D is too large or the rows are sparse: (R, D), closed form

If there are many rows, a Gram block is estimated from a sample drawn in proportion to the curvature.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.linear.coordinate import minimise_model
from kway.linear.losses import Targets
from kway.linear.objective import Objective
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Point
from kway.linear.solvers.power_method import largest_eigenvalue
from kway.linear.solvers.preconditioners import (
    MOST_BYTES,
    MOST_FEATURES,
    Factor,
    mirrored,
    plain_mass,
    quick_moments,
    safe_inverse,
    sample_rows,
    sampled_gram,
)
from kway.threads import pmap
from kway.validation import Rows

JITTER = 1e-4  # relative increase of the diagonal that keeps a float32 Gram matrix positive definite
MODEL_SWEEPS = 20  # sweeps of coordinate descent over a model, at most (T4c)
_SETTLED = 1e-4  # a sweep that gains less than this share of the first one is the last (T4c)


class ModelMinimum(NamedTuple):
    """The minimizer (R, d + 1) of the model, and by how much the model falls."""

    theta: NDArray
    promised: float


class LocalModel(Protocol):
    """A local model of the smooth part."""

    @property
    def start(self) -> float:
        """The scale at which the model is expected to be an upper bound."""
        ...

    def step(self, theta: NDArray, gradient: NDArray, scale: float, penalty: Penalty) -> ModelMinimum:
        """Minimize the model around theta."""
        ...

    def inverse(self, penalty: Penalty, free: NDArray[np.bool_]) -> Factor:
        """Return an inverse of the model's matrix and the ridge among the free weights (R, d + 1)."""
        ...


@dataclass(frozen=True)
class GramModel:
    """One symmetric matrix (D, D) per column of scores; D = d + 1, or d without a bias."""

    blocks: list[NDArray]
    start: float
    bias: bool

    def step(self, theta: NDArray, gradient: NDArray, scale: float, penalty: Penalty) -> ModelMinimum:
        """Coordinate descent, one column of scores at a time: the model divided by `scale` has the plain matrix."""
        D, d, real = len(self.blocks[0]), theta.shape[1] - 1, theta.dtype.type
        slope = gradient[:, :D] / real(scale)
        ridges = _with_bias(penalty.ridges(d), D).astype(theta.dtype) / real(scale)
        lassos = _with_bias(penalty.lassos(d), D).astype(theta.dtype) / real(scale)
        settled = real(_SETTLED)

        def column(k: int) -> tuple[NDArray, float]:
            return minimise_model(
                self.blocks[k], slope[k].copy(), theta[k, :D].copy(), ridges, lassos, MODEL_SWEEPS, settled
            )

        found, new = pmap(column, range(len(theta))), theta.copy()
        for k, (u, _) in enumerate(found):
            new[k, :D] = u
        return ModelMinimum(new, scale * sum(promised for _, promised in found))

    def inverse(self, penalty: Penalty, free: NDArray[np.bool_]) -> Factor:
        """Return one inverse per score, among its free weights."""
        D = len(self.blocks[0])
        ridges = _with_bias(penalty.ridges(D - 1 if self.bias else D), D)
        places = [np.flatnonzero(row[:D]) for row in free]

        def one(k: int) -> NDArray:
            at = places[k]
            return mirrored(safe_inverse(np.asfortranarray(self.blocks[k][np.ix_(at, at)]), ridges[at]))

        inverses = pmap(one, range(len(places)))

        def apply(gradient: NDArray) -> NDArray:
            out = np.zeros_like(gradient)
            for k, at in enumerate(places):
                out[k, at] = inverses[k] @ gradient[k, at]
            return out

        return apply


@dataclass(frozen=True)
class DiagonalModel:
    """One positive number per weight: (R, d + 1)."""

    diagonal: NDArray
    start: float

    def step(self, theta: NDArray, gradient: NDArray, scale: float, penalty: Penalty) -> ModelMinimum:
        """Soft thresholding, entry by entry."""
        d, D = theta.shape[1] - 1, theta.shape[1]
        h = self.diagonal * theta.dtype.type(scale) + _with_bias(penalty.ridges(d), D).astype(theta.dtype)
        new, falls = thresholded(theta, gradient, h, _with_bias(penalty.lassos(d), D).astype(theta.dtype))
        return ModelMinimum(new, float(falls.sum()))

    def inverse(self, penalty: Penalty, free: NDArray[np.bool_]) -> Factor:
        """Return one number per weight."""
        D = self.diagonal.shape[1]
        curvature = (self.diagonal + _with_bias(penalty.ridges(D - 1), D)).astype(self.diagonal.dtype)
        return lambda gradient: np.where(free, gradient / curvature, 0)


def _with_bias(columns: NDArray, D: int) -> NDArray:
    """Return the penalties (d,) of the columns and, if D = d + 1, 0 for the bias."""
    return columns if len(columns) == D else np.append(columns, 0.0)


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
        if sp.issparse(o.X) or D > MOST_FEATURES or o.n_scores * D * D * o.rows.dtype.itemsize > MOST_BYTES:
            return _diagonal_model(o, o.curvatures(theta), self.squares, self.rng)
        if not np.any(theta[:, :-1]) and o.loss.label_free_curvature:  # every row bends alike: one matrix serves all
            bends = o.loss.curvatures(theta[:, -1][None], Targets(np.zeros(1, np.int64)))[0]
            return self._alike(np.maximum(bends, bends.dtype.type(1e-10)))
        h = o.curvatures(theta)  # (R, n)
        seeds = self.rng.integers(0, 2**63, o.n_scores)
        wanted = D * 2 ** max(0, self.built - 2) + 1000
        if 2 * wanted >= o.n and o.loss.label_free_curvature:  # others may be flat on most rows: they are mixed below
            return self._gram(pmap(lambda k: self._exact(h[k]), range(o.n_scores)))
        squares, mass = _diagonals(o, h), plain_mass(h)
        return self._gram(
            pmap(lambda k: self._sampled(h[k], squares[k], mass[k], wanted, int(seeds[k])), range(o.n_scores))
        )

    def _alike(self, bends: NDArray) -> GramModel:
        """Return the plain matrix times one number per score (R,)."""
        alike = mirrored(self.plain)
        return self._gram(pmap(lambda v: self._positive(alike * v), bends))

    @cached_property
    def plain(self) -> NDArray:
        """[X 1]' diag(sample weights) [X 1] / n, from a sample of many rows: (D, D) upper triangle."""
        gram = quick_moments(self.objective, sample_rows(self.objective)).gram
        return np.asfortranarray(gram, self.objective.X.dtype)

    @cached_property
    def squares(self) -> NDArray:
        """Mean squares of the features, and 1 of the bias: (d + 1,)."""
        squares = self.objective.mean_squares().ravel()
        return np.append(squares, squares.dtype.type(1))

    def _positive(self, M: NDArray) -> NDArray:
        """Return M with its diagonal lifted a little, and more if rows hardly bend."""
        i = np.arange(len(M))
        M[i, i] = _bent(M[i, i], self.squares[: len(M)]) * (1 + JITTER)
        return M.T if M.flags.f_contiguous else np.ascontiguousarray(M)  # symmetric: transposed it is the same

    def _gram(self, blocks: list[NDArray]) -> GramModel:
        return GramModel(blocks, 1.2 if self.objective.loss.couples else 1.0, self.objective.fit_intercept)

    def _exact(self, h: NDArray) -> NDArray:
        o = self.objective
        return self._positive(mirrored(o.rows.gram(h, o.fit_intercept, o.rows.dtype)))

    def _sampled(self, h: NDArray, squares: NDArray, mass: float, wanted: int, seed: int) -> NDArray:
        """Return the matrix of a column from about `wanted` rows drawn in proportion to h, mixed with the plain one."""
        drawn = sampled_gram(self.objective, h, wanted, np.random.default_rng(seed), self.plain, mass)
        return self._positive(_lifted(mirrored(drawn), squares[: len(drawn)]))


def thresholded(
    theta: NDArray, gradient: NDArray, h: NDArray, lasso: NDArray | np.floating
) -> tuple[NDArray, NDArray[np.float64]]:
    """Entry by entry the minimum of gradient (u - theta) + h / 2 (u - theta)^2 + lasso |u|, and how much it falls."""
    new = theta - gradient / h
    new = np.sign(new) * np.maximum(np.abs(new) - lasso / h, 0)
    move = (new - theta).astype(np.float64)
    return new, -(gradient + h * move / 2) * move + lasso * (np.abs(theta) - np.abs(new))


def _bent(diagonal: NDArray, squares: NDArray) -> NDArray:
    """A diagonal (..., D) of curvature x square, with the usual curvature for features that have hardly any.

    Curvatures are compared, not entries: a feature in units of 1e6, or a bias of ones, is as good as others.
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
    return np.hstack((objective.mean_squares(h), h.mean(axis=1, keepdims=True)))


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
