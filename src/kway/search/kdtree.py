"""KDTree: exact search in few columns, by scipy's cKDTree.

Each distance maps rows to points whose L1 or L2 distance gives the same neighbors (`Distance.place`). The tree stores
these points in float64. cKDTree leaves ties unordered, so the search fetches k + EXTRA neighbors and measures all of
them again. `confirm` (block_scan.py) then proves that no other row is nearer, or scans all rows. The result is that of
brute force, with ties by lower position. After rows are added or removed, the next search builds the tree again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from kway.errors import InputError
from kway.parameters import check_parameters, whole
from kway.search.block_scan import EXTRA, BlockScan, confirm
from kway.search.codecs.stores import StoredRows
from kway.search.distances import COSINE, EUCLIDEAN, GREAT_CIRCLE, MANHATTAN
from kway.search.index import Recipe, RowsIndex
from kway.search.metrics import Metric
from kway.search.results import Ids, Neighbors
from kway.threads import pmap, shares

# Bounds the absolute error of the tree's distance of two points on the unit sphere. Each coordinate of a point is wrong
# by a few eps, and so is the distance of two points. For rows that are their own points, the error is relative, and the
# relative tolerance of `confirm` covers it.
_UNIT_ROUNDING = 64 * float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class KDTree(Recipe):
    """KD-tree: exact search in few columns.

    Parameters
    ----------
    leaf_size : int, default=16
        Rows per leaf, below which a box is not split.

    References
    ----------
    Bentley, "Multidimensional binary search trees used for associative searching", Communications of the ACM 18, 1975.

    Examples
    --------
    >>> KDTree().build([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]]).nearest([[0.9, 1.0]], 2).ids
    array([[1, 0]])
    """

    leaf_size: int = 16

    name = "kdtree"
    distances = (EUCLIDEAN, MANHATTAN, COSINE, GREAT_CIRCLE)

    def __post_init__(self) -> None:
        check_parameters(self, leaf_size=whole(1))

    def _make_index(self, rows: Any, metric: Metric, ids: Ids) -> KDTreeIndex:
        return KDTreeIndex(self, metric, ids, rows)


class KDTreeIndex(RowsIndex):
    """A KD-tree over rows."""

    recipe: KDTree

    def __init__(self, recipe: KDTree, metric: Metric, ids: Ids, rows: NDArray) -> None:
        super().__init__(recipe, metric, ids, rows)
        self.why_ = f"a KD-tree over {rows.shape[1]} columns"
        self._rebuild()

    @property
    def nbytes(self) -> int:
        """Bytes of the rows, and of the points and indices of the tree; without its nodes, which are few."""
        return int(self._rows.nbytes + self._tree.data.nbytes + self._tree.indices.nbytes)

    def _rebuild(self) -> None:
        self._scan = BlockScan(StoredRows(self._rows), self.metric.distance)
        self._tree: Any = cKDTree(self._points(self._rows), leafsize=self.recipe.leaf_size)

    def _points(self, rows: NDArray) -> NDArray[np.float64]:
        """Return the points (n, d') of rows (n, d), float64."""
        points: NDArray[np.float64] = self.metric.distance.place(rows.astype(np.float64))
        return points

    def _nearest(self, queries: NDArray, k: int, probes: int | None) -> Neighbors:
        tree, points = self._tree, self._points(queries)
        p = float(self.metric.distance.order)
        ranks = np.arange(1, min(self.n_rows, k + EXTRA) + 1)  # an array gives results of shape (q, k), even for k = 1

        def work(part: slice) -> Any:
            return tree.query(points[part], k=ranks, p=p)

        parts = pmap(work, shares(len(points), least=256))
        distances = np.concatenate([part[0] for part in parts])
        ids = np.concatenate([part[1] for part in parts]).astype(np.int64)
        if ids.max(initial=0) >= self.n_rows:  # cKDTree returns n_rows for a neighbor that it did not find
            raise InputError(
                "a distance is infinite or NaN, although rows and queries were checked: the rows of the index were "
                "altered in memory or in their file; build the index again, or save it again"
            )
        rounding = _UNIT_ROUNDING if self.metric.distance.transforms_rows else 0.0
        confirmed = confirm(self._scan, queries, Neighbors(ids, distances), k, rounding)
        self._touched = confirmed.measured / len(queries)
        return confirmed.neighbors
