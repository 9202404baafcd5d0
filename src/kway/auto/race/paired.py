"""Paired tests: is one classifier better than another on the same validation rows?

    d_i = a_i - b_i                            difference of a measure on row i: right or not, or minus the log loss
    m   = mean_i d_i
    se  = sqrt(sum_i (d_i - m)^2 + r^2) / n    r = max_i |d_i|

Rows that both classifiers predict alike cancel, so a paired test needs far fewer rows than two separate scores. r^2
counts one more row at the largest difference seen: without it a difference that rests on a handful of rows would look
certain. Under equal classifiers m / se is nearly normal. A family is excluded if m > 3 se + room, which happens to an
equal family in at most 0.135% of the tests (`tests/auto/test_paired.py` draws them).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SURE = 3.0  # standard errors beyond which a difference counts as certain: a family leaves the race
CLEAR = 2.0  # standard errors beyond which a difference is not taken for luck when the winner is chosen


class Difference(NamedTuple):
    """Mean of the paired differences, and its standard error."""

    mean: float
    error: float

    def exceeds(self, room: float = 0.0, errors: float = SURE) -> bool:
        """Return whether the mean is above `room` by more than so many standard errors."""
        return self.mean - errors * self.error > room


def paired_difference(first: NDArray, second: NDArray) -> Difference:
    """Return the difference between the measures (n,) of two classifiers on the same rows; above 0 the first is better.

    >>> paired_difference(np.array([1.0, 1, 1, 0]), np.array([1.0, 0, 1, 0])).mean
    0.25
    """
    gaps = np.asarray(first, np.float64) - second
    spread = float(np.square(gaps - gaps.mean()).sum() + np.square(gaps).max(initial=0.0))
    return Difference(float(gaps.mean()), float(np.sqrt(spread)) / len(gaps))
