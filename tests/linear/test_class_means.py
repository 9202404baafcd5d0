"""Fits whose classes have fewer rows than there are columns, drawn: within tol of their optimum, or a warning."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from kway import LinearClassifier
from kway.linear.solvers.preconditioners import Moments

TOL = 1e-3


def draw(seed):
    """20 to 90 classes around centres, of very unequal sizes at times; columns of other scales, rows of unit length."""
    rng = np.random.default_rng(seed)
    K, d = int(rng.integers(20, 90)), int(rng.integers(30, 130))
    n = int(rng.integers(K * 3, min(K * d - 1, 6000)))
    chance = rng.dirichlet(np.full(K, 10.0 ** rng.uniform(-0.5, 2)))
    y = np.concatenate([np.arange(K), rng.choice(K, n - K, p=chance)])
    X = rng.standard_normal((K, d))[y] + 10.0 ** rng.uniform(-0.5, 0.7) * rng.standard_normal((n, d))
    X *= 10.0 ** rng.uniform(-1.5, 1.5, d) if rng.random() < 0.4 else 1.0
    if rng.random() < 0.5:
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    if rng.random() < 0.2:
        X = sp.csr_matrix(np.where(np.abs(X) > np.quantile(np.abs(X), 0.7), X, 0))
    size = float(np.sqrt((X.multiply(X) if sp.issparse(X) else X * X).mean(dtype=float) * d))
    options = {
        "loss": str(rng.choice(["softmax", "softmax", "logistic"])),
        "alpha": 10.0 ** rng.uniform(-6, -2) * size**2,
        "fit_intercept": bool(rng.random() < 0.8),
        "class_weight": "balanced" if rng.random() < 0.2 else None,
        "solver": "lbfgs",
        "tol": TOL,
    }
    options["multiclass"] = "one-vs-all" if options["loss"] == "logistic" else "joint"
    return X.astype(np.float32 if rng.random() < 0.6 else np.float64), y, options


def excess(X, y, options):
    """How far the fit is above the optimum, relative to it, and whether it warned."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = LinearClassifier(**options).fit(X, y).objective_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = LinearClassifier(**options | {"tol": 1e-8, "max_iter": 5000}).fit(X.astype(np.float64), y).objective_
    return (found - best) / best, bool(said)


@pytest.mark.parametrize("seed", [*range(12), 281])
def test_a_fit_that_says_nothing_is_within_tol(seed):
    above, warned = excess(*draw(seed))
    assert warned or above <= TOL


def test_the_drawn_fits_are_helped_by_the_means(monkeypatch):
    """Else the others would test nothing of them."""
    asked, own = [], Moments.with_class_means
    monkeypatch.setattr(
        Moments, "with_class_means", lambda self, rows, theta: asked.append(rows.n) or own(self, rows, theta)
    )
    for seed in range(6):
        X, y, options = draw(seed)
        asked.clear()
        LinearClassifier(**options).fit(X, y)
        if asked:
            return
    raise AssertionError("no fit asked for the means of its classes")
