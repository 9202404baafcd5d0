"""Factors: what stands for the inverse Hessian in a preconditioned method; each maps a gradient (R, d + 1) to a step.

D is d + 1 with a bias and d without, where the last column of the step stays zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway.compute.lapack import multiply
from kway.compute.threads import pmap, shares

Factor = Callable[[NDArray], NDArray]


@dataclass(frozen=True)
class Diagonal:
    """Divides by (1, D) or (R, D) curvatures."""

    curvature: NDArray

    def __call__(self, gradient: NDArray) -> NDArray:
        """gradient (R, d + 1) / curvature."""
        out = np.zeros_like(gradient)
        D = self.curvature.shape[1]
        np.divide(gradient[:, :D], self.curvature, out=out[:, :D])
        return out


@dataclass(frozen=True)
class Shared:
    """One inverse (D, D), upper triangle mirrored, for every score."""

    inverse: NDArray
    n_jobs: int | None = None

    def __call__(self, gradient: NDArray) -> NDArray:
        """gradient (R, d + 1) times the inverse, a share of the columns a worker."""
        out, D = np.zeros_like(gradient), len(self.inverse)
        g = np.ascontiguousarray(gradient[:, :D], self.inverse.dtype)

        def part(columns: slice) -> None:
            out[:, columns] = g @ self.inverse[:, columns]

        pmap(part, shares(D, self.n_jobs, least=max(64, 1_000_000 // (D * len(g)))), self.n_jobs)
        return out


@dataclass(frozen=True)
class SharedAndOwn:
    """(A + u_k u_k')^-1 for score k: one inverse for all, and along v_k = A^-1 u_k a correction of its own.

    By Sherman and Morrison A^-1 g - v_k (v_k.g) / (1 + u_k.v_k); the rows of `own` are v_k / sqrt(1 + u_k.v_k).
    """

    shared: Shared
    own: NDArray  # (R, D)

    def __call__(self, gradient: NDArray) -> NDArray:
        """gradient (R, d + 1) times the inverses."""
        out, D = self.shared(gradient), self.own.shape[1]
        out[:, :D] -= np.einsum("kj,kj->k", self.own, gradient[:, :D])[:, None] * self.own
        return out


@dataclass(frozen=True)
class PerClass:
    """One inverse a score, upper triangles."""

    inverses: list[NDArray]
    n_jobs: int | None = None

    def __call__(self, gradient: NDArray) -> NDArray:
        """Each row of gradient (R, d + 1) times its own inverse."""
        out, D = np.zeros_like(gradient), len(self.inverses[0])

        def part(classes: slice) -> None:
            product = np.empty(D, self.inverses[0].dtype)
            for k in range(classes.start, classes.stop):
                multiply(self.inverses[k], np.ascontiguousarray(gradient[k, :D], product.dtype), product)
                out[k, :D] = product

        pmap(part, shares(len(gradient), self.n_jobs), self.n_jobs)
        return out


@dataclass(frozen=True)
class Among:
    """One inverse a score among some of its coordinates, upper triangles; the others get no step."""

    places: list[NDArray[np.int64]]  # of the coordinates, a score
    inverses: list[NDArray]
    n_jobs: int | None = None

    def __call__(self, gradient: NDArray) -> NDArray:
        """Some of each row of gradient (R, d + 1) times its own inverse."""
        out = np.zeros_like(gradient)

        def part(k: int) -> None:
            places, inverse = self.places[k], self.inverses[k]
            if len(places):
                product = np.empty(len(places), inverse.dtype)
                multiply(inverse, np.ascontiguousarray(gradient[k, places], inverse.dtype), product)
                out[k, places] = product

        pmap(part, range(len(gradient)), self.n_jobs)
        return out


@dataclass(frozen=True)
class Stacked:
    """One small inverse a score, whole, (R, D, D): a call of BLAS for each would take longer than their products."""

    inverses: NDArray

    def __call__(self, gradient: NDArray) -> NDArray:
        """Each row of gradient (R, d + 1) times its own inverse."""
        out, D = np.zeros_like(gradient), self.inverses.shape[1]
        out[:, :D] = np.matmul(self.inverses, gradient[:, :D, None])[:, :, 0]
        return out


@dataclass(frozen=True)
class Whole:
    """One inverse (R D, R D), upper triangle, over all scores at once."""

    inverse: NDArray

    def __call__(self, gradient: NDArray) -> NDArray:
        """The inverse times gradient (R, d + 1), as one vector."""
        R, out = len(gradient), np.zeros_like(gradient)
        D = len(self.inverse) // R
        product = np.empty(len(self.inverse))
        multiply(self.inverse, np.ascontiguousarray(gradient[:, :D], np.float64).ravel(), product)
        out[:, :D] = product.reshape(R, D)
        return out


@dataclass(frozen=True)
class Centred:
    """A factor within the thetas whose mean over the scores is zero: the optimum's is, where a shift is free."""

    factor: Factor
    centred: Callable[[NDArray], NDArray]  # of the objective, which knows where all the scores are

    def __call__(self, gradient: NDArray) -> NDArray:
        """P factor(P gradient), P taking the mean over the scores away."""
        return self.centred(self.factor(self.centred(gradient)))
