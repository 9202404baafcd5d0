"""Problems beyond what the oracle can factor, and losses that it does not know: long runs stand for the optimum.

The best objective of several of them bounds F* from above alone. A fit that lies more than tol above it and says
nothing has missed all the same: so an L1 penalty over many classes was found to end at 3.5 times tol.
"""

from __future__ import annotations

import warnings

import numpy as np

from kway.linear.classifier import LinearClassifier
from optimum_attack.problems import Problem
from optimum_attack.values import Bounds
from optimum_attack.verdicts import Verdict, fitted

LOSSES = ("softmax", "logistic", "hinge", "rounded-hinge", "squared")
LONG = {"max_iter": 5000, "tol": 1e-7}


def draw_larger(seed: int) -> Problem:
    """Some hundreds to thousands of rows, up to a hundred related columns of other scales, up to 15 classes."""
    rng = np.random.default_rng(seed)
    n, d, K = int(rng.integers(300, 5000)), int(rng.integers(2, 100)), int(rng.integers(2, 16))
    scales = 10.0 ** rng.uniform(-2, 2, d) if rng.random() < 0.6 else np.ones(d)
    X = rng.normal(size=(n, d))
    if rng.random() < 0.6:
        X = X @ (rng.normal(size=(d, d)) / np.sqrt(d))
    X = X * scales + (10 * scales if rng.random() < 0.2 else 0)
    scores = X @ rng.normal(size=(d, K)) * 3 / (scales.mean() * np.sqrt(d))
    y = (scores + rng.normal(size=(n, K)) * 10 ** rng.uniform(-1, 1)).argmax(axis=1)
    y[rng.permutation(n)[:K]] = np.arange(K)
    loss, penalty = str(rng.choice(LOSSES)), str(rng.choice(["l1", "elasticnet", "l2"], p=[0.4, 0.3, 0.3]))
    unit = float(np.abs(X).mean()) if penalty != "l2" else float(np.square(X).mean())
    solvers = ["auto", "auto", "proximal"] if penalty != "l2" else ["auto", "lbfgs", "gradient"]
    solver = str(rng.choice(solvers))
    options = {
        "loss": loss,
        "penalty": penalty,
        "alpha": 10 ** float(rng.uniform(-5, -2)) * unit,
        "multiclass": "joint" if loss == "softmax" or rng.random() < 0.5 else "one-vs-all",
        "solver": "auto" if solver == "gradient" and loss == "hinge" else solver,
        "class_weight": "balanced" if rng.random() < 0.3 else None,
    }
    single = rng.random() < 0.3
    X = X.astype(np.float32 if single else np.float64)
    return Problem(seed, X, y, None, {"fit_intercept": True, "tol": 1e-3, **options}, ("larger", X.dtype.name))


def judge_larger(problem: Problem) -> Verdict:
    """The fit against the best of what long runs find."""
    model, said, seconds = fitted(problem)
    able = ("auto", "lbfgs") if problem.options["penalty"] == "l2" else ("auto", "proximal")
    values = [model.objective_]
    for solver in able:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = LinearClassifier(**problem.options | LONG | {"solver": solver})
            values.append(run.fit(problem.X.astype(np.float64), problem.y).objective_)
    best = min(values)
    return Verdict(problem, (model.objective_ - best) / (1e-3 * best), said, "", seconds, Bounds(0.0, best, best))
