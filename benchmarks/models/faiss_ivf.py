"""faiss: cells (IVFFlat), the approximate index most people start with."""

from . import need

NAME = "faiss IVFFlat"


def build(X, cells, threads=2):
    """Build the index; `nprobe` is set by the caller."""
    faiss = need("faiss")
    faiss.omp_set_num_threads(threads)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(X.shape[1]), X.shape[1], cells)
    index.train(X)
    index.add(X)
    return index
