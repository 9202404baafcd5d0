"""Scores in which every class counts the same, however few rows it has.

    balanced   mean over classes of hits_c / rows_c
    macro F1   mean over classes of 2 hits_c / (rows_c + claims_c)

The classes are those that the rows show: one without a row has no recall.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class ClassScores(NamedTuple):
    """Balanced accuracy and macro F1 of each column of answers (m,)."""

    balanced: NDArray[np.float64]
    macro_f1: NDArray[np.float64]


def class_scores(codes: NDArray[np.int64], predicted: NDArray[np.int64]) -> ClassScores:
    """Of answers predicted (n, m) to rows of classes codes (n,).

    >>> [v.round(3).tolist() for v in class_scores(np.array([0, 0, 0, 1]), np.array([[0], [0], [1], [1]]))]
    [[0.833], [0.733]]
    """
    width = max(int(codes.max(initial=0)), int(predicted.max(initial=0))) + 1
    rows = np.bincount(codes, minlength=width)
    shown = rows > 0
    out = np.empty((2, predicted.shape[1]))
    for j in range(predicted.shape[1]):
        answers = predicted[:, j]
        hits = np.bincount(codes[answers == codes], minlength=width)[shown]
        claims = np.bincount(answers, minlength=width)[shown]
        out[:, j] = (hits / rows[shown]).mean(), (2 * hits / (rows[shown] + claims)).mean()
    return ClassScores(*out)
