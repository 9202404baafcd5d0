"""scikit-learn's linear models, and its Intel build's."""

import warnings

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.svm import LinearSVC

from . import need

NAME = "LogisticRegression(lbfgs)"
SAGA = "LogisticRegression(saga)"
INTEL = "intelex LogisticRegression"
NEWTON = "LogisticRegression(newton-cholesky)"
SGD = "SGDClassifier(log_loss)"
SVC = "LinearSVC(hinge)"


def softmax(X, y, alpha, iterations):
    """Softmax regression stopped after so many iterations."""
    return _quiet(LogisticRegression(C=1 / (len(X) * alpha), max_iter=iterations, tol=1e-8), X, y)


def softmax_intel(X, y, alpha, iterations):
    """The same through oneDAL."""
    Intel = need("sklearnex.linear_model").LogisticRegression

    return _quiet(Intel(C=1 / (len(X) * alpha), max_iter=iterations, tol=1e-8), X, y)


def softmax_newton(X, y, alpha, iterations):
    """The whole Hessian, (K d)^2 numbers in float64."""
    model = LogisticRegression(solver="newton-cholesky", C=1 / (len(X) * alpha), max_iter=iterations, tol=1e-8)
    return _quiet(model, X, y)


def logistic_sgd(X, y, alpha):
    """Fit one logistic problem per class by stochastic gradients, with its own stopping rule, on two threads."""
    return _quiet(SGDClassifier(loss="log_loss", alpha=alpha, n_jobs=2, random_state=0), X, y)


def softmax_l1(X, y, alpha, iterations):
    """The L1 penalty, by saga."""
    model = LogisticRegression(l1_ratio=1.0, solver="saga", C=1 / (len(X) * alpha), max_iter=iterations, tol=1e-8)
    return _quiet(model, X, y)


def svm(X, y, alpha, iterations):
    """One-vs-all hinge, no bias (liblinear would penalise it)."""
    model = LinearSVC(loss="hinge", C=1 / (X.shape[0] * alpha), fit_intercept=False, max_iter=iterations, tol=1e-6)
    return _quiet(model, X, y)


def _quiet(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)
