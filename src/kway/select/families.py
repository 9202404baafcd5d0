"""Families of classifiers, each scored over all its settings on the same folds, sharing what can be shared.

linear       a loss over a path of alphas (kway.linear.path), given as shares of the mean square |x|^2 of a row: they
             then mean the same whatever the features are measured in
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

SHARES = tuple(float(f"{a:.3g}") for a in np.logspace(-2, -7, 11))
FEW_SHARES = (1e-3, 1e-4, 1e-5, 1e-6)
MOST_NEIGHBORS = 50
HEAVY = 0.1  # seconds of one pass over the rows above which alphas far from the best are not run on every fold


class Data(NamedTuple):
    """What every family is scored on: rows (n, d), codes (n,), folds (n,); `kept` holds what a later scan can use."""

    X: Rows
    codes: NDArray[np.int64]
    folds: NDArray[np.int64]
    kept: dict[str, Any]

    def pass_seconds(self) -> float:
        """About what one gradient of a linear loss over all rows and classes takes, on two cores of 2023."""
        width = int(self.codes.max()) + 1
        work = self.X.nnz * width / 3e8 if hasattr(self.X, "nnz") else self.X.size * width / 3e10
        return float(work + 40 * self.X.shape[1] * width / 1e9)  # the solver keeps 40 vectors of d K numbers


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
        """The setting of the highest mean accuracy, of those run on most folds; among equals the lower log loss."""
        run = np.isfinite(self.accuracy).sum(axis=0)
        mean = np.where(run == run.max(), _means(self.accuracy), -np.inf)
        loss = np.nan_to_num(_means(self.log_loss), nan=np.inf)
        return int(np.lexsort((loss, -mean))[0])


class Family(Protocol):
    """A kind of classifier with a grid of settings."""

    @property
    def name(self) -> str:
        """What the leaderboard calls it."""
        ...

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
    shares: tuple[float, ...] = SHARES
    params: dict[str, Any] = field(default_factory=dict)
    alphas: tuple[float, ...] = ()  # instead of shares

    def scan(self, data: Data, which: list[int], stop: Callable[[], bool]) -> Scan:
        """Every alpha, strong to weak, with warm starts and one preconditioner."""
        begun = time.perf_counter()
        binary = data.codes.max() == 1 or self.params.get("multiclass") == "one-vs-all"
        form = LOSSES[self.loss].columns if binary else LOSSES[self.loss].joint
        alphas = self.alphas or tuple(float(f"{share * mean_square(data.X):.2g}") for share in self.shares)
        own = self._worth(data, len(alphas))
        found = alpha_path(data.X, data.codes, form, [alphas[i] for i in own], data.folds, which, stop=stop)
        scores = np.full((2, len(which), len(alphas)), np.nan)
        scores[:, :, own] = found.accuracy, found.log_loss
        settings = [{"alpha": alpha} for alpha in alphas]
        scan = Scan(settings, scores[0], scores[1], time.perf_counter() - begun)
        data.kept.setdefault(self.name, scan)
        return scan

    def _worth(self, data: Data, n: int) -> list[int]:
        """Alphas to run: all, or where a fit takes long only those around the best of the first scan."""
        first = data.kept.get(self.name)
        if first is None or data.pass_seconds() < HEAVY:
            return list(range(n))
        return list(range(max(0, first.best - 2), min(n, first.best + 3)))

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
        """Every k and vote of every fold from one search, kept for the folds that are asked for later."""
        begun = time.perf_counter()
        folds = np.where(data.folds < 0, data.folds.max() + 1, data.folds)  # never asked for, but asked by the others
        k_max = min(MOST_NEIGHBORS, int(len(folds) - np.bincount(folds).max()))
        if self.name not in data.kept:
            data.kept[self.name] = sweep(data.X, data.codes, folds, k_max, self.votes, self.metric)
        found = data.kept[self.name]
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


def mean_square(X: Rows) -> float:
    """Mean of |x|^2 over some 10,000 rows; 1 where that is no scale."""
    some = X[:: max(1, X.shape[0] // 10_000)]
    values = some.data if hasattr(some, "tocsr") else some
    mean = float(np.square(values, dtype=np.float64).sum() / max(1, some.shape[0]))
    return mean if np.isfinite(mean) and mean > 0 else 1.0


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
        Linear("least-squares", "LeastSquaresClassifier", "squared", FEW_SHARES),
        Linear("logistic", "LogisticClassifier", "logistic", FEW_SHARES, {"multiclass": "one-vs-all"}),
        Plain("perceptron", "PerceptronClassifier", ({},)),
        Linear("svm", "SVMClassifier", "hinge", FEW_SHARES),  # the slowest, so that a budget spares the others
    )
}
ALIKE = ("least-squares", "logistic", "perceptron", "svm")  # as softmax, with a line between classes: seldom better
STRAW_MAN = Plain("least-squares-number", "LeastSquaresClassifier", ({"targets": "number"},))  # by name only
