"""Kinks rounded by hyperbolas, and the dual variables through which Newton's method sees them.

    |t| -> root = sqrt(t^2 + e^2), slope t / root            max(0, g) -> (g + root) / 2, slope (1 + g / root) / 2

The second derivative e^2 / root^3 is right at a point and useless a step away from it: as e shrinks, Newton's steps
shrink with it. With a dual variable u in [-1, 1] that stands for t / root, the equation u root = t is linearised
instead (Chan, Golub and Mulet 1999): curvature (1 - u t / root) / root, and u moves along with t. A few steps then
follow e down by any factor, as in an interior point method.

1 - u t / root is at least 1 - |t| / root >= (e / root)^2 / 2: less comes of cancellation, and a curvature of zero would
prove that nothing is left to gain.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kway.linear.solvers.standard_columns import Floats


class Round(NamedTuple):
    """A rounded |t|: root, slope and the curvature that a dual variable sees; all of t's shape."""

    root: Floats
    slope: Floats
    bend: Floats


def rounded(t: Floats, e: Floats | float, dual: Floats) -> Round:
    """|t| rounded over e."""
    root = np.sqrt(t * t + e * e)
    slope = t / root
    return Round(root, slope, np.maximum(1 - dual * slope, np.square(e / root) / 2) / root)


def followed(dual: Floats, t: Floats, by: Floats, e: Floats | float) -> Floats:
    """The dual variables after t has moved by so much."""
    here = rounded(t, e, dual)
    return np.clip(here.slope + here.bend * by, -1, 1)
