"""Neighbors: the labels of near rows vote.

classifier.py            NeighborsClassifier: metric, index and vote
votes.py                 weights of votes, ties, counting; the base class of classifiers that vote
training_rows.py         codes and weights stored next to the index; classes that come with later rows
tuning.py                every k and every vote from one search
agreement.py             probes of an approximate index tuned until its votes agree with exact search
centroid.py              CentroidClassifier: one mean per class
class_distributions.py   Gaussian and von Mises-Fisher distributions of rows about their class mean
exemplar.py              ExemplarClassifier: one linear SVM per row
payloads.py              payloads of neighbors instead of labels
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
    "Transferred": "payloads",
    "VOTES": "votes",
    "transfer": "payloads",
}

if TYPE_CHECKING:  # "as" tells type checkers that the names are public
    from kway.neighbors.agreement import Agreement as Agreement
    from kway.neighbors.agreement import Target as Target
    from kway.neighbors.centroid import CentroidClassifier as CentroidClassifier
    from kway.neighbors.classifier import NeighborsClassifier as NeighborsClassifier
    from kway.neighbors.exemplar import ExemplarClassifier as ExemplarClassifier
    from kway.neighbors.payloads import Transferred as Transferred
    from kway.neighbors.payloads import transfer as transfer
    from kway.neighbors.votes import TIES as TIES
    from kway.neighbors.votes import VOTES as VOTES
    from kway.neighbors.votes import Explanation as Explanation

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOME)
