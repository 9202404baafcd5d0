"""Reliability diagrams and the expected calibration error (ECE) of probabilities.

Rows are put into bins by their confidence, the largest probability of the row.

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
        some = self.rows > 0
        gap = np.abs(self.accuracy[some] - self.confidence[some])
        return float(self.rows[some] @ gap / max(1, self.rows.sum()))


def reliability(y: ArrayLike, proba: ArrayLike, bins: int = 15, classes: ArrayLike | None = None) -> Reliability:
    """Return the data of a reliability diagram: confidence against accuracy.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        True labels. Without `classes` these are column numbers 0..K-1, or labels among which every class occurs.
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
    table = np.asarray(proba)
    if table.ndim != 2:
        raise InputError(f"proba must be probabilities of shape (rows, classes), got shape {table.shape}")
    right = table.argmax(axis=1) == _codes(y, table.shape[1], classes)
    return reliability_of(table.max(axis=1), right, bins)


def expected_calibration_error(
    y: ArrayLike, proba: ArrayLike, bins: int = 15, classes: ArrayLike | None = None
) -> float:
    """Return the expected calibration error: the mean gap between confidence and accuracy over bins.

    Parameters
    ----------
    y : array-like of shape (n_samples,)
        True labels. Without `classes` these are column numbers 0..K-1, or labels among which every class occurs.
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


def reliability_of(confidence: NDArray, right: NDArray[np.bool_], bins: int = 15) -> Reliability:
    """Return the same from the confidence (n,) of each prediction and whether it was correct (n,)."""
    whole(1).check("bins", bins)
    edges = np.linspace(0.0, 1.0, int(bins) + 1)
    place = np.clip(np.ceil(np.asarray(confidence, np.float64) * bins).astype(np.int64) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(place, confidence, minlength=bins) / count
        accuracy = np.bincount(place, right.astype(np.float64), minlength=bins) / count
    return Reliability(edges, mean, accuracy, count)


def _codes(y: ArrayLike, n_classes: int, classes: ArrayLike | None) -> NDArray[np.int64]:
    """Return the column of each label."""
    labels: Any = np.asarray(y)
    if classes is not None:
        return encode_as(labels, np.asarray(classes))
    if labels.dtype.kind in "iub" and labels.size and labels.min() >= 0 and labels.max() < n_classes:
        return labels.astype(np.int64)
    shown, codes = np.unique(labels, return_inverse=True)
    if len(shown) != n_classes:
        raise InputError(
            f"y contains {len(shown)} classes, proba has {n_classes} columns; pass classes=, the labels of the columns"
        )
    return codes
