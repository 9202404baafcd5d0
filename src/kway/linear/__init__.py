"""Linear classifiers = loss x penalty x solver.

losses.py penalties.py objective.py            what is minimised
least_squares.py lbfgs.py proximal.py dual.py
gradient.py sgd.py (schedules.py)              how
solver.py solvers.py                           what a solver needs, and which is picked
classifier.py named.py answers.py              what people call
"""

from kway.linear.classifier import LinearClassifier
from kway.linear.named import (
    LeastSquaresClassifier,
    LogisticClassifier,
    PerceptronClassifier,
    SoftmaxClassifier,
    SVMClassifier,
)

__all__ = [
    "LeastSquaresClassifier",
    "LinearClassifier",
    "LogisticClassifier",
    "PerceptronClassifier",
    "SVMClassifier",
    "SoftmaxClassifier",
]
