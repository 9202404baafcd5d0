"""Decisions by expected cost, for a fitted classifier with probabilities.

    predict(x) = argmin over k of sum_c p_c(x) C_ck        C_ck: cost of predicting class k for a row of class c

If every mistake costs the same, this is the most probable class. The decisions are optimal if the probabilities are
calibrated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.base.class_rows import best_of_table
from kway.base.classifier import Classifier
from kway.base.wrappers import DelegatedAnswers, layers
from kway.errors import InputError
from kway.search.results import TopK


class CostSensitiveClassifier(DelegatedAnswers):
    """A fitted classifier that predicts the label of lowest expected cost.

    Probabilities are those of the classifier inside. `decision_function` and `predict_topk` return minus the expected
    cost of each label.

    Parameters
    ----------
    estimator : classifier
        A classifier with `predict_proba`. `fit` refuses None, the default.
    costs : array-like of shape (n_classes, n_classes)
        Cost of predicting class k (column) for a row of class c (row), in the order of the sorted labels. `fit` refuses
        None, the default.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    classes_ : ndarray of shape (n_classes,)
        Labels.
    costs_ : ndarray of shape (n_classes, n_classes)
        The costs.
    """

    costs_: NDArray[np.float64]

    def __init__(self, estimator: Any = None, costs: ArrayLike | None = None) -> None:
        self.estimator = estimator
        self.costs = costs

    @classmethod
    def of(cls, fitted: Any, costs: NDArray[np.float64]) -> CostSensitiveClassifier:
        """Return a fitted classifier with costs (K, K) in the order of its classes."""
        model = cls()
        model._decide(fitted, costs)
        return model

    def fit(self, X: Any, y: Any, **params: Any) -> CostSensitiveClassifier:
        """Fit the estimator.

        Parameters
        ----------
        X : object
            Rows, as the estimator takes them.
        y : array-like of shape (n_samples,)
            Labels.
        **params : object
            Arguments of the estimator's `fit`, such as `sample_weight`.

        Returns
        -------
        self : CostSensitiveClassifier
            The fitted model.
        """
        if self.costs is None:
            raise InputError("CostSensitiveClassifier needs costs, got None; pass one row and one column per class")
        self._decide(self._fresh().fit(X, y, **params), self.costs)
        return self

    def _decide(self, fitted: Any, costs: ArrayLike) -> None:
        """Store a fitted classifier and its costs, after both were checked, so that an error changes nothing."""
        if not hasattr(fitted, "predict_proba"):
            raise InputError(f"costs need probabilities, and {type(fitted).__name__} has none; leave out costs=")
        costs_ = checked_costs(costs, len(fitted.classes_))
        self._adopt(fitted)
        self.costs_ = costs_

    @property
    def estimators_(self) -> Any:
        """The members of a blend inside; AttributeError if there is none."""
        return self.estimator_.estimators_

    @property
    def reasons_(self) -> Any:
        """The important columns that `kway.fit` stored in the classifier inside."""
        return self.estimator_.reasons_

    @reasons_.setter
    def reasons_(self, value: Any) -> None:
        self.estimator_.reasons_ = value

    # These methods of Classifier need only the three private methods below.
    predict = Classifier.predict
    predict_topk = Classifier.predict_topk
    decision_function = Classifier.decision_function

    def _scores(self, rows: Any) -> NDArray[np.float64]:
        return -np.asarray(self.estimator_.predict_proba(rows), np.float64) @ self.costs_  # (m, K)

    def _best_of_block(self, rows: Any, k: int) -> TopK:
        return best_of_table(self._scores(rows), k)

    def _answer_type(self, rows: Any) -> np.dtype:
        return np.dtype(np.float64)

    # ---- model files

    def _stored_params(self) -> dict[str, Any]:
        return {"estimator": None, "costs": None}

    def _facts(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {}, {"costs": self.costs_}

    def _restore_facts(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        self.costs_ = arrays["costs"]


def decides_by_cost(model: Any) -> bool:
    """Return whether a model predicts the label of lowest expected cost, not the most probable one."""
    return any(isinstance(layer, CostSensitiveClassifier) for layer in layers(model))


def checked_costs(costs: ArrayLike, n_classes: int) -> NDArray[np.float64]:
    """Return costs as an array (K, K); raise InputError unless there is one finite number per pair of classes."""
    try:
        table = np.asarray(costs, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"costs must be numbers, one per true and predicted label; {error}") from error
    if table.shape != (n_classes, n_classes):
        raise InputError(
            f"costs has shape {table.shape}, expected ({n_classes}, {n_classes}): one row per true label and one "
            "column per predicted label, in the order of the sorted labels"
        )
    if not np.isfinite(table).all():
        raise InputError("costs contains NaN or infinity; give every pair of true and predicted label a number")
    return table
