"""Scores of being known against each other, on test rows that hold both known classes and the unknown.

auroc           P(a known test row scores above an unknown one)
false_rejects   share of known test rows under the threshold       rate: what was promised
false_accepts   share of unknown test rows at or above it
accuracy        share of known test rows answered with their own class; a rejected row is not
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway.confidence.impostors import auroc, reject_threshold
from kway.confidence.known_scores import candidates, make_scorers
from kway.data.blocks.row_blocks import rows_at
from kway.errors import InputError


class Outcome(NamedTuple):
    """One score at one promised rate of false rejects; `chosen`: the best AUROC on the held-out rows."""

    score: str
    rate: float
    auroc_held: float
    auroc: float
    false_rejects: float
    false_accepts: float
    accuracy: float
    chosen: bool


class ComparedPart(NamedTuple):
    """Rows of known classes with their labels, and rows of the unknown."""

    X: Any
    y: NDArray
    X_out: Any
    n_out: int


def openset_table(
    estimator: Any,
    train: tuple[Any, Any],
    held: tuple[Any, Any],
    test: tuple[Any, Any],
    unknown: Any,
    rates: Sequence[float] = (0.01, 0.05),
    metric: Any = "euclidean",
    n_neighbors: int = 5,
) -> list[Outcome]:
    """One record a score and rate; each part is (X, y), rows labelled `unknown` are outside every class.

    The estimator learns from the known rows of `train`; those of `held` set the thresholds, and its unknown rows
    choose the best score; `test` is only measured.
    """
    learn, held_part, test_part = (_part(*rows, unknown) for rows in (train, held, test))
    if not (test_part.n_out and len(test_part.y)):
        raise InputError(f"the test rows must hold known classes and rows labelled {unknown!r}")
    fitted = clone(estimator).fit(learn.X, learn.y)
    right = np.asarray(fitted.predict(test_part.X)) == test_part.y
    rows = []
    for score in make_scorers(candidates(fitted, learn.X), fitted, learn.X, metric, n_neighbors):
        held_in, inside, outside = score(held_part.X), score(test_part.X), score(test_part.X_out)
        before = auroc(held_in, score(held_part.X_out)) if held_part.n_out else np.nan
        for rate in rates:
            t = reject_threshold(held_in, rate)
            accuracy = float(np.mean(right & (inside >= t)))
            rejects, accepts = float(np.mean(inside < t)), float(np.mean(outside >= t))
            rows.append(Outcome(score.name, rate, before, auroc(inside, outside), rejects, accepts, accuracy, False))
    best = max((row.auroc_held for row in rows), default=np.nan)
    return [row._replace(chosen=row.auroc_held == best) for row in rows]


def table_text(rows: Iterable[Outcome]) -> str:
    """The records as lines of text, one a row, under a header."""
    lines = [f"{'score':<16} {'promised':>8} {'AUROC':>7} {'rejects':>8} {'accepts':>8} {'accuracy':>8}"]
    lines += [
        f"{row.score:<16} {row.rate:>8.1%} {row.auroc:>7.4f} {row.false_rejects:>8.2%} {row.false_accepts:>8.2%} "
        f"{row.accuracy:>8.2%}{'  chosen' if row.chosen else ''}"
        for row in rows
    ]
    return "\n".join(lines)


def _part(X: Any, y: Any, unknown: Any) -> ComparedPart:
    labels = np.asarray(y)
    out = labels == unknown
    inside, outside = np.flatnonzero(~out), np.flatnonzero(out)
    return ComparedPart(rows_at(X, inside), labels[inside], rows_at(X, outside), len(outside))
