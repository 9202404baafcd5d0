"""Linear classifiers = loss x penalty x solver: minimise alpha R(W) + mean_i loss(f_i, y_i), f = X W^T + b.

losses/        loss(f, y): what a row's scores cost, and what a loss declares about itself
penalties.py   R(W): none, L2, L1, elastic net
objective/     the whole sum over the rows, its value and gradient, dense or sparse
solvers/       how it is minimised: one file a solver, what each needs, and which is picked
path.py        every alpha on every fold, with shared work
problem.py     from parameters, labels and weights to an Objective
placing.py     whose memory a problem lives in: this machine's, a GPU's, or that of a cluster, by rows or by classes
fit_ways.py    what the plan counts a fit as
from_folder.py rows that lie in a folder and are read by a cluster
from_files.py  rows that stay in files and are read here, some at a time
on_device.py   answers on a GPU: tensors in, tensors out
classifier.py  LinearClassifier: its answers; named.py its named forms, answers.py scores to answers
fitting.py     how it learns: all that a fit needs and no answer does
naive_bayes.py a linear classifier from counts, in one pass
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "LeastSquaresClassifier": "named",
    "LinearClassifier": "classifier",
    "LogisticClassifier": "named",
    "NaiveBayesClassifier": "naive_bayes",
    "PerceptronClassifier": "named",
    "SVMClassifier": "named",
    "SoftmaxClassifier": "named",
}

__all__ = [
    "LeastSquaresClassifier",
    "LinearClassifier",
    "LogisticClassifier",
    "NaiveBayesClassifier",
    "PerceptronClassifier",
    "SVMClassifier",
    "SoftmaxClassifier",
]

if TYPE_CHECKING:
    from kway.linear.classifier import LinearClassifier
    from kway.linear.naive_bayes import NaiveBayesClassifier
    from kway.linear.named import (
        LeastSquaresClassifier,
        LogisticClassifier,
        PerceptronClassifier,
        SoftmaxClassifier,
        SVMClassifier,
    )

__getattr__, __dir__ = lazy_names(__name__, _HOME)  # who holds rows on a cluster needs no estimator, nor scikit-learn
