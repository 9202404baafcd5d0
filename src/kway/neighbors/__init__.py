"""Neighbours: the labels of near rows vote.

classifier.py     NeighborsClassifier: metric x index x vote             explanation.py   who decided an answer
  votes.py          who counts how much, ties, the classes voted for     voting.py   the base of those who vote
  training_rows.py  codes and weights kept beside the index              sweep.py    every k and vote from one search
  promise.py        probes tuned to an agreement of votes                trials.py   exact and approximate, side by side
centroid.py       CentroidClassifier: one mean a class                   centroid_on_device.py   on a GPU, of tensors
  clouds.py         rows about their mean: scores, widths, spaces
exemplar.py       ExemplarClassifier: one linear SVM a row               exemplar_svm.py   their training, all together
new_classes.py    classes that come with later rows                      tensors.py   votes of tensors
payload.py        any payload in place of a label                        from_blocks.py   rows in blocks, as codes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "CentroidClassifier": "centroid",
    "ExemplarClassifier": "exemplar",
    "Explanation": "explanation",
    "NeighborsClassifier": "classifier",
    "Promise": "promise",
    "TIES": "votes",
    "Target": "promise",
    "Transferred": "payload",
    "VOTES": "votes",
    "transfer": "payload",
}

__all__ = [
    "TIES",
    "VOTES",
    "CentroidClassifier",
    "ExemplarClassifier",
    "Explanation",
    "NeighborsClassifier",
    "Promise",
    "Target",
    "Transferred",
    "transfer",
]

if TYPE_CHECKING:
    from kway.neighbors.centroid import CentroidClassifier
    from kway.neighbors.classifier import NeighborsClassifier
    from kway.neighbors.exemplar import ExemplarClassifier
    from kway.neighbors.explanation import Explanation
    from kway.neighbors.payload import Transferred, transfer
    from kway.neighbors.promise import Promise, Target
    from kway.neighbors.votes import TIES, VOTES

__getattr__, __dir__ = lazy_names(__name__, _HOME)
