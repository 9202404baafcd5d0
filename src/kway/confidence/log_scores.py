"""Scores z (n, K) with softmax(z) = the estimator's probabilities, whatever the estimator.

    source "decision_function"   z = f, of two classes (0, f): where softmax(f) is predict_proba, or there is none
    source "log-probabilities"   z = log((1 - s) p + s / K)

Votes of neighbours are often exactly 0, which no temperature can mend, so a share s of the mass goes to all classes
alike: s = (rows whose own class got nothing + 1) / (rows + 2), on held-out rows, and 0 where no probability is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.base.class_rows import lift_winners
from kway.confidence.heldout import blocks
from kway.errors import CombinationError
from kway.probabilities import log_softmax

SCORES, LOGS = "decision_function", "log-probabilities"
_SAME = 1e-3  # difference of log-probabilities that float32 scores of size 1,000 still explain
_SEEN = 1e-5  # probabilities above this are compared


@dataclass(frozen=True)
class LogScores:
    """Where z comes from, and the share of smoothing."""

    source: str
    smoothing: float = 0.0

    def __call__(self, estimator: Any, X: Any) -> NDArray[np.float64]:
        """z (n, K)."""
        if self.source == SCORES:
            return score_columns(estimator, X)
        p = np.asarray(estimator.predict_proba(X), np.float64)
        return self.smooth(p)

    def smooth(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Logarithms of probabilities (n, K), none of them -inf; the largest stays the largest."""
        mixed = (1 - self.smoothing) * p + self.smoothing / p.shape[1] if self.smoothing else p
        logs = np.log(np.maximum(mixed, np.finfo(np.float64).tiny))
        return lift_winners(logs, p.argmax(axis=1))  # votes that tied are a rounding apart, which the sum may swallow


def score_columns(estimator: Any, X: Any) -> NDArray[np.float64]:
    """decision_function as (n, K): of two classes (0, f)."""
    f = np.asarray(estimator.decision_function(X), np.float64)
    return f if f.ndim == 2 else np.stack([np.zeros_like(f), f], axis=1)


def pick_source(estimator: Any, X: Any) -> str:
    """ "decision_function" where its softmax is predict_proba on these rows, or where that does not exist."""
    has_scores, has_proba = hasattr(estimator, "decision_function"), hasattr(estimator, "predict_proba")
    if not (has_scores or has_proba):
        raise CombinationError(
            f"{type(estimator).__name__} has neither predict_proba nor decision_function, so there is nothing to scale"
        )
    if not has_scores:
        return LOGS
    if not has_proba:
        return SCORES
    z, p = score_columns(estimator, X), np.asarray(estimator.predict_proba(X), np.float64)
    if z.shape != p.shape:  # one score a pair of classes
        return LOGS
    seen = p > _SEEN
    gap = np.abs(log_softmax(z)[seen] - np.log(p[seen]))
    return SCORES if gap.max(initial=0.0) < _SAME else LOGS


def smoothing_of(p: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """s of held-out probabilities (m, K) and their classes (m,)."""
    if not (p == 0).any():
        return 0.0
    lost = np.count_nonzero(p[np.arange(len(p)), codes] == 0)
    return (lost + 1) / (len(p) + 2)


def stated_values(estimator: Any, X: Any, source: str, n: int) -> NDArray[np.float64]:
    """Scores or probabilities (n, K), block by block."""
    width = len(estimator.classes_)
    ask = score_columns if source == SCORES else _probabilities
    return np.concatenate([ask(estimator, block) for block in blocks(X, n, width)])


def _probabilities(estimator: Any, X: Any) -> NDArray[np.float64]:
    return np.asarray(estimator.predict_proba(X), np.float64)
