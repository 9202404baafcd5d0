"""Would more rows help? Scores of the winner on parts of the rows, next to its scores on all of them.

    scores (sizes, folds)    on the held-out rows of the first folds; the last size is that of the comparison

The sizes are a quarter, half and all of the rows. If the fits are expected to take more than a small part of the job,
there is no curve, and a note says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.auto.race.clock import Clock
from kway.auto.race.folds import ROWS_PER_CLASS
from kway.auto.race.scoring import FoldedRows, LeaderboardRow, Measure, predict_held_out

_SHARES = (0.25, 0.5)  # parts of the rows, next to all of them (T11)
_FOLDS = 2  # folds of the curve: the fewest that show how much of a gain is noise (T11)
_TOO_LONG = "there is no learning curve, because it would take a large part of the time of the job"


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Numbers of rows learned from (s,) and the measure (s, folds)."""

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    rises: bool

    @property
    def gain(self) -> float:
        """How much the last doubling of the rows improved the mean; above zero is better."""
        return float(np.diff(self.scores.mean(axis=1))[-1]) * (1 if self.rises else -1)

    @property
    def noise(self) -> float:
        """Two standard errors of that gain over the folds."""
        gaps = np.diff(self.scores, axis=0)[-1]
        return 2 * float(gaps.std(ddof=1)) / np.sqrt(len(gaps)) if len(gaps) > 1 else np.inf

    def __str__(self) -> str:
        sizes = f"from {self.rows[-2]:,} to {self.rows[-1]:,} rows the score"
        improved = f"{sizes} improved by {self.gain:+.3f}"
        if self.gain > max(self.noise, 1 / self.rows[-1]):
            return f"More rows would help: {improved}, and the curve still rises."
        if self.gain < -self.noise:
            worse = f"became worse by {-self.gain:.3f}, which is more than noise ({self.noise:.3f})"
            return f"It is not clear whether more rows would help: {sizes} {worse}."
        return f"More rows would help little: {improved}; the noise of the folds is {self.noise:.3f}."


def learning_curve(
    make: Any, row: LeaderboardRow, data: FoldedRows, measure: Measure, seconds: float, clock: Clock, seed: int = 0
) -> tuple[LearningCurve | None, str]:
    """Return the curve of estimators made by `make()`, or None and why there is none.

    One fit is expected to take so many seconds.
    """
    folds = min(_FOLDS, len(row.fold_scores))
    n = int((data.folds != 0).sum())
    if n * _SHARES[0] < max(ROWS_PER_CLASS, 2 * data.n_classes) or folds < 1:
        return None, ""
    needed = folds * sum(_SHARES) * seconds
    if needed > clock.extra_seconds():
        return None, _TOO_LONG
    rng = np.random.default_rng(seed)
    scores = np.full((len(_SHARES) + 1, folds), np.nan)
    for fold in range(folds):
        outside, inside = rng.permutation(np.flatnonzero(data.folds != fold)), np.flatnonzero(data.folds == fold)
        for s, share in enumerate(_SHARES):
            if clock.up():
                return None, _TOO_LONG
            learn = np.sort(outside[: round(share * len(outside))])
            if len(np.unique(data.codes[learn])) < 2:
                return None, ""
            model = make().fit(data.X[learn], data.codes[learn])
            predictions = predict_held_out(model, data.X[inside], data.codes[inside], data.n_classes)
            scores[s, fold] = measure.shown(measure.of(predictions, data.codes[inside])[0])
        scores[-1, fold] = row.fold_scores[fold]
    rows = np.array([round(share * n) for share in (*_SHARES, 1.0)])
    return LearningCurve(rows, scores, measure.rises) if np.isfinite(scores).all() else None, ""
