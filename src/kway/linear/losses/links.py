"""Links: scores to probabilities, without overflow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def softmax(scores: NDArray, temperature: float = 1.0) -> NDArray:
    """exp(f_c / T) / sum_j exp(f_j / T) a row; the largest score is taken off first, so none overflows.

    >>> softmax(np.array([[0.0, 1e30]]))
    array([[0., 1.]])
    """
    shifted = (scores - scores.max(axis=-1, keepdims=True)) / temperature
    np.exp(shifted, out=shifted)
    return shifted / shifted.sum(axis=-1, keepdims=True)


def sigmoid(scores: NDArray) -> NDArray:
    """1 / (1 + exp(-f)); 1 - sigmoid(f) = sigmoid(-f), no overflow.

    >>> sigmoid(np.array([0.0, 1e30]))
    array([0.5, 1. ])
    """
    small = np.exp(-np.abs(scores))
    return np.where(scores >= 0, 1 / (1 + small), small / (1 + small))
