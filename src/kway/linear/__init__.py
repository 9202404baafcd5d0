"""Linear classifiers = loss x penalty x solver: minimize alpha R(W) + mean_i loss(f_i, y_i), f = X W' + b.

losses.py          loss(f, y), and the properties that a loss declares
penalties.py       R(W): none, L2, L1, elastic net
objective.py       the penalty plus the mean loss, whose sums the rows compute (rows/passes.py)
equivalent.py      problems with the same optimum on fewer rows or in other columns
solvers/           the methods of minimization, and the choice among them
classifier.py      LinearClassifier: parameters and predictions
named.py           LinearClassifier with a fixed loss: softmax, logistic, SVM, perceptron, least squares
plan.py            the decisions before a fit, and the placement of its rows
fitting.py         validate -> plan -> objective -> solve -> set the learned attributes
path.py            every alpha on every fold, for kway.compare
from_files.py      fits from folders and blocks that are larger than memory
naive_bayes.py     a linear classifier from counts, in one pass
kernel_softmax.py  softmax on similarities to landmarks, which approximate the Gaussian kernel
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

if TYPE_CHECKING:  # "as" tells type checkers that the names are public
    from kway.linear.classifier import LinearClassifier as LinearClassifier
    from kway.linear.kernel_softmax import KernelSoftmaxClassifier as KernelSoftmaxClassifier
    from kway.linear.naive_bayes import NaiveBayesClassifier as NaiveBayesClassifier
    from kway.linear.named import LeastSquaresClassifier as LeastSquaresClassifier
    from kway.linear.named import LogisticClassifier as LogisticClassifier
    from kway.linear.named import PerceptronClassifier as PerceptronClassifier
    from kway.linear.named import SoftmaxClassifier as SoftmaxClassifier
    from kway.linear.named import SVMClassifier as SVMClassifier

# lazy, so that a node of a cluster that only computes sums loads no estimator
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOME)
