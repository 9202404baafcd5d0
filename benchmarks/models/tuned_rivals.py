"""Rivals of the main job: what a careful user of scikit-learn would tune on the same rows.

    tables, pixels, embeddings   LogisticRegressionCV, neighbors, linear SVM, random forest, gradient boosting
    texts                        TF-IDF of words, or of words and letters, x linear SVM, LogisticRegressionCV,
                                 complement naive Bayes; neighbors of words

Each is tuned by cross-validation over a grid; `Tuning` limits the grids so that they end within minutes. Seconds
include the preparation of the rows, the search and the last fit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

KS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
DENSE, TEXT = ("table", "unit", "pixels"), ("text",)


class Tuning(NamedTuple):
    """Grids and limits."""

    strengths: Any = 10  # Cs of LogisticRegressionCV
    folds: int = 5  # of LogisticRegressionCV
    iterations: int = 200
    ks: tuple[int, ...] = KS
    margins: tuple[float, ...] = (0.05, 0.2, 1.0, 5.0)  # C of the linear SVM
    rates: tuple[float, ...] = (0.05, 0.2)  # learning rates of gradient boosting
    trees: int = 300  # of the forest


class Tuned(NamedTuple):
    """A fitted model and what was chosen, in words."""

    model: Any
    setting: str


class Rival(NamedTuple):
    """Its title, the kinds of rows it takes, which view of texts, and how it is tuned."""

    title: str
    kinds: tuple[str, ...]
    view: str  # words, letters (and words), or plain
    tune: Callable[[Any, Any, Tuning], Tuned]


def words(letters: bool) -> Any:
    """TF-IDF of words and pairs of words; with `letters` also of pieces of words."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_union

    usual = {"sublinear_tf": True, "min_df": 2, "dtype": np.float32}
    of_words = TfidfVectorizer(ngram_range=(1, 2), **usual)
    return (
        make_union(of_words, TfidfVectorizer(analyzer="char_wb", ngram_range=(2, 5), **usual)) if letters else of_words
    )


def logistic(X: Any, y: Any, tuning: Tuning) -> Tuned:
    """LogisticRegressionCV."""
    from sklearn.linear_model import LogisticRegressionCV

    several = tuning.strengths if isinstance(tuning.strengths, int) else list(tuning.strengths)
    model = LogisticRegressionCV(Cs=several, cv=tuning.folds, max_iter=tuning.iterations, n_jobs=2)
    _quietly(model.fit, X, y)
    count = several if isinstance(several, int) else len(several)
    chosen = f"C {np.ravel(model.C_)[0]:.3g} of {count} tried"
    return Tuned(model, f"{chosen}, {tuning.folds} folds, {tuning.iterations} iterations at most")


def neighbors(X: Any, y: Any, tuning: Tuning) -> Tuned:
    """Tune nearest neighbors over k and weights."""
    from sklearn.neighbors import KNeighborsClassifier

    grid = {"n_neighbors": list(tuning.ks), "weights": ["uniform", "distance"]}
    return _searched(KNeighborsClassifier(), grid, X, y, folds=5)


def svm(X: Any, y: Any, tuning: Tuning) -> Tuned:
    """Tune a linear SVM over C."""
    from sklearn.svm import LinearSVC

    return _searched(LinearSVC(), {"C": list(tuning.margins)}, X, y, folds=5)


def bayes(X: Any, y: Any, tuning: Tuning) -> Tuned:
    """Tune complement naive Bayes over its smoothing."""
    from sklearn.naive_bayes import ComplementNB

    return _searched(ComplementNB(), {"alpha": [0.03, 0.1, 0.3, 1.0], "norm": [False, True]}, X, y, folds=5)


def forest(X: Any, y: Any, tuning: Tuning) -> Tuned:
    """Tune a random forest over the share of columns per split."""
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(tuning.trees, n_jobs=2, random_state=0)
    return _searched(model, {"max_features": ["sqrt", 0.4]}, X, y, folds=3)


def boosting(X: Any, y: Any, tuning: Tuning) -> Tuned:
    """Tune histogram gradient boosting over the learning rate, with early stopping."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=300, early_stopping=True, n_iter_no_change=8, random_state=0)
    return _searched(model, {"learning_rate": list(tuning.rates)}, X, y, folds=3)


RIVALS: dict[str, Rival] = {
    "logistic": Rival("LogisticRegressionCV", (*DENSE, *TEXT), "words", logistic),
    "neighbors": Rival("KNeighborsClassifier", (*DENSE, *TEXT), "words", neighbors),
    "svm": Rival("LinearSVC", (*DENSE, *TEXT), "words", svm),
    "bayes": Rival("ComplementNB", TEXT, "words", bayes),
    "forest": Rival("RandomForestClassifier", ("table",), "plain", forest),
    "boosting": Rival("HistGradientBoostingClassifier", ("table",), "plain", boosting),
    "logistic-letters": Rival("LogisticRegressionCV, words + letters", TEXT, "letters", logistic),
    "svm-letters": Rival("LinearSVC, words + letters", TEXT, "letters", svm),
    "bayes-letters": Rival("ComplementNB, words + letters", TEXT, "letters", bayes),
}


def _searched(model: Any, grid: dict[str, list[Any]], X: Any, y: Any, folds: int) -> Tuned:
    from sklearn.model_selection import GridSearchCV

    search = GridSearchCV(model, grid, cv=folds)
    _quietly(search.fit, X, y)
    chosen = ", ".join(f"{name} {value} of {len(grid[name])} tried" for name, value in search.best_params_.items())
    return Tuned(search, f"{chosen}, {folds} folds")


def _quietly(fit: Callable[..., Any], *rows: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about convergence and deprecation
        fit(*rows)
