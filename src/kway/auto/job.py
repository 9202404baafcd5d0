"""The main job: read rows, compute features, compare families, refit and calibrate the best, test it once.

Test rows are transformed and predicted at the very end, so no choice depends on them.

A budget is for the whole job. Time for the end (refit, calibration, test, report) is reserved, and the comparison gets
the rest. Notes say what was left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import modelfile, progress
from kway.auto.calibration import (
    REPORT_SECONDS,
    GuaranteedModel,
    Tradeoff,
    calibrate,
    calibrate_on,
    sets_tradeoff,
    unknown_tradeoff,
    with_guarantees,
)
from kway.auto.compare_data import DataComparison, View, compare_data
from kway.auto.evaluation import Evaluation, McNemar, evaluate_model, mcnemar
from kway.auto.fit_options import FitOptions
from kway.auto.learning_curve import LearningCurve, learning_curve
from kway.auto.race.clock import Clock, extra_seconds
from kway.auto.race.compare import Comparison
from kway.auto.race.families import CLASS_NUMBER, comparison_seconds
from kway.auto.race.folds import HELD_OUT_SHARE
from kway.auto.race.scoring import LeaderboardRow
from kway.auto.reasons import (
    MOST_PARTS,
    SECONDS,
    UNNAMED_COLUMNS,
    Reasons,
    image_form,
    kept_facts,
    own_reasons,
    shuffled,
)
from kway.auto.refit import AllDataFit, fit_all_data, fit_leaderboard
from kway.auto.train_test import TrainTest
from kway.errors import KwayError
from kway.pipelines import FeaturedClassifier
from kway.rows.blocks import take_rows
from kway.tables.features.features import Features

_BASELINE_COLUMNS = 3000  # columns up to which the least-squares baseline, a dense solve, is fitted (T11)


@dataclass(frozen=True)
class RunnerUp:
    """The second family of the leaderboard on the test rows, and the test of the difference to the best."""

    model: str
    accuracy: float
    test: McNemar


@dataclass(frozen=True, eq=False)
class JobResult:
    """All results of a job: what is saved, printed and drawn."""

    data: TrainTest
    options: FitOptions
    X: Any  # training rows as numbers (n, d)
    test_X: Any
    comparison: Comparison
    leaderboard: list[LeaderboardRow]  # with fitted models, best first
    model: FeaturedClassifier
    evaluation: Evaluation
    baselines: dict[str, float]  # test accuracy of the most frequent class and of least squares on the class number
    runner_up: RunnerUp | None
    temperature: float | None
    notes: tuple[str, ...]
    seconds: dict[str, float]  # per stage
    hurried: bool = False  # the budget is spent: the report leaves out slow figures
    sets: Tradeoff | None = None
    unknown: Tradeoff | None = None
    curve: LearningCurve | None = None
    reasons: Reasons | None = None
    fitted_rows: int = 0  # rows that the winner learned from

    @property
    def best(self) -> LeaderboardRow:
        """The best row of the leaderboard."""
        return self.leaderboard[0]

    def save(self, path: str | Path, target: str | None = None, id: str | None = None, force: bool = False) -> None:
        """Write the model file; `force` overwrites a file that is not a model."""
        modelfile.save(self.model, path, self.file_notes(target, id), force=force)

    def file_notes(self, target: str | None, id: str | None = None) -> dict[str, Any]:
        """Return facts for `kway info`; `reading` stores how later rows are read, `id` the column with their names."""
        data = self.data
        form = {key: value for key, value in vars(data.form).items() if value is not None}
        how = {"form": form, "written": {w.column: w.how for w in data.written}, "id": id}
        embed = getattr(self.model.features_, "embed_", None)
        return {
            "data": data.name,
            "target": target,
            "model": self.best.model,
            "setting": dict(self.best.setting),
            "test_accuracy": self.evaluation.scores.accuracy,
            "embed": str(embed) if embed else None,
            "reading": {key: value for key, value in how.items() if value} or None,
        }


def run_job(
    data: TrainTest,
    options: FitOptions,
    begun: float | None = None,
    on_features: Callable[[Features], None] | None = None,
) -> JobResult:
    """Compare, refit, calibrate and test; the budget counts from `begun` (time.perf_counter()), by default now.

    `on_features` is called with the features before the comparison begins.
    """
    stages = _Stages()
    clock = Clock(options.budget, stages.begun if begun is None else begun, _seconds_after_choice)
    with progress.portion(0.02, 0.6):
        chosen = compare_data(data, options, clock, on_features)
    stages.end("compare")
    with progress.portion(0.6, 0.72):
        rows_of = lambda model: chosen.view(model).X  # noqa: E731
        leaderboard = fit_leaderboard(chosen.comparison, rows_of, data.y, options.seed, clock, chosen.sizes)
        compared = leaderboard[0]  # as it was compared, if it is fitted again on all of DATA
        view = chosen.view(compared.model)
        fit = _fit_all_data(compared, view, chosen)
    X = view.X
    leaderboard[0] = fit.row
    stages.end("refit")
    with progress.portion(0.72, 0.84), progress.stage("calibrating"):
        guaranteed, calibrated, calibration_note = _calibrated(fit, compared, X, chosen, clock)
    stages.end("calibrate")
    with progress.portion(0.84, 0.88), progress.stage("testing"):
        tests = _test_results(leaderboard, calibrated, guaranteed, view, chosen)
    stages.end("test")
    clock.reserve = REPORT_SECONDS
    hurried = clock.up()
    with progress.portion(0.88, 0.92), progress.stage("explaining"):
        curve, curve_note = _learning_curve(compared, X, chosen, clock)
        reasons = _reasons(FeaturedClassifier.of(view.features, fit.row.fitted, X), X, data, clock)
    stages.end("reasons")
    adapted = chosen.sizes.notes(chosen.comparison.estimator(compared, options.seed))
    model = FeaturedClassifier.of(view.features, guaranteed.model if guaranteed else calibrated, X)
    model.reasons_ = None if reasons is None else kept_facts(reasons)
    return JobResult(
        data=data,
        options=options,
        X=X,
        **tests,
        comparison=chosen.comparison,
        leaderboard=leaderboard,
        model=model,
        temperature=getattr(calibrated, "temperature_", None),
        notes=(*chosen.notes, *adapted, *filter(None, (calibration_note, fit.note, curve_note))),
        seconds=stages.seconds,
        hurried=hurried,
        curve=curve,
        reasons=reasons,
        fitted_rows=fit.rows,
    )


def _seconds_after_choice(fit_seconds: float) -> float:
    """Return the seconds from the choice to the report: a fit on all rows, one for the temperature, the report."""
    return fit_seconds + (1 - HELD_OUT_SHARE) * fit_seconds + REPORT_SECONDS


class _Stages:
    """Seconds of the stages."""

    def __init__(self) -> None:
        self.begun = self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def end(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self.last = now - self.last, now


def _fit_all_data(row: LeaderboardRow, view: View, chosen: DataComparison) -> AllDataFit:
    """Return the winner on all rows of DATA: as it is, unless memory holds only a part of them."""
    data, options = chosen.data, chosen.options
    if data.larger is not None and options.guarantees:
        note = "guarantees need rows in memory, so the model learned from these rows only"
        return AllDataFit(row, data.n, note=note)
    return fit_all_data(row, view.features, view.X, data, chosen.folds(), options.seed)


def _calibrated(
    fit: AllDataFit, compared: LeaderboardRow, X: Any, chosen: DataComparison, clock: Clock
) -> tuple[GuaranteedModel | None, Any, str]:
    """Return the winner inside the classifiers with guarantees, if any, the winner with a temperature, and a note."""
    data, options = chosen.data, chosen.options
    if options.guarantees:
        guaranteed = with_guarantees(fit.row.fitted, X, chosen.folds(), data, options)
        return guaranteed, guaranteed.classifier, ""
    if fit.held is not None:
        return None, *calibrate_on(fit.row.fitted, take_rows(X, fit.held), data.y[fit.held], options.seed)
    held = chosen.held_out(compared)
    return None, *calibrate(fit.row, X, chosen.folds(), data, options, clock, held)


def _learning_curve(
    row: LeaderboardRow, X: Any, chosen: DataComparison, clock: Clock
) -> tuple[LearningCurve | None, str]:
    found, seed = chosen.comparison, chosen.options.seed
    rows = chosen.folded_rows(X)
    make = lambda: found.estimator(row, seed)  # noqa: E731
    try:
        seconds = found.families[row.model].expected_seconds(rows.size())
        allowed = extra_seconds(comparison_seconds(found.families.values(), rows.size()))
        return learning_curve(make, row, rows, seconds, allowed, clock, seed)
    except KwayError:  # some part of the rows cannot be learned from
        return None, ""


def _reasons(model: FeaturedClassifier, X: Any, data: TrainTest, clock: Clock) -> Reasons | None:
    """Explain the classes by weights, or else by permutation importance on the test rows if there is time.

    Images are explained by the parts that the model depends on.
    """
    form = image_form(model.features_, data.test_rows)
    if form is None and not model.features_.is_table_ and X.shape[1] > UNNAMED_COLUMNS:
        return None
    try:
        own = None if form is not None else own_reasons(model)
        if own is not None or clock.up(SECONDS):
            return own
        most = {} if form is None else {"n_columns": MOST_PARTS}
        return shuffled(model, data.test_rows, data.test_y, whose="test rows", **most)
    except KwayError:
        return None


def _test_results(
    leaderboard: list[LeaderboardRow],
    model: Any,
    guaranteed: GuaranteedModel | None,
    view: View,
    chosen: DataComparison,
) -> dict[str, Any]:
    """Return the fields of JobResult that come from the test rows."""
    options, test_X, y = chosen.options, view.features.transform(chosen.data.test_rows), chosen.data.test_y
    evaluation = evaluate_model(model, test_X, y)
    return {
        "test_X": test_X,
        "evaluation": evaluation,
        "runner_up": _runner_up(leaderboard, evaluation, chosen, test_X),
        "baselines": _baselines(view.X, test_X, chosen.data),
        "sets": sets_tradeoff(guaranteed, test_X, y) if guaranteed and options.sets else None,
        "unknown": unknown_tradeoff(guaranteed, test_X, y) if guaranteed and options.unknown else None,
    }


def _runner_up(
    leaderboard: list[LeaderboardRow], evaluation: Evaluation, chosen: DataComparison, test_X: Any
) -> RunnerUp | None:
    if len(leaderboard) < 2 or leaderboard[1].fitted is None:
        return None
    best, other = leaderboard[:2]
    own, data = chosen.view(other.model), chosen.data
    rows = test_X if own is chosen.view(best.model) else own.features.transform(data.test_rows)
    right: NDArray[np.bool_] = other.fitted.predict(rows) == data.test_y
    return RunnerUp(other.model, float(right.mean()), mcnemar(evaluation.predicted == data.test_y, right))


def _baselines(X: Any, test_X: Any, data: TrainTest) -> dict[str, float]:
    """Return the test accuracy of the most frequent class, and of least squares on the class number if it is fast."""
    classes, codes, _ = data.labels
    most = classes[np.bincount(codes).argmax()]
    found = {"majority class": float(np.mean(data.test_y == most))}
    if X.shape[1] <= _BASELINE_COLUMNS and not hasattr(X, "tocsr"):
        model = CLASS_NUMBER.make({"targets": "number"}, 0).fit(X, codes)
        found["class number"] = float(np.mean(classes[model.predict(test_X)] == data.test_y))
    return found
