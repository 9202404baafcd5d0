"""Losses of linear models: scores (m, R) and targets in, values (m,) and slopes (m, R) out. A loss never sees X.

m is a number of rows, R the number of scores per row (1 for two classes, else K), f_c the score of class c, y the class
of the row, Y its one-hot or soft target. Each loss has two forms. In its *columns* form each score is a binary problem
with margin t = f or t = -f (two classes, and one-vs-all). In its *joint* form all classes are in one problem:

    name               columns: phi(t)                        joint
    softmax, logistic  log(1 + exp(-t))                       log sum_c exp(f_c) - f_y
    hinge              max(0, 1 - t)                          sum_{c != y} max(0, 1 + f_c - f_y)  (Weston-Watkins)
    rounded-hinge      (1 - t)^2 / 4 if |t| < 1,              the same of t = f_y - f_c, summed over c != y
                       -t if t <= -1, 0 if t >= 1             (columns: a quarter of Zhang's modified Huber loss)
    perceptron         max(0, -t)                             sum_{c != y} max(0, f_c - f_y)
    squared            (1 - t)^2                              ||Y - f||^2
    softmax-squared    2 sigma(-t)^2                          ||Y - p||_2^2,  p = softmax(f)
    softmax-absolute   2 sigma(-t)                            ||Y - p||_1

`LOSSES` has both forms of every loss by name. The formulas over rows are kernels (kway.kernels.linear.losses). Solvers
never compare the name of a loss. They read its declared properties, the fields of `Loss`. The defaults of the fields
are the cautious ones, so that a loss written in Python that declares only `smooth` is minimized correctly, but more
slowly. A property that is declared but false can lead to a wrong optimum; tests/contracts/test_losses.py compares the
properties of all built-in losses with their values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.linear import loss_numbers as kernels
from kway.probabilities import sigmoid as sigmoid  # "as": other modules and losses of users import these from here
from kway.probabilities import softmax as softmax
from kway.rows.passes import Targets as Targets

_NO_SOFT = np.empty((0, 0), np.float32)
# Step size of central differences. Their error is about step^2 by truncation and eps / step by rounding. Both are equal
# at the cube root of eps.
_STEP = float(np.cbrt(np.finfo(np.float64).eps))


class TargetScores(NamedTuple):
    """The targets of ||target - f||^2: the score of the row's own class, and that of every other class."""

    own: float
    other: float


@dataclass(frozen=True)
class Loss:
    """One form of a loss. A subclass overrides `value_gradient`, or `kernel` names the kernel that computes it.

    Parameters
    ----------
    name : str
        Name in messages.
    joint : bool
        Whether all classes are in one problem; otherwise each column of scores is a problem of its own.
    smooth : bool
        Whether the slope is continuous.
    kernel : int
        Number in kway.kernels.linear.loss_numbers; -1 if a subclass computes the loss.
    convex : bool
        Whether the loss is convex in the scores and never negative.
    shift_free : bool
        Whether a shift common to all scores changes no value.
    couples : bool
        Whether the slope of a class depends on the scores of other classes.
    label_free_curvature : bool
        Whether the second derivatives depend on the scores alone, not on the label.
    max_curvature : float, optional
        Largest second derivative along any direction of the scores; estimated from the slopes if None. The sharp hinges
        declare the size of their slopes, because solvers only use the number as the scale of step sizes.
    curvature : float, optional
        Second derivative in one score at zero; computed from `curvatures` if None.
    p_curvatures : bool
        Whether `curvatures` are p (1 - p) with the softmax (joint) or sigmoid p of the scores.
    hessian_change : float, optional
        Largest change of the logarithm of the Hessian per change of 1 in a score, or in the difference of two scores
        if classes couple. If None, the Newton decrement bounds nothing.
    hinge : bool
        Whether the loss is max(0, margin - t), summed over columns or pairs, with its kink rounded over `width`.
    margin, width : float
        Margin and width of the rounded kink of a hinge; other losses ignore them.
    target_scores : TargetScores, optional
        The targets, if the loss is ||target - f||^2.
    cross_entropy : bool
        Whether the loss is -log of a softmax probability, so that its Hessian is diag(p) - p p'.
    probabilities : bool
        Whether the softmax (joint) or sigmoid of the scores are probabilities.
    soft_targets : bool
        Whether targets may be distributions.
    minimized_by_zero : bool
        Whether scores of zero have the smallest loss, so that only misclassified rows have a slope (perceptron).
    min_error_loss : float, optional
        Smallest loss of a misclassified row; None if unknown.
    class_number : bool
        Whether there is one score, fitted to the number 0..K-1 of the class.
    """

    name: str
    joint: bool
    smooth: bool
    kernel: int = -1
    convex: bool = False
    shift_free: bool = False
    couples: bool = True
    label_free_curvature: bool = False
    max_curvature: float | None = None
    curvature: float | None = None
    p_curvatures: bool = False
    hessian_change: float | None = None
    hinge: bool = False
    margin: float = 1.0
    width: float = 0.0
    target_scores: TargetScores | None = None
    cross_entropy: bool = False
    probabilities: bool = False
    soft_targets: bool = False
    minimized_by_zero: bool = False
    min_error_loss: float | None = None
    class_number: bool = False

    @property
    def compiled(self) -> bool:
        """Return whether a kernel computes the loss."""
        return self.kernel >= 0

    @property
    def rounded(self) -> bool:
        """Return whether the loss is a hinge with a rounded kink."""
        return self.width > 0

    @property
    def has_margin(self) -> bool:
        """Return whether the loss is a hinge with support vectors, unlike the perceptron, whose margin is zero."""
        return self.hinge and not self.minimized_by_zero

    def value_gradient(
        self, scores: NDArray, targets: Targets, gradient: NDArray | None = None
    ) -> tuple[NDArray, NDArray]:
        """Return values (m,) in float64 and slopes (m, R), written to `gradient`, which may be the scores' array."""
        from kway.kernels.linear.losses import each_loss  # loads numba, which no prediction needs

        value = np.empty(len(scores))
        gradient = np.empty_like(scores) if gradient is None else gradient
        soft = _NO_SOFT.astype(scores.dtype) if targets.soft is None else targets.soft
        each_loss(
            self.kernel, scores, targets.codes, soft, targets.soft is None, self.margin, self.width, value, gradient
        )
        return value, gradient

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """Return the diagonal of the Hessian in the scores (m, R), >= 0, by differences of the slopes.

        A subclass that knows the formula is faster. Preconditioners weight rows by these numbers.
        """
        curvatures = np.empty_like(scores)
        for c in range(scores.shape[1]):
            direction = np.zeros_like(scores, np.float64)
            direction[:, c] = 1
            curvatures[:, c] = np.maximum(self.hessian_product(scores, targets, direction)[:, c], 0)
        return curvatures

    def hessian_product(self, scores: NDArray, targets: Targets, direction: NDArray) -> NDArray:
        """Return each row's Hessian in the scores times a direction (m, R), by central differences in float64."""
        center, step = scores.astype(np.float64), _STEP * direction
        soft = None if targets.soft is None else targets.soft.astype(np.float64)
        _, above = self.value_gradient(center + step, targets._replace(soft=soft))
        _, below = self.value_gradient(center - step, targets._replace(soft=soft))
        return (above - below) / (2 * _STEP)

    def curvature_at_zero(self, n_scores: int) -> float:
        """Return the second derivative in one score if all scores are zero, averaged over the classes.

        If a shift of all scores changes no loss, it is the second derivative per squared length along the change of one
        score by 1 and of the others by -1 / (R - 1), which has mean zero. For softmax, it is 1 / R instead of
        (R - 1) / R^2.
        """
        if self.curvature is not None:
            return self.curvature
        if self.p_curvatures:
            p = 1 / n_scores if self.joint else 0.5
            return p * (1 - p) * (n_scores / (n_scores - 1) if self.shift_free else 1.0)
        codes = np.arange(2 if self.label_free_curvature else max(2, n_scores))  # one row per class that matters
        diagonal = self.curvatures(np.zeros((len(codes), n_scores)), Targets(codes))
        return float(diagonal.mean()) * (n_scores / (n_scores - 1) if self.shift_free else 1.0)

    def smoothed(self, width: float) -> Loss:
        """Return the loss with its kinks rounded over `width`, or the loss itself if it has no kinks."""
        return self


@dataclass(frozen=True)
class Probabilities(Loss):
    """A loss of p = softmax(f) (joint) or p = sigmoid(f)."""

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """Return p (1 - p), also for losses that are not convex, whose second derivative can be negative."""
        p = softmax(scores) if self.joint else sigmoid(scores)
        return p * (1 - p)


@dataclass(frozen=True)
class Squared(Loss):
    """||target - f||^2."""

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """Return 2 everywhere."""
        return np.full_like(scores, 2)


# ---------------------------------------------------------------- hinges


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, g) of the gaps g to the margin, summed over columns, or over the other classes in the joint form.

        columns   g_c = margin - t_c
        joint     g_c = margin + f_c - f_y for c != y   (Weston-Watkins)
        rounded   phi(g) = 0 if g <= 0, g^2 / 2w if 0 < g < w, g - w/2 if g >= w;   phi'(g) = clip(g / w, 0, 1)

    The rounded form is smooth and convex. It is at most w / 2 smaller than max(0, g).
    """

    def smoothed(self, width: float) -> Hinge:
        """Return the loss with its kinks rounded over gaps from 0 to `width`."""
        return replace(self, width=width, smooth=True, curvature=1.0 / width)

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """Return the diagonal of the Hessian (m, R): 1 / width for each gap inside its kink."""
        if not self.rounded:
            return np.ones_like(scores)
        rows, gap = np.arange(len(scores)), gaps(self, scores, targets.codes)
        inside = ((gap > 0) & (gap < self.width)).astype(gap.dtype) / gap.dtype.type(self.width)
        if self.joint:
            inside[rows, targets.codes] = 0
            inside[rows, targets.codes] = inside.sum(axis=1)
        return inside


@dataclass(frozen=True)
class RoundedHinge(Hinge):
    """A hinge whose kink stays rounded: a smooth loss to every solver, without support vectors."""

    def smoothed(self, width: float) -> RoundedHinge:
        """Return the loss itself."""
        return self


def gaps(loss: Loss, scores: NDArray, codes: NDArray[np.int64]) -> NDArray:
    """Return the gap of each score to the margin (m, R); joint rows have no gap in the entry of their own class."""
    if loss.joint:
        return loss.margin + scores - scores[np.arange(len(scores)), codes][:, None]
    own = codes[:, None] == (1 if scores.shape[1] == 1 else np.arange(scores.shape[1]))
    return loss.margin - np.where(own, scores, -scores)


def centered_kink(loss: Loss, width: float) -> Loss:
    """Return the hinge rounded over gaps from -width / 2 to width / 2, which is at most width / 8 larger."""
    return replace(loss, margin=loss.margin + width / 2).smoothed(width)


# ---------------------------------------------------------------- all losses by name


class Forms(NamedTuple):
    """The two forms of a loss: for binary problems and one-vs-all, and for all classes at once."""

    columns: Loss
    joint: Loss


_COLUMNS: dict[str, Any] = {"joint": False, "couples": False}
_JOINT: dict[str, Any] = {"joint": True, "shift_free": True}

_probabilities = partial(
    Probabilities, smooth=True, probabilities=True, soft_targets=True, label_free_curvature=True, p_curvatures=True
)
_log_loss = partial(_probabilities, convex=True, hessian_change=1.0, min_error_loss=math.log(2))
_hinge = partial(Hinge, smooth=False, convex=True, hinge=True, max_curvature=1.0)
_perceptron = partial(_hinge, margin=0.0, minimized_by_zero=True)
# The kink of width 2 covers t from 1 to -1, so that the curvature is the same for both labels. Widths of 0.5, 1 and 2
# are equally accurate on held-out rows of Banking77.
_rounded_hinge = partial(RoundedHinge, smooth=True, convex=True, width=2.0)
_squared = partial(
    Squared, smooth=True, convex=True, soft_targets=True, label_free_curvature=True, max_curvature=2.0, couples=False,
    hessian_change=0.0,
)  # fmt: skip

_LOGISTIC = _log_loss("logistic", kernel=kernels.LOGISTIC, max_curvature=0.25, **_COLUMNS)
_SOFTMAX = _log_loss("softmax", kernel=kernels.SOFTMAX, max_curvature=0.5, cross_entropy=True, **_JOINT)

LOSSES: dict[str, Forms] = {
    "softmax": Forms(_LOGISTIC, _SOFTMAX),
    "logistic": Forms(_LOGISTIC, _SOFTMAX),
    "hinge": Forms(
        _hinge("hinge", kernel=kernels.HINGE, **_COLUMNS),
        _hinge("joint hinge", kernel=kernels.MULTI_HINGE, **_JOINT),
    ),
    "rounded-hinge": Forms(
        _rounded_hinge("rounded hinge", kernel=kernels.HINGE, max_curvature=0.5, label_free_curvature=True, **_COLUMNS),
        _rounded_hinge("joint rounded hinge", kernel=kernels.MULTI_HINGE, **_JOINT),
    ),
    "perceptron": Forms(
        _perceptron("perceptron", kernel=kernels.PERCEPTRON, **_COLUMNS),
        _perceptron("joint perceptron", kernel=kernels.MULTI_HINGE, **_JOINT),
    ),
    "squared": Forms(
        _squared("squared", joint=False, kernel=kernels.SQUARED, target_scores=TargetScores(own=1.0, other=-1.0)),
        _squared("squared one-hot", joint=True, kernel=kernels.ONE_HOT, target_scores=TargetScores(own=1.0, other=0.0)),
    ),
    "softmax-squared": Forms(
        _probabilities("sigmoid-squared", kernel=kernels.SIGMOID_SQUARED, max_curvature=1.0, **_COLUMNS),
        _probabilities("softmax-squared", kernel=kernels.SOFTMAX_SQUARED, max_curvature=1.0, **_JOINT),
    ),
    "softmax-absolute": Forms(
        _probabilities("sigmoid-absolute", kernel=kernels.SIGMOID_ABSOLUTE, max_curvature=1.0, **_COLUMNS),
        _probabilities("softmax-absolute", kernel=kernels.SOFTMAX_ABSOLUTE, max_curvature=1.0, **_JOINT),
    ),
}

CLASS_NUMBER = replace(LOSSES["squared"].joint, name="squared class number", class_number=True)  # ||number - f||^2
