"""False accepts: how many impostors are accepted as known. Classes are left out in turn; their rows are the impostors.

    for each group of classes: fit without it, compute the threshold on held-out rows of the other classes, then
    accepted = rows of the group with a score at or above the threshold
    AUROC    = P(a known row scores above an impostor), ties count half
    bound    = Clopper-Pearson: the a with P(Binomial(n, a) <= accepted) = 1 - confidence

Only training rows of the final estimator are used. The rows that determine its threshold are not, so the rate of false
rejects stays exact. The bound holds for new rows from the same mixture of impostors; `worst_share` shows how much
classes differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.confidence.known_scores import Scorer
from kway.confidence.splits import COUNT_TOLERANCE, LabeledRows, hold_out
from kway.rows.blocks import SAMPLE_ROWS, take_rows

CONFIDENCE = 0.95  # confidence level of the bound on false accepts, as usual in statistics
LABELED, LEFT_OUT = "rows labeled unknown", "classes left out"
_HELD_OUT = 0.25  # share of the known rows that determine the threshold in each trial; decided by tests of the bound


class ImpostorTrial(NamedTuple):
    """One score in one trial: scores of known rows (m,) and impostors (i,), the impostors' classes, the threshold."""

    known: NDArray[np.float64]
    impostors: NDArray[np.float64]
    classes: NDArray
    threshold: float


@dataclass(frozen=True)
class FalseAccepts:
    """The result of one known score against impostors; `str()` describes it in a sentence.

    Parameters
    ----------
    score : str
        Name of the score.
    impostors : str
        "classes left out" or "rows labeled unknown".
    auroc : float
        Probability that a known row scores above an impostor; ties count half.
    accepted, n_impostors : int
        Number of impostors that were accepted, and of all impostors.
    bound : float
        Upper bound on the share of accepted rows among new rows of these impostors.
    confidence : float
        Confidence level of the bound.
    worst_class : label
        The class with the largest share of accepted rows.
    worst_share : float
        That share.
    """

    score: str
    impostors: str
    auroc: float
    accepted: int
    n_impostors: int
    bound: float
    confidence: float
    worst_class: Any
    worst_share: float

    @property
    def share(self) -> float:
        """Share of the impostors that were accepted."""
        return self.accepted / self.n_impostors if self.n_impostors else math.nan

    def __str__(self) -> str:
        return (
            f"{self.share:.1%} of {self.n_impostors:,} impostors ({self.impostors}) were accepted; of more rows of "
            f"these same impostors at most {self.bound:.1%} will be, at {self.confidence:.4g} confidence; nothing is "
            f"guaranteed about others (AUROC {self.auroc:.3f} by {self.score})"
        )


Fit = Callable[[LabeledRows], Any]  # -> a fitted estimator
Bind = Callable[[list[str], Any, Any], list[Scorer]]  # names of scores, estimator, its training rows -> scorers


@dataclass(frozen=True)
class ImpostorStudy:
    """Trials in which some rows are impostors.

    Parameters
    ----------
    rows : LabeledRows
        Training rows.
    fit : callable
        Rows -> a fitted estimator.
    bind : callable
        Names of scores, estimator, its training rows -> scorers.
    names : list of str
        Names of the scores.
    rate : float
        Rate of false rejects that determines the thresholds.
    rng : RandomState
        Generator of groups, splits and samples.
    """

    rows: LabeledRows
    fit: Fit
    bind: Bind
    names: list[str]
    rate: float
    rng: np.random.RandomState

    def class_groups(self, n_groups: int) -> list[NDArray[np.int64]]:
        """Return groups of class codes to leave out together; at least two classes always stay."""
        width = self.rows.labels.n_classes
        n_groups = min(n_groups, width)
        if width < 3 or n_groups < 1:
            return []
        n_groups = max(n_groups, -(-width // (width - 2)))  # a group leaves at least two classes
        return [np.sort(part) for part in np.array_split(self.rng.permutation(width), n_groups) if len(part)]

    def leave_out(self, group: NDArray[np.int64]) -> list[ImpostorTrial]:
        """Return one trial per score in which the rows of the group are the impostors."""
        is_impostor = np.isin(self.rows.labels.codes, group)
        impostors = np.flatnonzero(is_impostor)
        classes = self.rows.labels.classes[self.rows.labels.codes[impostors]]
        return self.against(np.flatnonzero(~is_impostor), take_rows(self.rows.X, impostors), classes)

    def _sample(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows, or SAMPLE_ROWS of them drawn at random."""
        return rows if len(rows) <= SAMPLE_ROWS else np.sort(self.rng.permutation(rows)[:SAMPLE_ROWS])

    def against(self, known: NDArray[np.int64], X_out: Any, classes: NDArray) -> list[ImpostorTrial]:
        """Return one trial per score, with impostors X_out (i, d) of these classes (i,).

        The estimator is fitted on a part of the known rows, and the others determine the threshold.
        """
        split = hold_out(self.rows.labels.codes[known], _HELD_OUT, self.rng)
        held_out = known[split.held_out]
        train_rows = known[split.train]
        train = self.rows.take(train_rows)._replace(labels=self.rows.labels.at(train_rows))
        estimator = self.fit(train)
        X_held_out = take_rows(self.rows.X, self._sample(held_out))
        if len(classes) > SAMPLE_ROWS:
            sample = self._sample(np.arange(len(classes)))
            X_out, classes = take_rows(X_out, sample), classes[sample]
        trials = []
        for scorer in self.bind(self.names, estimator, train.X):
            known_scores = scorer(X_held_out) if len(held_out) else np.empty(0)
            threshold = reject_threshold(known_scores, self.rate)
            trials.append(ImpostorTrial(known_scores, scorer(X_out), classes, threshold))
        return trials


def report_impostors(
    study: ImpostorStudy, n_groups: int, X_out: Any, n_out: int, unknown: Any
) -> tuple[FalseAccepts, ...]:
    """Return one report per score, best AUROC first: against X_out if it has rows, otherwise by leaving out classes."""
    if n_out:
        rounds = [study.against(np.arange(len(study.rows.labels.codes)), X_out, np.full(n_out, unknown))]
    else:
        rounds = [study.leave_out(group) for group in study.class_groups(n_groups)]
    if not rounds:
        return ()
    kind = LABELED if n_out else LEFT_OUT
    # the best score is chosen by the same trials, so the bounds hold for all scores at once (Bonferroni)
    confidence = 1 - (1 - CONFIDENCE) / len(study.names)
    reports = [
        summarize(name, kind, [trials[i] for trials in rounds], confidence) for i, name in enumerate(study.names)
    ]
    return tuple(sorted(reports, key=lambda report: -report.auroc))


def summarize(name: str, kind: str, trials: list[ImpostorTrial], confidence: float) -> FalseAccepts:
    """Combine the trials of one score; `kind` is LABELED or LEFT_OUT."""
    accepted = np.concatenate([trial.impostors >= trial.threshold for trial in trials])
    classes, codes = np.unique(np.concatenate([trial.classes for trial in trials]), return_inverse=True)
    shares = np.bincount(codes, accepted) / np.bincount(codes)
    worst = int(shares.argmax())
    n_accepted, n = int(accepted.sum()), len(accepted)
    return FalseAccepts(
        name,
        kind,
        auroc=float(np.mean([auroc(trial.known, trial.impostors) for trial in trials])),
        accepted=n_accepted,
        n_impostors=n,
        bound=upper_bound(n_accepted, n, confidence),
        confidence=confidence,
        worst_class=classes[worst].item() if isinstance(classes[worst], np.generic) else classes[worst],
        worst_share=float(shares[worst]),
    )


def reject_threshold(known: NDArray[np.float64], rate: float) -> float:
    """Return the floor((m + 1) rate)-th smallest of m known scores.

    A new score is below it with a probability of at most `rate`.

    >>> reject_threshold(np.arange(99.0), 0.01), reject_threshold(np.arange(98.0), 0.01)
    (0.0, -inf)
    """
    rank = math.floor((len(known) + 1) * rate + COUNT_TOLERANCE)
    return float(np.partition(known, rank - 1)[rank - 1]) if rank >= 1 else -math.inf


def auroc(known: NDArray, impostors: NDArray) -> float:
    """Return P(known > impostor) + P(equal) / 2 (Mann and Whitney).

    >>> auroc(np.array([2.0, 3.0]), np.array([1.0, 2.0]))
    0.875
    """
    if not len(known) or not len(impostors):
        return 0.5
    ordered = np.sort(impostors)
    # impostors below each known row count twice, ties once
    wins = np.searchsorted(ordered, known, "left") + np.searchsorted(ordered, known, "right")
    return float(wins.mean() / 2 / len(impostors))


def upper_bound(count: int, n: int, confidence: float) -> float:
    """Return the upper Clopper-Pearson bound of a probability, for `count` successes in n trials.

    >>> round(upper_bound(0, 59, 0.95), 3)
    0.05
    """
    from scipy.special import betaincinv  # slow to load

    return float(betaincinv(count + 1, n - count, confidence)) if count < n else 1.0
