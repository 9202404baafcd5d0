"""`certify` builds the bounds of an exact search, or returns None if they do not save time.

Cosine is searched through unit vectors: ||u - v||^2 = 2 (1 - cos), so the order is the same.

The unit rows are rounded to float32, so results are confirmed on the rows as given (block_scan.py). A zero row stays at
the origin. It is then nearer to every query than its cosine distance of 1, so it is never missed. For a zero query the
bounds prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified import tiles
from kway.kernels.certified.sketch import MOST_COLUMNS
from kway.kernels.certified.tiles import best_variant
from kway.kernels.jit import frozen
from kway.rows.blocks import SAMPLE_ROWS
from kway.search.block_scan import EXTRA, BlockScan, confirm
from kway.search.certified.choose import (
    Probe,
    choose_axes,
    choose_groups,
    draw_rows,
    leading_axes,
    probe,
)
from kway.search.certified.euclidean import EuclideanCodes, euclidean_space
from kway.search.certified.manhattan import ManhattanCodes, ManhattanSpace, correlated_groups
from kway.search.certified.pipeline import Certified, make_cells
from kway.search.certified.sketches import ROUNDING, Frame, SketchCodes, Space, codes_taken, measure_frame, sketch_all
from kway.search.distances import COSINE, EUCLIDEAN, MANHATTAN, Distance
from kway.search.results import Neighbors
from kway.threads import pmap, single_blas, spans

MIN_ROWS = 1024  # below this a plain scan is as fast (T1b)
FIRST_AXES = 128  # axes that are computed first; their number doubles if the choice needs all of them (T1, T1f)


class Job(NamedTuple):
    """The rows, the frame, and a sample of the rows before and after scaling."""

    rows: NDArray
    frame: Frame
    sample: NDArray
    seen: Probe
    rng: np.random.Generator
    always: bool


def certify(rows: NDArray, distance: Distance, seed: int = 0, always: bool = False) -> Certified | None:
    """Return bounds for rows (n, d), C-contiguous float32 or float64, or None if a plain scan is as fast.

    The rows are not copied. `always` builds bounds even if they save no time (None only for rows without spread).
    """
    if rows.shape[1] > MOST_COLUMNS or (len(rows) < MIN_ROWS and not always):
        return None
    rows = frozen(rows)
    rng = np.random.default_rng(seed)
    drawn = draw_rows(len(rows), rng)
    sample = rows[np.sort(drawn.others[:SAMPLE_ROWS])]
    frame = measure_frame(sample)
    if frame is None:
        return None
    with single_blas():
        seen = probe(rows, frame.place(sample).values, drawn, frame, distance)
        return _BUILDERS[distance](Job(rows, frame, sample, seen, rng, always))


def _euclidean(job: Job) -> Certified | None:
    variant, most = best_variant(tiles.L2_VARIANTS), min(job.rows.shape[1], tiles.MOST_DIMS)
    count = 0
    while True:  # until there are more axes than the choice needs
        count = min(most, max(FIRST_AXES, 2 * count))
        axes = leading_axes(job.seen.values, count, job.rng)
        choice = choose_axes(job.seen, axes, tiles.L2_VARIANTS[variant].words_per_second, tiles.MOST_DIMS)
        if count == most or choice.few < count - 1:
            break
    if not (choice.pays or job.always):
        return None
    axes = np.ascontiguousarray(axes[:, : choice.few])
    space = euclidean_space(job.frame, axes, job.sample[:512], job.rng)
    n, d = job.rows.shape
    why = f"certified: {choice.few} of {d} dimensions scanned, about {choice.survivors:.0f} of {n} rows survive"
    return _index(job, space, EuclideanCodes.encode, variant, why)


def _manhattan(job: Job) -> Certified | None:
    variant = best_variant(tiles.L1_VARIANTS)
    n, d = job.rows.shape
    levels, values = 4 if d >= 64 else 2, job.seen.values
    left, right = (values[job.rng.choice(len(values), 2000)] for _ in range(2))
    groups = correlated_groups(left - right, levels)
    sizes = [2**level for level in range(levels + 1)]
    choice = choose_groups(job.seen, groups, sizes, tiles.L1_VARIANTS[variant].words_per_second, tiles.L1_MOST_DIMS)
    if choice is None or not (choice.pays or job.always):
        return None
    why = f"certified: sums of {choice.few} of {d} features scanned, about {choice.survivors:.0f} of {n} rows survive"
    return _index(job, ManhattanSpace(job.frame, groups, choice.few), ManhattanCodes.encode, variant, why)


def _index(job: Job, space: Space, codes_of: Callable[..., SketchCodes], variant: int, why: str) -> Certified:
    """Sketch every row, sort the rows by cell, and encode them."""
    sketch = sketch_all(job.rows, space)
    cells = make_cells(sketch.coarse, job.rng)
    codes = codes_of(sketch.coarse, cells, space, variant)
    fine = codes_taken(sketch.fine, cells.ids)
    return Certified(job.rows, space, cells, codes, sketch._replace(fine=fine), job.frame.unit, why)


_BUILDERS: dict[Distance, Callable[[Job], Certified | None]] = {EUCLIDEAN: _euclidean, MANHATTAN: _manhattan}


_ROUNDING = 8 * ROUNDING  # bounds the distance of two rounded unit vectors from the exact ones


@dataclass
class Angles:
    """A certified search over the unit vectors of a segment's rows."""

    segment: BlockScan
    certified: Any
    touched: float = float("nan")

    @staticmethod
    def over(segment: BlockScan) -> Angles | None:
        """Return the search, or None if bounds would not save time."""
        certified = certify(_units(segment.rows), EUCLIDEAN)
        return None if certified is None else Angles(segment, certified)

    @property
    def why(self) -> str:
        """Description of the choice."""
        return f"cosine through unit vectors; {self.certified.why}"

    @property
    def nbytes(self) -> int:
        """Bytes in memory, without the rows."""
        return int(self.certified.nbytes)

    def pays(self, k: int) -> bool:
        """Return whether this is faster than a plain scan for k neighbors."""
        return bool(self.certified.pays(k + EXTRA))

    def nearest(self, queries: NDArray, k: int) -> Neighbors:
        """Return the k nearest by cosine distance; ids are those of brute force in float64."""
        found = self.certified.nearest(_units(queries), min(len(self.segment.rows), k + EXTRA))
        confirmed = confirm(self.segment, queries, Neighbors(*found), k, _ROUNDING)
        self.touched = float(self.certified.touched) + confirmed.measured / len(queries)
        return confirmed.neighbors


def _units(rows: NDArray) -> NDArray[np.float32]:
    """Return rows (n, d) scaled to length 1."""
    units = np.empty(rows.shape, dtype=np.float32)

    def work(part: slice) -> None:
        units[part] = COSINE.place(rows[part].astype(np.float64))

    pmap(work, spans(len(rows), max(64, 2**18 // rows.shape[1])))
    return units
