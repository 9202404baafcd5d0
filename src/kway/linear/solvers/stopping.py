"""When a minimisation may end: what `tol` is relative to, and classes so well apart that there is no optimum.

    (F(theta) - F*) / tol_scale(F) <= tol,   tol_scale(F) = max(|F|, least)

`least` keeps tol from asking for the rounding of an objective of which hardly anything is left. A proof by Newton's
method takes a millionth of the objective at zero for it (`least_of`), a walk over many alphas, which compares them on
rows held out, far more (Control.least), and a descent that ends on an estimate none, which asks for more than it need.
"""

from __future__ import annotations

from kway.linear.objective.objective import Objective

LEAST_FALL = 1e-6  # of the objective at zero
SEPARABLE = "the classes are separable and there is no penalty, so the weights grow for ever; set alpha > 0"
BLEW_UP = "lower learning_rate: the steps blew up"
WIDE_GAP = "raise max_iter or alpha, or scale the features to a common range"
_TINY = 1e-300  # an objective of 0 has no relative excess


def tol_scale(value: float, least: float = 0.0) -> float:
    """What tol is relative to where the objective is `value`: no less than `least`, and never 0."""
    return max(abs(value), least, _TINY)


def least_of(objective: Objective) -> float:
    """A millionth of the objective at zero."""
    return LEAST_FALL * objective.value(objective.zeros())


def separated(objective: Objective, value: float) -> bool:
    """Whether the rows' losses together are under one mistake's, without a penalty: each row is then on its right side,
    a larger theta is a better one, and no optimum exists."""
    o = objective
    if o.penalty.ridge or o.penalty.lasso or o.targets.soft is not None or o.loss.mistake is None:
        return False
    least = 1.0 if o.weight is None else float(o.weight[o.weight > 0].min())
    return value * o.n < least * o.loss.mistake
