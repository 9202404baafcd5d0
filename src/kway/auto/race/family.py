"""Family: the base of all families of classifiers. Runner: a family in a race.

A family predicts the same held-out rows with all its settings. A race calls the methods in this order: `configured`,
`skip_reason`, `settings`, `planned_seconds` and `fit_predict` for each split, and `make` for the estimator of the
chosen setting. A runner keeps the predictions of its family, the scores of the settings, and the expected seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import has_fit_parameter

import kway
from kway.auto.race.paired import paired_difference
from kway.auto.race.scoring import ACCURACY, STOPPED, FoldedRows, Measure, Predictions, Scan
from kway.confidence.splits import Split, splits_of
from kway.planning.costs import Size

Stop = Callable[[], bool]  # called between two fits; True if the time is up


@dataclass(frozen=True)
class Family:
    """A kind of classifier with a list of settings.

    Attributes
    ----------
    name : str
        Name on the leaderboard.
    estimator : str
        Name of its estimator in `kway`.
    description : str
        Description in one line.
    view : str
        View of the rows that it learns from. "" is the main view, which is also used if the rows lack the view.
    for_blend : bool
        Whether it stays in the race to its end, so that a blend can contain it.
    """

    name: str
    estimator: str
    params: dict[str, Any] = field(default_factory=dict, kw_only=True)  # parameters of every setting
    description: str = field(default="", kw_only=True)
    view: str = field(default="", kw_only=True)
    for_blend: bool = field(default=False, kw_only=True)

    @property
    def weighs_classes(self) -> bool:
        """Whether class weights change what it learns; nearest class means have none."""
        return self.has("class_weight")

    @property
    def weighs_rows(self) -> bool:
        """Whether it learns with the weights of the rows (`FoldedRows.weights`)."""
        return has_fit_parameter(getattr(kway, self.estimator)(), "sample_weight")

    def has(self, parameter: str) -> bool:
        """Return whether the estimator has a parameter."""
        return parameter in getattr(kway, self.estimator)().get_params()

    def configured(self, class_weight: str | None, device: str) -> Family:
        """Return the family with a class weight and on a device, if its estimator has these parameters."""
        params = dict(self.params)
        if class_weight is not None and self.has("class_weight"):
            params["class_weight"] = class_weight
        if device != "cpu" and self.has("device"):
            params["device"] = device
        return replace(self, params=params)

    def skip_reason(self, data: FoldedRows) -> str:
        """Return why the family is left out on these rows, unless the user names it; "" if it is not left out."""
        raise NotImplementedError

    def settings(self, data: FoldedRows) -> list[dict[str, Any]]:
        """Return the settings for these rows, the preferred one first."""
        raise NotImplementedError

    def planned_seconds(self, size: Size) -> float:
        """Return the expected seconds of all settings on rows of this size, at the default rates (rates.py)."""
        raise NotImplementedError

    def planned_fits(self) -> int:
        """Return the number of fits that `planned_seconds` covers; warm starts make several settings one fit."""
        return 1

    def fit_predict(
        self, data: FoldedRows, split: Split, settings: Sequence[dict[str, Any]], active: Sequence[int], stop: Stop
    ) -> Predictions:
        """Learn from the training rows of a split and predict its held-out rows.

        Only the settings at the positions `active` are used. A family ends early if `stop()` returns True between fits.
        """
        raise NotImplementedError

    def make(self, setting: dict[str, Any], seed: int) -> Any:
        """Return the estimator of a setting."""
        seeded = {"random_state": seed} if self.has("random_state") else {}
        return getattr(kway, self.estimator)(**self.params, **setting, **seeded)


@dataclass
class Runner:
    """A family in the race: its settings, and its predictions on the splits so far.

    All predictions were learned from the same number of rows, `rows`. Those from fewer rows are replaced.
    """

    family: Family
    data: FoldedRows
    settings: list[dict[str, Any]]
    measure: Measure
    active: list[int]  # positions of the settings that have not been eliminated
    predictions: list[Predictions] = field(default_factory=list)  # one per split
    codes: list[NDArray[np.int64]] = field(default_factory=list)  # class codes of the held-out rows, one per split
    rows: int = 0
    gain: float = np.inf  # gain of the score from the last doubling of the rows
    seconds: float = 0.0  # of all splits so far
    cost: float = 0.0  # of the last split, in the unit of the clock
    note: str = ""
    eliminated: bool = False  # by the paired test, or by an error that it raised
    out_of_time: bool = False
    _scan: Scan | None = None

    def add(self, predictions: Predictions, codes: NDArray[np.int64], rows: int, cost: float = 0.0) -> None:
        """Add the predictions of one split, learned from this number of rows."""
        if rows > self.rows:
            previous = self.score if self.predictions else None
            self.predictions, self.codes, self.rows = [], [], rows
        else:
            previous = None
        self.predictions.append(predictions)
        self.codes.append(codes)
        self.seconds += predictions.seconds
        self.cost = cost
        self._scan = None
        if previous is not None:
            self.gain = max(0.0, self.score - previous)

    def add_folds(self, stop: Callable[[], bool]) -> None:
        """Learn every setting outside each fold of the data, until `stop()` returns True."""
        for split in splits_of(self.data.folds):
            predictions = self.family.fit_predict(self.data, split, self.settings, self.active, stop)
            if predictions.has_run.any():
                held_out, n = split.held_out, len(self.data.codes)
                self.add(predictions.weighted(self.data, held_out), self.data.codes[held_out], n)

    @property
    def scan(self) -> Scan:
        """The scores of all settings, with the chosen one."""
        if self._scan is None:
            pairs = list(zip(self.predictions, self.codes))
            scores = np.array([self.measure.of(predictions, codes) for predictions, codes in pairs])
            accuracy = np.array([ACCURACY.of(predictions, codes) for predictions, codes in pairs])
            losses = np.array([predictions.loss() for predictions in self.predictions])
            best = self._choose(scores.mean(axis=0), losses.mean(axis=0))
            self._scan = Scan(self.settings, accuracy, losses, scores, self.measure, best, self.seconds)
        return self._scan

    def _choose(self, scores: NDArray, losses: NDArray) -> int:
        """Return the position of the best setting.

        With accuracy as the measure, it is the setting with the lowest log loss among those within one standard error
        of the best accuracy. Without log losses, the first of these is chosen. With any other measure, only that
        measure decides.
        """
        first = int(np.nanargmax(scores))
        if self.measure is not ACCURACY:
            return first
        best, scored = self.per_row(first), np.flatnonzero(np.isfinite(scores)).tolist()
        close = [at for at in scored if not paired_difference(best, self.per_row(at)).exceeds(errors=1.0)]
        return min(close, key=lambda at: (losses[at] if np.isfinite(losses[at]) else np.inf, at))

    @property
    def score(self) -> float:
        """The mean score of the chosen setting; higher is better."""
        return float(self.scan.scores[:, self.scan.best].mean())

    @property
    def loss(self) -> float:
        """The mean log loss of the chosen setting; infinity without probabilities."""
        loss = float(self.scan.log_loss[:, self.scan.best].mean())
        return loss if np.isfinite(loss) else np.inf

    @property
    def rank_key(self) -> tuple[Any, ...]:
        """Sort key of the leaderboard, greater is better: how far the family came in the race, then its scores."""
        return not self.note.startswith(STOPPED), self.rows, len(self.predictions), self.score, -self.loss

    def per_row(self, at: int | None = None, n_splits: int | None = None) -> NDArray:
        """Return the measure per held-out row of the first splits, for one setting, by default the chosen one."""
        at = self.scan.best if at is None else at
        pairs = list(zip(self.predictions, self.codes))[:n_splits]
        return np.concatenate([self.measure.per_row(p, at, codes) for p, codes in pairs])

    def possible_gain(self, all_rows: int) -> float:
        """Return how much the score may still rise with more rows: the last gain, once per doubling to come."""
        doublings = np.log2(all_rows / self.rows)
        return self.gain * doublings if doublings > 0 else 0.0  # the gain may be infinite, and inf * 0 is NaN

    def drop_settings(self, all_rows: int) -> None:
        """Eliminate the settings that are clearly worse than the best one."""
        best, gain = self.per_row(), self.possible_gain(all_rows)
        self.active = [at for at in self.active if not paired_difference(best, self.per_row(at)).exceeds(gain)]

    def planned_seconds(self, rows: int) -> float:
        """Return the seconds of one split with this number of rows, by the formula of the family."""
        return self.family.planned_seconds(self.data.size(rows))

    def split_seconds(self, rows: int) -> float:
        """Return the expected seconds of one split with this number of rows, in the unit of the clock.

        The cost of the last split is either scaled by the formula, or the difference of the formula is added to it. The
        smaller value holds, because compiling kernels, a large part of a first split, does not grow with the rows.
        """
        planned = self.planned_seconds(rows)
        if not self.predictions:
            return planned
        previous = self.planned_seconds(self.rows)
        return min(self.cost * planned / previous, self.cost + max(0.0, planned - previous))
