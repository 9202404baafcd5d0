"""Search: the k best rows of each query, by an exact or an approximate index.

index.py           Recipe and Index, the interface of every index
flat.py            exact search, also on a GPU           kdtree.py      exact search in few columns
landmarks.py       IVF (inverted file), approximate      lsh.py         locality-sensitive hashing, approximate
sharded.py         one index per part of the rows        auto.py        the choice of an index
metrics.py         distances with units and similarities that users name
distances.py       distances that the engine computes    pairwise.py    all distances between two sets of rows
power_scaling.py   rows scaled by powers of two, so that squares neither overflow nor underflow
results.py         TopK, Neighbors, ids, heaps, ties     block_scan.py  exact scan of all rows in blocks
certified/         exact search that skips most rows by proven bounds
codecs/            rows stored in full, as bytes (Int8) or as bits (Bits)
kmeans.py          centers of rows                       cells.py       landmark cells of full rows or bytes
bit_cells.py       landmark cells of bits                principal_axes.py  approximate principal axes of rows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "Bits": "codecs.bits",
    "Flat": "flat",
    "Gaussian": "metrics",
    "Haversine": "metrics",
    "INDEXES": "auto",
    "Index": "index",
    "Int8": "codecs.int8",
    "KDTree": "kdtree",
    "LSH": "lsh",
    "Landmarks": "landmarks",
    "Laplacian": "metrics",
    "METRICS": "metrics",
    "Metric": "metrics",
    "Neighbors": "results",
    "Recipe": "index",
    "Sharded": "sharded",
    "TopK": "results",
    "choose": "auto",
    "pick_index": "auto",
    "pick_metric": "metrics",
    "restore": "auto",
}

if TYPE_CHECKING:  # "as" tells type checkers that the names are public
    from kway.search.auto import INDEXES as INDEXES
    from kway.search.auto import choose as choose
    from kway.search.auto import pick_index as pick_index
    from kway.search.auto import restore as restore
    from kway.search.codecs.bits import Bits as Bits
    from kway.search.codecs.int8 import Int8 as Int8
    from kway.search.flat import Flat as Flat
    from kway.search.index import Index as Index
    from kway.search.index import Recipe as Recipe
    from kway.search.kdtree import KDTree as KDTree
    from kway.search.landmarks import Landmarks as Landmarks
    from kway.search.lsh import LSH as LSH
    from kway.search.metrics import METRICS as METRICS
    from kway.search.metrics import Gaussian as Gaussian
    from kway.search.metrics import Haversine as Haversine
    from kway.search.metrics import Laplacian as Laplacian
    from kway.search.metrics import Metric as Metric
    from kway.search.metrics import pick_metric as pick_metric
    from kway.search.results import Neighbors as Neighbors
    from kway.search.results import TopK as TopK
    from kway.search.sharded import Sharded as Sharded

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOME)
