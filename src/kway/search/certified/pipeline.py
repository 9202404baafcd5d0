"""The search: sketch the queries, find a first radius in the nearest cells, scan all codes, measure the few rows left.

Results are exact: `ids` are the k smallest by (float64 distance of the stored values, id). Cells group the rows by
their nearest center, and near cells are near in memory. They only order the work; no result depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified.sweep import FLOOR, SweptPanel, SweptRows, nearest_cells, sweep_rows, warm
from kway.kernels.jit import frozen
from kway.kernels.topk import EMPTY
from kway.memory import BLOCK_BYTES, CACHE_BYTES, rows_per_block
from kway.search.certified.sketches import (
    CHUNK,
    BoundSketch,
    Panel,
    SketchCodes,
    SweepTally,
    empty_sketch,
)
from kway.search.kmeans import in_cell_order, kmeans_sample, nearest_centers, place_centers
from kway.search.results import Neighbors
from kway.threads import even_spans, pmap, spans

if TYPE_CHECKING:
    from kway.search.certified.euclidean import EuclideanSpace
    from kway.search.certified.manhattan import ManhattanSpace


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


PANEL = 240  # queries per panel: their codes and a block of rows fit in the L1 cache (T1, T2)
_PROBES = 2  # cells that give the first radius (T1)
_SPARE = 3  # rows beyond k that are measured for the first radius (T1)


class Certified:
    """Exact nearest neighbors, with a bound for every row that is not measured. `certify` builds it."""

    def __init__(
        self,
        rows: NDArray,
        space: EuclideanSpace | ManhattanSpace,
        cells: CellOrder,
        codes: SketchCodes,
        sketch: BoundSketch,
        unit: float,
        why: str,
    ) -> None:
        """sketch: of the rows, with fine in cell order."""
        self._space, self._cells, self._codes = space, cells, codes
        self._index = SweptRows(
            codes.packed,
            frozen(sketch.fine),
            cells.ids,
            cells.start,
            rows,
            codes.step,
            unit,
            codes.margin,
            codes.variant,
        )
        self._slack, self._coarse_slack = float(sketch.slack.max()), float(sketch.coarse_slack.max())
        self._means = _chunk_means(sketch.coarse, cells.ids)  # (chunks, w)
        self.why = why
        self.touched = float("nan")  # rows per query measured in full by the last call
        self.marked = float("nan")  # rows per query that passed the scan of codes

    @property
    def nbytes(self) -> int:
        """Bytes in memory, without the rows."""
        parts = (self._index.fine, self._cells, self._codes, self._space, self._means)
        return sum(int(part.nbytes) for part in parts)

    @property
    def variant(self) -> int:
        """Instructions that scan the codes; 0: those of any CPU."""
        return self._codes.variant

    def pays(self, k: int) -> bool:
        """Return whether bounds save time for this k; if k is a large part of all rows, they rule out few."""
        return k <= max(20, len(self._index.ids) // 50)

    def nearest(self, queries: NDArray, k: int) -> Neighbors:
        """Return ids and distances (q, k) of the k <= n nearest rows of queries (q, d)."""
        queries = frozen(queries)
        best = np.full((len(queries), k), EMPTY)
        found = np.full((len(queries), k), -1, np.int64)
        tallies = []
        for part in spans(len(queries), rows_per_block(8 * queries.shape[1], BLOCK_BYTES)):
            tallies += self._group(queries[part], best[part], found[part])
        self.marked = sum(tally.marked for tally in tallies) / max(1, len(queries))
        self.touched = sum(tally.visited for tally in tallies) / max(1, len(queries))
        return Neighbors(found, best)

    def _group(self, queries: NDArray, best: NDArray, found: NDArray) -> list[SweepTally]:
        k, q = best.shape[1], len(queries)
        sketch, near = self._sketch(queries, k)
        order = np.argsort(near[:, 0], kind="stable").astype(np.int32)
        slack = (sketch.slack + self._slack) * (1 + 1e-9)
        reach = sketch.coarse_slack + self._coarse_slack + self._codes.error
        coarse, fine, near = frozen(sketch.coarse), frozen(sketch.fine), frozen(near)

        def work(part: slice) -> SweepTally:
            members = frozen(order[part])
            gap = self._means - coarse[members].mean(axis=0)
            chunks = np.argsort(np.einsum("ij,ij->i", gap, gap))
            panel = Panel(members, chunks, near, coarse, fine, slack, reach, queries, k + _SPARE, best, found)
            return _answer(self._codes, self._index, panel)

        return pmap(work, even_spans(q, PANEL))

    def _sketch(self, queries: NDArray, k: int) -> tuple[BoundSketch, NDArray[np.int32]]:
        """Return sketches of the queries, and their nearest cells (q, probes), which contain about 2 k rows."""
        q, cells = len(queries), len(self._cells.centers)
        probes = min(cells, max(_PROBES, -(-2 * k * cells // len(self._index.ids))))
        near = np.empty((q, probes), np.int32)
        out = empty_sketch(q, self._space)

        def work(part: slice) -> None:
            self._space.sketch(queries[part], out.part(part))
            near[part] = self._cells.nearest(out.coarse[part], probes)

        pmap(work, even_spans(q, rows_per_block(4 * queries.shape[1], CACHE_BYTES)))
        return out, near


def _answer(codes: SketchCodes, index: SweptRows, panel: Panel) -> SweepTally:
    """Compute the lists of the panel's queries."""
    members, (words, base, errors) = panel.members, codes.encode_queries(panel.coarse, panel.members)
    warm(index, codes.bias, panel.near, members, words, panel.queries, panel.keep, panel.best, panel.found)
    reach = (panel.reach[members] + errors) * (1 + 1e-9)
    tau = np.full(len(words), FLOOR, np.int32)
    swept = SweptPanel(members, words, base, reach, tau, panel.slack, panel.fine, panel.queries, panel.order)
    marked, visited = sweep_rows(index, codes.bias, swept, CHUNK, panel.best, panel.found)
    return SweepTally(marked, visited + len(members) * panel.keep)


def _chunk_means(coarse: NDArray[np.float32], ids: NDArray) -> NDArray[np.float32]:
    """Return the mean of each chunk of rows in cell order, by one row in eight: it only orders the chunks."""
    return np.array([coarse[ids[part][::8]].mean(axis=0) for part in spans(len(ids), 64 * CHUNK)], np.float32)
