"""Paired tests: is one classifier better than another on the same validation rows?

    d_i = a_i - b_i                            difference of a measure on row i: 1 if correct else 0, or minus log loss
    m   = mean_i d_i
    se  = sqrt(sum_i (d_i - m)^2 + r^2) / n    r = max_i |d_i|

If rows have weights w_i, the measure of row i is multiplied by w_i / mean(w), so that m is the weighted mean.

Rows on which both classifiers agree contribute nothing, so a paired test needs far fewer rows than two separate scores.
r^2 adds one row with the largest observed difference. Without it, a difference that rests on a handful of rows would
have a standard error close to zero. For equally good classifiers, m / se is nearly normal. So m > 3 se holds in at most
0.135% of the tests (`tests/auto/test_paired.py` simulates them).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SURE = 3.0  # standard errors that a family must be behind before it leaves the race
CLEAR = 2.0  # standard errors beyond which a difference is significant when the winner is chosen


class Difference(NamedTuple):
    """Mean of the paired differences, and its standard error."""

    mean: float
    error: float

    def exceeds(self, threshold: float = 0.0, errors: float = SURE) -> bool:
        """Return whether the mean is above a threshold by more than this number of standard errors."""
        return self.mean - errors * self.error > threshold


def paired_difference(first: NDArray, second: NDArray) -> Difference:
    """Return the difference between the measures (n,) of two classifiers on the same rows.

    A positive mean says that the first classifier is better.

    >>> paired_difference(np.array([1.0, 1, 1, 0]), np.array([1.0, 0, 1, 0])).mean
    0.25
    """
    d = np.asarray(first, np.float64) - second
    squares = float(np.square(d - d.mean()).sum() + np.square(d).max(initial=0.0))
    return Difference(float(d.mean()), float(np.sqrt(squares)) / len(d))
