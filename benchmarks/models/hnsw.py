"""hnswlib: a navigable small-world graph."""

from . import need

NAME = "hnswlib"


def build(X, M=16, ef_construction=200, threads=2, seed=0):
    """Build the index; the caller calls `set_ef`."""
    index = need("hnswlib").Index("l2", X.shape[1])
    index.init_index(len(X), M=M, ef_construction=ef_construction, random_seed=seed)
    index.set_num_threads(threads)
    index.add_items(X)
    return index
