"""Landmarks: approximate search by vector quantisation.

k-means places landmarks, each row belongs to its nearest one (its cell), and a search looks only into the cells whose
landmarks are nearest to the query: `probes` of them. Queries are grouped by cell, so each cell is one matrix product
for all queries that look into it; sketches (sketch.py) rule out most of its rows before any is measured.

Distances of what is found are exact (float64); what may be missed is a neighbour in a cell that was not probed. A
search that saw fewer than k rows probes more cells before it gives up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kway.compute.kernels.cells import cell_radii, search_cells
from kway.compute.kernels.distances import CODES, KEY
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.topk import EMPTY, offer, settle
from kway.compute.threads import pmap, shares, spans, workers
from kway.errors import CombinationError, InputError
from kway.search.blocks import Heaps, empty_heaps, rounding, sphere, unit
from kway.search.ids import Ids
from kway.search.index import Neighbors
from kway.search.kmeans import assign, kmeans
from kway.search.live import LiveIndex, Recipe, joined, without
from kway.search.metrics import Metric
from kway.search.pairs import Groups, by_cell, one_by_one, too_far
from kway.search.sketch import Sketch, Sketched, learn, sample
from kway.search.stores.int8 import Coded, Int8, coded, coded_from

PROBES = 24  # until tuned: a recall near 0.996 on images with 2 sqrt(n) cells
GROWN = 2.0  # times the rows it was trained on, after which the landmarks are placed anew
FEW = 8  # queries answered without the pool
ORDERED = 2**22  # cells that are ordered together: 48 MB
TILE = 2**17  # products of one group: 512 kB


@dataclass(frozen=True)
class Landmarks(Recipe):
    """Cells around k-means landmarks; "auto": 2 sqrt(n) landmarks and 24 probes until tuned."""

    n_landmarks: int | str = "auto"
    probes: int | str = "auto"
    seed: int = 0
    store: Int8 | None = None
    verbose: bool = False

    name = "landmarks"
    bases = ("euclidean", "cosine", "dot", "manhattan", "haversine")
    exact = False

    def __post_init__(self) -> None:
        for name in ("n_landmarks", "probes"):
            value = getattr(self, name)
            if value != "auto" and not (isinstance(value, int) and value >= 1):
                raise InputError(f"{name} must be 'auto' or a whole number of at least 1, got {value!r}")

    def check(self, metric: Metric, sparse: bool = False) -> None:
        """Refuse what cannot be searched: codes have no sketch under manhattan, and no meaning as places on earth."""
        super().check(metric, sparse)
        if self.store is not None and metric.base in ("manhattan", "haversine"):
            raise CombinationError(
                f"Landmarks(store=Int8()) cannot search {metric.name!r}, whose scan reads the full rows; use store=None"
            )

    def _live(self, rows: Any, metric: Metric, ids: Ids) -> LandmarksIndex:
        return LandmarksIndex(self, metric, ids, rows)

    def _revive(
        self, rows: Any, metric: Metric, ids: Ids, facts: dict[str, Any], arrays: dict[str, NDArray]
    ) -> LandmarksIndex:
        kept = coded_from(arrays) if "codes" in arrays else rows
        index = LandmarksIndex(self, metric, ids, kept, arrays=arrays, length=facts["length"], trained=facts["trained"])
        index.probes = facts["probes"]
        return index


class Probed(NamedTuple):
    """What a search with some number of probes found, and how many rows it measured a query (the mean)."""

    found: Neighbors
    touched: float


class LandmarksIndex(LiveIndex):
    """Live cells. `probes` may be set at any time."""

    recipe: Landmarks

    def __init__(
        self,
        recipe: Landmarks,
        metric: Metric,
        ids: Ids,
        rows: Any,
        arrays: dict[str, NDArray] | None = None,
        length: int = 0,
        trained: int = 0,
    ) -> None:
        super().__init__(recipe, metric, ids, rows.shape[1])
        if arrays is None:
            self._train(rows)
        else:
            self._sketch = Sketch(np.asarray(arrays["mean"]), frozen(arrays["basis"]), length)
            self._landmarks, self._trained = frozen(arrays["landmarks"]), trained
            self._arrange(rows, np.asarray(arrays["cells"]))
        self.probes: int = min(self.n_landmarks, PROBES if recipe.probes == "auto" else int(recipe.probes))

    @property
    def n_landmarks(self) -> int:
        """Number of cells."""
        return len(self._landmarks)

    @property
    def nbytes(self) -> int:
        """Bytes held, rows included."""
        arrays = (self._rows, self._short, self._long, self._half, self._names, self._offsets, self._landmarks)
        return int(sum(array.nbytes for array in arrays))

    @property
    def rows(self) -> Any:
        """The rows (n_rows, d) in the order of their positions."""
        back = np.argsort(self._names, kind="stable")
        return self._rows.take(back) if isinstance(self._rows, Coded) else self._rows[back]

    @property
    def measures_rows(self) -> bool:
        """Whether distances are those of the rows as they came, and not of their codes."""
        return not isinstance(self._rows, Coded)

    @property
    def cells_(self) -> NDArray[np.int64]:
        """The cell (n_rows,) of each row, in the order of their positions."""
        cells = np.empty(self.n_rows, dtype=np.int64)
        cells[self._names] = np.repeat(np.arange(self.n_landmarks), np.diff(self._offsets))
        return cells

    @property
    def landmarks_(self) -> NDArray[np.float64]:
        """The landmarks (n_landmarks, d) among the rows (unit rows for cosine, points on the sphere for haversine)."""
        basis = self._sketch.basis[:, : self._sketch.length]
        return self._sketch.mean + (self._landmarks @ basis.T if basis.shape[1] else self._landmarks)

    def _train(self, rows: NDArray) -> None:
        """Learn the sketch, place the landmarks, and give each row to its nearest."""
        recipe, n = self.recipe, len(rows)
        self._sketch = learn(self._space(sample(rows, recipe.seed)), self.metric.base != "dot", recipe.seed)
        sketched = self._sketched(rows)
        points = sketched.short[:, :-1]  # (n, m): landmarks live among the leading coordinates
        wanted = round(2.0 * n**0.5) if recipe.n_landmarks == "auto" else int(recipe.n_landmarks)
        found = kmeans(np.ascontiguousarray(points), min(n, max(1, wanted)), seed=recipe.seed, verbose=recipe.verbose)
        self._landmarks, self._trained = frozen(found.landmarks), n
        only_codes = recipe.store is not None and not recipe.store.rerank
        if only_codes:  # sketched again as they are kept
            self._arrange(coded(rows), found.nearest)
        else:
            self._arrange(rows, found.nearest, sketched)

    def _arrange(self, rows: Any, cells: NDArray, sketched: Sketched | None = None) -> None:
        """Order everything by cell: rows, their positions (`_names`), sketches, half squares."""
        order = np.argsort(cells, kind="stable")
        self._rows: Any  # (n, d) or Coded
        self._radii: NDArray | None  # (c,) from a landmark to its farthest row, where that bounds distances
        self._names = frozen(order.astype(np.int64))
        self._offsets = frozen(np.concatenate([[0], np.cumsum(np.bincount(cells, minlength=self.n_landmarks))]))
        self._rows = rows.take(order) if isinstance(rows, Coded) else frozen(_gathered(rows, order))
        base = self.metric.base
        if base == "manhattan":  # the scan is the distance itself
            moved = self._rows if rows.dtype == np.float32 else (self._rows - self._sketch.mean).astype(np.float32)
            self._short, self._long = frozen(moved), frozen(np.empty((len(moved), 0), dtype=np.float32))
            self._half, self._reach, self._radii = frozen(np.zeros(len(moved), dtype=np.float32)), 0.0, None
        else:
            ready = self._sketched(rows) if sketched is None else sketched
            self._short, self._long = frozen(_gathered(ready.short, order)), frozen(_gathered(ready.long, order))
            norms = ready.norms[order]
            half = np.zeros_like(norms) if base == "dot" else 0.5 * norms**2
            self._half, self._reach = frozen(half.astype(np.float32)), float(norms.max(initial=0.0))
            self._radii = None if base == "dot" else cell_radii(self._short, self._landmarks, self._offsets)
        codes = isinstance(self._rows, Coded)
        none = np.empty(0, dtype=np.float32)
        steps, centre = (self._rows.scale, self._rows.centre) if codes else (none, none)
        self._kept = (frozen(self._rows.codes if codes else self._rows), frozen(steps), frozen(centre))
        self._largest = max(1, int(np.diff(self._offsets).max()))
        self._slack = rounding(self._short.shape[1], np.float32) + 1e-5  # the rotation rounds too
        self._code = CODES[base]
        self._landmark_keys = self._keys_of_landmarks()
        n = self.n_rows
        self.why_ = (
            f"{self.n_landmarks} landmarks over {n:,} rows: approximate, looks into the cells nearest to each query"
        )

    def _keys_of_landmarks(self) -> tuple[NDArray, NDArray, NDArray]:
        """Scale, offset and names (c,) with which products become keys of landmarks."""
        landmarks = self._landmarks
        half = 0.5 * np.einsum("ij,ij->i", landmarks, landmarks)
        offset = np.zeros_like(half) if self.metric.base == "dot" else half
        return frozen(np.full_like(half, -1)), frozen(offset), np.arange(len(landmarks))

    def _space(self, rows: Any) -> NDArray:
        """Rows where Euclidean distance grows with the metric."""
        if self.metric.base == "cosine":
            return unit(rows.astype(np.float64))
        return sphere(rows) if self.metric.base == "haversine" else rows

    def _sketched(self, rows: Any) -> Sketched:
        """Sketches of many rows, converted a part at a time."""
        parts = spans(len(rows), max(64, 2**20 // rows.shape[1])) or [slice(0, 0)]
        done = pmap(lambda part: self._sketch.of(self._space(rows[part])), parts)
        return Sketched(*(np.concatenate(columns) for columns in zip(*done)))

    def _nearest(self, queries: NDArray, k: int, n_jobs: int | None, probes: int | None) -> Neighbors:
        wanted = max(1, min(self.probes if probes is None else int(probes), self.n_landmarks))
        heaps = empty_heaps(len(queries), k)
        if len(queries) <= FEW:
            measured = self._search(queries, heaps, wanted)
        else:
            blocks = spans(len(queries), self._block(len(queries), n_jobs))
            measured = sum(pmap(lambda b: self._search(queries[b], heaps.part(b), wanted), blocks, n_jobs))
        self._touched = measured / len(queries)
        return heaps.neighbors()

    def nearest_by_probes(
        self, queries: ArrayLike, k: int, steps: Sequence[int], n_jobs: int | None = None
    ) -> list[Probed]:
        """What `nearest` finds with each of `steps` probes (ascending), from one search; all cells: the exact answer.

        A step looks only into the cells that the steps before it have not seen, so all together cost what the last
        one alone would.
        """
        checked = self._queries(queries)
        q, ask = len(checked), self._asked(checked, k)
        kept = [empty_heaps(q, ask) for _ in steps]
        blocks = spans(q, min(self._block(q, n_jobs), max(64, ORDERED // self.n_landmarks)))
        work = pmap(lambda b: self._widen(checked[b], [heaps.part(b) for heaps in kept], steps), blocks, n_jobs)
        probed = []
        for step, heaps, touched in zip(steps, kept, np.sum(work, axis=0) / q):
            found = heaps.neighbors()
            short = np.flatnonzero(found.ids[:, -1] < 0)
            if len(short):  # these would have looked further
                found.ids[short], found.distances[short] = self._nearest(checked[short], ask, n_jobs, step)
            probed.append(Probed(self._named(checked, found, k, n_jobs, step), float(touched)))
        return probed

    def _widen(self, queries: NDArray, kept: list[Heaps], steps: Sequence[int]) -> list[int]:
        """Look into more and more cells and keep the heaps of every step; rows measured up to each."""
        exact = frozen(queries.astype(np.float64))
        sketched = self._sketch.of(self._space(exact))
        keys = self._landmark_keys[1] - sketched.short[:, :-1] @ self._landmarks.T  # (q, c)
        cells = np.argsort(keys, axis=1, kind="stable")
        keys = np.take_along_axis(keys, cells, axis=1)
        heaps, measured = empty_heaps(len(queries), kept[0].ids.shape[1]), 0
        done, touched = 0, []
        for step, copy in zip(steps, kept):
            ring = slice(done, step)
            measured += self._look(exact, sketched, heaps, self._groups(cells[:, ring], keys[:, ring], sketched, heaps))
            copy.distances[:], copy.ids[:] = heaps
            touched.append(measured)
            done = step
        return touched

    def _block(self, q: int, n_jobs: int | None) -> int:
        """Queries searched together."""
        return min(4096, max(256, 2**24 // (8 * self.n_features)), -(-q // workers(n_jobs)))

    def _search(self, queries: NDArray, heaps: Heaps, probes: int) -> int:
        """A block of queries; those that saw fewer than k rows probe four times as many cells."""
        exact = frozen(queries.astype(np.float64))
        sketched = self._sketch.of(self._space(exact))
        keys, cells = self._probe(sketched, probes)  # (q, probes), nearest first
        if len(queries) <= FEW:
            measured = self._look(exact, sketched, heaps, one_by_one(cells))
        else:  # the nearest cell first: it makes the k-th distance small, and the filters sharp
            measured = self._look(exact, sketched, heaps, by_cell(cells[:, :1], self.n_landmarks))
            others = self._groups(cells[:, 1:], keys[:, 1:], sketched, heaps)
            measured += self._look(exact, sketched, heaps, others)
        short = heaps.distances[:, 0] >= EMPTY
        if probes < self.n_landmarks and short.any():
            where = np.flatnonzero(short)
            again = empty_heaps(len(where), heaps.ids.shape[1])
            measured += self._search(queries[where], again, min(4 * probes, self.n_landmarks))
            heaps.distances[where], heaps.ids[where] = again
        return measured

    def _groups(self, cells: NDArray[np.int64], keys: NDArray, sketched: Sketched, heaps: Heaps) -> Groups:
        """The queries of each of their cells (q, p), keys (q, p), but for cells that hold nothing near enough."""
        if self._radii is None:
            return by_cell(cells, self.n_landmarks)
        lead = sketched.short[:, :-1]
        gaps = 2.0 * keys + np.einsum("ij,ij->i", lead, lead)[:, None]  # (q, p) squared, to the landmarks
        blur = 1e-5 * (sketched.norms + self._reach) ** 2
        far = too_far(gaps, self._radii[cells], heaps.distances[:, 0], blur, self.metric.base)
        return by_cell(np.where(far, self.n_landmarks, cells), self.n_landmarks)

    def _probe(self, sketched: Sketched, probes: int) -> Heaps:
        """Keys and names (q, probes) of the nearest cells of each query, nearest first."""
        q = len(sketched.short)
        products = sketched.short[:, :-1] @ self._landmarks.T  # (q, c)
        scale, offset, names = self._landmark_keys
        heaps = empty_heaps(q, probes)
        nothing, still = _NOTHING[:q], _STILL[:q]
        if q > len(_NOTHING):
            nothing, still = frozen(np.empty((q, 0))), np.zeros(q)
        offer(KEY, products, scale, offset, nothing, nothing, names, np.arange(q), still, 0.0, 0.0, 0.0, *heaps)
        settle(*heaps)
        return heaps

    def _look(self, exact: NDArray, sketched: Sketched, heaps: Heaps, groups: Groups) -> int:
        """Offer the rows of cells to groups of queries; rows measured in full."""
        starts, cells, pairs = groups
        if not len(pairs):
            return 0
        short = sketched.short
        if self.metric.base == "manhattan":
            moved = exact if self._rows.dtype == np.float32 else exact - self._sketch.mean
            short = moved.astype(np.float32)
        room = self._largest if len(pairs) <= FEW * PROBES else max(TILE, self._largest)
        tile = np.empty(room, dtype=np.float32)
        return int(
            search_cells(
                self._code, starts, cells, pairs, short, sketched.long, exact, sketched.norms, self._short, self._long,
                self._half, *self._kept, self._names, self._offsets, self._reach, self._slack, tile, *heaps,
            )
        )  # fmt: skip

    def _append(self, rows: NDArray) -> None:
        earlier = self.rows
        if self.n_rows > GROWN * self._trained:
            self._train(joined(earlier[:] if isinstance(earlier, Coded) else earlier, rows))
            return
        cells = assign(np.ascontiguousarray(self._sketched(rows).short[:, :-1]), self._landmarks)
        old = np.repeat(np.arange(self.n_landmarks), np.diff(self._offsets))[np.argsort(self._names, kind="stable")]
        if isinstance(earlier, Coded):
            both: Any = earlier.append(coded(rows, earlier.centre))
        else:
            both = joined(earlier, rows)
        self._arrange(both, np.concatenate([old, cells]))

    def _drop(self, positions: NDArray[np.int64]) -> None:
        left = np.delete(np.arange(self.n_rows), positions)
        rows = self.rows
        kept = rows.take(left) if isinstance(rows, Coded) else without(rows, positions)
        self._arrange(kept, self.cells_[left])

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        rows = self.rows
        arrays = rows.arrays() if isinstance(rows, Coded) else {"rows": rows}
        arrays |= {"cells": self.cells_, "landmarks": self._landmarks}
        arrays |= {"mean": self._sketch.mean, "basis": self._sketch.basis}
        return {"length": self._sketch.length, "trained": self._trained, "probes": self.probes}, arrays


_NOTHING = frozen(np.empty((FEW, 0)))
_STILL = np.zeros(FEW)


def _gathered(rows: NDArray, order: NDArray) -> NDArray:
    """rows[order], on all cores."""
    out = np.empty(rows.shape, dtype=rows.dtype)

    def work(part: slice) -> None:
        np.take(rows, order[part], axis=0, out=out[part], mode="clip")  # "clip" writes straight into out

    pmap(work, shares(len(order), least=1024))
    return out
