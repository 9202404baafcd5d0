"""The main job: rows -> features -> families compared -> the best refitted and calibrated -> tested once.

Test rows are transformed and predicted at the very end; nothing is chosen by them.

A budget is for the whole job. Seconds for the end (refit, calibration, test, page) are put aside from what fits of
the leader have taken; the comparison gets the rest, and the notes say what was cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway import progress
from kway.data.blocks.row_blocks import rows_at
from kway.data.features.features import Features
from kway.data.labels import encode
from kway.data.suggest import listing
from kway.errors import KwayError
from kway.featured import FeaturedClassifier
from kway.planning import guard
from kway.planning.comparison import before_comparison, comparison_seconds
from kway.planning.size import Size
from kway.select.all_rows import AllRows
from kway.select.calibration import PAGE, Calibrated, calibrate_winner, scaled_on
from kway.select.contest.clock import Clock
from kway.select.contest.compare import TOO_LATE, Comparison, compare
from kway.select.contest.families import FAMILIES, STRAW_MAN, Family, LinearFamily
from kway.select.contest.folds import few_rows_note, fold_numbers
from kway.select.contest.references import TREES, verdict, words_note
from kway.select.contest.sample import Sample, draw_sample
from kway.select.contest.scans import FoldedRows, HeldOut
from kway.select.contest.standings import Standing
from kway.select.contest.views import View, other_views
from kway.select.evaluation import Evaluation, McNemar, evaluate_model, mcnemar
from kway.select.image_parts import MOST_PARTS, image_form
from kway.select.leaderboard import Line, fit_lines
from kway.select.learning_curve import Learned, LearningCurve, learning_curve
from kway.select.promises import Promises, Tradeoff, promise, sets_tradeoff, unknown_tradeoff
from kway.select.reasons import SECONDS, SHOWN, Reasons, kept_facts, own_reasons, shuffled
from kway.select.streamed_winner import Refit, refit
from kway.select.train_test import Parts
from kway.select.wishes import Wishes

TOO_LONG = 240.0  # seconds expected of a comparison from which its rows are sampled
COMPARISON = 60.0  # expected of the sample
NAMELESS = 100  # columns of a matrix up to which x0, x1, ... are worth listing
STRAW_WIDTH = 3000  # features up to which the straw man, a dense solve, is worth fitting


@dataclass(frozen=True)
class RunnerUp:
    """The second of the leaderboard on the same test rows, and the exact test of the difference."""

    model: str
    accuracy: float
    test: McNemar


@dataclass(frozen=True, eq=False)
class JobResult:
    """All that the job found: what is saved, printed and drawn."""

    parts: Parts
    X: Any  # training rows as numbers (n, d)
    test_X: Any
    comparison: Comparison
    lines: list[Line]
    model: FeaturedClassifier
    evaluation: Evaluation
    baselines: dict[str, float]  # test accuracy of guessing and of the straw man
    runner_up: RunnerUp | None
    temperature: float | None
    notes: tuple[str, ...]
    seconds: dict[str, float]  # of the stages
    hurried: bool = False  # the budget is spent: the page leaves out what is slow to draw
    sets: Tradeoff | None = None
    unknown: Tradeoff | None = None
    curve: LearningCurve | None = None
    reasons: Reasons | None = None
    fitted_rows: int = 0  # that the winner learned from

    @property
    def best(self) -> Line:
        """The winner."""
        return self.lines[0]


@dataclass(frozen=True, eq=False)
class Compared:
    """The job up to the choice."""

    whole: View
    others: dict[str, View]  # by the ending of the names of their families
    comparison: Comparison
    notes: tuple[str, ...]
    n_classes: int  # of all training rows
    sample: NDArray[np.int64] | None = None  # row numbers that were compared on, where not all

    def compared(self, values: Any) -> Any:
        """What the comparison saw of values a row."""
        return values if self.sample is None else rows_at(values, self.sample)

    def folds(self, parts: Parts, wishes: Wishes) -> NDArray[np.int64]:
        """The fold (n,) of every training row, compared on or not."""
        if self.sample is None:
            return self.comparison.folds
        return fold_numbers(encode(parts.y).codes, wishes.n_folds, parts.groups, parts.order, wishes.seed)

    @property
    def all_rows(self) -> AllRows:
        """All training rows beside those that were compared on."""
        size = guard.size_of(self.whole.X, self.n_classes)
        if self.sample is None:
            return AllRows(size)
        return AllRows(size, replace(size, n=len(self.sample), K=len(self.comparison.classes)))

    def held_out(self, standing: Standing) -> HeldOut | None:
        """What the winner's votes say of rows held out, where all rows were compared on and they were kept."""
        return self.comparison.scans[standing.model].held_out(standing.setting) if self.sample is None else None

    def view(self, model: str) -> View:
        """The rows as this family of the leaderboard was given them."""
        return next((view for ending, view in self.others.items() if model.endswith(ending)), self.whole)


def compare_parts(
    parts: Parts, wishes: Wishes, clock: Clock | None = None, seen: Callable[[Features], None] | None = None
) -> Compared:
    """Features learned from the training rows, told to `seen`, and the families compared on them."""
    clock = clock or Clock(wishes.budget)
    written = {w.column: w.how for w in parts.written}
    features = Features(dict(parts.kinds) or None, embed=wishes.embed, image=parts.image, written=written)
    whole = View(features, features.fit_transform(parts.rows))
    if seen is not None:
        seen(features)
    codes = encode(parts.y).codes
    size = guard.size_of(whole.X, int(codes.max()) + 1)
    drawn = _sample(codes, size, wishes)
    some = None if drawn is None else drawn.rows
    at = lambda values: values if some is None or values is None else rows_at(values, some)  # noqa: E731
    run = lambda X, families, also=(): compare(  # noqa: E731
        at(X), at(parts.y), families, wishes.n_folds, at(parts.groups), at(parts.order), clock, wishes.seed, False,
        wishes.metric, wishes.class_weight, wishes.repeats, also, wishes.device,
    )  # fmt: skip
    found = run(whole.X, families_of(wishes), references_of(wishes))
    others: dict[str, View] = {}
    if wishes.families is None and not clock.up():
        for ending, view, families in other_views(
            features, parts.rows, len(found.classes), stated=not found.measure.rises
        ):
            found = found.joined(run(view.X, families))
            others[ending] = view
    told = (verdict(found.best, other, found.measure.rises) for other in found.references)
    on: tuple[str, ...] = () if drawn is None else (drawn.note,)
    on += _fold_notes(found, parts, wishes)
    on += few_rows_note(encode(at(parts.y)).codes, found.folds)
    if TREES in references_of(wishes):
        on += words_note(whole.X, [r.column for r in features.records_ if r.used and r.kind == "text"])
    notes = (*parts.notes, *on, *_cut_notes(found, clock), *_left_out(found.problems), *told)
    return Compared(whole, others, found, notes, size.K, some)


def _sample(codes: NDArray[np.int64], size: Size, wishes: Wishes) -> Sample | None:
    """The rows to compare on, where all would take too long and nobody said which families; told at once."""
    if wishes.families is not None:
        return None
    drawn = None
    if comparison_seconds(size) > TOO_LONG:
        drawn = draw_sample(codes, size, comparison_seconds, COMPARISON, wishes.seed)
    if drawn is not None:
        progress.note(drawn.note.replace("were compared", "are compared").replace("was then", "will then be"))
        size = replace(size, n=len(drawn.rows), K=len(np.unique(codes[drawn.rows])))
    before_comparison(size, wishes.budget)
    return drawn


def _fold_notes(found: Comparison, parts: Parts, wishes: Wishes) -> tuple[str, ...]:
    """That there are fewer folds than were asked for; time in order has one, whatever was asked."""
    made = int(found.folds.max()) + 1
    if parts.order is not None or made >= wishes.n_folds:
        return ()
    what = "rows" if parts.groups is None else "groups"
    return (f"{made} folds were made and not {wishes.n_folds}: there are no more {what} to divide",)


def _cut_notes(found: Comparison, clock: Clock) -> tuple[str, ...]:
    """What the budget or Ctrl-C cut, in words."""
    if found.finished:
        return ()
    why = "Ctrl-C" if clock.interrupted else f"the budget of {clock.budget:g} s"
    late = [name for name, reason in found.problems.items() if reason == TOO_LATE]
    short = [line.model for line in found.standings if TOO_LATE in line.note]
    told = f"{why} cut the comparison short; the best until then was kept"
    told += f"; not run: {listing(late)}" if late else ""
    return (told + (f"; not with every setting or fold: {listing(short)}" if short else ""),)


def _left_out(problems: dict[str, str]) -> tuple[str, ...]:
    reasons = [why for why in dict.fromkeys(problems.values()) if why != TOO_LATE]
    names = {why: [n for n, w in problems.items() if w == why] for why in reasons}
    return tuple(f"{listing(n)} {'was' if len(n) == 1 else 'were'} left out: {why}" for why, n in names.items())


def run_job(
    parts: Parts,
    wishes: Wishes,
    begun: float | None = None,
    seen: Callable[[Features], None] | None = None,
    tested: Callable[[JobResult], None] | None = None,
) -> JobResult:
    """Compare, refit, calibrate, test once; the budget counts from `begun` (time.perf_counter()), by default now.

    `seen` is told the features before the work begins, `tested` the result while curve and reasons are still to come.
    """
    laps = _Laps()
    clock = Clock(wishes.budget, laps.begun if begun is None else begun, _ending)
    with progress.portion(0.02, 0.6):
        chosen = compare_parts(parts, wishes, clock, seen)
    laps.lap("compare")
    with progress.portion(0.6, 0.72):
        lines = fit_lines(chosen.comparison, lambda m: chosen.view(m).X, parts.y, wishes.seed, clock, chosen.all_rows)
    features, X = chosen.view(lines[0].standing.model)
    changed = chosen.all_rows.note(chosen.comparison.estimator(lines[0].standing, wishes.seed))
    folds, compared_line = chosen.folds(parts, wishes), lines[0]
    whole = _on_all(lines[0], features, X, folds, parts, wishes)
    lines[0] = whole.line
    laps.lap("refit")
    with progress.portion(0.72, 0.84), progress.stage("calibrating"):
        promises = _promises(lines[0], X, folds, parts, wishes)
        if promises.model is not None:
            calibrated, note = Calibrated(promises.classifier)
        elif whole.held is None:
            held = chosen.held_out(compared_line.standing)
            calibrated, note = calibrate_winner(lines[0], X, folds, parts, wishes.seed, clock, held, wishes.even)
        else:
            calibrated, note = scaled_on(whole.line.model, rows_at(X, whole.held), parts.y[whole.held], wishes.seed)
    laps.lap("calibrate")
    with progress.portion(0.84, 0.88), progress.stage("testing"):
        test_X = features.transform(parts.test_rows)
        evaluation = evaluate_model(calibrated, test_X, parts.test_y)
        runner_up = _runner_up(lines, evaluation, chosen, parts, test_X)
        baselines = _baselines(X, test_X, parts)
    laps.lap("test")
    clock.reserve = PAGE
    found = JobResult(
        parts, X, test_X, chosen.comparison, lines, FeaturedClassifier.of(features, promises.model or calibrated, X),
        evaluation, baselines, runner_up, getattr(calibrated, "temperature_", None),
        (*chosen.notes, *changed, *filter(None, (note, whole.note))), laps.seconds, hurried=clock.up(),
        sets=None if wishes.sets is None else sets_tradeoff(promises, test_X, parts.test_y),
        unknown=None if wishes.unknown is None else unknown_tradeoff(promises, test_X, parts.test_y),
        fitted_rows=whole.rows,
    )  # fmt: skip
    if tested is not None:
        tested(found)
    with progress.portion(0.88, 0.92), progress.stage("looking for reasons"):
        curve, why = _curve(compared_line, X, chosen, parts, wishes, clock)
        reasons = _reasons(FeaturedClassifier.of(features, lines[0].model, X), X, parts, clock)
    found.model.reasons_ = None if reasons is None else kept_facts(reasons)
    laps.lap("reasons")
    return replace(found, notes=(*found.notes, *filter(None, (why,))), curve=curve, reasons=reasons)


def _on_all(line: Line, features: Features, X: Any, folds: NDArray[np.int64], parts: Parts, wishes: Wishes) -> Refit:
    """The winner on all rows of DATA: as it is, unless memory holds a part of them."""
    if parts.larger is None:
        return Refit(line, parts.n, None, "")
    if wishes.sets is not None or wishes.unknown is not None:
        return Refit(line, parts.n, None, "promises are held on rows in memory, so the model learned from those alone")
    return refit(line, features, X, parts, parts.larger, folds, wishes.seed)


def _promises(line: Line, X: Any, folds: NDArray[np.int64], parts: Parts, wishes: Wishes) -> Promises:
    """The winner with what is promised of it; nothing where nothing was asked for."""
    if wishes.sets is None and wishes.unknown is None:
        return Promises(None, None, None)
    kept = parts.order is not None or parts.groups is not None  # rows drawn at random would be too easy
    split = (np.flatnonzero(folds != 0), np.flatnonzero(folds == 0)) if kept else None
    return promise(line.model, X, parts.y, split, wishes.sets, wishes.unknown, wishes.seed)


def _curve(line: Line, X: Any, chosen: Compared, parts: Parts, wishes: Wishes, clock: Clock) -> Learned:
    found = chosen.comparison
    codes = encode(chosen.compared(parts.y)).codes
    data = FoldedRows(chosen.compared(X), codes, found.folds, {}, found.measure)
    make = lambda: found.estimator(line.standing, wishes.seed)  # noqa: E731
    try:
        seconds = found.families[line.standing.model].expected_seconds(data.size())
        return learning_curve(make, line.standing, data, seconds, clock, wishes.seed)
    except KwayError:  # a part of the rows that cannot be learned from is no reason to fail
        return Learned(None)


def _reasons(model: FeaturedClassifier, X: Any, parts: Parts, clock: Clock) -> Reasons | None:
    """What tells each class; of models without weights, by the test rows, while there is time.

    Pixels and the like have no names that tell anybody anything: of images, where the model looks.
    """
    form = image_form(model.features_, parts.test_rows)
    if form is None and not model.features_.is_table_ and X.shape[1] > NAMELESS:
        return None
    try:
        own = None if form is not None else own_reasons(model)
        if own is not None or clock.up(SECONDS):
            return own
        most = SHOWN if form is None else MOST_PARTS
        return shuffled(model, parts.test_rows, parts.test_y, most, SECONDS, "test rows")
    except KwayError:
        return None


def _ending(fit_seconds: float) -> float:
    """Seconds from the choice to the page: a fit on all rows, one on four fifths of them for the temperature."""
    return 1.8 * fit_seconds + PAGE


def families_of(wishes: Wishes) -> list[str | Family] | None:
    """The families asked for, at the alpha given where one is; None where neither was said."""
    if wishes.families is None and wishes.alpha is None:
        return None
    known = {**FAMILIES, STRAW_MAN.name: STRAW_MAN}
    chosen: list[Any] = [known.get(n, n) for n in (FAMILIES if wishes.families is None else wishes.families)]
    if wishes.alpha is None:
        return chosen
    return [replace(f, alphas=(wishes.alpha,)) if isinstance(f, LinearFamily) else f for f in chosen]


def references_of(wishes: Wishes) -> Sequence[Any]:
    """Those asked for; unasked, trees beside the whole comparison."""
    if wishes.also is not None:
        return wishes.also
    return (TREES,) if wishes.families is None else ()


def _runner_up(
    lines: list[Line], evaluation: Evaluation, chosen: Compared, parts: Parts, test_X: Any
) -> RunnerUp | None:
    if len(lines) < 2 or lines[1].model is None:
        return None
    other = lines[1]
    own, best = chosen.view(other.standing.model), chosen.view(lines[0].standing.model)
    right = other.model.predict(test_X if own is best else own.features.transform(parts.test_rows)) == parts.test_y
    return RunnerUp(other.standing.model, float(right.mean()), mcnemar(evaluation.predicted == parts.test_y, right))


def _baselines(X: Any, test_X: Any, parts: Parts) -> dict[str, float]:
    """Always the commonest class; and least squares on the class number, which has no reason to be right."""
    labels = encode(parts.y)
    most = labels.classes[np.bincount(labels.codes).argmax()]
    found = {"majority class": float(np.mean(parts.test_y == most))}
    if X.shape[1] <= STRAW_WIDTH and not hasattr(X, "tocsr"):
        straw = STRAW_MAN.make({"targets": "number"}, 0).fit(X, labels.codes)
        found["straw man"] = float(np.mean(labels.classes[straw.predict(test_X)] == parts.test_y))
    return found


class _Laps:
    """Seconds of the stages."""

    def __init__(self) -> None:
        self.begun = self.last = time.perf_counter()
        self.seconds: dict[str, float] = {}

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name], self.last = now - self.last, now
