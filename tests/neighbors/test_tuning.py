"""One search gives what a fit a fold, a vote and a k would."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from kway import NeighborsClassifier
from kway.errors import InputError
from kway.neighbors.tuning import Electors, OutsideSearch, sweep, votes_of_every_k
from kway.search.metrics import METRICS


def fold_numbers(y, n=4):
    folds = np.empty(len(y), int)
    for number, (_, test) in enumerate(StratifiedKFold(n, shuffle=True, random_state=0).split(y, y)):
        folds[test] = number
    return folds


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("ties", ["nearest", "smallest", "prior"])
def test_equals_fitting_every_fold_vote_and_k(metric, ties):
    X, y = make_blobs(240, 4, centers=5, cluster_std=5.0, random_state=0)
    folds, votes = fold_numbers(y), ("uniform", "distance")
    found = sweep(X, y, folds, 12, votes, metric, ties)
    assert found.shape == (4, 2, 12)
    for fold in range(4):
        for v, vote in enumerate(votes):
            for k in (1, 2, 5, 12):
                model = NeighborsClassifier(k, vote, metric, ties=ties).fit(X[folds != fold], y[folds != fold])
                assert found[fold, v, k - 1] == pytest.approx(model.score(X[folds == fold], y[folds == fold]))


def test_log_loss_is_that_of_the_clipped_votes():
    X, y = make_blobs(200, 3, centers=3, cluster_std=4.0, random_state=1)
    folds, metric = fold_numbers(y, 2), METRICS["euclidean"]
    first, neighbors = folds == 0, OutsideSearch(X, folds, 9, metric).nearest()
    found = votes_of_every_k(neighbors, y, Electors(y, ("uniform",), metric), "uniform").losses[first, 8].mean()
    model = NeighborsClassifier(9).fit(X[~first], y[~first])
    p = np.maximum(model.predict_proba(X[first]), 1e-6)
    own = p[np.arange(len(p)), y[first]]
    assert found == pytest.approx(-np.log(own).mean(), rel=1e-6)
    assert log_loss(y[first], p / p.sum(1, keepdims=True)) == pytest.approx(found, rel=0.05)


def test_leave_one_out():
    X, y = make_blobs(80, 2, centers=3, cluster_std=3.0, random_state=0)
    found = sweep(X, y, np.arange(80), 3, ("uniform",))
    right = [
        NeighborsClassifier(3).fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[i : i + 1])[0] == y[i]
        for i in range(80)
    ]
    assert found.shape == (80, 1, 3)
    np.testing.assert_array_equal(found[:, 0, 2], right)


def test_rows_whose_neighbors_are_all_of_their_own_fold_ask_again():
    X = np.arange(60.0)[:, None]
    folds = (np.arange(60) >= 30).astype(int)  # two runs: the nearest 29 rows of an end are its own fold's
    y = (np.arange(60) % 2).astype(int)
    found = sweep(X, y, folds, 2, ("uniform",))
    model = NeighborsClassifier(1).fit(X[30:], y[30:])
    assert found[0, 0, 0] == pytest.approx(model.score(X[:30], y[:30]))


def test_k_is_at_most_the_rows_outside_the_largest_fold():
    X, y = make_blobs(20, 2, centers=2, random_state=0)
    assert sweep(X, y, np.arange(20) % 2, 10).shape == (2, 2, 10)
    with pytest.raises(InputError, match="k_max"):
        sweep(X, y, np.arange(20) % 2, 11)
    with pytest.raises(InputError, match="between 1 and 10,"):
        OutsideSearch(X, np.arange(20) % 2, 11, METRICS["euclidean"])
