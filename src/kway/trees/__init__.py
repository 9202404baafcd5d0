"""Trees: boosted trees and extremely randomized trees, learned by scikit-learn and answered by one kernel.

classifier.py   TreesClassifier
learn.py        scikit-learn learns the trees, and their nodes are copied
nodes.py        Trees: the nodes as arrays; scores, and contributions of the columns
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {"TreesClassifier": "classifier"}

__all__ = ["TreesClassifier"]

if TYPE_CHECKING:
    from kway.trees.classifier import TreesClassifier

__getattr__, __dir__ = lazy_names(__name__, _HOME)
