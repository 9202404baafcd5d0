"""The job for rows with several labels: read, compute features, compare settings, calibrate, choose thresholds, test.

logistic             logistic regression of each label against the rest, over a path of alphas
neighbors            shares of the k nearest rows, by Euclidean distance
neighbors-cosine     the same, by cosine similarity

All settings are scored on the same folds, and the best one is fitted again on all training rows. Its probabilities are
calibrated, and its thresholds chosen, on the predictions for held-out rows of the folds. `metric` decides:

accuracy (default)   micro F1, with one threshold for all labels
macro-f1             macro F1, with a threshold per label
log-loss             log loss per label, with one threshold for all labels
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import modelfile, progress
from kway.auto.fit_options import FitOptions
from kway.auto.job import data_notes
from kway.auto.larger_than_memory import read_what_fits
from kway.auto.leaks import Leak
from kway.auto.race.clock import REPORT_SECONDS, Clock, default_budget
from kway.auto.race.families import FAMILIES
from kway.auto.race.folds import fold_numbers
from kway.auto.race.scoring import FoldedRows
from kway.auto.train_test import TrainTest, as_training_rows, refuse_same, with_test_rows
from kway.confidence.multilabel import (
    LinearPath,
    MultilabelClassifier,
    base_rates,
    calibrate,
    calibrated,
    choose_thresholds,
    known_labels,
    label_matrix,
    neighbor_logits,
)
from kway.confidence.splits import Split, splits_of
from kway.errors import UsageError
from kway.labels import encode
from kway.memory import check_room
from kway.neighbors import NeighborsClassifier
from kway.pipelines import FeaturedClassifier
from kway.planning import costs
from kway.rows.blocks import take_rows
from kway.suggest import listing
from kway.tables.features.features import Features
from kway.tables.read_options import ReadOptions
from kway.tables.reading import RowsInMemory
from kway.tables.sources.labels import joined_sets, split_set
from kway.text_tables import Printed, Table

KINDS = ("neighbors", "neighbors-cosine", "logistic")  # fast kinds first, so that a short budget gives a model
_NEIGHBORS = (1, 3, 5, 10, 20, 40)  # numbers of neighbors that are compared
_MEASURES = {"accuracy": "micro F1", "macro-f1": "macro F1", "log-loss": "log loss"}


# ---- scores


@dataclass(frozen=True)
class LabelSetScores:
    """Scores of predicted sets of labels.

    Attributes
    ----------
    micro_f1 : float
        F1 of all pairs of a row and a label together.
    macro_f1 : float
        Mean F1 of the labels.
    subset_accuracy : float
        Share of rows for which exactly the correct labels are predicted.
    hamming_loss : float
        Share of pairs of a row and a label that are wrong.
    log_loss : float
        Mean log loss of a pair of a row and a label.
    rows : int
        Number of rows.
    labels : list of dict
        Rows, precision, recall, F1 and threshold of each label.
    """

    micro_f1: float
    macro_f1: float
    subset_accuracy: float
    hamming_loss: float
    log_loss: float
    rows: int
    labels: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"micro F1 {self.micro_f1:.4f}, macro F1 {self.macro_f1:.4f}, subset accuracy {self.subset_accuracy:.4f}, "
            f"Hamming loss {self.hamming_loss:.4f}, log loss {self.log_loss:.4f}"
        )


def score_sets(
    p: NDArray[np.float64], Y: NDArray[np.float64], classes: NDArray, thresholds: NDArray[np.float64]
) -> LabelSetScores:
    """Score probabilities p (n, K) against the true labels Y (n, K) of 0 and 1.

    Labels that occur neither in Y nor in a prediction have no F1 and do not count for the macro F1.
    """
    predicted = p >= thresholds
    correct, rows, n_predicted = (np.count_nonzero(a, axis=0) for a in (predicted & (Y > 0), Y, predicted))
    clipped = np.clip(p, 1e-15, 1 - 1e-15)
    with np.errstate(invalid="ignore"):
        f1 = 2 * correct / (rows + n_predicted)
    labels = [
        {
            "label": label,
            "rows": int(rows[j]),
            "precision": float(correct[j] / n_predicted[j]) if n_predicted[j] else 0.0,
            "recall": float(correct[j] / rows[j]) if rows[j] else 0.0,
            "f1": float(f1[j]) if rows[j] + n_predicted[j] else 0.0,
            "threshold": float(thresholds[j]),
        }
        for j, label in enumerate(classes.tolist())
    ]
    total = int(rows.sum() + n_predicted.sum())
    return LabelSetScores(
        micro_f1=float(2 * correct.sum() / total) if total else 0.0,
        macro_f1=float(np.nanmean(f1)) if total else 0.0,
        subset_accuracy=float((predicted == (Y > 0)).all(axis=1).mean()),
        hamming_loss=float((predicted != (Y > 0)).mean()),
        log_loss=float(-np.mean(np.where(Y > 0, np.log(clipped), np.log1p(-clipped)))),
        rows=len(Y),
        labels=labels,
    )


def evaluate_sets(model: Any, blocks: Iterable[tuple[Any, NDArray]]) -> LabelSetScores:
    """Score a fitted model on blocks of rows with their sets of labels, as text."""
    inner, p, texts = model.estimator_, list[NDArray](), list[NDArray]()
    for X, sets_of_block in blocks:
        p.append(model.predict_proba(X))
        texts.append(sets_of_block)
    sets = np.concatenate(texts)
    unseen = sorted({label for text in sets.tolist() for label in split_set(text, inner.sep)} - set(inner.classes_))
    classes = np.array([*inner.classes_, *unseen])
    probabilities = np.pad(np.concatenate(p), ((0, 0), (0, len(unseen))))  # labels that were not learned have p = 0
    thresholds = np.pad(inner.thresholds_, (0, len(unseen)), constant_values=1.0)
    return score_sets(probabilities, label_matrix(sets, classes, inner.sep), classes, thresholds)


# ---- the result


@dataclass(frozen=True)
class SettingScores:
    """A setting of a kind of model and its scores on held-out rows; `folds` are its scores fold by fold."""

    model: str
    setting: dict[str, Any]
    score: float
    folds: tuple[float, ...]
    log_loss: float
    seconds: float


@dataclass(frozen=True, eq=False, repr=False)
class SettingComparison(Printed):
    """The best setting of each kind of model, best first."""

    rows: list[SettingScores]
    measure: str

    @property
    def best(self) -> SettingScores:
        """The best setting."""
        return self.rows[0]

    def lines(self) -> list[tuple[str, ...]]:
        """Return the cells of a printed table."""
        return [
            (
                row.model,
                f"{row.score:.4f} ± {np.std(row.folds):.4f}",
                f"{row.log_loss:.4f}",
                ", ".join(f"{name} {value}" for name, value in row.setting.items()),
                f"{row.seconds:.1f}",
            )
            for row in self.rows
        ]

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns of the printed table."""
        return "model", self.measure, "log loss", "setting", "seconds"

    def _table(self) -> Table:
        return Table(f"Cross-validation, ordered by {self.measure}", self.columns, self.lines())


@dataclass(frozen=True, eq=False)
class MultilabelResult:
    """All results of a job with several labels per row: what is saved, printed and drawn."""

    data: TrainTest
    options: FitOptions
    sep: str
    comparison: SettingComparison
    model: FeaturedClassifier
    scores: LabelSetScores  # on the test rows
    baseline: float  # micro F1 of predicting every learned label for every row
    notes: tuple[str, ...]
    seconds: float
    reasons: None = None
    leaks: tuple[Leak, ...] = ()  # always empty: leaks are not searched for several labels per row

    @property
    def features(self) -> Features:
        """The features of the model."""
        return self.model.features_

    def save(self, path: str | Path, target: str | None = None, id: str | None = None, force: bool = False) -> None:
        """Write the model file; `force` overwrites a file that is not a model."""
        best = self.comparison.best
        notes = {
            **data_notes(self.data, target, id),
            "multilabel": self.sep,
            "model": best.model,
            "setting": dict(best.setting),
            "test_micro_f1": self.scores.micro_f1,
        }
        modelfile.save(self.model, path, notes, force=force)


# ---- reading


def read_label_sets(data: Any, reading: ReadOptions, options: FitOptions, test: Any = None) -> TrainTest:
    """Read DATA with its test rows. The labels of a row are one text, and codes number the different texts."""
    weight = data.weights if isinstance(data, RowsInMemory) else None
    _check_options(reading.weight is not None or weight is not None, options)
    sep = reading.multilabel or ";"
    if test is not None:
        refuse_same(data, test)
    rows, _ = read_what_fits(data, reading)
    y = rows.required_labels()
    if reading.join_labels:
        y = joined_sets(y, sep)
    classes = known_labels(y, sep).tolist()
    data = as_training_rows(rows, reading, y, encode(y))
    return with_test_rows(
        data, reading, test, options.seed,
        lambda labels: joined_sets(labels, sep, classes) if reading.join_labels else labels,
        rarest_labels(y, sep),
    )  # fmt: skip


def rarest_labels(y: NDArray, sep: str) -> NDArray[np.int64]:
    """Return the number of the rarest label of each row (n,), by which rows are stratified; 0 for rows without labels.

    >>> rarest_labels(np.array(["a;b", "a", "", "a;c", "a;c"]), ";").tolist()
    [2, 1, 0, 3, 3]
    """
    classes = known_labels(y, sep)
    Y = label_matrix(y, classes, sep)
    counts = np.where(Y > 0, Y.sum(axis=0), np.inf)
    return np.where(Y.any(axis=1), counts.argmin(axis=1) + 1, 0)


def _check_options(has_weights: bool, options: FitOptions) -> None:
    """Raise UsageError for options that do not work with several labels per row."""
    for name in ("sets", "unknown", "class_weight", "also", "repeats", "single", "costs", "device"):
        value = getattr(options, name)
        is_array = getattr(value, "ndim", 0) > 0  # never the default, and == compares its elements
        if is_array or value not in (getattr(FitOptions(), name), ()):
            raise UsageError(f"{name}= does not work with multilabel=; leave it out")
    if has_weights:
        raise UsageError("weight= does not work with multilabel=; leave it out")
    if options.metric not in _MEASURES:
        raise UsageError(f"metric is {options.metric!r}; with multilabel= it must be {listing(_MEASURES)}")


# ---- the job


def run_multilabel(
    data: TrainTest, reading: ReadOptions, options: FitOptions, begun: float | None = None
) -> MultilabelResult:
    """Compare, refit, calibrate and test; the budget counts from `begun` (time.perf_counter()), by default now."""
    begun, sep = time.perf_counter() if begun is None else begun, reading.multilabel or ";"
    written = {w.column: w.how for w in data.written}
    features = Features(dict(data.kinds) or None, embed=options.embed, image=data.image, written=written)
    with progress.portion(0.0, 0.1), progress.stage("features"):
        X = features.fit_transform(data.rows)
    clock = Clock(options.budget, begun, REPORT_SECONDS)
    classes = known_labels(data.required_labels(), sep)
    if clock.budget is None:
        clock.budget = default_budget(costs.size_of(X, len(classes)))
    _check_room(data.n, len(classes))
    Y = label_matrix(data.required_labels(), classes, sep)
    search = Search(X, Y, data, options, sep, clock)
    with progress.portion(0.1, 0.8):
        search.run()
    with progress.portion(0.8, 0.9), progress.stage("fit on all training rows"):
        classifier = search.fit_best(data.required_labels())
    model = FeaturedClassifier.of(features, classifier)
    with progress.portion(0.9, 0.95), progress.stage("testing"):
        scores = evaluate_sets(model, [(data.test_rows, data.test_y)])
    Y_test = label_matrix(data.test_y, classes, sep)
    n_true = sum(line["rows"] for line in scores.labels)  # also of labels that were not learned
    baseline = float(2 * Y_test.sum() / (n_true + Y_test.size))
    notes = (*data.notes, *search.notes())
    seconds = time.perf_counter() - begun
    return MultilabelResult(data, options, sep, search.comparison(), model, scores, baseline, notes, seconds)


def _check_room(n: int, n_labels: int) -> None:
    """Raise BudgetError if the tables (n, K) of a job do not fit: labels, logits, probabilities and their sums."""
    what, advice = f"a comparison of {n:,} rows x {n_labels:,} labels", "pass fewer rows, or leave out rare labels"
    check_room(10 * 8 * n * n_labels, what, advice)


SettingLogits = Iterator[tuple[dict[str, Any], NDArray[np.float64]]]


class Search:
    """All settings on the same folds: logits of held-out rows, and the best setting of each kind."""

    def __init__(
        self, X: Any, Y: NDArray[np.float64], data: TrainTest, options: FitOptions, sep: str, clock: Clock
    ) -> None:
        self.X, self.Y, self.options, self.sep, self.clock = X, Y, options, sep, clock
        codes = rarest_labels(data.required_labels(), sep)
        self.folds = fold_numbers(codes, options.folds, data.groups, data.order, options.seed)
        self.kinds = tuple(KINDS if options.models is None else options.models)
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown:
            raise UsageError(f"models has {unknown[0]!r}; with multilabel= it must be {listing(KINDS)}")
        self.found: dict[str, tuple[SettingScores, NDArray[np.float64]]] = {}  # best of each kind, with its logits
        self.n_folds, self.held = int(self.folds.max()) + 1, np.flatnonzero(self.folds >= 0)
        self.rates = base_rates(Y)
        self.cut = False

    def run(self) -> None:
        """Score every setting of every kind, as long as there is time."""
        for place, kind in enumerate(self.kinds):
            with progress.stage(kind, place, len(self.kinds), left=self.clock.left()):
                begun = time.perf_counter()
                for setting, z in self._logits(kind):
                    self._keep(kind, setting, z, time.perf_counter() - begun)

    def _keep(self, kind: str, setting: dict[str, Any], z: NDArray[np.float64], seconds: float) -> None:
        """Store a setting if it is the best of its kind so far."""
        scores = self._scores(z)
        row = SettingScores(kind, setting, *scores, seconds)
        best, logits = self.found.get(kind, (row, z))
        if self._rank(row) > self._rank(best):
            best, logits = row, z
        self.found[kind] = replace(best, seconds=seconds), logits

    def _rank(self, row: SettingScores) -> float:
        return -row.score if self.options.metric == "log-loss" else row.score

    def _scores(self, z: NDArray[np.float64]) -> tuple[float, tuple[float, ...], float]:
        """Return the score on all held-out rows, the score of each fold, and the log loss."""
        p, _, thresholds = self._decisions(z)
        names = np.arange(self.Y.shape[1])
        measure = _MEASURES[self.options.metric].lower().replace(" ", "_")  # a field of LabelSetScores
        whole = score_sets(p, self.Y[self.held], names, thresholds)
        folds = [
            getattr(score_sets(p[part], self.Y[self.held][part], names, thresholds), measure)
            for part in (self.folds[self.held] == f for f in range(self.n_folds))
        ]
        return getattr(whole, measure), tuple(folds), whole.log_loss

    def _decisions(self, z: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """Return the probabilities of held-out rows, their calibration, and the thresholds."""
        Y = self.Y[self.held]
        calibration = calibrate(z, Y, self.rates)
        p = calibrated(z, self.rates, calibration)
        return p, calibration, choose_thresholds(p, Y, self.options.metric == "macro-f1")

    def _logits(self, kind: str) -> SettingLogits:
        """Yield settings with the logits (m, K) of the held-out rows."""
        parts = splits_of(self.folds)
        yield from (self._linear(parts) if kind == "logistic" else self._neighbors(kind, parts))

    def _linear(self, parts: list[Split]) -> SettingLogits:
        paths = [LinearPath(take_rows(self.X, train), self.Y[train]) for train, _ in parts]
        settings = FAMILIES["logistic"].settings(FoldedRows(self.X, np.zeros(len(self.Y), np.int64), self.folds))
        alphas = [s["alpha"] for s in settings] if self.options.alpha is None else [self.options.alpha]
        is_over, longest = self.clock.pace(len(alphas)), 0.0
        for n_done, alpha in enumerate(sorted(alphas, reverse=True)):
            if is_over() and (n_done or self.found):
                self.cut = True
                return
            z, begun = np.empty(self.Y.shape), time.perf_counter()
            for path, (_, held_out) in zip(paths, parts):
                weights, biases = path.fit(alpha)
                z[held_out] = take_rows(self.X, held_out) @ weights.T + biases
            longest = max(longest, time.perf_counter() - begun)
            self.clock.reserve = REPORT_SECONDS + longest  # the fit on all rows takes about as long as the folds
            yield {"alpha": alpha}, z[self.held]

    def _neighbors(self, kind: str, parts: list[Split]) -> SettingLogits:
        """Search once per fold for the largest number of neighbors; smaller numbers are the beginnings of the lists."""
        if self.clock.up() and self.found:
            self.cut = True
            return
        metric = "cosine" if kind == "neighbors-cosine" else "euclidean"
        fewest_rows = min(len(train) for train, _ in parts)
        counts = [k for k in _NEIGHBORS if k < fewest_rows]
        ids = []
        for train, held_out in parts:
            model = NeighborsClassifier(counts[-1], metric=metric).fit(take_rows(self.X, train), np.arange(len(train)))
            ids.append(model.kneighbors(take_rows(self.X, held_out), return_distance=False))
        import scipy.sparse as sp

        label_rows_of_parts = [sp.csr_matrix(self.Y[train]) for train, _ in parts]
        for k in counts:
            z = np.empty(self.Y.shape)
            for neighbors, label_rows, (train, held_out) in zip(ids, label_rows_of_parts, parts):
                z[held_out] = neighbor_logits(neighbors[:, :k], label_rows, base_rates(self.Y[train]))
            yield {"k": k}, z[self.held]

    def comparison(self) -> SettingComparison:
        """Return the best setting of each kind, best first."""
        rows = sorted((row for row, _ in self.found.values()), key=self._rank, reverse=True)
        return SettingComparison(rows, _MEASURES[self.options.metric])

    def notes(self) -> tuple[str, ...]:
        """Return a note if the time was up before all settings were scored."""
        late = [kind for kind in self.kinds if kind not in self.found]
        if not self.cut:
            return ()
        more = f"; not run: {listing(late)}" if late else ""
        return (f"the budget of {self.clock.budget:.3g} s ended the comparison early{more}",)

    def fit_best(self, y: NDArray) -> MultilabelClassifier:
        """Return the best setting, fitted on all rows, with the probabilities and thresholds of held-out rows."""
        best = self.comparison().best
        z = self.found[best.model][1]
        if best.model == "logistic":
            model = MultilabelClassifier("linear", self.sep, best.setting["alpha"])
        else:
            metric = "cosine" if best.model == "neighbors-cosine" else "euclidean"
            model = MultilabelClassifier("neighbors", self.sep, n_neighbors=best.setting["k"], metric=metric)
        model.fit(self.X, y)
        model.set_decisions(*self._decisions(z)[1:])
        return model
