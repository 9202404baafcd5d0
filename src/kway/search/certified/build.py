"""`certify`: the index for certified exact search, or None where it cannot pay."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.certified import tile_l1, tile_l2
from kway.compute.kernels.certified.byte_rows import MOST_COLUMNS
from kway.compute.kernels.certified.ways import best_way
from kway.compute.kernels.jit import frozen
from kway.compute.threads import single_blas
from kway.search.certified.axes import leading_axes, spread_of
from kway.search.certified.cells import make_cells
from kway.search.certified.choose import SAMPLE_ROWS, Probe, SketchChoice, choose_axes, choose_groups, draw_rows, probe
from kway.search.certified.euclidean import EuclideanCodes, euclidean_space
from kway.search.certified.frame import Frame, measure_frame
from kway.search.certified.groups import correlated_groups
from kway.search.certified.manhattan import ManhattanCodes, ManhattanSpace
from kway.search.certified.pipeline import Certified
from kway.search.certified.sketches import SketchCodes, Space, codes_taken, sketch_all
from kway.search.spaces.distances import EUCLIDEAN, MANHATTAN, Distance

LEAST_ROWS = 1024
LEAST_COLUMNS = 8
WORDS_L2 = {tile_l2.VNNI: 52e9, tile_l2.PAIRS: 30e9, tile_l2.FLOATS: 17e9}  # words of four codes a second and thread
WORDS_L1 = {tile_l1.L1_WIDE: 20e9, tile_l1.L1_SHORT: 10e9, tile_l1.L1_ORDINARY: 5e9}  # words of eight codes
AXES = (128, 256, 512)  # how many are looked at; the next where the choice is the end


def certify(rows: NDArray, distance: Distance, n_jobs: int | None = None, seed: int = 0) -> Certified | None:
    """Index for rows (n, d), C-contiguous float32 or float64, kept by reference; None where plain blocks do as well."""
    if len(rows) < LEAST_ROWS or not LEAST_COLUMNS <= rows.shape[1] <= MOST_COLUMNS:
        return None
    return build(frozen(rows), distance, n_jobs, seed, always=False)


class Job(NamedTuple):
    """Rows to index, the frame, and a sample of the rows as they are and in the frame."""

    rows: NDArray
    frame: Frame
    sample: NDArray
    seen: Probe
    rng: np.random.Generator
    n_jobs: int | None
    always: bool


def build(rows: NDArray, distance: Distance, n_jobs: int | None, seed: int, always: bool) -> Certified | None:
    """The index; `always` builds it even where it does not pay (None only for rows without any spread)."""
    rng = np.random.default_rng(seed)
    drawn = draw_rows(len(rows), rng)
    sample = rows[np.sort(drawn.others[:SAMPLE_ROWS])]
    frame = measure_frame(sample)
    if frame is None:
        return None
    with single_blas():
        seen = probe(rows, frame.place(sample).values, drawn, frame, distance, n_jobs)
        return _BUILDERS[distance](Job(rows, frame, sample, seen, rng, n_jobs, always))


def _euclidean(job: Job) -> Certified | None:
    way = best_way(tile_l2.L2_WAYS)
    axes, choice = _axes(job, WORDS_L2[way])
    if not (choice.pays or job.always):
        return None
    axes = np.ascontiguousarray(axes[:, : choice.few])
    space = euclidean_space(job.frame, axes, job.sample[:512], job.rng)
    n, d = job.rows.shape
    why = f"certified: {choice.few} of {d} dimensions scanned, about {choice.survivors:.0f} of {n} rows survive"
    return _index(job, space, EuclideanCodes.of, way, True, why)


def _axes(job: Job, scan_rate: float) -> tuple[NDArray[np.float32], SketchChoice]:
    """Axes, more than are wanted, and the choice of how many."""
    d = job.rows.shape[1]
    spread = spread_of(job.seen.values, job.n_jobs)
    found = leading_axes(spread, d, AXES[0], job.rng)
    for count in AXES:
        if found.shape[1] < min(d, count):
            found = leading_axes(spread, d, count, job.rng)
        axes = np.ascontiguousarray(found[:, :count])
        choice = choose_axes(job.seen, axes, scan_rate, tile_l2.MOST_DIMS, job.n_jobs)
        if axes.shape[1] == d or choice.few < count - 1:
            break
    return axes, choice


def _manhattan(job: Job) -> Certified | None:
    way = best_way(tile_l1.L1_WAYS)
    n, d = job.rows.shape
    levels, values = 4 if d >= 64 else 2, job.seen.values
    left, right = (values[job.rng.choice(len(values), 2000)] for _ in range(2))
    groups = correlated_groups(left - right, levels)
    sizes = [2**level for level in range(levels + 1)]
    choice = choose_groups(job.seen, groups, sizes, WORDS_L1[way], tile_l1.L1_MOST_DIMS)
    if choice is None or not (choice.pays or job.always):
        return None
    why = f"certified: sums of {choice.few} of {d} features scanned, about {choice.survivors:.0f} of {n} rows survive"
    return _index(job, ManhattanSpace(job.frame, groups, choice.few), ManhattanCodes.of, way, False, why)


def _index(job: Job, space: Space, codes_of: Callable[..., SketchCodes], way: int, root: bool, why: str) -> Certified:
    """Every row sketched, put into cell order and coded."""
    sketch = sketch_all(job.rows, space, job.n_jobs)
    cells = make_cells(sketch.coarse, job.rng, job.n_jobs)
    codes = codes_of(sketch.coarse, cells, space, way, job.n_jobs)
    fine = codes_taken(sketch.fine, cells.ids, job.n_jobs)
    return Certified(job.rows, space, cells, codes, sketch._replace(fine=fine), job.frame.unit, root, why)


_BUILDERS: dict[Distance, Callable[[Job], Certified | None]] = {EUCLIDEAN: _euclidean, MANHATTAN: _manhattan}
