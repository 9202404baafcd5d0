"""Neighbours whose columns are weighed, or mixed, by what the labels say of them, as a family.

In every fold the map is learned from the rows outside (kway.data.features.components), since labels of held-out rows
must not shape it, and one search in the mapped rows gives every k and vote: by 1 / d, or by exp(-d^2 / sigma^2), which
is what the map was learned for and states smooth probabilities (letter: log loss 0.14 -> 0.08). The first fold tries
scales and, from them, mixtures; the others run the better of the two.

By folds, covertype (12,000 rows, 54 columns) 0.81 -> 0.87, letter (16,000, 16) 0.95 -> 0.97.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import kway
from kway.data.features.column_map import ColumnMap
from kway.data.features.components import REFERENCES, learn_mixtures, learn_scales
from kway.data.gate import checked
from kway.errors import InputError
from kway.neighbors.sweep import Electors, score_every_k
from kway.planning.rates import Rates
from kway.planning.row_ways import flat_way
from kway.planning.size import Size
from kway.search.auto import choose
from kway.search.spaces.metrics import Gaussian
from kway.select.contest.clock import Clock
from kway.select.contest.scans import FoldedRows, FoldScores, HeldVotes, Scan, scan_of

MOST_NEIGHBORS = 50
LEARNED_SLACK = 0.5  # standard errors of a score given for a lower log loss (digits: 5 levels became 139)
SIGMA = 0.7  # of the votes exp(-d^2 / sigma^2): 1 is what the map was learned for; sharper is a point better
_MAPS = ("scales", "mixtures")
_WIDEST = 128  # columns: mixtures of d columns are d^2 numbers, and cost d^2 times the rows drawn
_MOST_PAIRS = 1e11  # values compared with values by the searches of all folds
_LEARNING, _A_PAIR = 2.5e-6, 25  # seconds of learning a map, a row drawn and column; what a pair costs beside columns
_LEAST_A_CLASS = 4  # rows of a class among those drawn, as a mean: with fewer there is nobody to come near to


class _Voted(NamedTuple):
    """Scores (votes, k_max) on a fold, and the votes they come from."""

    scores: FoldScores
    votes: HeldVotes


@dataclass(frozen=True)
class LearnedNeighborsFamily:
    """Neighbours behind learned scales or mixtures, over every k and vote."""

    name: str
    votes: tuple[str, ...] = ("distance", "similarity")
    class_weight: str | None = None
    device: str = "cpu"

    def scan(self, data: FoldedRows, which: list[int], clock: Clock) -> Scan:
        """Every map, k and vote; a fold is one piece of work and map, the clock is asked between them."""
        begun = time.perf_counter()
        if data.sparse:
            raise InputError(f"{self.name} learns weights of dense columns, and these rows are sparse; leave it out")
        k_max = min(MOST_NEIGHBORS, int(len(data.folds) - np.bincount(data.folds[data.folds >= 0]).max()))
        settings = [
            {"map": kind, "weights": vote, "n_neighbors": k + 1}
            for kind in _MAPS for vote in self.votes for k in range(k_max)
        ]  # fmt: skip
        scores = FoldScores(*np.full((4, len(which), len(settings)), np.nan))
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
        found = scan_of(settings, scores, time.perf_counter() - begun, longest, data, LEARNED_SLACK, tuple(held))
        if np.isfinite(found.scores).any():
            data.kept.setdefault(self.name, (found.settings[found.best]["map"],))
        return found

    def _fold(self, data: FoldedRows, fold: int, k_max: int, kinds: tuple[str, ...]) -> dict[str, _Voted]:
        """For each kind of map its scores (votes, k_max) on a fold, and the votes."""
        outside, inside = np.flatnonzero(data.folds != fold), np.flatnonzero(data.folds == fold)
        X, codes = data.X[outside], data.codes[outside]
        scales = learn_scales(X, codes)
        made = {"scales": scales}
        if "mixtures" in kinds:
            made["mixtures"] = learn_mixtures(X, codes, scales=scales)
        held, own = data.X[inside], data.codes[inside]
        return {kind: self._voted(kind, made[kind], X, codes, held, own, k_max) for kind in kinds}

    def _voted(
        self, kind: str, learned: ColumnMap, X: NDArray, codes: NDArray, held: NDArray, own: NDArray, k_max: int
    ) -> _Voted:
        metric = Gaussian(SIGMA)
        index = choose(X.shape[0], X.shape[1], metric, False).recipe.build(checked(learned.apply(X)), metric)
        found = index.nearest(checked(learned.apply(held)), k_max)
        electors = Electors(codes, self.votes, metric, class_weight=self.class_weight)
        swept = score_every_k(found, own, np.zeros(len(own), np.int64), electors)
        scores = FoldScores(*(getattr(swept, name)[0] for name in FoldScores._fields))
        return _Voted(scores, HeldVotes(own, found, electors, kind))

    def idle(self, data: FoldedRows) -> str:
        """Where there are too many columns, too many pairs of rows, or too few rows a class."""
        n_classes = int(data.codes.max()) + 1
        if data.sparse or data.X.shape[1] > _WIDEST:
            return f"weights of columns are learned up to {_WIDEST} of them; ask by name"
        if data.pairs() > _MOST_PAIRS:
            return "its searches, one a fold, would take long; ask by name"
        if min(REFERENCES, len(data.codes)) < _LEAST_A_CLASS * n_classes:
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
        """Of learning the map, and of the search behind it."""
        drawn = min(size.n, REFERENCES)
        return _LEARNING * drawn * (_A_PAIR + size.d) + search_seconds(size)


def search_seconds(size: Size) -> float:
    """Of indexing rows, and of asking a quarter as many."""
    way = flat_way(size, Rates())
    return way.fit_seconds + size.n / 4 * way.predict_seconds
