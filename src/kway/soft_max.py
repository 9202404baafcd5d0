"""softmax and its logarithms over the columns of scores z (n, K), in the float type of z.

    softmax(z) = e^z / sum_c e^z_c        log_sum_exp(z) = log sum_c e^z_c        log_softmax(z) = z - log_sum_exp(z)

The largest score of a row is taken off first, so nothing overflows; -inf is a class that cannot be. scipy.special has
the same, and takes a tenth of the start of a process to load.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def softmax(z: NDArray, temperature: float = 1.0) -> NDArray:
    """exp(z_c / T) / sum_j exp(z_j / T) a row.

    >>> softmax(np.array([[0.0, 1e30]]))
    array([[0., 1.]])
    """
    shares = (z - z.max(axis=-1, keepdims=True)) / temperature
    np.exp(shares, out=shares)
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def log_softmax(z: NDArray) -> NDArray:
    """Their logarithms (n, K), exact where a share is too small for its float type."""
    below = z - z.max(axis=1, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(axis=1, keepdims=True)))


def log_sum_exp(z: NDArray) -> NDArray:
    """(n,)."""
    most = z.max(axis=1, keepdims=True)
    return np.asarray(most[:, 0] + np.log(np.exp(z - most).sum(axis=1)))
