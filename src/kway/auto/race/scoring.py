"""Scores of families on validation rows, the measures, and the rows of the leaderboard.

FoldedRows       rows (n, d), class codes (n,) and folds (n,) that families are scored on; one per view of the data
Predictions          what a family predicts on these rows, for each of its settings
Scan             scores of all settings of one family, of shape (folds, settings); nan if a setting was not run
LeaderboardRow   the best setting of one family
Measure          the score that decides

accuracy    share of rows whose predicted label is correct    balanced   mean recall of the classes
macro-f1    mean of 2 P R / (P + R) over the classes          log-loss   mean of -log p_y; lower is better
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.auto.race.folds import FEW_ROWS
from kway.errors import InputError
from kway.measures import class_scores, log_losses, own_probability
from kway.planning.costs import Size, size_of
from kway.suggest import nearest
from kway.validation import Rows

TABLE_COLUMNS = 128  # dense rows with at most so many columns count as a table: maps of the columns are learned (T11)
MOST_POOLED = 1000  # classes up to which probabilities of all rows and classes are kept for a blend (tables)
CATEGORIES = "categorical_features"  # the parameter of trees for columns of category codes
STOPPED = "left the race"  # first words of the note of a family that left


# ---- measures


@dataclass(frozen=True)
class Measure:
    """A score: its name, its name in words, and whether higher is better."""

    name: str
    words: str
    rises: bool = True
    by_class: bool = False

    def of(self, predictions: Predictions, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the score of each setting on rows with these codes, higher is better; nan if not available."""
        if not self.rises:
            return -predictions.losses.mean(axis=0, dtype=np.float64)
        run = predictions.run
        scores = np.where(run, (predictions.predicted == codes[:, None]).mean(axis=0), np.nan)
        if self.by_class:
            scores[run] = getattr(
                class_scores(codes, predictions.predicted[:, run].astype(np.int64)), self.name.replace("-", "_")
            )
        return scores

    def per_row(self, predicted: NDArray, losses: NDArray, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the measure of each row (n,), whose mean is the score; higher is better.

        If classes count alike, a row of class c has the weight n / (K n_c). For macro F1, which is no mean over rows,
        this is the part that depends on the recall.
        """
        if not self.rises:
            return -losses
        right = (predicted == codes).astype(np.float64)
        if not self.by_class:
            return right
        counts = np.bincount(codes)
        return right * len(codes) / ((counts > 0).sum() * counts[codes])

    def shown(self, value: Any) -> Any:
        """Return a score, or an array of them, with the sign that people expect."""
        return value if self.rises else -value


ACCURACY = Measure("accuracy", "accuracy")
MEASURES: dict[str, Measure] = {
    measure.name: measure
    for measure in (
        ACCURACY,
        Measure("balanced", "balanced accuracy", by_class=True),
        Measure("macro-f1", "macro F1", by_class=True),
        Measure("log-loss", "log loss", rises=False),
    )
}


def pick_measure(name: str) -> Measure:
    """Return a measure by its name."""
    if name not in MEASURES:
        raise InputError(f"metric must be one of {', '.join(MEASURES)}; got {name!r}{nearest(name, list(MEASURES))}")
    return MEASURES[name]


# ---- what is scored


class FoldedRows(NamedTuple):
    """A view of the rows, with their classes and folds. Rows of fold -1 are only learned from."""

    X: Rows  # (n, d)
    codes: NDArray[np.int64]  # (n,)
    folds: NDArray[np.int64]  # (n,)
    categories: tuple[int, ...] = ()  # columns of category codes

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
    def unit(self) -> bool:
        """Whether nearly all rows have length 1, as hashed text and most embeddings do."""
        some = self.X[:: max(1, self.X.shape[0] // FEW_ROWS)]
        squares = some.multiply(some).sum(axis=1) if self.sparse else np.square(some, dtype=np.float64).sum(axis=1)
        return bool((np.abs(np.sqrt(np.asarray(squares)) - 1) < 0.01).mean() > 0.99)

    def size(self, n: int | None = None) -> Size:
        """Return the size for cost formulas, by default of all rows."""
        size = size_of(self.X, self.n_classes)
        return size if n is None else replace(size, n=n)


class Predictions(NamedTuple):
    """What a family predicts on v held-out rows, for each of S settings."""

    predicted: NDArray[np.int32]  # (v, S) class codes; -1 if a setting was not run
    losses: NDArray[np.float32]  # (v, S) log losses; nan if not run or without probabilities
    seconds: float  # of all settings
    probabilities: NDArray | None = None  # (v, K), if there is a single setting

    @classmethod
    def empty(cls, n_rows: int, n_settings: int) -> Predictions:
        """Return predictions that are to be filled."""
        missing = np.full((n_rows, n_settings), np.nan, np.float32)
        return cls(np.full((n_rows, n_settings), -1, np.int32), missing, 0.0)

    @property
    def run(self) -> NDArray[np.bool_]:
        """Which settings were run (S,)."""
        return self.predicted[0] >= 0

    def loss(self) -> NDArray[np.float64]:
        """Return the mean log loss of each setting (S,)."""
        return self.losses.mean(axis=0, dtype=np.float64)


def predict_held_out(model: Any, X: Rows, codes: NDArray[np.int64], n_classes: int) -> Predictions:
    """Return the predictions of a fitted model, with class codes as labels, on rows that it has not seen."""
    predictions = Predictions.empty(len(codes), 1)
    predictions.predicted[:, 0] = model.predict(X)
    if not hasattr(model, "predict_proba"):
        return predictions
    p = model.predict_proba(X)
    predictions.losses[:, 0] = log_losses(own_probability(p, codes, np.asarray(model.classes_)))
    return predictions._replace(probabilities=None if n_classes > MOST_POOLED else spread(p, model.classes_, n_classes))


def spread(values: NDArray, classes: NDArray, n_classes: int, missing: float = 0.0) -> NDArray[np.float32]:
    """Return probabilities or scores over all class codes (n, K), with `missing` for classes that were not learned."""
    whole = np.full((len(values), n_classes), missing, np.float32)
    whole[:, np.asarray(classes, np.int64)] = values
    return whole


# ---- the scores of one family


@dataclass(frozen=True)
class Scan:
    """Settings of a family with their scores (folds, settings); nan if one was not run."""

    settings: list[dict[str, Any]]
    accuracy: NDArray[np.float64]
    log_loss: NDArray[np.float64]
    scores: NDArray[np.float64]  # of the measure that decides; higher is better
    measure: Measure
    best: int  # the chosen setting
    rows: int  # that were learned from
    seconds: float  # of all folds and settings, samples included


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
        """Whether the family left the race because it was clearly behind."""
        return self.note.startswith(STOPPED)

    @property
    def folds_run(self) -> str:
        """How many folds were run: "5", or "1 of 5" if the family left early."""
        run = len(self.fold_accuracy)
        return str(run) if run >= self.n_folds else f"{run} of {self.n_folds}"

    def record(self) -> dict[str, Any]:
        """Return the row as a dict of plain values."""
        values = {name: value for name, value in vars(self).items() if name not in ("fitted", "n_bytes")}
        lists = {"fold_accuracy": list(self.fold_accuracy), "fold_scores": list(self.fold_scores)}
        more = {"score": self.score, "score_std": self.score_std, "folds_run": self.folds_run, "bytes": self.n_bytes}
        return values | lists | more


def leaderboard_row(name: str, scan: Scan, note: str, n_folds: int) -> LeaderboardRow:
    """Return the row of the chosen setting of a family."""
    at, run = scan.best, np.isfinite(scan.scores[:, scan.best])
    accuracy, losses = scan.accuracy[run, at], scan.log_loss[run, at]
    return LeaderboardRow(
        model=name,
        setting=scan.settings[at],
        accuracy=float(accuracy.mean()),
        std=float(accuracy.std(ddof=1)) if len(accuracy) > 1 else 0.0,
        fold_accuracy=tuple(map(float, accuracy)),
        log_loss=float(losses.mean()) if np.isfinite(losses).all() else None,
        seconds=scan.seconds,
        note=note,
        measure=scan.measure.name,
        fold_scores=tuple(map(float, scan.measure.shown(scan.scores[run, at]))),
        n_folds=n_folds,
    )


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
        "gamma": "gamma {:.2g}",
    }
    first = sorted(setting.items(), key=lambda item: item[0] != "n_neighbors")
    first = [(name, value) for name, value in first if name != CATEGORIES]
    return ", ".join(words.get(name, name + " {}").format(value) for name, value in first)


def with_spread(mean: float, std: float, folds: int) -> str:
    """Return a score, with its standard deviation if there is more than one fold."""
    return f"{mean:.3f} ± {std:.3f}" if folds > 1 else f"{mean:.3f}"
