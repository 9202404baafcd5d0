"""ScaNN: codes of pairs of features scanned by table look-up, the best re-ordered exactly.

Its guide advises brute force below 20,000 rows, codes over all rows up to 100,000, a tree above that: all are tried.
"""

import numpy as np

from . import need

NAME = "ScaNN"
KINDS = ("tree", "codes", "brute force")
REORDER = (20, 40, 80, 160)  # rows re-ordered exactly
PROBES = (0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3)  # share of the tree's leaves; costs more than re-ordering


def settings(kind):
    """From quick to thorough: (share of leaves, rows re-ordered)."""
    return {"tree": tuple((p, r) for p in PROBES for r in REORDER), "codes": tuple((1.0, r) for r in REORDER)}.get(
        kind, ((1.0, 0),)
    )


def build(X, k, kind, threads=2):
    """The searcher."""
    builder = need("scann").scann_ops_pybind.builder(X, k, "squared_l2").set_n_training_threads(threads)
    leaves = cells(X)
    if kind == "tree":
        builder = builder.tree(leaves, max(1, leaves // 20), training_sample_size=len(X))
    builder = builder.score_brute_force() if kind == "brute force" else builder.score_ah(2).reorder(REORDER[0])
    searcher = builder.build()
    searcher.set_num_threads(threads)
    return searcher


def cells(X):
    """Leaves of the tree: its guide's square root of the rows."""
    return max(1, int(np.sqrt(len(X))))


def search(searcher, Q, X, setting):
    """Return ids (q, k)."""
    share, reorder = setting
    if not reorder:
        return searcher.search_batched_parallel(Q)[0]
    leaves = None if share == 1 else max(1, round(share * cells(X)))
    return searcher.search_batched_parallel(Q, pre_reorder_num_neighbors=reorder, leaves_to_search=leaves)[0]
