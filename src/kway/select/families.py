"""Families of classifiers, each scored over all its settings on the same folds, sharing what can be shared.

linear       a loss over a path of alphas (kway.linear.path)
neighbours   a metric over every k and vote from one search (kway.neighbors.sweep)
centroid     one fit a fold

Scan: accuracy and log loss (folds, settings)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

import kway
from kway.data.gate import Rows
from kway.linear.losses import LOSSES
from kway.linear.path import LEAST_PROBABILITY, alpha_path
from kway.neighbors.sweep import sweep

ALPHAS = tuple(float(f"{a:.3g}") for a in np.logspace(-1, -6, 11))
FEW_ALPHAS = (1e-2, 1e-3, 1e-4, 1e-5)
MOST_NEIGHBORS = 50


class Data(NamedTuple):
    """What every family is scored on: rows (n, d), codes (n,), folds (n,)."""

    X: Rows
    codes: NDArray[np.int64]
    folds: NDArray[np.int64]


@dataclass(frozen=True)
class Scan:
    """Settings of a family with their scores, (folds, settings), nan where a fold was not run."""

    settings: list[dict[str, Any]]
    accuracy: NDArray[np.float64]
    log_loss: NDArray[np.float64]
    seconds: float  # of the whole scan

    def joined(self, other: Scan) -> Scan:
        """This scan and another of the same settings on more folds."""
        return Scan(
            self.settings,
            np.vstack([self.accuracy, other.accuracy]),
            np.vstack([self.log_loss, other.log_loss]),
            self.seconds + other.seconds,
        )

    @property
    def best(self) -> int:
        """The setting of the highest mean accuracy over the folds that were run; among equals the lower log loss."""
        mean = _means(self.accuracy)
        loss = np.nan_to_num(_means(self.log_loss), nan=np.inf)
        return int(np.lexsort((loss, -mean))[0])


class Family(Protocol):
    """A kind of classifier with a grid of settings."""

    name: str

    def scan(self, data: Data, which: list[int], stop: Callable[[], bool]) -> Scan:
        """Score every setting on the folds `which`."""
        ...

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a setting."""
        ...


@dataclass(frozen=True)
class Linear:
    """A linear loss over a path of alphas."""

    name: str
    estimator: str
    loss: str
    alphas: tuple[float, ...] = ALPHAS
    params: dict[str, Any] = field(default_factory=dict)

    def scan(self, data: Data, which: list[int], stop: Callable[[], bool]) -> Scan:
        """Every alpha, strong to weak, with warm starts and one preconditioner."""
        begun = time.perf_counter()
        binary = data.codes.max() == 1 or self.params.get("multiclass") == "one-vs-all"
        form = LOSSES[self.loss].columns if binary else LOSSES[self.loss].joint
        found = alpha_path(data.X, data.codes, form, self.alphas, data.folds, which, stop=stop)
        settings = [{"alpha": alpha} for alpha in self.alphas]
        return Scan(settings, found.accuracy, found.log_loss, time.perf_counter() - begun)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of an alpha."""
        return getattr(kway, self.estimator)(**self.params, **setting, random_state=seed)


@dataclass(frozen=True)
class Neighbors:
    """A metric over every k and vote."""

    name: str
    metric: str
    votes: tuple[str, ...] = ("uniform", "distance")

    def scan(self, data: Data, which: list[int], stop: Callable[[], bool]) -> Scan:
        """Every k and vote from one search; folds not asked for cost next to nothing and are left out."""
        begun = time.perf_counter()
        outside = int(data.X.shape[0] - np.bincount(data.folds[data.folds >= 0]).max())
        k_max = min(MOST_NEIGHBORS, outside)
        found = sweep(data.X, data.codes, data.folds, k_max, self.votes, self.metric)
        settings = [{"weights": vote, "n_neighbors": k + 1} for vote in self.votes for k in range(k_max)]
        flat = lambda scores: scores.reshape(scores.shape[0], -1)[which]  # noqa: E731
        return Scan(settings, flat(found.accuracy), flat(found.log_loss), time.perf_counter() - begun)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a k and a vote."""
        return kway.NeighborsClassifier(metric=self.metric, **setting)


@dataclass(frozen=True)
class Plain:
    """A classifier whose few settings are fitted one by one."""

    name: str
    estimator: str
    settings: tuple[dict[str, Any], ...] = ({},)

    def scan(self, data: Data, which: list[int], stop: Callable[[], bool]) -> Scan:
        """A fit a setting and fold."""
        begun = time.perf_counter()
        accuracy = np.full((len(which), len(self.settings)), np.nan)
        loss = accuracy.copy()
        for row, fold in enumerate(which):
            inside = data.folds == fold
            for column, setting in enumerate(self.settings):
                if stop():
                    break
                model = self.make(setting, 0).fit(data.X[~inside], data.codes[~inside])
                accuracy[row, column], loss[row, column] = scores_of(model, data.X[inside], data.codes[inside])
        return Scan(list(self.settings), accuracy, loss, time.perf_counter() - begun)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a setting."""
        model = getattr(kway, self.estimator)(**setting)
        return model.set_params(random_state=seed) if "random_state" in model.get_params() else model


def scores_of(model: Any, X: Rows, codes: NDArray) -> tuple[float, float]:
    """Accuracy, and log loss where the model has probabilities (nan otherwise), on rows it has not seen."""
    accuracy = float(np.mean(model.predict(X) == codes))
    if not hasattr(model, "predict_proba"):
        return accuracy, np.nan
    p = model.predict_proba(X)
    place = np.searchsorted(model.classes_, codes)
    place = np.minimum(place, len(model.classes_) - 1)
    known = model.classes_[place] == codes
    own = np.where(known, p[np.arange(len(codes)), place], 0.0)
    return accuracy, float(-np.log(np.maximum(own, LEAST_PROBABILITY)).mean())


def _means(scores: NDArray) -> NDArray:
    """Mean over the folds that were run; nan where none was."""
    run = np.isfinite(scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(run, scores, 0).sum(axis=0) / run.sum(axis=0)


FAMILIES: dict[str, Any] = {  # name -> Family
    family.name: family
    for family in (
        Linear("softmax", "SoftmaxClassifier", "softmax"),
        Neighbors("neighbors", "euclidean"),
        Neighbors("neighbors-cosine", "cosine"),
        Neighbors("neighbors-manhattan", "manhattan"),
        Plain("centroid", "CentroidClassifier", ({"metric": "euclidean"}, {"metric": "cosine"})),
        Linear("least-squares", "LeastSquaresClassifier", "squared", FEW_ALPHAS),
        Linear("logistic", "LogisticClassifier", "logistic", FEW_ALPHAS, {"multiclass": "one-vs-all"}),
        Linear("svm", "SVMClassifier", "hinge", FEW_ALPHAS),
        Plain("perceptron", "PerceptronClassifier", ({},)),
    )
}
