"""OpenSetClassifier: "unknown" is an answer, and how often it is wrong about known rows is promised beforehand.

    s(x)        score of being known, higher is more known             (known_scores.py)
    t           the floor((m + 1) rate)-th smallest score of m held-out rows; -inf where m is too small
    predict     the estimator's label where s(x) >= t, else the unknown label      P(reject | known) <= rate, every m

The promise about known rows needs only exchangeability. About impostors nothing can be promised without knowing
them, so it is measured: on classes left out in turn (impostors.py), with an exact bound for impostors like those.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.base.classifier import on_own_threads
from kway.base.wrappers import DelegatedAnswers, prefixed, under
from kway.confidence import heldout, impostors
from kway.confidence.heldout import ROUNDING, ConfidenceWrapper, Given, Split
from kway.confidence.impostors import FalseAccepts, ImpostorTrial, Study, reject_threshold
from kway.confidence.known_scores import Scorer, candidates, check_score, make_scorers
from kway.errors import InputError
from kway.labels import Labels
from kway.parameters import between, check_parameters, whole
from kway.rows.row_blocks import rows_at
from kway.search.auto import restore

_INDEX = "index."
# where there are no impostors to choose by: energy and probabilities of linear models are high far away from all rows
_PREFERRED = ("distance", "energy", "max-probability", "margin")


@dataclass(frozen=True)
class OpenSetPromise:
    """What was promised about known rows and found about impostors; `str(promise)` is a sentence."""

    score: str
    false_rejects: float
    n_calibration: int
    threshold: float
    false_accepts: FalseAccepts | None  # None: no class could be left out

    @property
    def least_rows(self) -> int:
        """Held-out rows from which on anything can be rejected at this rate."""
        return math.ceil(1 / self.false_rejects - 1 - ROUNDING)

    def __str__(self) -> str:
        said = (
            f"at most {self.false_rejects:.4g} of new known rows like the {self.n_calibration:,} held out are "
            f"rejected (score: {self.score})"
        )
        if self.threshold == -math.inf:
            said += f"; nothing is rejected, as fewer than {self.least_rows:,} rows were held out"
        return said if self.false_accepts is None else f"{said}; {self.false_accepts}"


class KnownVerdict(NamedTuple):
    """Why each row got its answer: (n,) each, and the threshold that the score of being known was held against."""

    labels: NDArray  # as `predict`
    candidates: NDArray  # the estimator's own answer
    known_scores: NDArray[np.float64]
    rejected: NDArray[np.bool_]
    threshold: float


class OpenSetClassifier(DelegatedAnswers, ConfidenceWrapper):
    """A classifier that may answer "unknown".

    Parameters
    ----------
    estimator : any classifier; None is `SoftmaxClassifier()`.
    unknown : the label of rejected rows. None: "unknown" for text labels; for numbers -1, or one below the smallest
        class where -1 is a class. Text goes with text, numbers with numbers. Rows of y that carry a label given here
        are no class: they serve as impostors, to choose the score by and to measure false accepts.
    score_by : "max-probability", "energy", "margin", "distance", "joint", or "auto": the best AUROC against impostors.
    false_rejects : the share of known rows that may be rejected, promised beforehand. Rejecting anything at all needs
        1 / false_rejects - 1 held-out rows.
    class_groups : groups of classes that are left out in turn to measure false accepts, one fit each; 0: none.
    cv : share of the rows held out to set the threshold, the estimator learns from the others; or [(learn, held)], row
        numbers, where new rows are less like the others than rows drawn at random; or "prefit": it was fitted on
        other rows, all rows given set the threshold, no class can be left out, and "auto" is the first score of
        distance, energy, max-probability, margin that the estimator can give.
    metric, n_neighbors : of the distance score, where the estimator has no `kneighbors` of its own.
    random_state : seed of what is held out and left out; None is 0.

    Attributes
    ----------
    classes_ (K,) the known classes, unknown_, score_, threshold_, promise_ (`str` is a sentence), false_accepts_ (what
    each score did against impostors, best first), estimator_. `predict` gives the dtype that holds classes and
    unknown label; probabilities, scores and top-k lists are about the known classes only.

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

    # ---- learning

    @on_own_threads
    def fit(self, X: Any, y: Any) -> OpenSetClassifier:
        """Learn the estimator and the score from a part of the rows, and the threshold from the rest."""
        self._check_parameters()
        self._forget()
        rows, every = self._given(X, y, *([] if self.unknown is None else [self._fitting_unknown()]))
        (X, labels), X_out, known = self._known(rows, every)
        n_out = int(np.count_nonzero(~known))
        rng = self._rng()
        reports: tuple[FalseAccepts, ...] = ()
        if self._is_prefit():
            self._adopt(self._prefit())
            X_in, held = None, np.arange(len(labels.codes))
        else:
            learn, held = split = self._split(Given(rows, every), labels.codes, known, rng)
            heldout.check_learned(labels.codes, split, labels.classes)
            X_in, own = rows_at(X, learn), Labels(labels.classes, labels.codes[learn])
            self._adopt(self._learn(X_in, own))
            reports = self._study(Given(X_in, own), X_out, n_out, rng)
        self.false_accepts_ = reports
        (self._scorer,) = self._bind([self._chosen(X_in)], self.estimator_, X_in)
        self.score_ = self._scorer.name
        scores = self._scorer(rows_at(X, held)) if len(held) else np.empty(0)
        self.threshold_ = reject_threshold(scores, self.false_rejects)
        if self._is_prefit() and n_out:
            self.false_accepts_ = (self._measured(scores, self._scorer(X_out)),)
        found = next((report for report in self.false_accepts_ if report.score == self.score_), None)
        self.promise_ = OpenSetPromise(self.score_, float(self.false_rejects), len(held), self.threshold_, found)
        return self

    def _check_parameters(self) -> None:
        heldout.check_cv(self.cv, folds=False)
        check_score(self.score_by)
        check_parameters(self, false_rejects=between(0, 1), class_groups=whole(0), n_neighbors=whole(1))

    def _fitting_unknown(self) -> Any:
        """The unknown label given, checked against the classes of an estimator that is fitted already."""
        if not self._is_prefit():
            return self.unknown
        classes = np.asarray(self._prefit().classes_)
        label = pick_unknown(self.unknown, classes)
        if (classes == label).any():
            raise InputError(f"unknown={label!r} is one of the classes that the fitted estimator knows; give another")
        return label

    def _known(self, X: Any, labels: Labels) -> tuple[Given, Any, NDArray[np.bool_]]:
        """Rows of known classes with their labels, rows that carry the unknown label, and which rows are known (n,)."""
        self.unknown_ = pick_unknown(self.unknown, labels.classes)
        code = np.flatnonzero(labels.classes == self.unknown_)
        if not len(code):
            return Given(X, labels), None, np.ones(len(labels.codes), bool)
        out = labels.codes == code[0]
        codes = labels.codes[~out]
        known = Labels(np.delete(labels.classes, code[0]), codes - (codes > code[0]))
        given = Given(rows_at(X, np.flatnonzero(~out)), known)
        return given, rows_at(X, np.flatnonzero(out)), ~out

    def _split(self, every: Given, codes: NDArray[np.int64], known: NDArray[np.bool_], rng: Any) -> Split:
        """Known rows to learn from and held out; row numbers that were given count the unknown rows as well."""
        if not heldout.is_explicit(self.cv):
            return heldout.one_split(self.cv, None, codes, rng)
        split = heldout.one_split(self.cv, every.X, every.labels.codes, rng)
        place = np.cumsum(known) - 1
        return Split(*(place[rows[known[rows]]] for rows in split))

    def _study(self, given: Given, X_out: Any, n_out: int, rng: Any) -> tuple[FalseAccepts, ...]:
        """What each score does against impostors."""
        names = candidates(self.estimator_, given.X) if self.score_by == "auto" else [self.score_by]
        study = Study(given.X, given.labels, self._learn, self._bind, names, float(self.false_rejects), rng)
        return impostors.impostor_reports(study, int(self.class_groups), X_out, n_out, self.unknown_)

    def _measured(self, known: NDArray[np.float64], strangers: NDArray[np.float64]) -> FalseAccepts:
        """What the threshold itself does against rows labelled unknown."""
        trial = ImpostorTrial(known, strangers, np.full(len(strangers), self.unknown_), self.threshold_)
        return impostors.summary(self.score_, impostors.GIVEN, [trial], impostors.CONFIDENCE)

    def _chosen(self, X_in: Any) -> str:
        """The score asked for, the best against impostors, or, without any, the first that the estimator can give."""
        if self.score_by != "auto":
            return self.score_by
        if self.false_accepts_:
            return self.false_accepts_[0].score
        can = candidates(self.estimator_, X_in)
        if not can:
            raise InputError(f"{type(self.estimator_).__name__} has no scores, probabilities or neighbours to judge by")
        return next(name for name in _PREFERRED if name in can)

    def _bind(self, names: list[str], estimator: Any, X_in: Any) -> list[Scorer]:
        return make_scorers(names, estimator, X_in, self.metric, int(self.n_neighbors))

    # ---- answers

    @on_own_threads
    def known_score(self, X: Any) -> NDArray[np.float64]:
        """Score of being known (n,), higher is more known; `predict` rejects below `threshold_`."""
        return self._scorer(self._rows(X))

    def predict(self, X: Any) -> NDArray:
        """Labels (n,), the unknown label where the score of being known is below the threshold."""
        return self.explain(X).labels

    @on_own_threads
    def explain(self, X: Any) -> KnownVerdict:
        """The answers with the evidence: the estimator's own label, the score of being known, the threshold."""
        X = self._rows(X)
        own = np.asarray(self.estimator_.predict(X))
        scores = self._scorer(X)
        rejected = scores < self.threshold_
        labels = own.astype(_common_dtype(self.classes_, self.unknown_))
        labels[rejected] = self.unknown_
        return KnownVerdict(labels, own, scores, rejected, self.threshold_)

    # ---- model files

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        reports = [asdict(report) for report in self.false_accepts_]
        facts: dict[str, Any] = {"unknown": self.unknown_, "promise": asdict(self.promise_), "reports": reports}
        if self._scorer.index is None:
            return facts | {"index": None}, {}
        index, arrays = self._scorer.index.parts()
        return facts | {"index": index, "spreads": self._scorer.spreads}, prefixed(_INDEX, arrays)

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.unknown_ = facts["unknown"]
        self.false_accepts_ = tuple(FalseAccepts(**report) for report in facts["reports"])
        promise = dict(facts["promise"])
        found = promise.pop("false_accepts")
        self.promise_ = OpenSetPromise(**promise, false_accepts=found and FalseAccepts(**found))
        self.score_, self.threshold_ = self.promise_.score, self.promise_.threshold
        self._scorer = Scorer(self.score_, self.estimator_, None, int(self.n_neighbors))
        if facts["index"] is not None:
            index, spreads = restore(facts["index"], under(_INDEX, arrays)), tuple(facts["spreads"])
            self._scorer = replace(self._scorer, index=index, spreads=spreads)


def pick_unknown(unknown: Any, classes: NDArray) -> Any:
    """The label of rejected rows: the one given, if it goes with the classes, else one that is none of them.

    >>> [pick_unknown(None, np.array(classes)) for classes in (["a", "b"], [0, 1], [-1, 1])]
    ['unknown', -1, -2]
    """
    text = classes.dtype.kind in "UO" and all(isinstance(label, str) for label in classes[:1])
    if unknown is not None:
        whole = classes.dtype.kind in "iu"
        if isinstance(unknown, str) != text or (whole and _common_dtype(classes, unknown).kind not in "iu"):
            kind = "text" if text else f"of dtype {classes.dtype}"
            raise InputError(f"unknown={unknown!r} does not go with labels that are {kind}; give one of that kind")
        return unknown.item() if isinstance(unknown, np.generic) else unknown
    if not text:
        return _free_number(classes)
    free = "unknown"
    while (classes == free).any():
        free += "_"
    return free


def _free_number(classes: NDArray) -> int:
    """A whole number that is no class, and that a type of the classes' kind holds beside them."""
    if classes.dtype.kind not in "biuf":
        raise InputError(f"labels of dtype {classes.dtype} leave no label for unknown rows; convert them to text")
    ends = (int(classes.min()) - 1, int(classes.max()) + 1) if len(classes) else ()
    room = np.iinfo(np.uint64 if classes.dtype == np.uint64 else np.int64)
    for free in (-1, *ends):
        if room.min <= free <= room.max and not (classes == free).any():
            return free
    raise InputError("labels up to both ends of their type leave none for unknown rows; convert them to text")


def _common_dtype(classes: NDArray, unknown: Any) -> np.dtype:
    """A dtype that holds the classes and the unknown label."""
    return np.dtype(object) if classes.dtype == object else np.result_type(classes.dtype, np.min_scalar_type(unknown))
