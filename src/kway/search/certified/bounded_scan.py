"""The search with bounds: sketch the queries, find a first radius in the nearest cells, scan all codes, and measure the
few rows that the bounds do not rule out.

Results are exact: `ids` are the k smallest by (float64 distance of the stored values, id). Cells group the rows by
their nearest center. They decide the order in which rows are scanned, but not the result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from kway.kernels.certified.sweep import (
    TAU_LIMIT,
    SweptPanel,
    SweptRows,
    find_first_radius,
    nearest_cells,
    sweep_rows,
)
from kway.kernels.jit import frozen
from kway.kernels.topk import EMPTY
from kway.rows.blocks import row_blocks
from kway.search.block_scan import EXTRA, UNIT_ROUNDING, BlockScan, confirm, unit_rows
from kway.search.certified.sketches import BoundSketch, SketchCodes, Space, empty_sketch
from kway.search.distances import Matrix
from kway.search.kmeans import in_cell_order, kmeans_sample, nearest_centers, place_centers
from kway.search.results import Neighbors
from kway.threads import even_spans, pmap, single_blas, spans

# Decided by the MNIST search benchmarks (T1 Euclidean, T2 Manhattan).
_MIN_CELLS = (
    2  # cells for the first radius; from one cell it is so large that 60% more rows are measured (T1f, clinc150)
)
_EXTRA_FIRST = 3  # rows beyond k measured for the first radius; 2 k rows take 25% longer for k = 76 (benchmark T6)
PANEL = 240  # queries per panel: their codes and a block of rows fit in the L1 cache
CHUNK = 16  # blocks of 64 rows between two updates of the thresholds


@dataclass(frozen=True)
class CellOrder:
    """Centers (c, w) with their squared norms (c,), and the rows of each cell: ids (n,), start (c + 1,)."""

    centers: NDArray[np.float32]
    norms: NDArray[np.float32]
    ids: NDArray[np.int32]
    start: NDArray[np.int64]

    def nearest(self, coarse: NDArray[np.float32], probes: int) -> NDArray[np.int32]:
        """Return the nearest cells (b, probes) of each row of coarse (b, w)."""
        cells = np.empty((len(coarse), probes), np.int32)
        nearest_cells(coarse @ self.centers.T, self.norms, cells)
        return cells

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.centers.nbytes + self.norms.nbytes + self.ids.nbytes + self.start.nbytes


def make_cells(coarse: NDArray[np.float32], rng: np.random.Generator) -> CellOrder:
    """Make about sqrt(n) cells of coarse (n, w), by k-means on a sample."""
    n = len(coarse)
    n_cells = max(8, int(n**0.5))
    centers = place_centers(kmeans_sample(coarse, n_cells, rng), n_cells, rng)
    centers = frozen(centers[_bisection_order(centers, np.arange(n_cells))])
    norms = frozen(np.einsum("ij,ij->i", centers, centers))
    cell = nearest_centers(coarse, centers).centers
    ids = in_cell_order(cell, n_cells).astype(np.int32)
    start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=n_cells))])
    return CellOrder(centers, norms, frozen(ids), frozen(start))


def _bisection_order(centers: NDArray[np.float32], members: NDArray[np.int64]) -> NDArray[np.int64]:
    """Order centers by bisection along principal axes, so that cells that are near in space are near in memory."""
    if len(members) <= 8:
        return members
    centered = centers[members] - centers[members].mean(axis=0)
    axis = np.linalg.svd(centered, full_matrices=False)[2][0]
    order = members[np.argsort(centered @ axis, kind="stable")]
    half = len(order) // 2
    return np.concatenate([_bisection_order(centers, order[:half]), _bisection_order(centers, order[half:])])


class SweepTally(NamedTuple):
    """Number of rows that passed the scan of codes, and number of rows measured in full."""

    marked: int
    measured: int


class BoundedScan:
    """A scan with bounds that skip most of its rows without reading them. `certify` (build.py) builds it.

    Cosine is searched through unit vectors: ||u - v||^2 = 2 (1 - cos), so the order is the same. The unit rows are
    rounded to float32, so `confirm` measures the rows found as they are given. A zero row stays at the origin, which is
    nearer to every query than its cosine distance of 1, so it is never missed. For a zero query all rows are equally
    far, the proof of `confirm` fails, and all rows are scanned.
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
        """Keep the parts of the search.

        rows (n, d) are those of the scan, or their unit vectors. sketch has the sketches of these rows, coarse in the
        order of ids and fine in the order of cells. If `always` is True, bounds are used even if they save no time.
        """
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
        """Return whether bounds save time for this k: if k is large, they rule out few rows."""
        return self._always or k <= max(20, len(self._index.ids) // 50)

    def nearest(self, queries: Matrix, k: int) -> Neighbors:
        """Return positions and distances (q, k) by (float64 distance, position), k <= n."""
        dense = queries.toarray() if sp.issparse(queries) else queries
        n_search = k + EXTRA * self._angles
        if not self.pays(n_search):
            neighbors, self.touched = self.scan.nearest(dense, k), self.scan.touched
            return neighbors
        points, n_search = frozen(unit_rows(dense) if self._angles else dense), min(n_search, len(self._index.ids))
        distances = np.full((len(dense), n_search), EMPTY)
        ids = np.full((len(dense), n_search), -1, np.int64)
        tallies: list[SweepTally] = []
        with single_blas():
            for block in row_blocks(dense):
                panels = even_spans(block.stop - block.start, PANEL)
                *sketch, cells = map(np.concatenate, zip(*pmap(self._sketcher(points[block], n_search), panels)))
                sweep = self._sweeper(points[block], BoundSketch(*sketch), cells, distances[block], ids[block])
                tallies += pmap(sweep, panels)
        self.marked, self.touched = (sum(counts) / len(dense) for counts in zip(*tallies)) if tallies else (0.0, 0.0)
        if not self._angles:
            return Neighbors(ids, distances)
        confirmed = confirm(self.scan, dense, Neighbors(ids, distances), k, UNIT_ROUNDING)
        self.touched += confirmed.measured / len(dense)
        return confirmed.neighbors

    def _sketcher(self, queries: NDArray, k: int) -> Callable[[slice], tuple[NDArray, ...]]:
        """Return a function that sketches a panel and finds the nearest cells of each query, with 2 k rows or more."""
        n_cells = len(self._cells.centers)
        probes = min(n_cells, max(_MIN_CELLS, -(-2 * k * n_cells // len(self._index.ids))))

        def work(part: slice) -> tuple[NDArray, ...]:
            sketch = empty_sketch(part.stop - part.start, self._space)
            self._space.sketch(queries[part], sketch)
            return *sketch, self._cells.nearest(sketch.coarse, probes)

        return work

    def _sweeper(
        self, queries: NDArray, sketch: BoundSketch, cells: NDArray[np.int32], distances: NDArray, ids: NDArray
    ) -> Callable[[slice], SweepTally]:
        """Return a function that writes the nearest rows of a panel into distances and ids (q, k).

        The factors 1 + 1e-9 cover the rounding of the float64 sums of error bounds.
        """
        codes, index, n_first = self._codes, self._index, distances.shape[1] + _EXTRA_FIRST
        order = np.argsort(cells[:, 0], kind="stable").astype(np.int32)  # queries of the same cell share a panel
        slack = (sketch.slack + self._slack) * (1 + 1e-9)
        reach = sketch.coarse_slack + self._coarse_slack + codes.error
        coarse, fine, cells = frozen(sketch.coarse), frozen(sketch.fine), frozen(cells)

        def work(part: slice) -> SweepTally:
            members = frozen(order[part])
            gap = self._means - coarse[members].mean(axis=0)
            chunks = np.argsort(np.einsum("ij,ij->i", gap, gap))  # nearest first
            words, base, errors = self._space.encode_queries(codes, coarse, members)
            find_first_radius(index, codes.bias, cells, members, words, queries, n_first, distances, ids)
            panel_reach = (reach[members] + errors) * (1 + 1e-9)
            tau = np.full(len(words), TAU_LIMIT, np.int32)
            panel = SweptPanel(members, words, base, panel_reach, tau, slack, fine, queries, chunks)
            marked, measured = sweep_rows(index, codes.bias, panel, CHUNK, distances, ids)
            return SweepTally(marked, measured + len(members) * n_first)

        return work


def _chunk_means(coarse: NDArray[np.float32], ids: NDArray) -> NDArray[np.float32]:
    """Return the approximate mean (w,) of each chunk of rows in cell order, from one row in eight."""
    return np.array([coarse[ids[part][::8]].mean(axis=0) for part in spans(len(ids), 64 * CHUNK)], np.float32)
