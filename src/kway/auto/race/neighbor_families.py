"""Families of nearest neighbors: one search per metric gives the scores of every k and vote.

NeighborsFamily      one metric, every k up to 50 and both votes (kway.neighbors.tuning)
NcaNeighborsFamily   neighbors after a map of the columns that is learned from the labels by neighborhood components
                     analysis (kway.tables.features.components). Each fold learns its map from the rows outside it.
                     Votes are 1 / d or exp(-d^2 / sigma^2). Fold 0 tries scales of the columns and, starting from
                     them, mixtures of the columns. The other folds run the better of the two.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kway
from kway.auto.race.clock import Clock
from kway.auto.race.folds import ROWS_PER_CLASS
from kway.auto.race.scoring import TABLE_COLUMNS, FoldedRows, FoldScores, HeldOutVotes, Scan
from kway.errors import InputError
from kway.memory import has_room
from kway.neighbors.tuning import Electors, OutsideSearch, score_every_k
from kway.planning import costs
from kway.planning.costs import Size, flat
from kway.planning.rates import Rates
from kway.search.auto import choose
from kway.search.metrics import Gaussian, pick_metric
from kway.tables.features.components import REFERENCES, ColumnMap, learn_mixtures, learn_scales
from kway.validation import checked

MOST_NEIGHBORS = 50  # the largest k that is tried (T6)
SLACK = 0.5  # standard errors of the score that are given up for a lower log loss (T11, digits)
_LONG_SEARCH = 10.0  # expected seconds of a search above which no map of the columns is learned (T11)
SIGMA = 0.7  # of the votes exp(-d^2 / sigma^2) after a learned map (T11, letter)
_LEARN_SECONDS = 2e-4  # seconds of learning a map, per drawn row (T11, letter)
_MAPS = ("scales", "mixtures")


def search_seconds(size: Size) -> float:
    """Return the expected seconds of indexing rows and of predicting a quarter as many."""
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
    slack: float = SLACK  # 0: only the highest score decides
    description: str = ""

    weighs_classes = True

    def configured(self, class_weight: str | None, device: str) -> NeighborsFamily:
        """Return the family with a class weight, on a device that can compute its metric."""
        able = device == "auto" or pick_metric(self.metric).distance.by_products
        return replace(self, class_weight=class_weight or self.class_weight, device=device if able else self.device)

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Score every k and vote on the folds `which`, from one index of all rows."""
        begun = time.perf_counter()
        folds = np.where(data.folds < 0, data.folds.max() + 1, data.folds)  # rows of fold -1 only serve as neighbors
        k_max = min(MOST_NEIGHBORS, int(len(folds) - np.bincount(folds).max()))
        settings = [{"weights": vote, "n_neighbors": k + 1} for vote in self.votes for k in range(k_max)]
        search = self._search(data, folds, k_max)
        electors = Electors(data.codes, self.votes, search.metric, class_weight=self.class_weight)
        if clock.up(data.search_seconds() * len(which) / data.n_folds):
            return Scan(settings, **FoldScores.empty(len(which), len(settings))._asdict(), seconds=0.0)
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
            held=(HeldOutVotes(data.codes[asked], found, electors),),
        )

    def _search(self, data: FoldedRows, folds: NDArray[np.int64], k_max: int) -> OutsideSearch:
        """Return the index of all rows, kept for the next scan if memory has room."""
        if self.name in data.cache:
            return data.cache[self.name]
        costs.check_fit("NeighborsClassifier", flat, data.size())
        search = OutsideSearch(data.X, folds, k_max, self.metric)
        if has_room(3 * flat(data.size(), Rates()).model_bytes):  # three metrics keep an index each
            data.cache[self.name] = search
        return search

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip a metric that orders neighbors as another does, and L1 on sparse rows."""
        if self.metric == "euclidean" and data.unit:
            return "rows have length 1, so Euclidean distance and cosine give the same neighbors"
        if self.metric == "manhattan" and data.sparse:
            return "L1 distance is slow on sparse rows and seldom good"
        return ""

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a k and a vote."""
        return kway.NeighborsClassifier(
            metric=self.metric, class_weight=self.class_weight, device=self.device, **setting
        )

    def expected_seconds(self, size: Size) -> float:
        """Return the expected seconds, mostly of the predictions."""
        return search_seconds(size)


@dataclass(frozen=True)
class NcaNeighborsFamily:
    """Neighbors after learned scales or mixtures of the columns, with every k and vote."""

    name: str
    votes: tuple[str, ...] = ("distance", "similarity")
    class_weight: str | None = None
    device: str = "cpu"
    description: str = ""

    weighs_classes = True

    def configured(self, class_weight: str | None, device: str) -> NcaNeighborsFamily:
        """Return the family with a class weight, on a device."""
        return replace(self, class_weight=class_weight or self.class_weight, device=device)

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Score every map, k and vote, as many folds as the clock allows."""
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
        kinds: tuple[str, ...] = data.cache.get(self.name, _MAPS)
        stop, longest, held = clock.pace(len(which)), 0.0, list[HeldOutVotes]()
        for row, fold in enumerate(which):
            if stop():
                break
            fold_begun = time.perf_counter()
            for kind, learned in _learn_maps(data, fold, kinds).items():
                votes = self._votes(kind, learned, data, fold, k_max)
                swept = score_every_k(votes.found, votes.codes, np.zeros(len(votes.codes), np.int64), votes.electors)
                place = _MAPS.index(kind) * len(self.votes) * k_max
                for name, out in scores._asdict().items():
                    values = getattr(swept, name).ravel()
                    out[row, place : place + values.size] = values
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
            data.cache.setdefault(self.name, (found.settings[found.best]["map"],))
        return found

    def _votes(self, kind: str, learned: ColumnMap, data: FoldedRows, fold: int, k_max: int) -> HeldOutVotes:
        """Return the rows outside the fold that are nearest to those inside, after a map."""
        metric, outside, inside = Gaussian(SIGMA), data.folds != fold, data.folds == fold
        X, codes = data.X[outside], data.codes[outside]
        index = choose(X.shape[0], X.shape[1], metric, False).recipe.build(checked(learned.apply(X)), metric)
        found = index.nearest(checked(learned.apply(data.X[inside])), k_max)
        electors = Electors(codes, self.votes, metric, class_weight=self.class_weight)
        return HeldOutVotes(data.codes[inside], found, electors, kind)

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip rows with many columns, long searches, and classes with few rows."""
        if not data.is_table:
            return f"weights of columns are learned for dense rows with at most {TABLE_COLUMNS} columns"
        if data.search_seconds() > _LONG_SEARCH:
            return "its searches, one per fold, would take long"
        if min(REFERENCES, len(data.codes)) < ROWS_PER_CLASS * data.n_classes:
            return "there are too few rows per class to learn weights of columns"
        return ""

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a map, a k and a vote."""
        own = {name: value for name, value in setting.items() if name != "map"}
        neighbors = kway.NeighborsClassifier(
            metric=Gaussian(SIGMA), class_weight=self.class_weight, device=self.device, **own
        )
        return kway.MappedClassifier(neighbors, setting["map"], random_state=seed)

    def expected_seconds(self, size: Size) -> float:
        """Return the expected seconds of learning the map and of the search after it."""
        return _LEARN_SECONDS * min(size.n, REFERENCES) + search_seconds(size)


def _learn_maps(data: FoldedRows, fold: int, kinds: tuple[str, ...]) -> dict[str, ColumnMap]:
    """Learn maps of the columns from the rows outside a fold."""
    X, codes = data.X[data.folds != fold], data.codes[data.folds != fold]
    scales = learn_scales(X, codes)
    learned = {"scales": scales}
    if "mixtures" in kinds:
        learned["mixtures"] = learn_mixtures(X, codes, scales=scales)
    return {kind: learned[kind] for kind in kinds}
