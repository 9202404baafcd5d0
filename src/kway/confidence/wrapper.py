"""What the three meta-estimators share: rows and labels that can be held out from the estimator inside.

X goes to the inner estimator as it is (kway.base.estimator_inside); labels are checked here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags, indexable
from sklearn.utils.validation import _num_samples, check_is_fitted

from kway.base.estimator_inside import EstimatorInside
from kway.compute.gpu.device import on_host
from kway.data.labels import Labels, encode, encode_as
from kway.errors import InputError, KindError
from kway.parameters import checked_rng


class Given(NamedTuple):
    """Rows that can be indexed, and their labels."""

    X: Any
    labels: Labels


class ConfidenceWrapper(EstimatorInside):
    """Base of the meta-estimators: fits the estimator inside, and says what it must not learn from."""

    cv: Any
    random_state: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._unfitted())
        tags.input_tags = inner.input_tags
        tags.classifier_tags.multi_class = inner.classifier_tags is None or inner.classifier_tags.multi_class
        return tags

    # ---- learning

    def _rng(self) -> np.random.RandomState:
        """What is held out is drawn by this; None means seed 0, so that the same fit gives the same model."""
        return checked_rng(0 if self.random_state is None else self.random_state)

    def _is_prefit(self) -> bool:
        return (isinstance(self.cv, str) and self.cv == "prefit") or isinstance(self.estimator, FrozenEstimator)

    def _prefit(self) -> Any:
        if self.estimator is None:
            raise InputError(f"{type(self).__name__}(cv='prefit') needs a fitted estimator; got estimator=None")
        check_is_fitted(self.estimator)
        return self.estimator

    def _given(self, X: Any, y: Any, *more: Any) -> Given:
        """Rows that can be indexed and checked labels; of a fitted estimator, among its classes and `more`."""
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None; pass one label a row"
            )
        X, y = on_host(X), on_host(y)
        labels = self._known_labels(y, *more) if self._is_prefit() else encode(y)
        try:
            n = _num_samples(X)
        except TypeError as error:
            raise KindError(f"X must be rows that can be counted and picked; {error}") from error
        if n != len(labels.codes):
            raise InputError(
                f"Found input variables with inconsistent numbers of samples: X has {n} rows, y has "
                f"{len(labels.codes)}; pass one label a row"
            )
        return Given(indexable(X)[0], labels)

    def _known_labels(self, y: Any, *more: Any) -> Labels:
        classes = np.asarray(self._prefit().classes_)
        if more:
            classes = np.union1d(classes, np.array(more, dtype=object if classes.dtype == object else None))
        return Labels(classes, encode_as(y, classes))

    def _learn(self, X: Any, labels: Labels) -> Any:
        """A new estimator, fitted on these rows."""
        return self._fresh().fit(X, labels.classes[labels.codes])
