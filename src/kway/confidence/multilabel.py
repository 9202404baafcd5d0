"""Several labels per row: a calibrated probability of every label, and a threshold above which it is predicted.

    kind "linear"      z_c = w_c x + b_c, logistic regression of each label against the rest, all labels in one fit
    kind "neighbors"   z_c = logit of the share of the k nearest rows with label c. The base rate r_c is added as one
                       pseudo-neighbor, so that no share is 0 or 1.
    probability        p_c = sigmoid(slope z_c + base logit(r_c) + shift), r_c the share of training rows with label c
    prediction         { c : p_c >= t_c }

`slope`, `base` and `shift` are the same for all labels and minimize the log loss of held-out rows (`calibrate`). The
thresholds t_c maximize the F1 of held-out rows (`choose_thresholds`). One threshold for all labels maximizes the micro
F1: calibrated probabilities of different labels are comparable, so the best decisions of a total F1 use the same
threshold [1]_. A threshold per label maximizes the macro F1.

References
----------
.. [1] Z. Lipton, C. Elkan and B. Narayanaswamy (2014), Optimal thresholding of classifiers to maximize F1 measure.
   ECML PKDD.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway import validation
from kway.base.class_rows import best_of_table
from kway.base.classifier import Classifier, on_own_threads
from kway.base.wrappers import pack_inside, unpack_inside
from kway.errors import InputError
from kway.linear.losses import LOSSES, Targets
from kway.linear.objective import Objective
from kway.linear.path import RidgePath
from kway.linear.penalties import Penalty
from kway.linear.solvers.base import Control
from kway.neighbors import NeighborsClassifier
from kway.parameters import check_parameters, one_of
from kway.probabilities import sigmoid
from kway.search.results import TopK
from kway.tables.sources.labels import label_sets, split_set

_INNER = "inner."  # prefix of the arrays of the neighbors in a model file


class MultilabelClassifier(Classifier):
    """Predict a set of labels for each row.

    `fit` learns one model per label, or the nearest neighbors of all labels. Its probabilities are uncalibrated, and
    its thresholds 0.5, until `set_decisions` is called with the results of `calibrate` and `choose_thresholds`.

    Parameters
    ----------
    kind : {"linear", "neighbors"}, default="linear"
        One logistic model per label, or the votes of the nearest neighbors.
    sep : str, default=";"
        Separator between the labels of a row in `y`, which is text as `label_sets` writes it.
    alpha : float, default=1e-3
        Strength of the L2 penalty of a linear model.
    n_neighbors : int, default=5
        Number of neighbors that vote.
    metric : {"euclidean", "cosine"}, default="euclidean"
        Distance between rows.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        The labels, sorted.
    rates_ : ndarray of shape (n_labels,)
        Share of the training rows that have each label.
    calibration_ : ndarray of shape (3,)
        Slope, base and shift of the probabilities.
    thresholds_ : ndarray of shape (n_labels,)
        A label is predicted if its probability is at least its threshold.
    weights_, biases_ : ndarray of shape (n_labels, n_features) and (n_labels,)
        The linear models.
    neighbors_ : NeighborsClassifier
        The index of the training rows.
    label_rows_ : csr_matrix of shape (n_samples, n_labels)
        The labels of the training rows.
    """

    def __init__(
        self,
        kind: str = "linear",
        sep: str = ";",
        alpha: float = 1e-3,
        n_neighbors: int = 5,
        metric: str = "euclidean",
        n_jobs: int | None = None,
    ) -> None:
        self.kind = kind
        self.sep = sep
        self.alpha = alpha
        self.n_neighbors = n_neighbors
        self.metric = metric
        self.n_jobs = n_jobs

    def _check_parameters(self) -> None:
        check_parameters(self, kind=one_of("linear", "neighbors"))

    @property
    def label_separator(self) -> str:
        """The separator between the labels of a row; only models that predict several labels have it."""
        return self.sep

    @on_own_threads
    def fit(self, X: Any, y: Any) -> MultilabelClassifier:
        """Fit all labels. Probabilities are not calibrated before `set_decisions`."""
        self._check_parameters()
        self._forget()
        y = np.asarray(y)
        self.classes_ = known_labels(y, self.sep)
        Y = label_matrix(y, self.classes_, self.sep)
        if self.kind == "linear":
            path = LinearPath(X, Y)
            self.weights_, self.biases_ = path.fit(self.alpha)
        else:
            codes = np.unique(y, return_inverse=True)[1]
            if len(np.unique(codes)) < 2:
                raise InputError("all rows have the same labels, so there is nothing to learn; pass other rows")
            # fitted on the sets of labels, but only its neighbors are used
            neighbors = NeighborsClassifier(self.n_neighbors, metric=self.metric, n_jobs=self.n_jobs)
            self.neighbors_ = neighbors.fit(X, codes)
            self.label_rows_ = sp.csr_matrix(Y, dtype=np.float64)
        self.rates_ = base_rates(Y)
        self.n_features_in_ = X.shape[1]
        self.set_decisions(np.array([1.0, 0.0, 0.0]), np.full(len(self.classes_), 0.5))
        return self

    def set_decisions(self, calibration: NDArray[np.float64], thresholds: NDArray[np.float64]) -> None:
        """Set slope, base and shift of the probabilities (3,), and the threshold of each label (K,)."""
        self.calibration_, self.thresholds_ = calibration, thresholds

    # ---- predictions

    @on_own_threads
    def logits(self, X: Any) -> NDArray[np.float64]:
        """Return the logits (n, K) of all labels before calibration."""
        if self.kind == "linear":
            return np.asarray(X @ self.weights_.T + self.biases_, np.float64)
        _, ids = self.neighbors_.kneighbors(X)
        return neighbor_logits(ids, self.label_rows_, self.rates_)

    def _rows(self, X: Any) -> Any:
        return validation.rows(self, X, reset=False, blocks=True)

    def _scores(self, rows: Any) -> NDArray[np.float64]:
        return self.logits(rows)

    def _shares(self, rows: Any) -> NDArray[np.float64]:
        """Return the probability of each label (n, K); the labels do not exclude each other."""
        return calibrated(self.logits(rows), self.rates_, self.calibration_)

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        return self._best_of_blocks(rows, lambda block: best_of_table(self._shares(block), k))

    def predict(self, X: Any) -> NDArray:
        """Return the labels of each row as a list, in an array (n,) of objects."""
        return self.labels_of(self.predict_proba(X))

    def labels_of(self, p: NDArray[np.float64]) -> NDArray:
        """Return the labels of each row as a list, in an array (n,) of objects, from probabilities (n, K)."""
        labels = np.empty(len(p), object)
        labels[:] = [self.classes_[row].tolist() for row in p >= self.thresholds_]
        return labels

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of rows whose predicted set of labels is exactly the correct set."""
        pairs = zip(self.predict(X), as_lists(y, self.sep), strict=True)
        correct = [set(predicted) == set(true) for predicted, true in pairs]
        return float(np.average(correct, weights=sample_weight))

    # ---- model files

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        arrays = {"rates": self.rates_, "calibration": self.calibration_, "thresholds": self.thresholds_}
        if self.kind == "linear":
            return {}, {**arrays, "weights": self.weights_, "biases": self.biases_}
        manifest, inner = pack_inside(_INNER, self.neighbors_)
        rows = {"rows.indptr": self.label_rows_.indptr, "rows.indices": self.label_rows_.indices}
        return {"inner": manifest}, {**arrays, **rows, **inner}

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.rates_ = arrays["rates"]
        self.set_decisions(arrays["calibration"], arrays["thresholds"])
        if self.kind == "linear":
            self.weights_, self.biases_ = arrays["weights"], arrays["biases"]
            return
        self.neighbors_ = unpack_inside(_INNER, facts["inner"], arrays)
        indptr, indices = arrays["rows.indptr"], arrays["rows.indices"]
        shape = len(indptr) - 1, len(self.classes_)
        self.label_rows_ = sp.csr_matrix((np.ones(len(indices)), indices, indptr), shape)


def known_labels(y: NDArray, sep: str) -> NDArray:
    """Return all labels that occur in the sets y (n,), sorted."""
    labels = sorted({label for text in np.unique(y).tolist() for label in split_set(text, sep)})
    if not labels:
        raise InputError("no row has a label, so there is nothing to learn; name the column with the labels: target=")
    return np.array(labels)


def label_matrix(y: NDArray, classes: NDArray, sep: str) -> NDArray[np.float64]:
    """Return the indicator matrix (n, K) of 0 and 1; labels that are not in `classes` are left out."""
    column = {label: j for j, label in enumerate(classes.tolist())}
    Y = np.zeros((len(y), len(classes)))
    for i, text in enumerate(y.tolist()):
        Y[i, [column[label] for label in split_set(text, sep) if label in column]] = 1.0
    return Y


def as_lists(y: Any, sep: str) -> list[list[str]]:
    """Return sets of labels, given as texts or lists, as lists."""
    return [split_set(text, sep) for text in label_sets(y, sep).tolist()]


# ---- the two kinds


class LinearPath:
    """Logistic regression of each label against the rest; call `fit` from the largest alpha to the smallest.

    Labels that no row has, or that all rows have, get zero weights and the logit of their base rate as bias.
    """

    def __init__(self, X: Any, Y: NDArray[np.float64], tol: float = 1e-3) -> None:
        counts = Y.sum(axis=0)
        self.rates = base_rates(Y)
        self.shape = (Y.shape[1], X.shape[1])
        self.learned = np.flatnonzero((counts > 0) & (counts < len(Y)))  # the others have no finite optimum
        soft = np.ascontiguousarray(Y[:, self.learned], dtype=X.dtype)
        targets = Targets(np.zeros(len(Y), np.int64), soft)
        objective = Objective(X, targets, len(self.learned), LOSSES["logistic"].columns, Penalty())
        self.path = RidgePath(objective, Control(tol=tol))

    def fit(self, alpha: float) -> tuple[NDArray, NDArray]:
        """Return weights (K, d) and biases (K,)."""
        weights = np.zeros(self.shape, self.path.objective.rows.dtype)
        biases = logit(self.rates).astype(weights.dtype)
        if len(self.learned):
            theta = self.path.fit(alpha).theta
            weights[self.learned], biases[self.learned] = theta[:, :-1], theta[:, -1]
        return weights, biases


def neighbor_logits(ids: NDArray[np.int64], label_rows: Any, rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the logit (n, K) of the share of the neighbors `ids` (n, k) that have each label."""
    n, k = ids.shape
    indptr = np.arange(0, ids.size + 1, k)
    is_neighbor = sp.csr_matrix((np.ones(ids.size), ids.ravel(), indptr), (n, label_rows.shape[0]))
    return logit(((is_neighbor @ label_rows).toarray() + rates) / (k + 1))


# ---- probabilities and thresholds


def base_rates(Y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of rows with each label (K,); half a row is added, so that no share is 0 or 1."""
    return np.asarray((Y.sum(axis=0) + 0.5) / (len(Y) + 1))


def logit(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return log(p / (1 - p))."""
    return np.asarray(np.log(p) - np.log1p(-p))


def calibrated(z: NDArray, rates: NDArray[np.float64], calibration: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probabilities (n, K) of logits z (n, K)."""
    slope, base, shift = calibration
    return sigmoid(slope * z + (base * logit(rates) + shift))


def calibrate(z: NDArray, Y: NDArray, rates: NDArray[np.float64], steps: int = 50) -> NDArray[np.float64]:
    """Return slope, base and shift that minimize the log loss of held-out logits z (n, K), by Newton's method."""
    base = np.broadcast_to(logit(rates), z.shape).ravel()
    features = np.stack((z.ravel(), base, np.ones(z.size)))  # (3, n K)
    y = Y.ravel()
    calibration = np.array([1.0, 0.0, 0.0])
    loss = _mean_log_loss(calibration @ features, y)
    for _ in range(steps):
        p = sigmoid(calibration @ features)
        hessian = (features * (p * (1 - p))) @ features.T / y.size
        hessian += 1e-9 * np.eye(3)  # it is singular if all labels have the same rate
        step = np.linalg.solve(hessian, features @ (p - y) / y.size)
        while (new := _mean_log_loss((calibration - step) @ features, y)) > loss and np.abs(step).max() > 1e-9:
            step = step / 2
        if loss - new <= 1e-10:
            break
        calibration, loss = calibration - step, new
    return calibration


def _mean_log_loss(z: NDArray, y: NDArray) -> float:
    return float(np.mean(np.logaddexp(0, z) - y * z))


def best_threshold(p: NDArray[np.float64], Y: NDArray) -> tuple[float, float]:
    """Return the threshold that maximizes the F1 of {p >= t}, and this F1; 1 and 0 if nothing is positive.

    >>> best_threshold(np.array([0.9, 0.4, 0.3, 0.2]), np.array([1, 1, 0, 0]))
    (0.4, 1.0)
    """
    p, y = p.ravel(), Y.ravel()
    if not y.any():
        return 1.0, 0.0
    order = np.argsort(-p, kind="stable")
    p, hits = p[order], np.cumsum(y[order])
    f1 = 2 * hits / (np.arange(1, len(p) + 1) + y.sum())
    f1[:-1][p[:-1] == p[1:]] = 0  # a threshold predicts all rows of equal probability
    best = int(f1.argmax())
    return float(p[best]), float(f1[best])


def choose_thresholds(p: NDArray[np.float64], Y: NDArray, per_label: bool) -> NDArray[np.float64]:
    """Return the thresholds (K,) that maximize the micro F1, or the F1 of each label, of held-out rows."""
    shared, _ = best_threshold(p, Y)
    if not per_label:
        return np.full(p.shape[1], shared)
    return np.array([best_threshold(p[:, j], Y[:, j])[0] if Y[:, j].any() else shared for j in range(p.shape[1])])
