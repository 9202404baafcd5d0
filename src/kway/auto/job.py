"""The main job: compute features, compare families, refit and calibrate the best, and test it once.

Test rows are transformed and predicted only after the model was chosen, so no choice depends on them. The result is a
blend of families, or the best single family with a temperature. With `sets` or `unknown` the model is a single family
inside a classifier with guarantees. With `costs`, the model predicts the label of lowest expected cost (costs.py).

`run_job` calls, in this order: compare_data.py (features, leaks, race), refit.py (fits on all rows), calibration.py,
evaluation.py (test rows), learning_curve.py, reasons.py and wrong_labels.py. The budget is for the whole job: time for
the fits, the test and the report is reserved, and the race gets the rest. Notes name what was left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kway import modelfile, progress
from kway.auto.calibration import (
    Tradeoff,
    calibrate,
    calibrate_on,
    layer_of,
    sets_tradeoff,
    unknown_tradeoff,
    with_guarantees,
)
from kway.auto.checkpoint import UNFINISHED, Checkpoint
from kway.auto.compare_data import DataComparison, View, compare_data
from kway.auto.costs import CostComparison, compare_costs, read_costs, with_costs
from kway.auto.drift import NOTE as SUMMARY
from kway.auto.drift import ColumnSummary, as_note, summarize, summarize_predictions, unknown_label
from kway.auto.evaluation import Evaluation, McNemar, evaluate_model, mcnemar
from kway.auto.fit_options import FitOptions
from kway.auto.leaks import Leak
from kway.auto.learning_curve import LearningCurve, learning_curve
from kway.auto.race.clock import REPORT_SECONDS, Clock
from kway.auto.race.compare import Comparison
from kway.auto.race.families import CLASS_NUMBER
from kway.auto.race.pool import Pool, own_predictions, pool_of
from kway.auto.race.scoring import MOST_POOLED, LeaderboardRow
from kway.auto.reasons import (
    MAX_UNNAMED_COLUMNS,
    MOST_PARTS,
    REASONS_SECONDS,
    Reasons,
    image_form,
    kept_facts,
    own_reasons,
    permutation_importance,
)
from kway.auto.refit import fit_all_data, fit_families, fitted_row
from kway.auto.train_test import TrainTest
from kway.auto.trained_rows import ROWS, rows_note
from kway.auto.wrong_labels import WrongLabels, find_wrong_labels, out_of_fold
from kway.confidence import TemperatureScaledClassifier
from kway.confidence.blend import BlendClassifier, learn_weights
from kway.errors import KwayError, UsageError
from kway.pipelines import FeaturedClassifier, features_of
from kway.rows.blocks import take_rows
from kway.tables.features.features import Features
from kway.tables.labeled_rows import joined_requirements

Extra = TypeVar("Extra")

_BASELINE_COLUMNS = 3000  # columns up to which the least-squares baseline is fitted: its dense solve takes a second


@dataclass(frozen=True)
class RunnerUp:
    """The second family of the leaderboard on the test rows, and the test of the difference to the best."""

    model: str
    accuracy: float
    test: McNemar


@dataclass(frozen=True, eq=False)
class JobResult:
    """All results of a job, from which the model file, the printed text and the report are made."""

    data: TrainTest
    options: FitOptions
    X: Any  # training rows as numbers (n, d)
    test_X: Any
    comparison: Comparison  # its rows have fitted models
    model: Any  # FeaturedClassifier, or BlendClassifier of these
    features: Features  # of the main view
    evaluation: Evaluation
    baselines: dict[str, float]  # test accuracy of the most frequent class and of least squares on the class number
    runner_up: RunnerUp | None
    temperature: float | None
    notes: tuple[str, ...]
    seconds: dict[str, float]  # per stage
    hurried: bool = False  # whether the budget is used up, so that the report leaves out slow figures
    interrupted: bool = False  # whether Ctrl-C ended the comparison; the same job can be resumed
    sets: Tradeoff | None = None
    unknown: Tradeoff | None = None
    curve: LearningCurve | None = None
    reasons: Reasons | None = None
    wrong_labels: WrongLabels | None = None  # among the training rows; None if there was no time to judge them
    fitted_rows: int = 0  # number of rows that the winner was trained on
    weights: dict[str, float] = field(default_factory=dict)  # of the members of the blend; empty for a single family
    leaks: tuple[Leak, ...] = ()  # possible leaks, also those that do not warn
    costs: CostComparison | None = None

    @property
    def best(self) -> LeaderboardRow:
        """The best row of the leaderboard."""
        return self.comparison.best

    def save(self, path: str | Path, target: str | None = None, id: str | None = None, force: bool = False) -> None:
        """Write the model file; `force` overwrites a file that is not a model."""
        modelfile.save(self.model, path, self.file_notes(target, id), force=force)

    def file_notes(self, target: str | None, id: str | None = None) -> dict[str, Any]:
        """Return facts for `kway info`, about the data and the model."""
        embed = getattr(self.features, "embed_", None)
        return {
            **data_notes(self.data, target, id),
            "embed": str(embed) if embed else None,
            "model": self.best.model,
            "setting": dict(self.best.setting),
            "test_accuracy": self.evaluation.scores.accuracy,
            ROWS: rows_note(self._read_rows(), self.data.y),
            SUMMARY: as_note(self.summary()),
            **({UNFINISHED: True} if self.interrupted else {}),
        }

    def summary(self) -> list[ColumnSummary]:
        """Return the summaries of training columns and test predictions that the model file keeps to detect drift."""
        predicted, unknown = self.evaluation.predicted, None
        if self.unknown is not None:
            predicted, unknown = self.model.predict(self.data.test_rows), unknown_label(self.model)
        columns = summarize(self.data.rows, self.features.records_)
        return [*columns, *summarize_predictions(predicted, self.evaluation.confidence, unknown)]

    def _read_rows(self) -> Any:
        """Return the training rows with the columns that the model reads; a view may need only some."""
        if not self.features.is_table_:
            return self.data.rows
        columns = joined_requirements([each.requirements() for each in features_of(self.model)]).columns
        return self.data.rows.select(list(columns or self.data.rows.column_names))


def data_notes(data: TrainTest, target: str | None, id: str | None = None) -> dict[str, Any]:
    """Return facts about the data; `reading` is the text format and the id column of later rows."""
    form = {key: value for key, value in vars(data.form).items() if value is not None}
    reading = {key: value for key, value in (("form", form), ("id", id)) if value} or None
    shape = {} if data.hierarchy is None else {"hierarchy": data.hierarchy}
    return {"data": data.name, "target": target, "reading": reading, **shape}


def run_job(
    data: TrainTest,
    options: FitOptions,
    begun: float | None = None,
    on_features: Callable[[Features], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> JobResult:
    """Compare, refit, calibrate and test; the budget counts from `begun` (time.perf_counter()), by default now.

    `on_features` is called with the features before the comparison begins. `checkpoint` saves the best model so far and
    the predictions of the folds.
    """
    if data.weight is not None and options.guarantees:
        raise UsageError("guarantees (sets=, unknown=) count rows, so they do not work with weight=; leave one out")
    stages = _Stages()
    costs = None if options.costs is None else read_costs(options.costs, data.labels.classes)
    clock = Clock(options.budget, stages.begun if begun is None else begun, REPORT_SECONDS)
    with progress.portion(0.02, 0.6):
        store, on_round = (None, None) if checkpoint is None else (checkpoint.store, checkpoint.on_round)
        chosen = compare_data(data, options, clock, on_features, store, on_round)
    stages.end("compare")
    with progress.portion(0.6, 0.84):
        winner = _choose(chosen, clock)
        if costs is not None:
            winner = replace(winner, model=with_costs(winner.model, costs))
    stages.end("refit")
    with progress.portion(0.84, 0.88), progress.stage("testing"):
        tests = _test_results(winner, chosen)
        if costs is not None:
            tests["costs"] = compare_costs(winner.model, data, tests["evaluation"].predicted, costs)
    stages.end("test")
    clock.reserve = REPORT_SECONDS
    hurried = clock.up()
    with progress.portion(0.88, 0.92), progress.stage("explaining"):
        curve, curve_note = _attempt(partial(learning_curve, chosen, winner.single, clock)) or (None, "")
        reasons = _attempt(partial(_reasons, winner.explained, chosen, clock))
        wrong_labels = _attempt(partial(_wrong_labels, winner, chosen, clock))
    stages.end("reasons")
    winner.model.reasons_ = None if reasons is None else kept_facts(reasons)
    return JobResult(
        data=data,
        options=options,
        X=chosen.views[""].X if winner.pool else winner.view.X,
        **tests,
        comparison=replace(chosen.comparison, rows=winner.leaderboard),
        model=winner.model,
        features=chosen.views[""].features,
        temperature=winner.temperature,
        notes=(*chosen.notes, *winner.notes, *filter(None, (curve_note,))),
        seconds=stages.seconds,
        hurried=hurried,
        interrupted=clock.interrupted,
        curve=curve,
        reasons=reasons,
        wrong_labels=wrong_labels,
        fitted_rows=winner.fitted_rows,
        weights={} if winner.pool is None else winner.pool.weights,
        leaks=chosen.leaks,
    )


# ---- the choice


@dataclass(frozen=True, eq=False)
class Winner:
    """The chosen model, and the leaderboard with fitted models, the winner first."""

    leaderboard: list[LeaderboardRow]
    model: Any  # for raw rows
    explained: Any  # the model without temperature, guarantees and costs, for explanations
    view: View  # of the best single family
    single: LeaderboardRow  # the best single family, with its scores of the comparison
    notes: tuple[str, ...]
    temperature: float | None = None
    guaranteed: Any = None  # the outermost classifier with guarantees
    pool: Pool | None = None  # of the blend, if it was chosen
    candidate_pool: Pool | None = None  # of the blend, also if a single family was chosen
    fitted_rows: int = 0


def _choose(chosen: DataComparison, clock: Clock) -> Winner:
    """Choose a blend or the best single family, and fit what was chosen and the runner-up on all training rows."""
    comparison = chosen.comparison
    clock.reserve = REPORT_SECONDS  # from here on, the time of the fits is no longer reserved
    order = [row.model for row in comparison.rows]
    pool = pool_of(comparison.race, order[0], chosen.options.seed) if chosen.blend else None
    members = [] if pool is None or pool.is_worse else sorted(pool.weights, key=lambda name: -pool.weights[name])
    rows, notes = fit_families(chosen, list(dict.fromkeys([order[0], *members, *order[1:2]])), clock)
    leaderboard = sorted(rows.values(), key=lambda row: row.fitted is None and row.note.startswith("could not"))
    kept = [name for name in members if rows[name].fitted is not None]
    if pool is not None and kept not in ([], order[:1]):
        return _blend(_without_unfitted(pool, kept), leaderboard, notes, chosen)
    return _single(leaderboard, notes, chosen, clock, pool)


def _without_unfitted(pool: Pool, kept: list[str]) -> Pool:
    """Return the pool with new weights if the time was up before all of its members were fitted."""
    if len(kept) == len(pool.weights):
        return pool
    tables = [pool.held_out[name].probabilities() for name in kept]
    weights = learn_weights(tables, pool.codes, pool.sample_weight)
    return replace(pool, weights={name: float(w) for name, w in zip(kept, weights) if w > 0})


def _blend(pool: Pool, leaderboard: list[LeaderboardRow], notes: tuple[str, ...], chosen: DataComparison) -> Winner:
    """Return the blend of fitted members, each with its own features."""
    rows, data = {row.model: row for row in leaderboard}, chosen.data
    members = []
    for name in pool.weights:
        view, held_out = chosen.view(name), pool.held_out[name]
        scaled = held_out.with_probabilities(rows[name].fitted)
        members.append(FeaturedClassifier.of(view.features, scaled, view.X))
    classes = data.labels.classes
    make_blend = partial(
        BlendClassifier.of, list(pool.weights), members, list(pool.weights.values()), classes, data.rows
    )
    row = fitted_row(pool.row, data.rows, make_blend)
    row = replace(row, fit_seconds=sum(rows[name].fit_seconds or 0.0 for name in pool.weights))
    best = leaderboard[0]
    return Winner(
        [row, *leaderboard], row.fitted, row.fitted, chosen.view(best.model), best, notes,
        pool=pool, candidate_pool=pool, fitted_rows=data.n,
    )  # fmt: skip


def _single(
    leaderboard: list[LeaderboardRow], notes: tuple[str, ...], chosen: DataComparison, clock: Clock, pool: Pool | None
) -> Winner:
    """Return the best single family, with a temperature or inside the classifiers with guarantees."""
    best, data, options = leaderboard[0], chosen.data, chosen.options
    view = chosen.view(best.model)
    fit = fit_all_data(chosen, best)
    guaranteed, note = None, ""
    if options.guarantees:
        guaranteed = with_guarantees(chosen, fit.row)
        calibrated = layer_of(guaranteed, TemperatureScaledClassifier)
    elif fit.held_out is not None:
        calibrated, note = calibrate_on(
            fit.row.fitted, take_rows(view.X, fit.held_out), data.y[fit.held_out], options.seed
        )
    else:
        held = None if pool is None else pool.held_out.get(best.model)
        if held is None and data.weights is not None and data.labels.n_classes <= MOST_POOLED:
            held, _ = own_predictions(chosen.comparison.race, best.model, options.seed)
        calibrated, note = calibrate(chosen, fit.row, clock, held)
    return Winner(
        [fit.row, *leaderboard[1:]],
        FeaturedClassifier.of(view.features, calibrated if guaranteed is None else guaranteed, view.X),
        FeaturedClassifier.of(view.features, fit.row.fitted, view.X),
        view,
        best,
        (*notes, *filter(None, (note, fit.note))),
        getattr(calibrated, "temperature_", None),
        guaranteed,
        candidate_pool=pool,
        fitted_rows=fit.rows,
    )


class _Stages:
    """Measures the seconds of each stage of the job."""

    def __init__(self) -> None:
        self.begun = self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        """Record the seconds since the previous stage ended."""
        now = time.perf_counter()
        self.seconds[name], self.last = now - self.last, now


def _attempt(work: Callable[[], Extra]) -> Extra | None:
    """Return an extra of the report; None if it cannot be computed, such as from a part of the rows of one class."""
    try:
        return work()
    except (KwayError, MemoryError):
        return None


def _reasons(model: Any, chosen: DataComparison, clock: Clock) -> Reasons | None:
    """Explain the classes by weights, or else by permutation importance on the test rows if there is time.

    Images are explained by the parts that the model depends on.
    """
    data, main = chosen.data, chosen.views[""]
    form = image_form(main.features, data.test_rows)
    if form is None and not main.features.is_table_ and main.X.shape[1] > MAX_UNNAMED_COLUMNS:
        return None
    from_weights = None if form is not None else own_reasons(model)
    if from_weights is not None or clock.up(REASONS_SECONDS):
        return from_weights
    limits = {} if form is None else {"n_columns": MOST_PARTS}
    return permutation_importance(model, data.test_rows, data.test_y, whose="test rows", **limits)


def _wrong_labels(winner: Winner, chosen: DataComparison, clock: Clock) -> WrongLabels | None:
    """Find training rows whose label is probably wrong, if there is time and memory for probabilities of all rows."""
    comparison, codes = chosen.comparison, chosen.data.labels.codes
    if winner.candidate_pool is None:
        n_folds = int(chosen.folds.max()) + 1
        if chosen.data.labels.n_classes > MOST_POOLED or clock.extra_seconds() < n_folds * comparison.fit_seconds(
            comparison.best.model
        ):
            return None
    predictions = out_of_fold(chosen, winner.candidate_pool)
    return None if predictions is None or clock.up() else find_wrong_labels(predictions, codes, chosen.views[""].X)


def _test_results(winner: Winner, chosen: DataComparison) -> dict[str, Any]:
    """Return the fields of JobResult that come from the test rows."""
    options, data, guaranteed = chosen.options, chosen.data, winner.guaranteed
    base = chosen.views[""]
    main = base if winner.pool else winner.view
    test_X, y = main.features.transform(data.test_rows), data.test_y
    if winner.pool is None:
        # with costs, `estimator_` includes the decisions by expected cost: with_costs puts them inside the features
        inner = winner.model.estimator_
        model = inner if guaranteed is None else layer_of(inner, TemperatureScaledClassifier)
        evaluation = evaluate_model(model, test_X, y, data.test_weights)
    else:
        evaluation = evaluate_model(winner.model, data.test_rows, y, data.test_weights)
    return {
        "test_X": test_X,
        "evaluation": evaluation,
        "runner_up": _runner_up(winner, evaluation, chosen),
        "baselines": _baselines(base.X, test_X if main is base else base.features.transform(data.test_rows), data),
        "sets": sets_tradeoff(guaranteed, test_X, y) if options.sets else None,
        "unknown": unknown_tradeoff(guaranteed, test_X, y) if options.unknown else None,
    }


def _runner_up(winner: Winner, evaluation: Evaluation, chosen: DataComparison) -> RunnerUp | None:
    """Compare the winner with the next row of the leaderboard; for a blend, the best single family.

    Test rows with weights are not compared, because the McNemar test counts rows.
    """
    if len(winner.leaderboard) < 2 or winner.leaderboard[1].fitted is None or chosen.data.test_weights is not None:
        return None
    other, data = winner.leaderboard[1], chosen.data
    rows = chosen.view(other.model).features.transform(data.test_rows)
    correct: NDArray[np.bool_] = other.fitted.predict(rows) == data.test_y
    return RunnerUp(other.model, float(correct.mean()), mcnemar(evaluation.predicted == data.test_y, correct))


def _baselines(X: Any, test_X: Any, data: TrainTest) -> dict[str, float]:
    """Return the test accuracy of the most frequent class, and of least squares on the class number if it is fast."""
    classes, codes, _ = data.labels
    majority = classes[np.bincount(codes, data.weights).argmax()]
    accuracies = {"majority class": float(np.average(data.test_y == majority, weights=data.test_weights))}
    if X.shape[1] <= _BASELINE_COLUMNS and not hasattr(X, "tocsr"):
        model = CLASS_NUMBER.make({"targets": "number"}, 0).fit(X, codes, **data.fit_params())
        correct = classes[model.predict(test_X)] == data.test_y
        accuracies["class number"] = float(np.average(correct, weights=data.test_weights))
    return accuracies
