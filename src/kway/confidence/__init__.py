"""Confidence: meta-estimators around any classifier, kway's or scikit-learn's.

temperature.py      TemperatureScaledClassifier: probabilities that mean what they say
log_scores.py       z whose softmax is the estimator's probabilities
class_offsets.py    makes the scores of one-vs-all models comparable
conformal.py        ConformalClassifier: prediction sets with a coverage guarantee
prediction_sets.py  nonconformity scores, ranked lists, the sets
openset.py          OpenSetClassifier: "unknown", with a guaranteed false-reject rate
known_scores.py     how known a row looks
impostors.py        how many unknown rows are accepted; openset_table compares the scores
reliability.py      expected_calibration_error and reliability
heldout.py          rows that the estimator did not learn from, and the base of the wrappers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.confidence.reliability import Reliability, expected_calibration_error, reliability  # a module's name as well
from kway.lazy_names import lazy_names

_HOME = {
    "ConformalClassifier": "conformal",
    "CoveragePromise": "conformal",
    "FalseAccepts": "impostors",
    "OpenSetClassifier": "openset",
    "OpenSetPromise": "openset",
    "Outcome": "impostors",
    "PredictionSets": "prediction_sets",
    "TemperatureScaledClassifier": "temperature",
    "openset_table": "impostors",
    "table_text": "impostors",
}

__all__ = [
    "ConformalClassifier",
    "CoveragePromise",
    "FalseAccepts",
    "OpenSetClassifier",
    "OpenSetPromise",
    "Outcome",
    "PredictionSets",
    "Reliability",
    "TemperatureScaledClassifier",
    "expected_calibration_error",
    "openset_table",
    "reliability",
    "table_text",
]

if TYPE_CHECKING:
    from kway.confidence.conformal import ConformalClassifier, CoveragePromise
    from kway.confidence.impostors import FalseAccepts, Outcome, openset_table, table_text
    from kway.confidence.openset import OpenSetClassifier, OpenSetPromise
    from kway.confidence.prediction_sets import PredictionSets
    from kway.confidence.temperature import TemperatureScaledClassifier

__getattr__, __dir__ = lazy_names(__name__, _HOME)
