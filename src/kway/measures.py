"""Measures of predictions: log loss, balanced accuracy and macro F1.

    log loss            mean over rows of -log max(p_y, 1e-6)
    balanced accuracy   mean over classes of hits_c / rows_c
    macro F1            mean over classes of 2 hits_c / (rows_c + predicted_c)

rows_c are the rows of class c, predicted_c the rows that are predicted as c, and hits_c those in both. Classes without
rows are left out.

If no neighbor votes for the correct class, its probability is 0, and a single such row would make the mean log loss
infinite. With the floor of 1e-6 it costs 13.8, so that votes, softmax and calibrated probabilities can be compared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

MIN_PROBABILITY = 1e-6  # smallest probability of the correct class in a log loss (see above)


def log_losses(own: NDArray) -> NDArray:
    """Return -log max(p_y, 1e-6) from the probabilities p_y of the correct classes, of any shape."""
    return -np.log(np.maximum(own, MIN_PROBABILITY))


def log_loss(own: NDArray) -> float:
    """Return the mean of `log_losses` over all rows (n,)."""
    return float(log_losses(own).mean())


def own_probability(p: NDArray, y: Any, classes: NDArray) -> NDArray[np.float64]:
    """Return p_y (n,) from probabilities p (n, K) over sorted classes (K,); 0 for an unknown label."""
    labels = np.asarray(y)
    place = np.minimum(np.searchsorted(classes, labels), len(classes) - 1)
    return np.where(classes[place] == labels, p[np.arange(len(labels)), place], 0.0)


class ClassScores(NamedTuple):
    """Balanced accuracy and macro F1 of m predictions, (m,) each; every class has the same weight."""

    balanced: NDArray[np.float64]
    macro_f1: NDArray[np.float64]


def class_scores(codes: NDArray[np.int64], predicted: NDArray[np.int64], weights: NDArray | None = None) -> ClassScores:
    """Return the scores of m predictions (n, m) for rows with codes (n,) and weights (n,), by default equal ones.

    >>> [v.round(3).tolist() for v in class_scores(np.array([0, 0, 0, 1]), np.array([[0], [0], [1], [1]]))]
    [[0.833], [0.733]]
    """
    width = max(int(codes.max(initial=0)), int(predicted.max(initial=0))) + 1
    rows = np.bincount(codes, weights, width)
    shown = rows > 0
    out = np.empty((2, predicted.shape[1]))
    for j in range(predicted.shape[1]):
        answer = predicted[:, j]
        hit = answer == codes
        hits = np.bincount(codes[hit], None if weights is None else weights[hit], width)[shown]
        predicted_rows = np.bincount(answer, weights, width)[shown]
        out[:, j] = (hits / rows[shown]).mean(), (2 * hits / (rows[shown] + predicted_rows)).mean()
    return ClassScores(*out)
