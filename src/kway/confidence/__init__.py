"""Confidence: meta-estimators around any classifier of kway or scikit-learn.

temperature.py      TemperatureScaledClassifier: calibrated probabilities
class_offsets.py    offsets that make the scores of one-vs-all models comparable
conformal.py        ConformalClassifier: prediction sets with a coverage guarantee
costs.py            CostSensitiveClassifier: decisions by expected cost
hierarchy.py        HierarchicalConformalClassifier: sets that are nodes of a tree of labels
multilabel.py       several labels per row: calibrated probabilities and thresholds
openset.py          OpenSetClassifier: the prediction "unknown", with a guaranteed rate of false rejects
blend.py            BlendClassifier: a weighted product of the probabilities of several classifiers
known_scores.py     scores of how much a row is like the training rows
impostors.py        how many unknown rows are accepted
reliability.py      expected_calibration_error and reliability
splits.py           calibration splits, and the base class of the wrappers
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.confidence.reliability import (  # not lazy: also the name of a module
    Reliability,
    expected_calibration_error,
    reliability,
)
from kway.lazy_names import lazy_names

_HOME = {
    "BlendClassifier": "blend",
    "ConformalClassifier": "conformal",
    "CoverageGuarantee": "conformal",
    "FalseAccepts": "impostors",
    "HierarchicalConformalClassifier": "hierarchy",
    "OpenSetClassifier": "openset",
    "OpenSetGuarantee": "openset",
    "PredictionSets": "conformal",
    "TemperatureScaledClassifier": "temperature",
}

__all__ = [
    "BlendClassifier",
    "ConformalClassifier",
    "CoverageGuarantee",
    "FalseAccepts",
    "HierarchicalConformalClassifier",
    "OpenSetClassifier",
    "OpenSetGuarantee",
    "PredictionSets",
    "Reliability",
    "TemperatureScaledClassifier",
    "expected_calibration_error",
    "reliability",
]

if TYPE_CHECKING:
    from kway.confidence.blend import BlendClassifier
    from kway.confidence.conformal import ConformalClassifier, CoverageGuarantee, PredictionSets
    from kway.confidence.hierarchy import HierarchicalConformalClassifier
    from kway.confidence.impostors import FalseAccepts
    from kway.confidence.openset import OpenSetClassifier, OpenSetGuarantee
    from kway.confidence.temperature import TemperatureScaledClassifier

__getattr__, __dir__ = lazy_names(__name__, _HOME)
