"""The linear classifiers by name: LinearClassifier with its loss fixed and the parameters that mean something to it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.data import gate
from kway.errors import CombinationError, InputError
from kway.linear import answers
from kway.linear import problem as setup
from kway.linear.classifier import LinearClassifier
from kway.linear.penalties import pick_penalty
from kway.linear.solvers.least_squares import least_squares
from kway.search.index import TopK


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


class LeastSquaresClassifier(LinearClassifier):
    """Least squares on labels, the honest straw man.

    `targets="one-hot"`: a score a class fitted to 0 and 1 (two classes: -1 and +1), the largest wins.
    `targets="number"`: one score fitted to the class's number 0..K-1 and rounded, as if classes were on a line.
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

    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> LeastSquaresClassifier:
        """Learn from X (n, d) and labels (n,)."""
        if self.targets not in ("one-hot", "number"):
            raise InputError(f"targets must be 'one-hot' or 'number'; got {self.targets!r}")
        if self.targets == "one-hot":
            super().fit(X, y, sample_weight)
            return self
        setup.check_parameters(self)
        X, labels = gate.rows_and_labels(self, X, y)
        setup.refuse_one_class(labels, type(self).__name__)
        self.classes_ = labels.classes
        self._fit_number(setup.training(X, labels, gate.weights(sample_weight, X), self.class_weight))
        return self

    def _fit_number(self, training: setup.Training) -> None:
        """Regress on the class's number: theta (1, d + 1)."""
        penalty = pick_penalty(self.penalty, self.l1_ratio).times(self.alpha)
        if not penalty.smooth:
            raise CombinationError("targets='number' is solved in closed form and needs a penalty without an L1 part")
        numbers = training.labels.codes[:, None].astype(np.float64)
        theta = least_squares(training.X, numbers, penalty.ridge, training.weight, self.fit_intercept)
        theta = theta.astype(training.X.dtype)
        self.coef_, self.intercept_ = theta[:, :-1], theta[:, -1]
        misses = (answers.scores(training.X, self.coef_, self.intercept_) - numbers).ravel() ** 2
        mean = np.mean(misses if training.weight is None else misses * training.weight)
        self.objective_ = float(mean) + penalty.value(self.coef_)
        self.n_iter_, self.history_, self.solver_ = 1, [self.objective_], "least-squares"

    def decision_function(self, X: Any) -> NDArray:
        """Scores; for targets="number" minus the distance of f to each class's number: the round has the largest."""
        if self.targets == "one-hot":
            return super().decision_function(X)
        numbers = self._numbers(X)
        if len(self.classes_) == 2:
            return numbers - 0.5
        return -np.abs(numbers[:, None] - np.arange(len(self.classes_), dtype=numbers.dtype))

    def predict(self, X: Any) -> NDArray:
        """The class; for targets="number" the score rounded to a class's number: 4.835 -> 5."""
        if self.targets == "one-hot":
            return super().predict(X)
        numbers = self._numbers(X)
        return self.classes_[round_to_class(numbers, len(self.classes_))]

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best classes; for targets="number" those whose numbers are nearest."""
        if self.targets == "one-hot":
            return super().predict_topk(X, k)
        numbers = self._numbers(X)
        scores = -np.abs(numbers[:, None] - np.arange(len(self.classes_)))
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return TopK(self.classes_[order], np.take_along_axis(scores, order, axis=1))

    def _numbers(self, X: Any) -> NDArray:
        X = self._checked(X)
        return answers.scores(X, self.coef_, self.intercept_, self.n_jobs)[:, 0]


def round_to_class(numbers: NDArray, n_classes: int) -> NDArray[np.int64]:
    """The nearest class number; beyond the ends, the end; NaN, where a score overflowed, is the first.

    >>> round_to_class(np.array([4.835, -3.0, 99.0]), 10)
    array([5, 0, 9])
    """
    return np.clip(np.floor(np.nan_to_num(numbers) + 0.5), 0, n_classes - 1).astype(np.int64)


__all__ = [
    "LeastSquaresClassifier",
    "LogisticClassifier",
    "PerceptronClassifier",
    "SVMClassifier",
    "SoftmaxClassifier",
]
