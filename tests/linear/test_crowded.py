"""Few rows a class under hardly any penalty: weights grow large, most rows stop to bend, and a proof has to see it.

Three products with a Hessian whose preconditioner was of points long past once called such fits proved, 3 to 6 million
times tol above the optimum.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from kway.linear.classifier import LinearClassifier


class Crowded(NamedTuple):
    """n rows of nearly as many classes, d features of any units, and what is asked of the fit."""

    X: NDArray | sp.csr_matrix
    y: NDArray
    alpha: float
    tol: float


def crowded(seed: int) -> Crowded:
    """One drawn problem."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 160)), int(rng.integers(1, 6))
    n_classes = int(rng.integers(max(2, n // 4), n))
    X = rng.lognormal(0, 1.5, d) * (rng.normal(size=(n, d)) + rng.normal(size=d) * rng.choice([0, 1, 10]))
    if rng.random() < 0.3:
        X[:, -1] = X[0, -1]
    y = rng.permutation(np.arange(n) % n_classes)
    X = X.astype(rng.choice([np.float32, np.float64]))
    alpha, tol = 10 ** rng.uniform(-10, -4), 10 ** rng.uniform(-5, -2.5)
    return Crowded(sp.csr_matrix(X) if rng.random() < 0.5 else X, y, alpha, tol)


@pytest.mark.parametrize("first", [8, 16, 32, *(pytest.param(at, marks=pytest.mark.slow) for at in (0, 24))])
def test_a_fit_of_few_rows_a_class_is_at_its_optimum_or_says_so(first: int) -> None:
    for seed in range(first, first + 8):
        problem = crowded(seed)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = LinearClassifier(solver="lbfgs", alpha=problem.alpha, tol=problem.tol).fit(problem.X, problem.y)
        if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
            continue
        exact = LinearClassifier(solver="lbfgs", alpha=problem.alpha, tol=1e-7)
        best = exact.fit(problem.X.astype(np.float64), problem.y).objective_
        assert found.objective_ <= best * (1 + 1.01 * problem.tol), seed
