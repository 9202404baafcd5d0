"""How many impostors are accepted: classes are left out in turn, and their rows play the unknown.

    for each group of classes: fit without it, set the threshold on held-out rows of the others, then
    accepted = rows of the group with a score at or above the threshold
    AUROC    = P(a known row scores above an impostor), ties count half
    bound    = Clopper-Pearson: the a with P(Binomial(n, a) <= accepted) = 1 - confidence

This happens inside the rows that the final estimator learns from, so the rows that set its threshold stay unseen
and the false-reject rate stays exact. The bound is about rows drawn from impostors like the classes left out, together;
`worst_share` shows how much classes differ.

`openset_table` compares the scores of being known on test rows that contain both known and unknown classes: AUROC, the
share of known rows rejected, the share of unknown rows accepted, and the accuracy (a rejected row counts as wrong).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kway.confidence import heldout
from kway.confidence.heldout import ROUNDING
from kway.confidence.known_scores import Scorer, candidates, make_scorers
from kway.errors import InputError
from kway.labels import Labels
from kway.rows.row_blocks import rows_at

CONFIDENCE = 0.95
GIVEN, LEFT_OUT = "rows labelled unknown", "classes left out"
_SHARE = 0.25  # of the known rows, held out to set the threshold in each trial
_MOST_ROWS = 4000  # known and impostor rows scored a trial: five groups bound a share within one in a hundred


class ImpostorTrial(NamedTuple):
    """One score in one trial: known (m,) and impostor (i,) scores, the impostors' classes (i,), the threshold."""

    known: NDArray[np.float64]
    impostors: NDArray[np.float64]
    classes: NDArray
    threshold: float


@dataclass(frozen=True)
class FalseAccepts:
    """What one score did against impostors; `bound` holds with `confidence` for more rows of these impostors."""

    score: str
    impostors: str  # "classes left out" | "rows labelled unknown"
    auroc: float
    accepted: int
    n_impostors: int
    bound: float
    confidence: float
    worst_class: Any
    worst_share: float

    @property
    def share(self) -> float:
        """Share of the impostors that got in."""
        return self.accepted / self.n_impostors if self.n_impostors else math.nan

    def __str__(self) -> str:
        return (
            f"{self.share:.1%} of {self.n_impostors:,} impostors ({self.impostors}) were accepted; of more rows of "
            f"these same impostors at most {self.bound:.1%} will be, at {self.confidence:.4g} confidence, and about "
            f"others nothing is promised (AUROC {self.auroc:.3f} by {self.score})"
        )


Learn = Callable[[Any, Labels], Any]  # rows, labels -> a fitted estimator
Bind = Callable[[list[str], Any, Any], list[Scorer]]  # scores, estimator, its training rows -> a Scorer each


@dataclass(frozen=True)
class Study:
    """Everything a trial needs: rows X with labels, how to fit, how to score, which scores, the false-reject rate."""

    X: Any
    labels: Labels
    learn: Learn
    bind: Bind
    names: list[str]
    rate: float
    rng: np.random.RandomState

    def class_groups(self, n_groups: int) -> list[NDArray[np.int64]]:
        """Codes to leave out together; at least two classes always stay."""
        width = self.labels.n_classes
        n_groups = min(n_groups, width)
        if width < 3 or n_groups < 1:
            return []
        n_groups = max(n_groups, -(-width // (width - 2)))  # a group leaves two classes at least
        return [np.sort(part) for part in np.array_split(self.rng.permutation(width), n_groups) if len(part)]

    def leave_out(self, group: NDArray[np.int64]) -> list[ImpostorTrial]:
        """One trial a score: the group's rows are the impostors."""
        out = np.isin(self.labels.codes, group)
        impostors = np.flatnonzero(out)
        shown = self.labels.classes[self.labels.codes[impostors]]
        return self.against(np.flatnonzero(~out), rows_at(self.X, impostors), shown)

    def _some(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """As many of the rows as a trial scores."""
        return rows if len(rows) <= _MOST_ROWS else np.sort(self.rng.permutation(rows)[:_MOST_ROWS])

    def against(self, known: NDArray[np.int64], X_out: Any, shown: NDArray) -> list[ImpostorTrial]:
        """One trial a score: fit on a part of the known rows, the threshold from the rest, then these impostors."""
        split = heldout.hold_out(self.labels.codes[known], _SHARE, self.rng)
        learn, held = known[split.learn], known[split.held]
        X_in = rows_at(self.X, learn)
        present, codes = np.unique(self.labels.codes[learn], return_inverse=True)
        estimator = self.learn(X_in, Labels(self.labels.classes[present], codes))
        X_held, n_out = rows_at(self.X, self._some(held)), len(shown)
        if n_out > _MOST_ROWS:
            some = self._some(np.arange(n_out))
            X_out, shown = rows_at(X_out, some), shown[some]
        trials = []
        for score in self.bind(self.names, estimator, X_in):
            inside = score(X_held) if len(held) else np.empty(0)
            trials.append(ImpostorTrial(inside, score(X_out), shown, reject_threshold(inside, self.rate)))
        return trials


def impostor_reports(study: Study, n_groups: int, given: Any, n_given: int, unknown: Any) -> tuple[FalseAccepts, ...]:
    """One report a score, best AUROC first: against the given impostors where there are any, else by classes."""
    everyone = np.arange(len(study.labels.codes))
    if n_given:
        rounds = [study.against(everyone, given, np.full(n_given, unknown))]
    else:
        rounds = [study.leave_out(group) for group in study.class_groups(n_groups)]
    if not rounds:
        return ()
    kind = GIVEN if n_given else LEFT_OUT
    # the best of several is chosen by the same trials: the bounds hold for all of them at once
    confidence = 1 - (1 - CONFIDENCE) / len(study.names)
    reports = [summary(name, kind, [trials[i] for trials in rounds], confidence) for i, name in enumerate(study.names)]
    return tuple(sorted(reports, key=lambda report: -report.auroc))


def summary(name: str, kind: str, trials: list[ImpostorTrial], confidence: float) -> FalseAccepts:
    """The trials of one score, together."""
    accepted = np.concatenate([trial.impostors >= trial.threshold for trial in trials])
    shown, place = np.unique(np.concatenate([trial.classes for trial in trials]), return_inverse=True)
    shares = np.bincount(place, accepted) / np.bincount(place)
    worst = int(shares.argmax())
    count, n = int(accepted.sum()), len(accepted)
    areas = [auroc(trial.known, trial.impostors) for trial in trials]
    area = float(np.mean(areas))
    label = shown[worst].item() if isinstance(shown[worst], np.generic) else shown[worst]
    bound = upper_bound(count, n, confidence)
    return FalseAccepts(name, kind, area, count, n, bound, confidence, label, float(shares[worst]))


def reject_threshold(known: NDArray[np.float64], rate: float) -> float:
    """The floor((m + 1) rate)-th smallest of m known scores: a new one is below it with chance `rate` at most.

    >>> reject_threshold(np.arange(99.0), 0.01), reject_threshold(np.arange(98.0), 0.01)
    (0.0, -inf)
    """
    rank = math.floor((len(known) + 1) * rate + ROUNDING)
    return float(np.partition(known, rank - 1)[rank - 1]) if rank >= 1 else -math.inf


def auroc(known: NDArray, impostors: NDArray) -> float:
    """P(known > impostor) + P(equal) / 2 (Mann and Whitney).

    >>> auroc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    if not len(known) or not len(impostors):
        return 0.5
    below = np.sort(impostors)
    beaten = np.searchsorted(below, known, "left") + np.searchsorted(below, known, "right")  # twice, ties once
    return float(beaten.mean() / 2 / len(impostors))


def upper_bound(count: int, n: int, confidence: float) -> float:
    """Clopper-Pearson: the smallest share that would show at most this many only with chance 1 - confidence.

    >>> round(upper_bound(0, 59, 0.95), 3)
    0.05
    """
    from scipy.special import betaincinv  # slow to load

    return float(betaincinv(count + 1, n - count, confidence)) if count < n else 1.0


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
