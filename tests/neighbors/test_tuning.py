"""One search gives what a fit a fold, a vote and a k would."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_blobs
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

from kway import NeighborsClassifier
from kway.errors import InputError
from kway.neighbors.tuning import sweep


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
    assert found.accuracy.shape == (4, 2, 12)
    for fold in range(4):
        for v, vote in enumerate(votes):
            for k in (1, 2, 5, 12):
                model = NeighborsClassifier(k, vote, metric, ties=ties).fit(X[folds != fold], y[folds != fold])
                assert found.accuracy[fold, v, k - 1] == pytest.approx(model.score(X[folds == fold], y[folds == fold]))


def test_log_loss_is_that_of_the_clipped_votes():
    X, y = make_blobs(200, 3, centers=3, cluster_std=4.0, random_state=1)
    folds = fold_numbers(y, 2)
    found = sweep(X, y, folds, 9, ("uniform",))
    model = NeighborsClassifier(9).fit(X[folds == 1], y[folds == 1])
    p = np.maximum(model.predict_proba(X[folds == 0]), 1e-6)
    own = p[np.arange(len(p)), y[folds == 0]]
    assert found.log_loss[0, 0, 8] == pytest.approx(-np.log(own).mean(), rel=1e-6)
    assert log_loss(y[folds == 0], p / p.sum(1, keepdims=True)) == pytest.approx(found.log_loss[0, 0, 8], rel=0.05)


def test_leave_one_out():
    X, y = make_blobs(80, 2, centers=3, cluster_std=3.0, random_state=0)
    found = sweep(X, y, None, 3, ("uniform",))
    right = [
        NeighborsClassifier(3).fit(np.delete(X, i, 0), np.delete(y, i)).predict(X[i : i + 1])[0] == y[i]
        for i in range(80)
    ]
    assert found.accuracy.shape == (1, 1, 3)
    assert found.accuracy[0, 0, 2] == pytest.approx(np.mean(right))


def test_rows_whose_neighbours_are_all_of_their_own_fold_ask_again():
    X = np.arange(60.0)[:, None]
    folds = (np.arange(60) >= 30).astype(int)  # two runs: the nearest 29 rows of an end are its own fold's
    y = (np.arange(60) % 2).astype(int)
    found = sweep(X, y, folds, 2, ("uniform",))
    model = NeighborsClassifier(1).fit(X[30:], y[30:])
    assert found.accuracy[0, 0, 0] == pytest.approx(model.score(X[:30], y[:30]))


def test_best_and_records_and_limits():
    X, y = load_digits(return_X_y=True)
    folds = fold_numbers(y, 5)
    found = sweep(X[:600], y[:600], folds[:600], 15, ("uniform", "distance"))
    best = found.best
    assert best.accuracy == found.accuracy.mean(0).max() > 0.9
    assert len(found.records()) == 5 * 2 * 15
    with pytest.raises(InputError, match="k_max"):
        sweep(X[:20], y[:20], np.arange(20) % 2, 11)
