"""The training of exemplars: blocks of linear SVMs, one a row, solved together.

start   least squares with every negative active: P_i w_i = positive x_i - mean, P_i = M + alpha I + positive x_i x_i',
        where M, the second moment of all rows, is factored once for all exemplars
steps   Nesterov's in the metric P_i, of length m_i / n: the Hessian, in which only the negatives with f > -1 count, is
        at most n / m_i P_i; an exemplar whose step points uphill loses its momentum
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh

from kway.kernels.voting.exemplars import platt, squared_hinge

N_FOLDS = 4  # a quarter of the negatives is kept for calibration
_NEWTON = 30  # steps of a calibration at most
_LOOK = 4  # steps between two looks at the objective


class Solved(NamedTuple):
    """Weights (m, d + 1) of a block of exemplars, their objectives and calibration (m,), and the steps taken."""

    weights: NDArray
    objectives: NDArray[np.float64]
    slopes: NDArray[np.float64]
    offsets: NDArray[np.float64]
    n_iter: int


@dataclass(frozen=True)
class ExemplarProblem:
    """What all exemplars share: rows (n, d + 1), the last column ones; codes and folds (n,)."""

    rows: NDArray
    codes: NDArray[np.int64]
    folds: NDArray[np.int64]
    alpha: float
    positive: float
    shared: SharedFactor
    negatives: NDArray[np.float64]  # (n,) how many each exemplar has

    @staticmethod
    def of(rows: NDArray, codes: NDArray[np.int64], alpha: float, positive: float) -> ExemplarProblem:
        """The shared work: folds, second moment, its factor, and the start of every exemplar."""
        folds = folds_of(codes)
        shared = SharedFactor.of(rows, alpha, positive)
        return ExemplarProblem(rows, codes, folds, alpha, positive, shared, _count_negatives(codes, folds))

    def solve(self, block: slice, max_iter: int, tol: float) -> Solved:
        """Train and calibrate the exemplars of some rows."""
        own = np.arange(block.start, block.stop)
        weights, objectives, n_iter = self._descend(own, max_iter, tol)
        slopes, offsets = np.empty(len(own)), np.empty(len(own))
        platt(weights @ self.rows.T, own, self.codes, self.folds, N_FOLDS, _NEWTON, slopes, offsets)
        return Solved(weights, objectives, slopes, offsets, n_iter)

    def gradient(self, weights: NDArray, own: NDArray[np.int64]) -> tuple[NDArray, NDArray[np.float64]]:
        """Gradient (m, d + 1) and objective (m,) of exemplars `own` at some weights (m, d + 1)."""
        shares = 1.0 / np.maximum(self.negatives[own], 1.0)
        slopes = weights @ self.rows.T  # (m, n) scores, then d loss / d score
        losses = np.empty(len(own))
        squared_hinge(slopes, own, self.codes, self.folds, shares, self.positive, losses)
        penalties = 0.5 * self.alpha * np.einsum("ij,ij->i", weights, weights)
        return slopes @ self.rows + weights.dtype.type(self.alpha) * weights, losses + penalties

    def _descend(self, own: NDArray[np.int64], max_iter: int, tol: float) -> tuple[NDArray, NDArray[np.float64], int]:
        rows = self.rows[own]
        step = (np.maximum(self.negatives[own], 1.0) / len(self.rows)).astype(rows.dtype)[:, None]
        weights = ahead = self.shared.start[own]
        momentum = np.ones((len(own), 1), rows.dtype)
        before = np.full(len(own), np.inf)
        for i in range(1, max_iter + 1):
            slope, objectives = self.gradient(ahead, own)
            new = ahead - step * self.shared.solve(slope, own, rows)
            uphill = np.einsum("ij,ij->i", slope, new - weights) > 0
            momentum[uphill] = 1.0
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
            ahead = new + (momentum - 1.0) / following * (new - weights)
            weights, momentum = new, following
            if i % _LOOK == 0:
                if np.all(before - objectives <= tol * objectives):
                    break
                before = np.minimum(before, objectives)
        return weights, self.gradient(weights, own)[1], i


@dataclass(frozen=True)
class SharedFactor:
    """P^-1 (d + 1, d + 1) of P = M + alpha I, pulled (n, d + 1) = P^-1 x_i, gain (n,) and the start (n, d + 1).

    (P + positive x x')^-1 v = u - gain (x . u) P^-1 x with u = P^-1 v and gain = positive / (1 + positive x . P^-1 x)
    (Sherman-Morrison), so one inverse serves every exemplar.
    """

    inverse: NDArray
    pulled: NDArray
    gain: NDArray
    start: NDArray

    @staticmethod
    def of(rows: NDArray, alpha: float, positive: float) -> SharedFactor:
        """From the rows (n, d + 1), in their type."""
        moment = (rows.T @ rows).astype(np.float64) / len(rows)
        inverse = cho_solve(cho_factor(moment + alpha * np.eye(len(moment))), np.eye(len(moment)))
        pulled = rows @ inverse  # (n, d + 1)
        gain = positive / (1.0 + positive * np.einsum("ij,ij->i", rows, pulled))
        right = positive * pulled - rows.mean(axis=0, dtype=np.float64) @ inverse  # P^-1 (positive x_i - mean)
        start = right - (gain * np.einsum("ij,ij->i", rows, right))[:, None] * pulled
        return SharedFactor(*(array.astype(rows.dtype) for array in (inverse, pulled, gain, start)))

    def solve(self, slope: NDArray, own: NDArray[np.int64], rows: NDArray) -> NDArray:
        """P_i^-1 slope_i of exemplars `own`; slope and their rows (m, d + 1)."""
        u = slope @ self.inverse
        return u - (self.gain[own] * np.einsum("ij,ij->i", rows, u))[:, None] * self.pulled[own]


def strong_axes(rows: NDArray, least: float) -> NDArray:
    """Principal directions (d, r) of centred rows (n, d) along which their mean square is above `least`; one at least.

    Along the others a weight is held to nothing by a penalty that is far stronger than what rows differ by.
    """
    values, axes = eigh(rows.T @ rows / len(rows))  # ascending
    return np.ascontiguousarray(axes[:, min(int(np.count_nonzero(values <= least)), len(values) - 1) :])


def folds_of(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """A fold for each row (n,), every class spread over all of them as evenly as it goes."""
    folds = np.empty(len(codes), np.int64)
    folds[np.argsort(codes, kind="stable")] = np.arange(len(codes)) % N_FOLDS
    return folds


def _count_negatives(codes: NDArray[np.int64], folds: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rows of other classes in other folds, for each row (n,)."""
    table = np.zeros((codes.max() + 1, N_FOLDS))
    np.add.at(table, (codes, folds), 1.0)
    return len(codes) - table.sum(axis=1)[codes] - table.sum(axis=0)[folds] + table[codes, folds]
