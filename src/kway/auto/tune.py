"""Choose the hyperparameters of one estimator by cross-validation, with work that settings share (`kway.tune`).

neighbors    all k and both votes come from one search (kway.neighbors.tuning)
linear       a path of alphas with warm starts (kway.linear.path)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from kway.auto.race.families import LinearFamily
from kway.auto.race.family import Family, Runner
from kway.auto.race.folds import fold_numbers
from kway.auto.race.neighbor_families import NeighborsFamily
from kway.auto.race.scoring import ACCURACY, FoldedRows, Scan
from kway.errors import CombinationError
from kway.labels import encode
from kway.linear.classifier import LinearClassifier
from kway.linear.naive_bayes import NaiveBayesClassifier
from kway.linear.named import LeastSquaresClassifier, PerceptronClassifier
from kway.neighbors import NeighborsClassifier
from kway.text_tables import Printed, Table, short_number
from kway.validation import plain_rows


@dataclass(frozen=True, eq=False, repr=False)
class Tuned(Printed):
    """The result of `kway.tune`.

    Attributes
    ----------
    estimator : estimator
        The estimator fitted on all rows at its best setting.
    best : dict
        Hyperparameters of that setting.
    accuracy, std : float
        Mean and standard deviation of its accuracy over the folds.
    scan : Scan
        Scores of all settings.
    """

    estimator: Any
    best: dict[str, Any]
    accuracy: float
    std: float
    scan: Scan

    def records(self) -> list[dict[str, Any]]:
        """Return one dict of plain values per setting and fold."""
        return [
            {**setting, "fold": fold, "accuracy": float(self.scan.accuracy[fold, s]),
             "log_loss": float(self.scan.log_loss[fold, s])}
            for s, setting in enumerate(self.scan.settings) for fold in range(len(self.scan.accuracy))
        ]  # fmt: skip

    def _table(self) -> Table:
        title = f"best setting of {type(self.estimator).__name__}: {_in_words(self.best)}"
        means = np.nanmean(self.scan.accuracy, axis=0).tolist()
        lines = [(_in_words(setting), f"{mean:.4f}") for setting, mean in zip(self.scan.settings, means)]
        more = f"accuracy of the best setting {self.accuracy:.4f} ± {self.std:.4f}"
        return Table(title, ("setting", "accuracy"), lines, more)

    def to_pandas(self) -> Any:
        """Return the records as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.records())


def tune(estimator: Any, X: Any, y: Any, folds: int = 5, groups: Any = None, order: Any = None, seed: int = 0) -> Tuned:
    """Choose k and the vote of a NeighborsClassifier, or the alpha of a linear classifier, and refit it.

    For neighbors, k goes from 1 to 50, with the votes "uniform" and "distance" (or only `weights`, if that is another
    vote). For linear classifiers, `alpha` takes 11 values. The setting with the highest mean accuracy is chosen, and
    among equal ones the one with the lowest log loss. All other parameters keep their values: to tune them, use
    scikit-learn's `GridSearchCV`. `estimator` itself is not changed.

    Parameters
    ----------
    estimator : NeighborsClassifier or linear classifier
        The estimator to tune.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Rows.
    y : array-like of shape (n_samples,)
        Labels.
    folds : int, default=5
        Number of folds of the cross-validation.
    groups : array-like of shape (n_samples,), default=None
        Rows of one group stay in one fold.
    order : array-like of shape (n_samples,), default=None
        Time or another order; the last rows are the only validation fold.
    seed : int, default=0
        Seed of the folds.

    Returns
    -------
    Tuned
        The fitted estimator and the scores of all settings.

    Raises
    ------
    kway.errors.CombinationError
        If the estimator has no settings that `tune` knows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from kway import NeighborsClassifier
    >>> sorted(tune(NeighborsClassifier(), *load_iris(return_X_y=True)).best)
    ['n_neighbors', 'weights']
    """
    family, labels, rows = family_of(estimator), encode(y), plain_rows(X, sparse=True)
    numbers = fold_numbers(labels.codes, folds, groups, order, seed)
    data = FoldedRows(rows, labels.codes, numbers)
    settings = family.settings(data)
    runner = Runner(family, data, settings, ACCURACY, list(range(len(settings))))
    if isinstance(family, NeighborsFamily) and estimator.ties != "prior":  # the prior is that of the training folds
        for fold, predictions in enumerate(family.predict_folds(data, settings)):
            runner.add(predictions, labels.codes[numbers == fold], len(labels.codes))
    else:
        runner.add_folds(lambda: False)
    scan = runner.scan
    mean, losses = scan.accuracy.mean(axis=0), scan.log_loss.mean(axis=0)
    best = int(np.lexsort((np.nan_to_num(losses, nan=np.inf), -mean))[0])
    fitted = clone(estimator).set_params(**settings[best]).fit(X, y)
    spread = float(scan.accuracy[:, best].std(ddof=1)) if len(scan.accuracy) > 1 else 0.0
    return Tuned(fitted, dict(settings[best]), float(mean[best]), spread, scan)


def family_of(estimator: Any) -> Family:
    """Return the family with the settings of an estimator, or raise CombinationError if there is none."""
    if isinstance(estimator, NeighborsClassifier):
        return _neighbors(estimator)
    if isinstance(estimator, LinearClassifier) and not isinstance(
        estimator, (PerceptronClassifier, NaiveBayesClassifier)
    ):
        return _linear(estimator)
    raise CombinationError(
        f"tune works for NeighborsClassifier (k, vote) and linear classifiers with a penalty (alpha), "
        f"got {type(estimator).__name__}; use scikit-learn's GridSearchCV"
    )


def _neighbors(estimator: Any) -> NeighborsFamily:
    if estimator.class_weight is not None or estimator.max_distance is not None:
        raise CombinationError(
            "tune does not support class_weight or max_distance of neighbors; use scikit-learn's GridSearchCV"
        )
    votes = ("uniform", "distance") if estimator.weights in ("uniform", "distance") else (estimator.weights,)
    return NeighborsFamily("neighbors", estimator.metric, votes, params={"ties": estimator.ties})


def _linear(estimator: Any) -> LinearFamily:
    plain = {"penalty": "l2", "label_smoothing": 0.0, "class_weight": None, "temperature": 1.0, "fit_intercept": True}
    have = estimator.get_params(deep=False)
    other = {k: have[k] for k, v in plain.items() if k in have and have[k] != v}
    if isinstance(estimator, LeastSquaresClassifier) and estimator.targets != "one-hot":
        other["targets"] = estimator.targets
    if other:
        raise CombinationError(
            f"tune supports only the defaults of these parameters, got {other}; use scikit-learn's GridSearchCV"
        )
    params = {name: have[name] for name in ("loss", "multiclass") if name in have}
    return LinearFamily("linear", type(estimator).__name__, params=params)


def _in_words(setting: dict[str, Any]) -> str:
    """Return the hyperparameters of a setting with their values."""
    values = {name: short_number(value) if isinstance(value, float) else value for name, value in setting.items()}
    return ", ".join(f"{name} {value}" for name, value in values.items())
