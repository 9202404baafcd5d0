"""The pictures of a job's report: which ones its outcome allows, each with a sentence on how to read it.

They are sketches: what is to be drawn (drawing.py), worked out here. One that cannot be is left out with the reason:
the model and the rest of the page do not suffer for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.data.labels import encode_as
from kway.report.mistakes import find_mistakes, picture_shape
from kway.report.sketches import Picture, Sketch
from kway.report.slices import projected_answers
from kway.select.contest.families import LinearFamily, NeighborsFamily
from kway.select.contest.measures import ACCURACY
from kway.select.image_parts import as_grid, image_form
from kway.select.job import JobResult
from kway.select.leaderboard import Line

MOST_PROJECTED = 1500  # of principal components: their matrix is d x d
MOST_CLASSES = 60  # whose regions can still be told apart
SLICE_ROWS = 4000
MOST_TEMPLATES = 40


def pictures(found: JobResult, names: Iterable[str] | None = None) -> Iterator[Picture]:
    """Every picture that this outcome allows, or those of some names, in their order."""
    for name in PICTURES if names is None else names:
        try:
            picture = PICTURES[name](found)
        except Exception as error:  # a picture is not worth losing the report for
            picture = Picture(name, name.replace("-", " "), f"could not be drawn: {error}", None)
        if picture is not None:
            yield picture


def _sketch(figure: str, **arguments: Any) -> Sketch:
    return Sketch(figure, arguments)


def _names(classes: Any) -> list[str]:
    return [str(label) for label in np.asarray(classes).tolist()]


def _leaderboard(found: JobResult) -> Picture:
    lines = [line.standing for line in found.lines]
    measure = found.comparison.measure if found.comparison.measure.rises else ACCURACY  # bars grow with what is better
    own = measure is not ACCURACY
    sketch = _sketch(
        "leaderboard",
        names=[s.model if len(s.fold_accuracy) >= s.n_folds else f"{s.model} ({s.folds_run} folds)" for s in lines],
        means=[s.score if own else s.accuracy for s in lines],
        stds=[s.score_std if own else s.std for s in lines],
        score_name=measure.words,
        baseline=None if own else found.baselines["majority class"],
        title=f"{measure.words.capitalize()} by cross-validation",
    )
    text = "Mean over the folds, with one standard deviation; a score from fewer folds says so and is less sure."
    return Picture("leaderboard", "Leaderboard", text, sketch)


def _neighbours_curve(found: JobResult) -> Picture | None:
    line = _first(found, NeighborsFamily)
    if line is None:
        return None
    setting, scan = line.standing.setting, found.comparison.scans[line.standing.model]
    vote = setting["weights"]
    own = [i for i, s in enumerate(scan.settings) if s["weights"] == vote]
    sketch = _sketch(
        "cross_validation",
        values=[scan.settings[i]["n_neighbors"] for i in own],
        scores=scan.measure.shown(scan.scores[:, own].T),
        chosen=setting["n_neighbors"],
        name="k",
        score_name=scan.measure.words,
        title=f"{line.standing.model}, {vote} vote",
    )
    text = (
        "How many neighbours should vote: a dot is the score on one held-out fold, the line goes through the means. "
        "Every k and vote comes from one search."
    )
    return Picture("neighbours", "Choosing k", text, sketch)


def _alpha_curve(found: JobResult) -> Picture | None:
    line = _most_folds(found, LinearFamily)
    if line is None or len(found.comparison.scans[line.standing.model].settings) < 2:
        return None
    scan = found.comparison.scans[line.standing.model]
    folds, run = _drawn_folds(scan.scores)
    if len(run) < 2:
        return None
    sketch = _sketch(
        "cross_validation",
        values=[scan.settings[i]["alpha"] for i in run],
        scores=scan.measure.shown(scan.scores[np.ix_(folds, run)].T),
        chosen=line.standing.setting["alpha"],
        name="alpha",
        score_name=scan.measure.words,
        log=True,
        title=line.standing.model,
    )
    text = (
        "How strongly weights are held back: too little (left) fits the noise, too much (right) cannot fit the classes."
    )
    return Picture("alpha", "Choosing the penalty", text, sketch)


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
    sketch = _sketch("confusion_of", true=true, called=called, labels=_names(classes), title="Test rows")
    return Picture(
        "confusion",
        "What is taken for what",
        "True classes down, predicted classes across; blue is right, orange is wrong.",
        sketch,
    )


def _reliability(found: JobResult) -> Picture | None:
    confidence = found.evaluation.confidence
    if confidence is None:
        return None
    correct = found.evaluation.predicted == found.parts.test_y
    sketch = _sketch("reliability", confidence=confidence, correct=correct)
    text = "Of the test rows with a confidence near x, what share is right? On the dashed line the two agree."
    if found.temperature is not None:
        text += f" Probabilities were calibrated with temperature {found.temperature:.3g} on rows held out of training."
    return Picture("reliability", "Can the probabilities be believed?", text, sketch)


def _sets(found: JobResult) -> Picture | None:
    if found.sets is None:
        return None
    kept = found.sets
    promised = float(found.model.estimator_.coverage)
    names = {"x_name": "labels in a set, on average", "y_name": "sets that hold the label"}
    sketch = _sketch("tradeoff", x=kept.x, y=kept.y, at=kept.at, promised=promised, **names)
    text = f"On the test rows, {kept.at[1]:.1%} of the sets hold the right label, {kept.at[0]:.2f} labels on average. "
    return Picture("sets", "Sets of labels", f"{text}Promised: {kept.promise}.", sketch)


def _unknown(found: JobResult) -> Picture | None:
    if found.unknown is None:
        return None
    kept = found.unknown
    names = {"x_name": "share of rows answered", "y_name": "accuracy of the answers"}
    sketch = _sketch("tradeoff", x=kept.x, y=kept.y, at=kept.at, **names)
    text = f"On the test rows, {kept.at[0]:.1%} are answered, {kept.at[1]:.1%} of them right; the others are unknown. "
    return Picture("unknown", "When to say unknown", f"{text}Promised: {kept.promise}.", sketch)


def _more_rows(found: JobResult) -> Picture | None:
    if found.curve is None:
        return None
    sketch = _sketch(
        "cross_validation", values=found.curve.rows, scores=found.curve.scores, name="rows learned from",
        score_name=found.comparison.measure.words, log=True, title=found.best.standing.model,
    )  # fmt: skip
    return Picture("more-rows", "Would more rows help?", str(found.curve), sketch)


def _regions(found: JobResult) -> Picture | None:
    X = found.X
    if found.hurried:
        return Picture("regions", "Decision regions", "Left out, as the budget was spent.", None)
    if hasattr(X, "tocsr") or not 2 <= X.shape[1] <= MOST_PROJECTED or len(found.model.classes_) > MOST_CLASSES:
        return None
    step = -(-X.shape[0] // SLICE_ROWS)
    # points of the plane lie far from all rows, where a neighbour search skips little: 15 s for 160^2 on 16,000 rows
    fine = 160 if isinstance(found.comparison.families[found.best.standing.model], LinearFamily) else 80 // min(step, 2)
    answers = projected_answers(found.best.model, X[::step], found.parts.y[::step], fine, most=600)
    sketch = _sketch("plane_regions", **answers, title=found.best.standing.model)
    text = "The plane of the two principal components of the training rows, painted with the model's answers."
    return Picture("regions", "Decision regions", text, sketch)


def _templates(found: JobResult) -> Picture | None:
    shape, line = picture_shape(found), _winner(found, LinearFamily)
    if shape is None or line is None or line.model is None or line.model.coef_.shape[1] != math.prod(shape):
        return None  # weights of shapes are no pixels
    coef, labels = line.model.coef_, _names(found.model.classes_)
    some, names = coef[:MOST_TEMPLATES], labels[:MOST_TEMPLATES]
    sketch = _sketch("weight_templates", coef=some, shape=shape, labels=names, of=len(coef))
    colours = "orange pixels speak for a class, blue ones against it"
    if len(shape) == 3:
        colours = "the colours that speak for a class, where it is grey neither for nor against it"
    text = f"The weights of {line.standing.model} as images: {colours}."
    return Picture("templates", "What each class looks for", text, sketch)


def _where(found: JobResult) -> Picture | None:
    form, why = image_form(found.model.features_, found.parts.test_rows), found.reasons
    if form is None or why is None:
        return None
    rows = found.parts.test_rows
    seen = np.asarray(rows[:: max(1, len(rows) // 500)], float).mean(axis=0).reshape(form).mean(axis=2)
    falls = as_grid(form, dict(zip(why.columns[0], why.pulls[0].tolist())))
    sketch = _sketch("where_it_looks", falls=falls, picture=seen, title="")
    text = (
        f"In points, the {why.how}; behind it the mean of the images. Where much is lost the model looks; a part that "
        "costs nothing may still count beside others, and which class a part speaks for this does not tell."
    )
    if hasattr(found.best.model, "kneighbors"):
        text += " Which training images voted on one: kway neighbors MODEL IMAGE."
    return Picture("where", "Where it looks", text, sketch)


def _mistakes_picture(found: JobResult) -> Picture | None:
    if bool((found.evaluation.predicted == found.parts.test_y).all()):
        return None
    sketch = _sketch("worst_mistakes", mistakes=find_mistakes(found), shape=picture_shape(found), title="")
    text = (
        "The test rows of which the model was surest and wrong, with the training rows nearest to them: blue labels "
        "are the true class, orange ones the class predicted. Neighbours of the true class point to the model, "
        "neighbours of the other to the data (or to a wrong label)."
    )
    return Picture("mistakes", "Worst mistakes and their nearest neighbours", text, sketch)


def _history(found: JobResult) -> Picture | None:
    line = _winner(found, LinearFamily)
    history: NDArray = np.asarray(getattr(line.model, "history_", ()) if line is not None else ())
    if line is None or len(history) < 3:  # a solver of one step has no way to show
        return None
    sketch = _sketch("history", curves={line.standing.model: history}, title="")
    text = f"The objective of {line.standing.model} as its solver went along, on all training rows."
    return Picture("history", "Learning", text, sketch)


def _first(found: JobResult, kind: type) -> Line | None:
    """The best line of a kind of family."""
    families = found.comparison.families
    return next((line for line in found.lines if isinstance(families[line.standing.model], kind)), None)


def _winner(found: JobResult, kind: type) -> Line | None:
    """The winner, where it is of a kind: weights of another family tell nothing of its answers."""
    return found.best if isinstance(found.comparison.families[found.best.standing.model], kind) else None


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
    "where": _where,
    "templates": _templates,
    "mistakes": _mistakes_picture,
    "history": _history,
}
