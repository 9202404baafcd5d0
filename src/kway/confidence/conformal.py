"""ConformalClassifier: sets of labels that hold the right one with a probability promised beforehand.

    s_i   nonconformity of the true label of held-out row i, i = 1..m      (prediction_sets.py: LAC, APS)
    q     the ceil((m + 1) coverage)-th smallest s_i; infinite where m is too small for that
    set   {c : s_c(x) <= q}                                                P(y in set) >= coverage, for every m

The promise needs only that new rows are exchangeable with the held-out ones: no model is trusted. It is on average
over rows; `per_class=True` gives each class its own q, so that it holds for the rows of every class.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kway.base.classifier import on_own_threads
from kway.base.wrappers import DelegatedAnswers
from kway.confidence import heldout
from kway.confidence.heldout import ROUNDING, ConfidenceWrapper
from kway.confidence.prediction_sets import PredictionSets, Ranked, ask_until_settled, collect, pick_method
from kway.errors import CombinationError
from kway.labels import Labels, encode_as
from kway.memory import check_answer
from kway.parameters import YES_OR_NO, between, check_parameters, checked_rng
from kway.rows.row_blocks import n_rows, rows_at


@dataclass(frozen=True)
class CoveragePromise:
    """What was promised, on how many held-out rows; `str(promise)` is a sentence."""

    coverage: float
    method: str
    per_class: bool
    n_calibration: int
    n_short: int  # classes with too few held-out rows: they are in every set
    n_classes: int
    n_full: int = 0  # classes that belong even at probability 0
    n_zero: int = 0  # held-out rows whose own label had probability 0

    @property
    def least_rows(self) -> int:
        """Held-out rows (of a class, if promised a class) that the coverage needs before any class can be left out."""
        return math.ceil(self.coverage / (1 - self.coverage) - ROUNDING)

    def __str__(self) -> str:
        whom = "rows of each class" if self.per_class else "rows"
        said = (
            f"sets hold the right label of at least {self.coverage:.4g} of new {whom} like the "
            f"{self.n_calibration:,} held out ({self.method.upper()})"
        )
        if self.n_short:
            said += (
                f"; {self._which(self.n_short)} in every set, as fewer than {self.least_rows:,} rows"
                f"{' of each' if self.per_class else ''} were held out: give more rows, hold out "
                "more of them (cv), or ask for a lower coverage"
            )
        if self.n_full:
            said += (
                f"; {self._which(self.n_full)} in every set, as {self.n_zero:,} of the held-out rows have a label of "
                "probability 0, as neighbours give it to all classes without a vote: use more neighbours, an "
                "estimator that rules nothing out (softmax, centroids), or a lower coverage"
            )
        return said

    @property
    def vague(self) -> bool:
        """Whether some classes are in every set."""
        return self.n_short + self.n_full > 0

    def _which(self, count: int) -> str:
        return "every class is" if count == self.n_classes else f"{count:,} classes are"


class ConformalClassifier(DelegatedAnswers, ConfidenceWrapper):
    """Sets of labels with a coverage guarantee, around any classifier with probabilities.

    Parameters
    ----------
    estimator : any classifier with predict_proba; None is `SoftmaxClassifier()`.
    coverage : the probability, promised beforehand, that a set holds the right label.
    method : "lac" (small sets) or "aps" (sets that adapt to how hard a row is; randomised).
    per_class : promise the coverage for the rows of every class, not only on average.
    allow_empty : a set may be empty, where no class is plausible enough; if not, it then holds `predict`'s label.
    cv : share of the rows held out to calibrate, the estimator learns from the others (the promise would not hold for
        an estimator fitted again on all rows); or [(learn, held)], row numbers, where new rows are less like the
        others than rows drawn at random; or "prefit": it was fitted on other rows, all rows given calibrate.
    random_state : seed of the held-out rows (None is 0) and of the draws u of APS in `predict_set`, where None draws
        anew in each call; a seed repeats the same u, so rows asked for one by one would all get one.

    Attributes: `promise_` (its `str` is a sentence, and says so where too few rows were held out), `thresholds_` (K,),
    `estimator_`.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ConformalClassifier(coverage=0.9, random_state=0).fit(X, y)
    >>> model.predict_set(X[:2]).to_lists()
    [[0], [0]]
    """

    def __init__(
        self,
        estimator: Any = None,
        coverage: float = 0.9,
        method: str = "lac",
        per_class: bool = False,
        allow_empty: bool = True,
        cv: Any = 0.2,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.coverage = coverage
        self.method = method
        self.per_class = per_class
        self.allow_empty = allow_empty
        self.cv = cv
        self.random_state = random_state

    @on_own_threads
    def fit(self, X: Any, y: Any) -> ConformalClassifier:
        """Learn the estimator from a part of the rows, and the thresholds from the rest."""
        self._check_parameters()
        self._forget()
        X, labels = self._given(X, y)
        rng = self._rng()
        if self._is_prefit():
            self._adopt(self._prefit())
            held = np.arange(len(labels.codes))
        else:
            learn, held = split = heldout.one_split(self.cv, X, labels.codes, rng)
            heldout.check_learned(labels.codes, split, labels.classes)
            self._adopt(self._learn(rows_at(X, learn), Labels(labels.classes, labels.codes[learn])))
        codes = labels.codes[held]
        scores = self._label_scores(rows_at(X, held), codes, rng) if len(held) else np.empty(0)
        self.thresholds_ = self._thresholds(scores, codes)
        short = int(np.count_nonzero(np.isinf(self.thresholds_)))
        self.promise_ = CoveragePromise(
            float(self.coverage),
            self.method,
            bool(self.per_class),
            len(held),
            short,
            len(self.classes_),
            int(np.count_nonzero(self.thresholds_ >= 1.0)) - short,  # 1 is the score of probability 0
            int(np.count_nonzero(scores >= 1.0)),
        )
        return self

    def _check_parameters(self) -> None:
        heldout.check_cv(self.cv, folds=False)
        pick_method(self.method)
        check_parameters(self, coverage=between(0, 1), per_class=YES_OR_NO, allow_empty=YES_OR_NO)
        if not hasattr(self._unfitted(), "predict_proba"):
            raise CombinationError(
                f"{type(self._unfitted()).__name__} has no predict_proba, which prediction sets are made from; "
                "give it one: TemperatureScaledClassifier(estimator)"
            )

    def _label_scores(self, X: Any, codes: NDArray[np.int64], rng: Any) -> NDArray[np.float64]:
        """Nonconformity of the true labels (m,), from lists that grow until they hold it."""
        method, u = pick_method(self.method), rng.uniform(size=len(codes))
        found = np.full(len(codes), np.nan)

        def decide(rows: NDArray[np.int64], lists: Ranked) -> NDArray[np.bool_]:
            scores = method.of(lists, u[rows]).scores
            own = (lists.codes == codes[rows, None]) & ~np.isnan(scores)
            found[rows] = np.where(own.any(axis=1), scores[np.arange(len(rows)), own.argmax(axis=1)], np.nan)
            return own.any(axis=1)

        ask_until_settled(self.estimator_, X, decide)
        return np.where(np.isnan(found), np.inf, found)

    def _thresholds(self, scores: NDArray[np.float64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """q of each class (K,)."""
        width = len(self.classes_)
        if not self.per_class:
            return np.full(width, conformal_quantile(scores, self.coverage))
        order = np.argsort(codes, kind="stable")
        parts = np.split(scores[order], np.cumsum(np.bincount(codes, minlength=width))[:-1])
        return np.array([conformal_quantile(part, self.coverage) for part in parts])

    @on_own_threads
    def predict_set(self, X: Any) -> PredictionSets:
        """The set of labels of each row, from lists of the best classes that grow until the rest cannot belong."""
        X = self._rows(X)
        n = n_rows(X)
        method, u = pick_method(self.method), checked_rng(self.random_state).uniform(size=n)
        always = np.flatnonzero(np.isinf(self.thresholds_))
        if self.promise_.vague:
            warnings.warn(f"predict_set: {self.promise_}", UserWarning, stacklevel=3)  # behind on_own_threads
        check_answer(n, len(always), 8, "predict_set")
        limits = np.where(np.isinf(self.thresholds_), -np.inf, self.thresholds_)
        highest = limits.max()
        rows_of, codes_of = [], []

        def decide(rows: NDArray[np.int64], lists: Ranked) -> NDArray[np.bool_]:
            scores, least = method.of(lists, u[rows])
            done = least > highest
            inside = (scores <= limits[lists.codes]) & done[:, None]  # NaN is not inside
            place, column = np.nonzero(inside)
            rows_of.append(rows[place])
            codes_of.append(lists.codes[place, column])
            return done

        if len(always) < len(limits):
            ask_until_settled(self.estimator_, X, decide)
        rows_of.append(np.repeat(np.arange(n), len(always)))
        codes_of.append(np.tile(always, n))
        if not self.allow_empty:
            empty = np.setdiff1d(np.arange(n), np.concatenate(rows_of))
            rows_of.append(empty)
            codes_of.append(self._winners(X, empty))
        return collect(rows_of, codes_of, n, self.classes_)

    def _winners(self, X: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(rows):
            return rows
        return encode_as(self.predict(rows_at(X, rows)), self.classes_)

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {"promise": asdict(self.promise_)}, {"thresholds": self.thresholds_}

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.promise_ = CoveragePromise(**facts["promise"])
        self.thresholds_ = arrays["thresholds"]


def conformal_quantile(scores: NDArray[np.float64], coverage: float) -> float:
    """The ceil((m + 1) coverage)-th smallest of m scores: a new one is above it with chance 1 - coverage at most.

    >>> conformal_quantile(np.arange(9.0), 0.9), conformal_quantile(np.arange(8.0), 0.9)
    (8.0, inf)
    """
    rank = math.ceil((len(scores) + 1) * coverage - ROUNDING)
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else math.inf
