"""faiss: exact search by brute force."""

import numpy as np

from . import need

NAME = "faiss Flat"


def exact(X, k, metric="euclidean", threads=2):
    """Return a function queries -> ids (q, k)."""
    faiss = need("faiss")
    faiss.omp_set_num_threads(threads)
    if metric == "manhattan":
        return lambda Q: faiss.knn(Q, X, k, metric=faiss.METRIC_L1)[1]
    if metric == "cosine":
        rows = X / np.linalg.norm(X, axis=1, keepdims=True)
        index = faiss.IndexFlatIP(X.shape[1])
        index.add(rows)
        return lambda Q: index.search(Q / np.linalg.norm(Q, axis=1, keepdims=True), k)[1]
    index = faiss.IndexFlatL2(X.shape[1])
    index.add(X)
    return lambda Q: index.search(Q, k)[1]


def threads(n):
    """Set the number of threads of faiss."""
    need("faiss").omp_set_num_threads(n)
