"""Log loss, the same everywhere: the mean of -log p_y over rows, each p_y taken as at least 1e-6.

Without a floor one vote of no neighbour for the right class makes the mean infinite. 1e-6 costs 13.8 a row: a figure of
votes, of softmax and of calibrated probabilities can then be compared, and none hangs on a single rounding to 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_PROBABILITY = 1e-6


def log_losses(own: NDArray) -> NDArray:
    """-log p_y of each row, from the probability p_y of its right class, any shape."""
    return -np.log(np.maximum(own, LEAST_PROBABILITY))


def log_loss(own: NDArray) -> float:
    """Their mean over all rows (n,)."""
    return float(log_losses(own).mean())


def own_probability(p: NDArray, y: Any, classes: NDArray) -> NDArray[np.float64]:
    """p_y (n,) of probabilities p (n, K) over sorted classes (K,); 0 for a label that is not among them."""
    labels = np.asarray(y)
    place = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[place] == labels, p[np.arange(len(labels)), place], 0.0)
