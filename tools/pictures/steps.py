"""Pictures of the lesson about gradient descent: objective over epochs."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import kway
from kway import report
from kway.linear.solvers import SGD, Constant, Cosine, Decay

from .linear import digits

EPOCHS = 24  # with more, the fit with a constant rate would stop early


def _history(**settings: Any) -> Any:
    """Return the objective after each of EPOCHS epochs, without the warning that the fit has not converged."""
    model = kway.SoftmaxClassifier(alpha=1e-3, tol=1e-9, max_iter=EPOCHS, random_state=0, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(model.fit(*digits()).history_)


def batches() -> Any:
    """Draw the objective for batches of 1, 10, 100 and all rows."""
    curves = {f"batch of {b}": _history(solver="sgd", batch_size=b) for b in (1, 10, 100)}
    curves["all rows"] = _history(solver="gradient")[1:]  # its history starts before the first step
    return report.history(curves, "epoch", "objective", first=1, title="Softmax on 1,000 digits")


def schedules() -> Any:
    """Draw the distance to the minimum for four ways to choose the learning rate."""
    best = kway.SoftmaxClassifier(alpha=1e-3, tol=1e-7).fit(*digits()).objective_
    schedules: dict[str, dict[str, Any]] = {
        "constant": {"solver": "sgd", "learning_rate": Constant(0.1)},
        "decay": {"solver": "sgd", "learning_rate": Decay(0.1)},
        "cosine": {"solver": "sgd", "learning_rate": Cosine(0.1)},
        "constant, averaged": {"solver": SGD(average=True), "learning_rate": Constant(0.1)},
    }
    curves = {name: _history(**settings) - best for name, settings in schedules.items()}
    return report.history(curves, "epoch", "objective above the minimum", first=1, title="Rates from eta = 0.1")


def separable() -> Any:
    """Draw the length of w on separable rows, which grows forever without a penalty."""
    data = kway.datasets.separable(200, n_classes=2, seed=0)
    curves = {"no penalty": 0.0, "alpha = 0.0001": 1e-4, "alpha = 0.001": 1e-3}
    drawn = {name: _lengths(data, alpha) for name, alpha in curves.items()}
    return report.history(drawn, "epoch", "length of w", first=1, title="Logistic regression on separable rows")


def _lengths(data: Any, alpha: float) -> list[float]:
    model = kway.LogisticClassifier(alpha=alpha, learning_rate="constant", random_state=0)
    return [float(np.linalg.norm(model.partial_fit(data.x_train, data.y_train).coef_)) for _ in range(400)]
