"""Pictures of the lessons about confidence and about many classes."""

from __future__ import annotations

from typing import Any

import numpy as np

import kway
from kway import report

from . import costs, lessons
from .linear import digits


def _test() -> tuple[Any, Any]:
    data = kway.datasets.digits()
    return (data.x_test / 255).astype(np.float32), data.y_test


def temperature() -> Any:
    """Draw the softmax of five scores at five temperatures."""
    return lessons.temperature([2.0, 1.0, 0.1, -1.0, 0.5], labels=["cat", "dog", "ship", "car", "bird"])


def reliability() -> Any:
    """Draw the reliability diagram of a softmax with a small penalty, which is overconfident."""
    X, y = digits(1000)
    rows, truth = _test()
    p = kway.SoftmaxClassifier(alpha=1e-5).fit(X, y).predict_proba(rows)
    return report.reliability(p.max(axis=1), p.argmax(axis=1) == truth, bins=10)


def smoothing() -> Any:
    """Draw the targets of three values of eps, and the mean predictions of models trained on them."""
    X, y = digits(2000)
    rows, truth = _test()
    eps = (0.0, 0.1, 0.3)
    models = [kway.SoftmaxClassifier(alpha=1e-4, label_smoothing=e).fit(X, y) for e in eps]
    return lessons.label_smoothing(eps, [m.predict_proba(rows[truth == 3]).mean(axis=0) for m in models], 3)


def many_classes() -> Any:
    """Draw bytes against the number of classes, for 1,000 features and the predictions of 10,000 rows."""
    classes = np.logspace(1, 9, 9)
    curves = {
        "weights, 1,000 features": 4 * 1000 * classes,
        "probabilities of 10,000 rows": 4 * 10_000 * classes,
        "the 5 best of 10,000 rows": np.full(9, (4 + 8) * 5 * 10_000.0),
    }
    return costs.cost(classes, {"bytes": curves}, "classes K", "Memory against the number of classes")
