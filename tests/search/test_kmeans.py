from typing import Any, NamedTuple

import numpy as np
from tests.helpers.rows import blobs

from kway.search.kmeans import kmeans_sample, nearest_centers, place_centers
from kway.threads import at_most


class Clustering(NamedTuple):
    centers: Any
    nearest: Any


def kmeans(rows, n_centers, seed=0, **how):
    rng = np.random.default_rng(seed)
    centers = place_centers(kmeans_sample(rows, n_centers, rng), n_centers, rng, **how)
    return Clustering(centers, nearest_centers(rows, centers).centers)


def clusters(seed=0, n=3000, c=20):
    return blobs(n, 6, c, seed, distance=20)[0]


def inertia(rows, centers):
    return ((rows[:, None] - centers[None]) ** 2).sum(-1).min(1).mean()


def test_rows_belong_to_their_nearest_landmark():
    rows = clusters()
    cells = kmeans(rows, 30)
    expected = ((rows[:, None] - cells.centers[None]) ** 2).sum(-1).argmin(1)
    assert (cells.nearest == expected).mean() > 0.999
    np.testing.assert_array_equal(nearest_centers(rows, cells.centers).centers, cells.nearest)
    gaps = 2 * nearest_centers(rows, cells.centers).gaps
    np.testing.assert_allclose(gaps, ((rows - cells.centers[cells.nearest]) ** 2).sum(1), rtol=1e-2, atol=1e-2)


def test_as_good_as_scikit_learn():
    from sklearn.cluster import KMeans

    ratios = []
    for seed in range(5):  # one start may miss a cluster, of either library
        rows = clusters(seed)
        peer = KMeans(40, n_init=1, random_state=0).fit(rows).cluster_centers_
        ratios.append(inertia(rows, kmeans(rows, 40).centers) / inertia(rows, peer))
    assert np.median(ratios) < 1.1


def test_no_cell_stays_empty():
    rows = np.concatenate([np.zeros((500, 3)), np.random.default_rng(0).normal(size=(500, 3)) + 50]).astype(np.float32)
    assert (np.bincount(kmeans(rows, 32).nearest, minlength=32) > 0).sum() >= 30


def test_few_distinct_rows_and_every_row_a_landmark():
    assert kmeans(np.ones((40, 2), dtype=np.float32), 8).centers.shape == (8, 2)
    rows = clusters(n=25)
    assert len(np.unique(kmeans(rows, 25).nearest)) == 25


def test_same_seed_same_landmarks():
    rows = clusters()
    told = []
    first, second = kmeans(rows, 10, seed=3), kmeans(rows, 10, seed=3, rounds=4, tell=lambda *news: told.append(news))
    np.testing.assert_array_equal(first.centers, second.centers)
    assert told == [(0, "round 1 of 4"), (1, "round 2 of 4"), (2, "round 3 of 4"), (3, "round 4 of 4")]


def test_threads_views_and_many_centers():
    rows = np.random.default_rng(0).normal(size=(4000, 9)).astype(np.float32)
    centers = kmeans(rows[:, :8], 300).centers  # a view: the last column is no part of a row
    with at_most(1):
        one = nearest_centers(rows[:, :8], centers)
    every = nearest_centers(rows[:, :8], centers)
    np.testing.assert_array_equal(one.centers, every.centers)
    exact = ((rows[:, None, :8].astype(float) - centers) ** 2).sum(-1)
    assert (one.centers == exact.argmin(1)).mean() > 0.9999


def test_equal_centers_go_to_the_first():
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    assert (nearest_centers(rows, np.repeat(rows, 4, axis=0)).centers % 4 == 0).all()
