"""Pictures of the lessons about linear classifiers: outliers, margins, penalties."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

import kway
from kway import report
from kway.report import style

from . import lessons, planes

SHOWN = 1000  # digits that the slower pictures learn from


def digits(n: int = SHOWN) -> tuple[Any, Any]:
    """The first n training digits as float32 in [0, 1], and their labels."""
    data = kway.datasets.digits()
    return (data.x_train[:n] / 255).astype(np.float32), data.y_train[:n]


def outliers() -> Any:
    """Least squares and logistic, without and with far rows on the right side."""
    scenes = []
    for title, n_outliers in (("two classes", 0), ("and 20 far rows of one of them", 20)):
        data = kway.datasets.outliers(n_outliers=n_outliers)
        X, y = data.x_train, data.y_train
        models = {"least squares": kway.LeastSquaresClassifier(), "logistic": kway.LogisticClassifier()}
        scenes.append(planes.Scene(title, X, y, {name: model.fit(X, y) for name, model in models.items()}))
    return planes.decision_lines(scenes)


def softmax_and_sigmoid() -> Any:
    """Four scores of which two are high."""
    return lessons.softmax_and_sigmoid([2.0, 1.0, 0.1, -1.0], ["cat", "dog", "ship", "car"])


def margin() -> Any:
    """The hard and a soft margin: the lines f = -1, 0, 1, and rings around the support vectors."""
    data = kway.datasets.separable(120, n_classes=2, margin=0.6, seed=3)
    X, y = data.x_train, data.y_train
    machines = {"hard margin": 0.0, "soft margin, alpha = 0.1": 0.1}
    fitted = {title: kway.SVMClassifier(alpha=alpha).fit(X, y) for title, alpha in machines.items()}
    scenes = [planes.Scene(title, X, y, _three_lines(machine)) for title, machine in fitted.items()]
    figure = planes.decision_lines(scenes)
    for axes, machine in zip(figure.axes, fitted.values()):
        axes.scatter(
            *X[machine.support_].T, s=70, facecolors="none", edgecolors=style.INK, linewidths=1.1, zorder=5,
        )  # fmt: skip
    return figure


def _three_lines(machine: Any) -> dict[str, Any]:
    """The boundary and the two lines at distance 1 / ||w||, as models whose boundary they are."""
    lines = {"f = 0": 0.0, "f = +1": -1.0, "f = −1": 1.0}
    return {
        name: SimpleNamespace(coef_=machine.coef_, intercept_=machine.intercept_ + shift, classes_=machine.classes_)
        for name, shift in lines.items()
    }


def alpha() -> Any:
    """Cross-validation of the penalty's weight."""
    found = kway.tune(kway.SoftmaxClassifier(), *digits(500))
    alphas = [setting["alpha"] for setting in found.scan.settings]
    return report.cross_validation(alphas, found.scan.accuracy.T, found.best["alpha"], "alpha", log=True)


def templates_l2() -> Any:
    """Rows of W as images."""
    return _templates("l2", "Softmax with L2, alpha = 0.01: what each class looks for", 0.01)


def templates_l1() -> Any:
    """The same with most weights exactly zero."""
    return _templates("l1", "Softmax with L1, alpha = 0.005: white is exactly zero", 0.005)


def _templates(penalty: str, title: str, alpha: float) -> Any:
    model = kway.SoftmaxClassifier(penalty, alpha=alpha).fit(*digits())
    return report.weight_templates(model.coef_, (28, 28), model.classes_, title)
