"""Tensors in, tensors out: the answers of a Classifier to rows that are a torch tensor.

    _tensor(X) -> AskedThere | None    what answers X where it is, and X checked; None: the host answers

A family gives `_tensor` at most. What the host answers to a tensor is brought back to where that is.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray
from sklearn.utils.metaestimators import available_if

from kway.base.classifier import Classifier, states_probabilities
from kway.compute.gpu.device import Device, Tensor, as_tensor, is_tensor, labels_there
from kway.parameters import checked_k
from kway.search.index import TopK


class TensorAnswers(Protocol):
    """What a family answers to tensors X (n, d) where they are."""

    def best(self, X: Tensor, k: int, stated: bool) -> tuple[Tensor, Tensor]:
        """Codes (n, k) of the best classes and their scores, as `Classifier._best` gives them."""

    def scores(self, X: Tensor) -> Tensor:
        """(n, R)."""

    def probabilities(self, X: Tensor) -> Tensor:
        """(n, K)."""


class AskedThere(NamedTuple):
    """Who answers, and the rows (n, d), checked."""

    answers: TensorAnswers
    rows: Tensor


class TensorClassifier(Classifier):
    """A classifier that answers tensors with tensors; labels that are words are no tensor."""

    def _tensor(self, X: Any) -> AskedThere | None:
        """What answers X where it is; None where X is no tensor, or one that the host has to answer."""
        return None

    def predict(self, X: Any) -> Any:
        """Labels (n,); a tensor where X is one and labels are numbers."""
        there = self._tensor(X)
        if there is None:
            return as_given(X, super().predict(X))
        codes, _ = there.answers.best(there.rows, 1, stated=False)
        return labels_there(codes[:, 0], self.classes_)

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row, all of them where there are fewer, and their scores, best first.

        Scores are probabilities where the model has them.
        """
        there = self._tensor(X)
        if there is None:
            return TopK(*(as_given(X, values) for values in super().predict_topk(X, k)))
        codes, scores = there.answers.best(there.rows, checked_k(k, len(self.classes_)), stated=True)
        return TopK(labels_there(codes, self.classes_), scores)

    def decision_function(self, X: Any) -> Any:
        """Scores (n, K); of two classes, the second's less the first's (n,)."""
        there = self._tensor(X)
        if there is None:
            return as_given(X, super().decision_function(X))
        return self._two_in_one(there.answers.scores(there.rows))

    @available_if(states_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Probabilities (n, K)."""
        there = self._tensor(X)
        if there is None:
            return as_given(X, super().predict_proba(X))
        return there.answers.probabilities(there.rows)


def as_given(X: Any, answer: NDArray) -> Any:
    """An answer as a tensor where X is, if X is one and the answer is numbers; else as it is."""
    return as_tensor(Device(str(X.device)), answer) if is_tensor(X) else answer
