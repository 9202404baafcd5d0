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

from kway.confidence.reliability import Reliability as Reliability
from kway.confidence.reliability import expected_calibration_error as expected_calibration_error
from kway.confidence.reliability import reliability as reliability  # not lazy: also the name of a module
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

if TYPE_CHECKING:  # "as" tells type checkers that the names are public
    from kway.confidence.blend import BlendClassifier as BlendClassifier
    from kway.confidence.conformal import ConformalClassifier as ConformalClassifier
    from kway.confidence.conformal import CoverageGuarantee as CoverageGuarantee
    from kway.confidence.conformal import PredictionSets as PredictionSets
    from kway.confidence.hierarchy import HierarchicalConformalClassifier as HierarchicalConformalClassifier
    from kway.confidence.impostors import FalseAccepts as FalseAccepts
    from kway.confidence.openset import OpenSetClassifier as OpenSetClassifier
    from kway.confidence.openset import OpenSetGuarantee as OpenSetGuarantee
    from kway.confidence.temperature import TemperatureScaledClassifier as TemperatureScaledClassifier

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOME)
__all__ += ["Reliability", "expected_calibration_error", "reliability"]
