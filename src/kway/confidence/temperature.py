"""TemperatureScaledClassifier: p = softmax(z / T), one number T > 0 learned on held-out rows; predictions stay.

z are the estimator's log-scores (log_scores.py). T > 1 softens an estimator that is too sure, T < 1 sharpens one
that is not sure enough. With b = 1/T, T minimizes

    L(b) = mean_i [ log sum_c exp(b z_ic) - b z_iy ]          z (m, K) log-scores of held-out rows, y their classes
    L'(b) = mean_i [ E_p z_i - z_iy ],   p = softmax(b z_i)

L is convex, so a bracket whose ends have slopes of opposite sign contains the minimum: that is the certificate. Two
cases have no minimum. If no row is wrong, L falls for ever as T -> 0; then one miss in m + 2 is assumed, to the
runner-up, which turns the slope (and T stays below `most_if_right`). If the scores are no better than chance, L
falls as T grows; then T stops at a bound.

References
----------
Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural networks".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.base.class_rows import best_columns, lift_winners
from kway.base.classifier import on_own_threads
from kway.confidence import heldout
from kway.confidence.heldout import HELD_ENTRIES, ConfidenceWrapper, Given, Split
from kway.confidence.log_scores import LOGS, SCORES, LogScores, pick_source, smoothing_of, stated_values
from kway.confidence.reliability import Reliability, reliability_of
from kway.labels import Labels
from kway.measures import log_loss
from kway.probabilities import softmax
from kway.rows.row_blocks import rows_at
from kway.search.answers import TopK
from kway.threads import pmap, spans

_MOST = 4 * HELD_ENTRIES  # scores of held-out rows kept at once; one number needs few rows, so more are sampled
_PROBED = 200  # rows that tell where log-scores come from


class TemperatureScaledClassifier(ConfidenceWrapper):
    """Probabilities that mean what they say, for any classifier with scores or probabilities.

    Parameters
    ----------
    estimator : any classifier; None is `SoftmaxClassifier()`. One without `predict_proba` (a support vector machine)
        gets probabilities from its scores.
    cv : 5 (folds: each row is scored by an estimator that did not learn from it), a share such as 0.2 (that part of
        the rows is held out), a splitter or pairs (learn, held) of row numbers, or "prefit" (the estimator is fitted;
        all rows given are held out). Unless prefit, `estimator_` is fitted on all rows.
    random_state : seed of what is held out; None is 0.

    Attributes
    ----------
    temperature_, temperature_fit_ (the certificate: slopes of opposite sign around 1 / T), estimator_, source_ (where
    the log-scores come from); on the held-out rows, before (the estimator's own probabilities, softmax of its scores
    where it has none) and after: log_loss_before_, log_loss_after_, ece_before_, ece_after_, reliability_before_,
    reliability_after_ (NaN or None where no row could be held out).

    Probabilities are computed and returned in float64.

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
    def fit(self, X: Any, y: Any) -> TemperatureScaledClassifier:
        """Learn the estimator from X (n, d) and y (n,), and T from rows that it did not see."""
        heldout.check_cv(self.cv, folds=True)
        self._forget()
        given = self._given(X, y)
        fitted = self._prefit() if self._is_prefit() else self._learn(*given)
        self._adopt(fitted)
        n = len(given.labels.codes)
        rng = self._rng()
        probed = rng.permutation(n)[:_PROBED]
        source = pick_source(fitted, rows_at(given.X, np.sort(probed)))
        self._scale_by(source, *self._held_out(given, source, rng))
        return self

    @on_own_threads
    def _scale_by(self, source: str, values: NDArray[np.float64], codes: NDArray[np.int64]) -> None:
        """T from the scores or probabilities (m, K) of held-out rows, and their classes (m,)."""
        smoothing = 0.0 if source == SCORES else smoothing_of(values, codes)
        self._log_scores = LogScores(source, smoothing)
        self.source_ = source
        z = values if source == SCORES else self._log_scores.smooth(values)
        stated = softmax(values) if source == SCORES else values
        stated_at_all = hasattr(self.estimator_, "predict_proba")
        self.temperature_fit_ = best_temperature(z, codes, most_if_right=1.0 if stated_at_all else np.inf)
        self.temperature_ = self.temperature_fit_.temperature
        self.log_loss_before_, self.reliability_before_ = _report(stated, codes)
        self.log_loss_after_, self.reliability_after_ = _report(softmax(z / self.temperature_), codes)

    def _held_out(self, given: Given, source: str, rng: Any) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Scores or probabilities (m, K) of held-out rows, and their classes (m,)."""
        codes, width = given.labels.codes, len(given.labels.classes)
        values, own = [np.empty((0, width))], [codes[:0]]
        splits = self._splits(given, rng)
        most = max(1, _MOST // width // max(1, len(splits)))
        for learn, held in splits:
            if len(held) > most:
                held = np.sort(rng.permutation(held)[:most])
            estimator = self.estimator_
            if not self._is_prefit():
                labels = Labels(given.labels.classes, codes[learn])
                estimator = self._learn(rows_at(given.X, learn), labels)
            values.append(stated_values(estimator, rows_at(given.X, held), source, len(held)))
            own.append(codes[held])
        return np.concatenate(values), np.concatenate(own)

    def _splits(self, given: Given, rng: Any) -> list[Split]:
        codes = given.labels.codes
        if self._is_prefit():
            return [Split(np.empty(0, np.int64), np.arange(len(codes)))]
        splits = heldout.splits(self.cv, given.X, codes, rng)
        for split in splits:
            heldout.check_learned(codes, split, given.labels.classes)
        return splits

    @property
    def ece_before_(self) -> float:
        """Expected calibration error of the estimator's own probabilities on the held-out rows."""
        return _error(self.reliability_before_)

    @property
    def ece_after_(self) -> float:
        """Expected calibration error at temperature_ on the held-out rows."""
        return _error(self.reliability_after_)

    # ---- answers

    def _scores(self, rows: Any) -> NDArray[np.float64]:
        """z / T (m, K); votes that tied are a rounding apart, which a division may swallow: the winner stays it."""
        z = self._log_scores(self.estimator_, rows)
        return lift_winners(z / self.temperature_, z.argmax(axis=1))

    def _shares(self, rows: Any) -> NDArray[np.float64]:
        z = self._scores(rows)
        return lift_winners(softmax(z), z.argmax(axis=1))

    def _best_of_block(self, rows: Any, k: int) -> TopK:
        p = self._shares(rows)
        codes = best_columns(p, k)
        return TopK(codes, np.take_along_axis(p, codes, axis=1))

    def _answer_type(self, rows: Any) -> np.dtype:
        return np.dtype(np.float64)

    # ---- model files

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        facts: dict[str, Any] = {"losses": [self.log_loss_before_, self.log_loss_after_]}
        facts |= {"fit": asdict(self.temperature_fit_), "scores": asdict(self._log_scores)}
        arrays: dict[str, NDArray] = {}
        for when in ("before", "after"):
            shape = getattr(self, f"reliability_{when}_")
            if shape is not None:
                arrays |= {f"{when}.{field}": value for field, value in shape._asdict().items()}
        return facts, arrays

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.log_loss_before_, self.log_loss_after_ = facts["losses"]
        self.temperature_fit_ = TemperatureFit(**facts["fit"])
        self.temperature_ = self.temperature_fit_.temperature
        self._log_scores = LogScores(**facts["scores"])
        self.source_ = self._log_scores.source
        for when in ("before", "after"):
            kept = f"{when}.edges" in arrays
            shape = Reliability(*(arrays[f"{when}.{field}"] for field in Reliability._fields)) if kept else None
            setattr(self, f"reliability_{when}_", shape)


def scaled_by(
    model: Any, values: NDArray[np.float64], codes: NDArray[np.int64], source: str = LOGS
) -> TemperatureScaledClassifier:
    """A fitted model with the T that its probabilities, or scores, (m, K) of held-out rows, classes (m,), ask for."""
    scaled = TemperatureScaledClassifier(model, "prefit")
    scaled._adopt(model)
    scaled._scale_by(source, values, codes)
    return scaled


def _report(p: NDArray[np.float64], codes: NDArray[np.int64]) -> tuple[float, Reliability | None]:
    """Log loss and reliability of probabilities (m, K)."""
    if not len(p):
        return np.nan, None
    own = p[np.arange(len(p)), codes]
    return log_loss(own), reliability_of(p.max(axis=1), p.argmax(axis=1) == codes)


def _error(shape: Reliability | None) -> float:
    return np.nan if shape is None else shape.error


_WIDTH = 1e-9  # relative width of the final bracket: T to nine digits
_GROWTH, _MAX_GROWTHS = 4.0, 16  # factor between tries for a bracket; after 4^16 the slope is taken not to turn


@dataclass(frozen=True)
class TemperatureFit:
    """T, and a bracket of 1/T with the slopes of the loss at its ends: opposite signs prove the minimum."""

    temperature: float
    low: float
    high: float
    slope_low: float
    slope_high: float
    n_rows: int
    imagined_miss: bool = False  # no held-out row was wrong

    @property
    def certified(self) -> bool:
        """Whether the slopes have opposite signs."""
        return self.slope_low <= 0 <= self.slope_high


def best_temperature(z: NDArray[np.float64], codes: NDArray[np.int64], most_if_right: float = np.inf) -> TemperatureFit:
    """T that minimises the log loss of softmax(z / T) for z (m, K) and classes (m,)."""
    m = len(z)
    top = z.max(axis=1, initial=-np.inf)
    size = float(np.mean(top - z.mean(axis=1))) if m else 0.0
    if not size > 0:  # no rows, or no score above another: every T gives the same
        return TemperatureFit(1.0, 1.0, 1.0, 0.0, 0.0, m)
    own = z[np.arange(m), codes]
    imagined = bool(np.all(own >= top))
    target = own
    if imagined:
        target = own + (np.partition(z, -2, axis=1)[:, -2] - own) / (m + 2)  # (m,)

    def slope(b: float) -> float:
        return _slope(z, target, b)

    low, high, at_low, at_high = _narrow(slope, *_bracket(slope, 1 / size))
    found = at_low <= 0 <= at_high
    b = (low + high) / 2 if found else low  # no better than chance: the largest T looked at
    if imagined and 1 / b > most_if_right:
        b = 1 / most_if_right
        return TemperatureFit(most_if_right, b, np.inf, _slope(z, own, b), 0.0, m, imagined)
    return TemperatureFit(1 / b, low, high, at_low, at_high, m, imagined)


def _slope(z: NDArray[np.float64], target: NDArray[np.float64], b: float) -> float:
    """Return L'(b) for targets z_iy (m,)."""

    def part(rows: slice) -> float:
        block = z[rows]
        p = np.exp(b * (block - block.max(axis=1, keepdims=True)))
        p /= p.sum(axis=1, keepdims=True)
        return float(np.sum(np.einsum("ij,ij->i", p, block) - target[rows]))

    return sum(pmap(part, spans(len(z), max(1, HELD_ENTRIES // 8 // z.shape[1])))) / len(z)


def _bracket(slope: Callable[[float], float], start: float) -> tuple[float, float, float, float]:
    """Return (low, high, slope at low, slope at high) around the minimum, if there is one."""
    low = high = start
    at_low = at_high = slope(start)
    for _ in range(_MAX_GROWTHS):
        if at_low <= 0:
            break
        high, at_high = low, at_low
        low /= _GROWTH
        at_low = slope(low)
    for _ in range(_MAX_GROWTHS):
        if at_high >= 0:
            break
        low, at_low = high, at_high
        high *= _GROWTH
        at_high = slope(high)
    return low, high, at_low, at_high


def _narrow(
    slope: Callable[[float], float], low: float, high: float, at_low: float, at_high: float
) -> tuple[float, float, float, float]:
    """Return the narrowest bracket of _WIDTH around the root that Brent's method finds in this one."""
    if not at_low < 0 < at_high:
        return low, high, at_low, at_high
    from scipy.optimize import brentq

    root = brentq(slope, low, high, xtol=_WIDTH * low / 8, rtol=_WIDTH / 8)
    for end in (max(low, root * (1 - _WIDTH / 2)), min(high, root * (1 + _WIDTH / 2))):
        value = slope(end)
        if value <= 0 and end >= low:
            low, at_low = end, value
        if value >= 0 and end <= high:
            high, at_high = end, value
    return low, high, at_low, at_high
