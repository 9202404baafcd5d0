"""faiss: its own navigable small-world graph (HNSWFlat)."""

from . import need

NAME = "faiss HNSW"


def build(X, M=16, ef_construction=200, threads=2):
    """Build the index; `hnsw.efSearch` is set by the caller."""
    faiss = need("faiss")
    faiss.omp_set_num_threads(threads)
    index = faiss.IndexHNSWFlat(X.shape[1], M)
    index.hnsw.efConstruction = ef_construction
    index.add(X)
    return index
