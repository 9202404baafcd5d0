"""What the three meta-estimators share: an estimator inside, whose rows, labels and model file they carry.

X goes to the inner estimator as it is (frames, text, sparse rows: whatever that takes), which checks it; labels are
checked here. `estimator=None` stands for `SoftmaxClassifier()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import check_random_state, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _num_samples, check_is_fitted

from kway.base import Classifier
from kway.confidence.heldout import blocks
from kway.confidence.ranking import ranked
from kway.data.labels import Labels, encode, encode_as
from kway.errors import InputError
from kway.search.index import TopK

_INNER = "inner."  # prefix of the inner estimator's arrays in a model file


class Given(NamedTuple):
    """Rows that can be indexed, and their labels."""

    X: Any
    labels: Labels


def inner_has(*methods: str) -> Callable[[Any], bool]:
    """A check for `available_if`: the wrapper has a method where the estimator inside has one of these."""

    def check(wrapper: Wrapper) -> bool:
        inner = getattr(wrapper, "estimator_", None) or wrapper._unfitted()
        if not any(hasattr(inner, method) for method in methods):
            getattr(inner, methods[0])  # its own error says why not
        return True

    return check


class Wrapper(Classifier):
    """Base of the meta-estimators; answers are those of the estimator inside unless said otherwise."""

    estimator: Any
    cv: Any
    random_state: Any
    estimator_: Any

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._unfitted())
        tags.input_tags = inner.input_tags
        tags.classifier_tags.multi_class = inner.classifier_tags is None or inner.classifier_tags.multi_class
        return tags

    # ---- learning

    def _unfitted(self) -> Any:
        """The estimator as it was given, or the default."""
        if self.estimator is None:
            from kway.linear.named import SoftmaxClassifier

            return SoftmaxClassifier()
        return self.estimator

    def _rng(self) -> np.random.RandomState:
        """What is held out is drawn by this; None means seed 0, so that the same fit gives the same model."""
        return check_random_state(0 if self.random_state is None else self.random_state)

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
        labels = self._known_labels(y, *more) if self._is_prefit() else encode(y)
        n = _num_samples(X)
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
        return clone(self._unfitted()).fit(X, labels.classes[labels.codes])

    def _adopt(self, fitted: Any) -> None:
        self.estimator_ = fitted
        self.classes_ = np.asarray(fitted.classes_)
        for name in ("n_features_in_", "feature_names_in_"):
            self.__dict__.pop(name, None)
            if hasattr(fitted, name):
                setattr(self, name, getattr(fitted, name))

    # ---- answers

    def predict(self, X: Any) -> NDArray:
        """Labels (n,), those of the estimator inside."""
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict(X))

    @available_if(inner_has("predict_proba"))
    def predict_proba(self, X: Any) -> NDArray:
        """Probabilities (n, K) of the estimator inside."""
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.predict_proba(X))

    @available_if(inner_has("decision_function"))
    def decision_function(self, X: Any) -> NDArray:
        """Scores of the estimator inside."""
        check_is_fitted(self, "estimator_")
        return np.asarray(self.estimator_.decision_function(X))

    @available_if(inner_has("predict_topk", "predict_proba"))
    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row and their scores, best first; of another library's estimator, probabilities."""
        check_is_fitted(self, "estimator_")
        k = min(k, len(self.classes_))
        if hasattr(self.estimator_, "predict_topk"):
            return TopK(*self.estimator_.predict_topk(X, k))
        parts = [ranked(self.estimator_, block, k) for block in blocks(X, _num_samples(X), len(self.classes_))]
        codes = np.concatenate([part.codes for part in parts])
        return TopK(self.classes_[codes], np.concatenate([part.probabilities for part in parts]))

    @available_if(inner_has("explain"))
    def explain(self, X: Any) -> Any:
        """Why: what the estimator inside says."""
        check_is_fitted(self, "estimator_")
        return self.estimator_.explain(X)

    # ---- model files: the fitted estimator inside is packed like any other, its arrays under a prefix

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        from kway.store import pack

        manifest, arrays = pack(self.estimator_)
        facts, own = self._facts()
        return {"inner": manifest, **facts}, {**own, **{_INNER + name: array for name, array in arrays.items()}}

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        from kway.store import unpack

        inner = {name.removeprefix(_INNER): array for name, array in arrays.items() if name.startswith(_INNER)}
        self.estimator_ = unpack(facts["inner"], inner)
        own = {name: array for name, array in arrays.items() if not name.startswith(_INNER)}
        self._restore_facts(facts, own)

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """What was learned around the estimator inside."""
        raise TypeError(f"{type(self).__name__} cannot be saved to a model file")

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        """Reverse of `_facts`."""
        raise TypeError(f"{type(self).__name__} cannot be read from a model file")
