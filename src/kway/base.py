"""What every kway classifier has: labels out of scores, top-k without n x K, model files.

A classifier gives `decision_function` and `_topk(X, k)`; this base turns them into answers. `predict_proba` is the
one answer of size n x K, so it is refused, before anything is allocated, where it would not fit.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from kway.errors import BudgetError

PROBA_BUDGET = 4 * 2**30  # bytes one predict_proba or decision_function may allocate


def refuse_above_budget(n: int, n_classes: int, itemsize: int, what: str) -> None:
    """Raise before an (n, K) array larger than PROBA_BUDGET is allocated."""
    need = n * n_classes * itemsize
    if need > PROBA_BUDGET:
        raise BudgetError(
            f"{what} of {n:,} rows x {n_classes:,} classes needs {need / 2**30:.1f} GiB, above the budget of "
            f"{PROBA_BUDGET / 2**30:.1f} GiB; use predict_topk(X, k), which never builds that array, or pass fewer rows"
        )


class Classifier(ClassifierMixin, BaseEstimator):
    """Base of every kway classifier: scikit-learn's conventions plus `save`."""

    classes_: NDArray

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one file that cannot run code; `kway.load(path)` reads it back."""
        from kway.store import save

        save(self, path)

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """JSON facts and arrays that, with the parameters, make up the fitted state."""
        raise TypeError(f"{type(self).__name__} cannot be saved to a model file")

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        """Reverse of `_fitted`."""
        raise TypeError(f"{type(self).__name__} cannot be read from a model file")


def labels_of(classes: NDArray, ids: NDArray[np.int64]) -> NDArray:
    """Labels of class ids (q, k); where an id is -1 (fewer classes than k) the first class stands, with score -inf."""
    return classes[np.maximum(ids, 0)]
