"""The search with bounds: sketch the queries, find a first radius in the nearest cells, scan all codes, and measure the
few rows that the bounds do not rule out.

Results are exact: `ids` are the k smallest by (float64 distance of the stored values, id). Cells group the rows by
their nearest center, and near cells are near in memory. They only order the work; no result depends on them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.certified.sweep import FLOOR, SweptPanel, SweptRows, nearest_cells, sweep_rows, warm
from kway.kernels.jit import frozen
from kway.kernels.topk import EMPTY
from kway.rows.blocks import row_blocks
from kway.search.block_scan import EXTRA, UNIT_ROUNDING, BlockScan, confirm, unit_rows
from kway.search.certified.sketches import BoundSketch, SketchCodes, Space, empty_sketch
from kway.search.distances import Matrix
from kway.search.kmeans import in_cell_order, kmeans_sample, nearest_centers, place_centers
from kway.search.results import Neighbors
from kway.threads import even_spans, pmap, single_blas, spans

PANEL = 240  # queries per panel: their codes and a block of rows fit in the L1 cache (T1, T2)
CHUNK = 16  # blocks of 64 rows between two updates of the thresholds (T1)


@dataclass(frozen=True)
class CellOrder:
    """Centers (c, w) with their squared norms (c,), and the rows of each cell: ids (n,), start (c + 1,)."""

    centers: NDArray[np.float32]
    norms: NDArray[np.float32]
    ids: NDArray[np.int32]
    start: NDArray[np.int64]

    def nearest(self, coarse: NDArray[np.float32], probes: int) -> NDArray[np.int32]:
        """Return the nearest cells (b, probes) of each row of coarse (b, w)."""
        near = np.empty((len(coarse), probes), np.int32)
        nearest_cells(coarse @ self.centers.T, self.norms, near)
        return near

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.centers.nbytes + self.norms.nbytes + self.ids.nbytes + self.start.nbytes


def make_cells(coarse: NDArray[np.float32], rng: np.random.Generator) -> CellOrder:
    """Make about sqrt(n) cells of coarse (n, w), by k-means on a sample."""
    n = len(coarse)
    count = max(8, int(n**0.5))
    centers = place_centers(kmeans_sample(coarse, count, rng), count, rng)
    centers = frozen(centers[_tree_order(centers, np.arange(count))])
    norms = frozen(np.einsum("ij,ij->i", centers, centers))
    cell = nearest_centers(coarse, centers).centers
    ids = in_cell_order(cell, count).astype(np.int32)
    start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=count))])
    return CellOrder(centers, norms, frozen(ids), frozen(start))


def _tree_order(centers: NDArray[np.float32], which: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the centers in the order of a bisection along principal axes: neighbors in memory are near in space."""
    if len(which) <= 8:
        return which
    spread = centers[which] - centers[which].mean(axis=0)
    axis = np.linalg.svd(spread, full_matrices=False)[2][0]
    order = which[np.argsort(spread @ axis, kind="stable")]
    half = len(order) // 2
    return np.concatenate([_tree_order(centers, order[:half]), _tree_order(centers, order[half:])])


class SweepTally(NamedTuple):
    """Number of rows that passed the scan of codes, and number of rows measured in full."""

    marked: int
    visited: int


class BoundedScan:
    """A scan, and bounds that skip most of its rows without reading them. `certify` (build.py) builds it.

    Cosine is searched through unit vectors: ||u - v||^2 = 2 (1 - cos), so the order is the same. The unit rows are
    rounded to float32, so results are confirmed on the rows as given. A zero row stays at the origin. It is then nearer
    to every query than its cosine distance of 1, so it is never missed. For a zero query the bounds prove nothing.
    """

    def __init__(
        self,
        scan: BlockScan,
        rows: NDArray,
        space: Space,
        cells: CellOrder,
        codes: SketchCodes,
        sketch: BoundSketch,
        why: str,
        always: bool = False,
    ) -> None:
        """rows: those of the scan, or their unit vectors. sketch: of these, with fine in cell order."""
        self.scan, self._angles = scan, scan.distance.by_angle
        self._space, self._cells, self._codes = space, cells, codes
        unit, fine = space.frame.unit, frozen(sketch.fine)
        self._index = SweptRows(
            codes.packed, fine, cells.ids, cells.start, rows, codes.step, unit, codes.margin, codes.variant
        )
        self._slack, self._coarse_slack = float(sketch.slack.max()), float(sketch.coarse_slack.max())
        self._means = _chunk_means(sketch.coarse, cells.ids)  # (chunks, w)
        self._why, self._always = why, always
        self.touched = float("nan")  # rows per query measured in full by the last call
        self.marked = float("nan")  # rows per query that passed the scan of codes

    @property
    def nbytes(self) -> int:
        """Bytes in memory, rows included."""
        parts = (self.scan, self._index.fine, self._cells, self._codes, self._space, self._means)
        return sum(int(part.nbytes) for part in parts)

    @property
    def variant(self) -> int:
        """Instructions that scan the codes; 0: those of any CPU."""
        return self._codes.variant

    def why(self) -> str:
        """Return what was chosen."""
        return f"cosine through unit vectors; {self._why}" if self._angles else self._why

    def pays(self, k: int) -> bool:
        """Return whether bounds save time for this k; if k is a large part of all rows, they rule out few."""
        return self._always or k <= max(20, len(self._index.ids) // 50)

    def nearest(self, queries: Matrix, k: int) -> Neighbors:
        """Return positions and distances (q, k) by (float64 distance, position), k <= n."""
        dense, asked = queries.toarray() if sp.issparse(queries) else queries, k + EXTRA * self._angles
        if not self.pays(asked):
            found, self.touched = self.scan.nearest(dense, k), self.scan.touched
            return found
        placed, asked = frozen(unit_rows(dense) if self._angles else dense), min(asked, len(self._index.ids))
        best, ids = np.full((len(dense), asked), EMPTY), np.full((len(dense), asked), -1, np.int64)
        tallies: list[SweepTally] = []
        with single_blas():
            for part in row_blocks(dense):
                some = even_spans(part.stop - part.start, PANEL)
                *sketch, near = map(np.concatenate, zip(*pmap(self._sketcher(placed[part], asked), some)))
                sweep = self._sweeper(placed[part], BoundSketch(*sketch), near, best[part], ids[part])
                tallies += pmap(sweep, some)
        self.marked, self.touched = (sum(counts) / len(dense) for counts in zip(*tallies)) if tallies else (0.0, 0.0)
        if not self._angles:
            return Neighbors(ids, best)
        confirmed = confirm(self.scan, dense, Neighbors(ids, best), k, UNIT_ROUNDING)
        self.touched += confirmed.measured / len(dense)
        return confirmed.neighbors

    def _sketcher(self, queries: NDArray, k: int) -> Callable[[slice], tuple[NDArray, ...]]:
        """Return a function that sketches some of the queries and finds their nearest cells, with about 2 k rows."""
        cells = len(self._cells.centers)
        probes = min(cells, -(-2 * k * cells // len(self._index.ids)))

        def work(part: slice) -> tuple[NDArray, ...]:
            sketch = empty_sketch(part.stop - part.start, self._space)
            self._space.sketch(queries[part], sketch)
            return *sketch, self._cells.nearest(sketch.coarse, probes)

        return work

    def _sweeper(
        self, queries: NDArray, sketch: BoundSketch, near: NDArray[np.int32], best: NDArray, found: NDArray
    ) -> Callable[[slice], SweepTally]:
        """Return a function that finds the nearest rows of a panel of queries, into best and found (q, k)."""
        codes, index, keep = self._codes, self._index, 2 * best.shape[1]
        order = np.argsort(near[:, 0], kind="stable").astype(np.int32)  # queries of the same cell share a panel
        slack = (sketch.slack + self._slack) * (1 + 1e-9)
        reach = sketch.coarse_slack + self._coarse_slack + codes.error
        coarse, fine, near = frozen(sketch.coarse), frozen(sketch.fine), frozen(near)

        def work(part: slice) -> SweepTally:
            members = frozen(order[part])
            gap = self._means - coarse[members].mean(axis=0)
            chunks = np.argsort(np.einsum("ij,ij->i", gap, gap))  # nearest first
            words, base, errors = self._space.encode_queries(codes, coarse, members)
            warm(index, codes.bias, near, members, words, queries, keep, best, found)
            bounds, tau = (reach[members] + errors) * (1 + 1e-9), np.full(len(words), FLOOR, np.int32)
            panel = SweptPanel(members, words, base, bounds, tau, slack, fine, queries, chunks)
            marked, visited = sweep_rows(index, codes.bias, panel, CHUNK, best, found)
            return SweepTally(marked, visited + len(members) * keep)

        return work


def _chunk_means(coarse: NDArray[np.float32], ids: NDArray) -> NDArray[np.float32]:
    """Return the mean of each chunk of rows in cell order, by one row in eight: it only orders the chunks."""
    return np.array([coarse[ids[part][::8]].mean(axis=0) for part in spans(len(ids), 64 * CHUNK)], np.float32)
