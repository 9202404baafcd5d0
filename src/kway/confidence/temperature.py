"""Temperature scaling: p = softmax(z / T), with one number T > 0 learned on held-out rows.

z (n, K) are log-scores: scores whose softmax gives the probabilities of the estimator. They come from

    "decision_function"    z = f, or (0, f) for two classes, if softmax(f) is predict_proba or if that does not exist
    "log-probabilities"    z = log((1 - s) p + s / K)

Votes of neighbors are often exactly 0, and no temperature changes log 0. Therefore a share s of the probability is
spread over all classes: s = (rows whose own class got 0, plus 1) / (rows + 2) on the held-out rows; s = 0 if no
probability is 0.

T > 1 lowers the confidence of the estimator, T < 1 raises it; the predicted class stays. With b = 1/T, T minimizes

    L(b) = mean_i [ log sum_c exp(b z_ic) - b z_iy ]          z (m, K) log-scores of held-out rows, y their classes
    L'(b) = mean_i [ E_p z_i - z_iy ],   p = softmax(b z_i)

L is convex, so an interval whose ends have slopes of opposite sign contains the minimum. There are two cases without a
minimum. If every row is correct, L decreases for all b; then one error in m + 2 rows, in favor of the runner-up, is
assumed, and T is at most `most_if_right`. If the scores are worse than chance, T stops at the end of the interval.

`class_offsets` makes the scores of one-vs-all models comparable. Each of these models is fitted on its own, so a rare
class may have low scores everywhere. Over s > 0 and b (K,) it minimizes

    mean_i [ log sum_c exp(s z_ic + b_c) - (s z_iy + b_y) ] + |b|^2 / (2 SPREAD^2 m)

and returns b / s. The problem is convex, and the penalty keeps the offset of a class without held-out rows at 0.
"""

from __future__ import annotations

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
from kway.probabilities import log_sum_exp, softmax
from kway.rows.blocks import SAMPLE_ROWS, take_rows
from kway.threads import pmap, spans

SCORES, LOGS = "decision_function", "log-probabilities"
SPREAD = 0.5  # standard deviation of the prior of class offsets: 1 overfits (banking77, T11)
_DIGITS = float(np.sqrt(np.finfo(np.float64).eps))  # precision of T; also 1 / the largest factor of T that is tried


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
        calibration) of row numbers. With "prefit" the estimator is fitted already, on other rows, and all given rows
        are held out. In all other cases `estimator_` is fitted on all rows in the end.
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
        be held out. An estimator without probabilities counts with the softmax of its scores.
    ece_before_, ece_after_ : float
        Expected calibration error, likewise.
    reliability_before_, reliability_after_ : Reliability or None
        Data of a reliability diagram, likewise.

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
            Held-out rows count alike.

        Returns
        -------
        self : TemperatureScaledClassifier
            The fitted model.
        """
        splits.check_cv(self.cv, folds=True)
        self._forget()
        rows = self._check_rows(X, y, params)
        fitted = self._prefit() if self._is_prefit() else self._fit_copy(rows)
        self._adopt(fitted)
        rng = self._rng()
        some = np.sort(rng.permutation(len(rows.labels.codes))[:SAMPLE_ROWS])
        source = pick_source(fitted, take_rows(rows.X, some))
        self._scale_by(source, *self._score_calibration_rows(rows, source, rng))
        return self

    @on_own_threads
    def _scale_by(self, source: str, values: NDArray[np.float64], codes: NDArray[np.int64]) -> None:
        """Learn T from scores or probabilities (m, K) of held-out rows and their classes (m,)."""
        smoothing = 0.0 if source == SCORES else estimate_smoothing(values, codes)
        self._log_scores = LogScores(source, smoothing)
        self.source_ = source
        z = values if source == SCORES else self._log_scores.smooth(values)
        own_probabilities = softmax(values) if source == SCORES else values
        most_if_right = 1.0 if hasattr(self.estimator_, "predict_proba") else np.inf
        self.temperature_fit_ = best_temperature(z, codes, most_if_right)
        self.temperature_ = self.temperature_fit_.temperature
        self.log_loss_before_, self.reliability_before_ = _loss_and_reliability(own_probabilities, codes)
        self.log_loss_after_, self.reliability_after_ = _loss_and_reliability(softmax(z / self.temperature_), codes)

    def _score_calibration_rows(
        self, rows: LabeledRows, source: str, rng: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Return scores or probabilities (m, K) of held-out rows, a sample if they are many, and their classes."""
        codes, width = rows.labels.codes, len(rows.labels.classes)

        def score(split: Split) -> list[NDArray[np.float64]]:
            estimator = self.estimator_ if self._is_prefit() else self._fit_copy(rows.take(split.train))
            held = split.calibration
            return [score_blocks(estimator, take_rows(rows.X, held), source, len(held))]

        at, (values,) = score_held_out(self._splits(rows, rng), [width], rng, score)
        return values, codes[at]

    def _splits(self, rows: LabeledRows, rng: Any) -> list[Split]:
        codes = rows.labels.codes
        if self._is_prefit():
            return [Split(np.empty(0, np.int64), np.arange(len(codes)))]
        found = splits.make_splits(self.cv, rows.X, codes, rng)
        for split in found:
            splits.check_classes_in_training(codes, split, rows.labels.classes)
        return found

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
        """Return z / T (m, K). Tied votes differ by a rounding that the division may remove: the winner is kept."""
        z = self._log_scores(self.estimator_, rows)
        return lift_winners(z / self.temperature_, z.argmax(axis=1))

    def _shares(self, rows: Any) -> NDArray[np.float64]:
        z = self._scores(rows)
        return lift_winners(softmax(z), z.argmax(axis=1))

    def _contributions(self, rows: Any, codes: NDArray[np.int64]) -> Parts:
        """Return the contributions to the scores of the estimator, which are T times these scores."""
        return self.estimator_._contributions(self.estimator_._rows(rows), codes)

    def _log_scale(self) -> float | None:
        own = self.source_ == SCORES and isinstance(self.estimator_, Classifier) and has_contributions(self.estimator_)
        return 1 / self.temperature_ if own else None

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


def scale_fitted(
    model: Any, values: NDArray[np.float64], codes: NDArray[np.int64], source: str = LOGS
) -> TemperatureScaledClassifier:
    """Return a fitted model with the temperature of its probabilities, or scores, (m, K) of held-out rows."""
    scaled = TemperatureScaledClassifier(model, "prefit")
    scaled._adopt(model)
    scaled._scale_by(source, values, codes)
    return scaled


def _loss_and_reliability(p: NDArray[np.float64], codes: NDArray[np.int64]) -> tuple[float, Reliability | None]:
    if not len(p):
        return np.nan, None
    own = p[np.arange(len(p)), codes]
    return log_loss(own), reliability_of(p.max(axis=1), p.argmax(axis=1) == codes)


# ---- log-scores


@dataclass(frozen=True)
class LogScores:
    """Where z comes from, and the share s of smoothing."""

    source: str
    smoothing: float = 0.0

    def __call__(self, estimator: Any, X: Any) -> NDArray[np.float64]:
        """Return z (n, K)."""
        if self.source == SCORES:
            return score_columns(estimator, X)
        return self.smooth(_probabilities(estimator, X))

    def smooth(self, p: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return finite logarithms of probabilities (n, K); the largest stays the largest."""
        mixed = (1 - self.smoothing) * p + self.smoothing / p.shape[1] if self.smoothing else p
        logs = np.log(np.maximum(mixed, np.finfo(np.float64).tiny))
        return lift_winners(logs, p.argmax(axis=1))  # tied votes differ by a rounding that the sum may remove


def score_columns(estimator: Any, X: Any) -> NDArray[np.float64]:
    """Return decision_function as (n, K); for two classes (0, f)."""
    f = np.asarray(estimator.decision_function(X), np.float64)
    return f if f.ndim == 2 else np.stack([np.zeros_like(f), f], axis=1)


def _probabilities(estimator: Any, X: Any) -> NDArray[np.float64]:
    return np.asarray(estimator.predict_proba(X), np.float64)


def pick_source(estimator: Any, X: Any) -> str:
    """Return "decision_function" if its softmax is predict_proba on these rows, or if that does not exist."""
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
    """Return s from probabilities (m, K) of held-out rows and their classes (m,)."""
    if not (p == 0).any():
        return 0.0
    lost = np.count_nonzero(p[np.arange(len(p)), codes] == 0)
    return (lost + 1) / (len(p) + 2)


def score_blocks(estimator: Any, X: Any, source: str, n: int) -> NDArray[np.float64]:
    """Return scores or probabilities (n, K), computed block by block."""
    compute = score_columns if source == SCORES else _probabilities
    return np.concatenate([compute(estimator, block) for block in splits.cut_blocks(X, n, len(estimator.classes_))])


def score_held_out(
    parts: list[Split], widths: list[int], rng: Any, score: Callable[[Split], list[NDArray[np.float64]]]
) -> tuple[NDArray[np.int64], list[NDArray[np.float64]]]:
    """Return the held-out rows, a sample if they are many, and the tables (rows, width) of `score` for them."""
    most = max(1, splits.table_rows(sum(widths)) // max(1, len(parts)))
    rows, tables = [np.empty(0, np.int64)], [[np.empty((0, width))] for width in widths]
    for train, held in parts:
        some = held if len(held) <= most else np.sort(rng.permutation(held)[:most])
        for table, values in zip(tables, score(Split(train, some))):
            table.append(values)
        rows.append(some)
    return np.concatenate(rows), [np.concatenate(table) for table in tables]


# ---- the optimum


@dataclass(frozen=True)
class TemperatureFit:
    """T, and an interval of 1/T with the slopes of the loss at its ends: opposite signs prove the minimum."""

    temperature: float
    low: float
    high: float
    slope_low: float
    slope_high: float
    n_rows: int
    assumed_error: bool = False  # every held-out row was correct, so one error was assumed

    @property
    def certified(self) -> bool:
        """Whether the slopes have opposite signs."""
        return self.slope_low <= 0 <= self.slope_high


def best_temperature(z: NDArray[np.float64], codes: NDArray[np.int64], most_if_right: float = np.inf) -> TemperatureFit:
    """Return the T that minimizes the log loss of softmax(z / T) for z (m, K) and classes (m,)."""
    m = len(z)
    top = z.max(axis=1, initial=-np.inf)
    size = _typical_size(z)
    if not size > 0:  # no rows, or all scores are equal: every T gives the same
        return TemperatureFit(1.0, 1.0, 1.0, 0.0, 0.0, m)
    own = z[np.arange(m), codes]
    all_right = bool(np.all(own >= top))
    target = own + (np.partition(z, -2, axis=1)[:, -2] - own) / (m + 2) if all_right else own  # (m,)
    low, high = (_DIGITS / size, 1 / (_DIGITS * size))
    slopes = [_slope(z, target, b) for b in (low, high)]
    if slopes[0] < 0 < slopes[1]:
        from scipy.optimize import brentq

        log_b = brentq(lambda u: _slope(z, target, np.exp(u)), np.log(low), np.log(high), xtol=_DIGITS / 8)
        low, high = np.exp(log_b) * (1 - _DIGITS / 4), np.exp(log_b) * (1 + _DIGITS / 4)
        slopes = [_slope(z, target, b) for b in (low, high)]
        b = float(np.exp(log_b))
    else:
        b = low if slopes[0] >= 0 else high
    if all_right and 1 / b > most_if_right:
        b = 1 / most_if_right
        return TemperatureFit(most_if_right, b, np.inf, _slope(z, own, b), 0.0, m, all_right)
    return TemperatureFit(1 / b, float(low), float(high), slopes[0], slopes[1], m, all_right)


def _typical_size(z: NDArray[np.float64]) -> float:
    """Return the mean distance of the largest score of a row to the mean of the row; 0 without rows."""
    return float(np.mean(z.max(axis=1) - z.mean(axis=1))) if len(z) else 0.0


def _slope(z: NDArray[np.float64], target: NDArray[np.float64], b: float) -> float:
    """Return L'(b) for targets z_iy (m,)."""

    def add_up(rows: slice) -> float:
        block = z[rows]
        p = np.exp(b * (block - block.max(axis=1, keepdims=True)))
        p /= p.sum(axis=1, keepdims=True)
        return float(np.sum(np.einsum("ij,ij->i", p, block) - target[rows]))

    return sum(pmap(add_up, spans(len(z), rows_per_block(8 * z.shape[1], CACHE_BYTES)))) / len(z)


# ---- offsets of classes


def class_offsets(z: NDArray[np.float64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return what to add to the scores of each class (K,), from scores (m, K) of held-out rows and their classes."""
    from scipy.optimize import minimize

    n_classes, size = z.shape[1], _typical_size(z)
    if not size > 0:
        return np.zeros(n_classes)
    found = minimize(
        _offset_loss,
        np.append(1.0, np.zeros(n_classes)),
        args=(z / size, codes),
        jac=True,
        method="L-BFGS-B",
        bounds=[(_DIGITS, None), *[(None, None)] * n_classes],
        options={"gtol": 1e-6},  # of gradients of a mean loss: 1e-4 of an offset
    )
    return np.asarray(found.x[1:] * size / found.x[0])


def _offset_loss(
    point: NDArray[np.float64], z: NDArray[np.float64], codes: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64]]:
    """Return the objective of `class_offsets` and its gradient (1 + K,) at (s, b)."""
    m, b, rows = len(z), point[1:], np.arange(len(z))
    scores = point[0] * z + b  # (m, K)
    total = log_sum_exp(scores)  # (m,)
    value = float(np.mean(total - scores[rows, codes])) + float(b @ b) / (2 * SPREAD**2 * m)
    p = np.exp(scores - total[:, None])
    right = np.bincount(codes, minlength=z.shape[1])
    slope = (p.sum(axis=0) - right) / m + b / (SPREAD**2 * m)
    return value, np.append((np.vdot(p, z) - z[rows, codes].sum()) / m, slope)


def proven_offsets(z: NDArray[np.float64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return `class_offsets` if they help on rows that they were not learned from, else zeros (K,).

    Offsets learned from either half of the rows have to lower the log loss of the other half by more than two standard
    errors.
    """
    half = np.random.default_rng(0).random(len(z)) < 0.5
    gains = []
    for train in (half, ~half):
        moved = z + class_offsets(z[train], codes[train])
        gains.append(_losses_of_others(z, codes, train) - _losses_of_others(moved, codes, train))
    gain = np.concatenate(gains)  # (m,)
    proven = len(gain) > 1 and gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain))
    return class_offsets(z, codes) if proven else np.zeros(z.shape[1])


def _losses_of_others(
    z: NDArray[np.float64], codes: NDArray[np.int64], train: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the log losses of the other rows at the temperature of the training rows."""
    scores, own = z[~train] / best_temperature(z[train], codes[train]).temperature, codes[~train]
    return np.asarray(log_sum_exp(scores) - scores[np.arange(len(own)), own])
