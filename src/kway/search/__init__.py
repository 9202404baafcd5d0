"""Search: the k best rows of each query.

index.py        Recipe and Index, what every index is              answers.py   TopK, Neighbors, ids, heaps, ties
flat.py  landmarks.py  kdtree.py  lsh.py  sharded.py               the recipes; auto.py chooses one
metrics.py  distances.py  units.py                                 what near means, and in which units
scan.py         all rows in blocks; `top_products`
certified/      exact search that proves most rows too far without reading them
codecs/         how rows are kept: full, as bytes (Int8), as bits (Bits)
kmeans.py  projection.py  cells.py  bit_cells.py                   what landmarks consist of
device.py       the same indexes on a GPU: what is searched there, answers to tensors
pairwise.py     all distances between two sets of rows
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
    "Neighbors": "answers",
    "Recipe": "index",
    "Sharded": "sharded",
    "TopK": "answers",
    "choose": "auto",
    "cluster_blocks": "kmeans",
    "pick_index": "auto",
    "pick_metric": "metrics",
    "restore": "auto",
    "top_products": "scan",
}

__all__ = [
    "INDEXES",
    "LSH",
    "METRICS",
    "Bits",
    "Flat",
    "Gaussian",
    "Haversine",
    "Index",
    "Int8",
    "KDTree",
    "Landmarks",
    "Laplacian",
    "Metric",
    "Neighbors",
    "Recipe",
    "Sharded",
    "TopK",
    "choose",
    "cluster_blocks",
    "pick_index",
    "pick_metric",
    "restore",
    "top_products",
]

if TYPE_CHECKING:
    from kway.search.answers import Neighbors, TopK
    from kway.search.auto import INDEXES, choose, pick_index, restore
    from kway.search.codecs.bits import Bits
    from kway.search.codecs.int8 import Int8
    from kway.search.flat import Flat
    from kway.search.index import Index, Recipe
    from kway.search.kdtree import KDTree
    from kway.search.kmeans import cluster_blocks
    from kway.search.landmarks import Landmarks
    from kway.search.lsh import LSH
    from kway.search.metrics import METRICS, Gaussian, Haversine, Laplacian, Metric, pick_metric
    from kway.search.scan import top_products
    from kway.search.sharded import Sharded

__getattr__, __dir__ = lazy_names(__name__, _HOME)
