"""Softmax over 100 to 2,000 classes: overlapping or far apart, balanced or not, from 2 to 200 rows per class.

A run with a tolerance of 1e-6 in float64 stands for the optimum, which is too large for the oracle.
"""

from __future__ import annotations

import time
import warnings
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

from kway.linear.classifier import LinearClassifier
from optimum_attack.problems import Problem
from optimum_attack.values import Bounds, objective
from optimum_attack.verdicts import Verdict, fitted

MOST_PRODUCTS = 2e9  # rows x columns x classes


class Times(NamedTuple):
    """CPU seconds of kway and of scikit-learn, and their objectives."""

    ours: float
    theirs: float
    value: float
    their_value: float


def draw_many(seed: int, most: float = MOST_PRODUCTS) -> Problem:
    """Sizes are drawn on a logarithmic scale, again until rows x columns x classes are at most `most`."""
    rng = np.random.default_rng([77, seed])
    K, n, d = _sizes(rng)
    while n * d * K > most:
        K, n, d = _sizes(rng)
    share = rng.dirichlet(np.full(K, 10 ** rng.uniform(-0.5, 1.5))) if rng.random() < 0.5 else np.full(K, 1 / K)
    y = np.concatenate([np.arange(K), np.arange(K), rng.choice(K, n - 2 * K, p=share)])
    overlap = float(np.exp(rng.uniform(np.log(0.3), np.log(6))))
    X = rng.standard_normal((K, d))[y] + overlap * rng.standard_normal((n, d))
    dtype = np.dtype(np.float32 if rng.random() < 0.7 else np.float64)
    options = {
        "loss": "softmax", "penalty": "l2", "alpha": float(10 ** rng.uniform(-7, -2)), "multiclass": "joint",
        "solver": "auto", "fit_intercept": True, "tol": 1e-3,
    }  # fmt: skip
    return Problem(seed, X.astype(dtype), y, None, options, (dtype.name, f"overlap {overlap:.2f}"))


def _sizes(rng: np.random.Generator) -> tuple[int, int, int]:
    """Return classes, rows and columns."""
    K, per_class, d = (np.exp(rng.uniform(np.log(a), np.log(b))) for a, b in ((100, 2000), (2, 200), (8, 1024)))
    return int(K), max(2 * int(K), int(K * per_class)), int(d)


def judge_many(problem: Problem) -> Verdict:
    """Compare the fit with a long run."""
    model, warned, seconds = fitted(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        long = LinearClassifier(**problem.options | {"tol": 1e-6, "max_iter": 10_000})
        long.fit(problem.X.astype(np.float64), problem.y)
    found, best = (objective(problem, m.coef_, m.intercept_) for m in (model, long))
    best = min(found, best)
    return Verdict(
        problem, (found - best) / (problem.options["tol"] * best), warned, "", seconds, Bounds(0.0, best, best)
    )


def compare_times(problem: Problem) -> Times:
    """Fit with kway and with scikit-learn's LogisticRegression, which minimizes the same objective."""
    C = 1 / (problem.options["alpha"] * len(problem.y))
    found = []
    for model in (LinearClassifier(**problem.options), LogisticRegression(C=C, tol=1e-4, max_iter=1000)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(problem.X, problem.y)  # loads compiled code
            begun = time.process_time()
            model.fit(problem.X, problem.y)
            found.append((time.process_time() - begun, objective(problem, model.coef_, model.intercept_)))
    (ours, value), (theirs, their_value) = found
    return Times(ours, theirs, value, their_value)
