"""Temperature scaling: p = softmax(z / T), with one number T > 0 learned on held-out rows.

The log-scores z (n, K) are scores whose softmax gives the probabilities of the estimator. They come from

    "decision_function"    z = f, or (0, f) for two classes, if softmax(f) equals predict_proba, or if the estimator has
                           no predict_proba
    "log-probabilities"    z = log((1 - a) p + a / K) otherwise, with the smoothing share a

Smoothing is needed because votes of neighbors are often exactly 0, and no temperature changes log 0. If some
probability is 0, a = (n_zero + 1) / (m + 2), where n_zero of the m held-out rows have probability 0 for their own
class. Otherwise a = 0.

T > 1 lowers the confidence of the estimator, and T < 1 raises it. The predicted class stays the same. With
beta = 1 / T, the log-scores z (m, K) of held-out rows and their classes y, T minimizes

    L(beta) = mean_i [ log sum_c exp(beta z_ic) - beta z_iy ]
    L'(beta) = mean_i [ E_p z_i - z_iy ],   p = softmax(beta z_i)

L is convex, so an interval whose ends have slopes of opposite sign contains the minimum. There are two cases without a
minimum. If every held-out row is correct, L decreases for all beta; then L is minimized for one error in m + 2 rows,
made in favor of the second-best class, and T is capped at `max_if_correct`. If the scores are worse than chance, T is
the end of the searched interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.base.class_rows import lift_winners
from kway.base.classifier import Classifier, has_contributions, on_own_threads
from kway.base.contributions import Parts
from kway.confidence import splits
from kway.confidence.reliability import Reliability, reliability_of
from kway.confidence.splits import ConfidenceWrapper, LabeledRows, Split
from kway.errors import CombinationError
from kway.measures import log_loss
from kway.memory import CACHE_BYTES, rows_per_block
from kway.probabilities import softmax
from kway.rows.blocks import SAMPLE_ROWS, take_rows
from kway.threads import pmap, spans

SCORES, LOGS = "decision_function", "log-probabilities"
_REL_TOL = float(np.sqrt(np.finfo(np.float64).eps))  # relative precision of T
_MAX_FACTOR = (
    1 / _REL_TOL
)  # beta is searched between 1 / _MAX_FACTOR and _MAX_FACTOR, divided by the size of the scores


class TemperatureScaledClassifier(ConfidenceWrapper):
    """Calibrated probabilities for any classifier, by temperature scaling.

    The temperature is learned on rows that the estimator has not been trained on. Predicted labels do not change.
    Probabilities are computed and returned in float64.

    Parameters
    ----------
    estimator : classifier, default=None
        Any classifier with `predict_proba` or `decision_function`; None means `SoftmaxClassifier()`.
    cv : int, float, splitter, list of pairs or "prefit", default=5
        A number of folds; or the share of the rows to hold out; or a splitter of scikit-learn, or pairs (train,
        calibration) of row numbers. In these cases `estimator_` is fitted on all rows in the end. Pass "prefit" if the
        estimator is already fitted. The temperature is then learned on all rows that are passed to `fit`, so the
        estimator must have been fitted on other rows.
    random_state : int, RandomState or None, default=None
        Seed of the splits; None means 0.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    temperature_ : float
        T.
    temperature_fit_ : TemperatureFit
        T with an interval around 1 / T; `certified` tells whether the slopes at its ends prove the minimum.
    source_ : str
        Where the log-scores come from: "decision_function" or "log-probabilities".
    log_loss_before_, log_loss_after_ : float
        Log loss on the held-out rows, of the estimator's own probabilities and at `temperature_`; NaN if no row could
        be held out. If the estimator has no probabilities, those before are the softmax of its scores.
    ece_before_, ece_after_ : float
        Expected calibration error of the same probabilities.
    reliability_before_, reliability_after_ : Reliability or None
        Data of a reliability diagram of the same probabilities; None if no row could be held out.

    Notes
    -----
    The contributions of `explain` add up to the score of `estimator_`, which is not divided by T.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural networks", ICML.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TemperatureScaledClassifier(random_state=0).fit(X, y)
    >>> model.temperature_fit_.certified, model.log_loss_after_ <= model.log_loss_before_
    (True, True)
    """

    reliability_before_: Reliability | None
    reliability_after_: Reliability | None

    def __init__(self, estimator: Any = None, cv: Any = 5, random_state: Any = None) -> None:
        self.estimator = estimator
        self.cv = cv
        self.random_state = random_state

    @on_own_threads
    def fit(self, X: Any, y: Any, **params: Any) -> TemperatureScaledClassifier:
        """Fit the estimator, and learn the temperature from rows that it has not seen.

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
        self : TemperatureScaledClassifier
            The fitted model.
        """
        splits.check_cv(self.cv, folds=True)
        self._forget()
        rows = self._check_rows(X, y, params)
        self._calibrate(self._prefit() if self._is_prefit() else self._fit_copy(rows), rows)
        return self

    def _calibrate(self, fitted: Any, rows: LabeledRows) -> None:
        """Store the estimator, which is `fitted` on all rows, and learn T from rows that copies of it have not seen."""
        self._adopt(fitted)
        rng = self._rng()
        sample = np.sort(rng.permutation(len(rows.labels.codes))[:SAMPLE_ROWS])
        source = pick_source(fitted, take_rows(rows.X, sample))
        self._scale_by(source, *self._score_calibration_rows(rows, source, rng))

    @on_own_threads
    def _scale_by(
        self, source: str, values: NDArray[np.float64], codes: NDArray[np.int64], weights: NDArray | None = None
    ) -> None:
        """Learn T from scores or probabilities (m, K) of held-out rows, with their classes (m,) and weights (m,).

        The losses before and after, and the reliability diagrams, count every row once.
        """
        smoothing = 0.0 if source == SCORES else estimate_smoothing(values, codes)
        self._log_scores = LogScores(source, smoothing)
        self.source_ = source
        z = values if source == SCORES else self._log_scores.smooth(values)
        own_probabilities = softmax(values) if source == SCORES else values
        # probabilities of an estimator without a held-out error must not become less certain
        max_if_correct = 1.0 if hasattr(self.estimator_, "predict_proba") else np.inf
        self.temperature_fit_ = best_temperature(z, codes, max_if_correct, weights)
        self.temperature_ = self.temperature_fit_.temperature
        self.log_loss_before_, self.reliability_before_ = _loss_and_reliability(own_probabilities, codes)
        self.log_loss_after_, self.reliability_after_ = _loss_and_reliability(softmax(z / self.temperature_), codes)

    def _score_calibration_rows(
        self, rows: LabeledRows, source: str, rng: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return scores or probabilities (m, K) of held-out rows, or of a sample of them, and their classes (m,)."""
        codes, width = rows.labels.codes, len(rows.labels.classes)

        def score(split: Split) -> NDArray[np.float64]:
            estimator = self.estimator_ if self._is_prefit() else self._fit_copy(rows.take(split.train))
            return score_blocks(estimator, take_rows(rows.X, split.held_out), source, len(split.held_out))

        positions, values = score_held_out(self._splits(rows, rng), (width,), rng, score)
        return values, codes[positions]

    def _splits(self, rows: LabeledRows, rng: Any) -> list[Split]:
        codes = rows.labels.codes
        if self._is_prefit():
            return [Split(np.empty(0, np.int64), np.arange(len(codes)))]
        made = splits.make_splits(self.cv, rows.X, codes, rng)
        for split in made:
            splits.check_classes_in_training(codes, split, rows.labels.classes)
        return made

    @property
    def ece_before_(self) -> float:
        """Expected calibration error of the estimator's own probabilities on the held-out rows."""
        return np.nan if self.reliability_before_ is None else self.reliability_before_.error

    @property
    def ece_after_(self) -> float:
        """Expected calibration error at temperature_ on the held-out rows."""
        return np.nan if self.reliability_after_ is None else self.reliability_after_.error

    # ---- predictions

    def _scores(self, rows: Any) -> NDArray[np.float64]:
        """Return z / T (n, K). Rounding in the division can create ties, so the predicted class is kept on top."""
        z = self._log_scores(self.estimator_, rows)
        return lift_winners(z / self.temperature_, z.argmax(axis=1))

    def _shares(self, rows: Any) -> NDArray[np.float64]:
        z = self._scores(rows)
        return lift_winners(softmax(z), z.argmax(axis=1))

    def _contributions(self, rows: Any, codes: NDArray[np.int64]) -> Parts:
        """Return the contributions to the scores of the estimator, which are T times these scores."""
        return self.estimator_._contributions(self.estimator_._rows(rows), codes)

    def _log_scale(self) -> float | None:
        """Return 1 / T, the factor from contributions to log-scores; None if they add up to other scores."""
        inner = self.estimator_
        explained = self.source_ == SCORES and isinstance(inner, Classifier) and has_contributions(inner)
        return 1 / self.temperature_ if explained else None

    def _answer_type(self, rows: Any) -> np.dtype:
        return np.dtype(np.float64)

    # ---- model files

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        facts: dict[str, Any] = {"losses": [self.log_loss_before_, self.log_loss_after_]}
        facts |= {"fit": asdict(self.temperature_fit_), "scores": asdict(self._log_scores)}
        arrays: dict[str, NDArray] = {}
        for when in ("before", "after"):
            diagram = getattr(self, f"reliability_{when}_")
            if diagram is not None:
                arrays |= {f"{when}.{field}": value for field, value in diagram._asdict().items()}
        return facts, arrays

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.log_loss_before_, self.log_loss_after_ = facts["losses"]
        self.temperature_fit_ = TemperatureFit(**facts["fit"])
        self.temperature_ = self.temperature_fit_.temperature
        self._log_scores = LogScores(**facts["scores"])
        self.source_ = self._log_scores.source
        for when in ("before", "after"):
            stored = f"{when}.edges" in arrays
            diagram = Reliability(*(arrays[f"{when}.{field}"] for field in Reliability._fields)) if stored else None
            setattr(self, f"reliability_{when}_", diagram)


def _loss_and_reliability(p: NDArray[np.float64], codes: NDArray[np.int64]) -> tuple[float, Reliability | None]:
    if not len(p):
        return np.nan, None
    return log_loss(p[np.arange(len(p)), codes]), reliability_of(p.max(axis=1), p.argmax(axis=1) == codes)


# ---- log-scores


@dataclass(frozen=True)
class LogScores:
    """The log-scores z of an estimator: their source and the smoothing share a."""

    source: str
    smoothing: float = 0.0

    def __call__(self, estimator: Any, X: Any) -> NDArray[np.float64]:
        """Return the log-scores z (n, K)."""
        if self.source == SCORES:
            return score_columns(estimator, X)
        return self.smooth(_probabilities(estimator, X))

    def smooth(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the finite logarithms of smoothed probabilities p (n, K).

        Rounding can create ties, so the class with the largest probability is kept on top.
        """
        smoothed = (1 - self.smoothing) * p + self.smoothing / p.shape[1] if self.smoothing else p
        logs = np.log(np.maximum(smoothed, np.finfo(np.float64).tiny))
        return lift_winners(logs, p.argmax(axis=1))


def score_columns(estimator: Any, X: Any) -> NDArray[np.float64]:
    """Return the decision function as (n, K); for two classes the columns are 0 and f."""
    f = np.asarray(estimator.decision_function(X), np.float64)
    return f if f.ndim == 2 else np.stack([np.zeros_like(f), f], axis=1)


def _probabilities(estimator: Any, X: Any) -> NDArray[np.float64]:
    return np.asarray(estimator.predict_proba(X), np.float64)


def pick_source(estimator: Any, X: Any) -> str:
    """Return "decision_function" if its softmax equals predict_proba on these rows, or without predict_proba.

    Otherwise return "log-probabilities".
    """
    has_scores, has_proba = hasattr(estimator, "decision_function"), hasattr(estimator, "predict_proba")
    if not (has_scores or has_proba):
        raise CombinationError(
            f"{type(estimator).__name__} has neither predict_proba nor decision_function, so it cannot be calibrated"
        )
    if not (has_scores and has_proba):
        return SCORES if has_scores else LOGS
    z, p = score_columns(estimator, X), _probabilities(estimator, X)
    eps = np.finfo(np.float32).eps  # the scores may be float32
    same = z.shape == p.shape and np.allclose(softmax(z), p, rtol=np.sqrt(eps), atol=eps)
    return SCORES if same else LOGS


def estimate_smoothing(p: NDArray[np.float64], codes: NDArray[np.int64]) -> float:
    """Return the smoothing share a from probabilities (m, K) of held-out rows and their classes (m,)."""
    if not (p == 0).any():
        return 0.0
    n_zero = np.count_nonzero(p[np.arange(len(p)), codes] == 0)
    return (n_zero + 1) / (len(p) + 2)


def score_blocks(estimator: Any, X: Any, source: str, n: int) -> NDArray[np.float64]:
    """Return scores or probabilities (n, K), computed block by block."""
    compute = score_columns if source == SCORES else _probabilities
    return np.concatenate([compute(estimator, block) for block in splits.cut_blocks(X, n, len(estimator.classes_))])


def score_held_out(
    parts: list[Split], shape: tuple[int, ...], rng: Any, score: Callable[[Split], NDArray[np.float64]]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the scored rows (m,) and their scores (m, *shape), from the function `score` of a split.

    These are the held-out rows of all splits, or a sample of them if their scores would take too much memory.
    """
    max_rows = max(1, splits.table_rows(math.prod(shape)) // max(1, len(parts)))
    positions, scores = [np.empty(0, np.int64)], [np.empty((0, *shape))]
    for train, held_out in parts:
        sample = held_out if len(held_out) <= max_rows else np.sort(rng.permutation(held_out)[:max_rows])
        positions.append(sample)
        scores.append(score(Split(train, sample)))
    return np.concatenate(positions), np.concatenate(scores)


# ---- the optimum


@dataclass(frozen=True)
class TemperatureFit:
    """A temperature, and an interval around 1 / T that certifies it.

    Attributes
    ----------
    temperature : float
        T.
    low, high : float
        Ends of an interval of 1 / T; `high` is infinite if T was capped.
    slope_low, slope_high : float
        Slopes of the loss at the ends. Opposite signs prove that the minimum is inside.
    n_rows : int
        Number of held-out rows.
    assumed_error : bool
        Whether every held-out row was correct, so that one error was assumed.
    """

    temperature: float
    low: float
    high: float
    slope_low: float
    slope_high: float
    n_rows: int
    assumed_error: bool = False

    @property
    def certified(self) -> bool:
        """Whether the slopes at the ends of the interval prove the minimum."""
        return self.slope_low <= 0 <= self.slope_high


def best_temperature(
    z: NDArray[np.float64],
    codes: NDArray[np.int64],
    max_if_correct: float = np.inf,
    weights: NDArray | None = None,
) -> TemperatureFit:
    """Return the T that minimizes the log loss of softmax(z / T) for z (m, K), classes (m,) and weights (m,).

    Without `weights`, all rows have the same weight; rows of weight 0 do not count. If every row is correct, T is at
    most `max_if_correct`.
    """
    if weights is not None and not np.all(weights):
        z, codes, weights = z[weights != 0], codes[weights != 0], weights[weights != 0]
    m, size = len(z), mean_top_margin(z)
    if not size > 0:  # no rows, or all scores are equal: every T gives the same loss
        return TemperatureFit(1.0, 1.0, 1.0, 0.0, 0.0, m)
    true_scores = z[np.arange(m), codes]
    all_correct = bool(np.all(true_scores >= z.max(axis=1)))
    target = true_scores
    if all_correct:  # an error in m + 2 rows moves this share of the target to the second-best class
        target = true_scores + (np.partition(z, -2, axis=1)[:, -2] - true_scores) / (m + 2)
    low, high = 1 / (_MAX_FACTOR * size), _MAX_FACTOR / size
    slopes = [_slope(z, target, beta, weights) for beta in (low, high)]
    if slopes[0] < 0 < slopes[1]:
        beta = _root(z, target, low, high, weights)
        low, high = beta * (1 - _REL_TOL / 4), beta * (1 + _REL_TOL / 4)
        slopes = [_slope(z, target, end, weights) for end in (low, high)]
    else:
        beta = low if slopes[0] >= 0 else high
    if all_correct and 1 / beta > max_if_correct:
        # without the assumed error, L decreases for all beta, and its slope is 0 in the limit at infinity
        low, high = 1 / max_if_correct, np.inf
        return TemperatureFit(max_if_correct, low, high, _slope(z, true_scores, low, weights), 0.0, m, all_correct)
    return TemperatureFit(1 / beta, low, high, slopes[0], slopes[1], m, all_correct)


def mean_top_margin(z: NDArray[np.float64]) -> float:
    """Return the mean distance of the largest score of a row from the mean of the row; 0 without rows."""
    return float(np.mean(z.max(axis=1) - z.mean(axis=1))) if len(z) else 0.0


def _root(
    z: NDArray[np.float64], target: NDArray[np.float64], low: float, high: float, weights: NDArray | None
) -> float:
    """Return the beta between low and high at which the slope is 0."""
    from scipy.optimize import brentq

    log_beta = brentq(lambda u: _slope(z, target, np.exp(u), weights), np.log(low), np.log(high), xtol=_REL_TOL / 8)
    return float(np.exp(log_beta))


def _slope(z: NDArray[np.float64], target: NDArray[np.float64], beta: float, weights: NDArray | None = None) -> float:
    """Return L'(beta), with `target` (m,) in place of the scores z_iy of the true classes; `weights` (m,) or None."""

    def sum_of_rows(rows: slice) -> float:
        block = z[rows]
        p = np.exp(beta * (block - block.max(axis=1, keepdims=True)))
        p /= p.sum(axis=1, keepdims=True)
        slopes = np.einsum("ij,ij->i", p, block) - target[rows]
        return float(np.sum(slopes) if weights is None else weights[rows] @ slopes)

    total = sum(pmap(sum_of_rows, spans(len(z), rows_per_block(8 * z.shape[1], CACHE_BYTES))))
    return total / (len(z) if weights is None else float(weights.sum()))
