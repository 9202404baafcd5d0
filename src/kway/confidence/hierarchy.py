"""Prediction sets of a hierarchy of labels: the smallest node of the tree that contains the label, with a guarantee.

Labels are paths such as `animal/dog/beagle`. The subtree of the node `animal/dog` is the class of that name, if there
is one, and all classes below it. The root contains every class. A set is a node on the path of the predicted class,
so it climbs to a parent if the row is in doubt:

    v_0, ..., v_L   the predicted class, its parent, ..., the root         P_j   total probability of the subtree of v_j
    set             the first v_j with P_j > q; the root if there is none
    s_i             P_(j-1), where v_j is the first node with the true label of held-out row i; 0 if that is v_0
    q               the ceil((m + 1) coverage)-th smallest of the m scores s_i; infinite if m is too small for that

The set contains the label if and only if its score is at most q, and the sets grow with q. So they are nested conformal
sets [1]_, and P(label in set) >= coverage for rows that are exchangeable with the held-out rows. Climbing from the
prediction until a calibrated threshold is the hierarchical example of [2]_.

References
----------
.. [1] C. Gupta, A. Kuchibhotla and A. Ramdas (2022), Nested conformal prediction and quantile out-of-bag ensemble
   methods. Pattern Recognition.
.. [2] A. Angelopoulos, S. Bates, A. Fisch, L. Lei and T. Schuster (2024), Conformal risk control. ICLR.
"""

from __future__ import annotations

import warnings
from dataclasses import asdict
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.base.classifier import on_own_threads
from kway.base.wrappers import DelegatedAnswers
from kway.confidence import splits
from kway.confidence.conformal import (
    CoverageGuarantee,
    PredictionSets,
    check_probabilities,
    collect_sets,
    conformal_quantile,
    rank_classes,
)
from kway.confidence.splits import ConfidenceWrapper
from kway.errors import InputError
from kway.parameters import between, check_parameters
from kway.rows.blocks import count_rows
from kway.tables.sources.labels import path_levels


class LabelTree:
    """The tree of labels that are paths: its nodes, and the chain of nodes from each class to the root.

    >>> tree = LabelTree(np.array(["animal/cat", "animal/dog", "plant"]), "/")
    >>> tree.nodes.tolist()
    ['/', 'animal', 'animal/cat', 'animal/dog', 'plant']
    >>> tree.nodes[tree.chains].tolist()
    [['animal/cat', 'animal', '/'], ['animal/dog', 'animal', '/'], ['plant', '/', '/']]
    """

    def __init__(self, classes: NDArray, sep: str) -> None:
        paths = [path_levels(label, sep) for label in classes.tolist()]
        names = sorted({sep.join(path[:depth]) for path in paths for depth in range(1, len(path) + 1)})
        number = {name: 1 + i for i, name in enumerate(names)}
        self.nodes = np.array([sep, *names])  # the root is written as the separator
        deepest = max(map(len, paths))
        self.chains = np.zeros((len(paths), deepest + 1), np.int64)  # (K, L + 1), ends with the root, 0
        for row, path in zip(self.chains, paths):
            row[: len(path)] = [number[sep.join(path[:depth])] for depth in range(len(path), 0, -1)]

    @cached_property
    def members(self) -> sp.csr_matrix:
        """Matrix (K, m) of the classes in the subtree of each node."""
        rows, nodes = np.repeat(np.arange(len(self.chains)), self.chains.shape[1]), self.chains.ravel()
        found = sp.csr_matrix((np.ones(len(rows)), (rows, nodes)), (len(self.chains), len(self.nodes)))
        found.data[:] = 1.0  # the root occurs several times in a short chain
        return found


class Climb(NamedTuple):
    """The nodes (n, L + 1) from the predicted class of each row to the root, and the probability of each subtree."""

    nodes: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def stops(self, threshold: float) -> NDArray[np.int64]:
        """Return the column (n,) of the first node with a probability above the threshold, else that of the root."""
        above = self.probabilities > threshold
        above[:, -1] = True
        return above.argmax(axis=1)


class HierarchicalConformalClassifier(DelegatedAnswers, ConfidenceWrapper):
    """Prediction sets that are nodes of a tree of labels, such as `animal/dog`, with a coverage guarantee.

    `predict`, `predict_proba` and `predict_topk` are those of the estimator. `predict_node` returns the smallest node
    on the path of the predicted class that is probable enough, and `predict_set` the classes below that node.

    Parameters
    ----------
    estimator : classifier, default=None
        Any classifier with `predict_proba`; None means `SoftmaxClassifier()`.
    sep : str, default="/"
        Separator of the levels of a label. The root is written as the separator.
    coverage : float, default=0.9
        Guaranteed probability that the subtree of the node contains the correct label, between 0 and 1.
    cv : float, splitter, list of one pair or "prefit", default=0.2
        Rows to hold out, as for `ConformalClassifier`.
    random_state : int, RandomState or None, default=None
        Seed of the held-out rows; None means 0.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    threshold_ : float
        The threshold q; the probability of the node of a row is above it.
    tree_ : LabelTree
        The nodes, and the chain of nodes from each class to the root.
    guarantee_ : CoverageGuarantee
        The guarantee; `str()` puts it into words, and states whether too few rows were held out.

    References
    ----------
    Gupta, Kuchibhotla and Ramdas (2022), "Nested conformal prediction and quantile out-of-bag ensemble methods".
    Angelopoulos, Bates, Fisch, Lei and Schuster (2024), "Conformal risk control".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> labels = np.array(["early/setosa", "late/versicolor", "late/virginica"])[y]
    >>> model = HierarchicalConformalClassifier(coverage=0.9).fit(X[:, :2], labels)
    >>> model.predict_node(X[[0, 70], :2]).tolist()
    ['early/setosa', 'late']
    """

    def __init__(
        self,
        estimator: Any = None,
        sep: str = "/",
        coverage: float = 0.9,
        cv: Any = 0.2,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.sep = sep
        self.coverage = coverage
        self.cv = cv
        self.random_state = random_state

    @on_own_threads
    def fit(self, X: Any, y: Any, **params: Any) -> HierarchicalConformalClassifier:
        """Fit the estimator on a part of the rows, and compute the threshold on the others.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever the estimator accepts
            Training rows.
        y : array-like of shape (n_samples,)
            Their labels.
        **params : object
            `sample_weight` for the fit of the estimator, or whatever scikit-learn's metadata routing passes on to it.
            The held-out rows are unweighted.

        Returns
        -------
        self : HierarchicalConformalClassifier
            The fitted model.
        """
        self._check_parameters()
        self._forget()
        held = self._fit_and_hold_out(self._check_rows(X, y, params), self._rng())
        self.tree_ = LabelTree(self.classes_, self.sep)
        scores = self._label_scores(held.X, held.labels.codes) if len(held.labels.codes) else np.empty(0)
        self.threshold_ = conformal_quantile(scores, self.coverage)
        n, width = len(scores), len(self.classes_)
        short = width if np.isinf(self.threshold_) else 0
        self.guarantee_ = CoverageGuarantee(float(self.coverage), "climb", False, n, short, width)
        return self

    def _check_parameters(self) -> None:
        splits.check_cv(self.cv, folds=False)
        check_parameters(self, coverage=between(0, 1))
        if not isinstance(self.sep, str) or not self.sep:
            raise InputError(f"sep must be text such as '/', got {self.sep!r:.60}")
        check_probabilities(self._unfitted())

    def _label_scores(self, X: Any, codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the probability (m,) of the node below the first one with the true label; 0 if there is none."""
        climb = self.climb(X)
        own = self.tree_.chains[codes]  # (m, L + 1)
        first = np.array([np.isin(nodes, mine).argmax() for nodes, mine in zip(climb.nodes, own)], np.int64)
        below = climb.probabilities[np.arange(len(codes)), np.maximum(first - 1, 0)]
        return np.where(first == 0, 0.0, below)

    @on_own_threads
    def climb(self, X: Any) -> Climb:
        """Return the nodes from the predicted class of each row to the root, with their probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever the estimator accepts
            Rows.

        Returns
        -------
        Climb
            Numbers of nodes (n_samples, n_levels + 1), and the probabilities of their subtrees.
        """
        X = self._rows(X)
        n, width = count_rows(X), self.tree_.chains.shape[1]
        nodes, p = np.empty((n, width), np.int64), np.empty((n, width))
        done = 0
        for block in splits.cut_blocks(X, n, len(self.classes_) + len(self.tree_.nodes)):
            rows = slice(done, done + count_rows(block))
            nodes[rows] = self.tree_.chains[rank_classes(self.estimator_, block, 1).codes[:, 0]]
            totals = np.asarray(self.estimator_.predict_proba(block), np.float64) @ self.tree_.members
            p[rows] = np.take_along_axis(totals, nodes[rows], axis=1)
            done = rows.stop
        return Climb(nodes, np.maximum.accumulate(p, axis=1))  # sums of parents may be smaller by rounding

    def _stops(self, X: Any) -> NDArray[np.int64]:
        """Return the number (n,) of the node of each row."""
        if self.guarantee_.vague:
            warnings.warn(f"every set is the root: {self.guarantee_}", UserWarning, stacklevel=3)
        climb = self.climb(X)
        return climb.nodes[np.arange(len(climb.nodes)), climb.stops(self.threshold_)]

    def predict_node(self, X: Any) -> NDArray:
        """Return the node of each row whose subtree contains the correct label with the guaranteed probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever the estimator accepts
            Rows.

        Returns
        -------
        ndarray of shape (n_samples,)
            Paths, as text; the root, which contains every label, is written as the separator.
        """
        return self.tree_.nodes[self._stops(X)]

    def predict_set(self, X: Any) -> PredictionSets:
        """Return the classes below the node of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever the estimator accepts
            Rows.

        Returns
        -------
        sets : PredictionSets
            One set per row.
        """
        stops = self._stops(X)
        below = self.tree_.members.tocsc()[:, stops]
        row = np.repeat(np.arange(len(stops)), np.diff(below.indptr))
        return collect_sets([row], [below.indices.astype(np.int64)], len(stops), self.classes_)

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {"guarantee": asdict(self.guarantee_), "threshold": self.threshold_}, {}

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.guarantee_ = CoverageGuarantee(**facts["guarantee"])
        self.threshold_ = float(facts["threshold"])
        self.tree_ = LabelTree(self.classes_, self.sep)
