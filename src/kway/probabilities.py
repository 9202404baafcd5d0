"""From scores to probabilities: softmax over the columns of scores z (n, K), and the sigmoid of single scores.

    softmax(z) = e^z / sum_c e^z_c        log_sum_exp(z) = log sum_c e^z_c        log_softmax(z) = z - log_sum_exp(z)

The largest score of a row is subtracted first, so that nothing overflows; -inf is an impossible class. scipy.special
has the same functions but converts float32 to float64.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


def softmax(z: NDArray, temperature: float = 1.0) -> NDArray:
    """Return exp(z_c / T) / sum_j exp(z_j / T) per row.

    >>> softmax(np.array([[0.0, 1e30]]))
    array([[0., 1.]])
    """
    shares = (z - z.max(axis=-1, keepdims=True)) / temperature
    np.exp(shares, out=shares)
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def log_softmax(z: NDArray) -> NDArray:
    """Return log softmax (n, K), also for probabilities that are too small for their float type."""
    below = z - z.max(axis=1, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(axis=1, keepdims=True)))


def log_sum_exp(z: NDArray) -> NDArray:
    """Return log sum_c exp(z_c) per row, (n,)."""
    most = z.max(axis=1, keepdims=True)
    return np.asarray(most[:, 0] + np.log(np.exp(z - most).sum(axis=1)))


def sigmoid(scores: NDArray) -> NDArray:
    """Return 1 / (1 + exp(-f)) without overflow; 1 - sigmoid(f) = sigmoid(-f).

    >>> sigmoid(np.array([0.0, 1e30]))
    array([0.5, 1. ])
    """
    small = np.exp(-np.abs(scores))
    return np.where(scores >= 0, 1 / (1 + small), small / (1 + small))


def log_sigmoid(scores: NDArray) -> NDArray:
    """Return log sigmoid(f), also for probabilities that are too small for their float type."""
    return np.asarray(-np.logaddexp(0, -scores))


class Shares(NamedTuple):
    """How scores become probabilities: shares of exp(scale f) if `joint`, else of sigmoid(scale f)."""

    scale: float = 1.0
    joint: bool = True

    def log_weights(self, f: NDArray, peak: NDArray) -> NDArray:
        """Return the log of the weight of each score (m, c), relative to the largest score (m, 1) of its row."""
        scale = f.dtype.type(min(self.scale, float(np.finfo(f.dtype).max)))
        with np.errstate(over="ignore"):  # -inf is an impossible class
            if self.joint:
                return np.asarray((f - peak) * scale)
            return np.asarray(log_sigmoid(f * scale) - log_sigmoid(peak * scale))

    def sigmoids(self, f: NDArray) -> NDArray:
        """Return sigmoid(scale f) of each score."""
        with np.errstate(over="ignore"):
            return sigmoid(f * f.dtype.type(self.scale))
