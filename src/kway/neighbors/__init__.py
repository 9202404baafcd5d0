"""Neighbors: the labels of near rows vote.

classifier.py      NeighborsClassifier: metric x index x vote
votes.py           what each vote counts, ties, the classes voted for; the base of the classifiers that vote
training_rows.py   codes and weights kept beside the index; classes that come with later rows
tuning.py          every k and every vote from one search
agreement.py       probes of an approximate index tuned until its votes agree with exact search
centroid.py        CentroidClassifier: one mean per class; clouds.py how rows lie about their mean
exemplar.py        ExemplarClassifier: one linear SVM per row; exemplar_svm.py their training
transfer.py        any payload in place of a label
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "Agreement": "agreement",
    "CentroidClassifier": "centroid",
    "ExemplarClassifier": "exemplar",
    "Explanation": "votes",
    "NeighborsClassifier": "classifier",
    "TIES": "votes",
    "Target": "agreement",
    "Transferred": "transfer",
    "VOTES": "votes",
    "transfer": "transfer",
}

__all__ = [
    "TIES",
    "VOTES",
    "Agreement",
    "CentroidClassifier",
    "ExemplarClassifier",
    "Explanation",
    "NeighborsClassifier",
    "Target",
    "Transferred",
    "transfer",
]

if TYPE_CHECKING:
    from kway.neighbors.agreement import Agreement, Target
    from kway.neighbors.centroid import CentroidClassifier
    from kway.neighbors.classifier import NeighborsClassifier
    from kway.neighbors.exemplar import ExemplarClassifier
    from kway.neighbors.transfer import Transferred, transfer
    from kway.neighbors.votes import TIES, VOTES, Explanation

__getattr__, __dir__ = lazy_names(__name__, _HOME)
