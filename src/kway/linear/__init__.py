"""Linear classifiers = loss x penalty x solver: minimise alpha R(W) + mean_i loss(f_i, y_i), f = X W^T + b.

losses/        loss(f, y): what a row's scores cost, and what a loss declares about itself
penalties.py   R(W): none, L2, L1, elastic net
objective.py   the penalty plus the mean loss, whose sums the rows compute, wherever they live (rows/passes.py)
column_frames.py  the same problem in columns that suit a solver better, and theta there and back
distinct_rows.py  equal rows with equal targets become one row that weighs as many
solvers/       how it is minimised: one file a solver, what each needs, and which is picked
classifier.py  LinearClassifier: parameters and answers; named.py its named forms
plan.py        what is decided about a fit, once, before it starts
fitting.py     check -> plan -> objective -> solve -> keep: all that a fit needs and no answer does
path.py        every alpha on every fold, with shared work
placing.py     where the rows of a fit go: they stay in this process, or go to a GPU or to a cluster
from_folder.py rows that lie in a folder and are read by a cluster
from_files.py  rows that stay in files and are read here, some at a time
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
