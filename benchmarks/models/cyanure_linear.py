"""cyanure: softmax by stochastic methods that are accelerated or quasi-Newton.

Its objective is kway's: the mean loss plus lambda_1 / 2 ||W||^2, the bias free. Three of its solvers are tried; the
duality gap is computed once, at the end, so that no time is lost on it.
"""

import warnings
from types import SimpleNamespace

import numpy as np

from . import need

NAME = "cyanure"
SOLVERS = ("auto", "catalyst-miso", "acc-svrg")  # auto: qning-miso, or qning-svrg where the problem is hard
PASSES = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300, 500)


def softmax(solver, X, y, alpha, passes):
    """coef_ (K, d), intercept_ (K,), classes_ after so many passes."""
    Classifier = need("cyanure.estimators").Classifier
    classes, codes = np.unique(y, return_inverse=True)  # labels with gaps between them end its process
    model = Classifier(
        "multiclass-logistic", "l2", lambda_1=alpha, solver=solver, max_iter=passes, tol=1e-9,
        duality_gap_interval=passes, n_threads=2, verbose=False, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it was stopped is known
        model.fit(X, codes)
    W, b = np.asarray(model.coef_), np.ravel(model.intercept_)
    return SimpleNamespace(coef_=np.ascontiguousarray(W.T), intercept_=b, classes_=classes)
