"""Neighbours: the labels of near rows vote.

classifier.py  NeighborsClassifier: metric x index x vote      votes.py     who counts how much, ties, top-k
centroid.py    CentroidClassifier: one mean a class             promise.py   probes tuned to an agreement of votes
exemplar.py    ExemplarClassifier: one linear SVM a row         transfer.py  any payload in place of a label
"""

from kway.neighbors.centroid import CentroidClassifier
from kway.neighbors.classifier import Explanation, NeighborsClassifier
from kway.neighbors.exemplar import ExemplarClassifier
from kway.neighbors.promise import Promise, Target
from kway.neighbors.transfer import Transferred, transfer
from kway.neighbors.votes import TIES, VOTES

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
