"""scikit-learn's linear models, and its Intel build's."""

import warnings

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

NAME = "LogisticRegression(lbfgs)"
SAGA = "LogisticRegression(saga)"
INTEL = "intelex LogisticRegression"
SVC = "LinearSVC(hinge)"


def softmax(X, y, alpha, iterations):
    """Softmax regression stopped after so many iterations."""
    return _quiet(LogisticRegression(C=1 / (len(X) * alpha), max_iter=iterations, tol=1e-8), X, y)


def softmax_intel(X, y, alpha, iterations):
    """The same through oneDAL."""
    from sklearnex.linear_model import LogisticRegression as Intel

    return _quiet(Intel(C=1 / (len(X) * alpha), max_iter=iterations, tol=1e-8), X, y)


def softmax_l1(X, y, alpha, iterations):
    """The L1 penalty, by saga."""
    model = LogisticRegression(l1_ratio=1.0, solver="saga", C=1 / (len(X) * alpha), max_iter=iterations, tol=1e-8)
    return _quiet(model, X, y)


def svm(X, y, alpha, iterations):
    """One-vs-all hinge, no bias (liblinear would penalise it)."""
    model = LinearSVC(loss="hinge", C=1 / (len(X) * alpha), fit_intercept=False, max_iter=iterations, tol=1e-6)
    return _quiet(model, X, y)


def _quiet(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)
