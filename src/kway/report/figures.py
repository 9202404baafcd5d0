"""The registry of the report's figures, each with a sentence on how to read it.

A figure is one function below `@picture(name, title)`. It takes the result of a job and returns a figure and a text, a
text alone if the figure is left out, or None if it does not apply. The page shows the figures in the order of the
functions. If a function fails, the page shows the reason in place of its figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kway.auto.job import JobResult
from kway.auto.race.families import LinearFamily
from kway.auto.race.neighbor_families import NeighborsFamily
from kway.auto.race.scoring import ACCURACY, LeaderboardRow
from kway.auto.reasons import as_grid, image_form
from kway.labels import encode_as
from kway.report import charts, confusion, model_views
from kway.report.mistakes import Mistake, find_mistakes, find_suspects, picture_shape, worst_mistakes
from kway.report.shapes import column_shapes, draw_shapes
from kway.report.style import page_svg, save, svg_document
from kway.rows.blocks import SAMPLE_ROWS
from kway.tables.outputs import replacing

_SHAPES = 4  # columns whose shape is drawn: they fit on the page next to each other (T11)


class Drawn(NamedTuple):
    """A figure with its text, or the text and mistakes to list; without both, the text says why."""

    figure: Figure | None
    text: str
    mistakes: Sequence[Mistake] = ()


class PagePicture(NamedTuple):
    """A figure of the page: its <svg> element, or None, and its largest width in pixels.

    `error` is set if a file of the figure could not be written. It is raised when the page is written.
    """

    name: str
    title: str
    text: str
    svg: str | None = None
    wide: int = 0
    mistakes: Sequence[Mistake] = ()
    error: OSError | None = None


Draw = Callable[[JobResult], Drawn | None]
PICTURES: dict[str, tuple[str, Draw]] = {}  # title and function by name, filled by `picture` in the order of the page


def picture(name: str, title: str) -> Callable[[Draw], Draw]:
    """Register the decorated function as a figure of the report; `name` is also the name of its files."""

    def register(draw: Draw) -> Draw:
        PICTURES[name] = title, draw
        return draw

    return register


def draw_pictures(found: JobResult, folder: Path | None = None) -> list[PagePicture]:
    """Draw every figure that applies; with `folder`, also write NAME.svg and NAME.png of each into it."""
    drawn = (_draw(name, found, folder) for name in PICTURES)
    return [picture for picture in drawn if picture is not None]


def _draw(name: str, found: JobResult, folder: Path | None) -> PagePicture | None:
    title, draw = PICTURES[name]
    try:
        drawn = draw(found)
        if drawn is None:
            return None
        if drawn.figure is None:
            return PagePicture(name, title, drawn.text, mistakes=drawn.mistakes)
        document = svg_document(drawn.figure)
    except Exception as error:  # the report is worth more than one figure
        return PagePicture(name, title, f"could not be drawn: {error}")
    wide = round(112 * drawn.figure.get_figwidth())  # so that its text is not larger than that of the page
    file_error = None if folder is None else _write_files(name, drawn.figure, document, folder)
    return PagePicture(name, title, drawn.text, page_svg(document, title), wide, error=file_error)


def _write_files(name: str, figure: Figure, document: bytes, folder: Path) -> OSError | None:
    """Write the figure as svg and png; return an error instead of raising it, because the page comes first."""
    try:
        folder.mkdir(exist_ok=True)
        with replacing(folder / f"{name}.svg") as draft:
            draft.write_bytes(document)
        save(figure, folder / f"{name}.png")
    except OSError as error:
        return error if error.filename else OSError(error.errno, error.strerror, str(folder))
    return None


@picture("leaderboard", "Leaderboard")
def _leaderboard(found: JobResult) -> Drawn:
    lines = found.leaderboard
    measure = found.comparison.measure if found.comparison.measure.rises else ACCURACY  # longer bars must be better
    own = measure is not ACCURACY
    figure = charts.leaderboard(
        names=[s.model if len(s.fold_accuracy) >= s.n_folds else f"{s.model} ({s.folds_run} folds)" for s in lines],
        means=[s.score if own else s.accuracy for s in lines],
        stds=[s.score_std if own else s.std for s in lines],
        score_name=measure.words,
        baseline=None if own else found.baselines["majority class"],
        title=f"{measure.words.capitalize()} by cross-validation",
    )
    text = "Mean over the folds with one standard deviation. Scores from fewer folds are marked and less certain."
    return Drawn(figure, text)


@picture("neighbors", "Choosing k")
def _neighbors_curve(found: JobResult) -> Drawn | None:
    line = _most_folds(found, NeighborsFamily)
    if line is None:
        return None
    setting, scan = line.setting, found.comparison.scans[line.model]
    vote = setting["weights"]
    own = [i for i, s in enumerate(scan.settings) if s["weights"] == vote]
    figure = charts.cross_validation(
        values=[scan.settings[i]["n_neighbors"] for i in own],
        scores=scan.measure.shown(scan.scores[:, own].T),
        chosen=setting["n_neighbors"],
        name="k",
        score_name=scan.measure.words,
        title=f"{line.model}, {vote} vote",
    )
    text = (
        "How many neighbors should vote? Each dot is the score on one held-out fold, and the line connects the means."
    )
    return Drawn(figure, text)


@picture("alpha", "Choosing the penalty")
def _alpha_curve(found: JobResult) -> Drawn | None:
    line = _most_folds(found, LinearFamily)
    if line is None or len(found.comparison.scans[line.model].settings) < 2:
        return None
    scan = found.comparison.scans[line.model]
    folds, run = _drawn_folds(scan.scores)
    if len(run) < 2:
        return None
    figure = charts.cross_validation(
        values=[scan.settings[i]["alpha"] for i in run],
        scores=scan.measure.shown(scan.scores[np.ix_(folds, run)].T),
        chosen=line.setting["alpha"],
        name="alpha",
        score_name=scan.measure.words,
        log=True,
        title=line.model,
    )
    text = "How strong should the penalty be? Too weak (left) fits the noise, too strong (right) misses the classes."
    return Drawn(figure, text)


def _drawn_folds(accuracy: NDArray) -> tuple[NDArray, NDArray]:
    """Return folds and settings that were all run: every fold if it has several settings, else the first fold.

    If fits are slow, only the settings next to the best one are run on every fold.
    """
    run = np.isfinite(accuracy)  # (folds, settings)
    every = np.flatnonzero(run.all(axis=0))
    if len(every) > 1:
        return np.arange(len(accuracy)), every
    return np.arange(1), np.flatnonzero(run[0])


@picture("confusion", "Confusion matrix")
def _confusion(found: JobResult) -> Drawn:
    classes = np.asarray(found.model.classes_)
    true, predicted = encode_as(found.data.test_y, classes), encode_as(found.evaluation.predicted, classes)
    figure = confusion.confusion_of(true, predicted, classes, title="Test rows")
    return Drawn(figure, "One row per true class, one column per predicted class; blue is correct, orange is wrong.")


@picture("reliability", "Are the probabilities calibrated?")
def _reliability(found: JobResult) -> Drawn | None:
    confidence = found.evaluation.confidence
    if confidence is None:
        return None
    correct = found.evaluation.predicted == found.data.test_y
    figure = charts.reliability(confidence=confidence, correct=correct)
    text = (
        "Accuracy of the test rows with about the same confidence. On the dashed line, accuracy and confidence agree."
    )
    if found.temperature is not None:
        text += f" The temperature of the probabilities, {found.temperature:.3g}, was fitted on held-out training rows."
    return Drawn(figure, text)


@picture("sets", "Sets of labels")
def _sets(found: JobResult) -> Drawn | None:
    if found.sets is None:
        return None
    kept = found.sets
    coverage = float(found.model.estimator_.coverage)
    names = "labels per set, on average", "share of sets with the right label"
    figure = charts.tradeoff(kept.x, kept.y, kept.at, *names, guaranteed=coverage)
    text = (
        f"On the test rows, {kept.at[1]:.1%} of the sets contain the right label, with {kept.at[0]:.2f} labels each. "
    )
    return Drawn(figure, f"{text}Guarantee: {kept.guarantee}.")


@picture("unknown", "Rows answered with unknown")
def _unknown(found: JobResult) -> Drawn | None:
    if found.unknown is None:
        return None
    kept = found.unknown
    figure = charts.tradeoff(kept.x, kept.y, kept.at, "share of rows answered", "accuracy of the answers")
    text = (
        f"Of the test rows, {kept.at[0]:.1%} are answered, {kept.at[1]:.1%} of these correctly; the rest is unknown. "
    )
    return Drawn(figure, f"{text}Guarantee: {kept.guarantee}.")


@picture("more-rows", "Would more rows help?")
def _more_rows(found: JobResult) -> Drawn | None:
    if found.curve is None:
        return None
    figure = charts.cross_validation(
        found.curve.rows, found.curve.scores, name="training rows",
        score_name=found.comparison.measure.words, log=True, title=found.best.model,
    )  # fmt: skip
    return Drawn(figure, str(found.curve))


@picture("regions", "Decision regions")
def _regions(found: JobResult) -> Drawn | None:
    X = found.X
    if found.hurried:
        return Drawn(None, "Left out because the budget was used up.")
    if hasattr(X, "tocsr") or X.shape[1] < 2 or len(found.model.classes_) > confusion.MOST_NAMED:
        return None
    step = -(-X.shape[0] // SAMPLE_ROWS)
    # points of the plane are far from all rows, which makes a neighbor search slow: 15 s for 160^2 and 16,000 rows
    resolution = 160 if _winner(found, LinearFamily) is not None else 80 // min(step, 2)
    line = next((s for s in found.leaderboard if _takes(s, X)), None)  # a blend takes raw rows: its best member
    if line is None:
        return None
    figure = model_views.projected_regions(
        line.fitted, X[::step], found.data.y[::step], line.model, resolution, most=600
    )
    text = "Predictions on the plane of the two principal components of the training rows, and the training rows."
    return Drawn(figure, text)


def _takes(line: LeaderboardRow, X: Any) -> bool:
    """Return whether a row of the leaderboard has a model for the numbers X (n, d)."""
    return not hasattr(line.fitted, "estimators_") and getattr(line.fitted, "n_features_in_", None) == X.shape[1]


@picture("where", "Where the model looks")
def _where(found: JobResult) -> Drawn | None:
    form, why = image_form(found.features, found.data.test_rows), found.reasons
    if form is None or why is None:
        return None
    rows = found.data.test_rows
    seen = np.asarray(rows[:: max(1, len(rows) // 500)], float).mean(axis=0).reshape(form).mean(axis=2)
    falls = as_grid(form, dict(zip(why.columns[0], why.pulls[0].tolist())))
    figure = model_views.where_it_looks(falls=falls, picture=seen, title="")
    text = (
        f"In percentage points: {why.how}, over the mean image. The model depends on parts with a large loss. A part "
        "without loss may still matter together with others."
    )
    if hasattr(found.best.fitted, "kneighbors"):
        text += " `kway neighbors MODEL IMAGE` lists the training images that voted on an image."
    return Drawn(figure, text)


@picture("shapes", "How columns change the answer")
def _shapes(found: JobResult) -> Drawn | None:
    if found.hurried or found.reasons is None or not hasattr(found.model, "predict_proba"):
        return None
    table = getattr(found.data.test_rows, "column_names", None)
    known = [f"x{j}" for j in range(found.X.shape[1])] if table is None else table
    if hasattr(found.data.test_rows, "tocsr") or image_form(found.features, found.data.test_rows) is not None:
        return None
    strength: dict[str, float] = {}
    for columns, pulls in zip(found.reasons.columns, found.reasons.pulls):
        for column, pull in zip(columns, pulls):
            strength[column] = max(strength.get(column, 0.0), abs(float(pull)))
    strongest = [column for column in sorted(strength, key=lambda c: -strength[c]) if column in known]
    shapes = column_shapes(found.model, found.data.test_rows, strongest[:_SHAPES])
    if not shapes:
        return None
    text = (
        "Mean probability on test rows if one column gets other values and the rest stays, for the columns that matter "
        "most and the classes that change most."
    )
    return Drawn(draw_shapes(shapes, np.asarray(found.model.classes_)), text)


@picture("templates", "Weights per class")
def _templates(found: JobResult) -> Drawn | None:
    shape, line = picture_shape(found), _winner(found, LinearFamily)
    if shape is None or line is None or line.fitted is None or line.fitted.coef_.shape[1] != math.prod(shape):
        return None  # the weights are not those of pixels
    figure = model_views.weight_templates(line.fitted.coef_, shape, found.model.classes_)
    meaning = "orange pixels speak for a class, blue ones against it"
    if len(shape) == 3:
        meaning = "colors that speak for a class; gray is neutral"
    return Drawn(figure, f"The weights of {line.model} as images: {meaning}.")


@picture("mistakes", "Worst mistakes and their nearest neighbors")
def _mistakes_picture(found: JobResult) -> Drawn | None:
    if bool((found.evaluation.predicted == found.data.test_y).all()):
        return None
    shape, mistakes = picture_shape(found), find_mistakes(found)
    text = (
        "The wrong predictions of highest confidence, with the training rows nearest to them. Blue neighbors have the "
        "true class: the model is at fault. Orange neighbors have the predicted class: a label may be wrong."
    )
    if shape is None:
        return Drawn(None, text, mistakes)
    return Drawn(worst_mistakes(mistakes, shape, title=""), text)


@picture("wrong-labels", "Suspicious labels")
def _wrong_labels(found: JobResult) -> Drawn | None:
    wrong = found.wrong_labels
    if wrong is None or not len(wrong.suspects.rows):
        return None
    shape, mistakes = picture_shape(found), find_suspects(found)
    text = (
        f"{len(wrong.suspects.rows):,} of {wrong.judged:,} labels of training rows are suspicious: models that did not "
        "learn from these rows predict another class with confidence. A label is wrong, or the model is at fault: look "
        "at each row. The least probable labels come first; `true` is the label in the data. kway inspect writes all "
        "of them to a file."
    )
    if shape is None:
        return Drawn(None, text, mistakes)
    return Drawn(worst_mistakes(mistakes, shape, title=""), text)


@picture("history", "Convergence")
def _history(found: JobResult) -> Drawn | None:
    line = _winner(found, LinearFamily)
    history: NDArray = np.asarray(getattr(line.fitted, "history_", ()) if line is not None else ())
    if line is None or len(history) < 3:  # a solver of one step
        return None
    figure = charts.history(curves={line.model: history}, title="")
    return Drawn(figure, f"The objective of {line.model} per iteration of its solver, on all training rows.")


def _winner(found: JobResult, kind: type) -> LeaderboardRow | None:
    """Return the winner if it is of a kind, because weights of another family do not explain its predictions."""
    return found.best if isinstance(found.comparison.families.get(found.best.model), kind) else None


def _most_folds(found: JobResult, kind: type) -> LeaderboardRow | None:
    """Return the family of a kind that was run on the most folds, because one that stopped early has no spread."""
    families = found.comparison.families
    own = [line for line in found.leaderboard if isinstance(families.get(line.model), kind)]
    return max(own, key=lambda line: len(line.fold_accuracy), default=None)
