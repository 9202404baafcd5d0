"""The named linear classifiers: LinearClassifier with a fixed loss and the parameters that apply to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from kway.base.class_rows import best_columns
from kway.linear.classifier import ClassRows, LinearClassifier
from kway.linear.losses import CLASS_NUMBER, Loss
from kway.parameters import check_parameters, one_of
from kway.rows.gpu.device import on_host
from kway.search.results import TopK


class SoftmaxClassifier(LinearClassifier):
    """Softmax regression: one cross-entropy, -log p_y, over all classes.

    Parameters
    ----------
    penalty : {"l2", "l1", "elasticnet", "none"}, default="l2"
        Penalty on the weights. The bias is never penalized.
    alpha : float, default=1e-4
        Weight of the penalty, which is added to the mean loss. Raise it to regularize more. As the loss is a mean, the
        same value suits any number of rows.
    solver : str or solver object, default="auto"
        "auto", "lbfgs", "proximal", "least-squares", "dual", "gradient", "sgd", "sampled", or an object such as
        `SGD(momentum=0.9)`. "auto" chooses the fastest solver for the loss, the penalty and the rows.
    l1_ratio : float, default=0.5
        Share of L1 in the elastic net.
    temperature : float, default=1.0
        T of softmax(f / T) in `predict_proba`.
    fit_intercept : bool, default=True
        Whether to learn a bias per score.
    max_iter : int, default=1000
        Maximum number of iterations; for "sgd" and "sampled", of epochs.
    tol : float, default=1e-3
        Relative excess of the objective over its optimum. A fit without a ConvergenceWarning is within tol. Below
        1e-6, float32 rows are converted to float64.
    batch_size : int, default=1
        Rows per step of "sgd". "sampled" uses 256 (up to 2,048 on a GPU) if this is 1.
    learning_rate : float, str or schedule, default="auto"
        Step size of "sgd" and "sampled": a number, "auto", "constant", "decay", "cosine" or a schedule object.
    label_smoothing : float, default=0.0
        eps: targets are 1 - eps for the class and eps / (K - 1) for each other class.
    class_weight : dict, "balanced" or None, default=None
        Weights by label. "balanced" gives all classes the same total weight.
    early_stopping : bool or float, default=False
        Stop when the loss on a validation split no longer falls. True holds out a tenth of the rows, a float this
        share.
    warm_start : bool, default=False
        Whether `fit` starts from the last solution.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        "cuda" keeps rows and weights on the GPU (solvers "lbfgs", "proximal", "gradient", "sgd" and "sampled").
        "auto" uses a GPU if there is one and it is expected to be faster; `why_` has the reason.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of everything that is drawn at random; None is a fixed seed, too.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    coef_ : ndarray of shape (n_scores, n_features)
        Weights; one row per class, or one row for two classes.
    intercept_ : ndarray of shape (n_scores,)
        Biases.
    n_iter_ : int
        Number of iterations.
    objective_ : float
        The penalty plus the mean loss at the solution.
    history_ : list of float
        The objective after each iteration.
    solver_ : str
        The solver that was used.
    n_features_in_ : int
        Number of features.

    See Also
    --------
    LogisticClassifier : One binary problem per class.
    LinearClassifier : Any loss.

    Examples
    --------
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

    `multiclass="joint"` is softmax regression.

    Parameters
    ----------
    penalty : {"l2", "l1", "elasticnet", "none"}, default="l2"
        Penalty on the weights. The bias is never penalized.
    alpha : float, default=1e-4
        Weight of the penalty, which is added to the mean loss. Raise it to regularize more. As the loss is a mean, the
        same value suits any number of rows.
    solver : str or solver object, default="auto"
        "auto", "lbfgs", "proximal", "least-squares", "dual", "gradient", "sgd", "sampled", or an object such as
        `SGD(momentum=0.9)`. "auto" chooses the fastest solver for the loss, the penalty and the rows.
    multiclass : {"joint", "one-vs-all"}, default="one-vs-all"
        "joint" fits all classes in one problem, "one-vs-all" one binary problem per class.
    l1_ratio : float, default=0.5
        Share of L1 in the elastic net.
    temperature : float, default=1.0
        T of softmax(f / T) in `predict_proba`.
    fit_intercept : bool, default=True
        Whether to learn a bias per score.
    max_iter : int, default=1000
        Maximum number of iterations; for "sgd" and "sampled", of epochs.
    tol : float, default=1e-3
        Relative excess of the objective over its optimum. A fit without a ConvergenceWarning is within tol. Below
        1e-6, float32 rows are converted to float64.
    batch_size : int, default=1
        Rows per step of "sgd". "sampled" uses 256 (up to 2,048 on a GPU) if this is 1.
    learning_rate : float, str or schedule, default="auto"
        Step size of "sgd" and "sampled": a number, "auto", "constant", "decay", "cosine" or a schedule object.
    label_smoothing : float, default=0.0
        eps: targets are 1 - eps for the class and eps / (K - 1) for each other class.
    class_weight : dict, "balanced" or None, default=None
        Weights by label. "balanced" gives all classes the same total weight.
    early_stopping : bool or float, default=False
        Stop when the loss on a validation split no longer falls. True holds out a tenth of the rows, a float this
        share.
    warm_start : bool, default=False
        Whether `fit` starts from the last solution.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        "cuda" keeps rows and weights on the GPU (solvers "lbfgs", "proximal", "gradient", "sgd" and "sampled").
        "auto" uses a GPU if there is one and it is expected to be faster; `why_` has the reason.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of everything that is drawn at random; None is a fixed seed, too.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    coef_ : ndarray of shape (n_scores, n_features)
        Weights; one row per class, or one row for two classes.
    intercept_ : ndarray of shape (n_scores,)
        Biases.
    n_iter_ : int
        Number of iterations.
    objective_ : float
        The penalty plus the mean loss at the solution.
    history_ : list of float
        The objective after each iteration.
    solver_ : str
        The solver that was used.
    n_features_in_ : int
        Number of features.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> LogisticClassifier().fit(X, y).score(X, y) > 0.9
    True
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
    """Linear support vector machine: hinge loss with a soft margin, or a hard margin with `alpha=0`.

    For sparse text choose `multiclass="one-vs-all"`, the form of scikit-learn's LinearSVC: its K problems are
    independent, so that dual coordinate ascent solves each in a few sweeps over the nonzero values. The default joint
    form compares the scores of all classes in one problem [1]_. On sparse text it takes tens of times as long, because
    its classes cannot be solved one by one, and is seldom more accurate.

    Parameters
    ----------
    penalty : {"l2", "l1", "elasticnet", "none"}, default="l2"
        Penalty on the weights. The bias is never penalized.
    alpha : float, default=1e-4
        Weight of the penalty, which is added to the mean loss. Raise it to regularize more. As the loss is a mean, the
        same value suits any number of rows.
    solver : str or solver object, default="auto"
        "auto", "lbfgs", "proximal", "least-squares", "dual", "gradient", "sgd", "sampled", or an object such as
        `SGD(momentum=0.9)`. "auto" chooses the fastest solver for the loss, the penalty and the rows.
    multiclass : {"joint", "one-vs-all"}, default="joint"
        "joint" fits all classes in one problem, "one-vs-all" one binary problem per class.
    l1_ratio : float, default=0.5
        Share of L1 in the elastic net.
    fit_intercept : bool, default=True
        Whether to learn a bias per score.
    max_iter : int, default=10_000
        Maximum number of iterations; for "sgd" and "sampled", of epochs.
    tol : float, default=1e-3
        Relative excess of the objective over its optimum. A fit without a ConvergenceWarning is within tol. Below
        1e-6, float32 rows are converted to float64.
    batch_size : int, default=1
        Rows per step of "sgd". "sampled" uses 256 (up to 2,048 on a GPU) if this is 1.
    learning_rate : float, str or schedule, default="auto"
        Step size of "sgd" and "sampled": a number, "auto", "constant", "decay", "cosine" or a schedule object.
    class_weight : dict, "balanced" or None, default=None
        Weights by label. "balanced" gives all classes the same total weight.
    early_stopping : bool or float, default=False
        Stop when the loss on a validation split no longer falls. True holds out a tenth of the rows, a float this
        share.
    warm_start : bool, default=False
        Whether `fit` starts from the last solution.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        "cuda" keeps rows and weights on the GPU (solvers "lbfgs", "proximal", "gradient", "sgd" and "sampled").
        "auto" uses a GPU if there is one and it is expected to be faster; `why_` has the reason.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of everything that is drawn at random; None is a fixed seed, too.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    coef_ : ndarray of shape (n_scores, n_features)
        Weights; one row per class, or one row for two classes.
    intercept_ : ndarray of shape (n_scores,)
        Biases.
    n_iter_ : int
        Number of iterations.
    objective_ : float
        The penalty plus the mean loss at the solution.
    history_ : list of float
        The objective after each iteration.
    solver_ : str
        The solver that was used.
    n_features_in_ : int
        Number of features.
    support_ : ndarray of int
        Training rows on or inside the margin.
    margin_ : float or ndarray
        1 / ||w||, one per row of `coef_`.

    Raises
    ------
    NotSeparableError
        If `alpha=0` and no hyperplane separates the classes.

    References
    ----------
    .. [1] J. Weston and C. Watkins (1999), Support vector machines for multi-class pattern recognition. ESANN.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> SVMClassifier(multiclass="one-vs-all").fit(X, y).score(X, y) > 0.9
    True
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
    """Perceptron: w += eta y x for each row with y f <= 0, from a random start, with eta falling slowly.

    Parameters
    ----------
    penalty : {"l2", "l1", "elasticnet", "none"}, default="none"
        Penalty on the weights. The bias is never penalized.
    alpha : float, default=1e-4
        Weight of the penalty, which is added to the mean loss. Raise it to regularize more. As the loss is a mean, the
        same value suits any number of rows.
    solver : str or solver object, default="auto"
        "auto", "lbfgs", "proximal", "least-squares", "dual", "gradient", "sgd", "sampled", or an object such as
        `SGD(momentum=0.9)`. "auto" chooses the fastest solver for the loss, the penalty and the rows.
    multiclass : {"joint", "one-vs-all"}, default="joint"
        "joint" fits all classes in one problem, "one-vs-all" one binary problem per class.
    l1_ratio : float, default=0.5
        Share of L1 in the elastic net.
    fit_intercept : bool, default=True
        Whether to learn a bias per score.
    max_iter : int, default=1000
        Maximum number of iterations; for "sgd" and "sampled", of epochs.
    tol : float, default=1e-3
        Relative excess of the objective over its optimum. A fit without a ConvergenceWarning is within tol. Below
        1e-6, float32 rows are converted to float64.
    batch_size : int, default=1
        Rows per step of "sgd". "sampled" uses 256 (up to 2,048 on a GPU) if this is 1.
    learning_rate : float, str or schedule, default="auto"
        Step size of "sgd" and "sampled": a number, "auto", "constant", "decay", "cosine" or a schedule object.
    class_weight : dict, "balanced" or None, default=None
        Weights by label. "balanced" gives all classes the same total weight.
    early_stopping : bool or float, default=False
        Stop when the loss on a validation split no longer falls. True holds out a tenth of the rows, a float this
        share.
    warm_start : bool, default=False
        Whether `fit` starts from the last solution.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        "cuda" keeps rows and weights on the GPU (solvers "lbfgs", "proximal", "gradient", "sgd" and "sampled").
        "auto" uses a GPU if there is one and it is expected to be faster; `why_` has the reason.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of everything that is drawn at random; None is a fixed seed, too.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    coef_ : ndarray of shape (n_scores, n_features)
        Weights; one row per class, or one row for two classes.
    intercept_ : ndarray of shape (n_scores,)
        Biases.
    n_iter_ : int
        Number of iterations.
    objective_ : float
        The penalty plus the mean loss at the solution.
    history_ : list of float
        The objective after each iteration.
    solver_ : str
        The solver that was used.
    n_features_in_ : int
        Number of features.

    References
    ----------
    .. [1] F. Rosenblatt (1958), The perceptron: A probabilistic model for information storage and organization in the
       brain. Psychological Review 65(6).

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> PerceptronClassifier(random_state=0).fit(X, y).score(X, y) > 0.8
    True
    """

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
    """Least squares on labels, a baseline.

    Parameters
    ----------
    targets : {"one-hot", "number"}, default="one-hot"
        "one-hot" fits one score per class to 0 and 1 (for two classes -1 and +1), and the largest score wins.
        "number" fits one score to the number 0..K-1 of the class, and the nearest number wins, as if classes were on
        a line.
    penalty : {"l2", "l1", "elasticnet", "none"}, default="l2"
        Penalty on the weights. The bias is never penalized.
    alpha : float, default=1e-4
        Weight of the penalty, which is added to the mean loss. Raise it to regularize more. As the loss is a mean, the
        same value suits any number of rows.
    solver : str or solver object, default="auto"
        "auto", "lbfgs", "proximal", "least-squares", "dual", "gradient", "sgd", "sampled", or an object such as
        `SGD(momentum=0.9)`. "auto" chooses the fastest solver for the loss, the penalty and the rows.
    multiclass : {"joint", "one-vs-all"}, default="joint"
        "joint" fits all classes in one problem, "one-vs-all" one binary problem per class.
    l1_ratio : float, default=0.5
        Share of L1 in the elastic net.
    fit_intercept : bool, default=True
        Whether to learn a bias per score.
    max_iter : int, default=1000
        Maximum number of iterations; for "sgd" and "sampled", of epochs.
    tol : float, default=1e-3
        Relative excess of the objective over its optimum. A fit without a ConvergenceWarning is within tol. Below
        1e-6, float32 rows are converted to float64.
    batch_size : int, default=1
        Rows per step of "sgd". "sampled" uses 256 (up to 2,048 on a GPU) if this is 1.
    learning_rate : float, str or schedule, default="auto"
        Step size of "sgd" and "sampled": a number, "auto", "constant", "decay", "cosine" or a schedule object.
    class_weight : dict, "balanced" or None, default=None
        Weights by label. "balanced" gives all classes the same total weight.
    early_stopping : bool or float, default=False
        Stop when the loss on a validation split no longer falls. True holds out a tenth of the rows, a float this
        share.
    warm_start : bool, default=False
        Whether `fit` starts from the last solution.
    device : {"cpu", "cuda", "cuda:N", "auto"}, default="cpu"
        "cuda" keeps rows and weights on the GPU (solvers "lbfgs", "proximal", "gradient", "sgd" and "sampled").
        "auto" uses a GPU if there is one and it is expected to be faster; `why_` has the reason.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of everything that is drawn at random; None is a fixed seed, too.
    verbose : int, default=0
        1 shows progress.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    coef_ : ndarray of shape (n_scores, n_features)
        Weights; one row per class, or one row for two classes.
    intercept_ : ndarray of shape (n_scores,)
        Biases.
    n_iter_ : int
        Number of iterations.
    objective_ : float
        The penalty plus the mean loss at the solution.
    history_ : list of float
        The objective after each iteration.
    solver_ : str
        The solver that was used.
    n_features_in_ : int
        Number of features.

    Notes
    -----
    `targets="number"` is solved in closed form, so it has no `partial_fit`. Its `explain` compares classes by
    2 c f - c^2, with the number c of the class and the fitted number f: the nearest class has the largest.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> LeastSquaresClassifier().fit(X, y).score(X, y) > 0.8
    True
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
        tags.classifier_tags.poor_score = self.targets == "number"  # classes are not on a line
        return tags

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_parameters(self, targets=one_of("one-hot", "number"))

    def _form(self, n_classes: int | None = None) -> Loss:
        return super()._form(n_classes) if self.targets == "one-hot" else CLASS_NUMBER

    def _check_partial_fit(self) -> None:
        if self.targets == "number":
            raise AttributeError("targets='number' is solved in closed form, so it has no partial_fit; use 'one-hot'")

    # ---- predictions for targets="number": the class whose number is nearest to the score f

    def _scores(self, rows: Any) -> Any:
        """Return minus the distance of f to the number of each class (targets="number"); for two classes f - 1/2."""
        f = super()._scores(rows)
        if self.targets == "one-hot":
            return f
        f, K = on_host(f), len(self.classes_)
        return f - f.dtype.type(0.5) if K == 2 else -np.abs(f - np.arange(K, dtype=f.dtype))

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        if self.targets == "one-hot":
            return super()._best(rows, k, stated)
        f, numbers = on_host(super()._scores(rows)), np.arange(len(self.classes_))  # (n, 1), (K,)
        # a very large f is equally far from every number after rounding; clipped, its nearest number is still the last
        codes = best_columns(-np.abs(np.clip(f, -1, len(numbers)) - numbers), k)
        return TopK(codes, -np.abs(f - codes).astype(f.dtype))

    def _class_rows(self) -> ClassRows:
        """Return class rows: the nearest number c maximizes -(f - c)^2, which is 2 c f - c^2 plus a constant."""
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
