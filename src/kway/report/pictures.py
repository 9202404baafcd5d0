"""The pictures of a job's report, each with a sentence on how to read it.

A picture is one function below `@picture(name, title)`: it takes the result of the job and returns a figure and a text,
a text alone if the figure is left out, or None if the result does not allow the picture. The page shows the pictures in
the order of the functions. A picture that fails is left out with the reason: the rest of the page does not suffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
from kway.report import charts, confusion, images, regions
from kway.report.export import page_svg, save, svg_document
from kway.report.mistakes import find_mistakes, picture_shape, worst_mistakes
from kway.tables.outputs import replacing

MOST_PROJECTED = 1500  # of principal components: their matrix is d x d
SLICE_ROWS = 4000


class Drawn(NamedTuple):
    """What the function of a picture returns; `figure` is None if it is left out, and `text` then gives the reason."""

    figure: Figure | None
    text: str


class PagePicture(NamedTuple):
    """A picture of the page: its <svg> element, None if there is none, and the width in pixels that it may take.

    `error` is raised once the page is written if a file of the picture could not be written.
    """

    name: str
    title: str
    text: str
    svg: str | None = None
    wide: int = 0
    error: OSError | None = None


class _Picture(NamedTuple):
    """An entry of PICTURES."""

    title: str
    draw: Callable[[JobResult], Drawn | None]


PICTURES: dict[str, _Picture] = {}  # filled by `picture`, in the order of the page


def picture(name: str, title: str) -> Callable[[Callable[[JobResult], Drawn | None]], Callable[..., Any]]:
    """Register the decorated function as a picture of the report; `name` is also that of its files."""

    def register(draw: Callable[[JobResult], Drawn | None]) -> Callable[[JobResult], Drawn | None]:
        PICTURES[name] = _Picture(title, draw)
        return draw

    return register


def draw_pictures(found: JobResult, folder: Path | None = None) -> list[PagePicture]:
    """Draw every picture that the result allows; also write NAME.svg and NAME.png of each into `folder`."""
    drawn = (_draw(name, found, folder) for name in PICTURES)
    return [picture for picture in drawn if picture is not None]


def _draw(name: str, found: JobResult, folder: Path | None) -> PagePicture | None:
    title = PICTURES[name].title
    try:
        drawn = PICTURES[name].draw(found)
        if drawn is None:
            return None
        if drawn.figure is None:
            return PagePicture(name, title, drawn.text)
        document = svg_document(drawn.figure)
    except Exception as error:  # a picture is not worth losing the report for
        return PagePicture(name, title, f"could not be drawn: {error}")
    wide = round(112 * drawn.figure.get_figwidth())  # a small figure is not enlarged beyond the text of the page
    lost = None if folder is None else _write_files(name, drawn.figure, document, folder)
    return PagePicture(name, title, drawn.text, page_svg(document, title), wide, lost)


def _write_files(name: str, figure: Figure, document: bytes, folder: Path) -> OSError | None:
    """Write the figure as svg and png; return the error if that fails, as the page is written in any case."""
    try:
        folder.mkdir(exist_ok=True)
        with replacing(folder / f"{name}.svg") as draft:
            draft.write_bytes(document)
        save(figure, folder / f"{name}.png")
    except OSError as error:
        return error if error.filename else OSError(error.errno, error.strerror, str(folder))
    return None


def _names(classes: Any) -> list[str]:
    return [str(label) for label in np.asarray(classes).tolist()]


@picture("leaderboard", "Leaderboard")
def _leaderboard(found: JobResult) -> Drawn:
    lines = found.leaderboard
    measure = found.comparison.measure if found.comparison.measure.rises else ACCURACY  # bars grow with what is better
    own = measure is not ACCURACY
    figure = charts.leaderboard(
        names=[s.model if len(s.fold_accuracy) >= s.n_folds else f"{s.model} ({s.folds_run} folds)" for s in lines],
        means=[s.score if own else s.accuracy for s in lines],
        stds=[s.score_std if own else s.std for s in lines],
        score_name=measure.words,
        baseline=None if own else found.baselines["majority class"],
        title=f"{measure.words.capitalize()} by cross-validation",
    )
    text = "Mean over the folds, with one standard deviation; a score from fewer folds says so and is less sure."
    return Drawn(figure, text)


@picture("neighbours", "Choosing k")
def _neighbours_curve(found: JobResult) -> Drawn | None:
    line = _first(found, NeighborsFamily)
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
        "How many neighbours should vote: a dot is the score on one held-out fold, the line goes through the means. "
        "Every k and vote comes from one search."
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
    text = (
        "How strongly weights are held back: too little (left) fits the noise, too much (right) cannot fit the classes."
    )
    return Drawn(figure, text)


def _drawn_folds(accuracy: NDArray) -> tuple[NDArray, NDArray]:
    """Folds and settings that were all run with each other: every fold where it has several settings, else the first.

    Where fits are slow only the settings beside the best go through every fold.
    """
    run = np.isfinite(accuracy)  # (folds, settings)
    every = np.flatnonzero(run.all(axis=0))
    if len(every) > 1:
        return np.arange(len(accuracy)), every
    return np.arange(1), np.flatnonzero(run[0])


@picture("confusion", "What is taken for what")
def _confusion(found: JobResult) -> Drawn:
    classes = np.asarray(found.model.classes_)
    true, called = encode_as(found.data.test_y, classes), encode_as(found.evaluation.predicted, classes)
    figure = confusion.confusion_of(true=true, called=called, labels=_names(classes), title="Test rows")
    return Drawn(figure, "True classes down, predicted classes across; blue is right, orange is wrong.")


@picture("reliability", "Can the probabilities be believed?")
def _reliability(found: JobResult) -> Drawn | None:
    confidence = found.evaluation.confidence
    if confidence is None:
        return None
    correct = found.evaluation.predicted == found.data.test_y
    figure = charts.reliability(confidence=confidence, correct=correct)
    text = "Of the test rows with a confidence near x, what share is right? On the dashed line the two agree."
    if found.temperature is not None:
        text += f" Probabilities were calibrated with temperature {found.temperature:.3g} on rows held out of training."
    return Drawn(figure, text)


@picture("sets", "Sets of labels")
def _sets(found: JobResult) -> Drawn | None:
    if found.sets is None:
        return None
    kept = found.sets
    promised = float(found.model.estimator_.coverage)
    names = "labels in a set, on average", "sets that hold the label"
    figure = charts.tradeoff(kept.x, kept.y, kept.at, *names, promised=promised)
    text = f"On the test rows, {kept.at[1]:.1%} of the sets hold the right label, {kept.at[0]:.2f} labels on average. "
    return Drawn(figure, f"{text}Guarantee: {kept.guarantee}.")


@picture("unknown", "When to say unknown")
def _unknown(found: JobResult) -> Drawn | None:
    if found.unknown is None:
        return None
    kept = found.unknown
    figure = charts.tradeoff(kept.x, kept.y, kept.at, "share of rows answered", "accuracy of the answers")
    text = f"On the test rows, {kept.at[0]:.1%} are answered, {kept.at[1]:.1%} of them right; the others are unknown. "
    return Drawn(figure, f"{text}Guarantee: {kept.guarantee}.")


@picture("more-rows", "Would more rows help?")
def _more_rows(found: JobResult) -> Drawn | None:
    if found.curve is None:
        return None
    figure = charts.cross_validation(
        found.curve.rows, found.curve.scores, name="rows learned from",
        score_name=found.comparison.measure.words, log=True, title=found.best.model,
    )  # fmt: skip
    return Drawn(figure, str(found.curve))


@picture("regions", "Decision regions")
def _regions(found: JobResult) -> Drawn | None:
    X = found.X
    if found.hurried:
        return Drawn(None, "Left out, as the budget was spent.")
    if hasattr(X, "tocsr") or not 2 <= X.shape[1] <= MOST_PROJECTED or len(found.model.classes_) > confusion.MOST_NAMED:
        return None
    step = -(-X.shape[0] // SLICE_ROWS)
    # points of the plane lie far from all rows, where a neighbour search skips little: 15 s for 160^2 on 16,000 rows
    fine = 160 if isinstance(found.comparison.families[found.best.model], LinearFamily) else 80 // min(step, 2)
    answers = regions.projected_answers(found.best.fitted, X[::step], found.data.y[::step], fine, most=600)
    figure = regions.plane_regions(**answers, title=found.best.model)
    text = "The plane of the two principal components of the training rows, painted with the model's answers."
    return Drawn(figure, text)


@picture("where", "Where it looks")
def _where(found: JobResult) -> Drawn | None:
    form, why = image_form(found.model.features_, found.data.test_rows), found.reasons
    if form is None or why is None:
        return None
    rows = found.data.test_rows
    seen = np.asarray(rows[:: max(1, len(rows) // 500)], float).mean(axis=0).reshape(form).mean(axis=2)
    falls = as_grid(form, dict(zip(why.columns[0], why.pulls[0].tolist())))
    figure = images.where_it_looks(falls=falls, picture=seen, title="")
    text = (
        f"In points, the {why.how}; behind it the mean of the images. Where much is lost the model looks; a part that "
        "costs nothing may still count beside others, and which class a part speaks for this does not tell."
    )
    if hasattr(found.best.fitted, "kneighbors"):
        text += " Which training images voted on one: kway neighbors MODEL IMAGE."
    return Drawn(figure, text)


@picture("templates", "What each class looks for")
def _templates(found: JobResult) -> Drawn | None:
    shape, line = picture_shape(found), _winner(found, LinearFamily)
    if shape is None or line is None or line.fitted is None or line.fitted.coef_.shape[1] != math.prod(shape):
        return None  # weights of shapes are no pixels
    coef, labels = line.fitted.coef_, _names(found.model.classes_)
    figure = images.weight_templates(coef, shape, labels)
    colours = "orange pixels speak for a class, blue ones against it"
    if len(shape) == 3:
        colours = "the colours that speak for a class, where it is grey neither for nor against it"
    text = f"The weights of {line.model} as images: {colours}."
    return Drawn(figure, text)


@picture("mistakes", "Worst mistakes and their nearest neighbours")
def _mistakes_picture(found: JobResult) -> Drawn | None:
    if bool((found.evaluation.predicted == found.data.test_y).all()):
        return None
    figure = worst_mistakes(mistakes=find_mistakes(found), shape=picture_shape(found), title="")
    text = (
        "The test rows of which the model was surest and wrong, with the training rows nearest to them: blue labels "
        "are the true class, orange ones the class predicted. Neighbours of the true class point to the model, "
        "neighbours of the other to the data (or to a wrong label)."
    )
    return Drawn(figure, text)


@picture("history", "Learning")
def _history(found: JobResult) -> Drawn | None:
    line = _winner(found, LinearFamily)
    history: NDArray = np.asarray(getattr(line.fitted, "history_", ()) if line is not None else ())
    if line is None or len(history) < 3:  # a solver of one step has no way to show
        return None
    figure = charts.history(curves={line.model: history}, title="")
    text = f"The objective of {line.model} as its solver went along, on all training rows."
    return Drawn(figure, text)


def _first(found: JobResult, kind: type) -> LeaderboardRow | None:
    """The best line of a kind of family."""
    families = found.comparison.families
    return next((line for line in found.leaderboard if isinstance(families[line.model], kind)), None)


def _winner(found: JobResult, kind: type) -> LeaderboardRow | None:
    """The winner, where it is of a kind: weights of another family tell nothing of its answers."""
    return found.best if isinstance(found.comparison.families[found.best.model], kind) else None


def _most_folds(found: JobResult, kind: type) -> LeaderboardRow | None:
    """The line of a kind that was run on most folds, the better first: one stopped early shows no spread."""
    families = found.comparison.families
    own = [line for line in found.leaderboard if isinstance(families[line.model], kind)]
    return max(own, key=lambda line: len(line.fold_accuracy), default=None)
