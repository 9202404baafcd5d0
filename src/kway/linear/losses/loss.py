"""Loss: one form of a loss, and the facts about it that solvers rely on.

    value_gradient   scores (m, R), targets -> value (m,), slope in every score (m, R)
    curvatures       second derivative by every score (m, R)

Solvers ask for facts, never which loss it is. A fact that is not declared is not relied on: a loss written in Python
that says nothing beyond `smooth` is minimised rightly, if more slowly than one that says all that is true of it.
tests/contracts/test_losses.py holds every fact against the formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.rows.passes import Targets as Targets

_NO_SOFT = np.empty((0, 0), np.float32)
OWN = -1  # the kernel of a loss written in Python: there is none, solvers call its `value_gradient`
_STEP = 1e-4  # of the differences that stand for second derivatives


class Aims(NamedTuple):
    """The score that ||target - f||^2 asks of a row's own class, and of every other."""

    own: float
    other: float


@dataclass(frozen=True)
class Loss:
    """One form of a loss. A subclass gives `value_gradient`, or `kernel` names the kernel that does.

    joint : all classes in one problem, rather than a problem a column of scores
    smooth : the slope does not jump
    kernel : its number in kway.kernels.linear.loss_numbers; OWN where a subclass computes it
    convex : in the scores, and never negative
    shift_free : a shift common to all scores changes no value
    couples : a class's slope depends on the other classes' scores
    label_free_curvature : second derivatives depend on the scores alone, not on the label
    bend : most second derivative along any direction of the scores; None: estimated from the slopes where it is needed
    curvature : second derivative by one score at zero; None: taken from `curvatures`
    p_curvatures : `curvatures` are p (1 - p), p the softmax (joint) or sigmoid of the scores
    hessian_change : how much the logarithm of its Hessian changes, at most, by a change of 1 in a score, or in the
        difference of two where classes couple; None: unknown, so that no Newton step proves how far the minimum is
    hinge : max(0, margin - t) summed over columns or pairs, its kink rounded over `width`
    aims : where it is ||target - f||^2: the targets
    cross_entropy : -log of a softmax probability, whose Hessian is diag(p) - p p'
    probabilities : softmax (joint) or sigmoid of its scores are probabilities
    soft_targets : takes distributions for targets
    minimised_by_zero : no score beats a score of zero, so that only mistakes teach (perceptron)
    mistake : least value of a row whose class does not lead; None: unknown
    numbers : one score, fitted to the number 0..K-1 of the class
    """

    name: str
    joint: bool
    smooth: bool
    kernel: int = OWN
    convex: bool = False
    shift_free: bool = False
    couples: bool = True
    label_free_curvature: bool = False
    bend: float | None = None
    curvature: float | None = None
    p_curvatures: bool = False
    hessian_change: float | None = None
    hinge: bool = False
    margin: float = 1.0
    width: float = 0.0
    aims: Aims | None = None
    cross_entropy: bool = False
    probabilities: bool = False
    soft_targets: bool = False
    minimised_by_zero: bool = False
    mistake: float | None = None
    numbers: bool = False

    @property
    def compiled(self) -> bool:
        """Whether the kernels that do not call back into Python can compute it."""
        return self.kernel != OWN

    @property
    def rounded(self) -> bool:
        """Whether it is a hinge with its kink rounded, for good or on the way to the sharp one."""
        return self.width > 0

    @property
    def has_margin(self) -> bool:
        """Whether it is a hinge that asks for a margin, so that its solution has support vectors: no perceptron."""
        return self.hinge and not self.minimised_by_zero

    def value_gradient(
        self, scores: NDArray, targets: Targets, gradient: NDArray | None = None
    ) -> tuple[NDArray, NDArray]:
        """value (m,) float64 and gradient (m, R); `gradient` may be the scores' own array."""
        from kway.kernels.linear.losses import each_loss  # and with it numba, which no answer needs

        value = np.empty(len(scores))
        gradient = np.empty_like(scores) if gradient is None else gradient
        soft = _NO_SOFT.astype(scores.dtype) if targets.soft is None else targets.soft
        each_loss(
            self.kernel, scores, targets.codes, soft, targets.soft is None, self.margin, self.width, value, gradient
        )
        return value, gradient

    def curvatures(self, scores: NDArray, targets: Targets) -> NDArray:
        """Diagonal of the Hessian with respect to the scores (m, R), >= 0; what preconditioners weigh rows by.

        Here by differences of the slopes, two for each score: a subclass that knows the formula saves them.
        """
        found = np.empty_like(scores)
        for c in range(scores.shape[1]):
            along = np.zeros_like(scores, np.float64)
            along[:, c] = 1
            found[:, c] = np.maximum(self.bent(scores, targets, along)[:, c], 0)
        return found

    def bent(self, scores: NDArray, targets: Targets, along: NDArray) -> NDArray:
        """Each row's Hessian in the scores times a direction (m, R), by central differences in float64."""
        exact, step = scores.astype(np.float64), _STEP * along
        soft = targets._replace(soft=None if targets.soft is None else targets.soft.astype(np.float64))
        up, down = (self.value_gradient(exact + side * step, soft)[1] for side in (1, -1))
        return (up - down) / (2 * _STEP)

    def curvature_at_zero(self, n_scores: int) -> float:
        """Second derivative by one score where all are zero, the mean over classes.

        Where a shift is free, along scores of mean zero: the others then move by -1 / (R - 1), and softmax's
        (R - 1) / R^2 becomes 1 / R.
        """
        if self.curvature is not None:
            return self.curvature
        codes = np.arange(2 if self.label_free_curvature else max(2, n_scores))  # K x K would be too many
        diagonal = self.curvatures(np.zeros((len(codes), n_scores)), Targets(codes))
        return float(diagonal.mean()) * (n_scores / (n_scores - 1) if self.shift_free else 1.0)

    def smoothed(self, width: float) -> Loss:
        """The same loss with its kinks rounded over `width`: itself where it has none."""
        return self

    def lift(self, width: float, n_scores: int) -> float:
        """Most by which the loss exceeds its smoothed form, a row."""
        return 0.0
