"""Trees: boosted trees and extremely randomized trees. scikit-learn learns them, one kernel computes all predictions.

classifier.py   TreesClassifier
learn.py        learns trees with scikit-learn and copies their nodes
nodes.py        Trees: the nodes as arrays, scores of rows, and contributions of the columns
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {"TreesClassifier": "classifier"}

if TYPE_CHECKING:  # "as" tells type checkers that the names are public
    from kway.trees.classifier import TreesClassifier as TreesClassifier

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOME)
