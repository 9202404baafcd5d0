"""What families are scored on, their predictions, the measures, and the rows of the leaderboard.

FoldedRows       rows (n, d), class codes (n,) and folds (n,) that families are scored on; one per view of the data
Predictions      predictions of a family for v held-out rows, for each of its S settings
Scan             scores of all settings of a family, of shape (folds, S); NaN if a setting was not run
LeaderboardRow   the best setting of a family
Measure          the score that decides

accuracy    share of rows whose predicted label is correct    balanced   mean recall of the classes
macro-f1    mean of 2 P R / (P + R) over the classes          log-loss   mean of -log p_y; lower is better

P is the precision of a class, R its recall, and p_y the probability of the true class.
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

TABLE_COLUMNS = 128  # dense rows with at most this many columns count as a table, not as images or embeddings
MOST_POOLED = 1000  # with at most this many classes, a race keeps the probabilities (n, K) of its families for a blend
CATEGORIES = "categorical_features"  # the parameter of trees for columns of category codes
STOPPED = "left the race"  # the note of a family that left the race begins with these words


# ---- measures


@dataclass(frozen=True)
class Measure:
    """A score that compares families.

    `of` and `per_row` return values of which higher is better, so a log loss is negative there. `shown` converts them
    to the printed form, in which a log loss is positive.
    """

    name: str  # also a field of ClassScores, with "_" for "-", if `by_class`
    words: str  # the name in messages
    rises: bool = True  # whether a higher printed score is better
    by_class: bool = False  # whether all classes have the same weight

    def of(self, predictions: Predictions, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the score (S,) of each setting on rows with these codes; higher is better, NaN means none."""
        if not self.rises:
            return -predictions.loss()
        has_run = predictions.has_run
        scores = np.where(has_run, predictions.mean(predictions.predicted == codes[:, None]), np.nan)
        if self.by_class:
            by_class = class_scores(codes, predictions.predicted[:, has_run].astype(np.int64), predictions.weights)
            scores[has_run] = getattr(by_class, self.name.replace("-", "_"))
        return scores

    def per_row(self, predictions: Predictions, at: int, codes: NDArray[np.int64]) -> NDArray:
        """Return the measure of each row (n,) for the setting `at`, whose mean is the score; higher is better.

        The measure of a row is multiplied by the weight of the row, divided by the mean weight. If all classes have the
        same weight, a row of class c has the weight n / (K n_c), with n and n_c as sums of weights. Macro F1 is no mean
        over rows. Its rows are those of the mean recall.
        """
        weights = predictions.weights
        values = predictions.losses[:, at] if not self.rises else (predictions.predicted[:, at] == codes).astype(float)
        if self.by_class:
            counts = np.bincount(codes, weights)
            values = values * counts.sum() / ((counts > 0).sum() * counts[codes])
        values = values if self.rises else -values
        return values if weights is None else values * (weights / weights.mean())

    def shown(self, value: Any) -> Any:
        """Return a score, or an array of scores, as it is printed: a log loss is positive."""
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
    """Return the measure of this name."""
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
    weights: NDArray | None = None  # (n,); None if all rows have the same weight

    @property
    def n_classes(self) -> int:
        """Number of classes K."""
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
        return have_unit_length(self.X)

    def size(self, n: int | None = None) -> Size:
        """Return the size for cost formulas, by default of all rows."""
        size = size_of(self.X, self.n_classes)
        return size if n is None else replace(size, n=n)


def have_unit_length(X: Rows) -> bool:
    """Return whether nearly all of a sample of the rows (n, d) have length 1."""
    rows = X[:: max(1, X.shape[0] // FEW_ROWS)]
    sparse = hasattr(rows, "tocsr")
    squares = rows.multiply(rows).sum(axis=1) if sparse else np.square(rows, dtype=np.float64).sum(axis=1)
    return bool((np.abs(np.sqrt(np.asarray(squares)) - 1) < 0.01).mean() > 0.99)


def are_embeddings(X: Rows) -> bool:
    """Return whether rows (n, d) are taken for embeddings: dense, with more columns than a table, and of length 1."""
    return not hasattr(X, "tocsr") and X.shape[1] > TABLE_COLUMNS and have_unit_length(X)


class Predictions(NamedTuple):
    """Predictions of a family for v held-out rows, for each of S settings."""

    predicted: NDArray[np.int32]  # (v, S) class codes; -1 if a setting was not run
    losses: NDArray[np.float32]  # (v, S) log losses; NaN if a setting was not run or has no probabilities
    seconds: float  # of all settings
    probabilities: NDArray | None = None  # (v, K) if there is a single setting and K is at most MOST_POOLED
    weights: NDArray | None = None  # (v,) of the rows; None if all rows have the same weight

    @classmethod
    def empty(cls, n_rows: int, n_settings: int) -> Predictions:
        """Return predictions in which no setting has been run."""
        missing = np.full((n_rows, n_settings), np.nan, np.float32)
        return cls(np.full((n_rows, n_settings), -1, np.int32), missing, 0.0)

    @property
    def has_run(self) -> NDArray[np.bool_]:
        """Which settings (S,) were run."""
        return np.asarray((self.predicted >= 0).any(axis=0))

    def loss(self) -> NDArray[np.float64]:
        """Return the mean log loss of each setting (S,)."""
        return self.mean(self.losses)

    def mean(self, values: NDArray) -> NDArray[np.float64]:
        """Return the mean (S,) of values (v, S) over the rows, by their weights."""
        if self.weights is None:
            return np.asarray(values.mean(axis=0, dtype=np.float64))
        return np.asarray(self.weights @ values / self.weights.sum())

    def at(self, rows: NDArray) -> Predictions:
        """Return the predictions for some of the rows, without probabilities."""
        weights = None if self.weights is None else self.weights[rows]
        return Predictions(self.predicted[rows], self.losses[rows], self.seconds, weights=weights)

    def weighted(self, data: FoldedRows, rows: NDArray) -> Predictions:
        """Return the predictions with the weights of `rows`, the rows of the data that they are for."""
        return self if data.weights is None else self._replace(weights=data.weights[rows])


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
    table = np.full((len(values), n_classes), missing, np.float32)
    table[:, np.asarray(classes, np.int64)] = values
    return table


# ---- the scores of one family


@dataclass(frozen=True)
class Scan:
    """Scores (folds, S) of the settings of a family; NaN if a setting was not run."""

    settings: list[dict[str, Any]]
    accuracy: NDArray[np.float64]
    log_loss: NDArray[np.float64]
    scores: NDArray[np.float64]  # of the measure that decides; higher is better
    measure: Measure
    best: int  # position of the chosen setting
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
        Seconds of scoring all settings.
    note : str
        Why not all folds or settings were run; "" if they were.
    measure : str
        Name of the measure that decides.
    fold_scores : tuple of float
        This measure on each fold that was run, in the printed form (a log loss is positive).
    n_folds : int
        Number of folds of a complete row.
    fitted : estimator or None
        The estimator fitted on all training rows. It and the fields below are None until then.
    fit_seconds, predict_seconds : float or None
        Seconds of the fit on all training rows, and of predicting one row.
    n_bytes : int or None
        Bytes of the arrays in the model file.
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
        """Mean of the measure over the folds; the accuracy if a row has no scores of the measure."""
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
        fields = {name: value for name, value in vars(self).items() if name not in ("fitted", "n_bytes")}
        lists = {"fold_accuracy": list(self.fold_accuracy), "fold_scores": list(self.fold_scores)}
        derived = {"score": self.score, "score_std": self.score_std, "folds_run": self.folds_run}
        return fields | lists | derived | {"bytes": self.n_bytes}


def leaderboard_row(name: str, scan: Scan, note: str, n_folds: int) -> LeaderboardRow:
    """Return the row of the chosen setting of a family."""
    at, has_run = scan.best, np.isfinite(scan.scores[:, scan.best])
    accuracy, losses = scan.accuracy[has_run, at], scan.log_loss[has_run, at]
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
        fold_scores=tuple(map(float, scan.measure.shown(scan.scores[has_run, at]))),
        n_folds=n_folds,
    )


def setting_in_words(setting: dict[str, Any]) -> str:
    """Return a setting in words.

    >>> setting_in_words({"weights": "uniform", "n_neighbors": 4}), setting_in_words({"alpha": 0.00088})
    ('k 4, uniform', 'alpha 0.00088')
    """
    forms = {
        "n_neighbors": "k {}",
        "map": "{} of columns",
        "weights": "{}",
        "metric": "{}",
        "targets": "{}",
        "alpha": "alpha {:.2g}",
        "gamma": "gamma {:.2g}",
    }
    shown = [(name, value) for name, value in setting.items() if name != CATEGORIES]
    shown.sort(key=lambda item: item[0] != "n_neighbors")  # stable: k comes first
    return ", ".join(forms.get(name, name + " {}").format(value) for name, value in shown)


def with_spread(mean: float, std: float, folds: int) -> str:
    """Return a mean score in words, with its standard deviation if there is more than one fold."""
    return f"{mean:.3f} ± {std:.3f}" if folds > 1 else f"{mean:.3f}"
