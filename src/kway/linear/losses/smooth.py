"""Losses without kinks: those about probabilities, and least squares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway.linear.losses.loss import Loss, Targets
from kway.probabilities import sigmoid, softmax


@dataclass(frozen=True)
class Probabilities(Loss):
    """A loss of p = softmax(f) (joint) or p = sigmoid(f)."""

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """p (1 - p): that of the log loss, which also stands for the losses that are not convex (theirs turns < 0)."""
        p = softmax(scores) if self.joint else sigmoid(scores)
        return p * (1 - p)


@dataclass(frozen=True)
class Squared(Loss):
    """||target - f||^2."""

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """2 everywhere."""
        return np.full_like(scores, 2)
