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
    """Return the first n training digits as float32 in [0, 1], and their labels."""
    data = kway.datasets.digits()
    return (data.x_train[:n] / 255).astype(np.float32), data.y_train[:n]


def outliers() -> Any:
    """Draw the boundaries of least squares and logistic regression, without and with distant rows."""
    scenes = []
    for title, n_outliers in (("two classes", 0), ("with 20 distant rows of one class", 20)):
        data = kway.datasets.outliers(n_outliers=n_outliers)
        X, y = data.x_train, data.y_train
        models = {"least squares": kway.LeastSquaresClassifier(), "logistic": kway.LogisticClassifier()}
        scenes.append(planes.Scene(title, X, y, {name: model.fit(X, y) for name, model in models.items()}))
    return planes.decision_lines(scenes)


def softmax_and_sigmoid() -> Any:
    """Draw softmax and sigmoid of four scores, two of which are high."""
    return lessons.softmax_and_sigmoid([2.0, 1.0, 0.1, -1.0], ["cat", "dog", "ship", "car"])


def margin() -> Any:
    """Draw the hard and a soft margin: the lines f = -1, 0 and 1, and rings around the support vectors."""
    data = kway.datasets.separable(120, n_classes=2, margin=0.6, seed=3)
    X, y = data.x_train, data.y_train
    alphas = {"hard margin": 0.0, "soft margin, alpha = 0.1": 0.1}
    fitted = {title: kway.SVMClassifier(alpha=alpha).fit(X, y) for title, alpha in alphas.items()}
    scenes = [planes.Scene(title, X, y, _three_lines(svm)) for title, svm in fitted.items()]
    figure = planes.decision_lines(scenes)
    for axes, svm in zip(figure.axes, fitted.values()):
        axes.scatter(
            *X[svm.support_].T, s=70, facecolors="none", edgecolors=style.INK, linewidths=1.1, zorder=5,
        )  # fmt: skip
    return figure


def _three_lines(svm: Any) -> dict[str, Any]:
    """Return three models whose boundaries are the boundary of an SVM and the two lines at distance 1 / ||w||."""
    lines = {"f = 0": 0.0, "f = +1": -1.0, "f = −1": 1.0}
    return {
        name: SimpleNamespace(coef_=svm.coef_, intercept_=svm.intercept_ + shift, classes_=svm.classes_)
        for name, shift in lines.items()
    }


def alpha() -> Any:
    """Draw the cross-validation of alpha."""
    found = kway.tune(kway.SoftmaxClassifier(), *digits(500))
    alphas = [setting["alpha"] for setting in found.scan.settings]
    return report.cross_validation(alphas, found.scan.accuracy.T, found.best["alpha"], "alpha", log=True)


def balls() -> Any:
    """Draw the point of an L2 and of an L1 ball at which a squared loss of two weights is smallest."""
    figure = style.figure(height=2.5)
    for axes, (name, power) in zip(figure.subplots(1, 2), (("L2", 2.0), ("L1", 1.0))):
        _ball(axes, f"{name} ball", power)
    return figure


MINIMUM, CURVATURE = np.array([1.6, 0.6]), np.array([[1.0, 0.3], [0.3, 0.7]])  # of the loss in `balls`


def _ball(axes: Any, title: str, power: float) -> None:
    """Draw the ball |w1|^power + |w2|^power <= 1, contours of the loss and the best point of the ball."""
    angles = np.linspace(0, 2 * np.pi, 361)
    directions = np.column_stack([np.cos(angles), np.sin(angles)])
    border = directions / (np.abs(directions) ** power).sum(axis=1, keepdims=True) ** (1 / power)
    losses = _loss_of_weights(border)
    best = border[losses.argmin()]
    w1, w2 = np.meshgrid(np.linspace(-1.3, 2.6, 60), np.linspace(-1.3, 1.6, 60))
    grid = _loss_of_weights(np.column_stack([w1.ravel(), w2.ravel()])).reshape(w1.shape)
    axes.contour(w1, w2, grid, levels=sorted([0.12, losses.min(), 1.5]), colors=style.MUTED, linewidths=0.9)
    axes.fill(*border.T, facecolor=style.tint(style.ACCENT, 0.25), edgecolor=style.ACCENT, linewidth=1.4)
    axes.plot(*MINIMUM, "x", color=style.INK, markersize=7)
    axes.annotate(
        "smallest loss",
        MINIMUM,
        xytext=(0, 8),
        textcoords="offset points",
        ha="center",
        fontsize=style.TEXT,
        color=style.INK,
    )
    axes.plot(*best, "o", color=style.INK, markersize=6)
    label = f"w = ({best[0]:.2f}, {best[1] + 0.0:.2f})"
    axes.annotate(label, best, xytext=(8, -14), textcoords="offset points", fontsize=style.TEXT, color=style.INK)
    style.dress(axes, title, "w1", "w2")
    axes.set_aspect("equal")


def _loss_of_weights(w: Any) -> Any:
    """Return the squared loss (m,) of m pairs of weights (m, 2)."""
    gaps = w - MINIMUM
    return ((gaps @ CURVATURE) * gaps).sum(axis=1)


def templates_l2() -> Any:
    """Draw the weights of each class as an image, with an L2 penalty."""
    return _templates("l2", "Softmax with L2, alpha = 0.01: weights per class", 0.01)


def templates_l1() -> Any:
    """Draw the weights of each class as an image, with an L1 penalty."""
    return _templates("l1", "Softmax with L1, alpha = 0.005: white is exactly zero", 0.005)


def _templates(penalty: str, title: str, alpha: float) -> Any:
    model = kway.SoftmaxClassifier(penalty, alpha=alpha).fit(*digits())
    return report.weight_templates(model.coef_, (28, 28), model.classes_, title)
