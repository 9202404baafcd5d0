"""Judge the test result: the score by the metric that decides, and whether it beats the most frequent class."""

from __future__ import annotations

from typing import Any

import numpy as np


def measured(scores: Any, metric: str) -> float | None:
    """Return the test score of a metric; None if the model has none, such as the log loss without probabilities."""
    if metric == "balanced":
        return float(np.mean([line["recall"] for line in scores.classes]))
    value: float | None = {"macro-f1": scores.macro_f1, "log-loss": scores.log_loss}.get(metric, scores.accuracy)
    return value


def verdict(scores: Any, majority: float) -> str:
    """Return a sentence if the accuracy is not above that of always predicting the most frequent class, else "".

    A difference is not clear if the 95% interval of the accuracy contains the share of that class.
    """
    if scores.accuracy <= majority:
        return "No better than always predicting the most frequent class"
    return "Not clearly better than always predicting the most frequent class" if scores.low <= majority else ""
