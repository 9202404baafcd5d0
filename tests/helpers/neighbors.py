"""Oracles of nearest neighbors."""

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import cosine_distances, haversine_distances

from kway.search import pick_metric
from kway.search.block_scan import BlockScan
from kway.search.certified import certify
from kway.search.codecs.stores import StoredRows


def brute_distances(queries, rows, metric):
    """Return the distances (q, n) in float64, by libraries that share no code with kway."""
    q, x = np.asarray(queries, dtype=np.float64), np.asarray(rows, dtype=np.float64)
    picked = pick_metric(metric)
    name = picked.distance.name
    if name == "haversine":
        degrees = getattr(picked, "degrees", False)
        return haversine_distances(np.radians(q), np.radians(x)) * 6371.0088 if degrees else haversine_distances(q, x)
    if name == "cosine":
        return cosine_distances(q, x)
    if name == "dot":
        return -q @ x.T
    return cdist(q, x, {"manhattan": "cityblock"}.get(name, name))


def brute_neighbors(queries, rows, metric, k):
    """Return the ids (q, k) of the nearest rows by brute force; ties go to the lower id."""
    return np.argsort(brute_distances(queries, rows, metric), axis=1, kind="stable")[:, :k]


def assert_same_neighbors(index, oracle, queries, k=5):
    """Check that two indexes return the same ids and distances, to the last digit."""
    found, expected = index.nearest(queries, k), oracle.nearest(queries, k)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.distances, expected.distances)


def bounded(rows, distance, seed=0, always=False):
    """Return the exact search with bounds over rows (n, d), or None if bounds do not save time."""
    return certify(BlockScan(StoredRows(rows), distance), seed, always)
