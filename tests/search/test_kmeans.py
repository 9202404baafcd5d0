import numpy as np

from kway.search import kmeans as module
from kway.search.kmeans import nearest_centres


def kmeans(rows, n_centres, seed=0, **kwargs):
    return module.kmeans(rows, n_centres, np.random.default_rng(seed), **kwargs)


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


def test_same_seed_same_landmarks(capsys):
    rows = blobs()
    first, second = kmeans(rows, 10, seed=3), kmeans(rows, 10, seed=3, verbose=True)
    np.testing.assert_array_equal(first.centres, second.centres)
    assert "landmarks" in capsys.readouterr().out


def test_threads_views_and_many_centres():
    rows = np.random.default_rng(0).normal(size=(4000, 9)).astype(np.float32)
    centres = kmeans(rows[:, :8], 300).centres  # a view: the last column is no part of a row
    one, every = (nearest_centres(rows[:, :8], centres, n_jobs) for n_jobs in (1, None))
    np.testing.assert_array_equal(one.centres, every.centres)
    exact = ((rows[:, None, :8].astype(float) - centres) ** 2).sum(-1)
    assert (one.centres == exact.argmin(1)).mean() > 0.9999


def test_equal_centres_go_to_the_first():
    rows = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    assert (nearest_centres(rows, np.repeat(rows, 4, axis=0)).centres % 4 == 0).all()
