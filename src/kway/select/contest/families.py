"""Families of classifiers, each scored over all its settings on the same folds, sharing what can be shared.

linear       a loss over a path of alphas (kway.linear.path), given as shares of the mean square |x|^2 of a row: they
             then mean the same whatever the features are measured in
neighbours   a metric over every k and vote from one search (kway.neighbors.sweep)
learned      neighbours behind a map of the columns, learned anew in every fold (kway.select.contest.learned_neighbors)
centroid     one fit a fold

Scan: accuracy and log loss (folds, settings)

A family says itself when it is not worth running unless it is asked for by name (`idle`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

import kway
from kway.data.labels import Labels
from kway.linear.losses import LOSSES
from kway.linear.path import alpha_path
from kway.linear.problem import weighted_rows
from kway.neighbors.sweep import Electors, OutsideSearch, score_every_k
from kway.planning import guard, linear_ways, row_ways
from kway.planning.comparison import HEAVY, machine_fit_seconds
from kway.planning.rates import Rates
from kway.planning.size import Size
from kway.search.spaces.metrics import pick_metric
from kway.select.contest.clock import Clock
from kway.select.contest.learned_neighbors import LEARNED_SLACK, MOST_NEIGHBORS, LearnedNeighborsFamily, search_seconds
from kway.select.contest.measures import ACCURACY
from kway.select.contest.scans import FoldedRows, FoldScores, HeldVotes, Scan, mean_square, scan_of, scores_of
from kway.select.contest.stand_ins import ALIKE, MACHINES, QUICK_PASS, stood_for

_SHARES = tuple(float(f"{a:.3g}") for a in np.logspace(-2, -7, 11))
FEW_SHARES = (1e-3, 1e-4, 1e-5, 1e-6)
_TOL = 1e-3  # of fits on a path
_HEAVY_TOL = 1e-2  # on heavy rows: a third of the time, and of 2,500 classes 0.960 right against 0.957
KEPT_VALUES = 1 << 26  # of the rows up to which an index of them is kept from the first fold to the others
FIRST_ALPHAS = (4, 7)  # the alphas, by their place in SHARES, that are run first on such rows
COLD = 2.0  # a fit from nothing against one from the alpha before it
PROBED = 500  # rows that are asked first where all might take too long
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

    def expected_seconds(self, size: Size) -> float:
        """Of a fit, and of asking a quarter as many rows; at the default rates: what follows is the same everywhere."""
        ...


@dataclass(frozen=True)
class LinearFamily:
    """A linear loss over a path of alphas."""

    name: str
    estimator: str
    loss: str
    shares: tuple[float, ...] = _SHARES
    params: dict[str, Any] = field(default_factory=dict)
    alphas: tuple[float, ...] = ()  # instead of shares
    boxes: tuple[float, ...] = ()  # instead of shares: C of a machine's dual, alpha = |x|^2 / (n C)
    # place of the box that is taken unless a smaller one is clearly better: in 19 draws of 400 to 3,200 short texts a
    # smaller one was better for rows held out once, by half a point; noise of the folds chose it in 6, for up to -1.1
    usual: int | None = None

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Every alpha, strong to weak, with warm starts."""
        begun = time.perf_counter()
        guard.refuse(self.estimator, linear_ways.softmax_way, data.size())
        binary = data.codes.max() == 1 or self.params.get("multiclass") == "one-vs-all"
        form = LOSSES[self.loss].columns if binary else LOSSES[self.loss].joint
        alphas = self.alphas or tuple(float(f"{share * mean_square(data.X):.2g}") for share in self._shares(data))
        scores = FoldScores(*np.full((4, len(which), len(alphas)), np.nan))
        seconds, weight = np.full_like(scores.accuracy, np.nan), self._row_weights(data)
        tol = _HEAVY_TOL if data.pass_seconds() > HEAVY else _TOL
        for own in self._pieces(data, scores, clock.budget is not None):
            stop = clock.pace(len(own) * len(which))
            for row, fold in enumerate(which):  # one by one: a cut leaves out folds, not the weak alphas of all
                some = [alphas[i] for i in own]
                device = self.params.get("device", "cpu")
                path = alpha_path(data.X, data.codes, form, some, data.folds, [fold], weight, tol, None, stop, device)
                for name, values in scores._asdict().items():
                    values[row, own] = getattr(path, name)
                seconds[row, own] = path.seconds
            if clock.up():
                break
        run = np.isfinite(seconds)
        one = COLD * float(seconds[run].mean()) if run.any() else 0.0
        usual, took = (None if self.alphas else self.usual), time.perf_counter() - begun
        slack = 0.0 if usual is None else LEARNED_SLACK
        scan = scan_of([{"alpha": alpha} for alpha in alphas], scores, took, one, data, slack, usual=usual)
        data.kept.setdefault(self.name, scan)
        return scan

    def _shares(self, data: FoldedRows) -> tuple[float, ...]:
        return tuple(1 / (data.X.shape[0] * box) for box in self.boxes) or self.shares

    def _row_weights(self, data: FoldedRows) -> NDArray | None:
        """What each row counts (n,), where the estimator weighs classes."""
        labels = Labels(np.arange(data.codes.max() + 1), data.codes)
        return weighted_rows(data.X, labels, None, self.params.get("class_weight")).weight

    def _pieces(self, data: FoldedRows, scores: FoldScores, hurried: bool) -> Iterator[list[int]]:
        """Alphas to run together, by place. On the first fold a few in the middle and, unless these are out of the
        leader's sight, the others; where a fit takes long or time is short (which would else end before the weak ones)
        two more at a time while the best lies at an end. On later folds, unless rows are few, the best of the first
        and those beside it."""
        n, first, seconds = scores.accuracy.shape[1], data.kept.get(self.name), data.pass_seconds()
        if first is not None and seconds >= QUICK_PASS:
            beside = {*range(max(0, first.best - 1), min(n, first.best + 2))}
            yield sorted(beside if first.usual is None else beside | {first.usual})
            return
        low, high = FIRST_ALPHAS
        slow, sight = seconds >= HEAVY or hurried, data.kept.get("sight", -np.inf)
        if n <= high or not (slow or (first is None and sight > -np.inf)):
            yield list(range(n))
            return
        yield list(range(low, high))
        if np.nanmax(data.measure.of(scores)[0]) < sight:
            return
        if not slow:
            yield [*range(low), *range(high, n)]
            return
        while True:
            best = int(np.nanargmax(data.measure.of(scores)[0]))
            if best == low > 0:
                low, piece = max(0, low - 2), range(max(0, low - 2), low)
            elif best == high - 1 < n - 1:
                high, piece = min(n, high + 2), range(high, min(n, high + 2))
            else:
                return
            yield list(piece)

    def idle(self, data: FoldedRows) -> str:
        """One linear family stands for the others where a fit is slow."""
        return stood_for(self.name, data)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of an alpha."""
        return getattr(kway, self.estimator)(**self.params, **setting, random_state=seed)

    def expected_seconds(self, size: Size) -> float:
        """Answers are a moment's work."""
        apart = self.params.get("multiclass") == "one-vs-all"
        if apart and size.sparse and self.boxes:
            return machine_fit_seconds(size)
        return (linear_ways.one_vs_all if apart else linear_ways.softmax_way)(size, Rates()).fit_seconds


@dataclass(frozen=True)
class NeighborsFamily:
    """A metric over every k and vote."""

    name: str
    metric: str
    votes: tuple[str, ...] = ("uniform", "distance")
    class_weight: str | None = None
    device: str = "cpu"
    slack: float = LEARNED_SLACK  # 0: the highest score alone decides

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Every k and vote of the folds asked for, from one index of all rows."""
        begun = time.perf_counter()
        folds = np.where(data.folds < 0, data.folds.max() + 1, data.folds)  # never asked for, but asked by the others
        k_max = min(MOST_NEIGHBORS, int(len(folds) - np.bincount(folds).max()))
        settings = [{"weights": vote, "n_neighbors": k + 1} for vote in self.votes for k in range(k_max)]
        search = data.kept.get(self.name)
        if search is None:
            guard.refuse("NeighborsClassifier", row_ways.flat_way, data.size())
            search = OutsideSearch(data.X, folds, k_max, self.metric)
            if (data.X.nnz if data.sparse else data.X.size) <= KEPT_VALUES:
                data.kept[self.name] = search
        electors = Electors(data.codes, self.votes, search.metric, class_weight=self.class_weight)
        led = which[0] == 0 and data.pairs() > LONG_SEARCH
        if led and (hint := self._hint(data, search, electors, clock)) is not None:
            scores = FoldScores(*np.full((4, len(which), len(settings)), np.nan))
            scores.accuracy[0] = hint
            return scan_of(settings, scores, time.perf_counter() - begun, 0.0, data)
        asked = np.flatnonzero(np.isin(folds, which))
        own = np.searchsorted(which, folds[asked])  # the place of a row's fold in `which`, which is in order
        found = search.nearest(asked)
        swept = score_every_k(found, data.codes[asked], own, electors)
        scores = FoldScores(*(getattr(swept, name).reshape(len(which), -1) for name in FoldScores._fields))
        seconds = time.perf_counter() - begun
        held = HeldVotes(data.codes[asked], found, electors)
        return scan_of(settings, scores, seconds, seconds / len(which), data, self.slack, (held,))

    def _hint(self, data: FoldedRows, search: OutsideSearch, electors: Electors, clock: Clock) -> NDArray | None:
        """Where a search of all rows takes long, some rows of the first fold are asked before.

        Their accuracies by setting where these leave no hope, nan where the time left is too short for the rest; None
        where all rows are worth asking, or where accuracy is not what decides.
        """
        inside, begun = np.flatnonzero(data.folds == 0), time.perf_counter()
        asked = inside[:: max(1, len(inside) // PROBED)]
        one = np.zeros(len(asked), np.int64)
        hint = score_every_k(search.nearest(asked), data.codes[asked], one, electors).accuracy.ravel()
        if clock.up((time.perf_counter() - begun) * len(data.codes) / len(asked)):
            return np.full(len(hint), np.nan)
        best, lead = float(hint.max()), float(data.kept.get("lead", 0.0) if data.measure is ACCURACY else 0.0)
        noise = 2 * np.sqrt(max(best * (1 - best), 1 / len(asked)) / len(asked))
        return hint if best + noise < lead else None

    def idle(self, data: FoldedRows) -> str:
        """Where metrics agree on who is near one is enough, and L1 says little of sparse rows."""
        if self.metric == "euclidean" and data.unit:
            return "rows have length 1, and the nearest by distance are then the nearest by cosine"
        if self.metric == "manhattan" and data.sparse:
            return "L1 between sparse rows counts the columns that only one has: slow, and seldom right"
        return ""

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a k and a vote."""
        return kway.NeighborsClassifier(
            metric=self.metric, class_weight=self.class_weight, device=self.device, **setting
        )

    def expected_seconds(self, size: Size) -> float:
        """Most of them are those of the answers."""
        return search_seconds(size)


@dataclass(frozen=True)
class PlainFamily:
    """A classifier whose few settings are fitted one by one."""

    name: str
    estimator: str
    settings: tuple[dict[str, Any], ...] = ({},)
    counts: bool = False  # whether it is for sparse rows without negative values alone

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """A fit a setting and fold."""
        begun = time.perf_counter()
        scores = FoldScores(*np.full((4, len(which), len(self.settings)), np.nan))
        stop = clock.pace(scores.accuracy.size)
        for row, fold in enumerate(which):
            inside = data.folds == fold
            for column, setting in enumerate(self.settings):
                if stop():
                    break
                if data.unit and setting.get("metric") == "euclidean":
                    continue  # the nearest mean by distance or by angle: nearly the same, and sparse rows stay sparse
                model = self.make(setting, 0).fit(data.X[~inside], data.codes[~inside])
                for values, value in zip(scores, scores_of(model, data.X[inside], data.codes[inside])):
                    values[row, column] = value
        seconds = time.perf_counter() - begun
        run = max(1, int(np.isfinite(scores.accuracy).sum()))
        return scan_of(list(self.settings), scores, seconds, seconds / run, data)

    def idle(self, data: FoldedRows) -> str:
        """The perceptron is a linear one too; counts are what sparse rows hold."""
        if self.counts and not (data.sparse and data.X.data.min(initial=0) >= 0):
            return "it is for counts and tf-idf, sparse rows without negative values"
        return stood_for(self.name, data)

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a setting."""
        model = getattr(kway, self.estimator)(**setting)
        return model.set_params(random_state=seed) if "random_state" in model.get_params() else model

    def expected_seconds(self, size: Size) -> float:
        """Sums a class, or the passes of a perceptron."""
        way = linear_ways.one_vs_all if self.name in ALIKE else linear_ways.centroids
        return way(size, Rates()).fit_seconds


def weighs_classes(family: Any) -> bool:
    """Whether class weights change what a family learns."""
    if isinstance(family, PlainFamily):
        return "class_weight" in getattr(kway, family.estimator)().get_params()
    return isinstance(family, (LinearFamily, NeighborsFamily, LearnedNeighborsFamily))


def with_class_weight(family: Any, class_weight: str | None) -> Any:
    """The family with classes weighed, where its estimator can: nearest means have no rows to weigh."""
    if class_weight is None or not weighs_classes(family):
        return family
    if isinstance(family, LinearFamily):
        return replace(family, params={**family.params, "class_weight": class_weight})
    if isinstance(family, (NeighborsFamily, LearnedNeighborsFamily)):
        return replace(family, class_weight=class_weight)
    return replace(family, settings=tuple({**s, "class_weight": class_weight} for s in family.settings))


def computed_on(family: Any, device: str) -> Any:
    """The family whose estimators compute on a device, where they can; "auto" leaves that to them."""
    if device == "cpu":
        return family
    if isinstance(family, LinearFamily):
        return replace(family, params={**family.params, "device": device})
    if isinstance(family, NeighborsFamily):
        able = device == "auto" or pick_metric(family.metric).distance.by_products
        return replace(family, device=device) if able else family
    if isinstance(family, LearnedNeighborsFamily):
        return replace(family, device=device)
    if "device" not in getattr(kway, family.estimator)().get_params():
        return family
    return replace(family, settings=tuple({**s, "device": device} for s in family.settings))


FAMILIES: dict[str, Any] = {  # name -> Family
    family.name: family
    for family in (
        # those that most often win first and the slowest last, so that a budget cuts what is missed least
        PlainFamily("centroid", "CentroidClassifier", ({"metric": "euclidean"}, {"metric": "cosine"})),
        LinearFamily("softmax", "SoftmaxClassifier", "softmax"),
        PlainFamily(
            "naive-bayes", "NaiveBayesClassifier", tuple({"smoothing": s} for s in (0.03, 0.1, 0.3, 1.0)), counts=True
        ),
        LinearFamily(
            MACHINES,
            "LinearClassifier",
            "rounded-hinge",
            params={"loss": "rounded-hinge", "multiclass": "one-vs-all", "tol": 0.1},
            boxes=(0.6, 2.0, 6.0, 20.0),
            usual=2,
        ),
        LinearFamily(
            "svm-one-vs-all",
            "SVMClassifier",
            "hinge",
            params={"multiclass": "one-vs-all", "tol": 0.1},  # 10,000 questions: accuracy 0.9146; 0.9140 at 0.01
            boxes=(0.3, 1.0, 3.0, 10.0),
        ),
        NeighborsFamily("neighbors", "euclidean"),
        NeighborsFamily("neighbors-cosine", "cosine"),
        NeighborsFamily("neighbors-manhattan", "manhattan"),
        LearnedNeighborsFamily("neighbors-learned"),
        LinearFamily("least-squares", "LeastSquaresClassifier", "squared", FEW_SHARES),
        LinearFamily("logistic", "LogisticClassifier", "logistic", FEW_SHARES, {"multiclass": "one-vs-all"}),
        PlainFamily("perceptron", "PerceptronClassifier", ({},)),
        LinearFamily("svm", "SVMClassifier", "hinge", FEW_SHARES),
    )
}
STRAW_MAN = PlainFamily("least-squares-number", "LeastSquaresClassifier", ({"targets": "number"},))  # by name only
