"""Families of nearest neighbors. One search gives the predictions of every k and vote (kway.neighbors.tuning).

With `maps`, the columns are first scaled or mixed by a map that neighborhood components analysis learns from the labels
(kway.tables.features.components). The votes are then 1 / d or exp(-d^2 / sigma^2) at distance d.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import kway
from kway.auto.race.family import Family, Stop
from kway.auto.race.folds import ROWS_PER_CLASS
from kway.auto.race.scoring import TABLE_COLUMNS, FoldedRows, Predictions
from kway.confidence.splits import Split
from kway.errors import InputError
from kway.neighbors.tuning import Electors, OutsideSearch, votes_of_every_k
from kway.planning import costs
from kway.planning.costs import Size, flat
from kway.planning.rates import Rates
from kway.search.auto import choose
from kway.search.metrics import Metric, pick_metric
from kway.search.results import Neighbors
from kway.tables.features.components import REFERENCES, ColumnMap, learn_mixtures, learn_scales
from kway.validation import Rows, checked

MAX_NEIGHBORS = 50  # the largest k of the settings
SIGMA = 0.7  # of the votes exp(-d^2 / sigma^2) after a learned map (decided by letter, benchmarks/tables.py)
NO_MAP = ""


@dataclass(frozen=True)
class NeighborsFamily(Family):
    """A metric with every k and vote, on the columns as given or after learned maps of the columns."""

    estimator: str = field(default="NeighborsClassifier", kw_only=True)
    metric: str | Metric
    votes: tuple[str, ...] = ("distance", "uniform")
    maps: tuple[str, ...] = (NO_MAP,)

    @property
    def weighs_rows(self) -> bool:
        """Return False: one search does not give the votes of every k for rows with weights (`weighted_neighbors`)."""
        return False

    def configured(self, class_weight: str | None, device: str) -> Family:
        """Return the family with a class weight, on a device that can compute its metric."""
        runs_there = device == "auto" or pick_metric(self.metric).distance.by_products
        return super().configured(class_weight, device if runs_there else "cpu")

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return every map, vote and k; k changes fastest."""
        largest_fold = int(np.bincount(data.folds[data.folds >= 0]).max())
        k_max = min(MAX_NEIGHBORS, len(data.folds) - largest_fold)
        return [
            ({"map": map} if map else {}) | {"weights": vote, "n_neighbors": k + 1}
            for map in self.maps for vote in self.votes for k in range(k_max)
        ]  # fmt: skip

    def fit_predict(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], active: Sequence[int], stop: Stop
    ) -> Predictions:
        """Search once per map, and count every vote for every k."""
        begun = time.perf_counter()
        if self.maps != (NO_MAP,) and data.sparse:
            raise InputError(f"{self.name} learns weights of dense columns, and these rows are sparse; leave it out")
        X, codes = data.X[split.train], data.codes[split.train]
        held_out, held_out_codes = data.X[split.held_out], data.codes[split.held_out]
        predictions = Predictions.empty(len(held_out_codes), len(settings))
        electors = self._electors(codes)
        active_kinds = {settings[at].get("map", NO_MAP) for at in active}
        for kind, map in _learn_maps(X, codes, [kind for kind in self.maps if kind in active_kinds]).items():
            if stop():
                break
            neighbors = self._search(*(rows if map is None else map.apply(rows) for rows in (X, held_out)))
            of_map = [at for at in active if settings[at].get("map", NO_MAP) == kind]
            _count_votes(predictions, neighbors, held_out_codes, electors, settings, of_map)
        return predictions._replace(seconds=time.perf_counter() - begun)

    def predict_folds(self, data: FoldedRows, settings: Sequence[dict[str, Any]]) -> list[Predictions]:
        """Return the predictions on every fold, from one index of all rows, for a family without learned maps.

        They equal those of `fit_predict` on each fold, except with ties="prior", where they use the frequencies of the
        classes in all rows. One index costs less than one per fold, but it needs all folds.
        """
        begun = time.perf_counter()
        metric, held_out = pick_metric(self.metric), np.flatnonzero(data.folds >= 0)
        costs.check_fit("NeighborsClassifier", flat, costs.size_of(data.X, 2))
        k_max = max(setting["n_neighbors"] for setting in settings)
        neighbors = OutsideSearch(data.X, data.folds, k_max, metric).nearest(held_out)
        predictions = Predictions.empty(len(held_out), len(settings))
        every = range(len(settings))
        _count_votes(predictions, neighbors, data.codes[held_out], self._electors(data.codes), settings, every)
        seconds = (time.perf_counter() - begun) / data.n_folds
        members = (data.folds[held_out] == fold for fold in range(data.n_folds))
        return [Predictions(predictions.predicted[rows], predictions.losses[rows], seconds) for rows in members]

    def _electors(self, codes: NDArray[np.int64]) -> Electors:
        ties, class_weight = self.params.get("ties", "nearest"), self.params.get("class_weight")
        return Electors(codes, self.votes, pick_metric(self.metric), ties, class_weight)

    def _search(self, X: Rows, held_out: Rows) -> Neighbors:
        costs.check_fit("NeighborsClassifier", flat, costs.size_of(X, 2))
        metric = pick_metric(self.metric)
        index = choose(X.shape[0], X.shape[1], metric, hasattr(X, "tocsr")).recipe.build(checked(X), metric)
        return index.nearest(checked(held_out), min(MAX_NEIGHBORS, X.shape[0]))

    def skip_reason(self, data: FoldedRows) -> str:
        """Leave out a metric that orders neighbors like another one, L1 on sparse rows, and maps of many columns."""
        if self.metric == "euclidean" and data.unit:
            return "rows have length 1, so Euclidean distance and cosine give the same neighbors"
        if self.metric == "manhattan" and data.sparse:
            return "the L1 distance is slow on sparse rows and seldom accurate"
        if self.maps == (NO_MAP,):
            return ""
        if not data.is_table:
            return f"weights of columns are learned for dense rows with at most {TABLE_COLUMNS} columns"
        if min(REFERENCES, len(data.codes)) < ROWS_PER_CLASS * data.n_classes:
            return "there are too few rows per class to learn weights of columns"
        return ""

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a map, a k and a vote."""
        votes = {name: value for name, value in setting.items() if name != "map"}
        neighbors = kway.NeighborsClassifier(metric=self.metric, **self.params, **votes)
        return kway.MappedClassifier(neighbors, setting["map"], random_state=seed) if "map" in setting else neighbors

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of learning the maps, and of searching for a fifth of all rows."""
        cost = flat(size, Rates())
        search = cost.fit_seconds + size.n / 4 * cost.predict_seconds
        learning = 0.0 if self.maps == (NO_MAP,) else 2e-4 * min(size.n, REFERENCES)  # seconds per row
        return self.planned_fits() * (learning + search)

    def planned_fits(self) -> int:
        """Return the number of maps; one search serves every k and vote."""
        return len(self.maps)


def _count_votes(
    predictions: Predictions,
    neighbors: Neighbors,
    codes: NDArray[np.int64],
    electors: Electors,
    settings: Sequence[dict[str, Any]],
    active: Sequence[int],
) -> None:
    """Fill in the predictions of the active settings, for queries with class codes (q,) and these neighbors (q, k)."""
    k_max = neighbors.ids.shape[1]  # a sample may have fewer rows than k
    for vote in electors.votes:
        votes = votes_of_every_k(neighbors, codes, electors, vote)
        of_vote = [i for i in active if settings[i]["weights"] == vote]
        at = np.array([i for i in of_vote if settings[i]["n_neighbors"] <= k_max], np.int64)
        k = np.array([settings[i]["n_neighbors"] for i in at], np.int64)
        predictions.predicted[:, at] = votes.winners[:, k - 1]
        predictions.losses[:, at] = votes.losses[:, k - 1]


def _learn_maps(X: Rows, codes: NDArray[np.int64], kinds: Sequence[str]) -> dict[str, ColumnMap | None]:
    """Return the maps of the columns learned from rows X (n, d) with class codes; None for no map."""
    if NO_MAP in kinds:
        return {NO_MAP: None}
    scales = learn_scales(X, codes)
    return {kind: scales if kind == "scales" else learn_mixtures(X, codes, scales=scales) for kind in kinds}
