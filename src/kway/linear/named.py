"""The linear classifiers by name: LinearClassifier with its loss fixed and the parameters that mean something to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metaestimators import available_if

from kway.base.class_rows import best_columns
from kway.linear.classifier import ClassRows, LinearClassifier
from kway.linear.losses import CLASS_NUMBER, Loss
from kway.parameters import check_parameters, one_of
from kway.rows.gpu.device import on_host
from kway.search.results import TopK


class SoftmaxClassifier(LinearClassifier):
    """Softmax regression: all classes in one cross-entropy, -log p_y; parameters as in LinearClassifier.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> SoftmaxClassifier().fit(X, y).score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        penalty: str | None = "l2",
        alpha: float = 1e-4,
        solver: Any = "auto",
        l1_ratio: float = 0.5,
        temperature: float = 1.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-3,
        batch_size: int = 1,
        learning_rate: Any = "auto",
        label_smoothing: float = 0.0,
        class_weight: Any = None,
        early_stopping: bool | float = False,
        warm_start: bool = False,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            "softmax", penalty, alpha, solver, "joint", l1_ratio, temperature, fit_intercept, max_iter, tol,
            batch_size, learning_rate, label_smoothing, class_weight, early_stopping, warm_start, device, n_jobs,
            random_state, verbose,
        )  # fmt: skip


class LogisticClassifier(LinearClassifier):
    """Logistic regression, log(1 + exp(-y f)): two classes, or each class against the rest.

    Parameters as in LinearClassifier; `multiclass="joint"` is softmax regression.
    """

    def __init__(
        self,
        penalty: str | None = "l2",
        alpha: float = 1e-4,
        solver: Any = "auto",
        multiclass: str = "one-vs-all",
        l1_ratio: float = 0.5,
        temperature: float = 1.0,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-3,
        batch_size: int = 1,
        learning_rate: Any = "auto",
        label_smoothing: float = 0.0,
        class_weight: Any = None,
        early_stopping: bool | float = False,
        warm_start: bool = False,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            "logistic", penalty, alpha, solver, multiclass, l1_ratio, temperature, fit_intercept, max_iter, tol,
            batch_size, learning_rate, label_smoothing, class_weight, early_stopping, warm_start, device, n_jobs,
            random_state, verbose,
        )  # fmt: skip


class SVMClassifier(LinearClassifier):
    """Linear support vector machine: hinge loss, soft margin; `alpha=0` asks for the hard margin.

    `multiclass="joint"` is Weston and Watkins' sum of hinges, "one-vs-all" K separate machines. `support_` and
    `margin_` = 1 / ||w|| are kept. The hard margin refuses data that no hyperplane separates (NotSeparableError).
    """

    def __init__(
        self,
        penalty: str | None = "l2",
        alpha: float = 1e-4,
        solver: Any = "auto",
        multiclass: str = "joint",
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        max_iter: int = 10_000,
        tol: float = 1e-3,
        batch_size: int = 1,
        learning_rate: Any = "auto",
        class_weight: Any = None,
        early_stopping: bool | float = False,
        warm_start: bool = False,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            "hinge", penalty, alpha, solver, multiclass, l1_ratio, 1.0, fit_intercept, max_iter, tol, batch_size,
            learning_rate, 0.0, class_weight, early_stopping, warm_start, device, n_jobs, random_state, verbose,
        )  # fmt: skip


class PerceptronClassifier(LinearClassifier):
    """Perceptron: from a random start, w += eta y x for each row with y f <= 0, eta falling slowly over the epochs."""

    def __init__(
        self,
        penalty: str | None = "none",
        alpha: float = 1e-4,
        solver: Any = "auto",
        multiclass: str = "joint",
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-3,
        batch_size: int = 1,
        learning_rate: Any = "auto",
        class_weight: Any = None,
        early_stopping: bool | float = False,
        warm_start: bool = False,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            "perceptron", penalty, alpha, solver, multiclass, l1_ratio, 1.0, fit_intercept, max_iter, tol, batch_size,
            learning_rate, 0.0, class_weight, early_stopping, warm_start, device, n_jobs, random_state, verbose,
        )  # fmt: skip


def _learns_by_epochs(model: LeastSquaresClassifier) -> bool:
    if model.targets == "number":
        raise AttributeError("targets='number' is solved in closed form, so it has no partial_fit; use 'one-hot'")
    return True


class LeastSquaresClassifier(LinearClassifier):
    """Least squares on labels, a baseline.

    `targets="one-hot"`: a score a class fitted to 0 and 1 (two classes: -1 and +1), the largest wins.
    `targets="number"`: one score fitted to the class's number 0..K-1, of which the nearest wins (4.835 -> 5), as if
    classes were on a line. It is solved in closed form, so there is no partial_fit.
    """

    def __init__(
        self,
        targets: str = "one-hot",
        penalty: str | None = "l2",
        alpha: float = 1e-4,
        solver: Any = "auto",
        multiclass: str = "joint",
        l1_ratio: float = 0.5,
        fit_intercept: bool = True,
        max_iter: int = 1000,
        tol: float = 1e-3,
        batch_size: int = 1,
        learning_rate: Any = "auto",
        class_weight: Any = None,
        early_stopping: bool | float = False,
        warm_start: bool = False,
        device: str = "cpu",
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            "squared", penalty, alpha, solver, multiclass, l1_ratio, 1.0, fit_intercept, max_iter, tol, batch_size,
            learning_rate, 0.0, class_weight, early_stopping, warm_start, device, n_jobs, random_state, verbose,
        )  # fmt: skip
        self.targets = targets

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = self.targets == "number"  # classes are not on a line: that is its lesson
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_parameters(self, targets=one_of("one-hot", "number"))

    def _form(self, n_classes: int | None = None) -> Loss:
        return super()._form(n_classes) if self.targets == "one-hot" else CLASS_NUMBER

    @available_if(_learns_by_epochs)
    def partial_fit(
        self, X: Any, y: Any, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> LeastSquaresClassifier:
        """One epoch of SGD over these rows; only for targets="one-hot"."""
        super().partial_fit(X, y, classes, sample_weight)
        return self

    # ---- answers for targets="number": the class whose number is nearest to the score f

    def _scores(self, rows: Any) -> Any:
        """For targets="number" minus the distance of f to each class's number; for two classes f - 1/2."""
        f = super()._scores(rows)
        if self.targets == "one-hot":
            return f
        f, K = on_host(f), len(self.classes_)
        return f - f.dtype.type(0.5) if K == 2 else -np.abs(f - np.arange(K, dtype=f.dtype))

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        if self.targets == "one-hot":
            return super()._best(rows, k, stated)
        f, numbers = on_host(super()._scores(rows)), np.arange(len(self.classes_))  # (n, 1), (K,)
        # far beyond the ends every number is equally far in f's digits; the end is still the nearest
        codes = best_columns(-np.abs(np.clip(f, -1, len(numbers)) - numbers), k)
        return TopK(codes, -np.abs(f - codes).astype(f.dtype))

    def _class_rows(self) -> ClassRows:
        """The nearest number c maximises -(f - c)^2, which is 2 c f - c^2 up to what is the same for all classes."""
        if self.targets == "one-hot":
            return super()._class_rows()
        numbers = np.arange(len(self.classes_), dtype=self.coef_.dtype)
        return ClassRows(2 * numbers[:, None] * self.coef_, 2 * numbers * self.intercept_ - numbers**2)


__all__ = [
    "LeastSquaresClassifier",
    "LogisticClassifier",
    "PerceptronClassifier",
    "SVMClassifier",
    "SoftmaxClassifier",
]
