"""Would more rows help? The winner on parts of the rows, beside its scores on all of them.

    scores (sizes, folds)    on the held-out rows of the first folds; the last size is the comparison's own

An eighth, a quarter and half of the rows in three folds where that is a small part of the job's time, else a quarter
and half in two; where even these would take long there is no curve.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.select.clock import Clock
from kway.select.scans import FoldedRows, scores_of
from kway.select.standings import Standing

_LEAST_SECONDS = 0.5  # that the curve may take in any case; else a part of what the job took
_PART = 0.08
_STEADY = 0.3  # of a fit on all rows, that one on few of them takes at least: maps and kernels do not shrink with rows
_LEAST_ROWS = 20  # of the smallest size


class _Effort(NamedTuple):
    """Shares of the rows that are learned from, in so many folds."""

    shares: tuple[float, ...]
    folds: int

    def seconds(self, fit_seconds: float) -> float:
        """About what it takes, where a fit on all rows takes so long."""
        return self.folds * sum(max(share, _STEADY) for share in self.shares) * fit_seconds


_EFFORTS = (_Effort((0.125, 0.25, 0.5), 3), _Effort((0.25, 0.5), 2))


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Rows learned from (s,) and the measure (s, folds), as people know it."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    rises: bool

    @property
    def gain(self) -> float:
        """By how much the last doubling of the rows improved the mean; above zero is better."""
        return float(np.diff(self.scores.mean(axis=1))[-1]) * (1 if self.rises else -1)

    @property
    def noise(self) -> float:
        """Two standard errors of that gain, fold by fold."""
        gaps = np.diff(self.scores, axis=0)[-1]
        return 2 * float(gaps.std(ddof=1)) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.inf

    def __str__(self) -> str:
        told = f"from {self.rows[-2]:,} to {self.rows[-1]:,} rows the score improved by {self.gain:+.3f}"
        if self.gain > self.noise:
            return f"More rows would help: {told}, and the curve still rises."
        return f"More rows would help little: {told}, within the noise of the folds ({self.noise:.3f})."


def learning_curve(
    make: Any, standing: Standing, data: FoldedRows, fit_seconds: float, clock: Clock, seed: int = 0
) -> LearningCurve | None:
    """Of estimators that `make()` gives; None where it would take too long, or rows are few."""
    n = int((data.folds != 0).sum())
    begun, limit = time.perf_counter(), max(_LEAST_SECONDS, _PART * clock.spent())
    effort = next((e for e in _EFFORTS if e.seconds(fit_seconds) <= limit), None)
    if effort is None or clock.up(effort.seconds(fit_seconds)):
        return None
    shares, folds = effort.shares, min(effort.folds, len(standing.fold_scores))
    if n * shares[0] < max(_LEAST_ROWS, 2 * (data.codes.max() + 1)) or folds < 1:
        return None
    rng = np.random.default_rng(seed)
    scores = np.full((len(shares) + 1, folds), np.nan)
    for fold in range(folds):
        outside, inside = rng.permutation(np.flatnonzero(data.folds != fold)), np.flatnonzero(data.folds == fold)
        for s, share in enumerate(shares):
            if time.perf_counter() - begun > 3 * limit:  # what costs as much with few rows was not in the estimate
                return None
            learn = np.sort(outside[: round(share * len(outside))])
            if len(np.unique(data.codes[learn])) < 2:
                return None
            model = make().fit(data.X[learn], data.codes[learn])
            found = scores_of(model, data.X[inside], data.codes[inside])
            scores[s, fold] = getattr(found, data.measure.field)
        scores[-1, fold] = standing.fold_scores[fold]
    rows = np.array([round(share * n) for share in (*shares, 1.0)])
    return LearningCurve(rows, scores, data.measure.rises) if np.isfinite(scores).all() else None
