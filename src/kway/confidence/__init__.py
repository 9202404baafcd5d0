"""Confidence: meta-estimators around any classifier, kway's or scikit-learn's.

TemperatureScaledClassifier   probabilities that mean what they say            temperature, sharpness, logscores
ConformalClassifier           sets that hold the label with a promised chance  conformal, nonconformity, ranking, sets
OpenSetClassifier             "unknown", with a promised false-reject rate     openset, scores, impostors
openset_table                 scores of being known against each other         table
expected_calibration_error, reliability                                        reliability

Every promise comes from rows that the estimator did not learn from (heldout); wrapper is what the three share.
"""

from kway.confidence.conformal import ConformalClassifier, CoveragePromise
from kway.confidence.impostors import FalseAccepts
from kway.confidence.openset import OpenSetClassifier, OpenSetPromise
from kway.confidence.reliability import Reliability, expected_calibration_error, reliability
from kway.confidence.sets import PredictionSets
from kway.confidence.table import Outcome, openset_table, table_text
from kway.confidence.temperature import TemperatureScaledClassifier

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
