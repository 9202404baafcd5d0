"""A classifier with its features inside: raw rows of a table in, labels out, one model file.

fit: table -> Features -> X (n, d) -> estimator          predict: the same way, with what was learned in fit
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from kway.base.estimator_inside import DelegatedAnswers, inner_has, innermost, prefixed, under
from kway.base.own_threads import on_own_threads
from kway.data.column_spread import spread
from kway.data.features.features import Features

_FEATURES = "features."  # prefix of the features' arrays in a model file


class FeaturedClassifier(DelegatedAnswers):
    """`estimator` (SoftmaxClassifier where None) behind `features` (Features() where None)."""

    features_: Features
    spread_: NDArray | None = (
        None  # (d,) of the columns of the training rows, behind a linear model: what weights weigh
    )
    reasons_: dict[str, Any] | None = None  # what the fit found to matter, of a model without weights (select.reasons)

    def __init__(self, estimator: Any = None, features: Features | None = None) -> None:
        self.estimator = estimator
        self.features = features

    @classmethod
    def of(cls, features: Features, estimator: Any, numbers: Any = None) -> FeaturedClassifier:
        """Two fitted parts as one: the estimator was fitted on what these features made, `numbers` (n, d)."""
        check_is_fitted(features, "parts_")
        check_is_fitted(estimator)
        whole = cls(estimator, features)
        whole._join(features, estimator, numbers)
        return whole

    @on_own_threads
    def fit(self, X: Any, y: Any, **fit_params: Any) -> FeaturedClassifier:
        """Learn the features from the rows of X, then the estimator from what they make of them."""
        features = Features() if self.features is None else clone(self.features)
        numbers = features.fit_transform(X)
        self._join(features, self._fresh().fit(numbers, y, **fit_params), numbers)
        return self

    def _join(self, features: Features, estimator: Any, numbers: Any = None) -> None:
        self._forget()
        self.features_ = features
        self._adopt(estimator, features)
        if numbers is not None and _weighs(estimator):
            self.spread_ = np.minimum(spread(numbers), np.finfo(np.float32).max).astype(np.float32)

    # ---- answers: those of the estimator, of rows as they come

    @on_own_threads
    def numbers(self, X: Any) -> Any:
        """What the features make of rows: the X (n, d) that the estimator sees."""
        check_is_fitted(self, "estimator_")
        return self.features_.transform(X)

    def _rows(self, X: Any) -> Any:
        return self.numbers(X)

    def _passed(self, X: Any) -> Any:
        return X

    @available_if(inner_has("kneighbors"))
    def kneighbors(self, X: Any, *args: Any, **kwargs: Any) -> Any:
        """The estimator's nearest training rows."""
        return self.estimator_.kneighbors(self.numbers(X), *args, **kwargs)

    @available_if(inner_has("predict_set"))
    def predict_set(self, X: Any) -> Any:
        """The estimator's set of labels for each row."""
        return self.estimator_.predict_set(self.numbers(X))

    # ---- model files: the features under a prefix, as the estimator is

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        learned, arrays = self.features_._fitted()
        spreads = {} if self.spread_ is None else {"spread": self.spread_}
        facts = {"learned": learned, "settings": self.features_._stored_params()}
        facts |= {} if self.reasons_ is None else {"reasons": self.reasons_}
        return facts, {**prefixed(_FEATURES, arrays), **spreads}

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.features_ = Features(**facts["settings"])
        self.features_._restore(facts["learned"], under(_FEATURES, arrays))
        self.spread_ = arrays.get("spread")
        self.reasons_ = facts.get("reasons")


def _weighs(estimator: Any) -> bool:
    """Whether a model has weights of its columns, also inside others."""
    return hasattr(innermost(estimator), "coef_")
