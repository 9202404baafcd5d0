"""KDTree: exact search in few columns, by scipy's cKDTree.

The tree contains the rows in the space of the distance (distances.py), with a norm of order 1 or 2. It computes in
float64 and leaves ties unordered, so a few more neighbors than k are fetched and confirmed (block_scan.py). The result
is that of brute force, with ties by lower position. After rows are added or removed, the next search builds the tree
again.
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
from kway.search.codecs.stores import StoredRows, drop_rows, join_rows
from kway.search.distances import COSINE, EUCLIDEAN, GREAT_CIRCLE, MANHATTAN
from kway.search.index import Index, Recipe
from kway.search.metrics import Metric
from kway.search.results import Ids, Neighbors
from kway.threads import pmap, shares

_ROUNDING = 64 * float(np.finfo(np.float64).eps)  # of unit vectors; other distances have only a relative error


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

    def _live(self, rows: Any, metric: Metric, ids: Ids) -> KDTreeIndex:
        return KDTreeIndex(self, metric, ids, rows)


class KDTreeIndex(Index):
    """Live KD-tree."""

    recipe: KDTree

    def __init__(self, recipe: KDTree, metric: Metric, ids: Ids, rows: NDArray) -> None:
        super().__init__(recipe, metric, ids, rows.shape[1])
        self._rows = rows
        self.why_ = f"a KD-tree over {len(rows):,} rows of {rows.shape[1]} columns"
        self._settle()

    @property
    def rows(self) -> NDArray:
        """Rows (n_rows, d) in the order of their positions."""
        return np.asarray(self.unit.given(self._rows))

    @property
    def nbytes(self) -> int:
        """Bytes in memory: the rows, and the float64 points of the tree."""
        return int(self._rows.nbytes + self._tree.data.nbytes + self._tree.indices.nbytes)

    def _settle(self) -> None:
        self._scan = BlockScan(StoredRows(self._rows), self.metric.distance)
        self._tree: Any = cKDTree(self._points(self._rows), leafsize=self.recipe.leaf_size)

    def _points(self, rows: NDArray) -> NDArray[np.float64]:
        placed: NDArray[np.float64] = self.metric.distance.place(rows.astype(np.float64))
        return placed

    def _nearest(self, queries: NDArray, k: int, probes: int | None) -> Neighbors:
        tree, points = self._tree, self._points(queries)
        p = float(self.metric.distance.order)
        ranks = np.arange(1, min(self.n_rows, k + EXTRA) + 1)  # with a list the result is (q, k) for k = 1 too

        def work(part: slice) -> Any:
            return tree.query(points[part], k=ranks, p=p)

        found = pmap(work, shares(len(points), least=256))
        gaps = np.concatenate([gap for gap, _ in found])
        ids = np.concatenate([at for _, at in found]).astype(np.int64)
        if ids.max(initial=0) >= self.n_rows:  # the tree found too few rows
            raise InputError("distances overflow float64: the rows of the index were altered; build or save it again")
        rounding = _ROUNDING if self.metric.distance.moves else 0.0
        confirmed = confirm(self._scan, queries, Neighbors(ids, gaps), k, rounding)
        self._touched = confirmed.measured / len(queries)
        return confirmed.neighbors

    def _append(self, rows: NDArray) -> None:
        self._rows, self._stale = join_rows(self._rows, rows), True

    def _drop(self, positions: NDArray[np.int64]) -> None:
        self._rows, self._stale = drop_rows(self._rows, positions), True

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        return {}, {"rows": self._rows}
