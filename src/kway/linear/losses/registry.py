"""Every loss by its name, in its two forms.

In its *columns* form every class is a binary problem with margin t = +-f (two classes, and one-vs-all); in its *joint*
form all classes compete in one problem:

    name               columns: phi(t)              joint, scores f, class y
    softmax, logistic  log(1 + exp(-t))             log sum_c exp(f_c) - f_y
    hinge              max(0, 1 - t)                sum_{c != y} max(0, 1 + f_c - f_y)   (Weston-Watkins)
    rounded-hinge      (1 - t)^2 / 4, -t: |t| < 1   the same of 1 + f_c - f_y  (a quarter of Zhang's modified Huber)
    perceptron         max(0, -t)                   sum_{c != y} max(0, f_c - f_y)
    squared            (1 - t)^2                    ||Y - f||^2
    softmax-squared    2 sigma(-t)^2                ||Y - p||_2^2,  p = softmax(f)
    softmax-absolute   2 sigma(-t)                  ||Y - p||_1

The two agree on two classes with scores (0, f) where both are about probabilities or hinges. The bend of a hinge is no
curvature: 1 is the size of its slopes, which sets the scale of steps just as well.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

from kway.kernels.linear import loss_numbers as kernels
from kway.linear.losses.hinge import KINK, Hinge, RoundedHinge
from kway.linear.losses.loss import Aims, Loss
from kway.linear.losses.smooth import Probabilities, Squared


class Forms(NamedTuple):
    """A loss by its name: for binary problems and one-vs-all, and for all classes at once."""

    columns: Loss
    joint: Loss


_COLUMNS: dict[str, Any] = {"joint": False, "couples": False}
_JOINT: dict[str, Any] = {"joint": True, "shift_free": True}
_PROBABILITIES: dict[str, Any] = {
    "smooth": True, "probabilities": True, "soft_targets": True, "label_free_curvature": True, "p_curvatures": True,
}  # fmt: skip
_LOG: dict[str, Any] = {**_PROBABILITIES, "convex": True, "hessian_change": 1.0, "mistake": math.log(2)}
_HINGE: dict[str, Any] = {"smooth": False, "convex": True, "hinge": True, "bend": 1.0}
# over gaps from 0 to 2, t from 1 to -1, which bends alike for either label. On 10,000 questions of 77 intents widths of
# 0.5, 1 and 2 are alike held out (0.904, 0.904, 0.903); the sharp hinge has 0.899 to 0.902, by how far it is solved
_ROUNDED: dict[str, Any] = {"smooth": True, "convex": True, "width": 2.0, "hessian_change": KINK / 2.0}
_PERCEPTRON: dict[str, Any] = {**_HINGE, "margin": 0.0, "minimised_by_zero": True}
_SQUARED: dict[str, Any] = {
    "smooth": True, "convex": True, "soft_targets": True, "label_free_curvature": True, "bend": 2.0, "couples": False,
    "hessian_change": 0.0,
}  # fmt: skip

_LOGISTIC = Probabilities("logistic", kernel=kernels.LOGISTIC, bend=0.25, **_COLUMNS, **_LOG)
_SOFTMAX = Probabilities("softmax", kernel=kernels.SOFTMAX, bend=0.5, cross_entropy=True, **_JOINT, **_LOG)

LOSSES: dict[str, Forms] = {
    "softmax": Forms(_LOGISTIC, _SOFTMAX),
    "logistic": Forms(_LOGISTIC, _SOFTMAX),
    "hinge": Forms(
        Hinge("hinge", kernel=kernels.HINGE, **_COLUMNS, **_HINGE),
        Hinge("joint hinge", kernel=kernels.MULTI_HINGE, **_JOINT, **_HINGE),
    ),
    "rounded-hinge": Forms(
        RoundedHinge(
            "rounded hinge", kernel=kernels.HINGE, bend=0.5, label_free_curvature=True, **_COLUMNS, **_ROUNDED
        ),
        RoundedHinge("joint rounded hinge", kernel=kernels.MULTI_HINGE, **_JOINT, **_ROUNDED),
    ),
    "perceptron": Forms(
        Hinge("perceptron", kernel=kernels.PERCEPTRON, **_COLUMNS, **_PERCEPTRON),
        Hinge("joint perceptron", kernel=kernels.MULTI_HINGE, **_JOINT, **_PERCEPTRON),
    ),
    "squared": Forms(
        Squared("squared", False, kernel=kernels.SQUARED, aims=Aims(own=1.0, other=-1.0), **_SQUARED),
        Squared("squared one-hot", True, kernel=kernels.ONE_HOT, aims=Aims(own=1.0, other=0.0), **_SQUARED),
    ),
    "softmax-squared": Forms(
        Probabilities("sigmoid-squared", kernel=kernels.SIGMOID_SQUARED, bend=1.0, **_COLUMNS, **_PROBABILITIES),
        Probabilities("softmax-squared", kernel=kernels.SOFTMAX_SQUARED, bend=1.0, **_JOINT, **_PROBABILITIES),
    ),
    "softmax-absolute": Forms(
        Probabilities("sigmoid-absolute", kernel=kernels.SIGMOID_ABSOLUTE, bend=1.0, **_COLUMNS, **_PROBABILITIES),
        Probabilities("softmax-absolute", kernel=kernels.SOFTMAX_ABSOLUTE, bend=1.0, **_JOINT, **_PROBABILITIES),
    ),
}

CLASS_NUMBER = replace(LOSSES["squared"].joint, name="squared class number", numbers=True)  # ||number - f||^2
