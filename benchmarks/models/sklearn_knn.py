"""scikit-learn and its Intel build: brute-force neighbors."""

from sklearn.neighbors import NearestNeighbors

from . import need

NAME = "scikit-learn"
INTEL = "scikit-learn-intelex"


def exact(X, k, metric="euclidean"):
    """Return a function queries -> ids (q, k), two threads."""
    model = NearestNeighbors(n_neighbors=k, algorithm="brute", metric=metric, n_jobs=2).fit(X)
    return lambda Q: model.kneighbors(Q, return_distance=False)


def exact_intel(X, k):
    """The same through oneDAL."""
    Intel = need("sklearnex.neighbors").NearestNeighbors

    model = Intel(n_neighbors=k, algorithm="brute", n_jobs=2).fit(X)
    return lambda Q: model.kneighbors(Q, return_distance=False)
