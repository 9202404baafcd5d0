"""T4e: fewer rows than features, at any alpha: softmax, and one-vs-all SVM without a bias, against scikit-learn.

The optimum is found in float64, in n dimensions: weights outside the span of the rows only cost, so with X^T = Q R the
rows R^T (n, n) have the same optimum as X (n, d). Both sides' objectives are quoted as what they are above it.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from .. import datasets
from ..race import Row, settled
from .linear import LBFGS, SVC, Peer, Problem, against, hinge_objective, one_vs_all, softmax, softmax_objective

SHAPES = ((60, 10_000), (300, 20_000))
ALPHAS = (1e-2, 1e-4, 1e-6)


def spanned(X: np.ndarray) -> np.ndarray:
    """Rows (n, n) in float64 with the inner products of X (n, d), n < d."""
    return np.linalg.qr(X.T.astype(np.float64), mode="r").T


def softmax_optimum(data: datasets.Data, alpha: float) -> float:
    """The lowest objective of softmax."""
    rows = spanned(data.X)
    model = LogisticRegression(C=1 / (len(rows) * alpha), solver="newton-cholesky", tol=1e-12, max_iter=1000)
    return _lowest(model, rows, data.y, lambda m: softmax_objective(m, rows, data.y, alpha))


def hinge_optimum(data: datasets.Data, alpha: float) -> float:
    """The lowest objective of one-vs-all hinge without a bias."""
    rows = spanned(data.X)
    model = LinearSVC(loss="hinge", C=1 / (len(rows) * alpha), fit_intercept=False, tol=1e-12, max_iter=1_000_000)
    return _lowest(model, rows, data.y, lambda m: hinge_objective(m, rows, data.y, alpha))


def _lowest(model, rows, y, objective) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing can be gained any more is not worth a word
        return float(objective(model.fit(rows, y)))


def measured(problem: Problem, optimum, peer: Peer, rounds: int) -> Row:
    """One problem against one peer."""
    lowest = settled("optimum", lambda: optimum(problem.data, problem.alpha))
    return against("T4e", problem._replace(optimum=lowest), peer, rounds)


def t4e(rounds: int, quick: bool) -> list[Row]:
    """Every shape with every alpha."""
    rows = []
    for n, d in SHAPES[:1] if quick else SHAPES:
        data = datasets.wide(n, d)
        for alpha in ALPHAS[:2] if quick else ALPHAS:
            rows.append(measured(softmax(data, alpha), softmax_optimum, LBFGS, rounds))
            rows.append(measured(one_vs_all(data, alpha), hinge_optimum, SVC, rounds))
    return rows
