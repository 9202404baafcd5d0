"""Classifiers that contain other estimators, to which they pass X, and which they save.

PassesRowsOn       predictions block by block, from rows in any form
EstimatorInside    `estimator` (a default of the subclass if None) is fitted as `estimator_`, which does `predict` and
                   `explain`; a model file stores it under a prefix
DelegatedAnswers   probabilities, scores and top-k lists are also those of the inner estimator

X is passed on in any form that the inner estimator accepts (frames, text, sparse rows). The inner estimator validates
it, once per call of the wrapper if it is a classifier of kway. A wrapper that transforms X overrides `_rows` and
`_passed`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import clone
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from kway import validation
from kway.base.class_rows import best_of_table
from kway.base.classifier import Classifier, on_own_threads
from kway.errors import InputError, KindError, ModelFileError
from kway.parameters import checked_k
from kway.rows.blocks import count_rows, split_rows
from kway.rows.gpu.device import on_host
from kway.search.results import TopK

_INNER = "inner."  # prefix of the inner estimator's arrays in a model file


def inner_has(*methods: str) -> Callable[[Any], bool]:
    """Return a check for `available_if`: the inner estimator has one of these methods."""

    def check(model: EstimatorInside) -> bool:
        inner = getattr(model, "estimator_", None) or model._unfitted()
        if not any(hasattr(inner, method) for method in methods):
            getattr(inner, methods[0])  # raises its own error
        return True

    return check


def layers(model: Any) -> Iterator[Any]:
    """Yield a model, the estimator inside it, and so on to the innermost."""
    yield model
    while hasattr(model, "estimator_"):
        model = model.estimator_
        yield model


def innermost(model: Any) -> Any:
    """Return the innermost estimator; the model itself if it contains none."""
    *_, inner = layers(model)
    return inner


def checked_classifier(estimator: Any, what: str) -> Any:
    """Return an unfitted classifier; raise InputError if it is none."""
    methods = ("fit", "predict", "get_params")
    if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in methods):
        raise InputError(f"{what} must be a classifier with fit and predict, got {estimator!r:.100}")
    return estimator


class PassesRowsOn(Classifier):
    """A classifier that passes X on to other estimators, in any form that they accept."""

    def _rows(self, X: Any) -> Any:
        """Return X in the form that the inner estimators accept; a tensor is copied to an array."""
        check_is_fitted(self)
        return self._passed(on_host(X))

    def _passed(self, X: Any) -> Any:
        """Return X in the form that `_rows` passes on; a wrapper that transforms X overrides it."""
        return X

    def _blocks(self, rows: Any, entries: int) -> Iterator[Any]:
        return split_rows(rows, count_rows(rows), self._most_rows(entries))

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        return self._best_of_blocks(rows, lambda block: self._best_of_block(block, k))

    def _best_of_block(self, rows: Any, k: int) -> TopK:
        """Return the k best classes of a block of rows, from a table of all classes."""
        return best_of_table(self._shares(rows), k)

    def _entries(self) -> int:
        return len(self.classes_)

    def _as_given(self, X: Any, answer: Any) -> Any:
        """Return the answer as an array, also if X is a tensor."""
        return answer


class EstimatorInside(PassesRowsOn):
    """A classifier that contains another estimator."""

    estimator: Any
    estimator_: Any

    def _default(self) -> Any:
        """Return the estimator to use if none was given."""
        raise InputError(f"{type(self).__name__} needs an estimator, got None")

    def _unfitted(self) -> Any:
        """Return the parameter `estimator`, or the default if it is None."""
        return self._default() if self.estimator is None else self.estimator

    def _fresh(self) -> Any:
        """Return an unfitted copy of the estimator."""
        return clone(checked_classifier(self._unfitted(), "estimator"))

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which arguments of `fit` go to the estimator, for scikit-learn's metadata routing.

        Returns
        -------
        MetadataRouter
            What the estimator requests in its `fit`.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return MetadataRouter(owner=type(self).__name__).add(estimator=self._unfitted(), method_mapping=mapping)

    def _passed_on(self, params: dict[str, Any], n: int) -> dict[str, Any]:
        """Return the arguments that `fit` passes on: sample_weight (n,), or those selected by metadata routing."""
        params = {name: on_host(value) for name, value in params.items() if value is not None}
        if not params:
            return {}
        if get_config()["enable_metadata_routing"]:
            return dict(process_routing(self, "fit", **params).estimator.fit)
        inner = self._unfitted()
        if list(params) != ["sample_weight"]:
            raise KindError(f"{type(self).__name__}.fit accepts X, y and sample_weight, got {', '.join(params)} too")
        if not (isinstance(inner, PassesRowsOn) or has_fit_parameter(inner, "sample_weight")):
            raise KindError(
                f"{type(inner).__name__} does not accept sample_weight; omit it, or use an estimator that does, "
                "such as SoftmaxClassifier"
            )
        return {"sample_weight": validation.weights(params["sample_weight"], np.empty((n, 0)))}

    def _adopt(self, fitted: Any, source: Any = None) -> None:
        """Store a fitted estimator; the features are those of `source`, or of the estimator if None."""
        self.estimator_ = fitted
        self.classes_ = np.asarray(fitted.classes_)
        source = fitted if source is None else source
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(source, name):
                setattr(self, name, getattr(source, name))

    def _threads(self) -> int | None:
        """Return the n_jobs of the inner classifier if this one has none."""
        inner = getattr(self, "estimator_", None) if self.estimator is None else self.estimator
        if isinstance(inner, Classifier) and not hasattr(self, "n_jobs"):
            return inner._threads()
        return super()._threads()

    # ---- predictions

    def _passed(self, X: Any) -> Any:
        inner = self.estimator_
        return inner._passed(X) if isinstance(inner, Classifier) else X

    @on_own_threads
    def predict(self, X: Any) -> NDArray:
        """Predict the label of each row.

        Parameters
        ----------
        X : object
            Rows, in the form that the inner estimator accepts.

        Returns
        -------
        ndarray of shape (n_samples,)
            Labels.
        """
        rows = self._rows(X)
        return np.asarray(self.estimator_.predict(rows))

    @available_if(inner_has("explain"))
    @on_own_threads
    def explain(self, X: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the explanation of the inner estimator.

        Parameters
        ----------
        X : object
            Rows, in the form that the inner estimator accepts.
        *args, **kwargs : object
            Arguments of the inner `explain`.

        Returns
        -------
        object
            The result of the inner `explain`.
        """
        rows = self._rows(X)
        return self._described(self.estimator_.explain(rows, *args, **kwargs))

    def _described(self, explanation: Any) -> Any:
        """Return the explanation of the inner estimator in terms of the columns of this one, if they differ."""
        return explanation

    # ---- model files: the manifest and the arrays of the inner estimator are stored under a prefix

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "estimator_")
        manifest, arrays = pack_inside(_INNER, self.estimator_)
        facts, own_arrays = self._facts()
        return {"inner": manifest, **facts}, {**own_arrays, **arrays}

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.estimator_ = unpack_inside(_INNER, facts["inner"], arrays)
        self._restore_facts(facts, {name: array for name, array in arrays.items() if not name.startswith(_INNER)})
        if len(self.estimator_.classes_) != len(self.classes_):
            raise ModelFileError("the model file lists its classes twice, and they differ; save the model again")

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the facts and arrays that the wrapper itself learned."""
        raise TypeError(f"{type(self).__name__} cannot be saved to a model file")

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        """Restore the facts and arrays that `_facts` returned."""
        raise TypeError(f"{type(self).__name__} cannot be read from a model file")


class DelegatedAnswers(EstimatorInside):
    """A classifier whose predictions are all those of the inner estimator."""

    @available_if(inner_has("predict_proba"))
    @on_own_threads
    def predict_proba(self, X: Any) -> NDArray:
        """Return the probabilities of all classes.

        Parameters
        ----------
        X : object
            Rows, in the form that the inner estimator accepts.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Probabilities of the inner estimator.
        """
        rows = self._rows(X)
        return np.asarray(self.estimator_.predict_proba(rows))

    @available_if(inner_has("decision_function"))
    @on_own_threads
    def decision_function(self, X: Any) -> NDArray:
        """Return the scores of the inner estimator.

        Parameters
        ----------
        X : object
            Rows, in the form that the inner estimator accepts.

        Returns
        -------
        ndarray of shape (n_samples, n_classes) or (n_samples,)
            Scores.
        """
        rows = self._rows(X)
        return np.asarray(self.estimator_.decision_function(rows))

    @available_if(inner_has("predict_topk", "predict_proba"))
    @on_own_threads
    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """Return the k best labels of each row and their scores, best first.

        Parameters
        ----------
        X : object
            Rows, in the form that the inner estimator accepts.
        k : int, default=5
            Number of labels; all labels if there are fewer.

        Returns
        -------
        TopK
            Labels and scores of shape (n_samples, k); probabilities for another library's estimator.
        """
        if not hasattr(getattr(self, "estimator_", None), "predict_topk"):
            return super().predict_topk(X, k)
        rows = self._rows(X)
        return TopK(*self.estimator_.predict_topk(rows, checked_k(k, len(self.classes_))))

    def _shares(self, rows: Any) -> NDArray:
        """Return the probabilities of all classes, for the top-k list of an estimator of another library."""
        return np.asarray(self.estimator_.predict_proba(rows))


def pack_inside(prefix: str, estimator: Any) -> tuple[dict[str, Any], dict[str, NDArray]]:
    """Return the manifest of an estimator inside another one, and its arrays under a prefix."""
    from kway.modelfile import pack

    manifest, arrays = pack(estimator)
    return manifest, add_prefix(prefix, arrays)


def unpack_inside(prefix: str, manifest: dict[str, Any], arrays: dict[str, NDArray]) -> Any:
    """Reverse `pack_inside`."""
    from kway.modelfile import unpack

    return unpack(manifest, remove_prefix(prefix, arrays))


def add_prefix(prefix: str, arrays: dict[str, NDArray]) -> dict[str, NDArray]:
    """Return the arrays with a prefix before each name."""
    return {prefix + name: array for name, array in arrays.items()}


def remove_prefix(prefix: str, arrays: dict[str, NDArray]) -> dict[str, NDArray]:
    """Return the arrays whose names start with the prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
