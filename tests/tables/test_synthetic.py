"""Synthetic sets are what their names say."""

import tracemalloc

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from kway import datasets
from kway.errors import InputError


@pytest.mark.parametrize(("n_classes", "n_features"), [(2, 1), (3, 2), (10, 2), (7, 5), (100, 3), (4, 50)])
def test_separable_balls_keep_their_gap(n_classes, n_features):
    data = datasets.separable(600, n_classes, n_features, margin=0.5, seed=3)
    x, y = np.concatenate([data.x_train, data.x_test]), np.concatenate([data.y_train, data.y_test])
    assert len(np.unique(y)) == n_classes
    apart = np.linalg.norm(x[:, None].astype(float) - x[None], axis=2)
    other = y[:, None] != y[None]
    assert apart[other].min() >= 0.5 - 1e-5


def test_some_linear_rule_divides_the_separable_set():
    data = datasets.separable(500, 5, 2)
    assert (
        LogisticRegression(C=1e4, max_iter=2000).fit(data.x_train, data.y_train).score(data.x_test, data.y_test) == 1.0
    )


def test_no_rule_divides_the_overlapping_set():
    data = datasets.overlapping(3000, 3, 2)
    accuracy = LogisticRegression().fit(data.x_train, data.y_train).score(data.x_test, data.y_test)
    assert 0.5 < accuracy < 0.95


def test_outliers_pull_least_squares_over_but_not_logistic():
    data = datasets.outliers()
    clean = datasets.outliers(n_outliers=0)

    def accuracy(model, train):
        return model.fit(train.x_train, train.y_train).score(data.x_test, data.y_test)

    assert accuracy(RidgeClassifier(), clean) > 0.98
    assert accuracy(LogisticRegression(), data) > 0.98
    assert accuracy(RidgeClassifier(), data) < 0.95
    side = data.x_train[:, 0] - data.x_train[:, 1]  # every outlier stands on the side of its own class
    assert (side[-20:] > side[data.y_train == 1][:-20].max()).all()


def test_many_classes():
    data = datasets.many_classes(500, 32, rows_per_class=3, n_test=200, noise=0.3)
    assert data.x_train.shape == (1500, 32)
    assert data.x_train.dtype == np.float32
    assert np.bincount(data.y_train).tolist() == [3] * 500
    means = np.stack([data.x_train[data.y_train == c].mean(axis=0) for c in range(500)])
    assert ((data.x_test @ means.T).argmax(axis=1) == data.y_test).mean() > 0.95


def test_a_million_classes_cost_their_rows_and_one_table():
    table = 1_000_000 * 8 * 4  # bytes of the centres, and of the one row a class
    tracemalloc.start()
    data = datasets.many_classes(1_000_000, 8, rows_per_class=1, n_test=10)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data.y_train) == 1_000_000
    assert peak < 2 * table + data.y_train.nbytes + 24e6


@pytest.mark.parametrize("make", [datasets.separable, datasets.overlapping, datasets.outliers, datasets.many_classes])
def test_the_same_for_the_same_seed(make):
    np.testing.assert_array_equal(make(seed=1).x_train, make(seed=1).x_train)
    assert not np.array_equal(make(seed=1).x_train, make(seed=2).x_train)


@pytest.mark.parametrize("make", [datasets.separable, datasets.overlapping, datasets.many_classes])
def test_one_class_is_refused(make):
    with pytest.raises(InputError, match="at least 2"):
        make(n_classes=1)
