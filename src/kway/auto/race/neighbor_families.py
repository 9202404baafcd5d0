"""Families of nearest neighbors: one search per metric gives the scores of every k and vote.

NeighborsFamily          a metric, every k up to 50 and both votes (kway.neighbors.tuning)
LearnedNeighborsFamily   neighbors behind a map of the columns that is learned from the labels
                         (kway.tables.features.components). In every fold the map is learned from the rows outside it.
                         Votes are 1 / d or exp(-d^2 / sigma^2), the kernel that the map was learned for (letter: log
                         loss 0.14 -> 0.08). Fold 0 tries scales of the columns and, starting from them, mixtures; the
                         other folds run the better of the two.

By cross-validation learned maps take covertype (12,000 rows, 54 columns) from 0.81 to 0.87 and letter (16,000, 16) from
0.95 to 0.97.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import kway
from kway.auto.race.clock import Clock
from kway.auto.race.scoring import ACCURACY, FoldedRows, FoldScores, HeldVotes, Scan
from kway.errors import InputError
from kway.neighbors.tuning import Electors, OutsideSearch, score_every_k
from kway.planning import guard
from kway.planning.costs import Size, flat
from kway.planning.rates import Rates
from kway.search.auto import choose
from kway.search.metrics import Gaussian, pick_metric
from kway.tables.features.components import REFERENCES, ColumnMap, learn_mixtures, learn_scales
from kway.validation import checked

MOST_NEIGHBORS = 50  # the largest k that is tried
SLACK = 0.5  # standard errors of the score that are given up for a lower log loss (digits: 5 levels became 139)
LONG_SEARCH = 1e11  # compared values from which a search first asks PROBED rows whether the family can win (T11)
PROBED = 500  # rows of that first question
KEPT_VALUES = 1 << 26  # values of the rows up to which their index is kept from fold 0 to the others (memory)
SIGMA = 0.7  # of the votes exp(-d^2 / sigma^2); the map was learned for 1, a sharper kernel is a point better
_MAPS = ("scales", "mixtures")
_MOST_COLUMNS = 128  # mixtures of d columns are d^2 numbers and cost d^2 times the rows drawn
_MOST_PAIRS = 1e11  # compared values of the searches of all folds up to which maps are learned unasked (T11)
_LEARN_SECONDS, _PAIR_COLUMNS = 2.5e-6, 25  # learning a map: seconds per drawn row and column; fixed cost in columns
_ROWS_PER_CLASS = 4  # mean number of drawn rows per class below which no map is learned


def search_seconds(size: Size) -> float:
    """Expected seconds of indexing rows and of predicting a quarter as many."""
    cost = flat(size, Rates())
    return cost.fit_seconds + size.n / 4 * cost.predict_seconds


@dataclass(frozen=True)
class NeighborsFamily:
    """A metric with every k and vote."""

    name: str
    metric: str
    votes: tuple[str, ...] = ("uniform", "distance")
    class_weight: str | None = None
    device: str = "cpu"
    slack: float = SLACK  # 0: the highest score alone decides
    description: str = ""

    weighs_classes = True

    def configured(self, class_weight: str | None, device: str) -> NeighborsFamily:
        """The family with a class weight, on a device if its metric can be computed there."""
        able = device == "auto" or pick_metric(self.metric).distance.by_products
        return replace(self, class_weight=class_weight or self.class_weight, device=device if able else self.device)

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Every k and vote on the folds `which`, from one index of all rows."""
        begun = time.perf_counter()
        folds = np.where(data.folds < 0, data.folds.max() + 1, data.folds)  # rows of fold -1 only serve as neighbors
        k_max = min(MOST_NEIGHBORS, int(len(folds) - np.bincount(folds).max()))
        settings = [{"weights": vote, "n_neighbors": k + 1} for vote in self.votes for k in range(k_max)]
        search = self._search(data, folds, k_max)
        electors = Electors(data.codes, self.votes, search.metric, class_weight=self.class_weight)
        may_be_hopeless = which[0] == 0 and data.pairs() > LONG_SEARCH
        if may_be_hopeless and (hint := self._hint(data, search, electors, clock)) is not None:
            scores = FoldScores.empty(len(which), len(settings))
            scores.accuracy[0] = hint
            seconds = time.perf_counter() - begun
            return Scan(settings, seconds=seconds, measure=data.measure, **scores._asdict())
        asked = np.flatnonzero(np.isin(folds, which))
        own = np.searchsorted(which, folds[asked])  # position of a row's fold in `which`, which is sorted
        found = search.nearest(asked)
        swept = score_every_k(found, data.codes[asked], own, electors)
        scores = FoldScores(*(getattr(swept, name).reshape(len(which), -1) for name in FoldScores._fields))
        seconds = time.perf_counter() - begun
        return Scan(
            settings,
            **scores._asdict(),
            seconds=seconds,
            fit_seconds=seconds / len(which),
            measure=data.measure,
            slack=self.slack,
            held=(HeldVotes(data.codes[asked], found, electors),),
        )

    def _search(self, data: FoldedRows, folds: NDArray[np.int64], k_max: int) -> OutsideSearch:
        """The index of all rows, kept for the next scan unless the rows are many."""
        if self.name in data.kept:
            return data.kept[self.name]
        guard.check_fit("NeighborsClassifier", flat, data.size())
        search = OutsideSearch(data.X, folds, k_max, self.metric)
        if (data.X.nnz if data.sparse else data.X.size) <= KEPT_VALUES:
            data.kept[self.name] = search
        return search

    def _hint(self, data: FoldedRows, search: OutsideSearch, electors: Electors, clock: Clock) -> NDArray | None:
        """Accuracies by setting on some rows of fold 0, if these show that the whole search is not worth its time.

        Nan if the time left is too short for the whole search. None if all rows should be searched, or if another
        measure than accuracy decides.
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

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip a metric that orders neighbors as another does, and L1 on sparse rows."""
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
        """Mostly the seconds of the predictions."""
        return search_seconds(size)


class _MapScores(NamedTuple):
    """Scores (votes, k_max) of one map on a fold, and the votes they come from."""

    scores: FoldScores
    votes: HeldVotes


@dataclass(frozen=True)
class LearnedNeighborsFamily:
    """Neighbors behind learned scales or mixtures of the columns, with every k and vote."""

    name: str
    votes: tuple[str, ...] = ("distance", "similarity")
    class_weight: str | None = None
    device: str = "cpu"
    description: str = ""

    weighs_classes = True

    def configured(self, class_weight: str | None, device: str) -> LearnedNeighborsFamily:
        """The family with a class weight, on a device."""
        return replace(self, class_weight=class_weight or self.class_weight, device=device)

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Every map, k and vote; the clock is asked between folds."""
        begun = time.perf_counter()
        if data.sparse:
            raise InputError(f"{self.name} learns weights of dense columns, and these rows are sparse; leave it out")
        k_max = min(MOST_NEIGHBORS, int(len(data.folds) - np.bincount(data.folds[data.folds >= 0]).max()))
        settings = [
            {"map": kind, "weights": vote, "n_neighbors": k + 1}
            for kind in _MAPS
            for vote in self.votes
            for k in range(k_max)
        ]
        scores = FoldScores.empty(len(which), len(settings))
        kinds: tuple[str, ...] = data.kept.get(self.name, _MAPS)
        stop, longest, held = clock.pace(len(which)), 0.0, list[HeldVotes]()
        for row, fold in enumerate(which):
            if stop():
                break
            fold_begun = time.perf_counter()
            for kind, (values, votes) in self._fold(data, fold, k_max, kinds).items():
                place = _MAPS.index(kind) * len(self.votes) * k_max
                for out, value in zip(scores, values):
                    out[row, place : place + value.size] = value.ravel()
                held.append(votes)
            longest = max(longest, time.perf_counter() - fold_begun)
        found = Scan(
            settings,
            **scores._asdict(),
            seconds=time.perf_counter() - begun,
            fit_seconds=longest,
            measure=data.measure,
            slack=SLACK,
            held=tuple(held),
        )
        if np.isfinite(found.scores).any():
            data.kept.setdefault(self.name, (found.settings[found.best]["map"],))
        return found

    def _fold(self, data: FoldedRows, fold: int, k_max: int, kinds: tuple[str, ...]) -> dict[str, _MapScores]:
        """The scores of each kind of map on a fold."""
        outside, inside = np.flatnonzero(data.folds != fold), np.flatnonzero(data.folds == fold)
        X, codes = data.X[outside], data.codes[outside]
        scales = learn_scales(X, codes)
        made = {"scales": scales}
        if "mixtures" in kinds:
            made["mixtures"] = learn_mixtures(X, codes, scales=scales)
        held, own = data.X[inside], data.codes[inside]
        return {kind: self._map_scores(kind, made[kind], X, codes, held, own, k_max) for kind in kinds}

    def _map_scores(
        self, kind: str, learned: ColumnMap, X: NDArray, codes: NDArray, held: NDArray, own: NDArray, k_max: int
    ) -> _MapScores:
        metric = Gaussian(SIGMA)
        index = choose(X.shape[0], X.shape[1], metric, False).recipe.build(checked(learned.apply(X)), metric)
        found = index.nearest(checked(learned.apply(held)), k_max)
        electors = Electors(codes, self.votes, metric, class_weight=self.class_weight)
        swept = score_every_k(found, own, np.zeros(len(own), np.int64), electors)
        scores = FoldScores(*(getattr(swept, name)[0] for name in FoldScores._fields))
        return _MapScores(scores, HeldVotes(own, found, electors, kind))

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip too many columns, too many pairs of rows, or too few rows per class."""
        if data.sparse or data.X.shape[1] > _MOST_COLUMNS:
            return f"weights of columns are learned up to {_MOST_COLUMNS} of them; ask by name"
        if data.pairs() > _MOST_PAIRS:
            return "its searches, one a fold, would take long; ask by name"
        if min(REFERENCES, len(data.codes)) < _ROWS_PER_CLASS * data.n_classes:
            return "too few rows a class to learn weights of columns from; ask by name"
        return ""

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """The estimator of a map, a k and a vote."""
        own = {name: value for name, value in setting.items() if name != "map"}
        near = kway.NeighborsClassifier(
            metric=Gaussian(SIGMA), class_weight=self.class_weight, device=self.device, **own
        )
        return kway.MappedClassifier(near, setting["map"], random_state=seed)

    def expected_seconds(self, size: Size) -> float:
        """Learning the map, and the search behind it."""
        drawn = min(size.n, REFERENCES)
        return _LEARN_SECONDS * drawn * (_PAIR_COLUMNS + size.d) + search_seconds(size)
