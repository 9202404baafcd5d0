"""scikit-learn's cross-validated searches."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsClassifier

PATH = "LogisticRegressionCV"
GRID = "GridSearchCV(KNeighborsClassifier)"


def path(X, y, alphas, splits):
    """Weights and biases of every fold and alpha (folds, alphas, classes, d + 1), as scikit-learn leaves them."""
    n = len(splits[0][0])  # C stands against the sum over a fold's training rows
    model = LogisticRegressionCV(
        Cs=1 / (n * np.asarray(alphas)), cv=splits, refit=False, l1_ratios=(0.0,), scoring="accuracy",
        use_legacy_attributes=True,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", FutureWarning)
        model.fit(X, y)
    return np.stack([model.coefs_paths_[label] for label in model.classes_], axis=2).squeeze()


def grid(X, y, ks, votes, splits):
    """Mean accuracy (votes, ks) by fitting and predicting every combination on every fold."""
    model = KNeighborsClassifier(algorithm="brute")
    search = GridSearchCV(model, {"weights": list(votes), "n_neighbors": list(ks)}, cv=splits, refit=False)
    search.fit(X, y)
    votes_first = np.asarray(search.cv_results_["mean_test_score"]).reshape(len(ks), len(votes))
    return votes_first.T
