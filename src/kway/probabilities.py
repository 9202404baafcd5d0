"""From scores to probabilities: softmax over the columns of scores z (n, K), and the sigmoid of single scores.

    softmax(z) = e^z / sum_c e^z_c        log_sum_exp(z) = log sum_c e^z_c        log_softmax(z) = z - log_sum_exp(z)

The largest score of a row is subtracted first, so nothing overflows; -inf is a class that cannot be. scipy.special has
the same functions but makes float64 of float32, and takes a tenth of the start of a process to load.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


def softmax(z: NDArray, temperature: float = 1.0) -> NDArray:
    """exp(z_c / T) / sum_j exp(z_j / T) per row.

    >>> softmax(np.array([[0.0, 1e30]]))
    array([[0., 1.]])
    """
    shares = (z - z.max(axis=-1, keepdims=True)) / temperature
    np.exp(shares, out=shares)
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def log_softmax(z: NDArray) -> NDArray:
    """Their logarithms (n, K), exact also for a share that is too small for its float type."""
    below = z - z.max(axis=1, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(axis=1, keepdims=True)))


def log_sum_exp(z: NDArray) -> NDArray:
    """(n,)."""
    most = z.max(axis=1, keepdims=True)
    return np.asarray(most[:, 0] + np.log(np.exp(z - most).sum(axis=1)))


def sigmoid(scores: NDArray) -> NDArray:
    """1 / (1 + exp(-f)), without overflow; 1 - sigmoid(f) = sigmoid(-f).

    >>> sigmoid(np.array([0.0, 1e30]))
    array([0.5, 1. ])
    """
    small = np.exp(-np.abs(scores))
    return np.where(scores >= 0, 1 / (1 + small), small / (1 + small))


def log_sigmoid(scores: NDArray) -> NDArray:
    """log sigmoid(f), exact also for a probability that is too small for its float type."""
    return np.asarray(-np.logaddexp(0, -scores))


class Shares(NamedTuple):
    """How scores become probabilities: shares of exp(scale f) if `joint`, else of sigmoid(scale f)."""

    scale: float = 1.0
    joint: bool = True

    def log_weights(self, f: NDArray, peak: NDArray) -> NDArray:
        """log of the weight of each score (m, c), relative to that of the largest score (m, 1) of its row: <= 0."""
        scale = f.dtype.type(min(self.scale, float(np.finfo(f.dtype).max)))
        with np.errstate(over="ignore"):  # -inf is a class that cannot be
            if self.joint:
                return np.asarray((f - peak) * scale)
            return np.asarray(log_sigmoid(f * scale) - log_sigmoid(peak * scale))

    def sigmoids(self, f: NDArray) -> NDArray:
        """sigmoid(scale f) of each score by itself."""
        with np.errstate(over="ignore"):
            return sigmoid(f * f.dtype.type(self.scale))
