"""Search: the k best rows of each query.

what an index is    index.py (Index, the order of answers)  live.py (Recipe, LiveIndex)  ids.py  ties.py
rows                rows.py (dense or CSR)  powers.py (times powers of two)  units.py (in which nothing overflows)
what near means     distances.py (what the engine computes, and in which space)  metrics.py (units, similarity)
recipes             flat.py  landmarks.py  kdtree.py  lsh.py  sharded.py (of shard.py); auto.py picks one
scanning            blocks.py (all rows; `top_products`)  bit_scan.py, bit_filter.py (codes)  heaps.py (the k best)
                    proof.py (trees)
on a GPU            on_device.py (flat search, for those whose metric is a product)  bits_on_device.py (codes)
                    cells_on_device.py (landmarks)
streams.py          codes of rows that come in blocks; grown.py: all of them; cell_streams.py: in landmark cells
stream_kmeans.py    k-means of such rows (`cluster_blocks`)
landmark cells      kmeans.py  projection.py (short rows)  cell_table.py, bit_cells.py (rows)  cell_groups.py (queries)
certified/          exact search that proves most rows too far without looking at them
stores/             how rows are kept: full, as bytes (Int8), as bits (Bits, CentredBits), or both
pairwise.py         all distances between two sets of rows
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kway.lazy_names import lazy_names

_HOME = {
    "Bits": "stores.bits",
    "Flat": "flat",
    "Gaussian": "metrics",
    "Haversine": "metrics",
    "INDEXES": "auto",
    "Index": "index",
    "Int8": "stores.int8",
    "KDTree": "kdtree",
    "LSH": "lsh",
    "Landmarks": "landmarks",
    "Laplacian": "metrics",
    "METRICS": "metrics",
    "Metric": "metrics",
    "Neighbors": "index",
    "Recipe": "live",
    "Sharded": "sharded",
    "TopK": "index",
    "choose": "auto",
    "cluster_blocks": "stream_kmeans",
    "pick_index": "auto",
    "pick_metric": "metrics",
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
    from kway.search.flat import Flat
    from kway.search.index import Index, Neighbors, TopK
    from kway.search.kdtree import KDTree
    from kway.search.landmarks import Landmarks
    from kway.search.live import Recipe
    from kway.search.lsh import LSH
    from kway.search.metrics import METRICS, Gaussian, Haversine, Laplacian, Metric, pick_metric
    from kway.search.sharded import Sharded
    from kway.search.stores.bits import Bits
    from kway.search.stores.int8 import Int8
    from kway.search.stream_kmeans import cluster_blocks

__getattr__, __dir__ = lazy_names(__name__, _HOME)
