"""Families of nearest neighbors: one search gives the predictions of every k and vote (kway.neighbors.tuning).

With `maps`, the columns are first scaled or mixed by a map that is learned from the labels by neighborhood components
analysis (kway.tables.features.components), and votes are 1 / d or exp(-d^2 / sigma^2).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kway
from kway.auto.race.folds import ROWS_PER_CLASS, Split
from kway.auto.race.scoring import TABLE_COLUMNS, FoldedRows, Predictions
from kway.errors import InputError
from kway.neighbors.tuning import Electors, votes_of_every_k
from kway.planning import costs
from kway.planning.costs import Size, flat
from kway.planning.rates import Rates
from kway.search.auto import choose
from kway.search.metrics import Metric, pick_metric
from kway.search.results import Neighbors
from kway.tables.features.components import REFERENCES, ColumnMap, learn_mixtures, learn_scales
from kway.validation import Rows, checked

MOST_NEIGHBORS = 50  # the largest k that is tried (T6)
SIGMA = 0.7  # of the votes exp(-d^2 / sigma^2) after a learned map (T11, letter)
_LEARN_SECONDS = 2e-4  # seconds of learning a map, per drawn row (T11, letter)
_NO_MAP = ""


@dataclass(frozen=True)
class NeighborsFamily:
    """A metric with every k and vote, on the columns as they are or after maps of them."""

    name: str
    metric: str | Metric
    votes: tuple[str, ...] = ("distance", "uniform")
    maps: tuple[str, ...] = (_NO_MAP,)
    class_weight: str | None = None
    device: str = "cpu"
    description: str = ""
    view: str = ""

    weighs_classes = True
    for_blend = False

    def configured(self, class_weight: str | None, device: str) -> NeighborsFamily:
        """Return the family with a class weight, on a device that can compute its metric."""
        able = device == "auto" or pick_metric(self.metric).distance.by_products
        return replace(self, class_weight=class_weight or self.class_weight, device=device if able else self.device)

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return every map, vote and k, k fastest."""
        k_max = min(MOST_NEIGHBORS, len(data.folds) - int(np.bincount(data.folds[data.folds >= 0]).max()))
        return [
            ({"map": map} if map else {}) | {"weights": vote, "n_neighbors": k + 1}
            for map in self.maps for vote in self.votes for k in range(k_max)
        ]  # fmt: skip

    def fit_predict(
        self,
        data: FoldedRows,
        split: Split,
        settings: Sequence[dict[str, Any]],
        wanted: Sequence[int],
        stop: Callable[[], bool],
    ) -> Predictions:
        """Search once per map, and count every vote for every k."""
        begun = time.perf_counter()
        if self.maps != (_NO_MAP,) and data.sparse:
            raise InputError(f"{self.name} learns weights of dense columns, and these rows are sparse; leave it out")
        X, codes = data.X[split.train], data.codes[split.train]
        held_out, own = data.X[split.held_out], data.codes[split.held_out]
        predictions = Predictions.empty(len(own), len(settings))
        electors = Electors(codes, self.votes, pick_metric(self.metric), class_weight=self.class_weight)
        kinds = {settings[at].get("map", _NO_MAP) for at in wanted}
        for kind, learned in _learn_maps(X, codes, [kind for kind in self.maps if kind in kinds]).items():
            if stop():
                break
            found = self._search(X if learned is None else learned.apply(X),
                                 held_out if learned is None else learned.apply(held_out))  # fmt: skip
            for vote in self.votes:
                like = [at for at in wanted if settings[at].get("map", _NO_MAP) == kind]
                like = [at for at in like if settings[at]["weights"] == vote]
                ks = np.array([settings[at]["n_neighbors"] - 1 for at in like], np.int64)
                votes = votes_of_every_k(found, own, electors, vote)
                enough = ks < votes.winners.shape[1]  # a sample may have fewer rows than k
                like = [at for at, reached in zip(like, enough) if reached]
                predictions.predicted[:, like] = votes.winners[:, ks[enough]]
                predictions.losses[:, like] = votes.losses[:, ks[enough]]
        return predictions._replace(seconds=time.perf_counter() - begun)

    def _search(self, X: Rows, held_out: Rows) -> Neighbors:
        costs.check_fit("NeighborsClassifier", flat, costs.size_of(X, 2))
        metric = pick_metric(self.metric)
        index = choose(X.shape[0], X.shape[1], metric, hasattr(X, "tocsr")).recipe.build(checked(X), metric)
        return index.nearest(checked(held_out), min(MOST_NEIGHBORS, X.shape[0]))

    def skip_reason(self, data: FoldedRows) -> str:
        """Skip a metric that orders neighbors as another does, L1 on sparse rows, and maps of many columns."""
        if self.metric == "euclidean" and data.unit:
            return "rows have length 1, so Euclidean distance and cosine give the same neighbors"
        if self.metric == "manhattan" and data.sparse:
            return "L1 distance is slow on sparse rows and seldom good"
        if self.maps == (_NO_MAP,):
            return ""
        if not data.is_table:
            return f"weights of columns are learned for dense rows with at most {TABLE_COLUMNS} columns"
        if min(REFERENCES, len(data.codes)) < ROWS_PER_CLASS * data.n_classes:
            return "there are too few rows per class to learn weights of columns"
        return ""

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a map, a k and a vote."""
        own = {name: value for name, value in setting.items() if name != "map"}
        neighbors = kway.NeighborsClassifier(
            metric=self.metric, class_weight=self.class_weight, device=self.device, **own
        )
        return kway.MappedClassifier(neighbors, setting["map"], random_state=seed) if "map" in setting else neighbors

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of learning the maps, and of the searches of a quarter as many rows."""
        cost = flat(size, Rates())
        search = cost.fit_seconds + size.n / 4 * cost.predict_seconds
        learning = 0.0 if self.maps == (_NO_MAP,) else _LEARN_SECONDS * min(size.n, REFERENCES)
        return len(self.maps) * (learning + search)


def _learn_maps(X: Rows, codes: NDArray[np.int64], kinds: Sequence[str]) -> dict[str, ColumnMap | None]:
    """Learn maps of the columns from rows with class codes."""
    if _NO_MAP in kinds:
        return {_NO_MAP: None}
    scales = learn_scales(X, codes)
    return {kind: scales if kind == "scales" else learn_mixtures(X, codes, scales=scales) for kind in kinds}
