import numpy as np

from kway.search.kmeans import assign, kmeans


def blobs(seed=0, n=3000, c=20):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(c, 6)) * 20
    return (centres[rng.integers(c, size=n)] + rng.normal(size=(n, 6))).astype(np.float32)


def inertia(rows, landmarks):
    return ((rows[:, None] - landmarks[None]) ** 2).sum(-1).min(1).mean()


def test_rows_belong_to_their_nearest_landmark():
    rows = blobs()
    cells = kmeans(rows, 30)
    expected = ((rows[:, None] - cells.landmarks[None]) ** 2).sum(-1).argmin(1)
    assert (cells.nearest == expected).mean() > 0.999
    np.testing.assert_array_equal(assign(rows, cells.landmarks), cells.nearest)


def test_as_good_as_scikit_learn():
    from sklearn.cluster import KMeans

    rows = blobs()
    peer = KMeans(40, n_init=1, random_state=0).fit(rows).cluster_centers_
    assert inertia(rows, kmeans(rows, 40).landmarks) < 1.3 * inertia(rows, peer)


def test_no_cell_stays_empty():
    rows = np.concatenate([np.zeros((500, 3)), np.random.default_rng(0).normal(size=(500, 3)) + 50]).astype(np.float32)
    assert (np.bincount(kmeans(rows, 32).nearest, minlength=32) > 0).sum() >= 30


def test_few_distinct_rows_and_every_row_a_landmark():
    assert kmeans(np.ones((40, 2), dtype=np.float32), 8).landmarks.shape == (8, 2)
    rows = blobs(n=25)
    assert len(np.unique(kmeans(rows, 25).nearest)) == 25


def test_same_seed_same_landmarks(capsys):
    rows = blobs()
    first, second = kmeans(rows, 10, seed=3), kmeans(rows, 10, seed=3, verbose=True)
    np.testing.assert_array_equal(first.landmarks, second.landmarks)
    assert "landmarks" in capsys.readouterr().out
