"""ExemplarClassifier: one linear SVM per training row, against the rows of other classes; the best exemplars vote.

    J_i(w, b) = alpha/2 (||w||^2 + b^2) + positive/2 h(1 - f_i(x_i))^2 + 1/(2 m_i) sum_j h(1 + f_i(x_j))^2
    f_i(x) = w_i . x + b_i,  h(t) = max(0, t),  j over the m_i rows of other classes outside i's fold

Exemplars are trained in blocks by L-BFGS (scipy): one matrix product gives the scores of a block on every row, one more
gives the gradients. Rows are rotated to their principal axes, and each axis is divided by sqrt(variance + alpha), so
that the second moment plus the penalty is the identity matrix.

Rows of other classes in i's own fold are held out. On them, and on the other rows of i's class, which exemplar i was
not trained on, sigmoid(slope_i f_i + offset_i) is fitted (Platt 1999), which makes the scores of exemplars comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.class_rows import best_classes
from kway.base.classifier import on_own_threads
from kway.errors import BudgetError, KindError
from kway.memory import CACHE_BYTES, rows_per_block
from kway.neighbors.votes import Ballot, VotingClassifier, shares_of
from kway.parameters import above, at_least, check_parameters, whole
from kway.probabilities import log_sigmoid
from kway.search.distances import EUCLIDEAN
from kway.search.power_scaling import Unit
from kway.threads import pmap, spans

_MAX_ROWS = 6000  # rows that a fit accepts: the time grows with their square (no benchmark row)
N_FOLDS = 4  # folds: a quarter of the negatives is held out for the calibration (tests of calibrated scores)
_PULL = 0.01  # weight of the prior slope 1; with 1, probabilities of digits are too small by 0.2


class ExemplarClassifier(VotingClassifier):
    """Exemplar-SVM: one linear classifier per training row.

    Every training row is trained to be told from the rows of other classes. The `n_exemplars` exemplars with the
    highest calibrated scores vote. Each exemplar is linear, so the accuracy is close to that of nearest neighbors at
    best. The use of exemplars is that every training row states with a calibrated probability whether a query is of
    its class. The training time grows with the square of the rows; at most 6,000 rows are accepted.

    Parameters
    ----------
    n_exemplars : int, default=5
        Number of exemplars that vote on a query, each with its calibrated probability.
    alpha : float, default=1e-3
        Weight of the penalty, for rows centered and scaled to mean squared length 1.
    positive : float, default=0.1
        Weight of the exemplar itself; all its negatives together have weight 1.
    max_iter : int, default=100
        Maximum number of L-BFGS iterations.
    tol : float, default=1e-3
        Relative decrease of the objective, over ten iterations, below which training ends.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    exemplars_ : ndarray of shape (n_samples, n_features)
        Weights per training row, times the slope of its calibration.
    offsets_ : ndarray of shape (n_samples,)
        Offset of the calibrated score per training row.
    n_iter_ : int
        Largest number of iterations of a block of exemplars.

    References
    ----------
    Malisiewicz, Gupta and Efros, "Ensemble of exemplar-SVMs for object detection and beyond", ICCV 2011.

    Examples
    --------
    >>> model = ExemplarClassifier(n_exemplars=1).fit([[0.0], [1.0], [4.0], [5.0]], ["a", "a", "b", "b"])
    >>> model.predict([[0.4], [4.6]]).tolist()
    ['a', 'b']
    """

    def __init__(
        self,
        n_exemplars: int = 5,
        alpha: float = 1e-3,
        positive: float = 0.1,
        max_iter: int = 100,
        tol: float = 1e-3,
        n_jobs: int | None = None,
    ) -> None:
        self.n_exemplars = n_exemplars
        self.alpha = alpha
        self.positive = positive
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs

    @on_own_threads
    def fit(self, X: Any, y: Any, **params: Any) -> ExemplarClassifier:
        """Train one exemplar per row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Dense training rows.
        y : array-like of shape (n_samples,)
            Labels.
        **params : object
            Not used: sample_weight raises an error, because each row is an exemplar of its own.

        Returns
        -------
        ExemplarClassifier
            The fitted classifier.
        """
        if any(value is not None for value in params.values()):
            raise KindError(
                f"ExemplarClassifier does not accept {', '.join(params)}: each row is an exemplar of its own; omit it, "
                "or use NeighborsClassifier, which counts a row of weight w as w rows"
            )
        check_parameters(
            self,
            n_exemplars=whole(1),
            alpha=above(0),
            positive=above(0),
            max_iter=whole(1),
            tol=at_least(0),
        )
        self._forget()
        X, labels = validation.rows_and_labels(self, X, y, sparse=False)
        if len(X) > _MAX_ROWS:
            raise BudgetError(
                f"ExemplarClassifier trains one SVM per row against all other rows and accepts {_MAX_ROWS:,} rows, "
                f"got {len(X):,}; pass a sample, or use NeighborsClassifier"
            )
        self.classes_ = labels.classes
        self._codes = labels.codes
        self._range = Unit.of(X, EUCLIDEAN, X.dtype == np.float32)
        X = self._range.rows(X)
        self._center = X.mean(axis=0, dtype=np.float64)
        spread = float(np.sqrt(np.square(X - self._center).sum(axis=1).mean()))
        rounding = 1e-12 * float(np.abs(self._center).max())  # all that is left if all rows are the same
        self._unit = spread if spread > rounding else 1.0
        self._train(self._scaled(X))
        return self

    def _scaled(self, X: NDArray) -> NDArray:
        """Return the rows centered and of mean squared length 1."""
        scaled: NDArray = ((X - self._center) / self._unit).astype(X.dtype)
        return scaled

    def _train(self, rows: NDArray) -> None:
        """Train and calibrate all exemplars, in blocks whose scores on all rows stay in the cache."""
        axes = whitening_axes(rows, self.alpha)
        problem = ExemplarProblem.of(rows @ axes.matrix, axes.ridge, self._codes, self.alpha, self.positive)
        blocks = spans(len(rows), rows_per_block(rows.itemsize * len(rows), CACHE_BYTES))
        parts = pmap(lambda block: problem.solve(block, self.max_iter, self.tol), blocks)
        weights, slopes, offsets = (np.concatenate(arrays) for arrays in zip(*(part[:3] for part in parts)))
        self.n_iter_ = max(part.n_iter for part in parts)
        self.exemplars_ = (slopes[:, None] * weights[:, :-1] @ axes.matrix.T).astype(rows.dtype)  # (n, d)
        self.offsets_ = (slopes * weights[:, -1] + offsets).astype(rows.dtype)

    # ---- the best exemplars vote

    def _ballot(self, rows: NDArray) -> Ballot:
        """Return the best exemplars (q, k) of a block of rows; each votes with its probability of "same class"."""
        placed = self._range.queries(rows).rows.astype(self.exemplars_.dtype, copy=False)  # float32 may be too narrow
        k = min(self.n_exemplars, len(self.exemplars_))
        ids, logits = best_classes(self._scaled(placed), self.exemplars_, self.offsets_, k)
        logs = log_sigmoid(logits.astype(np.float64))
        votes = np.exp(logs - logs.max(axis=1, keepdims=True))  # far from all exemplars: proportions, not zeros
        return Ballot(ids, self._codes[ids], shares_of(votes, ids >= 0), -logs)

    def _class_counts(self) -> NDArray:
        return np.bincount(self._codes, minlength=len(self.classes_))

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "exemplars_")
        arrays = {"exemplars": self.exemplars_, "offsets": self.offsets_, "codes": self._codes, "center": self._center}
        facts: dict[str, Any] = {"unit": self._unit, "n_iter": self.n_iter_}
        return facts | ({"power": self._range.exponent} if self._range.exponent else {}), arrays

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self._unit, self.n_iter_ = float(facts["unit"]), int(facts["n_iter"])
        self.exemplars_, self.offsets_ = arrays["exemplars"], arrays["offsets"]
        self._codes, self._center = arrays["codes"], arrays["center"]
        kind = self.exemplars_.dtype
        self._range = Unit.from_exponent(int(facts.get("power", 0)), kind, EUCLIDEAN, narrow=kind == np.float32)


# ---- training


class WhiteningAxes(NamedTuple):
    """Principal axes (d, r), each divided by sqrt(variance + alpha), and the weight (r,) of the penalty per axis."""

    matrix: NDArray
    ridge: NDArray


def whitening_axes(rows: NDArray, alpha: float) -> WhiteningAxes:
    """Return the axes of centered rows (n, d), without those along which rows differ by rounding only."""
    n, d = rows.shape
    if n < d:  # a matrix (d, d) of many columns would not fit
        _, roots, turned = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
        values, axes = roots[::-1] ** 2 / n, turned[::-1].T
    else:
        values, axes = np.linalg.eigh((rows.T @ rows).astype(np.float64) / n)  # ascending
    noise = d * float(np.finfo(rows.dtype).eps) * max(values[-1], 0.0)
    kept = slice(min(int(np.count_nonzero(values <= noise)), len(values) - 1), None)
    sizes = np.maximum(values[kept], 0.0) + alpha
    return WhiteningAxes((axes[:, kept] / np.sqrt(sizes)).astype(rows.dtype), (alpha / sizes).astype(rows.dtype))


class SolvedBlock(NamedTuple):
    """Weights (m, r + 1) of a block of exemplars, slopes and offsets (m,) of their calibration, and iterations."""

    weights: NDArray
    slopes: NDArray[np.float64]
    offsets: NDArray[np.float64]
    n_iter: int


@dataclass(frozen=True)
class ExemplarProblem:
    """What all exemplars share: rows (n, r + 1), the last column ones; the penalty's weights; codes and folds (n,)."""

    rows: NDArray
    ridge: NDArray
    codes: NDArray[np.int64]
    folds: NDArray[np.int64]
    positive: float

    @staticmethod
    def of(rows: NDArray, ridge: NDArray, codes: NDArray[np.int64], alpha: float, positive: float) -> ExemplarProblem:
        """Append the column of the bias to rows (n, r), and draw folds."""
        with_ones = np.column_stack([rows, np.ones(len(rows), rows.dtype)])
        return ExemplarProblem(with_ones, np.append(ridge, ridge.dtype.type(alpha)), codes, folds_of(codes), positive)

    def solve(self, block: slice, max_iter: int, tol: float) -> SolvedBlock:
        """Train and calibrate the exemplars of some rows."""
        own = np.arange(block.start, block.stop)
        shares, start = self._negatives(own), self._start(own).ravel().astype(np.float64)
        unit = 1.0 / self.value_and_gradient(start, own, shares)[0]  # of the objective: scipy's ftol is relative to 1

        def scaled(flat: NDArray) -> tuple[float, NDArray]:
            value, gradient = self.value_and_gradient(flat, own, shares)
            return unit * value, unit * gradient

        options = {"maxiter": max_iter, "ftol": 0.1 * tol, "gtol": 0.0, "maxcor": 5}
        found = minimize(scaled, start, jac=True, method="L-BFGS-B", options=options)
        weights = found.x.reshape(len(own), -1).astype(self.rows.dtype)
        return SolvedBlock(weights, *self._calibrate(weights @ self.rows.T, own), int(found.nit))

    def _start(self, own: NDArray[np.int64]) -> NDArray:
        """Return the least-squares weights (m, r + 1) if every row were a negative: (I + positive x x') w = right."""
        rows = self.rows[own]
        right = self.positive * rows - self.rows.mean(axis=0)
        share = self.positive / (1.0 + self.positive * np.einsum("ij,ij->i", rows, rows))
        return right - (share * np.einsum("ij,ij->i", rows, right))[:, None] * rows

    def _negatives(self, own: NDArray[np.int64]) -> NDArray:
        """Return 1 / m_i (m, n) at the negatives of each exemplar: rows of other classes in other folds."""
        negative = (self.codes[own, None] != self.codes) & (self.folds[own, None] != self.folds)
        return (negative / np.maximum(negative.sum(axis=1, keepdims=True), 1)).astype(self.rows.dtype)

    def value_and_gradient(
        self, flat: NDArray, own: NDArray[np.int64], shares: NDArray
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the sum of the objectives of exemplars `own`, and its gradient, at weights (m (r + 1),)."""
        weights, each = flat.reshape(len(own), -1).astype(self.rows.dtype), np.arange(len(own))
        scores = weights @ self.rows.T  # (m, n)
        miss = np.maximum(0.0, 1.0 - scores[each, own].astype(np.float64))
        over = np.maximum(scores + 1, 0)
        slopes = shares * over  # d loss / d score
        pulled = self.ridge * weights
        value = 0.5 * (self.positive * (miss @ miss) + np.vdot(slopes, over) + np.vdot(pulled, weights))
        slopes[each, own] = -self.positive * miss
        return float(value), (slopes @ self.rows + pulled).ravel().astype(np.float64)

    def _calibrate(self, scores: NDArray, own: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fit P(same class | f) = sigmoid(slope f + offset) per exemplar, on rows near it that it was not trained on.

        Held-out rows have weight 1, other rows of the class 1 / N_FOLDS, so that their ratio is that of the data.
        """
        same = self.codes[own, None] == self.codes
        held = ~same & (self.folds[own, None] == self.folds)
        scores, same = scores.astype(np.float64), same & (np.arange(len(self.codes)) != own[:, None])
        floors = [nearby_score(*rows) for rows in zip(scores, held, same)]
        near = (held | same) & (scores >= np.array(floors)[:, None])
        return fit_sigmoids(scores, near & same, near & held)


def nearby_score(scores: NDArray, held: NDArray[np.bool_], same: NDArray[np.bool_]) -> float:
    """Return the score (of n) from which on rows count in a calibration.

    Half as many held-out rows as weighted rows of the class lie above it, which is where the exemplar votes. Distant
    rows would decide the slope otherwise.
    """
    wanted = max(10, int(np.count_nonzero(same)) // (2 * N_FOLDS))
    others = scores[held]
    return -np.inf if len(others) <= wanted else float(np.partition(others, len(others) - wanted)[-wanted])


def fit_sigmoids(
    scores: NDArray[np.float64], same: NDArray[np.bool_], other: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return slopes and offsets (m,) of the sigmoids of scores (m, n) that separate same (m, n) from other rows.

    Targets are smoothed as in Platt's method, and a weak prior pulls each slope to 1. The m problems are solved as one.
    """
    m = len(scores)
    rows, columns = np.nonzero(same | other)
    f, positive = scores[rows, columns], same[rows, columns]
    weight = np.where(positive, 1.0 / N_FOLDS, 1.0)
    n_same, n_other = same.sum(axis=1) / N_FOLDS, other.sum(axis=1)
    target = np.where(positive, ((n_same + 1) / (n_same + 2))[rows], (1 / (n_other + 2))[rows])

    def value_and_gradient(flat: NDArray) -> tuple[float, NDArray]:
        slopes, offsets = flat[:m], flat[m:]
        logits = slopes[rows] * f + offsets[rows]
        residual = weight * (np.exp(log_sigmoid(logits)) - target)
        losses = -weight * (log_sigmoid(logits) - (1 - target) * logits)
        value = losses.sum() + 0.5 * _PULL * ((slopes - 1) @ (slopes - 1))
        by_slope = np.bincount(rows, residual * f, m) + _PULL * (slopes - 1)
        return float(value), np.concatenate([by_slope, np.bincount(rows, residual, m)])

    start = np.concatenate([np.ones(m), np.zeros(m)])
    bounds = [(1e-3, None)] * m + [(None, None)] * m  # a slope is positive
    found = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return found[:m], found[m:]


def folds_of(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a fold per row (n,), with every class spread over the folds as evenly as possible."""
    folds = np.empty(len(codes), np.int64)
    folds[np.argsort(codes, kind="stable")] = np.arange(len(codes)) % N_FOLDS
    return folds
