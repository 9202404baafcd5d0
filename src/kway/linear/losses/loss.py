"""Losses: scores (m, R), targets (m,) or (m, R) -> value (m,), gradient (m, R). They never see X.

A loss has two forms. In its *columns* form every class is a binary problem with margin t = +-f (two classes, and
one-vs-all); in its *joint* form all classes compete in one problem:

    name               columns: phi(t)              joint, scores f, class y
    softmax, logistic  log(1 + exp(-t))             log sum_c exp(f_c) - f_y
    hinge              max(0, 1 - t)                sum_{c != y} max(0, 1 + f_c - f_y)   (Weston-Watkins)
    perceptron         max(0, -t)                   sum_{c != y} max(0, f_c - f_y)
    squared            (1 - t)^2                    ||Y - f||^2
    softmax-squared    2 sigma(-t)^2                ||Y - p||_2^2,  p = softmax(f)
    softmax-absolute   2 sigma(-t)                  ||Y - p||_1

The two agree on two classes with scores (0, f) where both are about probabilities or hinges. A loss whose gradient
jumps offers `smoothed(width)`, at most `lift(width, R)` below itself, for solvers that need smoothness.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels import losses as kernels

_NO_SOFT = np.empty((0, 0), np.float32)
OWN = -1  # the kind of a loss written in Python: no kernel knows it, solvers call its `value_gradient`


class Targets(NamedTuple):
    """Targets of a block of rows: codes (m,), and distributions (m, R) where they are soft."""

    codes: NDArray[np.int64]
    soft: NDArray | None = None


@dataclass(frozen=True)
class Loss:
    """One form of a loss; `kind` is its number in the kernels, OWN where a subclass gives `value_gradient` itself."""

    name: str
    kind: int
    joint: bool
    smooth: bool = True
    convex: bool = True
    probabilities: bool = False  # softmax or sigmoid of its scores are probabilities
    soft_targets: bool = True
    margin: float = 1.0
    width: float = 0.0  # over which a jump of the gradient is smoothed
    curvature: float = 1.0  # of one score at zero; joint softmax: over K

    @property
    def compiled(self) -> bool:
        """Whether the kernels that do not call back into Python can compute it."""
        return self.kind != OWN

    def value_gradient(
        self, scores: NDArray, targets: Targets, gradient: NDArray | None = None
    ) -> tuple[NDArray, NDArray]:
        """value (m,) float64 and gradient (m, R); `gradient` may be the scores' own array."""
        value = np.empty(len(scores))
        gradient = np.empty_like(scores) if gradient is None else gradient
        soft = _NO_SOFT.astype(scores.dtype) if targets.soft is None else targets.soft
        kernels.each_loss(
            self.kind, scores, targets.codes, soft, targets.soft is None, self.margin, self.width, value, gradient
        )
        return value, gradient

    def smoothed(self, width: float) -> Loss:
        """The same loss with its kink rounded over `width`: smooth, convex, and below by at most `lift`."""
        return replace(self, width=width, smooth=True, curvature=1.0 / width)

    def lift(self, width: float, n_scores: int) -> float:
        """Most by which the loss exceeds its smoothed form, a row."""
        return width / 2 * (n_scores - 1 if self.joint else n_scores)

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """Diagonal of the Hessian with respect to the scores (m, R), >= 0; what preconditioners weigh rows by."""
        if self.kind in (kernels.SOFTMAX, kernels.SOFTMAX_SQUARED, kernels.SOFTMAX_ABSOLUTE):
            p = softmax(scores)
            return p * (1 - p)
        if self.kind in (kernels.LOGISTIC, kernels.SIGMOID_SQUARED, kernels.SIGMOID_ABSOLUTE):
            p = sigmoid(scores)
            return p * (1 - p)
        if self.width > 0:
            return self._hinge_curvatures(scores, targets)
        return np.full_like(scores, self.curvature)

    def _hinge_curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        rows = np.arange(len(scores))
        if self.joint:
            gaps = self.margin + scores - scores[rows, targets.codes][:, None]  # (m, R)
        else:
            signs = -np.ones_like(scores)
            signs[rows, 0 if scores.shape[1] == 1 else targets.codes] = 1
            if scores.shape[1] == 1:
                signs[targets.codes == 0] = -1
            gaps = self.margin - signs * scores
        inside = ((gaps > 0) & (gaps < self.width)).astype(scores.dtype) / scores.dtype.type(self.width)
        if self.joint:
            inside[rows, targets.codes] = 0
            inside[rows, targets.codes] = inside.sum(axis=1)
        return inside


def softmax(scores: NDArray, temperature: float = 1.0) -> NDArray:
    """exp(f_c / T) / sum_j exp(f_j / T) a row; the largest score is taken off first, so none overflows.

    >>> softmax(np.array([[0.0, 1e30]]))
    array([[0., 1.]])
    """
    shifted = (scores - scores.max(axis=-1, keepdims=True)) / temperature
    np.exp(shifted, out=shifted)
    return shifted / shifted.sum(axis=-1, keepdims=True)


def sigmoid(scores: NDArray) -> NDArray:
    """1 / (1 + exp(-f)); 1 - sigmoid(f) = sigmoid(-f), no overflow.

    >>> sigmoid(np.array([0.0, 1e30]))
    array([0.5, 1. ])
    """
    small = np.exp(-np.abs(scores))
    return np.where(scores >= 0, 1 / (1 + small), small / (1 + small))


class Forms(NamedTuple):
    """A loss by its name: for binary problems and one-vs-all, and for all classes at once."""

    columns: Loss
    joint: Loss


_LOGISTIC = Loss("logistic", kernels.LOGISTIC, joint=False, probabilities=True, curvature=0.25)
_SOFTMAX = Loss("softmax", kernels.SOFTMAX, joint=True, probabilities=True)

LOSSES: dict[str, Forms] = {
    "softmax": Forms(_LOGISTIC, _SOFTMAX),
    "logistic": Forms(_LOGISTIC, _SOFTMAX),
    "hinge": Forms(
        Loss("hinge", kernels.HINGE, joint=False, smooth=False, soft_targets=False),
        Loss("joint hinge", kernels.MULTI_HINGE, joint=True, smooth=False, soft_targets=False),
    ),
    "perceptron": Forms(
        Loss("perceptron", kernels.PERCEPTRON, joint=False, smooth=False, soft_targets=False, margin=0.0),
        Loss("joint perceptron", kernels.MULTI_HINGE, joint=True, smooth=False, soft_targets=False, margin=0.0),
    ),
    "squared": Forms(
        Loss("squared", kernels.SQUARED, joint=False, curvature=2.0),
        Loss("squared one-hot", kernels.ONE_HOT, joint=True, curvature=2.0),
    ),
    "softmax-squared": Forms(
        Loss("sigmoid-squared", kernels.SIGMOID_SQUARED, joint=False, convex=False, probabilities=True, curvature=0.25),
        Loss("softmax-squared", kernels.SOFTMAX_SQUARED, joint=True, convex=False, probabilities=True),
    ),
    "softmax-absolute": Forms(
        Loss(
            "sigmoid-absolute", kernels.SIGMOID_ABSOLUTE, joint=False, convex=False, probabilities=True, curvature=0.25
        ),
        Loss("softmax-absolute", kernels.SOFTMAX_ABSOLUTE, joint=True, convex=False, probabilities=True),
    ),
}
