"""Open-set classification: the prediction "unknown", with a guaranteed rate of false rejects.

    s(x)        known score: higher for rows that are more like the training rows (known_scores.py)
    t           the floor((m + 1) rate)-th smallest score of m held-out rows; -inf if m is too small
    predict     the estimator's label if s(x) >= t, else the unknown label      P(reject | known) <= rate, every m

The guarantee about known rows only needs exchangeability. Nothing can be guaranteed about unknown rows in general, so
false accepts are measured on classes that are left out in turn (impostors.py), with an exact bound for such rows.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.base.classifier import on_own_threads
from kway.base.wrappers import DelegatedAnswers, add_prefix, remove_prefix
from kway.confidence import impostors, splits
from kway.confidence.impostors import FalseAccepts, ImpostorStudy, ImpostorTrial, reject_threshold
from kway.confidence.known_scores import Scorer, check_score, make_scorers, supported_scores
from kway.confidence.splits import COUNT_TOLERANCE, ConfidenceWrapper, LabeledRows, Split
from kway.errors import InputError
from kway.labels import Labels
from kway.parameters import between, check_parameters, whole
from kway.rows.blocks import take_rows
from kway.search.auto import restore

_INDEX = "index."  # prefix of the index's arrays in a model file
# the order of "auto" without impostors; energy and probabilities of linear models are high far from all training rows
_PREFERRED = ("distance", "energy", "max-probability", "margin")


@dataclass(frozen=True)
class OpenSetGuarantee:
    """The guarantee about known rows, and the result against impostors; `str()` describes both in a sentence.

    Parameters
    ----------
    score : str
        Name of the known score.
    false_rejects : float
        Guaranteed share of known rows that are rejected, at most.
    n_calibration : int
        Number of held-out rows.
    threshold : float
        Rows with a lower score are rejected.
    false_accepts : FalseAccepts or None
        The result against impostors; None if there were none.
    """

    score: str
    false_rejects: float
    n_calibration: int
    threshold: float
    false_accepts: FalseAccepts | None

    @property
    def least_rows(self) -> int:
        """Number of held-out rows from which on a row can be rejected at this rate."""
        return math.ceil(1 / self.false_rejects - 1 - COUNT_TOLERANCE)

    def __str__(self) -> str:
        text = (
            f"at most {self.false_rejects:.4g} of new known rows like the {self.n_calibration:,} held out are "
            f"rejected (score: {self.score})"
        )
        if self.threshold == -math.inf:
            text += f"; nothing is rejected, because fewer than {self.least_rows:,} rows were held out"
        return text if self.false_accepts is None else f"{text}; {self.false_accepts}"


class OpenSetExplanation(NamedTuple):
    """Why each row got its label: arrays (n,), and the threshold of the known score."""

    labels: NDArray  # of `predict`
    candidates: NDArray  # the estimator's own prediction
    known_scores: NDArray[np.float64]
    rejected: NDArray[np.bool_]
    threshold: float


class OpenSetClassifier(DelegatedAnswers, ConfidenceWrapper):
    """A classifier that may predict "unknown", with a guaranteed rate of false rejects.

    `predict` returns a dtype that holds the classes and the unknown label. Probabilities, scores and top-k lists are
    about the known classes only.

    Parameters
    ----------
    estimator : classifier, default=None
        Any classifier; None means `SoftmaxClassifier()`.
    unknown : label, default=None
        The label of rejected rows, text for text labels and a number for numbers. None means "unknown" for text; for
        numbers -1, or one below the smallest class if -1 is a class. Rows of y with the label given here are not a
        class: they are impostors, by which the score is chosen and false accepts are measured.
    score_by : str, default="auto"
        The known score: "max-probability", "energy", "margin", "distance", "joint", or "auto" for the one with the best
        AUROC against impostors.
    false_rejects : float, default=0.01
        The share of known rows that may be rejected. Rows can only be rejected if at least 1 / false_rejects - 1 rows
        are held out.
    class_groups : int, default=5
        Number of groups of classes that are left out in turn to measure false accepts, one fit each; 0 skips this.
    cv : float, splitter, list of one pair or "prefit", default=0.2
        Share of the rows to hold out for the threshold; the estimator is trained on the others. Or a splitter of
        scikit-learn with one split, or one pair [(train, calibration)] of row numbers. Pass "prefit" if the estimator
        is already fitted. All rows that are passed to `fit` are then held-out rows, so the estimator must have been
        fitted on other rows. In this case no class can be left out, and "auto" is the first of distance, energy,
        max-probability and margin that the estimator supports.
    metric : str or Metric, default="euclidean"
        Metric of the distance score, if the estimator has no `kneighbors`.
    n_neighbors : int, default=5
        Number of training rows of the distance score.
    random_state : int, RandomState or None, default=None
        Seed of the held-out rows and of the classes left out; None means 0.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    classes_ : ndarray of shape (n_classes,)
        The known classes, sorted.
    unknown_ : label
        The label of rejected rows.
    score_ : str
        Name of the known score.
    threshold_ : float
        Rows with a lower score are rejected.
    guarantee_ : OpenSetGuarantee
        The guarantee. `print(model.guarantee_)` prints it as a sentence: the largest share of rows of known classes
        that are rejected, the number of held-out rows, and the measured false accepts.
    false_accepts_ : tuple of FalseAccepts
        The result of each score against impostors, the best first.

    References
    ----------
    Energy: Liu, Wang, Owens and Li (2020), "Energy-based out-of-distribution detection", NeurIPS.
    Distance: Sun, Ming, Zhu and Li (2022), "Out-of-distribution detection with deep nearest neighbors", ICML.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = OpenSetClassifier(score_by="distance", false_rejects=0.05, random_state=0).fit(X, y)
    >>> model.predict([[5.1, 3.5, 1.4, 0.2], [50.0, 0.0, 0.0, 50.0]])
    array([ 0, -1])
    """

    false_accepts_: tuple[FalseAccepts, ...]

    def __init__(
        self,
        estimator: Any = None,
        unknown: Any = None,
        score_by: str = "auto",
        false_rejects: float = 0.01,
        class_groups: int = 5,
        cv: Any = 0.2,
        metric: Any = "euclidean",
        n_neighbors: int = 5,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.unknown = unknown
        self.score_by = score_by
        self.false_rejects = false_rejects
        self.class_groups = class_groups
        self.cv = cv
        self.metric = metric
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    @on_own_threads
    def fit(self, X: Any, y: Any, **params: Any) -> OpenSetClassifier:
        """Fit the estimator and the score on a part of the rows, and compute the threshold on the others.

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
        self : OpenSetClassifier
            The fitted model.
        """
        self._check_parameters()
        self._forget()
        all_rows = self._check_rows(X, y, params, *([] if self.unknown is None else [self._checked_unknown()]))
        known_rows, X_unknown, is_known = self._separate_unknown(all_rows)
        X, labels, _ = known_rows
        n_unknown = int(np.count_nonzero(~is_known))
        rng = self._rng()
        self.false_accepts_ = ()
        if self._is_prefit():
            self._adopt(self._prefit())
            X_train, held_out = None, np.arange(len(labels.codes))
        else:
            train, held_out = split = self._split(all_rows, labels.codes, is_known, rng)
            splits.check_classes_in_training(labels.codes, split, labels.classes)
            train_rows = known_rows.take(train)
            X_train = train_rows.X
            self._adopt(self._fit_copy(train_rows))
            self.false_accepts_ = self._study(train_rows, X_unknown, n_unknown, rng)
        (self._scorer,) = self._bind([self._choose_score(X_train)], self.estimator_, X_train)
        self.score_ = self._scorer.name
        scores = self._scorer(take_rows(X, held_out)) if len(held_out) else np.empty(0)
        self.threshold_ = reject_threshold(scores, self.false_rejects)
        if self._is_prefit() and n_unknown:
            self.false_accepts_ = (self._measure(scores, self._scorer(X_unknown)),)
        report = next((report for report in self.false_accepts_ if report.score == self.score_), None)
        rate = float(self.false_rejects)
        self.guarantee_ = OpenSetGuarantee(self.score_, rate, len(held_out), self.threshold_, report)
        return self

    def _check_parameters(self) -> None:
        splits.check_cv(self.cv, folds=False)
        check_score(self.score_by)
        check_parameters(self, false_rejects=between(0, 1), class_groups=whole(0), n_neighbors=whole(1))

    def _checked_unknown(self) -> Any:
        """Return the given unknown label; raise InputError if it is a class of a prefit estimator."""
        if not self._is_prefit():
            return self.unknown
        classes = np.asarray(self._prefit().classes_)
        label = pick_unknown(self.unknown, classes)
        if (classes == label).any():
            raise InputError(f"unknown={label!r} is a class of the fitted estimator; choose another label")
        return label

    def _separate_unknown(self, all_rows: LabeledRows) -> tuple[LabeledRows, Any, NDArray[np.bool_]]:
        """Return the rows of known classes, the rows labeled unknown, and the mask (n,) of the known rows."""
        labels = all_rows.labels
        self.unknown_ = pick_unknown(self.unknown, labels.classes)
        code = np.flatnonzero(labels.classes == self.unknown_)
        if not len(code):
            return all_rows, None, np.ones(len(labels.codes), bool)
        is_unknown = labels.codes == code[0]
        codes = labels.codes[~is_unknown]
        known_labels = Labels(np.delete(labels.classes, code[0]), codes - (codes > code[0]))
        known_rows = all_rows.take(np.flatnonzero(~is_unknown))._replace(labels=known_labels)
        return known_rows, take_rows(all_rows.X, np.flatnonzero(is_unknown)), ~is_unknown

    def _split(self, all_rows: LabeledRows, codes: NDArray[np.int64], is_known: NDArray[np.bool_], rng: Any) -> Split:
        """Return training and held-out positions among the known rows.

        Row numbers that the user gave in `cv` count the unknown rows too, so they are translated.
        """
        if not splits.is_explicit(self.cv):
            return splits.make_one_split(self.cv, None, codes, rng)
        split = splits.make_one_split(self.cv, all_rows.X, all_rows.labels.codes, rng)
        position = np.cumsum(is_known) - 1
        return Split(*(position[rows[is_known[rows]]] for rows in split))

    def _study(self, rows: LabeledRows, X_out: Any, n_out: int, rng: Any) -> tuple[FalseAccepts, ...]:
        """Measure the false accepts of each score."""
        names = supported_scores(self.estimator_, rows.X) if self.score_by == "auto" else [self.score_by]
        study = ImpostorStudy(rows, self._fit_copy, self._bind, names, float(self.false_rejects), rng)
        return impostors.report_impostors(study, int(self.class_groups), X_out, n_out, self.unknown_)

    def _measure(self, known: NDArray[np.float64], unknown: NDArray[np.float64]) -> FalseAccepts:
        """Measure the threshold on rows that are labeled unknown."""
        trial = ImpostorTrial(known, unknown, np.full(len(unknown), self.unknown_), self.threshold_)
        return impostors.summarize(self.score_, impostors.LABELED, [trial], impostors.CONFIDENCE)

    def _choose_score(self, X_in: Any) -> str:
        """Return `score_by`; for "auto" the best score against impostors, or the preferred one without impostors."""
        if self.score_by != "auto":
            return self.score_by
        if self.false_accepts_:
            return self.false_accepts_[0].score
        supported = supported_scores(self.estimator_, X_in)
        if not supported:
            raise InputError(f"{type(self.estimator_).__name__} has no scores, probabilities or neighbors to score by")
        return next(name for name in _PREFERRED if name in supported)

    def _bind(self, names: list[str], estimator: Any, X_in: Any) -> list[Scorer]:
        return make_scorers(names, estimator, X_in, self.metric, int(self.n_neighbors))

    # ---- predictions

    @on_own_threads
    def known_score(self, X: Any) -> NDArray[np.float64]:
        """Return the known score of each row; `predict` rejects rows below `threshold_`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever the estimator accepts
            Rows.

        Returns
        -------
        scores : ndarray of shape (n_samples,), float64
            Higher for rows that are more like the training rows.
        """
        return self._scorer(self._rows(X))

    def predict(self, X: Any) -> NDArray:
        """Return the label of each row, the unknown label if its known score is below the threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever the estimator accepts
            Rows.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
            The labels.
        """
        return self.explain(X).labels

    @on_own_threads
    def explain(self, X: Any) -> OpenSetExplanation:
        """Return the labels together with the estimator's own labels, the known scores and the threshold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever the estimator accepts
            Rows.

        Returns
        -------
        explanation : OpenSetExplanation
            Named tuple of labels, candidates, known_scores, rejected (each of shape (n_samples,)) and threshold.
        """
        X = self._rows(X)
        own = np.asarray(self.estimator_.predict(X))
        scores = self._scorer(X)
        rejected = scores < self.threshold_
        labels = own.astype(_common_dtype(self.classes_, self.unknown_))
        labels[rejected] = self.unknown_
        return OpenSetExplanation(labels, own, scores, rejected, self.threshold_)

    # ---- model files

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        reports = [asdict(report) for report in self.false_accepts_]
        facts: dict[str, Any] = {"unknown": self.unknown_, "guarantee": asdict(self.guarantee_), "reports": reports}
        if self._scorer.index is None:
            return facts | {"index": None}, {}
        index, arrays = self._scorer.index.parts()
        return facts | {"index": index, "spreads": self._scorer.spreads}, add_prefix(_INDEX, arrays)

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.unknown_ = facts["unknown"]
        self.false_accepts_ = tuple(FalseAccepts(**report) for report in facts["reports"])
        guarantee = dict(facts["guarantee"])
        found = guarantee.pop("false_accepts")
        self.guarantee_ = OpenSetGuarantee(**guarantee, false_accepts=found and FalseAccepts(**found))
        self.score_, self.threshold_ = self.guarantee_.score, self.guarantee_.threshold
        self._scorer = Scorer(self.score_, self.estimator_, None, int(self.n_neighbors))
        if facts["index"] is not None:
            index, spreads = restore(facts["index"], remove_prefix(_INDEX, arrays)), tuple(facts["spreads"])
            self._scorer = replace(self._scorer, index=index, spreads=spreads)


def pick_unknown(unknown: Any, classes: NDArray) -> Any:
    """Return the label of rejected rows: the given one if its type fits the classes, else one that is not a class.

    >>> [pick_unknown(None, np.array(classes)) for classes in (["a", "b"], [0, 1], [-1, 1])]
    ['unknown', -1, -2]
    """
    text = classes.dtype.kind in "UO" and all(isinstance(label, str) for label in classes[:1])
    if unknown is not None:
        whole = classes.dtype.kind in "iu"
        if isinstance(unknown, str) != text or (whole and _common_dtype(classes, unknown).kind not in "iu"):
            kind = "text" if text else f"of dtype {classes.dtype}"
            raise InputError(f"unknown={unknown!r} does not fit labels that are {kind}; choose a label of that kind")
        return unknown.item() if isinstance(unknown, np.generic) else unknown
    if not text:
        return _free_number(classes)
    free = "unknown"
    while (classes == free).any():
        free += "_"
    return free


def _free_number(classes: NDArray) -> int:
    """Return an integer that is not a class and fits into the dtype of the classes."""
    if classes.dtype.kind not in "biuf":
        raise InputError(f"labels of dtype {classes.dtype} have no free label for unknown rows; convert them to text")
    ends = (int(classes.min()) - 1, int(classes.max()) + 1) if len(classes) else ()
    room = np.iinfo(np.uint64 if classes.dtype == np.uint64 else np.int64)
    for free in (-1, *ends):
        if room.min <= free <= room.max and not (classes == free).any():
            return free
    raise InputError("the labels use both ends of their dtype, so none is free for unknown rows; convert them to text")


def _common_dtype(classes: NDArray, unknown: Any) -> np.dtype:
    """Return a dtype that holds the classes and the unknown label."""
    return np.dtype(object) if classes.dtype == object else np.result_type(classes.dtype, np.min_scalar_type(unknown))
