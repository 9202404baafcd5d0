"""`certify` builds the bounds of an exact search, or returns None if they do not save time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified import tiles
from kway.kernels.certified.sketch import MAX_COLUMNS
from kway.kernels.certified.tiles import best_variant
from kway.kernels.jit import frozen
from kway.rows.blocks import SAMPLE_ROWS
from kway.search.certified.choose import (
    Probe,
    choose_axes,
    choose_groups,
    draw_rows,
    probe,
)
from kway.search.certified.euclidean import EuclideanCodes, EuclideanSpace, euclidean_space
from kway.search.certified.manhattan import ManhattanCodes, ManhattanSpace, correlated_groups
from kway.search.certified.pipeline import Certified, make_cells
from kway.search.certified.sketches import Frame, SketchCodes, codes_taken, measure_frame, sketch_all
from kway.search.distances import EUCLIDEAN, MANHATTAN, Distance
from kway.search.principal_axes import leading_axes
from kway.threads import single_blas

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
    if rows.shape[1] > MAX_COLUMNS or (len(rows) < MIN_ROWS and not always):
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
    variant, most = best_variant(tiles.L2_VARIANTS), min(job.rows.shape[1], tiles.MAX_DIMS)
    count = 0
    while True:  # until there are more axes than the choice needs
        count = min(most, max(FIRST_AXES, 2 * count))
        axes = leading_axes(job.seen.values, count, job.rng)
        choice = choose_axes(job.seen, axes, tiles.L2_VARIANTS[variant].words_per_second, tiles.MAX_DIMS)
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
    choice = choose_groups(job.seen, groups, sizes, tiles.L1_VARIANTS[variant].words_per_second, tiles.L1_MAX_DIMS)
    if choice is None or not (choice.pays or job.always):
        return None
    why = f"certified: sums of {choice.few} of {d} features scanned, about {choice.survivors:.0f} of {n} rows survive"
    return _index(job, ManhattanSpace(job.frame, groups, choice.few), ManhattanCodes.encode, variant, why)


def _index(
    job: Job, space: EuclideanSpace | ManhattanSpace, codes_of: Callable[..., SketchCodes], variant: int, why: str
) -> Certified:
    """Sketch every row, sort the rows by cell, and encode them."""
    sketch = sketch_all(job.rows, space)
    cells = make_cells(sketch.coarse, job.rng)
    codes = codes_of(sketch.coarse, cells, space, variant)
    fine = codes_taken(sketch.fine, cells.ids)
    return Certified(job.rows, space, cells, codes, sketch._replace(fine=fine), job.frame.unit, why)


_BUILDERS: dict[Distance, Callable[[Job], Certified | None]] = {EUCLIDEAN: _euclidean, MANHATTAN: _manhattan}
