"""T4e: fewer rows than features, at any alpha: softmax, and one-vs-all SVM without a bias, against scikit-learn.

The optimum is found in float64, in n dimensions: weights outside the span of the rows only cost, so with X^T = Q R the
rows R^T (n, n) have the same optimum as X (n, d). Objectives are given relative to it.
scikit-learn's solvers work in all d columns, and some are not within 1e-3 at 1,280 iterations. They get no more
iterations after PATIENCE times kway's seconds; the ratio is then that of a peer far above the optimum, as is said.
"""

from __future__ import annotations

import warnings

import numpy as np
import scipy.optimize
from sklearn.linear_model import LogisticRegression

from .. import datasets
from ..race import Row, settled
from .linear import LBFGS, SVC, Peer, Problem, against, one_vs_all, softmax, softmax_objective

SHAPES = ((60, 10_000), (300, 20_000))
ALPHAS = (1e-2, 1e-4, 1e-6)
PATIENCE = 4


def spanned(X: np.ndarray) -> np.ndarray:
    """Rows (n, n) in float64 with the inner products of X (n, d), n < d."""
    return np.linalg.qr(X.T.astype(np.float64), mode="r").T


def softmax_optimum(data: datasets.Data, alpha: float) -> float:
    """The lowest objective of softmax, by Newton's method."""
    rows = spanned(data.X)
    model = LogisticRegression(C=1 / (len(rows) * alpha), solver="newton-cholesky", tol=1e-12, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing can be gained any more is not worth a word
        return float(softmax_objective(model.fit(rows, data.y), rows, data.y, alpha))


def hinge_optimum(data: datasets.Data, alpha: float) -> float:
    """The lowest objective of one-vs-all hinge without a bias: the highest of the dual, which never is above it.

    dual of a class, signs s: alpha (sum b - 1/2 ||sum_i b_i s_i x_i||^2), 0 <= b <= C = 1 / (n alpha)
    """
    rows = spanned(data.X)
    gram, most = rows @ rows.T, 1 / (len(rows) * alpha)
    length = np.sqrt(np.diag(gram))
    unit = length.mean()  # the value is near 1 in units of 1 / unit^2, where the solver's tolerances have their meaning
    even, scale = gram / np.outer(length, length), length / unit  # variables v = b length unit bend alike

    def highest(signs: np.ndarray) -> float:
        signed = even * np.outer(signs, signs)
        value = lambda u: (u @ signed @ u / 2 - (u / scale).sum(), signed @ u - 1 / scale)  # noqa: E731
        found = scipy.optimize.minimize(
            value, np.zeros(len(rows)), jac=True, method="L-BFGS-B", bounds=[(0, most * s * unit**2) for s in scale],
            options={"maxiter": 20_000, "maxfun": 40_000, "ftol": 1e-15, "gtol": 1e-12},
        )  # fmt: skip
        return -float(found.fun) / unit**2

    return alpha * sum(highest(np.where(data.y == label, 1.0, -1.0)) for label in np.unique(data.y))


def measured(problem: Problem, optimum, peer: Peer, rounds: int) -> Row:
    """One problem against one peer."""
    lowest = settled("optimum", lambda: optimum(problem.data, problem.alpha))
    return against("T4e", problem._replace(optimum=lowest), peer, rounds, PATIENCE)


def t4e(rounds: int, quick: bool) -> list[Row]:
    """Every shape with every alpha."""
    rows = []
    for n, d in SHAPES[:1] if quick else SHAPES:
        data = datasets.wide(n, d)
        for alpha in ALPHAS[:2] if quick else ALPHAS:
            rows.append(measured(softmax(data, alpha), softmax_optimum, LBFGS, rounds))
            rows.append(measured(one_vs_all(data, alpha), hinge_optimum, SVC, rounds))
    return rows
