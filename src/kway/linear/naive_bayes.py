"""NaiveBayesClassifier: complement naive Bayes (Rennie et al. 2003), a linear classifier learned in one pass.

    N_cj = smoothing + sum of column j over the rows of every class but c       (K, d)
    w_c  = -log(N_c / sum_j N_cj),   f = W x

A column counts for a class if it is rare in all other classes. The other classes together have many rows even if a
class has few, so its weights do not depend on a few texts. W is centered over the classes, which changes no prediction;
two classes keep w_1 - w_0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from kway import validation
from kway.base.classifier import on_own_threads
from kway.labels import Labels, encode, joined, refuse_one_class
from kway.linear.classifier import LinearClassifier
from kway.parameters import above, check_parameters
from kway.rows.blocks import labeled_blocks
from kway.validation import Rows


class NaiveBayesClassifier(LinearClassifier):
    """Complement naive Bayes [1]_ on counts or tf-idf values; negative values are not counted.

    Parameters
    ----------
    smoothing : float, default=1.0
        Added to the count of every column. Larger values reduce the weight of rare columns.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    coef_ : ndarray of shape (n_scores, n_features)
        Weights; one row per class, or one row for two classes.
    intercept_ : ndarray of shape (n_scores,)
        Zeros.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    Each class is learned from the rows of all others, so there is no `partial_fit`. `fit_blocks` takes blocks of rows.

    References
    ----------
    .. [1] J. Rennie, L. Shih, J. Teevan and D. Karger (2003), Tackling the poor assumptions of naive Bayes text
       classifiers. ICML.

    Examples
    --------
    >>> NaiveBayesClassifier().fit([[3, 0], [2, 1], [0, 4], [1, 3]], ["a", "a", "b", "b"]).predict([[5, 1], [0, 1]])
    array(['a', 'b'], dtype='<U1')
    """

    def __init__(self, smoothing: float = 1.0, n_jobs: int | None = None) -> None:
        super().__init__("softmax", n_jobs=n_jobs)
        self.smoothing = smoothing

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # the rows of the checks are not counts
        return tags

    def _check_parameters(self) -> None:
        check_parameters(self, smoothing=above(0))

    def _check_partial_fit(self) -> None:
        raise AttributeError(
            f"{type(self).__name__} counts all rows in one pass and has no partial_fit; use fit_blocks"
        )

    @on_own_threads
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> NaiveBayesClassifier:
        """Sum the columns over the rows of each class.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Counts or tf-idf values.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        NaiveBayesClassifier
            The fitted classifier.
        """
        from kway.planning import costs  # no prediction needs the plan

        self._check_parameters()
        self._forget()
        X, labels = validation.rows_and_labels(self, X, y)
        refuse_one_class(labels, type(self).__name__)
        costs.check_fit(type(self).__name__, costs.centroids, costs.size_of(X, labels.n_classes))
        return self._set_weights(
            labels.classes, _complements(X, labels, validation.weights(sample_weight, X), self.smoothing), X
        )

    @on_own_threads
    def fit_blocks(self, blocks: Iterable[tuple[Any, Any]]) -> NaiveBayesClassifier:
        """Sum the columns over the rows of each class, block by block.

        Parameters
        ----------
        blocks : iterable of (X, y)
            Rows, dense or sparse, with their labels.

        Returns
        -------
        NaiveBayesClassifier
            The fitted classifier.
        """
        self._check_parameters()
        self._forget()
        own: dict[Any, NDArray[np.float64]] = {}  # (d,) per class
        names, X = list[NDArray](), None
        for rows, y in labeled_blocks(blocks):
            X, labels = validation.rows_and_labels(
                self, rows, y, reset=X is None, squared=True
            )  # their sums do not overflow
            sums = _class_sums(X, labels, np.ones(X.shape[0]))
            for name, label, more in zip(labels.classes, labels.classes.tolist(), sums):
                if label not in own:
                    names.append(np.asarray(name)[None])
                own[label] = own.get(label, 0.0) + more
        labels_seen = encode(joined(names))
        refuse_one_class(labels_seen, type(self).__name__)
        sums = np.stack(list(own.values()))[np.argsort(labels_seen.codes)]
        return self._set_weights(labels_seen.classes, _others(sums, self.smoothing), X)

    def _set_weights(self, classes: NDArray, counts: NDArray[np.float64], rows: Any) -> NaiveBayesClassifier:
        """Set the weights from counts N (K, d), in the float type of the rows."""
        W = _negative_logs(counts)
        W = W[1:] - W[:1] if len(classes) == 2 else W - W.mean(axis=0)
        self.classes_ = classes
        self.coef_ = np.ascontiguousarray(W, rows.dtype)
        self.intercept_ = np.zeros(len(W), rows.dtype)
        self.n_iter_, self.history_, self.objective_, self.solver_ = 1, [], 0.0, "counts"  # nothing is minimized
        return self


def _negative_logs(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return -log of each column's share of its row, (K, d).

    The largest share may be close to 1, where the difference of two logarithms is only rounding. It is computed from
    the sum of the other shares instead.
    """
    W = np.log(counts.sum(axis=1, keepdims=True)) - np.log(counts)
    largest = counts.argmax(axis=1)[:, None]
    top, others = np.take_along_axis(counts, largest, axis=1), counts.copy()
    np.put_along_axis(others, largest, 0.0, axis=1)
    np.put_along_axis(W, largest, np.log1p(others.sum(axis=1, keepdims=True) / top), axis=1)
    return W


def _complements(X: Rows, labels: Labels, weight: NDArray | None, smoothing: float) -> NDArray[np.float64]:
    """Return N (K, d), divided by a power of two if sums would overflow float64; that changes no weight."""
    n, d = X.shape
    w = np.ones(n) if weight is None else np.asarray(weight, np.float64)
    sizes = [float(X.max()) if n * d else 0.0, float(w.max(initial=1.0)), float(n), float(d)]
    bits = max(np.log2(np.maximum(sizes, 1.0)).sum(), np.log2(smoothing) + np.log2(d))
    shrink = 2.0 ** -max(0.0, np.ceil(bits) - 1020)
    return _others(_class_sums(X, labels, w * shrink), smoothing * shrink)


def _others(own: NDArray[np.float64], smoothing: float) -> NDArray[np.float64]:
    """Return N (K, d) from the sums of each class."""
    return np.maximum(own.sum(axis=0) - own + smoothing, np.finfo(np.float64).smallest_subnormal)


def _class_sums(X: Rows, labels: Labels, weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the sums of the positive values of each column over the rows of each class, (K, d)."""
    n = X.shape[0]
    member = sp.csr_matrix((weight, (labels.codes, np.arange(n))), shape=(labels.n_classes, n))
    sums = member @ (X.maximum(0) if sp.issparse(X) else np.maximum(X, 0))
    return np.asarray(sums.toarray() if sp.issparse(sums) else sums, np.float64)
