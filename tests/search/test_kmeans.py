from typing import Any, NamedTuple

import numpy as np
import pytest

from kway.errors import InputError
from kway.search import cluster_blocks
from kway.search.kmeans import _sampled, kmeans_sample, nearest_centres, place_centres
from kway.threads import at_most


class Clustering(NamedTuple):
    centres: Any
    nearest: Any


def kmeans(rows, n_centres, seed=0, **how):
    rng = np.random.default_rng(seed)
    centres = place_centres(kmeans_sample(rows, n_centres, rng), n_centres, rng, **how)
    return Clustering(centres, nearest_centres(rows, centres).centres)


def blobs(seed=0, n=3000, c=20):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(c, 6)) * 20
    return (centres[rng.integers(c, size=n)] + rng.normal(size=(n, 6))).astype(np.float32)


def inertia(rows, centres):
    return ((rows[:, None] - centres[None]) ** 2).sum(-1).min(1).mean()


def test_rows_belong_to_their_nearest_landmark():
    rows = blobs()
    cells = kmeans(rows, 30)
    expected = ((rows[:, None] - cells.centres[None]) ** 2).sum(-1).argmin(1)
    assert (cells.nearest == expected).mean() > 0.999
    np.testing.assert_array_equal(nearest_centres(rows, cells.centres).centres, cells.nearest)
    gaps = 2 * nearest_centres(rows, cells.centres).gaps
    np.testing.assert_allclose(gaps, ((rows - cells.centres[cells.nearest]) ** 2).sum(1), rtol=1e-2, atol=1e-2)


def test_as_good_as_scikit_learn():
    from sklearn.cluster import KMeans

    rows = blobs()
    peer = KMeans(40, n_init=1, random_state=0).fit(rows).cluster_centers_
    assert inertia(rows, kmeans(rows, 40).centres) < 1.3 * inertia(rows, peer)


def test_no_cell_stays_empty():
    rows = np.concatenate([np.zeros((500, 3)), np.random.default_rng(0).normal(size=(500, 3)) + 50]).astype(np.float32)
    assert (np.bincount(kmeans(rows, 32).nearest, minlength=32) > 0).sum() >= 30


def test_few_distinct_rows_and_every_row_a_landmark():
    assert kmeans(np.ones((40, 2), dtype=np.float32), 8).centres.shape == (8, 2)
    rows = blobs(n=25)
    assert len(np.unique(kmeans(rows, 25).nearest)) == 25


def test_same_seed_same_landmarks():
    rows = blobs()
    told = []
    first, second = kmeans(rows, 10, seed=3), kmeans(rows, 10, seed=3, rounds=4, tell=lambda *news: told.append(news))
    np.testing.assert_array_equal(first.centres, second.centres)
    assert told == [(0, "round 1 of 4"), (1, "round 2 of 4"), (2, "round 3 of 4"), (3, "round 4 of 4")]


def test_threads_views_and_many_centres():
    rows = np.random.default_rng(0).normal(size=(4000, 9)).astype(np.float32)
    centres = kmeans(rows[:, :8], 300).centres  # a view: the last column is no part of a row
    with at_most(1):
        one = nearest_centres(rows[:, :8], centres)
    every = nearest_centres(rows[:, :8], centres)
    np.testing.assert_array_equal(one.centres, every.centres)
    exact = ((rows[:, None, :8].astype(float) - centres) ** 2).sum(-1)
    assert (one.centres == exact.argmin(1)).mean() > 0.9999


def test_equal_centres_go_to_the_first():
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    assert (nearest_centres(rows, np.repeat(rows, 4, axis=0)).centres % 4 == 0).all()


def test_blocks_are_clustered_as_rows_are(tmp_path):
    rows = blobs(n=30_000)
    alone = inertia(rows, kmeans(rows, 40).centres)
    np.save(tmp_path / "a.npy", rows[:9000])
    np.save(tmp_path / "b.npy", rows[9000:])
    blocks = [rows[i : i + 7000] for i in range(0, 30_000, 7000)]
    for source in (rows, tmp_path, blocks):
        found = cluster_blocks(source, 40, seed=1)
        nearest = ((rows[:, None] - found.centres[None]) ** 2).sum(-1)
        assert nearest.min(1).mean() < 1.1 * alone
        assert found.sizes.sum() == 30_000
    once = cluster_blocks(iter(blocks), 40, seed=1)
    assert inertia(rows, once.centres) < 1.3 * alone
    with pytest.raises(InputError, match="as many rows"):
        cluster_blocks(rows[:10], 11)
    with pytest.raises(InputError, match="columns"):
        cluster_blocks([rows, rows[:, :2]], 3)


def test_a_pass_moves_centres_to_the_means_of_their_rows():
    rows = blobs(n=2000, c=5)
    start, moved = cluster_blocks(rows, 7, passes=1), cluster_blocks(rows, 7, passes=2)
    nearest = nearest_centres(rows, start.centres).centres
    expected = np.stack([rows[nearest == c].mean(0) for c in range(7)])
    np.testing.assert_allclose(moved.centres, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(moved.sizes, np.bincount(nearest, minlength=7))
    assert moved.spread == pytest.approx(((rows - start.centres[nearest]) ** 2).sum(1).mean(), rel=1e-3)


def test_every_row_of_a_stream_is_as_likely_to_be_drawn():
    rows = np.arange(300, dtype=np.float32)[:, None]
    rng, counts = np.random.default_rng(0), np.zeros(300)
    for _ in range(4000):
        drawn = _sampled(iter([rows[:40], rows[40:170], rows[170:]]), 60, rng)[:, 0].astype(int)
        assert len(set(drawn)) == 60
        counts[drawn] += 1
    assert np.abs(counts / 4000 - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 4000)
