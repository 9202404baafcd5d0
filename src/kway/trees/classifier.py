"""TreesClassifier: boosted trees or extremely randomized trees.

scikit-learn learns the trees (learn.py). Their nodes are copied into arrays, so that a model file contains no code and
predictions do not need scikit-learn's classes. Probabilities equal those of scikit-learn.

    boosted   f (n, R) = sum of the leaf values; R = K, or 1 for two classes    p = softmax(f), or sigmoid(f) if R = 1
    extra     p (n, K) = mean over the trees of the class frequencies in the leaf
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from kway import validation
from kway.base.class_rows import best_of_table, lift_winners, probabilities
from kway.base.classifier import Classifier, on_own_threads
from kway.base.contributions import Parts
from kway.errors import InputError
from kway.labels import class_weighted, refuse_one_class
from kway.parameters import (
    AUTO,
    CLASS_WEIGHT,
    NONE,
    VERBOSE,
    YES_OR_NO,
    above,
    at_least,
    check_parameters,
    checked_rng,
    one_of,
    whole,
)
from kway.probabilities import Shares
from kway.search.results import TopK
from kway.suggest import listing
from kway.trees.nodes import Trees, as_float32, trees_of

_BOOSTED_TREES = 100  # default number of boosting iterations, as in scikit-learn
_EXTRA_TREES = 300  # default number of trees of a forest: more than in scikit-learn, for smoother probabilities
_MAX_CATEGORY = 254  # HistGradientBoostingClassifier allows 255 categories per column


class TreesClassifier(Classifier):
    """Boosted trees [1]_ or extremely randomized trees [2]_.

    Values may be missing (NaN). Boosted trees split categorical columns by sets of categories.

    Parameters
    ----------
    kind : {"boosted", "extra"}, default="boosted"
        "boosted" adds trees, each of which corrects the previous ones. "extra" averages trees with random thresholds.
    n_trees : int or None, default=None
        Number of trees. For "boosted", it is the maximum number of trees per score. There is one score per class, and
        only one score for two classes. None means 100 for "boosted" and 300 for "extra".
    learning_rate : float, default=0.1
        Factor by which the values of each new tree are multiplied ("boosted" only).
    max_leaf_nodes : int, default=31
        Maximum number of leaves of a tree ("boosted" only).
    l2_regularization : float, default=0.0
        L2 penalty on the values of the leaves ("boosted" only).
    early_stopping : bool or "auto", default="auto"
        Whether to stop when the loss on a tenth of the rows, which the trees do not learn from, no longer decreases
        ("boosted" only). "auto" stops early if there are more than 10,000 rows. If a class has too few rows to hold out
        a tenth, the training loss is used instead.
    n_iter_no_change : int, default=10
        Number of iterations without a lower loss after which early stopping ends the fit ("boosted" only).
    categorical_features : array-like of int or bool, default=None
        Indices of the categorical columns, or one boolean per column. Categories are whole numbers from 0 to 254. A
        category that `fit` did not see is treated as missing. "extra" compares categories like other numbers.
    class_weight : dict, "balanced" or None, default=None
        Weights by label. "balanced" gives all classes the same total weight.
    n_jobs : int or None, default=None
        Number of threads; None uses all cores.
    random_state : int, RandomState or None, default=None
        Seed of all random numbers; None means 0.
    verbose : int, default=0
        1 shows the progress of scikit-learn ("boosted" only).

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The labels, sorted.
    n_trees_ : int
        Number of trees; for "boosted", the number of trees per score.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features, if X was a data frame.

    Notes
    -----
    The contributions of `explain` add up to the probability of the class for "extra", also if there are two classes.

    References
    ----------
    .. [1] G. Ke, Q. Meng, T. Finley, T. Wang, W. Chen, W. Ma, Q. Ye and T.-Y. Liu (2017), LightGBM: a highly efficient
       gradient boosting decision tree. NeurIPS.
    .. [2] P. Geurts, D. Ernst and L. Wehenkel (2006), Extremely randomized trees. Machine Learning 63.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = TreesClassifier("extra", n_trees=50).fit(X, y)
    >>> model.score(X, y)
    1.0
    """

    n_trees_: int
    _trees: Trees

    def __init__(
        self,
        kind: str = "boosted",
        n_trees: int | None = None,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 31,
        l2_regularization: float = 0.0,
        early_stopping: bool | str = "auto",
        n_iter_no_change: int = 10,
        categorical_features: ArrayLike | None = None,
        class_weight: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.kind = kind
        self.n_trees = n_trees
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.l2_regularization = l2_regularization
        self.early_stopping = early_stopping
        self.n_iter_no_change = n_iter_no_change
        self.categorical_features = categorical_features
        self.class_weight = class_weight
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _check_parameters(self) -> None:
        check_parameters(
            self,
            kind=one_of("boosted", "extra"),
            n_trees=NONE | whole(1),
            learning_rate=above(0),
            max_leaf_nodes=whole(2),
            l2_regularization=at_least(0),
            early_stopping=AUTO | YES_OR_NO,
            n_iter_no_change=whole(1),
            class_weight=CLASS_WEIGHT,
            verbose=VERBOSE,
        )

    @on_own_threads
    def fit(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> TreesClassifier:
        """Learn the trees.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows, NaN where a value is missing.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        TreesClassifier
            The fitted classifier.
        """
        from kway.trees import learn  # imported only here, because predictions do not need scikit-learn's trees

        self._check_parameters()
        self._forget()
        rows, labels = validation.rows_and_labels(self, X, y, sparse=False, gaps=True)
        refuse_one_class(labels, type(self).__name__)
        weight = class_weighted(validation.weights(sample_weight, rows), labels, self.class_weight)
        categories = categorical_mask(self.categorical_features, rows)
        seed = 0 if self.random_state is None else self.random_state
        checked_rng(seed)
        if self.kind == "extra":
            self._trees = learn.learn_extra(rows, labels.codes, weight, self.n_trees or _EXTRA_TREES, seed)
        else:
            self._trees = learn.learn_boosted(rows, labels.codes, weight, categories, self._boosting(seed))
        self.classes_ = labels.classes
        self._set_n_trees()
        return self

    def _boosting(self, seed: Any) -> dict[str, Any]:
        """Return the parameters of HistGradientBoostingClassifier."""
        same_names = ("learning_rate", "max_leaf_nodes", "l2_regularization", "early_stopping", "n_iter_no_change")
        return {
            **{name: getattr(self, name) for name in same_names},
            "max_iter": self.n_trees or _BOOSTED_TREES,
            "random_state": seed,
            "verbose": int(self.verbose),
        }

    def _set_n_trees(self) -> None:
        n_trees = len(self._trees.nodes.starts) - 1
        self.n_trees_ = n_trees // (1 if self.kind == "extra" else len(self._trees.baseline))

    # ---- predictions

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self, "classes_")
        return validation.rows(self, X, reset=False, sparse=False, blocks=True, gaps=True)

    def _entries(self) -> int:
        return len(self.classes_)

    def _best(self, rows: Any, k: int, stated: bool) -> TopK:
        def best(block: NDArray) -> TopK:
            f = self._raw(block)
            table = f if f.shape[1] > 1 and not stated else self._as_probabilities(f)
            codes, values = best_of_table(table, k)
            return TopK(codes, values.astype(block.dtype))

        return self._best_of_blocks(rows, best)

    def _raw(self, rows: NDArray) -> NDArray[np.float64]:
        """Return scores (n, R) of a block of rows: log-odds of boosted trees, or probabilities of a forest."""
        return self._trees.scores(self._compared(rows))

    def _compared(self, rows: NDArray) -> NDArray:
        """Return rows in the float type in which the trees compare values with thresholds."""
        return as_float32(rows) if self.kind == "extra" else rows

    def _as_probabilities(self, f: NDArray[np.float64]) -> NDArray[np.float64]:
        return f if self.kind == "extra" else probabilities(f, Shares())

    def _scores(self, rows: Any) -> Any:
        f = self._raw(rows)
        return f.astype(rows.dtype) if f.shape[1] == 1 else _in_dtype(f, rows.dtype)

    def _shares(self, rows: Any) -> Any:
        return _in_dtype(self._as_probabilities(self._raw(rows)), rows.dtype)

    # ---- contributions of columns

    def _contributions(self, rows: NDArray, codes: NDArray[np.int64]) -> Parts:
        """Return the contributions (n, d) of the columns to the score of class codes (n,), and its baseline (n,)."""
        rows = self._compared(rows)
        if len(self._trees.baseline) > 1:
            return self._trees.contributions(rows, codes)
        values, baseline = self._trees.contributions(rows, np.zeros(len(codes), np.int64))
        sign = np.where(codes == 1, 1.0, -1.0)  # the one score belongs to the second class
        return Parts(values * sign[:, None], baseline * sign)

    def _log_scale(self) -> float | None:
        """Return the factor that turns scores into log-probabilities plus a constant per row; a forest has none."""
        return 1.0 if self.kind == "boosted" else None

    # ---- model files

    def _fitted(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        check_is_fitted(self, "classes_")
        return {}, self._trees.arrays()

    def _restore(self, facts: dict[str, Any], arrays: dict[str, NDArray]) -> None:
        n_trees = len(arrays["starts"]) - 1
        self._trees = trees_of(arrays, n_trees if self.kind == "extra" else 1)
        self.n_features_in_ = len(arrays["category_row"])
        self._set_n_trees()


def _in_dtype(table: NDArray[np.float64], dtype: np.dtype) -> NDArray:
    """Convert a table (n, K) to a float type, so that rounding does not change which column is the largest."""
    return table if table.dtype == dtype else lift_winners(table.astype(dtype), table.argmax(axis=1))


def categorical_mask(categorical_features: Any, X: NDArray) -> NDArray[np.bool_]:
    """Return which columns (d,) of X are categorical; raise InputError if they do not contain categories."""
    d = X.shape[1]
    mask = np.zeros(d, bool)
    if categorical_features is None:
        return mask
    try:
        columns = np.asarray(categorical_features)
    except (ValueError, TypeError):  # lists of different lengths
        columns = np.empty((0, 0))
    are_indices = columns.dtype.kind in "iu" and bool(((columns >= 0) & (columns < d)).all())
    is_mask = columns.dtype.kind == "b" and columns.shape == (d,)
    if columns.ndim != 1 or (columns.size and not are_indices and not is_mask):
        raise InputError(
            f"categorical_features must be indices of columns from 0 to {d - 1}, or one boolean per column, got "
            f"{categorical_features!r:.100}"
        )
    mask[columns if columns.size else []] = True
    _check_categories(X, np.flatnonzero(mask))
    return mask


def _check_categories(X: NDArray, columns: NDArray[np.int64]) -> None:
    for column in columns:
        values = X[:, column]
        values = values[~np.isnan(values)]
        wrong = values[(values < 0) | (values > _MAX_CATEGORY) | (values != np.floor(values))]
        if len(wrong):
            raise InputError(
                f"categorical column {column} contains {listing(np.unique(wrong)[:5].tolist(), 3)}; categories must be "
                f"whole numbers from 0 to {_MAX_CATEGORY}, and NaN for missing values; leave the column out of "
                "categorical_features, or number its categories"
            )
