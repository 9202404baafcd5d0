"""BlendClassifier: several classifiers, pooled by a weighted product of their probabilities.

    log p_c(x) = sum_j w_j log p_jc(x) - log Z(x),    w_j >= 0                                    log-linear pool [1]_

p_jc is the probability of class c by member j, and Z normalizes the product. Each p_jc is raised to at least
MIN_PROBABILITY first, so that a single probability of 0 does not decide. The weights minimize the log loss of rows that
the members have not been trained on, plus a penalty that pulls them towards equal weights:

    L(w) = mean_i [ log Z_i - sum_j w_j log p_j,y_i ] + PULL |w - 1/m|^2
    dL/dw_j = mean_i [ E_p log p_j - log p_j,y_i ] + 2 PULL (w_j - 1/m)

L is convex. The sum of the weights is free: it is above 1 if the members are underconfident, and below 1 if they are
overconfident.

References
----------
.. [1] G. Hinton (2002), Training products of experts by minimizing contrastive divergence. Neural Computation.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.class_rows import lift_winners
from kway.base.classifier import Classifier, has_contributions, on_own_threads
from kway.base.contributions import Parts, background_sample, check_room, pick_scores, shapley
from kway.base.wrappers import PassesRowsOn, checked_classifier, pack_inside, unpack_inside
from kway.confidence.splits import (
    LabeledRows,
    Split,
    check_classes_in_training,
    check_cv,
    check_rows,
    make_splits,
    table_rows,
)
from kway.confidence.temperature import (
    LOGS,
    SCORES,
    TemperatureScaledClassifier,
    best_temperature,
    score_blocks,
    score_held_out,
)
from kway.errors import CombinationError, InputError
from kway.labels import refuse_one_class
from kway.measures import MIN_PROBABILITY
from kway.parameters import checked_rng
from kway.pipelines import FeaturedClassifier
from kway.probabilities import log_softmax, log_sum_exp, softmax
from kway.rows.blocks import ConvertedRows, ValidatedRows, take_rows
from kway.tables.features.features import Features
from kway.tables.sources.frames import as_table, is_table

PULL = 0.002  # weight of the penalty; from 0.0005 to 0.02, the scores of small tables hardly change
NEGLIGIBLE = 0.01  # smaller weights become 0: with p >= 1e-6, they change a log-probability by at most 0.14


class Member(NamedTuple):
    """The name of a member, and its unfitted estimator."""

    name: str
    estimator: Any


# ---- the weights


def learn_weights(
    probabilities: Sequence[NDArray], codes: NDArray[np.int64], sample_weight: NDArray | None = None
) -> NDArray[np.float64]:
    """Return the weights (m,) of members from their probabilities (n, K) for rows that they were not trained on.

    Weights below NEGLIGIBLE become 0. The weights of the other members are then learned again, with NEGLIGIBLE as lower
    bound. If no member is better than equal probabilities for all classes, the weights are small. If all are below
    NEGLIGIBLE, the largest one is kept and becomes NEGLIGIBLE or more. Without rows of positive weight, all weights are
    equal. If the probabilities take more than a block of memory, the weights are learned on a sample of these rows.
    """
    weighted = np.arange(len(codes)) if sample_weight is None else np.flatnonzero(sample_weight)
    if not len(weighted):
        return np.full(len(probabilities), 1 / len(probabilities))
    max_rows = table_rows(len(probabilities) * probabilities[0].shape[1])
    rows = np.sort(np.random.default_rng(0).permutation(weighted)[:max_rows])
    logs, codes = np.stack([log_probabilities(p[rows]) for p in probabilities]), codes[rows]  # (m, n, K)
    share = np.ones(len(codes)) if sample_weight is None else np.asarray(sample_weight, np.float64)[rows]
    share = share / share.sum()
    weights = _minimize(logs, codes, share)
    if weights.min() >= NEGLIGIBLE:
        return weights
    kept = weights >= min(NEGLIGIBLE, weights.max())
    weights = np.zeros(len(weights))
    weights[kept] = _minimize(logs[kept], codes, share, NEGLIGIBLE)
    return weights


def log_probabilities(p: NDArray) -> NDArray[np.float64]:
    """Return log p (n, K), where p is raised to at least MIN_PROBABILITY and normalized."""
    bounded = np.maximum(p, MIN_PROBABILITY, dtype=np.float64)
    return np.log(bounded / bounded.sum(axis=1, keepdims=True))


def pool_probabilities(weights: Iterable[float], tables: Iterable[NDArray]) -> NDArray[np.float64]:
    """Return the probabilities (n, K) of a blend from those of its members."""
    return softmax(np.asarray(sum(weight * log_probabilities(table) for weight, table in zip(weights, tables))))


def _minimize(logs: NDArray, codes: NDArray[np.int64], share: NDArray, lower: float = 0.0) -> NDArray[np.float64]:
    """Return the weights >= `lower` that minimize L."""
    from scipy.optimize import minimize  # imported only here, because predictions do not need it

    m = len(logs)
    solution = minimize(
        loss_and_gradient,
        np.full(m, 1 / m),
        (logs, codes, share),
        method="L-BFGS-B",
        jac=True,
        bounds=[(lower, None)] * m,
        options={"maxiter": 1000, "ftol": 10 * np.finfo(np.float64).eps, "gtol": 1e-9},
    )
    return np.asarray(solution.x)


def loss_and_gradient(
    weights: NDArray, logs: NDArray, codes: NDArray[np.int64], share: NDArray
) -> tuple[float, NDArray[np.float64]]:
    """Return L and its gradient (m,).

    `logs` are the log-probabilities (m, n, K), and `share` are the weights (n,) of the rows, which sum to 1.
    """
    of_true_class = logs[:, np.arange(len(codes)), codes] @ share  # (m,)
    z = np.tensordot(weights, logs, 1)  # (n, K)
    difference = weights - 1 / len(weights)
    loss = share @ log_sum_exp(z) - weights @ of_true_class + PULL * difference @ difference
    expected = np.tensordot(logs, softmax(z) * share[:, None], 2)  # (m,)
    return float(loss), expected - of_true_class + 2 * PULL * difference


# ---- the classifier


class HeldOut(NamedTuple):
    """Probabilities (n, K) of a classifier for rows that it was not trained on, or scores instead."""

    values: NDArray[np.float64]
    codes: NDArray[np.int64]  # (n,) class codes of the rows
    source: str = LOGS  # LOGS for probabilities, SCORES for scores
    weights: NDArray | None = None  # (n,) of the rows; None if all rows have the same weight

    def probabilities(self) -> NDArray[np.float64]:
        """Return probabilities (n, K); scores are divided by the temperature that fits the classes best."""
        if self.source == LOGS:
            return self.values
        return softmax(self.values / best_temperature(self.values, self.codes, weights=self.weights).temperature)

    def with_probabilities(self, fitted: Any) -> Any:
        """Return the classifier `fitted` on all rows, wrapped with this temperature if it has only scores."""
        if self.source == LOGS:
            return fitted
        if isinstance(fitted, FeaturedClassifier):  # wrap the inner classifier, so that a blend still sees the features
            return FeaturedClassifier.of(fitted.features_, self.scaled(fitted.estimator_))
        return self.scaled(fitted)

    def scaled(self, fitted: Any) -> TemperatureScaledClassifier:
        """Return the classifier `fitted` on all rows with the temperature that fits the classes best."""
        scaled = TemperatureScaledClassifier(fitted, "prefit")
        scaled._adopt(fitted)
        scaled._scale_by(self.source, self.values, self.codes, self.weights)
        return scaled


class BlendClassifier(PassesRowsOn):
    """Several classifiers, whose probabilities are multiplied with learned exponents (log-linear pooling) [1]_.

    The weights are learned on out-of-fold probabilities. Members with a weight below 0.01 are dropped, and the other
    members are fitted again on all rows. The scores of members without probabilities are turned into probabilities by a
    temperature. Probabilities are returned in float64.

    Parameters
    ----------
    estimators : list of (str, classifier) or of classifiers, default=None
        The members. None uses softmax, kernel softmax, boosted trees and extremely randomized trees. The first two
        need standardized columns.
    cv : int, float, splitter or list of pairs, default=5
        The number of folds, the share of the rows to hold out, a splitter of scikit-learn, or a list of pairs of row
        numbers (train, held out). If there are many rows and classes, the weights are learned on a sample of the rows.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of the folds; None means 0.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes, sorted.
    names_ : list of str
        Names of the members with a weight above 0.
    weights_ : ndarray of shape (n_members,)
        Weights of these members.
    estimators_ : list of classifier
        These members, fitted on all rows.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    TemperatureScaledClassifier : Probabilities from scores.

    Notes
    -----
    `explain` divides sum_j w_j log p_j among the columns, up to a constant per row that is the same for all classes.
    For two classes, it divides the log-odds. Each member contributes its own explanation. Members without one get
    sampled Shapley values against a few training rows, which the model stores. `explain` does not raise small
    probabilities.

    References
    ----------
    .. [1] G. Hinton (2002), Training products of experts by minimizing contrastive divergence. Neural Computation.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kway import BlendClassifier, NeighborsClassifier, SoftmaxClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> model = BlendClassifier([("line", SoftmaxClassifier()), ("near", NeighborsClassifier())]).fit(X, y)
    >>> model.names_, model.score(X, y) > 0.95
    (['line', 'near'], True)
    """

    names_: list[str]
    weights_: NDArray[np.float64]
    n_features_in_: int
    estimators_: list[Any]
    reasons_: dict[str, Any] | None = None  # what counts for each class, as `kway.fit` measured it
    _background: dict[int, NDArray | None]  # training rows per member without an explanation of its own, if known
    _dropped_refuses_nan: bool = False  # whether NaN was refused in fit by a member that the blend dropped

    __metadata_request__fit: ClassVar = {"sample_weight": None}  # scikit-learn does not see it in the signature of fit

    def __init__(
        self, estimators: Any = None, cv: Any = 5, n_jobs: int | None = None, random_state: Any = None
    ) -> None:
        self.estimators = estimators
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        member_tags = [get_tags(member.estimator).input_tags for member in self._members()]
        tags.input_tags.sparse = all(member.sparse for member in member_tags)
        tags.input_tags.allow_nan = all(member.allow_nan for member in member_tags)
        return tags

    @classmethod
    def of(
        cls, names: Sequence[str], estimators: Sequence[Any], weights: ArrayLike, classes: ArrayLike, rows: Any = None
    ) -> BlendClassifier:
        """Combine fitted members with weights from `learn_weights`; members with weight 0 are left out.

        Parameters
        ----------
        names : sequence of str
            Names of the members.
        estimators : sequence of classifier
            The fitted members. Each needs `predict_proba` and these classes.
        weights : array-like of shape (n_members,)
            Weights of the members, >= 0.
        classes : array-like of shape (n_classes,)
            The classes, sorted.
        rows : object, default=None
            Training rows. `explain` needs a few of them if a member has no explanation of its own.

        Returns
        -------
        BlendClassifier
            The fitted blend.
        """
        blend = cls(list(zip(names, estimators)))
        blend._set_members(np.asarray(classes), names, estimators, np.asarray(weights, np.float64), rows)
        return blend

    @on_own_threads
    def fit(self, X: Any, y: Any, **fit_params: Any) -> BlendClassifier:
        """Learn the weights on out-of-fold probabilities, and fit the members on all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), or whatever the members accept
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        **fit_params : object
            Only `sample_weight`, array-like of shape (n_samples,): weights of the rows, also passed to each member.

        Returns
        -------
        BlendClassifier
            The fitted classifier.
        """
        check_cv(self.cv, folds=True)
        if isinstance(self.cv, str):
            raise InputError("cv='prefit' has no rows to learn weights from; use BlendClassifier.of for fitted members")
        self._forget()
        members = self._members()
        rows = check_rows(type(self).__name__, self._passed(X), y)
        refuse_one_class(rows.labels, type(self).__name__)
        weight = _sample_weight(fit_params, members, len(rows.labels.codes))
        rows = rows if weight is None else rows._replace(params={"sample_weight": weight})
        held_out_rows, outputs = self._held_out(members, rows)
        codes = rows.labels.codes[held_out_rows]
        tables = [output.probabilities() for output in outputs]
        weights = learn_weights(tables, codes, None if weight is None else weight[held_out_rows])
        fitted = [
            output.with_probabilities(rows.fit(clone(member.estimator))) if member_weight else None
            for member, output, member_weight in zip(members, outputs, weights)
        ]
        self._set_members(rows.labels.classes, [member.name for member in members], fitted, weights, rows.X)
        dropped = [member.estimator for member, classifier in zip(members, fitted) if classifier is None]
        self._dropped_refuses_nan = any(_refuses_nan(estimator) for estimator in dropped)
        return self

    def _members(self) -> list[Member]:
        return _named(_default_members() if self.estimators is None else self.estimators)

    def _held_out(self, members: list[Member], rows: LabeledRows) -> tuple[NDArray[np.int64], list[HeldOut]]:
        """Return row numbers (n,), and the probabilities or scores (n, K) of each member, fitted without these rows."""
        codes, classes = rows.labels.codes, rows.labels.classes
        rng = checked_rng(0 if self.random_state is None else self.random_state)
        splits = make_splits(self.cv, rows.X, codes, rng)
        sources = [LOGS] * len(members)

        def score(split: Split) -> NDArray[np.float64]:
            check_classes_in_training(codes, split, classes)
            train_rows, X, tables = rows.take(split.train), take_rows(rows.X, split.held_out), []
            for j, member in enumerate(members):
                fitted = train_rows.fit(clone(member.estimator))
                sources[j] = _source(member.name, fitted)
                tables.append(score_blocks(fitted, X, sources[j], len(split.held_out)))
            return np.stack(tables, axis=1)

        held_out_rows, scores = score_held_out(splits, (len(members), len(classes)), rng, score)
        weight = rows.params.get("sample_weight")
        weights = None if weight is None else weight[held_out_rows]
        outputs = [HeldOut(scores[:, j], codes[held_out_rows], sources[j], weights) for j in range(len(members))]
        return held_out_rows, outputs

    def _set_members(
        self, classes: NDArray, names: Sequence[str], estimators: Sequence[Any], weights: NDArray, rows: Any
    ) -> None:
        """Keep the members with a weight above 0, and training rows for members without an explanation of their own."""
        if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
            raise InputError(f"weights must be finite and >= 0, and one of them above 0; got {weights.tolist()!r:.100}")
        kept = np.flatnonzero(weights).tolist()
        self.classes_, self.weights_ = classes, weights[kept]
        self.names_, self.estimators_ = [str(names[j]) for j in kept], [estimators[j] for j in kept]
        for name, member in zip(self.names_, self.estimators_):
            check_is_fitted(member)
            if not np.array_equal(member.classes_, classes):
                raise InputError(
                    f"member {name!r} has other classes than the blend; fit all members to the same labels"
                )
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimators_[0], name):
                setattr(self, name, getattr(self.estimators_[0], name))
        share_features(self.estimators_)
        sample = None if rows is None else background_sample(self._passed(rows))
        self._background = {
            j: None if sample is None else _dense(estimator, numbers)
            for j, (estimator, numbers) in enumerate(self._inputs(sample))
            if not _has_explanation(estimator)
        }

    # ---- predictions

    def _passed(self, X: Any) -> Any:
        """Return X as something with a length and row indexing: dicts become tables, and lists tables or arrays."""
        if isinstance(X, Mapping | list) and is_table(X) and not sp.issparse(X):  # DOK matrices are dicts
            return as_table(X)
        return np.asarray(X) if isinstance(X, list | tuple) else X

    def _rows(self, X: Any) -> Any:
        """Return X in the form that the members accept; refuse NaN in an array if a dropped member would refuse it."""
        rows = super()._rows(X)
        if self._dropped_refuses_nan and isinstance(rows, np.ndarray) and rows.dtype.kind == "f":
            validation.plain_rows(rows)
        return rows

    def _scores(self, rows: Any) -> NDArray[np.float64]:
        """Return log p (n, K)."""
        z: Any = 0.0
        for weight, (estimator, numbers) in zip(self.weights_, self._inputs(rows)):
            z = z + weight * log_probabilities(estimator.predict_proba(numbers))
        return log_softmax(z)

    def _inputs(self, rows: Any) -> Iterator[tuple[Any, Any]]:
        """Yield for each member the classifier behind its features, and the rows as numbers.

        Members that share features get the same numbers, which are computed once.
        """
        numbers: dict[int, Any] = {}  # by the identity of the features
        for member in self.estimators_:
            if not isinstance(member, FeaturedClassifier):
                yield member, rows
                continue
            key = id(member.features_)
            if key not in numbers:
                numbers[key] = None if rows is None else member.numbers(rows)
            yield member.estimator_, numbers[key]

    def _shares(self, rows: Any) -> NDArray[np.float64]:
        z = self._scores(rows)
        return lift_winners(np.exp(z), z.argmax(axis=1))

    def _entries(self) -> int:
        return 4 * len(self.classes_)  # a member's probabilities, their logarithms, the sum, and the result

    def _answer_type(self, rows: Any) -> np.dtype:
        return np.dtype(np.float64)

    # ---- explanation

    def _contributions(self, rows: Any, codes: NDArray[np.int64]) -> Parts:
        """Return the weighted sum of the members' contributions of the columns of the given rows."""
        check_room(len(codes), self.n_features_in_)
        values, baseline = np.zeros((len(codes), self.n_features_in_)), np.zeros(len(codes))
        for j, (estimator, numbers) in enumerate(self._inputs(rows)):
            member = self.estimators_[j]
            has_features = isinstance(member, FeaturedClassifier)
            sources = member.features_.column_sources() if has_features else np.arange(self.n_features_in_)
            parts = self._contributions_of(j, estimator, numbers, codes, sources)
            values += self.weights_[j] * parts.values
            baseline += self.weights_[j] * parts.baseline
        return Parts(values, baseline)

    def _contributions_of(
        self, j: int, estimator: Any, numbers: Any, codes: NDArray[np.int64], sources: NDArray[np.int64]
    ) -> Parts:
        """Return the contributions (n, d) of the columns to log p_j.

        sources[i] is the column from which the features made column i of `numbers`.
        """
        if _has_explanation(estimator):
            parts = estimator._contributions(estimator._rows(numbers), codes).times(estimator._log_scale())
            return parts.grouped(sources, self.n_features_in_)
        background = self._background[j]
        if background is None:
            raise InputError(
                f"explain needs training rows for the member {self.names_[j]!r}, which has no explanation of its own; "
                "pass rows= to BlendClassifier.of"
            )

        def score(rows: NDArray, codes: NDArray[np.int64]) -> NDArray:
            logs = log_probabilities(estimator.predict_proba(rows))
            return pick_scores(logs if len(self.classes_) > 2 else logs[:, 1:] - logs[:, :1], codes)

        used, compact = np.unique(sources, return_inverse=True)
        return shapley(score, _dense(estimator, numbers), codes, background, compact).grouped(used, self.n_features_in_)

    # ---- model files: each member is stored like any other estimator, with a prefix before the names of its arrays

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "estimators_")
        arrays = {f"background.{j}": rows for j, rows in self._background.items() if rows is not None}
        manifests = []
        for j, member in enumerate(self.estimators_):
            manifest, member_arrays = pack_inside(f"members.{j}.", member)
            manifests.append(manifest)
            arrays |= member_arrays
        facts = {"members": manifests, "names": self.names_, "weights": self.weights_.tolist()}
        facts["dropped_refuses_nan"] = self._dropped_refuses_nan
        return facts | ({} if self.reasons_ is None else {"reasons": self.reasons_}), arrays

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.names_, self.weights_ = list(facts["names"]), np.array(facts["weights"], np.float64)
        self._dropped_refuses_nan = facts["dropped_refuses_nan"]
        self.estimators_ = [
            unpack_inside(f"members.{j}.", manifest, arrays) for j, manifest in enumerate(facts["members"])
        ]
        share_features(self.estimators_)
        self.reasons_ = facts.get("reasons")
        self._background = {
            j: arrays.get(f"background.{j}")
            for j, (estimator, _) in enumerate(self._inputs(None))
            if not _has_explanation(estimator)
        }


# ---- members


def _default_members() -> list[tuple[str, Any]]:
    from kway.linear import KernelSoftmaxClassifier, SoftmaxClassifier
    from kway.trees import TreesClassifier

    linear = [("softmax", SoftmaxClassifier()), ("kernel", KernelSoftmaxClassifier())]
    return [*linear, ("boosted", TreesClassifier()), ("extra", TreesClassifier("extra"))]


def _named(estimators: Any) -> list[Member]:
    """Return members with distinct names; a member without a name gets the name of its class."""
    if not isinstance(estimators, list | tuple) or not estimators:
        raise InputError(
            f"estimators must be a list of classifiers or of pairs (name, classifier), got {estimators!r:.100}"
        )
    members = list[Member]()
    for each in estimators:
        given, estimator = each if isinstance(each, tuple) and len(each) == 2 else (type(each).__name__, each)
        name = str(given)
        checked_classifier(estimator, f"member {name!r}")
        taken = [member.name for member in members]
        if name in taken and isinstance(each, tuple):
            raise InputError(f"two members have the name {name!r}; give each member its own name")
        numbered = (f"{name}-{number}" for number in itertools.count(len(members) + 1))
        free = (candidate for candidate in itertools.chain([name], numbered) if candidate not in taken)
        members.append(Member(next(free), estimator))
    return members


def _refuses_nan(estimator: Any) -> bool:
    """Return whether the fit of an estimator raises an error for NaN in an array; features accept missing values."""
    return not isinstance(estimator, FeaturedClassifier) and not get_tags(estimator).input_tags.allow_nan


def _source(name: str, fitted: Any) -> str:
    """Return LOGS if a member has probabilities, and SCORES if it has only scores."""
    if not (hasattr(fitted, "predict_proba") or hasattr(fitted, "decision_function")):
        raise CombinationError(
            f"member {name!r} has neither predict_proba nor decision_function, so it cannot be blended"
        )
    return LOGS if hasattr(fitted, "predict_proba") else SCORES


def _sample_weight(fit_params: dict[str, Any], members: list[Member], n: int) -> NDArray | None:
    """Return the validated sample weights (n,) of `fit`, or None; raise an error if a member does not accept them."""
    unknown = [name for name in fit_params if name != "sample_weight"]
    if unknown:
        raise TypeError(f"BlendClassifier.fit takes X, y and sample_weight, got {unknown[0]!r}; set it in the member")
    weight = validation.weights(fit_params.get("sample_weight"), np.empty((n, 0)))
    for member in members if weight is not None else []:
        parameters = inspect.signature(member.estimator.fit).parameters.values()
        if not any(each.name == "sample_weight" or each.kind is each.VAR_KEYWORD for each in parameters):
            raise InputError(f"member {member.name!r} takes no sample_weight; leave it out, or leave out this member")
    return weight


def share_features(members: list[Any]) -> None:
    """Let members with equal features share one object, so that rows are transformed once for all of them."""
    distinct = list[Features]()
    for member in members:
        if isinstance(member, FeaturedClassifier):
            equal = (each for each in distinct if _equal_features(each, member.features_))
            member.features_ = next(equal, member.features_)
            distinct.append(member.features_)


def _equal_features(first: Features, second: Features) -> bool:
    """Return whether two fitted transformers have the same parameters and learned the same."""
    if first is second:
        return True
    (facts, arrays), (other_facts, other_arrays) = first._fitted(), second._fitted()
    if (
        facts != other_facts
        or arrays.keys() != other_arrays.keys()
        or first._stored_params() != second._stored_params()
    ):
        return False
    return all(np.array_equal(array, other_arrays[name]) for name, array in arrays.items())


def _has_explanation(estimator: Any) -> bool:
    """Return whether a classifier itself divides its log-probabilities among the columns."""
    return isinstance(estimator, Classifier) and has_contributions(estimator) and estimator._log_scale() is not None


def _dense(estimator: Any, numbers: Any) -> NDArray:
    """Return the rows that a classifier takes as a dense array of floats."""
    rows = estimator._rows(numbers) if isinstance(estimator, Classifier) else numbers
    rows = rows.rows if isinstance(rows, ValidatedRows) else rows
    rows = rows[:] if isinstance(rows, ConvertedRows) else rows.toarray() if sp.issparse(rows) else np.asarray(rows)
    return np.ascontiguousarray(rows, dtype=rows.dtype if rows.dtype == np.float32 else np.float64)
