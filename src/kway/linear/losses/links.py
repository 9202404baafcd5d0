"""The link of one score: a probability, without overflow; that of several is kway.soft_max."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def sigmoid(scores: NDArray) -> NDArray:
    """1 / (1 + exp(-f)); 1 - sigmoid(f) = sigmoid(-f), no overflow.

    >>> sigmoid(np.array([0.0, 1e30]))
    array([0.5, 1. ])
    """
    small = np.exp(-np.abs(scores))
    return np.where(scores >= 0, 1 / (1 + small), small / (1 + small))
