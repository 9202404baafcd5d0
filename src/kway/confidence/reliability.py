"""How far stated probabilities are from what happens.

rows are put into bins by their confidence (the largest probability of the row)
reliability      in each bin: mean confidence, share of right answers, rows
ECE              sum over bins of rows / n * |share right - mean confidence|
log loss         mean of -log p_y
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.labels import encode_as
from kway.parameters import whole


class Reliability(NamedTuple):
    """Data of a reliability diagram: edges (b + 1,); confidence, accuracy and rows (b,), NaN in empty bins."""

    edges: NDArray[np.float64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    rows: NDArray[np.int64]

    @property
    def error(self) -> float:
        """The expected calibration error."""
        some = self.rows > 0
        gap = np.abs(self.accuracy[some] - self.confidence[some])
        return float(self.rows[some] @ gap / max(1, self.rows.sum()))


def reliability(y: ArrayLike, proba: ArrayLike, bins: int = 15, classes: ArrayLike | None = None) -> Reliability:
    """Confidence against accuracy of probabilities (n, K); `classes` (K,) name the columns.

    Without `classes`, y are column numbers 0..K-1 or labels that show every class.
    """
    table = np.asarray(proba)
    if table.ndim != 2:
        raise InputError(f"proba must be probabilities of shape (rows, classes), got shape {table.shape}")
    right = table.argmax(axis=1) == _codes(y, table.shape[1], classes)
    return reliability_of(table.max(axis=1), right, bins)


def expected_calibration_error(
    y: ArrayLike, proba: ArrayLike, bins: int = 15, classes: ArrayLike | None = None
) -> float:
    """Mean gap between confidence and accuracy over equal-width bins; arguments as in `reliability`.

    >>> round(expected_calibration_error([0, 0, 1, 1], [[0.9, 0.1]] * 4), 3)
    0.4
    """
    return reliability(y, proba, bins, classes).error


def reliability_of(confidence: NDArray, right: NDArray[np.bool_], bins: int = 15) -> Reliability:
    """The same from the confidence (n,) of each answer and whether it was right (n,)."""
    whole(1).check("bins", bins)
    edges = np.linspace(0.0, 1.0, int(bins) + 1)
    place = np.clip(np.ceil(np.asarray(confidence, np.float64) * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, confidence, minlength=bins) / count
        accuracy = np.bincount(place, right.astype(np.float64), minlength=bins) / count
    return Reliability(edges, mean, accuracy, count)


def _codes(y: ArrayLike, n_classes: int, classes: ArrayLike | None) -> NDArray[np.int64]:
    """Column of each label."""
    labels: Any = np.asarray(y)
    if classes is not None:
        return encode_as(labels, np.asarray(classes))
    if labels.dtype.kind in "iub" and labels.size and labels.min() >= 0 and labels.max() < n_classes:
        return labels.astype(np.int64)
    shown, codes = np.unique(labels, return_inverse=True)
    if len(shown) != n_classes:
        raise InputError(
            f"y shows {len(shown)} classes, proba has {n_classes} columns; pass classes=, the labels of the columns"
        )
    return codes
