"""usearch: a navigable small-world graph over float32, float16 or int8 rows."""

import numpy as np

from . import need

NAME = "usearch"
KINDS = ("f32", "f16", "i8")
EXPANSIONS = (8, 16, 32, 64, 96, 128, 192, 256, 512)  # of the search, from quick to thorough


def build(X, kind, M=16, expansion=128, threads=2):
    """Build the index; `expansion_search` is set by the caller."""
    index = need("usearch.index").Index(
        ndim=X.shape[1], metric="l2sq", dtype=kind, connectivity=M, expansion_add=expansion
    )
    index.add(np.arange(len(X)), X, threads=threads)
    return index


def search(index, Q, k, threads=2):
    """Return ids (q, k)."""
    return index.search(Q, k, threads=threads).keys.astype(np.int64)
