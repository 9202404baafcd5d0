"""NaiveBayesClassifier: complement naive Bayes (Rennie et al. 2003), a linear classifier learned in one pass.

    N_cj = smoothing + sum of column j over the rows of every class but c       (K, d)
    w_c  = -log(N_c / sum_j N_cj),   f = W x

A column speaks for a class as far as it is rare in all others. The rows of all other classes are many where those of
one are few, so weights are steady where a class has few, long texts: there it is as good as machines that take a
hundred times as long. W is centred over the classes, which changes no answer; two classes keep w_1 - w_0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if

from kway.base.parameters import THREADS, above, check_parameters
from kway.errors import InputError
from kway.linear.classifier import LinearClassifier
from kway.linear.problem import WeightedRows
from kway.planning import linear_ways
from kway.planning.size import Size
from kway.planning.way import Formula


def _learns_in_pieces(model: Any) -> bool:
    raise AttributeError(f"{type(model).__name__} learns from all rows in one pass, so it has no partial_fit; use fit")


class NaiveBayesClassifier(LinearClassifier):
    """Complement naive Bayes on counts or tf-idf, which are not negative.

    Parameters
    ----------
    smoothing : added to the count of every column, above 0; more makes rare columns say less.
    class_weight : None, "balanced" or a dict {class: weight}.
    n_jobs : threads; None uses every core.

    Attributes: `classes_`, `coef_` (R, d), `intercept_` (R,), which is 0.

    >>> NaiveBayesClassifier().fit([[3, 0], [2, 1], [0, 4], [1, 3]], ["a", "a", "b", "b"]).predict([[5, 1], [0, 1]])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(self, smoothing: float = 1.0, class_weight: Any = None, n_jobs: int | None = None) -> None:
        super().__init__("softmax", class_weight=class_weight, n_jobs=n_jobs)
        self.smoothing = smoothing

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.classifier_tags.poor_score = True  # the checks' rows are clouds, whose columns are no counts
        return tags

    def _check_parameters(self) -> None:
        check_parameters(self, smoothing=above(0), n_jobs=THREADS)

    def _way(self, size: Size, hard: bool) -> Formula:
        """Sums a class, as means are."""
        return linear_ways.centroids

    def _learn(self, given: WeightedRows, last: NDArray | None) -> None:
        X, labels, _, _ = given
        values = X.data if sp.issparse(X) else X
        if values.size and values.min() < 0:
            raise InputError(
                f"Negative values in data passed to {type(self).__name__}, which counts what columns hold; got "
                f"{values.min():g}; use SoftmaxClassifier, or columns that are not negative"
            )
        own = _class_sums(given)  # (K, d)
        others = own.sum(axis=0) - own + self.smoothing
        W = -np.log(others / others.sum(axis=1, keepdims=True))
        W = W[1:] - W[:1] if labels.n_classes == 2 else W - W.mean(axis=0)
        self.coef_ = np.ascontiguousarray(W, X.dtype)
        self.intercept_ = np.zeros(len(W), X.dtype)
        self.n_iter_, self.history_, self.objective_, self.solver_ = 1, [], 0.0, "counts"  # nothing is minimised

    @available_if(_learns_in_pieces)
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> NaiveBayesClassifier:
        """There is none: the rows are counted in one pass."""
        raise NotImplementedError


def _class_sums(given: WeightedRows) -> NDArray[np.float64]:
    """Weighted sums of the columns over the rows of each class, (K, d)."""
    X, labels, weight, _ = given
    n, w = X.shape[0], np.ones(X.shape[0]) if weight is None else np.asarray(weight, np.float64)
    if labels.soft is not None:
        return np.asarray((X.T @ (labels.soft * w[:, None])).T, np.float64)
    member = sp.csr_matrix((w, (labels.codes, np.arange(n))), shape=(labels.n_classes, n))
    sums = member @ X
    return np.asarray(sums.toarray() if sp.issparse(sums) else sums, np.float64)
