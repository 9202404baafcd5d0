"""Families of classifiers, each scored over all its settings on the same folds, sharing what can be shared.

linear       a loss over a path of alphas (kway.linear.path), given as shares of the mean square |x|^2 of a row: they
             then mean the same whatever the features are measured in
neighbours   a metric over every k and vote from one search (kway.neighbors.sweep)
centroid     one fit a fold

Scan: accuracy and log loss (folds, settings)

A family says itself when it is not worth running unless it is asked for by name (`idle`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import kway
from kway.linear.losses import LOSSES
from kway.linear.path import alpha_path
from kway.neighbors.sweep import sweep
from kway.planning import guard, linear_ways, row_ways
from kway.select.clock import Clock
from kway.select.scans import FoldedRows, Scan, mean_square, scores_of

SHARES = tuple(float(f"{a:.3g}") for a in np.logspace(-2, -7, 11))
FEW_SHARES = (1e-3, 1e-4, 1e-5, 1e-6)
MOST_NEIGHBORS = 50
HEAVY = 0.1  # seconds of one pass over the rows above which only alphas near the best are run
FIRST_ALPHAS = (4, 7)  # the alphas, by their place in SHARES, that are run first on such rows
COLD = 2.0  # a fit from nothing against one from the alpha before it
PROBED = 256  # rows that are asked first where all might take too long, to tell how long
LONG_SEARCH = 1e11  # values compared with values from which that may be


class Family(Protocol):
    """A kind of classifier with a grid of settings."""

    @property
    def name(self) -> str:
        """What the leaderboard calls it."""
        ...

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Score every setting on the folds `which`, as far as the clock allows."""
        ...

    def idle(self, data: FoldedRows) -> str:
        """Why it is not worth running on these rows unless asked for by name; "" where it is."""
        ...

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a setting."""
        ...


@dataclass(frozen=True)
class LinearFamily:
    """A linear loss over a path of alphas."""

    name: str
    estimator: str
    loss: str
    shares: tuple[float, ...] = SHARES
    params: dict[str, Any] = field(default_factory=dict)
    alphas: tuple[float, ...] = ()  # instead of shares

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Every alpha, strong to weak, with warm starts."""
        begun = time.perf_counter()
        guard.refuse(self.estimator, linear_ways.softmax, data.size())
        binary = data.codes.max() == 1 or self.params.get("multiclass") == "one-vs-all"
        form = LOSSES[self.loss].columns if binary else LOSSES[self.loss].joint
        alphas = self.alphas or tuple(float(f"{share * mean_square(data.X):.2g}") for share in self.shares)
        accuracy, loss, seconds = np.full((3, len(which), len(alphas)), np.nan)
        for own in self._pieces(data, accuracy):
            stop = clock.pace(len(own) * len(which))
            for row, fold in enumerate(which):  # one by one: a cut leaves out folds, not the weak alphas of all
                path = alpha_path(data.X, data.codes, form, [alphas[i] for i in own], data.folds, [fold], stop=stop)
                accuracy[row, own], loss[row, own], seconds[row, own] = path.accuracy, path.log_loss, path.seconds
            if clock.up():
                break
        run = np.isfinite(seconds)
        one = COLD * float(seconds[run].mean()) if run.any() else 0.0
        scan = Scan([{"alpha": alpha} for alpha in alphas], accuracy, loss, time.perf_counter() - begun, one)
        data.kept.setdefault(self.name, scan)
        return scan

    def _pieces(self, data: FoldedRows, accuracy: NDArray) -> Iterator[list[int]]:
        """Alphas to run together, by place: all, or where a fit takes long a few in the middle, and then two more at
        a time while the best lies at an end; on later folds the best of the first and those beside it."""
        n, first = accuracy.shape[1], data.kept.get(self.name)
        if data.pass_seconds() < HEAVY or n < FIRST_ALPHAS[1]:
            yield list(range(n))
            return
        if first is not None:
            yield list(range(max(0, first.best - 1), min(n, first.best + 2)))
            return
        low, high = FIRST_ALPHAS
        yield list(range(low, high))
        while True:
            best = int(np.nanargmax(accuracy[0]))
            if best == low > 0:
                low, piece = max(0, low - 2), range(max(0, low - 2), low)
            elif best == high - 1 < n - 1:
                high, piece = min(n, high + 2), range(high, min(n, high + 2))
            else:
                return
            yield list(piece)

    def idle(self, data: FoldedRows) -> str:
        """Softmax stands for the others where a fit is slow."""
        return _stood_for(self.name, data)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of an alpha."""
        return getattr(kway, self.estimator)(**self.params, **setting, random_state=seed)


@dataclass(frozen=True)
class NeighborsFamily:
    """A metric over every k and vote."""

    name: str
    metric: str
    votes: tuple[str, ...] = ("uniform", "distance")

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Every k and vote of every fold from one search, kept for the folds that are asked for later."""
        begun = time.perf_counter()
        folds = np.where(data.folds < 0, data.folds.max() + 1, data.folds)  # never asked for, but asked by the others
        k_max = min(MOST_NEIGHBORS, int(len(folds) - np.bincount(folds).max()))
        settings = [{"weights": vote, "n_neighbors": k + 1} for vote in self.votes for k in range(k_max)]
        if self.name not in data.kept:
            guard.refuse("NeighborsClassifier", row_ways.flat, data.size())
            if data.pairs() > LONG_SEARCH and clock.up(self._estimate(data, k_max)):
                nothing = np.full((len(which), len(settings)), np.nan)
                return Scan(settings, nothing, nothing, time.perf_counter() - begun)
            data.kept[self.name] = sweep(data.X, data.codes, folds, k_max, self.votes, self.metric)
        found = data.kept[self.name]
        flat = lambda scores: scores.reshape(scores.shape[0], -1)[which]  # noqa: E731
        seconds = time.perf_counter() - begun
        return Scan(settings, flat(found.accuracy), flat(found.log_loss), seconds, seconds / 4)

    def _estimate(self, data: FoldedRows, k_max: int) -> float:
        """Seconds of the search, from that of a few rows."""
        n = data.X.shape[0]
        model = kway.NeighborsClassifier(metric=self.metric).fit(data.X, data.codes)
        asked = data.X[:: max(1, n // PROBED)]
        model.kneighbors(asked[:8], k_max)  # compiled
        begun = time.perf_counter()
        model.kneighbors(asked, k_max)
        return (time.perf_counter() - begun) * n / asked.shape[0]

    def idle(self, data: FoldedRows) -> str:
        """Where metrics agree on who is near one is enough, and L1 says little of sparse rows."""
        if self.metric == "euclidean" and data.unit:
            return "rows have length 1, and the nearest by distance are then the nearest by cosine"
        if self.metric == "manhattan" and data.sparse:
            return "L1 between sparse rows counts the columns that only one has: slow, and seldom right"
        return ""

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a k and a vote."""
        return kway.NeighborsClassifier(metric=self.metric, **setting)


@dataclass(frozen=True)
class PlainFamily:
    """A classifier whose few settings are fitted one by one."""

    name: str
    estimator: str
    settings: tuple[dict[str, Any], ...] = ({},)

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """A fit a setting and fold."""
        begun = time.perf_counter()
        accuracy = np.full((len(which), len(self.settings)), np.nan)
        loss = accuracy.copy()
        stop = clock.pace(accuracy.size)
        for row, fold in enumerate(which):
            inside = data.folds == fold
            for column, setting in enumerate(self.settings):
                if stop():
                    break
                model = self.make(setting, 0).fit(data.X[~inside], data.codes[~inside])
                accuracy[row, column], loss[row, column] = scores_of(model, data.X[inside], data.codes[inside])
        seconds = time.perf_counter() - begun
        return Scan(list(self.settings), accuracy, loss, seconds, seconds / max(1, int(np.isfinite(accuracy).sum())))

    def idle(self, data: FoldedRows) -> str:
        """The perceptron is a linear one too."""
        return _stood_for(self.name, data)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a setting."""
        model = getattr(kway, self.estimator)(**setting)
        return model.set_params(random_state=seed) if "random_state" in model.get_params() else model


def _stood_for(name: str, data: FoldedRows) -> str:
    """Why a linear family gives way to softmax on these rows; "" where it does not."""
    seconds = data.pass_seconds()
    if name not in ALIKE or seconds < HEAVY:
        return ""
    return f"one pass over the rows takes about {seconds:.1f} s, and softmax stands for the linear ones; ask by name"


FAMILIES: dict[str, Any] = {  # name -> Family
    family.name: family
    for family in (
        # those that most often win first and the slowest last, so that a budget cuts what is missed least
        PlainFamily("centroid", "CentroidClassifier", ({"metric": "euclidean"}, {"metric": "cosine"})),
        LinearFamily("softmax", "SoftmaxClassifier", "softmax"),
        NeighborsFamily("neighbors", "euclidean"),
        NeighborsFamily("neighbors-cosine", "cosine"),
        NeighborsFamily("neighbors-manhattan", "manhattan"),
        LinearFamily("least-squares", "LeastSquaresClassifier", "squared", FEW_SHARES),
        LinearFamily("logistic", "LogisticClassifier", "logistic", FEW_SHARES, {"multiclass": "one-vs-all"}),
        PlainFamily("perceptron", "PerceptronClassifier", ({},)),
        LinearFamily("svm", "SVMClassifier", "hinge", FEW_SHARES),
    )
}
ALIKE = ("least-squares", "logistic", "perceptron", "svm")  # as softmax, with a line between classes: seldom better
STRAW_MAN = PlainFamily("least-squares-number", "LeastSquaresClassifier", ({"targets": "number"},))  # by name only
