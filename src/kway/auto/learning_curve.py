"""Would more rows help? Scores of the winner trained on parts of the rows, next to its scores with all of them.

    scores (s, f)    of s numbers of rows, on the held-out rows of the first f folds; the last ones are the comparison's

The parts are a quarter, half and all of the rows. If the fits are expected to take more than a small part of the job,
there is no curve, and a note says so.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway.auto.compare_data import DataComparison
from kway.auto.race.clock import Clock
from kway.auto.race.folds import ROWS_PER_CLASS, weights_to_fit
from kway.auto.race.scoring import FoldedRows, LeaderboardRow, predict_held_out

_SHARES = (0.25, 0.5)  # parts of the rows, besides all of them: each point doubles the rows
_FOLDS = 2  # folds of the curve: the fewest that show how much of a gain is noise
_TOO_LONG = "there is no learning curve, because it would take a large part of the time of the job"


@dataclass(frozen=True, eq=False)
class LearningCurve:
    """Scores for growing numbers of training rows.

    Attributes
    ----------
    rows : ndarray of shape (s,)
        Numbers of training rows, in ascending order.
    scores : ndarray of shape (s, f)
        Score on the held-out rows of each fold.
    higher_is_better : bool
        Whether a higher score is better.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    higher_is_better: bool

    @property
    def gain(self) -> float:
        """Gain of the mean score from the last doubling of the rows; positive is better."""
        change = float(np.diff(self.scores.mean(axis=1))[-1])
        return change if self.higher_is_better else -change

    @property
    def noise(self) -> float:
        """Two standard errors of the gain over the folds; infinite for a single fold."""
        gains = np.diff(self.scores, axis=0)[-1]
        return 2 * float(gains.std(ddof=1)) / np.sqrt(len(gains)) if len(gains) > 1 else np.inf

    def __str__(self) -> str:
        doubling = f"from {self.rows[-2]:,} to {self.rows[-1]:,} rows the score"
        change = f"{'improved' if self.gain >= 0 else 'became worse'} by {abs(self.gain):.3f}"
        single = np.isinf(self.noise)
        noise = ", but one fold does not show the noise" if single else f"; the noise of the folds is {self.noise:.3f}"
        one_row = 1 / self.rows[-1]
        if self.gain > max(self.noise, one_row):
            return f"More rows would help: {doubling} {change}, and the curve still rises."
        if single or self.gain < -self.noise:
            return f"It is not clear whether more rows would help: {doubling} {change}{noise}."
        return f"More rows would help little: {doubling} {change}{noise}."


def learning_curve(chosen: DataComparison, row: LeaderboardRow, clock: Clock) -> tuple[LearningCurve | None, str]:
    """Return (curve, ""), or (None, note) without a curve; the note is empty if there are too few rows for a curve.

    `row` is a row of the leaderboard, with its scores of the comparison on all rows.
    """
    comparison, measure, seed = chosen.comparison, chosen.comparison.measure, chosen.options.seed
    X, codes = chosen.view(row.model).X, chosen.data.labels.codes
    data = FoldedRows(X, codes, chosen.folds, weights=chosen.data.weights)
    folds = min(_FOLDS, len(row.fold_scores))
    n = int((data.folds != 0).sum())
    if n * _SHARES[0] < max(ROWS_PER_CLASS, 2 * data.n_classes) or folds < 1:
        return None, ""
    if folds * sum(_SHARES) * comparison.fit_seconds(row.model) > clock.extra_seconds():
        return None, _TOO_LONG
    rng = np.random.default_rng(seed)
    scores = np.full((len(_SHARES) + 1, folds), np.nan)
    for fold in range(folds):
        train = rng.permutation(np.flatnonzero(data.folds != fold))
        held_out = np.flatnonzero(data.folds == fold)
        for s, share in enumerate(_SHARES):
            if clock.up():
                return None, _TOO_LONG
            part = np.sort(train[: round(share * len(train))])
            if len(np.unique(codes[part])) < 2:
                return None, ""
            model = comparison.estimator(row, seed).fit(X[part], codes[part], **weights_to_fit(data.weights, part))
            predictions = predict_held_out(model, X[held_out], codes[held_out], data.n_classes)
            predictions = predictions.weighted(data, held_out)
            scores[s, fold] = measure.shown(measure.of(predictions, codes[held_out])[0])
        scores[-1, fold] = row.fold_scores[fold]
    rows = np.array([round(share * n) for share in (*_SHARES, 1.0)])
    return LearningCurve(rows, scores, measure.rises) if np.isfinite(scores).all() else None, ""
