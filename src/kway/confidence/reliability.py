"""Reliability diagrams and the expected calibration error (ECE) of probabilities.

Rows are put into bins by their confidence, the largest probability of the row. Bins have equal width and contain their
right edge.

    reliability      for each bin: mean confidence, accuracy, number of rows
    ECE              sum over bins of rows / n * |accuracy - mean confidence|
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.errors import InputError
from kway.labels import encode_as
from kway.parameters import whole


class Reliability(NamedTuple):
    """Data of a reliability diagram.

    Parameters
    ----------
    edges : ndarray of shape (bins + 1,)
        Edges of the bins.
    confidence : ndarray of shape (bins,)
        Mean confidence of the rows of each bin; NaN in empty bins.
    accuracy : ndarray of shape (bins,)
        Share of correct predictions in each bin; NaN in empty bins.
    rows : ndarray of shape (bins,), int64
        Number of rows in each bin.
    """

    edges: NDArray[np.float64]
    confidence: NDArray[np.float64]
    accuracy: NDArray[np.float64]
    rows: NDArray[np.int64]

    @property
    def error(self) -> float:
        """Expected calibration error."""
        filled = self.rows > 0
        gap = np.abs(self.accuracy[filled] - self.confidence[filled])
        return float(self.rows[filled] @ gap / max(1, self.rows.sum()))


def reliability(y: ArrayLike, proba: ArrayLike, bins: int = 15, classes: ArrayLike | None = None) -> Reliability:
    """Return the data of a reliability diagram: confidence against accuracy.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        True labels: column indices 0..K-1, or labels in which every class occurs. Otherwise pass `classes`.
    proba : array-like of shape (n_samples, n_classes)
        Probabilities.
    bins : int, default=15
        Number of bins of equal width.
    classes : array-like of shape (n_classes,), default=None
        Labels of the columns.

    Returns
    -------
    reliability : Reliability
        One entry per bin.

    Examples
    --------
    >>> reliability([0, 0, 1, 1], [[0.9, 0.1]] * 4, bins=2).accuracy
    array([nan, 0.5])
    """
    p = np.asarray(proba)
    if p.ndim != 2:
        raise InputError(f"proba must be probabilities of shape (rows, classes), got shape {p.shape}")
    correct = p.argmax(axis=1) == _codes(y, p.shape[1], classes)
    return reliability_of(p.max(axis=1), correct, bins)


def expected_calibration_error(
    y: ArrayLike, proba: ArrayLike, bins: int = 15, classes: ArrayLike | None = None
) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy over bins.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        True labels: column indices 0..K-1, or labels in which every class occurs. Otherwise pass `classes`.
    proba : array-like of shape (n_samples, n_classes)
        Probabilities.
    bins : int, default=15
        Number of bins of equal width.
    classes : array-like of shape (n_classes,), default=None
        Labels of the columns.

    Returns
    -------
    error : float
        Between 0 and 1.

    References
    ----------
    Naeini, Cooper and Hauskrecht (2015), "Obtaining well calibrated probabilities using Bayesian binning", AAAI.

    Examples
    --------
    >>> round(expected_calibration_error([0, 0, 1, 1], [[0.9, 0.1]] * 4), 3)
    0.4
    """
    return reliability(y, proba, bins, classes).error


def reliability_of(
    confidence: NDArray, correct: NDArray[np.bool_], bins: int = 15, weights: NDArray | None = None
) -> Reliability:
    """Return a reliability diagram from the confidence (n,) of predictions and whether they are correct (n,).

    With `weights` (n,), `rows` is the sum of the weights of the rows of each bin.
    """
    whole(1).check("bins", bins)
    edges = np.linspace(0.0, 1.0, int(bins) + 1)
    right_edge = np.ceil(np.asarray(confidence, np.float64) * bins).astype(np.int64)
    bin_index = np.clip(right_edge - 1, 0, bins - 1)
    rows = np.bincount(bin_index, weights, bins)
    share = 1.0 if weights is None else weights
    with np.errstate(invalid="ignore"):
        mean = np.bincount(bin_index, share * confidence, bins) / rows
        accuracy = np.bincount(bin_index, share * correct.astype(np.float64), bins) / rows
    return Reliability(edges, mean, accuracy, rows)


def _codes(y: ArrayLike, n_classes: int, classes: ArrayLike | None) -> NDArray[np.int64]:
    """Return the column index of each label (n,)."""
    labels: Any = np.asarray(y)
    if classes is not None:
        return encode_as(labels, np.asarray(classes))
    if labels.dtype.kind in "iub" and labels.size and labels.min() >= 0 and labels.max() < n_classes:
        return labels.astype(np.int64)
    present, codes = np.unique(labels, return_inverse=True)
    if len(present) != n_classes:
        raise InputError(
            f"y contains {len(present)} classes, proba has {n_classes} columns; pass classes=, "
            "the labels of the columns"
        )
    return codes
