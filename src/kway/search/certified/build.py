"""`certify`: the index for certified exact search, or None where it cannot pay."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels import tile_l1, tile_l2
from kway.compute.kernels.jit import frozen
from kway.compute.kernels.lanes import portable_asked
from kway.compute.threads import single_blas
from kway.search.certified.axes import principal_axes
from kway.search.certified.cells import Cells, make_cells
from kway.search.certified.choose import choose_axes, choose_groups, probe
from kway.search.certified.euclidean import EuclideanCodes, euclidean_space
from kway.search.certified.frame import Frame, measure
from kway.search.certified.groups import correlated_groups
from kway.search.certified.manhattan import ManhattanCodes, ManhattanSpace
from kway.search.certified.pipeline import Certified
from kway.search.certified.sketches import Sketch, Space, sketch_all, taken

LEAST_ROWS = 1024
LEAST_COLUMNS = 8
WORDS_L2 = {True: 52e9, False: 17e9}  # words of four codes a second and thread: with VNNI, without
WORDS_L1 = {True: 20e9, False: 5e9}  # words of eight codes, with byte differences or without
SAMPLE = 15000  # rows that axes and the frame are found from


def certify(rows: NDArray, distance: str, n_jobs: int | None = None, seed: int = 0) -> Certified | None:
    """Index for rows (n, d), C-contiguous float32 or float64, kept by reference; None where plain blocks do as well."""
    if len(rows) < LEAST_ROWS or rows.shape[1] < LEAST_COLUMNS:
        return None
    return build(frozen(rows), distance, n_jobs, seed, always=False)


def build(rows: NDArray, distance: str, n_jobs: int | None, seed: int, always: bool) -> Certified | None:
    """The index; `always` builds it even where it does not pay (None only for rows without any spread)."""
    rng = np.random.default_rng(seed)
    sample = rows[np.sort(rng.choice(len(rows), min(len(rows), SAMPLE), replace=False))]
    frame = measure(sample)
    if frame is None:
        return None
    recipe = _euclidean if distance == "euclidean" else _manhattan
    with single_blas():
        return recipe(rows, sample, frame, rng, n_jobs, always)


def _euclidean(
    rows: NDArray, sample: NDArray, frame: Frame, rng: np.random.Generator, n_jobs: int | None, always: bool
) -> Certified | None:
    fast = tile_l2.vnni() and not portable_asked()
    axes = principal_axes(frame.place(sample).values, rng, n_jobs)
    seen = probe(rows, frame, "euclidean", rng, n_jobs)
    choice = choose_axes(seen, axes, WORDS_L2[fast], tile_l2.MOST_DIMS, n_jobs)
    if not (choice.pays or always):
        return None
    axes = np.ascontiguousarray(axes[:, : choice.most])
    space = euclidean_space(frame, axes, choice.few, choice.some, sample[:4096], rng)
    sketch, cells = _sketch_and_cells(rows, space, rng, n_jobs)
    codes = EuclideanCodes.of(sketch.coarse, cells, space)
    why = (
        f"certified: {choice.few} of {rows.shape[1]} dimensions scanned, about {choice.survivors:.0f} of {len(rows)} "
        f"rows survive" + (f", {choice.some} and {choice.most} dimensions for these" if choice.some else "")
    )
    return Certified(rows, space, cells, codes, _in_cell_order(sketch, cells, n_jobs), frame.unit, True, fast, why)


def _manhattan(
    rows: NDArray, sample: NDArray, frame: Frame, rng: np.random.Generator, n_jobs: int | None, always: bool
) -> Certified | None:
    fast = tile_l1.byte_differences() and not portable_asked()
    levels = 4 if rows.shape[1] >= 64 else 2
    left, right = (frame.place(sample[rng.choice(len(sample), 2000)]).values for _ in range(2))
    groups = correlated_groups(left - right, levels)
    seen, sizes = probe(rows, frame, "manhattan", rng, n_jobs), [2**level for level in range(levels + 1)]
    choice = choose_groups(seen, groups, sizes, WORDS_L1[fast], tile_l1.MOST_DIMS)
    if choice is None or not (choice.pays or always):
        return None
    space = ManhattanSpace(frame, groups, choice.few)
    sketch, cells = _sketch_and_cells(rows, space, rng, n_jobs)
    codes = ManhattanCodes.of(sketch.coarse, cells, space)
    why = (
        f"certified: sums of {choice.few} of {rows.shape[1]} features scanned, about {choice.survivors:.0f} of "
        f"{len(rows)} rows survive"
    )
    return Certified(rows, space, cells, codes, _in_cell_order(sketch, cells, n_jobs), frame.unit, False, fast, why)


def _sketch_and_cells(
    rows: NDArray, space: Space, rng: np.random.Generator, n_jobs: int | None
) -> tuple[Sketch, Cells]:
    sketch = sketch_all(rows, space, n_jobs)
    return sketch, make_cells(sketch.coarse, rng, n_jobs)


def _in_cell_order(sketch: Sketch, cells: Cells, n_jobs: int | None) -> Sketch:
    return sketch._replace(fine=taken(sketch.fine, cells.ids, n_jobs))
