"""Search: the k best rows of each query.

what an index is    index.py (Index, the order of answers)  live.py (Recipe, LiveIndex)  ids.py  ties.py
spaces/             rows, and what near means: distances, metrics, units
recipes             flat.py  landmarks.py  kdtree.py  lsh.py  sharded.py (of shard.py); auto.py picks one
scanning            blocks.py (all rows; `top_products`)  heaps.py (the k best)
                    proven_neighbors.py (of those found in another space)
certified/          exact search that proves most rows too far without looking at them
cells/              landmark cells: means, and rows around them
stores/             how rows are kept: full, as bytes (Int8), as bits (Bits, CentredBits), or both
codes/              rows as bits: scanned, and built from streams
device/             the same indexes asked on a GPU
pairwise.py         all distances between two sets of rows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "Bits": "stores.bits",
    "Flat": "flat",
    "Gaussian": "spaces.metrics",
    "Haversine": "spaces.metrics",
    "INDEXES": "auto",
    "Index": "index",
    "Int8": "stores.int8",
    "KDTree": "kdtree",
    "LSH": "lsh",
    "Landmarks": "landmarks",
    "Laplacian": "spaces.metrics",
    "METRICS": "spaces.metrics",
    "Metric": "spaces.metrics",
    "Neighbors": "index",
    "Recipe": "live",
    "Sharded": "sharded",
    "TopK": "index",
    "choose": "auto",
    "cluster_blocks": "cells.stream_kmeans",
    "pick_index": "auto",
    "pick_metric": "spaces.metrics",
    "restore": "auto",
    "top_products": "blocks",
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
    from kway.search.auto import INDEXES, choose, pick_index, restore
    from kway.search.blocks import top_products
    from kway.search.cells.stream_kmeans import cluster_blocks
    from kway.search.flat import Flat
    from kway.search.index import Index, Neighbors, TopK
    from kway.search.kdtree import KDTree
    from kway.search.landmarks import Landmarks
    from kway.search.live import Recipe
    from kway.search.lsh import LSH
    from kway.search.sharded import Sharded
    from kway.search.spaces.metrics import METRICS, Gaussian, Haversine, Laplacian, Metric, pick_metric
    from kway.search.stores.bits import Bits
    from kway.search.stores.int8 import Int8

__getattr__, __dir__ = lazy_names(__name__, _HOME)
