"""Confidence: meta-estimators around any classifier, kway's or scikit-learn's.

temperature.py          TemperatureScaledClassifier: probabilities that mean what they say
  log_scores.py           z whose softmax is the estimator's    best_temperature.py  the T of least log loss
  class_offsets.py        scores of machines, one a class, made comparable
conformal.py            ConformalClassifier: sets that hold the label with a promised chance
  nonconformity.py        how odd a class would be    ranking.py  lists as long as it takes    sets.py  the sets
openset.py              OpenSetClassifier: "unknown", with a promised false-reject rate
  known_scores.py         how known a row looks       impostors.py  how many strangers get in
  openset_comparison.py   openset_table: scores of being known against each other
reliability.py          expected_calibration_error and reliability: how far probabilities are from what happens
wrapper.py, heldout.py  what the three share: an estimator inside, and rows that it did not learn from
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
    "Outcome": "openset_comparison",
    "PredictionSets": "sets",
    "TemperatureScaledClassifier": "temperature",
    "openset_table": "openset_comparison",
    "table_text": "openset_comparison",
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
    from kway.confidence.impostors import FalseAccepts
    from kway.confidence.openset import OpenSetClassifier, OpenSetPromise
    from kway.confidence.openset_comparison import Outcome, openset_table, table_text
    from kway.confidence.sets import PredictionSets
    from kway.confidence.temperature import TemperatureScaledClassifier

__getattr__, __dir__ = lazy_names(__name__, _HOME)
