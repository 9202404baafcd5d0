"""Scores of families on folds: the rows they are scored on, the measures, and the rows of the leaderboard.

FoldedRows       rows (n, d), class codes (n,) and fold numbers (n,) that every family is scored on
Scan             scores of all settings of one family, of shape (folds, settings); nan if a setting was not run
LeaderboardRow   the best setting of one family
Measure          the score that decides

accuracy    share of rows whose predicted label is correct    balanced   mean recall of the classes
macro-f1    mean of 2 P R / (P + R) over the classes          log-loss   mean of -log p_y; lower is better
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.auto.race.folds import FEW_ROWS, SAMPLE_ROWS
from kway.errors import InputError
from kway.measures import class_scores, log_loss, own_probability
from kway.memory import rows_per_block
from kway.neighbors.tuning import Electors, vote_shares
from kway.planning.costs import Size, flat, pass_seconds, size_of
from kway.planning.rates import Rates
from kway.search.results import Neighbors
from kway.suggest import nearest
from kway.validation import Rows

SMALLEST_LAG = 0.015  # a family that is less behind the leader on one fold is never stopped (T11, accuracy)
_LOSS_LAG = 0.25  # the same for log loss, relative to the loss of the leader (T11, accuracy)
CALIBRATION_ROWS = 1000  # held-out rows that fix a temperature to a few percent (T11)
TABLE_COLUMNS = 128  # dense rows with at most so many columns count as a table: trees and learned maps run (T11)
_MANY_CLASSES = 200  # classes above which trees and all but one linear family take minutes (T11)
STOPPED = "stopped"  # first word of the note of a family that was stopped


# ---- measures


@dataclass(frozen=True)
class Measure:
    """A score: its name, the field of a scan that holds it, and whether higher is better."""

    name: str
    field: str
    words: str
    rises: bool = True
    by_class: bool = False

    def of(self, scan: Any) -> NDArray[np.float64]:
        """Return the scores (folds, settings) with higher is better; nan if not run or not available."""
        values = np.asarray(getattr(scan, self.field), np.float64)
        return values if self.rises else -values

    def shown(self, value: Any) -> Any:
        """Return a value of `of`, or an array of them, with the sign that people expect."""
        return value if self.rises else -value

    def largest_lag(self, lead: float, counts: NDArray[np.int64]) -> float:
        """Return how far behind the leader a family may be on a fold with counts (K,) rows per class.

        This is three standard errors of a difference, and at least SMALLEST_LAG. A mean over classes has the standard
        error of K^2 / sum_c (1 / n_c) rows, which are few if a class is small.
        """
        if not self.rises:
            return max(SMALLEST_LAG, _LOSS_LAG * abs(lead))
        some = counts[counts > 0]
        rows = len(some) ** 2 / float((1 / some).sum()) if self.by_class else float(some.sum())
        return max(SMALLEST_LAG, 3 * float(np.sqrt(2 * max(lead * (1 - lead), 1 / rows) / rows)))


ACCURACY = Measure("accuracy", "accuracy", "accuracy")
MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        ACCURACY,
        Measure("balanced", "balanced", "balanced accuracy", by_class=True),
        Measure("macro-f1", "macro_f1", "macro F1", by_class=True),
        Measure("log-loss", "log_loss", "log loss", rises=False),
    )
}


def pick_measure(name: str) -> Measure:
    """Return a measure by its name."""
    if name not in MEASURES:
        raise InputError(f"metric must be one of {', '.join(MEASURES)}; got {name!r}{nearest(name, list(MEASURES))}")
    return MEASURES[name]


# ---- what is scored


class FoldedRows(NamedTuple):
    """The rows that every family is scored on; `cache` holds results of a scan that a later scan can use."""

    X: Rows  # (n, d)
    codes: NDArray[np.int64]  # (n,)
    folds: NDArray[np.int64]  # (n,)
    cache: dict[str, Any]
    measure: Measure = ACCURACY

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.codes.max()) + 1

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return int(self.folds.max()) + 1

    @property
    def sparse(self) -> bool:
        """Whether the rows are CSR."""
        return hasattr(self.X, "tocsr")

    @property
    def is_table(self) -> bool:
        """Whether the rows are dense and have few columns."""
        return not self.sparse and self.X.shape[1] <= TABLE_COLUMNS

    @property
    def has_many_classes(self) -> bool:
        """Whether trees and most linear families would be slow."""
        return self.n_classes > _MANY_CLASSES

    def size(self) -> Size:
        """Return the size, for cost formulas."""
        return size_of(self.X, self.n_classes)

    def pass_seconds(self) -> float:
        """Return the expected seconds of one gradient of a linear loss over all rows and classes."""
        return pass_seconds(self.size(), Rates())

    def search_seconds(self) -> float:
        """Return the expected seconds of an exact search of all rows among all rows."""
        return self.X.shape[0] * flat(self.size(), Rates()).predict_seconds

    def largest_lag(self, lead: float) -> float:
        """Return how far behind the leader's score on fold 0 a family may be."""
        return self.measure.largest_lag(lead, np.bincount(self.codes[self.folds == 0]))

    @property
    def unit(self) -> bool:
        """Whether nearly all rows have length 1, as hashed text and most embeddings do."""
        if "unit" not in self.cache:
            some = self.X[:: max(1, self.X.shape[0] // FEW_ROWS)]
            squares = some.multiply(some).sum(axis=1) if self.sparse else np.square(some, dtype=np.float64).sum(axis=1)
            self.cache["unit"] = bool((np.abs(np.sqrt(np.asarray(squares)) - 1) < 0.01).mean() > 0.99)
        return bool(self.cache["unit"])


def mean_square(X: Rows) -> float:
    """Return the mean of |x|^2 over a sample of the rows; 1 if that is not a positive number."""
    some = X[:: max(1, X.shape[0] // SAMPLE_ROWS)]
    values = some.data if hasattr(some, "tocsr") else some
    mean = float(np.square(values, dtype=np.float64).sum() / max(1, some.shape[0]))
    return mean if np.isfinite(mean) and mean > 0 else 1.0


# ---- the scores of one family


class FoldScores(NamedTuple):
    """Scores of one model on a fold, or arrays (folds, settings); log_loss is nan if there are no probabilities."""

    accuracy: Any
    log_loss: Any
    balanced: Any
    macro_f1: Any

    @classmethod
    def empty(cls, n_folds: int, n_settings: int) -> FoldScores:
        """Return arrays of nan, to be filled."""
        return cls(*np.full((4, n_folds, n_settings), np.nan))


def scores_of(model: Any, X: Rows, codes: NDArray) -> FoldScores:
    """Score a fitted model on rows that it has not seen."""
    predicted = np.asarray(model.predict(X), np.int64)
    by_class = class_scores(codes, predicted[:, None])
    loss = np.nan
    if hasattr(model, "predict_proba"):
        loss = log_loss(own_probability(model.predict_proba(X), codes, model.classes_))
    return FoldScores(float((predicted == codes).mean()), loss, *(float(v[0]) for v in by_class))


class HeldOutVotes(NamedTuple):
    """Held-out rows with class codes (m,), their nearest rows (m, k), and the map of the columns ("" if none)."""

    codes: NDArray[np.int64]
    found: Neighbors
    electors: Electors
    map: str = ""

    def thin(self, most: int) -> HeldOutVotes:
        """Return at most so many of the rows, evenly spaced."""
        own = slice(None, None, max(1, -(-len(self.codes) // most)))
        return self._replace(codes=self.codes[own], found=Neighbors(self.found.ids[own], self.found.distances[own]))


class HeldOutProbabilities(NamedTuple):
    """Probabilities (m, K) of held-out rows, and their class codes (m,)."""

    values: NDArray[np.float64]
    codes: NDArray[np.int64]


@dataclass(frozen=True)
class Scan:
    """Settings of a family with their scores (folds, settings); nan if a fold was not run."""

    settings: list[dict[str, Any]]
    accuracy: NDArray[np.float64]
    log_loss: NDArray[np.float64]
    seconds: float  # of the whole scan
    fit_seconds: float = 0.0  # expected for one fit on all rows
    balanced: NDArray[np.float64] | None = None  # None: not known
    macro_f1: NDArray[np.float64] | None = None
    measure: Measure = ACCURACY  # decides which setting is the best
    slack: float = 0.0  # settings within so many standard errors of the best score count as equal: log loss decides
    held: tuple[HeldOutVotes, ...] = ()  # votes of neighbors on held-out rows, for the temperature
    usual: int | None = None  # the default setting: an earlier one is chosen only if better by more than the slack

    def joined(self, other: Scan) -> Scan:
        """Return this scan with another of the same settings on more folds."""
        enough = sum(len(votes.codes) for votes in self.held) >= CALIBRATION_ROWS
        return replace(
            self,
            accuracy=np.vstack([self.accuracy, other.accuracy]),
            log_loss=np.vstack([self.log_loss, other.log_loss]),
            seconds=self.seconds + other.seconds,
            fit_seconds=max(self.fit_seconds, other.fit_seconds),
            balanced=_stacked(self.balanced, other.balanced),
            macro_f1=_stacked(self.macro_f1, other.macro_f1),
            held=self.held if enough else (*self.held, *other.held),
        )

    def held_out(self, setting: dict[str, Any]) -> HeldOutProbabilities | None:
        """Return the probabilities of a setting of neighbors on held-out rows; None for any other family."""
        own = [votes for votes in self.held if votes.map == setting.get("map", "")]
        if not own:
            return None
        most = rows_per_block(8 * len(own) * len(own[0].electors.counts))
        own = [votes.thin(most) for votes in own]
        how = setting["n_neighbors"], setting["weights"]
        values = [vote_shares(votes.found, votes.electors, *how) for votes in own]
        return HeldOutProbabilities(np.concatenate(values), np.concatenate([votes.codes for votes in own]))

    @property
    def scores(self) -> NDArray[np.float64]:
        """The scores (folds, settings) of the measure that decides; higher is better."""
        return self.measure.of(self)

    @property
    def best(self) -> int:
        """The setting with the best mean score among those that were run on most folds.

        Among settings within the slack of the best score, the one with the lowest log loss wins. SVMs have no log
        loss. For them the usual penalty wins unless a stronger one is better by more than the slack.
        """
        run = np.isfinite(self.scores).sum(axis=0)
        mean = np.where(run == run.max(), _fold_means(self.scores), -np.inf)
        loss = np.nan_to_num(_fold_means(self.log_loss), nan=np.inf)
        first = int(np.lexsort((loss, -mean))[0])
        if self.slack == 0 or not self.measure.rises or run.max() < 2:
            return first
        folds = self.scores[:, first]
        error = float(np.nanstd(folds, ddof=1)) / np.sqrt(run.max())
        close = np.flatnonzero(mean >= mean[first] - self.slack * error)
        if self.usual is not None:
            return self.usual if first < self.usual and self.usual in close else first
        return int(close[np.lexsort((-mean[close], loss[close]))[0]])


def _stacked(first: NDArray | None, second: NDArray | None) -> NDArray | None:
    return None if first is None or second is None else np.vstack([first, second])


def _fold_means(scores: NDArray) -> NDArray:
    """Return the mean over the folds that were run; nan if none was run."""
    run = np.isfinite(scores)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(run, scores, 0).sum(axis=0) / run.sum(axis=0)


# ---- the leaderboard


@dataclass(frozen=True)
class LeaderboardRow:
    """A family at its best setting: one row of the leaderboard.

    Attributes
    ----------
    model : str
        Name of the family.
    setting : dict
        Hyperparameters of the best setting.
    accuracy, std : float
        Mean and standard deviation of the accuracy over the folds.
    fold_accuracy : tuple of float
        Accuracy on each fold that was run.
    log_loss : float or None
        Mean log loss over the folds; None if the family gives no probabilities.
    seconds : float
        Seconds that it took to score all settings.
    note : str
        Why not all folds or settings were run; "" if they were.
    measure : str
        Name of the measure that the choice is made by.
    fold_scores : tuple of float
        That measure on each fold that was run.
    n_folds : int
        Number of folds of a complete row.
    fitted : estimator or None
        The estimator fitted on all training rows; None until then, as are the fields below.
    fit_seconds, predict_seconds : float or None
        Seconds of that fit, and of predicting one row.
    n_bytes : int or None
        Bytes of the arrays of the model.
    """

    model: str
    setting: dict[str, Any]
    accuracy: float
    std: float
    fold_accuracy: tuple[float, ...]
    log_loss: float | None
    seconds: float
    note: str = ""
    measure: str = ACCURACY.name
    fold_scores: tuple[float, ...] = ()
    n_folds: int = 0
    fitted: Any = None
    fit_seconds: float | None = None
    predict_seconds: float | None = None
    n_bytes: int | None = None

    @property
    def score(self) -> float:
        """Mean of the measure over the folds."""
        return float(np.mean(self.fold_scores)) if self.fold_scores else self.accuracy

    @property
    def score_std(self) -> float:
        """Standard deviation of the measure over the folds."""
        return float(np.std(self.fold_scores, ddof=1)) if len(self.fold_scores) > 1 else 0.0

    @property
    def stopped(self) -> bool:
        """Whether the family was stopped early because it was clearly behind."""
        return self.note.startswith(STOPPED)

    @property
    def folds_run(self) -> str:
        """How many folds were run: "5", or "1 of 5" if the family was stopped early."""
        run = len(self.fold_accuracy)
        return str(run) if run >= self.n_folds else f"{run} of {self.n_folds}"

    def record(self) -> dict[str, Any]:
        """Return the row as a dict of plain values."""
        values = {name: value for name, value in vars(self).items() if name not in ("fitted", "n_bytes")}
        lists = {"fold_accuracy": list(self.fold_accuracy), "fold_scores": list(self.fold_scores)}
        more = {"score": self.score, "score_std": self.score_std, "folds_run": self.folds_run, "bytes": self.n_bytes}
        return values | lists | more


def leaderboard_row(name: str, scan: Scan, note: str, n_folds: int) -> LeaderboardRow:
    """Return the row of the best setting of a family."""
    at = scan.best
    accuracy, losses, scores = scan.accuracy[:, at], scan.log_loss[:, at], scan.scores[:, at]
    accuracy, scores = accuracy[np.isfinite(accuracy)], scan.measure.shown(scores[np.isfinite(scores)])
    return LeaderboardRow(
        model=name,
        setting=scan.settings[at],
        accuracy=float(accuracy.mean()),
        std=float(accuracy.std(ddof=1)) if len(accuracy) > 1 else 0.0,
        fold_accuracy=tuple(map(float, accuracy)),
        log_loss=float(np.nanmean(losses)) if np.isfinite(losses).any() else None,
        seconds=scan.seconds,
        note=note,
        measure=scan.measure.name,
        fold_scores=tuple(map(float, scores)),
        n_folds=n_folds,
    )


def in_order(leaderboard: Iterable[LeaderboardRow], measure: Measure) -> list[LeaderboardRow]:
    """Sort rows by the measure, then by log loss; families that were stopped come last, as one fold may be luck."""
    sign = -1 if measure.rises else 1
    return sorted(leaderboard, key=lambda s: (s.stopped, sign * s.score, np.inf if s.log_loss is None else s.log_loss))


def setting_in_words(setting: dict[str, Any]) -> str:
    """Return a setting in words.

    >>> setting_in_words({"weights": "uniform", "n_neighbors": 4}), setting_in_words({"alpha": 0.00088})
    ('k 4, uniform', 'alpha 0.00088')
    """
    words = {
        "n_neighbors": "k {}",
        "map": "{} of columns",
        "weights": "{}",
        "metric": "{}",
        "targets": "{}",
        "alpha": "alpha {:.2g}",
    }
    first = sorted(setting.items(), key=lambda item: item[0] != "n_neighbors")
    return ", ".join(words.get(name, name + " {}").format(value) for name, value in first)


def with_spread(mean: float, std: float, folds: int) -> str:
    """Return a score, with its standard deviation if there is more than one fold."""
    return f"{mean:.3f} ± {std:.3f}" if folds > 1 else f"{mean:.3f}"
