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

_MAX_ROWS = 6000  # rows that a fit accepts, because the time increases with the square of their number
# The tests of calibrated probabilities (tests/neighbors/test_exemplar.py) decide the next two numbers.
N_FOLDS = 4  # a quarter of the negatives of each exemplar is held out for its calibration
_PRIOR_WEIGHT = 0.01  # weight of the prior that a slope is 1; with 1, probabilities on digits are too small by 0.2


class ExemplarClassifier(VotingClassifier):
    """Exemplar-SVM: one linear classifier per training row.

    Each training row gets a linear classifier that separates it from the rows of other classes. The `n_exemplars`
    exemplars with the highest calibrated scores vote. The accuracy is at best close to that of nearest neighbors. The
    advantage of exemplars is that every training row gives a calibrated probability that a query has its class. The
    training time increases with the square of the number of rows; at most 6,000 rows are accepted.

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
        Training of a block ends if an iteration lowers its objective by less than tol / 10, relative to its start.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels.
    exemplars_ : ndarray of shape (n_samples, n_features)
        Weights per training row, in the centered and scaled space, times the slope of its calibration.
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
        rounding = 1e-12 * float(np.abs(self._center).max())  # a smaller spread is the rounding of equal rows
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
        scaled = self._range.queries(rows).rows.astype(self.exemplars_.dtype, copy=False)
        k = min(self.n_exemplars, len(self.exemplars_))
        ids, logits = best_classes(self._scaled(scaled), self.exemplars_, self.offsets_, k)
        logs = log_sigmoid(logits.astype(np.float64))
        votes = np.exp(logs - logs.max(axis=1, keepdims=True))  # relative to the largest, so that not all are zero
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
        _, singular_values, right = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
        values, axes = singular_values[::-1] ** 2 / n, right[::-1].T
    else:
        values, axes = np.linalg.eigh((rows.T @ rows).astype(np.float64) / n)  # ascending
    noise = d * float(np.finfo(rows.dtype).eps) * max(values[-1], 0.0)
    kept = slice(min(int(np.count_nonzero(values <= noise)), len(values) - 1), None)
    sizes = np.maximum(values[kept], 0.0) + alpha
    return WhiteningAxes((axes[:, kept] / np.sqrt(sizes)).astype(rows.dtype), (alpha / sizes).astype(rows.dtype))


class SolvedBlock(NamedTuple):
    """A trained and calibrated block of exemplars."""

    weights: NDArray  # (m, r + 1)
    slopes: NDArray[np.float64]  # (m,) of the calibration
    offsets: NDArray[np.float64]  # (m,) of the calibration
    n_iter: int


@dataclass(frozen=True)
class ExemplarProblem:
    """The data and parameters of all exemplars."""

    rows: NDArray  # (n, r + 1), with ones in the last column
    ridge: NDArray  # (r + 1,) weights of the penalty
    codes: NDArray[np.int64]  # (n,)
    folds: NDArray[np.int64]  # (n,)
    positive: float

    @staticmethod
    def of(rows: NDArray, ridge: NDArray, codes: NDArray[np.int64], alpha: float, positive: float) -> ExemplarProblem:
        """Append the column of the bias to rows (n, r), and draw folds."""
        with_ones = np.column_stack([rows, np.ones(len(rows), rows.dtype)])
        return ExemplarProblem(with_ones, np.append(ridge, ridge.dtype.type(alpha)), codes, folds_of(codes), positive)

    def solve(self, block: slice, max_iter: int, tol: float) -> SolvedBlock:
        """Train and calibrate the exemplars of a block of rows."""
        members = np.arange(block.start, block.stop)
        shares, start = self._negatives(members), self._start(members).ravel().astype(np.float64)
        scale = (
            1.0 / self.value_and_gradient(start, members, shares)[0]
        )  # scipy's ftol is relative to an objective of 1

        def scaled_objective(flat: NDArray) -> tuple[float, NDArray]:
            value, gradient = self.value_and_gradient(flat, members, shares)
            return scale * value, scale * gradient

        options = {"maxiter": max_iter, "ftol": 0.1 * tol, "gtol": 0.0, "maxcor": 5}
        result = minimize(scaled_objective, start, jac=True, method="L-BFGS-B", options=options)
        weights = result.x.reshape(len(members), -1).astype(self.rows.dtype)
        return SolvedBlock(weights, *self._calibrate(weights @ self.rows.T, members), int(result.nit))

    def _start(self, members: NDArray[np.int64]) -> NDArray:
        """Return the least-squares weights (m, r + 1) if every row were a negative: (I + positive x x') w = b."""
        rows = self.rows[members]
        b = self.positive * rows - self.rows.mean(axis=0)
        share = self.positive / (1.0 + self.positive * np.einsum("ij,ij->i", rows, rows))
        return b - (share * np.einsum("ij,ij->i", rows, b))[:, None] * rows

    def _negatives(self, members: NDArray[np.int64]) -> NDArray:
        """Return 1 / m_i (m, n) at the negatives of each exemplar: rows of other classes in other folds."""
        negative = (self.codes[members, None] != self.codes) & (self.folds[members, None] != self.folds)
        return (negative / np.maximum(negative.sum(axis=1, keepdims=True), 1)).astype(self.rows.dtype)

    def value_and_gradient(
        self, flat: NDArray, members: NDArray[np.int64], shares: NDArray
    ) -> tuple[float, NDArray[np.float64]]:
        """Return the sum of the objectives of the exemplars `members`, and its gradient, at weights (m (r + 1),)."""
        weights, numbers = flat.reshape(len(members), -1).astype(self.rows.dtype), np.arange(len(members))
        scores = weights @ self.rows.T  # (m, n)
        positive_loss = np.maximum(0.0, 1.0 - scores[numbers, members].astype(np.float64))
        negative_loss = np.maximum(scores + 1, 0)
        slopes = shares * negative_loss  # d loss / d score
        penalty_gradient = self.ridge * weights
        value = 0.5 * (
            self.positive * (positive_loss @ positive_loss)
            + np.vdot(slopes, negative_loss)
            + np.vdot(penalty_gradient, weights)
        )
        slopes[numbers, members] = -self.positive * positive_loss
        return float(value), (slopes @ self.rows + penalty_gradient).ravel().astype(np.float64)

    def _calibrate(
        self, scores: NDArray, members: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fit P(same class | f) = sigmoid(slope f + offset) per exemplar, on rows near it that it was not trained on.

        Held-out rows have weight 1, other rows of the class 1 / N_FOLDS, so that their ratio is that of the data.
        """
        same = self.codes[members, None] == self.codes
        held_out = ~same & (self.folds[members, None] == self.folds)
        scores, same = scores.astype(np.float64), same & (np.arange(len(self.codes)) != members[:, None])
        thresholds = [nearby_score(*rows) for rows in zip(scores, held_out, same)]
        near = (held_out | same) & (scores >= np.array(thresholds)[:, None])
        return fit_sigmoids(scores, near & same, near & held_out)


def nearby_score(scores: NDArray, held_out: NDArray[np.bool_], same: NDArray[np.bool_]) -> float:
    """Return the smallest of the scores (n,) of the rows that calibrate an exemplar.

    Half as many held-out rows as weighted rows of the class are above it, which is where the exemplar votes. Otherwise
    distant rows would decide the slope.
    """
    n_above = max(10, int(np.count_nonzero(same)) // (2 * N_FOLDS))
    others = scores[held_out]
    return -np.inf if len(others) <= n_above else float(np.partition(others, len(others) - n_above)[-n_above])


def fit_sigmoids(
    scores: NDArray[np.float64], same: NDArray[np.bool_], other: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return slopes and offsets (m,) of the sigmoids of scores (m, n) that separate same (m, n) from other rows.

    Targets are smoothed as in Platt's method, and a weak prior favors a slope of 1. The m problems are solved as one.
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
        value = losses.sum() + 0.5 * _PRIOR_WEIGHT * ((slopes - 1) @ (slopes - 1))
        by_slope = np.bincount(rows, residual * f, m) + _PRIOR_WEIGHT * (slopes - 1)
        return float(value), np.concatenate([by_slope, np.bincount(rows, residual, m)])

    start = np.concatenate([np.ones(m), np.zeros(m)])
    bounds = [(1e-3, None)] * m + [(None, None)] * m  # a slope is positive
    solution = minimize(value_and_gradient, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return solution[:m], solution[m:]


def folds_of(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a fold per row (n,), with every class spread over the folds as evenly as possible."""
    folds = np.empty(len(codes), np.int64)
    folds[np.argsort(codes, kind="stable")] = np.arange(len(codes)) % N_FOLDS
    return folds
