"""Would more rows help? Scores of the winner on parts of the rows, next to its scores on all of them.

    scores (sizes, folds)    on the held-out rows of the first folds; the last size is that of the comparison

A quarter and half of the rows, in two folds. If that is expected to take more than a small part of the job's time,
there is no curve, and a note says so. The expectation follows from sizes, so the same rows have the same curve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.auto.race.clock import Clock
from kway.auto.race.families import comparison_seconds
from kway.auto.race.scoring import FoldedRows, LeaderboardRow, scores_of

_SHARES = (0.25, 0.5)
_FOLDS = 2
_LEAST_SECONDS = 0.6  # seconds that the curve may always take (T11)
_PART = 0.08  # share of the comparison's seconds that it may take if that is more (T11)
_STEADY = 0.3  # least seconds of a fit on few rows, relative to all rows: maps and kernels do not shrink with rows
_TOO_LONG = "whether more rows would help was not looked at: it would have taken a large part of the job's time"
_LEAST_ROWS = 20  # rows of the smallest size
_LEAST_GAIN = 0.001  # smallest gain of the last doubling that counts, however sure it is


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
        sizes = f"from {self.rows[-2]:,} to {self.rows[-1]:,} rows the score"
        told = f"{sizes} improved by {self.gain:+.3f}"
        if self.gain > max(self.noise, _LEAST_GAIN):
            return f"More rows would help: {told}, and the curve still rises."
        if self.gain < -self.noise:
            worse = f"became worse by {-self.gain:.3f}, which is more than noise ({self.noise:.3f})"
            return f"Whether more rows would help is not clear: {sizes} {worse}."
        return f"More rows would help little: {told}, {self._why_little()}."

    def _why_little(self) -> str:
        return f"within the noise of the folds ({self.noise:.3f})" if self.gain <= self.noise else "hardly at all"


class MaybeCurve(NamedTuple):
    """The curve, or None and why there is none ("" if rows are too few to ask)."""

    curve: LearningCurve | None
    why: str = ""


def learning_curve(
    make: Any, row: LeaderboardRow, data: FoldedRows, expected: float, clock: Clock, seed: int = 0
) -> MaybeCurve:
    """The curve of estimators made by `make()`, whose fit is `expected` to take so many seconds."""
    folds = min(_FOLDS, len(row.fold_scores))
    n = int((data.folds != 0).sum())
    if n * _SHARES[0] < max(_LEAST_ROWS, 2 * data.n_classes) or folds < 1:
        return MaybeCurve(None)
    limit = max(_LEAST_SECONDS, _PART * comparison_seconds(data.size()))
    needed = folds * sum(max(share, _STEADY) for share in _SHARES) * expected
    if needed > limit or clock.up(needed):
        return MaybeCurve(None, _TOO_LONG)
    rng = np.random.default_rng(seed)
    scores = np.full((len(_SHARES) + 1, folds), np.nan)
    for fold in range(folds):
        outside, inside = rng.permutation(np.flatnonzero(data.folds != fold)), np.flatnonzero(data.folds == fold)
        for s, share in enumerate(_SHARES):
            if clock.up():
                return MaybeCurve(None, _TOO_LONG)
            learn = np.sort(outside[: round(share * len(outside))])
            if len(np.unique(data.codes[learn])) < 2:
                return MaybeCurve(None)
            model = make().fit(data.X[learn], data.codes[learn])
            found = scores_of(model, data.X[inside], data.codes[inside])
            scores[s, fold] = getattr(found, data.measure.field)
        scores[-1, fold] = row.fold_scores[fold]
    rows = np.array([round(share * n) for share in (*_SHARES, 1.0)])
    return MaybeCurve(LearningCurve(rows, scores, data.measure.rises) if np.isfinite(scores).all() else None)
