"""The figures of a job's report: which ones its outcome allows, each with a sentence on how to read it.

A figure that cannot be drawn is left out with the reason: the model and the rest of the page do not suffer for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from kway.data.labels import encode_as
from kway.report import figures
from kway.report.mistakes import find_mistakes, picture_shape
from kway.select.contest.families import LinearFamily, NeighborsFamily
from kway.select.contest.measures import ACCURACY
from kway.select.job import JobResult
from kway.select.leaderboard import Line

MOST_PROJECTED = 1500  # of principal components: their matrix is d x d
MOST_CLASSES = 60  # whose regions can still be told apart
SLICE_ROWS = 4000


class Picture(NamedTuple):
    """A figure with its title and how to read it; `figure` None where it could not be drawn, `text` then says why."""

    name: str
    title: str
    text: str
    figure: Figure | None


def pictures(found: JobResult, names: Iterable[str] | None = None) -> Iterator[Picture]:
    """Every figure that this outcome allows, or those of some names, in the order of the page."""
    for name in PICTURES if names is None else names:
        try:
            picture = PICTURES[name](found)
        except Exception as error:  # a picture is not worth losing the report for
            picture = Picture(name, name.replace("-", " "), f"could not be drawn: {error}", None)
        if picture is not None:
            yield picture


def _leaderboard(found: JobResult) -> Picture:
    lines = [line.standing for line in found.lines]
    measure = found.comparison.measure if found.comparison.measure.rises else ACCURACY  # bars grow with what is better
    own = measure is not ACCURACY
    figure = figures.leaderboard(
        [s.model if len(s.fold_accuracy) >= s.n_folds else f"{s.model} ({s.folds_run} folds)" for s in lines],
        [s.score if own else s.accuracy for s in lines],
        [s.score_std if own else s.std for s in lines],
        score_name=measure.words,
        baseline=None if own else found.baselines["majority class"],
        title=f"{measure.words.capitalize()} by cross-validation",
    )
    text = "Mean over the folds, with one standard deviation; a score from fewer folds says so and is less sure."
    return Picture("leaderboard", "Leaderboard", text, figure)


def _neighbours_curve(found: JobResult) -> Picture | None:
    line = _first(found, NeighborsFamily)
    if line is None:
        return None
    setting, scan = line.standing.setting, found.comparison.scans[line.standing.model]
    vote = setting["weights"]
    own = [i for i, s in enumerate(scan.settings) if s["weights"] == vote]
    figure = figures.cross_validation(
        [scan.settings[i]["n_neighbors"] for i in own],
        scan.measure.shown(scan.scores[:, own].T),
        chosen=setting["n_neighbors"],
        name="k",
        score_name=scan.measure.words,
        title=f"{line.standing.model}, {vote} vote",
    )
    text = (
        "How many neighbours should vote: a dot is the score on one held-out fold, the line goes through the means. "
        "Every k and vote comes from one search."
    )
    return Picture("neighbours", "Choosing k", text, figure)


def _alpha_curve(found: JobResult) -> Picture | None:
    line = _most_folds(found, LinearFamily)
    if line is None or len(found.comparison.scans[line.standing.model].settings) < 2:
        return None
    scan = found.comparison.scans[line.standing.model]
    folds, run = _drawn_folds(scan.scores)
    if len(run) < 2:
        return None
    figure = figures.cross_validation(
        [scan.settings[i]["alpha"] for i in run],
        scan.measure.shown(scan.scores[np.ix_(folds, run)].T),
        chosen=line.standing.setting["alpha"],
        name="alpha",
        score_name=scan.measure.words,
        log=True,
        title=line.standing.model,
    )
    text = (
        "How strongly weights are held back: too little (left) fits the noise, too much (right) cannot fit the classes."
    )
    return Picture("alpha", "Choosing the penalty", text, figure)


def _drawn_folds(accuracy: NDArray) -> tuple[NDArray, NDArray]:
    """Folds and settings that were all run with each other: every fold where it has several settings, else the first.

    Where fits are slow only the settings beside the best go through every fold.
    """
    run = np.isfinite(accuracy)  # (folds, settings)
    every = np.flatnonzero(run.all(axis=0))
    if len(every) > 1:
        return np.arange(len(accuracy)), every
    return np.arange(1), np.flatnonzero(run[0])


def _confusion(found: JobResult) -> Picture:
    classes = np.asarray(found.model.classes_)
    true, called = encode_as(found.parts.test_y, classes), encode_as(found.evaluation.predicted, classes)
    counts = np.zeros((len(classes), len(classes)), np.int64)
    np.add.at(counts, (true, called), 1)
    figure = figures.confusion_matrix(counts, classes, title="Test rows")
    return Picture(
        "confusion",
        "What is taken for what",
        "True classes down, predicted classes across; blue is right, orange is wrong.",
        figure,
    )


def _reliability(found: JobResult) -> Picture | None:
    confidence = found.evaluation.confidence
    if confidence is None:
        return None
    figure = figures.reliability(confidence, found.evaluation.predicted == found.parts.test_y)
    text = "Of the test rows with a confidence near x, what share is right? On the dashed line the two agree."
    if found.temperature is not None:
        text += f" Probabilities were calibrated with temperature {found.temperature:.3g} on rows held out of training."
    return Picture("reliability", "Can the probabilities be believed?", text, figure)


def _sets(found: JobResult) -> Picture | None:
    if found.sets is None:
        return None
    kept = found.sets
    promised = float(found.model.estimator_.coverage)
    figure = figures.tradeoff(
        kept.x, kept.y, kept.at, "labels in a set, on average", "sets that hold the label", promised
    )
    text = f"On the test rows, {kept.at[1]:.1%} of the sets hold the right label, {kept.at[0]:.2f} labels on average. "
    return Picture("sets", "Sets of labels", f"{text}Promised: {kept.promise}.", figure)


def _unknown(found: JobResult) -> Picture | None:
    if found.unknown is None:
        return None
    kept = found.unknown
    figure = figures.tradeoff(kept.x, kept.y, kept.at, "share of rows answered", "accuracy of the answers")
    text = f"On the test rows, {kept.at[0]:.1%} are answered, {kept.at[1]:.1%} of them right; the others are unknown. "
    return Picture("unknown", "When to say unknown", f"{text}Promised: {kept.promise}.", figure)


def _more_rows(found: JobResult) -> Picture | None:
    if found.curve is None:
        return None
    figure = figures.cross_validation(
        found.curve.rows, found.curve.scores, name="rows learned from", score_name=found.comparison.measure.words,
        log=True, title=found.best.standing.model,
    )  # fmt: skip
    return Picture("more-rows", "Would more rows help?", str(found.curve), figure)


def _regions(found: JobResult) -> Picture | None:
    X = found.X
    if found.hurried:
        return Picture("regions", "Decision regions", "Left out, as the budget was spent.", None)
    if hasattr(X, "tocsr") or not 2 <= X.shape[1] <= MOST_PROJECTED or len(found.model.classes_) > MOST_CLASSES:
        return None
    step = -(-X.shape[0] // SLICE_ROWS)
    # points of the plane lie far from all rows, where a neighbour search skips little: 15 s for 160^2 on 16,000 rows
    fine = 160 if isinstance(found.comparison.families[found.best.standing.model], LinearFamily) else 80 // min(step, 2)
    figure = figures.projected_regions(
        found.best.model, X[::step], found.parts.y[::step], found.best.standing.model, resolution=fine, most=600
    )
    text = "The plane of the two principal components of the training rows, painted with the model's answers."
    return Picture("regions", "Decision regions", text, figure)


def _templates(found: JobResult) -> Picture | None:
    shape, line = picture_shape(found), _first(found, LinearFamily)
    if shape is None or line is None or line.model is None or line.model.coef_.shape[1] != math.prod(shape):
        return None  # weights of shapes are no pixels
    figure = figures.weight_templates(line.model.coef_, shape, found.model.classes_)
    text = f"The weights of {line.standing.model} as images: orange pixels speak for a class, blue ones against it."
    return Picture("templates", "What each class looks for", text, figure)


def _mistakes_picture(found: JobResult) -> Picture | None:
    if bool((found.evaluation.predicted == found.parts.test_y).all()):
        return None
    figure = figures.worst_mistakes(find_mistakes(found), picture_shape(found), "")
    text = (
        "The test rows of which the model was surest and wrong, with the training rows nearest to them: blue labels "
        "are the true class, orange ones the class predicted. Neighbours of the true class point to the model, "
        "neighbours of the other to the data (or to a wrong label)."
    )
    return Picture("mistakes", "Worst mistakes and their nearest neighbours", text, figure)


def _history(found: JobResult) -> Picture | None:
    line = _first(found, LinearFamily)
    history: NDArray = np.asarray(getattr(line.model, "history_", ()) if line is not None else ())
    if line is None or len(history) < 2:
        return None
    figure = figures.history({line.standing.model: history}, title="")
    text = f"The objective of {line.standing.model} as its solver went along, on all training rows."
    return Picture("history", "Learning", text, figure)


def _first(found: JobResult, kind: type) -> Line | None:
    """The best line of a kind of family."""
    families = found.comparison.families
    return next((line for line in found.lines if isinstance(families[line.standing.model], kind)), None)


def _most_folds(found: JobResult, kind: type) -> Line | None:
    """The line of a kind that was run on most folds, the better first: one stopped early shows no spread."""
    families = found.comparison.families
    own = [line for line in found.lines if isinstance(families[line.standing.model], kind)]
    return max(own, key=lambda line: len(line.standing.fold_accuracy), default=None)


PICTURES: dict[str, Callable[[JobResult], Picture | None]] = {
    "leaderboard": _leaderboard,
    "neighbours": _neighbours_curve,
    "alpha": _alpha_curve,
    "confusion": _confusion,
    "reliability": _reliability,
    "sets": _sets,
    "unknown": _unknown,
    "more-rows": _more_rows,
    "regions": _regions,
    "templates": _templates,
    "mistakes": _mistakes_picture,
    "history": _history,
}
