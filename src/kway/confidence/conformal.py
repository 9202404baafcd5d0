"""Conformal prediction: sets of labels that contain the correct label with a guaranteed probability.

    s_i   nonconformity score of the true label of held-out row i, i = 1..m
    q     the ceil((m + 1) coverage)-th smallest s_i; infinite if m is too small for that
    set   {c : s_c(x) <= q}                                                P(y in set) >= coverage, for every m

The guarantee only assumes that new rows are exchangeable with the held-out rows; the estimator may be wrong. It holds
on average over rows. With `per_class=True` each class has its own q, and the guarantee holds within each class.

Nonconformity scores; p are the probabilities of a row, largest first:

    LAC   s_c = 1 - p_c                                                    the smallest sets on average
    APS   s_c = sum of p_j > p_c  +  u * sum of p_j = p_c,  u ~ U(0, 1)    larger sets for difficult rows

u is drawn once per row. Classes of equal probability (votes of neighbors) have the same score, so their order in the
list does not matter. Both scores work on lists (q, k) of the best classes. k doubles for the rows whose set is not
complete yet, and rows are handled in blocks, so an n x K table is never built.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.base.class_rows import best_of_table
from kway.base.classifier import on_own_threads
from kway.base.wrappers import DelegatedAnswers
from kway.confidence import splits
from kway.confidence.splits import COUNT_TOLERANCE, ConfidenceWrapper
from kway.errors import CombinationError, InputError
from kway.labels import encode_as
from kway.memory import check_answer
from kway.parameters import YES_OR_NO, between, check_parameters, checked_rng
from kway.rows.blocks import count_rows, take_rows
from kway.text_tables import Printed, Table, first_rows
from kway.threads import spans

_FIRST_LIST = 8  # classes per row in the first lists: most sets are shorter (test_conformal)


@dataclass(frozen=True)
class CoverageGuarantee:
    """The guarantee of a `ConformalClassifier`; `str()` puts it into words.

    Parameters
    ----------
    coverage : float
        Guaranteed probability that a set contains the correct label.
    method : str
        "lac" or "aps".
    per_class : bool
        Whether the guarantee holds for the rows of each class.
    n_calibration : int
        Number of held-out rows.
    n_short : int
        Number of classes with too few held-out rows; they are in every set.
    n_classes : int
        Number of classes.
    n_full : int, default=0
        Number of classes that are in every set, even at probability 0.
    n_zero : int, default=0
        Number of held-out rows whose correct label had probability 0.
    """

    coverage: float
    method: str
    per_class: bool
    n_calibration: int
    n_short: int
    n_classes: int
    n_full: int = 0
    n_zero: int = 0

    @property
    def least_rows(self) -> int:
        """Number of held-out rows (per class if `per_class`) from which on a class can be left out of a set."""
        return math.ceil(self.coverage / (1 - self.coverage) - COUNT_TOLERANCE)

    @property
    def vague(self) -> bool:
        """Whether some classes are in every set."""
        return self.n_short + self.n_full > 0

    def __str__(self) -> str:
        rows = "rows of each class" if self.per_class else "rows"
        text = (
            f"sets contain the correct label of at least {self.coverage:.4g} of new {rows} like the "
            f"{self.n_calibration:,} held out ({self.method.upper()})"
        )
        if self.n_short:
            text += (
                f"; {self._which(self.n_short)} in every set, because fewer than {self.least_rows:,} rows"
                f"{' of each' if self.per_class else ''} were held out: pass more rows, hold out more of them (cv), "
                "or choose a lower coverage"
            )
        if self.n_full:
            text += (
                f"; {self._which(self.n_full)} in every set, because {self.n_zero:,} of the held-out rows have a label "
                "of probability 0, which neighbors give to every class without a vote: use more neighbors, an "
                "estimator without zero probabilities (softmax, centroids), or a lower coverage"
            )
        return text

    def _which(self, count: int) -> str:
        return "every class is" if count == self.n_classes else f"{count:,} classes are"


class ConformalClassifier(DelegatedAnswers, ConfidenceWrapper):
    """Prediction sets with a coverage guarantee, for any classifier with probabilities.

    `predict`, `predict_proba` and `predict_topk` are those of the estimator; `predict_set` returns the sets.

    Parameters
    ----------
    estimator : classifier, default=None
        Any classifier with `predict_proba`; None means `SoftmaxClassifier()`.
    coverage : float, default=0.9
        Guaranteed probability that a set contains the correct label, between 0 and 1. This needs at least
        coverage / (1 - coverage) held-out rows, such as 9 rows for 0.9, 19 for 0.95 and 99 for 0.99 (of each class if
        `per_class`). With fewer rows, every set contains all classes.
    method : {"lac", "aps"}, default="lac"
        "lac" gives the smallest sets on average; sets of "aps" grow with the difficulty of the row.
    per_class : bool, default=False
        Whether the guarantee holds for the rows of each class, not only on average over all rows.
    allow_empty : bool, default=True
        Whether a set may be empty; if not, it then contains the predicted label.
    cv : float, splitter, list of one pair or "prefit", default=0.2
        Share of the rows to hold out; the estimator is trained on the others. Or a splitter of scikit-learn with one
        split, or one pair [(train, calibration)] of row numbers, for new rows that differ from rows drawn at random.
        Pass "prefit" if the estimator is already fitted. All rows that are passed to `fit` are then held-out rows, so
        the estimator must have been fitted on other rows.
    random_state : int, RandomState or None, default=None
        Seed of the held-out rows (None means 0), and of the numbers u of APS in `predict_set`, where None
        draws new numbers in each call. A seed repeats the same numbers, so rows that are passed one by one all get the
        same u.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    thresholds_ : ndarray of shape (n_classes,)
        The threshold q of each class.
    guarantee_ : CoverageGuarantee
        The guarantee. `print(model.guarantee_)` prints it as a sentence, with the number of held-out rows, and states
        whether they were too few.

    References
    ----------
    Vovk, Gammerman and Shafer (2005), "Algorithmic learning in a random world".
    LAC: Sadinle, Lei and Wasserman (2019), "Least ambiguous set-valued classifiers with bounded error levels".
    APS: Romano, Sesia and Candes (2020), "Classification with valid and adaptive coverage".

    Examples
    --------
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
    def fit(self, X: Any, y: Any, **params: Any) -> ConformalClassifier:
        """Fit the estimator on a part of the rows, and compute the thresholds on the others.

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
        self : ConformalClassifier
            The fitted model.
        """
        self._check_parameters()
        self._forget()
        rng = self._rng()
        held_out = self._fit_and_hold_out(self._check_rows(X, y, params), rng)
        codes = held_out.labels.codes
        scores = self._label_scores(held_out.X, codes, rng) if len(codes) else np.empty(0)
        self.thresholds_ = self._thresholds(scores, codes)
        n_short = int(np.count_nonzero(np.isinf(self.thresholds_)))
        self.guarantee_ = CoverageGuarantee(
            float(self.coverage),
            self.method,
            bool(self.per_class),
            n_calibration=len(codes),
            n_short=n_short,
            n_classes=len(self.classes_),
            n_full=int(np.count_nonzero(self.thresholds_ >= 1.0)) - n_short,  # 1 is the score of probability 0
            n_zero=int(np.count_nonzero(scores >= 1.0)),
        )
        return self

    def _check_parameters(self) -> None:
        splits.check_cv(self.cv, folds=False)
        pick_method(self.method)
        check_parameters(self, coverage=between(0, 1), per_class=YES_OR_NO, allow_empty=YES_OR_NO)
        check_probabilities(self._unfitted())

    def _label_scores(self, X: Any, codes: NDArray[np.int64], rng: Any) -> NDArray[np.float64]:
        """Return the nonconformity of the true labels (m,), from lists of classes that grow until they contain them."""
        score, u = pick_method(self.method), rng.uniform(size=len(codes))
        nonconformity = np.full(len(codes), np.nan)

        def decide(rows: NDArray[np.int64], lists: RankedClasses) -> NDArray[np.bool_]:
            scores = score(lists, u[rows]).scores
            is_true = (lists.codes == codes[rows, None]) & ~np.isnan(scores)
            decided = is_true.any(axis=1)
            nonconformity[rows] = np.where(decided, scores[np.arange(len(rows)), is_true.argmax(axis=1)], np.nan)
            return decided

        rank_until_decided(self.estimator_, X, decide)
        return np.where(np.isnan(nonconformity), np.inf, nonconformity)

    def _thresholds(self, scores: NDArray[np.float64], codes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the threshold q of each class (K,)."""
        n_classes = len(self.classes_)
        if not self.per_class:
            return np.full(n_classes, conformal_quantile(scores, self.coverage))
        order = np.argsort(codes, kind="stable")
        parts = np.split(scores[order], np.cumsum(np.bincount(codes, minlength=n_classes))[:-1])
        return np.array([conformal_quantile(part, self.coverage) for part in parts])

    @on_own_threads
    def predict_set(self, X: Any) -> PredictionSets:
        """Return the set of labels of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever the estimator accepts
            Rows.

        Returns
        -------
        sets : PredictionSets
            One set per row; labels within a set are sorted by probability, the largest first.
        """
        X = self._rows(X)
        n = count_rows(X)
        score, u = pick_method(self.method), checked_rng(self.random_state).uniform(size=n)
        always = np.flatnonzero(np.isinf(self.thresholds_))
        if self.guarantee_.vague:
            warnings.warn(f"predict_set: {self.guarantee_}", UserWarning, stacklevel=3)  # names the line of the caller
        check_answer(n, len(always), 8, "predict_set")
        limits = np.where(np.isinf(self.thresholds_), -np.inf, self.thresholds_)
        highest = limits.max()
        set_rows, set_codes = [], []

        def decide(rows: NDArray[np.int64], lists: RankedClasses) -> NDArray[np.bool_]:
            scores, min_next = score(lists, u[rows])
            decided = min_next > highest
            in_set = (scores <= limits[lists.codes]) & decided[:, None]  # false for NaN
            i, j = np.nonzero(in_set)
            set_rows.append(rows[i])
            set_codes.append(lists.codes[i, j])
            return decided

        if len(always) < len(limits):
            rank_until_decided(self.estimator_, X, decide)
        set_rows.append(np.repeat(np.arange(n), len(always)))
        set_codes.append(np.tile(always, n))
        if not self.allow_empty:
            empty = np.setdiff1d(np.arange(n), np.concatenate(set_rows))
            set_rows.append(empty)
            set_codes.append(self._winners(X, empty))
        return collect_sets(set_rows, set_codes, n, self.classes_)

    def _winners(self, X: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        if not len(rows):
            return rows
        return encode_as(self.predict(take_rows(X, rows)), self.classes_)

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {"guarantee": asdict(self.guarantee_)}, {"thresholds": self.thresholds_}

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.guarantee_ = CoverageGuarantee(**facts["guarantee"])
        self.thresholds_ = arrays["thresholds"]


def check_probabilities(estimator: Any) -> None:
    """Raise CombinationError if the estimator has no probabilities, which prediction sets need."""
    if not hasattr(estimator, "predict_proba"):
        raise CombinationError(
            f"{type(estimator).__name__} has no predict_proba, which prediction sets need; wrap it: "
            "TemperatureScaledClassifier(estimator)"
        )


def conformal_quantile(scores: NDArray[np.float64], coverage: float) -> float:
    """Return the ceil((m + 1) coverage)-th smallest of m scores.

    A new score is above it with a probability of at most 1 - coverage.

    >>> conformal_quantile(np.arange(9.0), 0.9), conformal_quantile(np.arange(8.0), 0.9)
    (8.0, inf)
    """
    rank = math.ceil((len(scores) + 1) * coverage - COUNT_TOLERANCE)
    return float(np.partition(scores, rank - 1)[rank - 1]) if rank <= len(scores) else math.inf


# ---- ranked lists of classes


class RankedClasses(NamedTuple):
    """codes (q, k) int64 and their probabilities (q, k), best first; `whole`: whether k is the number of classes."""

    codes: NDArray[np.int64]
    probabilities: NDArray[np.float64]
    whole: bool


Decide = Callable[[NDArray[np.int64], RankedClasses], NDArray[np.bool_]]


def rank_classes(estimator: Any, X: Any, k: int) -> RankedClasses:
    """Return the k most probable classes of each row."""
    classes = estimator.classes_
    if hasattr(estimator, "predict_topk"):
        labels, scores = estimator.predict_topk(X, k)
        codes = np.searchsorted(classes, labels).astype(np.int64, copy=False)
        return RankedClasses(codes, np.asarray(scores, np.float64), k == len(classes))
    best = best_of_table(np.asarray(estimator.predict_proba(X), np.float64), k)
    return RankedClasses(*best, k == len(classes))


def rank_until_decided(estimator: Any, X: Any, decide: Decide) -> None:
    """Call `decide(rows, lists)` with longer and longer lists, until it has returned True for every row.

    The last list contains every class.
    """
    width = len(estimator.classes_)
    k = min(_FIRST_LIST, width) if hasattr(estimator, "predict_topk") else width  # predict_proba computes all anyway
    n = count_rows(X)
    waiting = np.arange(n)
    while len(waiting):
        left = []
        for part in spans(len(waiting), splits.table_rows(k)):
            rows = waiting[part]
            block = X if len(rows) == n else take_rows(X, rows)
            done = decide(rows, rank_classes(estimator, block, k))
            left.append(rows[~done])
        if k == width:
            return
        waiting, k = np.concatenate(left), min(2 * k, width)


# ---- the sets


@dataclass(frozen=True, eq=False, repr=False)
class PredictionSets(Printed):
    """Sets of labels, one per row. They can be indexed and iterated like a list of arrays.

    Parameters
    ----------
    indptr : ndarray of shape (n + 1,), int64
        The labels of row i are ids[indptr[i]:indptr[i + 1]].
    ids : ndarray of shape (m,)
        Labels of all sets, one set after another.

    Examples
    --------
    >>> sets = PredictionSets(np.array([0, 1, 3]), np.array(["a", "b", "a"]))
    >>> sets.to_lists(), sets.sizes.tolist(), sets.covers(["b", "b"]).tolist()
    ([['a'], ['b', 'a']], [1, 2], [False, True])
    """

    indptr: NDArray[np.int64]
    ids: NDArray

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> NDArray:
        if not -len(self) <= row < len(self):
            raise IndexError(f"row {row} of {len(self)} sets")
        row %= len(self)
        return self.ids[self.indptr[row] : self.indptr[row + 1]]

    def __iter__(self) -> Iterator[NDArray]:
        return (self[row] for row in range(len(self)))

    def _table(self) -> Table:
        sizes = self.sizes
        mean = f", {sizes.mean():.2f} labels on average, {int((sizes == 0).sum()):,} empty" if len(self) else ""
        listed = lambda i: (str(sizes[i]), ", ".join(map(str, self[i].tolist())) or "–")  # noqa: E731
        return first_rows(f"PredictionSets: {len(self):,} rows{mean}", len(self), ("size", "labels"), listed)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of labels of each set (n,)."""
        return np.diff(self.indptr)

    def covers(self, y: ArrayLike) -> NDArray[np.bool_]:
        """Return whether each set contains the label of its row.

        Parameters
        ----------
        y : array-like of shape (n,)
            One label per set.

        Returns
        -------
        covered : ndarray of shape (n,), bool
            True if the label is in the set.
        """
        labels = np.asarray(y)
        if labels.shape != (len(self),):
            raise InputError(f"covers takes one label per set: there are {len(self)} sets, y has shape {labels.shape}")
        row = np.repeat(np.arange(len(self)), self.sizes)  # (m,)
        return np.bincount(row, self.ids == labels[row], minlength=len(self)) > 0

    def to_lists(self) -> list[list[Any]]:
        """Return the labels of each set as a list.

        Returns
        -------
        lists : list of list
            One list per row.
        """
        return [labels.tolist() for labels in self]


def collect_sets(
    rows: list[NDArray[np.int64]], codes: list[NDArray[np.int64]], n: int, classes: NDArray
) -> PredictionSets:
    """Return sets from pieces: class codes[i] belong to rows[i]; the order within a row is that of the pieces."""
    row = np.concatenate([np.empty(0, np.int64), *rows])
    code = np.concatenate([np.empty(0, np.int64), *codes])
    order = np.argsort(row, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=n))]).astype(np.int64)
    return PredictionSets(indptr, classes[code[order]])


# ---- nonconformity scores


class Nonconformity(NamedTuple):
    """Scores (q, k) of the listed classes, and the least score (q,) that any other class can have."""

    scores: NDArray[np.float64]
    least: NDArray[np.float64]


def lac_scores(lists: RankedClasses, u: NDArray[np.float64]) -> Nonconformity:
    """Return 1 - p_c; classes outside the list are no more probable than the last one."""
    scores = 1.0 - lists.probabilities
    return Nonconformity(scores, np.full(len(scores), np.inf) if lists.whole else scores[:, -1])


def aps_scores(lists: RankedClasses, u: NDArray[np.float64]) -> Nonconformity:
    """Return the total probability of the more probable classes, plus a random share u of the class's own.

    Classes that tie with the last of the list may continue beyond it; their scores are NaN.
    """
    p = lists.probabilities  # (q, k)
    column = np.arange(p.shape[1])
    falls = np.diff(p, axis=1) < 0  # (q, k - 1)
    edge = np.ones((len(p), 1), bool)
    starts = np.maximum.accumulate(np.where(np.hstack([edge, falls]), column, 0), axis=1)
    ends = np.where(np.hstack([falls, edge]), column, p.shape[1])[:, ::-1]
    ends = np.minimum.accumulate(ends, axis=1)[:, ::-1]
    total = np.cumsum(p, axis=1)
    before = np.take_along_axis(total - p, starts, axis=1)
    through = np.take_along_axis(total, ends, axis=1)
    scores = np.minimum(before + u[:, None] * (through - before), 1.0)
    scores[p <= 0] = 1.0  # all probability lies before them: exactly, whatever the sum was rounded to
    if lists.whole:
        return Nonconformity(scores, np.full(len(p), np.inf))
    least = np.where(p[:, -1] <= 0, 1.0, before[:, -1])
    return Nonconformity(np.where(starts == starts[:, -1:], np.nan, scores), least)


METHODS: dict[str, Callable[[RankedClasses, NDArray[np.float64]], Nonconformity]] = {
    "lac": lac_scores,
    "aps": aps_scores,
}


def pick_method(method: str) -> Callable[[RankedClasses, NDArray[np.float64]], Nonconformity]:
    """Return the nonconformity score of this name."""
    if not isinstance(method, str) or method not in METHODS:
        raise InputError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    return METHODS[method]
