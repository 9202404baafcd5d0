"""A classifier with its features inside: raw rows of a table in, labels out, one model file.

fit: table -> Features -> X (n, d) -> estimator          predict: the same way, with what was learned in fit
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kway.base import Classifier
from kway.data.features.features import Features
from kway.errors import ModelFileError
from kway.search.index import TopK

_INNER, _FEATURES = "inner.", "features."  # prefixes of the arrays in a model file


def _inner_has(method: str) -> Callable[[Any], bool]:
    def check(wrapper: FeaturedClassifier) -> bool:
        getattr(getattr(wrapper, "estimator_", None) or wrapper._unfitted(), method)  # its own error says why not
        return True

    return check


class FeaturedClassifier(Classifier):
    """`estimator` (SoftmaxClassifier where None) behind `features` (Features() where None)."""

    features_: Features
    estimator_: Any

    def __init__(self, estimator: Any = None, features: Features | None = None) -> None:
        self.estimator = estimator
        self.features = features

    @classmethod
    def of(cls, features: Features, estimator: Any) -> FeaturedClassifier:
        """Two fitted parts as one: the estimator was fitted on what these features made."""
        check_is_fitted(features, "parts_")
        check_is_fitted(estimator)
        whole = cls(estimator, features)
        whole._adopt(features, estimator)
        return whole

    def fit(self, X: Any, y: Any, **fit_params: Any) -> FeaturedClassifier:
        """Learn the features from the rows of X, then the estimator from what they make of them."""
        features = Features() if self.features is None else clone(self.features)
        numbers = features.fit_transform(X)
        self._adopt(features, clone(self._unfitted()).fit(numbers, y, **fit_params))
        return self

    def _unfitted(self) -> Any:
        if self.estimator is None:
            from kway.linear.named import SoftmaxClassifier

            return SoftmaxClassifier()
        return self.estimator

    def _adopt(self, features: Features, estimator: Any) -> None:
        self.features_, self.estimator_ = features, estimator
        self.classes_ = np.asarray(estimator.classes_)
        self.n_features_in_ = features.n_features_in_
        self.__dict__.pop("feature_names_in_", None)
        if features.is_table_:
            self.feature_names_in_ = features.feature_names_in_

    # ---- answers: those of the estimator, of rows as they come

    def numbers(self, X: Any) -> Any:
        """What the features make of rows: the X (n, d) that the estimator sees."""
        check_is_fitted(self, "estimator_")
        return self.features_.transform(X)

    def predict(self, X: Any) -> NDArray:
        """Labels (n,)."""
        return np.asarray(self.estimator_.predict(self.numbers(X)))

    @available_if(_inner_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray:
        """Probabilities (n, K)."""
        return np.asarray(self.estimator_.predict_proba(self.numbers(X)))

    @available_if(_inner_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray:
        """Scores of the estimator."""
        return np.asarray(self.estimator_.decision_function(self.numbers(X)))

    @available_if(_inner_has("predict_topk"))
    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row and their scores, best first."""
        return TopK(*self.estimator_.predict_topk(self.numbers(X), k))

    @available_if(_inner_has("explain"))
    def explain(self, X: Any, *args: Any, **kwargs: Any) -> Any:
        """The estimator's explanation of its answers to these rows."""
        return self.estimator_.explain(self.numbers(X), *args, **kwargs)

    @available_if(_inner_has("kneighbors"))
    def kneighbors(self, X: Any, *args: Any, **kwargs: Any) -> Any:
        """The estimator's nearest training rows."""
        return self.estimator_.kneighbors(self.numbers(X), *args, **kwargs)

    # ---- model files: features and estimator each under a prefix

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        from kway.store import pack

        manifest, inner = pack(self.estimator_)
        learned, own = self.features_._fitted()
        facts = {"inner": manifest, "learned": learned, "settings": self.features_._stored_params()}
        arrays = {_INNER + name: array for name, array in inner.items()}
        return facts, {**arrays, **{_FEATURES + name: array for name, array in own.items()}}

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        from kway.store import unpack

        self.estimator_ = unpack(facts["inner"], _under(_INNER, arrays))
        self.features_ = Features(**facts["settings"])
        self.features_._restore(facts["learned"], _under(_FEATURES, arrays))
        if len(self.estimator_.classes_) != len(self.classes_):
            raise ModelFileError("the model file disagrees with itself about its classes; save the model again")


def _under(prefix: str, arrays: dict[str, NDArray]) -> dict[str, NDArray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}
