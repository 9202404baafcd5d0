"""The registry of the report's figures, each with a sentence on how to read it.

A figure is one function below `@picture(name, title)`. It takes the result of a job and returns a figure and a text, a
text alone if the figure is left out, or None if it does not apply. The page shows all figures in the order of the
functions; `beside` puts a figure next to the one before it. If a function fails, the page shows the error in place of
its figure.
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

_SHAPES = 4  # number of columns whose shape is drawn: as many as fit next to each other on the page


class Drawn(NamedTuple):
    """What a figure function returns: a figure with its text, or a text with mistakes that the page lists as tables.

    Without a figure and mistakes, the text says why there is no figure.
    """

    figure: Figure | None
    text: str
    mistakes: Sequence[Mistake] = ()


class PagePicture(NamedTuple):
    """A figure of the page: its <svg> element, or None, and its largest width in pixels.

    `file_error` is the error that prevented a file of the figure from being written.
    """

    name: str
    title: str
    text: str
    svg: str | None = None
    wide: int = 0
    mistakes: Sequence[Mistake] = ()
    file_error: OSError | None = None


Draw = Callable[[JobResult], Drawn | None]


class RegisteredFigure(NamedTuple):
    """A figure function with its title, and the name of the figure that it is put beside."""

    title: str
    draw: Draw
    beside: str | None


PICTURES: dict[str, RegisteredFigure] = {}  # by name, filled by `picture` in the order of the page


def picture(name: str, title: str, beside: str | None = None) -> Callable[[Draw], Draw]:
    """Register the decorated function as a figure of the report; `name` is also the name of its files."""

    def register(draw: Draw) -> Draw:
        PICTURES[name] = RegisteredFigure(title, draw, beside)
        return draw

    return register


def draw_pictures(result: JobResult, folder: Path | None = None) -> list[PagePicture]:
    """Draw every figure that applies; with `folder`, also write NAME.svg and NAME.png of each into it."""
    drawn = (_draw(name, result, folder) for name in PICTURES)
    return [picture for picture in drawn if picture is not None]


def group_pictures(pictures: Sequence[PagePicture]) -> list[list[PagePicture]]:
    """Return the figures in groups that the page puts side by side; every figure is in one group."""
    groups = list[list[PagePicture]]()
    for picture in pictures:
        if groups and groups[-1][-1].name == PICTURES[picture.name].beside:
            groups[-1].append(picture)
        else:
            groups.append([picture])
    return groups


def _draw(name: str, result: JobResult, folder: Path | None) -> PagePicture | None:
    title, draw, _ = PICTURES[name]
    try:
        drawn = draw(result)
        if drawn is None:
            return None
        if drawn.figure is None:
            return PagePicture(name, title, drawn.text, mistakes=drawn.mistakes)
        document = svg_document(drawn.figure)
    except Exception as error:  # the report is worth more than one figure
        return PagePicture(name, title, f"could not be drawn: {error}")
    wide = round(112 * drawn.figure.get_figwidth())  # 112 px per inch: its text is then as large as that of the page
    file_error = None if folder is None else _write_files(name, drawn.figure, document, folder)
    return PagePicture(name, title, drawn.text, page_svg(document, title), wide, file_error=file_error)


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
def _leaderboard(result: JobResult) -> Drawn:
    lines = result.comparison.rows
    measure = result.comparison.measure if result.comparison.measure.rises else ACCURACY  # longer bars must be better
    by_measure = measure is not ACCURACY
    figure = charts.leaderboard(
        names=[s.model if len(s.fold_accuracy) >= s.n_folds else f"{s.model} ({s.folds_run} folds)" for s in lines],
        means=[s.score if by_measure else s.accuracy for s in lines],
        stds=[s.score_std if by_measure else s.std for s in lines],
        score_name=measure.words,
        baseline=None if by_measure else result.baselines["majority class"],
        title=f"{measure.words.capitalize()} by cross-validation",
    )
    text = "Mean over the folds with one standard deviation. Scores from fewer folds are marked and less certain."
    return Drawn(figure, text)


@picture("neighbors", "Choosing k")
def _neighbors_curve(result: JobResult) -> Drawn | None:
    line = _most_folds(result, NeighborsFamily)
    if line is None:
        return None
    setting, scan = line.setting, result.comparison.scans[line.model]
    vote = setting["weights"]
    same_vote = [i for i, s in enumerate(scan.settings) if s["weights"] == vote]
    figure = charts.cross_validation(
        values=[scan.settings[i]["n_neighbors"] for i in same_vote],
        scores=scan.measure.shown(scan.scores[:, same_vote].T),
        chosen=setting["n_neighbors"],
        name="k",
        score_name=scan.measure.words,
        title=f"{line.model}, {vote} vote",
    )
    text = (
        "How many neighbors should vote? Each dot is the score on one held-out fold, and the line connects the means."
    )
    return Drawn(figure, text)


@picture("alpha", "Choosing the penalty", beside="neighbors")
def _alpha_curve(result: JobResult) -> Drawn | None:
    line = _most_folds(result, LinearFamily)
    if line is None or len(result.comparison.scans[line.model].settings) < 2:
        return None
    scan = result.comparison.scans[line.model]
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
def _confusion(result: JobResult) -> Drawn:
    classes = np.asarray(result.model.classes_)
    true, predicted = encode_as(result.data.test_y, classes), encode_as(result.evaluation.predicted, classes)
    figure = confusion.confusion_of(true, predicted, classes, title="Test rows")
    return Drawn(figure, "One row per true class, one column per predicted class; blue is correct, orange is wrong.")


@picture("reliability", "Are the probabilities calibrated?")
def _reliability(result: JobResult) -> Drawn | None:
    confidence = result.evaluation.confidence
    if confidence is None:
        return None
    correct = result.evaluation.predicted == result.data.test_y
    figure = charts.reliability(confidence=confidence, correct=correct)
    text = (
        "Accuracy of the test rows with about the same confidence. On the dashed line, accuracy and confidence agree."
    )
    if result.temperature is not None:
        text += (
            f" The temperature of the probabilities, {result.temperature:.3g}, was fitted on held-out training rows."
        )
    return Drawn(figure, text)


@picture("regions", "Decision regions", beside="reliability")
def _regions(result: JobResult) -> Drawn | None:
    X = result.X
    if result.hurried:
        return Drawn(None, "Left out because the budget was used up.")
    if hasattr(X, "tocsr") or X.shape[1] < 2 or len(result.model.classes_) > confusion.MAX_NAMED:
        return None
    step = -(-X.shape[0] // SAMPLE_ROWS)
    # points of the plane are far from all rows, so a neighbor search skips little: 160^2 points take 15 s
    resolution = 160 if _winner(result, LinearFamily) is not None else 80 // min(step, 2)
    line = next(
        (s for s in result.comparison.rows if _takes(s, X)), None
    )  # a blend takes raw rows, so its best member is drawn
    if line is None:
        return None
    figure = model_views.projected_regions(
        line.fitted, X[::step], result.data.y[::step], line.model, resolution, max_rows=600
    )
    text = "Predictions on the plane of the two principal components of the training rows, and the training rows."
    return Drawn(figure, text)


def _takes(line: LeaderboardRow, X: Any) -> bool:
    """Return whether a row of the leaderboard has a model for the numbers X (n, d)."""
    return not hasattr(line.fitted, "estimators_") and getattr(line.fitted, "n_features_in_", None) == X.shape[1]


@picture("sets", "Sets of labels")
def _sets(result: JobResult) -> Drawn | None:
    if result.sets is None:
        return None
    sets = result.sets
    coverage = float(result.model.estimator_.coverage)
    names = "labels per set, on average", "share of sets with the correct label"
    figure = charts.tradeoff(sets.x, sets.y, sets.at, *names, guaranteed=coverage)
    text = (
        f"On the test rows, {sets.at[1]:.1%} of the sets contain the correct label. A set has {sets.at[0]:.2f} labels "
        "on average. "
    )
    return Drawn(figure, f"{text}Guarantee: {sets.guarantee}.")


@picture("unknown", "Rows predicted as unknown", beside="sets")
def _unknown(result: JobResult) -> Drawn | None:
    if result.unknown is None:
        return None
    unknown = result.unknown
    figure = charts.tradeoff(
        unknown.x, unknown.y, unknown.at, "share of rows with a predicted label", "accuracy on these rows"
    )
    text = (
        f"A label is predicted for {unknown.at[0]:.1%} of the test rows, and {unknown.at[1]:.1%} of these are correct. "
        "The other rows are predicted as unknown. "
    )
    return Drawn(figure, f"{text}Guarantee: {unknown.guarantee}.")


@picture("shapes", "How columns change the prediction")
def _shapes(result: JobResult) -> Drawn | None:
    if result.hurried or result.reasons is None or not hasattr(result.model, "predict_proba"):
        return None
    table = getattr(result.data.test_rows, "column_names", None)
    known = [f"x{j}" for j in range(result.X.shape[1])] if table is None else table
    if hasattr(result.data.test_rows, "tocsr") or image_form(result.features, result.data.test_rows) is not None:
        return None
    strength: dict[str, float] = {}
    for columns, pulls in zip(result.reasons.columns, result.reasons.pulls):
        for column, pull in zip(columns, pulls):
            strength[column] = max(strength.get(column, 0.0), abs(float(pull)))
    strongest = [column for column in sorted(strength, key=lambda c: -strength[c]) if column in known]
    shapes = column_shapes(result.model, result.data.test_rows, strongest[:_SHAPES])
    if not shapes:
        return None
    text = (
        "Partial dependence: the mean probability on test rows if one column is set to other values and the other "
        "columns stay as they are. The columns that matter most and the classes that change most are drawn."
    )
    return Drawn(draw_shapes(shapes, np.asarray(result.model.classes_)), text)


@picture("more-rows", "Would more rows help?")
def _more_rows(result: JobResult) -> Drawn | None:
    if result.curve is None:
        return None
    figure = charts.cross_validation(
        result.curve.rows, result.curve.scores, name="training rows",
        score_name=result.comparison.measure.words, log=True, title=result.best.model,
    )  # fmt: skip
    return Drawn(figure, str(result.curve))


@picture("mistakes", "Worst mistakes and their nearest neighbors")
def _mistakes_picture(result: JobResult) -> Drawn | None:
    if bool((result.evaluation.predicted == result.data.test_y).all()):
        return None
    text = (
        "The wrong predictions of highest confidence, with their nearest training rows. Blue neighbors have the true "
        "class, so the model is at fault. Orange neighbors have the predicted class, so a label may be wrong."
    )
    return _draw_mistakes(result, find_mistakes(result), text)


@picture("wrong-labels", "Suspicious labels")
def _wrong_labels(result: JobResult) -> Drawn | None:
    wrong = result.wrong_labels
    if wrong is None or not len(wrong.suspects.rows):
        return None
    text = (
        f"{len(wrong.suspects.rows):,} of {wrong.judged:,} labels of training rows are suspicious: models that were "
        "not trained on these rows predict another class with confidence. Either the label or the model is wrong, so "
        "look at each row. The least probable labels come first; `true` is the label in the data. kway inspect writes "
        "all of them to a file."
    )
    return _draw_mistakes(result, find_suspects(result), text)


def _draw_mistakes(result: JobResult, mistakes: list[Mistake], text: str) -> Drawn:
    """Draw mistakes if the rows are images; the page lists others as text."""
    shape = picture_shape(result)
    return Drawn(None, text, mistakes) if shape is None else Drawn(worst_mistakes(mistakes, shape, title=""), text)


@picture("where", "Where the model looks")
def _where(result: JobResult) -> Drawn | None:
    form, reasons = image_form(result.features, result.data.test_rows), result.reasons
    if form is None or reasons is None:
        return None
    rows = result.data.test_rows
    mean_image = np.asarray(rows[:: max(1, len(rows) // 500)], float).mean(axis=0).reshape(form).mean(axis=2)
    drops = as_grid(form, dict(zip(reasons.columns[0], reasons.pulls[0].tolist())))
    figure = model_views.where_it_looks(drops, mean_image)
    text = (
        f"In percentage points: {reasons.how}. The background is the mean image. The model depends on parts with a "
        "large drop. A part without a drop may still matter together with other parts."
    )
    if hasattr(result.best.fitted, "kneighbors"):
        text += " `kway neighbors MODEL IMAGE` lists the training images that vote on an image."
    return Drawn(figure, text)


@picture("templates", "Weights per class", beside="where")
def _templates(result: JobResult) -> Drawn | None:
    shape, line = picture_shape(result), _winner(result, LinearFamily)
    if shape is None or line is None or line.fitted is None or line.fitted.coef_.shape[1] != math.prod(shape):
        return None  # the weights are not those of pixels
    figure = model_views.weight_templates(line.fitted.coef_, shape, result.model.classes_)
    meaning = "orange pixels are evidence for a class, blue ones against it"
    if len(shape) == 3:
        meaning = "colors that are evidence for a class; gray is neutral"
    return Drawn(figure, f"The weights of {line.model} as images: {meaning}.")


@picture("history", "Convergence")
def _history(result: JobResult) -> Drawn | None:
    line = _winner(result, LinearFamily)
    history: NDArray = np.asarray(getattr(line.fitted, "history_", ()) if line is not None else ())
    if line is None or len(history) < 3:  # a solver of one step
        return None
    figure = charts.history(curves={line.model: history}, title="")
    return Drawn(figure, f"The objective of {line.model} per iteration of its solver, on all training rows.")


def _winner(result: JobResult, kind: type) -> LeaderboardRow | None:
    """Return the winner if it is of a kind, because weights of another family do not explain its predictions."""
    return result.best if isinstance(result.comparison.families.get(result.best.model), kind) else None


def _most_folds(result: JobResult, kind: type) -> LeaderboardRow | None:
    """Return the family of a kind that was run on most folds, because one that was stopped early has no spread."""
    families = result.comparison.families
    lines = [line for line in result.comparison.rows if isinstance(families.get(line.model), kind)]
    return max(lines, key=lambda line: len(line.fold_accuracy), default=None)
