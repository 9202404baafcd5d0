"""Hinges: max(0, g) of gaps g to the margin, and the same with its kink rounded over a width w.

    columns  g_c = margin - t_c, t = +-f       joint  g_c = margin + f_c - f_y for c != y   (Weston-Watkins)

    rounded  phi(g) = 0, g^2 / 2w, g - w/2     slope  clip(g / w, 0, 1)    for g <= 0, in between, g >= w

The rounded form is smooth, convex, and below by at most w / 2. Its kernel is `rounded_hinge` in
kernels/linear/losses.py.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses.loss import Loss, Targets

KINK = 4.0  # a rounded hinge bends over its width only: a step that changes gaps by a quarter of it may leave that


def own_scores(codes: NDArray[np.int64], n_scores: int) -> NDArray[np.bool_]:
    """Which scores (m, R) are those of the rows' own classes; the one score of two classes is the second's."""
    own: NDArray[np.bool_] = codes[:, None] == (1 if n_scores == 1 else np.arange(n_scores))
    return own


def gaps(loss: Loss, scores: NDArray, codes: NDArray[np.int64]) -> NDArray:
    """By how much each score misses the margin (m, R); in the joint form that of the row's own class means nothing."""
    if loss.joint:
        return loss.margin + scores - scores[np.arange(len(scores)), codes][:, None]
    return loss.margin - np.where(own_scores(codes, scores.shape[1]), scores, -scores)


def rounded_slope(gap: NDArray, width: float) -> NDArray:
    """phi'(g)."""
    return np.clip(gap / width, 0, 1)


def rounded_curvature(gap: NDArray, width: float) -> NDArray:
    """phi''(g): 1 / w inside the kink."""
    return ((gap > 0) & (gap < width)).astype(gap.dtype) / gap.dtype.type(width)


def centred_kink(loss: Loss, width: float) -> Loss:
    """The hinge rounded over gaps from -width / 2 to width / 2: above by at most width / 8."""
    return replace(loss, margin=loss.margin + width / 2).smoothed(width)


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, margin - t) summed over columns, or over the other classes in the joint form."""

    def smoothed(self, width: float) -> Hinge:
        """The same loss with its kinks rounded over gaps from 0 to `width`."""
        return replace(self, width=width, smooth=True, curvature=1.0 / width, hessian_change=KINK / width)

    def lift(self, width: float, n_scores: int) -> float:
        """Most by which the loss exceeds its smoothed form, a row."""
        return width / 2 * (n_scores - 1 if self.joint else n_scores)

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """Diagonal of the Hessian (m, R): the rounded gaps that a score is part of."""
        if not self.rounded:
            return np.ones_like(scores)
        rows = np.arange(len(scores))
        inside = rounded_curvature(gaps(self, scores, targets.codes), self.width)
        if self.joint:
            inside[rows, targets.codes] = 0
            inside[rows, targets.codes] = inside.sum(axis=1)
        return inside


@dataclass(frozen=True)
class RoundedHinge(Hinge):
    """A hinge whose kink is rounded for good: a smooth loss to every solver, and no machine of support vectors."""

    def smoothed(self, width: float) -> RoundedHinge:
        """Itself."""
        return self

    def lift(self, width: float, n_scores: int) -> float:
        """None."""
        return 0.0
