"""The search: sketch the queries, warm up in the nearest cells, sweep all codes, visit the few rows left.

Exact: `ids` are the k smallest by (float64 distance of the stored values, then lower id). Cells, rows grouped by
nearest center with near cells near in memory, only order the work; no answer depends on them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified.sweep import FARTHEST, FLOOR, SweptPanel, SweptRows, nearest_cells, sweep_rows, warm
from kway.kernels.jit import frozen
from kway.memory import BLOCK_BYTES, rows_per_block
from kway.search.certified.sketches import (
    BLOCK,
    CHUNK,
    BoundSketch,
    Panel,
    Shelf,
    SketchCodes,
    Space,
    SweepTally,
    empty_sketch,
)
from kway.search.kmeans import in_cell_order, kmeans_sample, nearest_centres, place_centres
from kway.search.results import Neighbors
from kway.threads import even_spans, pmap, spans


@dataclass(frozen=True)
class CellOrder:
    """Centres with their squared norms (c,), and the rows of each."""

    centres: NDArray[np.float32]
    norms: NDArray[np.float32]
    ids: NDArray[np.int32]
    start: NDArray[np.int64]

    def nearest(self, coarse: NDArray[np.float32], probes: int) -> NDArray[np.int32]:
        """The nearest cells (b, probes) of each row of coarse (b, w)."""
        near = np.empty((len(coarse), probes), np.int32)
        nearest_cells(coarse @ self.centres.T, self.norms, near)
        return near

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.centres.nbytes + self.norms.nbytes + self.ids.nbytes + self.start.nbytes


def make_cells(coarse: NDArray[np.float32], rng: np.random.Generator) -> CellOrder:
    """About sqrt(n) cells of coarse (n, w) by k-means on a sample."""
    n = len(coarse)
    count = max(8, int(n**0.5))
    centres = place_centres(kmeans_sample(coarse, count, rng), count, rng)
    centres = frozen(centres[_tree_order(centres, np.arange(count))])
    norms = frozen(np.einsum("ij,ij->i", centres, centres))
    cell = nearest_centres(coarse, centres).centres
    ids = in_cell_order(cell, count).astype(np.int32)
    start = np.concatenate([[0], np.cumsum(np.bincount(cell, minlength=count))])
    return CellOrder(centres, norms, frozen(ids), frozen(start))


def _tree_order(centres: NDArray[np.float32], which: NDArray[np.int64]) -> NDArray[np.int64]:
    """Centres in the order of a bisection along principal axes, so that neighbours in memory are near in space."""
    if len(which) <= 8:
        return which
    spread = centres[which] - centres[which].mean(axis=0)
    axis = np.linalg.svd(spread, full_matrices=False)[2][0]
    order = which[np.argsort(spread @ axis, kind="stable")]
    half = len(order) // 2
    return np.concatenate([_tree_order(centres, order[:half]), _tree_order(centres, order[half:])])


PANEL = 240  # queries swept together: their codes stay in the L1 cache beside a block of rows (T1, T2)
_PROBES = 2  # cells to warm up in; more did not help (T1)
_SPARE = 3  # rows visited beyond k to warm up (T1)


class Certified:
    """Exact neighbors, with a bound for every row that was not measured. `certify` builds it."""

    def __init__(
        self,
        rows: NDArray,
        space: Space,
        cells: CellOrder,
        codes: SketchCodes,
        sketch: BoundSketch,
        unit: float,
        root: bool,
        why: str,
    ) -> None:
        """sketch: of the rows, fine already in cell order. root: distances are roots of sums."""
        self._space, self._cells, self._codes, self._root = space, cells, codes, root
        self._shelf = Shelf(rows, cells.ids, cells.start, frozen(sketch.fine), unit)
        self._slack, self._coarse_slack = float(sketch.slack.max()), float(sketch.coarse_slack.max())
        self._means = _chunk_means(sketch.coarse, cells.ids)  # (chunks, w)
        self.why = why
        self.touched = float("nan")  # rows a query of the last call whose full distance was computed
        self.marked = float("nan")  # and those that passed the scan of codes

    @property
    def nbytes(self) -> int:
        """Bytes in memory, without the rows."""
        return (
            self._shelf.fine.nbytes + self._cells.nbytes + self._codes.nbytes + self._space.nbytes + self._means.nbytes
        )

    @property
    def way(self) -> int:
        """By which instructions codes are scanned; 0: those of any CPU."""
        return self._codes.way

    def pays(self, k: int) -> bool:
        """Return whether bounds save time for this k; for a large part of all rows they rule out little."""
        return k <= max(20, len(self._shelf.ids) // 50)

    def nearest(self, queries: NDArray, k: int) -> Neighbors:
        """Return ids and distances (q, k) of the k <= n nearest rows of queries (q, d)."""
        queries = frozen(queries)
        best = np.full((len(queries), k), FARTHEST)
        found = np.full((len(queries), k), -1, np.int64)
        tallies = []
        for part in spans(len(queries), rows_per_block(8 * queries.shape[1], BLOCK_BYTES)):
            tallies += self._group(queries[part], best[part], found[part])
        self.marked = sum(tally.marked for tally in tallies) / max(1, len(queries))
        self.touched = sum(tally.visited for tally in tallies) / max(1, len(queries))
        for i in np.flatnonzero(found[:, -1] < 0):  # distances beyond FAR
            best[i], found[i] = self._brute(queries[i], k)
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
            return _answer(self._codes, self._shelf, panel)

        return pmap(work, even_spans(q, PANEL))

    def _sketch(self, queries: NDArray, k: int) -> tuple[BoundSketch, NDArray[np.int32]]:
        """Sketches of the queries, and their nearest cells (q, probes), enough of them to hold about 2 k rows."""
        q, cells = len(queries), len(self._cells.centres)
        probes = min(cells, max(_PROBES, -(-2 * k * cells // len(self._shelf.ids))))
        near = np.empty((q, probes), np.int32)
        out = empty_sketch(q, self._space)

        def work(part: slice) -> None:
            self._space.sketch(queries[part], out.part(part))
            near[part] = self._cells.nearest(out.coarse[part], probes)

        pmap(work, even_spans(q, BLOCK))
        return out, near

    def _brute(self, query: NDArray, k: int) -> tuple[NDArray, NDArray]:
        """Values and ids for one query with all rows, where distances leave the kernels' range."""
        rows = self._shelf.rows
        with np.errstate(over="ignore"):
            gaps = np.abs(rows.astype(np.float64) - query.astype(np.float64))
            values = np.sqrt((gaps * gaps).sum(axis=1)) if self._root else gaps.sum(axis=1)
        ids = np.argsort(values, kind="stable")[:k]
        return values[ids], ids


def _answer(codes: SketchCodes, shelf: Shelf, panel: Panel) -> SweepTally:
    """Exact lists for the panel's queries."""
    members, (words, base, errors) = panel.members, codes.asked(panel.coarse, panel.members)
    warm(
        codes.packed, codes.bias, shelf.ids, shelf.start, shelf.rows, panel.near, members, words, panel.queries,
        panel.keep, panel.best, panel.found, codes.way,
    )  # fmt: skip
    reach = (panel.reach[members] + errors) * (1 + 1e-9)
    tau = np.full(len(words), FLOOR, np.int32)
    index = SweptRows(codes.packed, shelf.fine, shelf.ids, shelf.rows, codes.step, shelf.unit, codes.margin, codes.way)
    swept = SweptPanel(members, words, base, reach, tau, panel.slack, panel.fine, panel.queries, panel.order)
    marked, visited = sweep_rows(index, codes.bias, swept, CHUNK, panel.best, panel.found)
    return SweepTally(marked, visited + len(members) * panel.keep)


def _chunk_means(coarse: NDArray[np.float32], ids: NDArray) -> NDArray[np.float32]:
    """Mean of each chunk of rows in cell order, by one row in eight: it only decides which chunk comes first."""
    return np.array([coarse[ids[part][::8]].mean(axis=0) for part in spans(len(ids), 64 * CHUNK)], np.float32)
