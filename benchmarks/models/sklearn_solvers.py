"""scikit-learn's other solvers of linear classifiers: newton-cholesky, saga and plain SGD."""

import warnings

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier

NEWTON = "LogisticRegression(newton-cholesky)"
SAGA = "LogisticRegression(saga)"
SGD = "SGDClassifier(log_loss)"


def newton(X, y, alpha, iterations):
    """Newton's method; its Hessian has (K d)^2 entries, so few features only."""
    return _quiet(LogisticRegression(C=1 / (len(X) * alpha), solver="newton-cholesky", max_iter=iterations), X, y)


def saga(X, y, alpha, iterations):
    """Stochastic average gradient."""
    return _quiet(LogisticRegression(C=1 / (len(X) * alpha), solver="saga", max_iter=iterations, tol=1e-8), X, y)


def sgd(X, y, alpha, iterations):
    """One-vs-all logistic regression by stochastic gradient descent, two threads."""
    model = SGDClassifier("log_loss", alpha=alpha, max_iter=iterations, tol=None, n_jobs=2, random_state=0)
    return _quiet(model, X, y)


def _quiet(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)
