"""Linear classifiers = loss x penalty x solver: minimize alpha R(W) + mean_i loss(f_i, y_i), f = X W' + b.

losses.py        loss(f, y): the cost of a row's scores, and what a loss declares about itself
penalties.py     R(W): none, L2, L1, elastic net
objective.py     the penalty plus the mean loss; the rows compute its sums, wherever they live (rows/passes.py)
equivalent.py    problems with the same optimum on fewer rows or in other columns
solvers/         how it is minimized: one file per solver, what each needs, and which is chosen
classifier.py    LinearClassifier: parameters and predictions; named.py has its named forms
plan.py          what is decided about a fit, once, before it starts, and where its rows are placed
fitting.py       validate -> plan -> objective -> solve -> keep: what fit needs and predict does not
path.py          every alpha on every fold, for kway.compare
from_files.py    fits from folders and blocks that are larger than memory
naive_bayes.py   a linear classifier from counts, in one pass
kernel_softmax.py  softmax on similarities to landmarks: the Gaussian kernel, made linear
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "KernelSoftmaxClassifier": "kernel_softmax",
    "LeastSquaresClassifier": "named",
    "LinearClassifier": "classifier",
    "LogisticClassifier": "named",
    "NaiveBayesClassifier": "naive_bayes",
    "PerceptronClassifier": "named",
    "SVMClassifier": "named",
    "SoftmaxClassifier": "named",
}

__all__ = [
    "KernelSoftmaxClassifier",
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
    from kway.linear.kernel_softmax import KernelSoftmaxClassifier
    from kway.linear.naive_bayes import NaiveBayesClassifier
    from kway.linear.named import (
        LeastSquaresClassifier,
        LogisticClassifier,
        PerceptronClassifier,
        SoftmaxClassifier,
        SVMClassifier,
    )

__getattr__, __dir__ = lazy_names(__name__, _HOME)  # who holds rows on a cluster needs no estimator, nor scikit-learn
