"""Snap ML: logistic regression and linear SVM by parallel coordinate steps, each class against the rest.

Its regulariser stands against the sum of the losses (n alpha), and its bias is one more penalised weight, so both
sides fit none. It has no softmax.
"""

from . import need

NAME = "Snap ML"
PASSES = (2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 1000)
WAYS = {"dual": True, "primal": False}


def logistic(dual, X, y, alpha, passes):
    """One-vs-all logistic regression after at most so many passes."""
    snapml = need("snapml")
    model = snapml.LogisticRegression(
        max_iter=passes, regularizer=X.shape[0] * alpha, dual=dual, n_jobs=2, tol=1e-7, random_state=0
    )
    return model.fit(X, y)


def svm(X, y, alpha, passes):
    """One-vs-all hinge after at most so many passes."""
    snapml = need("snapml")
    model = snapml.SupportVectorMachine(
        max_iter=passes, regularizer=X.shape[0] * alpha, n_jobs=2, tol=1e-7, random_state=0
    )
    return model.fit(X, y)
