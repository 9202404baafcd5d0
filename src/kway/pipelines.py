"""Classifiers that transform rows before another classifier predicts: each has `estimator_`, fitted on the new rows.

FeaturedClassifier    rows of a table -> Features -> numbers (n, d) -> estimator
MappedClassifier      X (n, d) -> a linear map of the columns, learned from the labels -> estimator
PipelinedClassifier   a fitted scikit-learn Pipeline in the form that model files store

Each class overrides hooks of the base class (base/wrappers.py). `_rows` transforms rows before the inner estimator
predicts. `_passed` returns the rows that an outer wrapper hands to this classifier: X itself, because only this class
transforms it. `_facts` and `_restore_facts` write and read what a model file stores besides the inner estimator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.classifier import on_own_threads
from kway.base.contributions import Contributions, Parts
from kway.base.wrappers import DelegatedAnswers, add_prefix, inner_has, innermost, remove_prefix
from kway.errors import ModelFileError
from kway.modelfile.plain_steps import pack_step, unpack_step
from kway.parameters import check_parameters, checked_rng, one_of
from kway.rows.matrices import column_spread
from kway.tables.features.features import Features

if TYPE_CHECKING:
    from kway.tables.features.components import ColumnMap

_FEATURES = "features."  # prefix of the features' arrays in a model file


class TransformsRows(DelegatedAnswers):
    """Base of the classes below; an outer wrapper hands them X itself, because only they transform it."""

    def _passed(self, X: Any) -> Any:
        return X


class FeaturedClassifier(TransformsRows):
    """A classifier of tables: features turn the rows into numbers, and an estimator is fitted on these.

    Parameters
    ----------
    estimator : classifier, default=None
        A classifier of numbers; None means `SoftmaxClassifier()`.
    features : Features, default=None
        Unfitted features; None means `Features()`.

    Attributes
    ----------
    estimator_ : classifier
        The fitted estimator.
    features_ : Features
        The fitted features.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    spread_ : ndarray of shape (d,) or None
        Standard deviations of the training columns, for `explain`; None if the estimator has no weights.
    reasons_ : dict or None
        The important features that the main job found, for an estimator without weights.
    """

    features_: Features
    spread_: NDArray | None = None
    reasons_: dict[str, Any] | None = None

    def __init__(self, estimator: Any = None, features: Features | None = None) -> None:
        self.estimator = estimator
        self.features = features

    def _default(self) -> Any:
        from kway.linear import SoftmaxClassifier

        return SoftmaxClassifier()

    @classmethod
    def of(cls, features: Features, estimator: Any, X_transformed: Any = None) -> FeaturedClassifier:
        """Combine fitted features and an estimator that was fitted on their output `X_transformed` (n, d)."""
        check_is_fitted(features, "parts_")
        check_is_fitted(estimator)
        model = cls(estimator, features)
        model._join(features, estimator, X_transformed)
        return model

    @on_own_threads
    def fit(self, X: Any, y: Any, **fit_params: Any) -> FeaturedClassifier:
        """Fit the features to the rows of X, then the estimator to their output."""
        features = Features() if self.features is None else clone(self.features)
        X_transformed = features.fit_transform(X)
        estimator = self._fresh()
        _set_categorical_features(estimator, features)
        passed = self._passed_on(fit_params, X_transformed.shape[0])
        self._join(features, estimator.fit(X_transformed, y, **passed), X_transformed)
        return self

    def _join(self, features: Features, estimator: Any, X_transformed: Any = None) -> None:
        """Store fitted features and a fitted estimator, and the spread of the columns if the estimator has weights."""
        self._forget()
        self.features_ = features
        self._adopt(estimator, features)
        if X_transformed is not None and hasattr(innermost(estimator), "coef_"):
            self.spread_ = np.minimum(column_spread(X_transformed), np.finfo(np.float32).max).astype(np.float32)

    # ---- predictions of the estimator for raw rows

    @on_own_threads
    def numbers(self, X: Any) -> Any:
        """Return the output (n, d) of the features for the rows X."""
        check_is_fitted(self, "estimator_")
        return self.features_.transform(X)

    _rows = numbers

    def _described(self, found: Any) -> Any:
        """Return an explanation in terms of the input columns.

        Contributions are summed per input column. Lists of deciding features get the names of the output columns.
        """
        if isinstance(found, Contributions):
            parts = Parts(found.values, found.baseline).grouped(self.features_.column_sources(), self.n_features_in_)
            return replace(found, values=parts.values).named(getattr(self, "feature_names_in_", None))
        return found.named(self.features_.get_feature_names_out()) if hasattr(found, "details") else found

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy; with several labels per row, the share of rows with exactly the correct set."""
        if label_separator(self) is not None:
            return float(self.estimator_.score(self.numbers(X), y, sample_weight))
        return super().score(X, y, sample_weight)

    @available_if(inner_has("kneighbors"))
    def kneighbors(self, X: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the estimator's nearest training rows."""
        return self.estimator_.kneighbors(self.numbers(X), *args, **kwargs)

    @available_if(inner_has("predict_set"))
    def predict_set(self, X: Any) -> Any:
        """Return the estimator's set of labels for each row."""
        return self.estimator_.predict_set(self.numbers(X))

    @available_if(inner_has("predict_node"))
    def predict_node(self, X: Any) -> Any:
        """Return the estimator's node of the hierarchy for each row."""
        return self.estimator_.predict_node(self.numbers(X))

    # ---- model files: the features are stored under a prefix, like the estimator

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        learned, arrays = self.features_._fitted()
        spreads = {} if self.spread_ is None else {"spread": self.spread_}
        facts = {"learned": learned, "settings": self.features_._stored_params()}
        facts |= {} if self.reasons_ is None else {"reasons": self.reasons_}
        return facts, {**add_prefix(_FEATURES, arrays), **spreads}

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.features_ = Features(**facts["settings"])
        self.features_._restore(facts["learned"], remove_prefix(_FEATURES, arrays))
        self.spread_ = arrays.get("spread")
        self.reasons_ = facts.get("reasons")


def label_separator(model: Any) -> str | None:
    """Return the separator of the labels of a model that predicts several per row; None if it predicts one."""
    return getattr(innermost(model), "label_separator", None)


def features_of(model: Any) -> list[Features]:
    """Return the features that read tables for a model: its own, or those of the members of a blend."""
    members = [model, *getattr(model, "estimators_", ())]
    return [member.features_ for member in members if isinstance(member, FeaturedClassifier)]


def _set_categorical_features(estimator: Any, features: Features) -> None:
    """Set the parameters `categorical_features` that are None, also of nested estimators, to the columns of codes."""
    columns = features.categorical_
    if columns:
        params = estimator.get_params()
        names = [name for name in params if name.split("__")[-1] == "categorical_features" and params[name] is None]
        estimator.set_params(**dict.fromkeys(names, columns))


class MappedClassifier(TransformsRows):
    """An estimator on columns that are scaled or mixed by a map learned from the labels.

    Nearest neighbors give every column the same weight; the map gives informative columns a larger one. It maximizes
    the expected accuracy of soft nearest neighbors [1]_.

    Parameters
    ----------
    estimator : estimator, default=None
        A classifier of dense rows; None means `NeighborsClassifier()`.
    map : {"scales", "mixtures"}, default="scales"
        "scales" learns one weight per column, "mixtures" a matrix (d, d).
    n_jobs : int or None, default=None
        Number of threads, also of the estimator; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of the rows that are drawn; None means 0.

    Attributes
    ----------
    map_ : ColumnMap
        Scales (d,), center (d,) and, for mixtures, a rotation (d, d).
    estimator_ : estimator
        The fitted estimator.
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.

    References
    ----------
    .. [1] J. Goldberger, S. Roweis, G. Hinton and R. Salakhutdinov (2004), Neighbourhood components analysis. NeurIPS.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MappedClassifier().fit(X, y)
    >>> model.score(X, y) > 0.95, model.mapped(X).shape
    (True, (150, 4))
    """

    map_: ColumnMap

    def __init__(
        self, estimator: Any = None, map: str = "scales", n_jobs: int | None = None, random_state: Any = None
    ) -> None:
        self.estimator = estimator
        self.map = map
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _default(self) -> Any:
        from kway.neighbors import NeighborsClassifier

        return NeighborsClassifier(n_jobs=self.n_jobs)

    @on_own_threads
    def fit(self, X: Any, y: Any, **params: Any) -> MappedClassifier:
        """Fit the map, then the estimator on mapped rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels.
        **params : object
            `sample_weight` for the fit of the estimator, or whatever scikit-learn's metadata routing passes on to it.
            The map is learned from unweighted rows.

        Returns
        -------
        MappedClassifier
            The fitted classifier.
        """
        # imported here, because it compiles kernels that predictions do not need
        from kway.tables.features.components import learn_mixtures, learn_scales

        self._check_parameters()
        self._forget()
        rows, labels = validation.rows_and_labels(self, X, y, sparse=False)
        passed = self._passed_on(params, len(rows))
        seed = 0 if self.random_state is None else int(checked_rng(self.random_state).randint(2**31))
        learn = learn_scales if self.map == "scales" else learn_mixtures
        self.map_ = learn(rows, labels.codes, seed)
        self.estimator_ = self._fresh().fit(self.map_.apply(rows), y, **passed)
        self.classes_ = np.asarray(self.estimator_.classes_)
        return self

    @on_own_threads
    def fit_blocks(self, blocks: Iterable[tuple[Any, Any]]) -> MappedClassifier:
        """Fit the estimator again, to blocks of rows, with the map of an earlier `fit`.

        Parameters
        ----------
        blocks : iterable of (X, y)
            Rows with their labels.

        Returns
        -------
        MappedClassifier
            The fitted classifier.
        """
        check_is_fitted(self, "map_")
        self.estimator_ = self._fresh().fit_blocks((self.mapped(X), y) for X, y in blocks)
        self.classes_ = np.asarray(self.estimator_.classes_)
        return self

    @on_own_threads
    def mapped(self, X: Any) -> NDArray:
        """Return the mapped rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            The rows that the estimator receives.
        """
        check_is_fitted(self, "estimator_")
        return self.map_.apply(validation.rows(self, X, reset=False, sparse=False))

    _rows = mapped

    @available_if(inner_has("kneighbors"))
    @on_own_threads
    def kneighbors(self, X: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Return the nearest training rows by distance between mapped rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), default=None
            Queries; None uses the training rows.
        *args, **kwargs : object
            Arguments of the estimator's `kneighbors`.

        Returns
        -------
        tuple of ndarray
            Distances and indices, as the estimator returns them.
        """
        check_is_fitted(self, "estimator_")
        return self.estimator_.kneighbors(None if X is None else self.mapped(X), *args, **kwargs)

    # ---- checks and model files

    def _check_parameters(self) -> None:
        check_parameters(self, map=one_of("scales", "mixtures"))

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        learned = {"scale": self.map_.scale, "center": self.map_.center, "rotation": self.map_.rotation}
        return {}, {f"map.{name}": array for name, array in learned.items() if array is not None}

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        from kway.tables.features.components import ColumnMap

        self.map_ = ColumnMap(arrays["map.scale"], arrays.get("map.center"), arrays.get("map.rotation"))


class PipelinedClassifier(TransformsRows):
    """A fitted scikit-learn Pipeline in the form that model files store.

    Attributes
    ----------
    steps_ : list of (str, transformer)
        The steps before the classifier. It is empty if the Pipeline began with Features: these, and the steps after
        them, are then inside `estimator_`, a FeaturedClassifier.
    estimator_ : classifier
        The classifier.
    name_, features_name_ : str
        Names of the last step and of the Features.
    featured_ : bool
        Whether the Pipeline began with Features.
    """

    steps_: list[tuple[str, Any]]

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator

    @classmethod
    def of(cls, pipeline: Any) -> PipelinedClassifier:
        """Wrap a fitted Pipeline whose last step is a classifier of kway."""
        steps = list(pipeline.steps)
        if not hasattr(pipeline, "classes_"):
            raise ModelFileError(
                f"the last step of the pipeline, {steps[-1][0]!r}, is not a fitted classifier; fit it first"
            )
        stored = cls()
        stored.featured_ = isinstance(steps[0][1], Features)
        stored.features_name_ = steps[0][0] if stored.featured_ else ""
        stored.name_ = steps[-1][0]
        stored.steps_ = [] if stored.featured_ else steps[:-1]
        classifier = steps[-1][1]
        if stored.featured_:
            rest = pipeline[1:] if len(steps) > 2 else classifier
            classifier = FeaturedClassifier()  # no parameters, because a file cannot store a Pipeline as a parameter
            classifier._join(steps[0][1], rest)
        stored._adopt(classifier, _first_transformer(steps))
        return stored

    def fit(self, X: Any, y: Any) -> PipelinedClassifier:
        """Raise TypeError: the Pipeline itself is fitted."""
        raise TypeError("fit the Pipeline itself; this class only stores it in a model file")

    def pipeline(self) -> Any:
        """Return a Pipeline of the steps that `of` was given; options such as `memory` and `verbose` are lost."""
        from sklearn.pipeline import Pipeline

        if not self.featured_:
            return Pipeline([*self.steps_, (self.name_, self.estimator_)])
        rest = self.estimator_.estimator_
        after = rest.steps if isinstance(rest, Pipeline) else [(self.name_, rest)]
        return Pipeline([(self.features_name_, self.estimator_.features_), *after])

    def numbers(self, X: Any) -> Any:
        """Return the output (n, d) of the steps before the classifier."""
        for _, step in self.steps_:
            X = step.transform(X) if _is_transformer(step) else X
        return X

    _rows = numbers

    # ---- model files

    def _stored_params(self) -> dict[str, Any]:
        return {"estimator": None}

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        packed = [pack_step(name, step) for name, step in self.steps_]
        arrays: dict[str, NDArray] = {}
        for i, step in enumerate(packed):
            arrays |= add_prefix(f"steps.{i}.", step.arrays)
        facts = {"name": self.name_, "features_name": self.features_name_, "featured": self.featured_}
        return {**facts, "steps": [step.facts for step in packed]}, arrays

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.name_, self.features_name_, self.featured_ = facts["name"], facts["features_name"], facts["featured"]
        self.steps_ = []
        n_columns = self.n_features_in_
        for i, step_facts in enumerate(facts["steps"]):
            step = unpack_step(step_facts, remove_prefix(f"steps.{i}.", arrays), n_columns)
            if hasattr(step, "components_"):  # PCA and TruncatedSVD: one output column per component
                n_columns = len(step.components_)
            self.steps_.append((step_facts["name"], step))
        if hasattr(self, "feature_names_in_"):
            _first_transformer([*self.steps_, (self.name_, self.estimator_)]).feature_names_in_ = self.feature_names_in_


def _is_transformer(step: Any) -> bool:
    """Return whether a step transforms rows: None and "passthrough" do not."""
    return step is not None and not isinstance(step, str)


def _first_transformer(steps: list[tuple[str, Any]]) -> Any:
    """Return the first step that is neither None nor "passthrough"; it takes the columns of the input."""
    return next(step for _, step in steps if _is_transformer(step))
