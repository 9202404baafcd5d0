"""Promises around the winner: sets that hold the label with a promised chance, and "unknown" as an answer.

    OpenSet( ... ) inside Conformal( ... ), each around the winner with its temperature

Both rest on rows held out of training, so the model that is kept learns from the others only. On the test rows:

    coverage against size       of the sets {c : 1 - p_c <= t} over all t   the promised point among them
    accuracy against answered   of the rows whose score of being known is highest
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway.confidence import ConformalClassifier, OpenSetClassifier, TemperatureScaledClassifier
from kway.data.labels import encode_as

_HELD = 0.2
_LEFT_OUT = 3  # groups of classes that are left out in turn, to measure how often a stranger is taken for known
_POINTS = 60  # of a curve


@dataclass(frozen=True, eq=False)
class Tradeoff:
    """A curve x, y on the test rows, the point that was promised, and what was promised in words."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    at: tuple[float, float]
    promise: str


@dataclass(frozen=True, eq=False)
class Promises:
    """The model with what was promised of it; a curve is None where it was not asked for."""

    model: Any  # answers with sets, or with "unknown"
    classifier: Any  # inside: the winner with its temperature
    opened: Any  # the OpenSetClassifier, or None
    held: str = "a fifth of the training rows"


def promise(
    winner: Any, X: Any, y: NDArray, split: tuple[NDArray, NDArray] | None, sets: float | None, unknown: float | None,
    seed: int,
) -> Promises:  # fmt: skip
    """Fit the winner again on a part of the rows; `split` (learn, held) where rows drawn at random are too easy."""
    cv: Any = _HELD if split is None else [split]
    model: Any = TemperatureScaledClassifier(clone(winner), _HELD, seed)
    if unknown is not None:
        own = cv if sets is None else _HELD  # inside the sets' own part row numbers would mean other rows
        model = OpenSetClassifier(model, false_rejects=unknown, class_groups=_LEFT_OUT, cv=own, random_state=seed)
    if sets is not None:
        model = ConformalClassifier(model, coverage=sets, cv=cv, random_state=seed)
    model.fit(X, y)
    if split is not None:  # row numbers of this training set have no place in a model file
        model.set_params(cv="prefit", estimator=model.estimator_)
    opened = None if unknown is None else (model if sets is None else model.estimator_)
    inside = model.estimator_ if opened is None else opened.estimator_
    return Promises(model, inside, opened)


def sets_tradeoff(promises: Promises, X: Any, y: NDArray) -> Tradeoff:
    """Share of test rows whose set holds their label, against labels in a set; the limit that is kept is on the curve.

    Between the limits at which a label comes in, sets grow and hold no more: the kept one lies on such a step.
    """
    odd = 1.0 - np.asarray(promises.classifier.predict_proba(X))
    own = odd[np.arange(len(y)), encode_as(y, promises.classifier.classes_)]
    limits = np.unique([*np.quantile(own, np.linspace(0, 1, _POINTS)), *np.unique(promises.model.thresholds_)])
    sizes = np.array([(odd <= t).sum(axis=1).mean() for t in limits])
    covered = np.array([(own <= t).mean() for t in limits])
    found = promises.model.predict_set(X)
    at = float(found.sizes.mean()), float(found.covers(y).mean())
    return Tradeoff(sizes, covered, at, str(promises.model.promise_))


def unknown_tradeoff(promises: Promises, X: Any, y: NDArray) -> Tradeoff:
    """Accuracy of the rows that are answered, against their share, the best known first."""
    told = promises.opened.explain(X)
    order = np.argsort(-told.known_scores, kind="stable")
    right = (told.candidates == y)[order]
    counts = np.unique(np.linspace(1, len(y), _POINTS).astype(int))
    answered = ~told.rejected
    right_there = float((told.candidates == y)[answered].mean()) if answered.any() else 1.0
    share = float(answered.mean())
    return Tradeoff(counts / len(y), np.cumsum(right)[counts - 1] / counts, (share, right_there),
                    str(promises.opened.promise_))  # fmt: skip
