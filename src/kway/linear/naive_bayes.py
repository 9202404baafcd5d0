"""NaiveBayesClassifier: complement naive Bayes (Rennie et al. 2003), a linear classifier learned in one pass.

    N_cj = smoothing + sum of column j over the rows of every class but c       (K, d)
    w_c  = -log(N_c / sum_j N_cj),   f = W x

A column speaks for a class as far as it is rare in all others. The rows of all other classes are many where those of
one are few, so weights are steady where a class has few texts. It takes one pass; whether it is any good on some texts
is for the folds to say. W is centred over the classes, which changes no answer; two classes keep w_1 - w_0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.metaestimators import available_if

from kway import validation
from kway.base.classifier import on_own_threads
from kway.labels import Labels, encode, joined, refuse_one_class
from kway.linear.classifier import LinearClassifier
from kway.parameters import above, check_parameters
from kway.rows.blocks import labeled_blocks
from kway.validation import Rows


def _learns_in_pieces(model: Any) -> bool:
    raise AttributeError(
        f"{type(model).__name__} learns from all rows in one pass, so it has no partial_fit; use fit, or fit_blocks"
    )


class NaiveBayesClassifier(LinearClassifier):
    """Complement naive Bayes on counts or tf-idf; what a column holds below 0 is not counted.

    Parameters
    ----------
    smoothing : added to the count of every column, above 0; more makes rare columns say less.
    n_jobs : threads; None uses every core.

    Attributes: `classes_`, `coef_` (R, d), `intercept_` (R,), which is 0.

    >>> NaiveBayesClassifier().fit([[3, 0], [2, 1], [0, 4], [1, 3]], ["a", "a", "b", "b"]).predict([[5, 1], [0, 1]])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(self, smoothing: float = 1.0, n_jobs: int | None = None) -> None:
        super().__init__("softmax", n_jobs=n_jobs)
        self.smoothing = smoothing

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # the checks' rows are clouds, whose columns are no counts
        return tags

    def _check_parameters(self) -> None:
        check_parameters(self, smoothing=above(0))

    @on_own_threads
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> NaiveBayesClassifier:
        """Count what the columns of X (n, d) hold in the rows of each class."""
        from kway.planning import costs, guard  # no prediction needs the plan

        self._check_parameters()
        self._forget()
        X, labels = validation.rows_and_labels(self, X, y)
        refuse_one_class(labels, type(self).__name__)
        guard.check_fit(type(self).__name__, costs.centroids, guard.size_of(X, labels.n_classes))
        return self._weigh(
            labels.classes, _complements(X, labels, validation.weights(sample_weight, X), self.smoothing), X
        )

    @on_own_threads
    def fit_blocks(self, blocks: Iterable[tuple[Any, Any]]) -> NaiveBayesClassifier:
        """Count what the columns hold in blocks (X, y), dense or sparse, such as a generator's."""
        self._check_parameters()
        self._forget()
        own: dict[Any, NDArray[np.float64]] = {}  # (d,) of each class
        names, X = list[NDArray](), None
        for rows, y in labeled_blocks(blocks):
            X, labels = validation.rows_and_labels(self, rows, y, reset=X is None, squared=True)  # sums of these fit
            sums = _class_sums(X, labels, np.ones(X.shape[0]))
            for name, label, more in zip(labels.classes, labels.classes.tolist(), sums):
                if label not in own:
                    names.append(np.asarray(name)[None])
                own[label] = own.get(label, 0.0) + more
        found = encode(joined(names))
        refuse_one_class(found, type(self).__name__)
        sums = np.stack(list(own.values()))[np.argsort(found.codes)]
        return self._weigh(found.classes, _others(sums, self.smoothing), X)

    def _weigh(self, classes: NDArray, counts: NDArray[np.float64], like: Any) -> NaiveBayesClassifier:
        """The weights by counts N (K, d), in the float type of the rows."""
        W = _surprises(counts)
        W = W[1:] - W[:1] if len(classes) == 2 else W - W.mean(axis=0)
        self.classes_ = classes
        self.coef_ = np.ascontiguousarray(W, like.dtype)
        self.intercept_ = np.zeros(len(W), like.dtype)
        self.n_iter_, self.history_, self.objective_, self.solver_ = 1, [], 0.0, "counts"  # nothing is minimised
        return self

    @available_if(_learns_in_pieces)
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> NaiveBayesClassifier:
        """There is none: the rows are counted in one pass."""
        raise NotImplementedError


def _surprises(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """-log of each column's share of its row, (K, d); of the largest from the sum of the others.

    A share next to 1 has a logarithm next to 0, which the difference of two logarithms would leave to rounding: a
    constant column of 1e15 multiplies it again.
    """
    W = np.log(counts.sum(axis=1, keepdims=True)) - np.log(counts)
    largest = counts.argmax(axis=1)[:, None]
    top, others = np.take_along_axis(counts, largest, axis=1), counts.copy()
    np.put_along_axis(others, largest, 0.0, axis=1)
    np.put_along_axis(W, largest, np.log1p(others.sum(axis=1, keepdims=True) / top), axis=1)
    return W


def _complements(X: Rows, labels: Labels, weight: NDArray | None, smoothing: float) -> NDArray[np.float64]:
    """N (K, d), all of it divided by one power of two where sums would leave float64: that changes no weight."""
    n, d = X.shape
    w = np.ones(n) if weight is None else np.asarray(weight, np.float64)
    sizes = [float(X.max()) if n * d else 0.0, float(w.max(initial=1.0)), float(n), float(d)]
    bits = max(np.log2(np.maximum(sizes, 1.0)).sum(), np.log2(smoothing) + np.log2(d))
    shrink = 2.0 ** -max(0.0, np.ceil(bits) - 1020)
    return _others(_class_sums(X, labels, w * shrink), smoothing * shrink)


def _others(own: NDArray[np.float64], smoothing: float) -> NDArray[np.float64]:
    """N (K, d) of the sums of each class."""
    return np.maximum(own.sum(axis=0) - own + smoothing, np.finfo(np.float64).smallest_subnormal)


def _class_sums(X: Rows, labels: Labels, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of what is above 0 in each column over the rows of each class, (K, d)."""
    n = X.shape[0]
    member = sp.csr_matrix((weight, (labels.codes, np.arange(n))), shape=(labels.n_classes, n))
    sums = member @ (X.maximum(0) if sp.issparse(X) else np.maximum(X, 0))
    return np.asarray(sums.toarray() if sp.issparse(sums) else sums, np.float64)
