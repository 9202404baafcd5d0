"""Losses: what a row's scores cost. Scores (m, R), targets in; value (m,), slopes (m, R) out. They never see X.

loss.py       Loss: the facts a loss declares, which is all that a solver asks about it; Targets
hinge.py      Hinge: max(0, gap) and the same with its kink rounded
smooth.py     Probabilities (softmax, logistic, ...) and Squared: the losses that need no rounding
registry.py   LOSSES: every loss by its name, in its two forms (Forms)

The formulas that run over rows are kernels (kway.kernels.linear.losses and hinge).
"""

from kway.linear.losses.hinge import Hinge
from kway.linear.losses.loss import OWN, Aims, Loss, Targets
from kway.linear.losses.registry import CLASS_NUMBER, LOSSES, Forms
from kway.probabilities import sigmoid, softmax

__all__ = ["CLASS_NUMBER", "LOSSES", "OWN", "Aims", "Forms", "Hinge", "Loss", "Targets", "sigmoid", "softmax"]
