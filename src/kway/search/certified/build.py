"""`certify` builds the bounds of an exact search, or returns None if they do not save time.

The bounds hold for any axes and groups; how many numbers a sketch has decides the time of a search. Some rows serve as
queries, with the distance of their k-th neighbor. On a sample of the other rows, the survivors of each bound are
counted. Time per query = words scanned + survivors examined + rows measured + the sketch of the query and of one row
(as many queries as rows are expected). Unless this is less than a comparison with all rows takes, no bounds are
built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified import tiles
from kway.kernels.certified.sketch import MAX_COLUMNS, nearness_l1, signed_sums, survivors, tail_norms
from kway.kernels.certified.tiles import best_variant
from kway.kernels.jit import frozen
from kway.rows.blocks import SAMPLE_ROWS
from kway.search.block_scan import BlockScan, unit_rows
from kway.search.certified.bounded_scan import BoundedScan, make_cells
from kway.search.certified.sketches import (
    FeatureGroups,
    Frame,
    ManhattanSpace,
    Space,
    codes_taken,
    correlated_groups,
    euclidean_space,
    measure_frame,
    sketch_all,
)
from kway.search.principal_axes import leading_axes, pooled_product
from kway.threads import pmap, shares, single_blas, spans

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


class ChosenSpace(NamedTuple):
    """What computes the sketches, the instructions that scan their codes, and a sentence about the choice."""

    space: Space
    variant: int
    why: str


def certify(scan: BlockScan, seed: int = 0, always: bool = False) -> BoundedScan | None:
    """Return a scan with bounds for dense rows (n, d), float32 or float64, or None if a plain scan is as fast.

    The rows are not copied, except to unit vectors for cosine. `always` builds and uses bounds even if they save no
    time (None only for rows without spread).
    """
    if scan.d > MAX_COLUMNS or (scan.n < MIN_ROWS and not always):
        return None
    rows = frozen(unit_rows(scan.rows) if scan.distance.by_angle else scan.rows)
    rng = np.random.default_rng(seed)
    drawn = draw_rows(len(rows), rng)
    sample = rows[np.sort(drawn.others[:SAMPLE_ROWS])]
    frame = measure_frame(sample)
    if frame is None:
        return None
    with single_blas():
        seen = probe(rows, frame.place(sample).values, drawn, frame, scan.distance.product)
        choose = _euclidean if scan.distance.product else _manhattan
        chosen = choose(Job(rows, frame, sample, seen, rng, always))
        if chosen is None:
            return None
        sketch = sketch_all(rows, chosen.space)
        cells = make_cells(sketch.coarse, rng)
        codes = chosen.space.encode(sketch.coarse, cells.ids, chosen.variant)
        sketch = sketch._replace(fine=codes_taken(sketch.fine, cells.ids))
        return BoundedScan(scan, rows, chosen.space, cells, codes, sketch, chosen.why, always)


def _euclidean(job: Job) -> ChosenSpace | None:
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
    return ChosenSpace(space, variant, why)


def _manhattan(job: Job) -> ChosenSpace | None:
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
    return ChosenSpace(ManhattanSpace(job.frame, groups, choice.few), variant, why)


NEIGHBORS = 10  # k for which the choice is made (T1, T2)
_ASKED = 128  # rows that serve as queries; more lead to the same choice (T1f)
_WARM = 1.04  # radius of the scan relative to the true one: codes are rounded, and thresholds not final (T1b)
LOOK, BYTE = 30e-9, 0.03e-9  # seconds per survivor of the scan on one thread, and per column (T1, T2)
_PLAIN = 42e9  # products (or differences) per second and thread of a plain search (T1, T2)
_STEP = 16  # length of the shortest sketch that is compared, and the unit of all lengths (T1f)


class Probe(NamedTuple):
    """Sampled values (s, d) and queries asked (a, d) in the frame; radius (a,) to the k-th neighbor among n rows."""

    values: NDArray[np.float32]
    asked: NDArray[np.float32]
    radius: NDArray[np.float32]
    n: int


class DrawnRows(NamedTuple):
    """Row numbers: `asked` serve as queries; `others` (at least SAMPLE_ROWS) are searched for their neighbors."""

    asked: NDArray[np.int64]
    others: NDArray[np.int64]


def draw_rows(n: int, rng: np.random.Generator) -> DrawnRows:
    """Draw rows; if `others` are one row in NEIGHBORS, the nearest of them is about as far as the k-th of all."""
    asked = min(_ASKED, n // 8)
    picked = rng.choice(n, min(n, asked + max(SAMPLE_ROWS, n // NEIGHBORS)), replace=False)
    return DrawnRows(picked[:asked], picked[asked:])


def probe(rows: NDArray, values: NDArray[np.float32], drawn: DrawnRows, frame: Frame, product: bool) -> Probe:
    """Measure the radius of the drawn queries; values (s, d) are the first of the other rows, in the frame."""
    asked = frame.place(rows[drawn.asked]).values
    near = np.empty((len(asked), len(drawn.others)), np.float32)
    squares = np.einsum("ij,ij->i", asked, asked)

    def work(part: slice) -> None:
        block = frame.place(rows[drawn.others[part]])
        if product:
            near[:, part] = squares[:, None] + block.squares.astype(np.float32) - 2 * asked @ block.values.T
        else:
            nearness_l1(block.values, asked, part.start, near)

    pmap(work, spans(len(drawn.others), 1024))
    k = max(1, round(NEIGHBORS * len(drawn.others) / len(rows))) - 1
    radius = np.partition(near, k, axis=1)[:, k]
    if product:
        radius = np.sqrt(np.maximum(radius, 0))
    return Probe(values, asked, radius, len(rows))


@dataclass(frozen=True)
class SketchChoice:
    """The chosen length, its expected survivors, and the seconds per query and thread, with those of a plain search."""

    few: int
    survivors: float
    seconds: float
    plain: float

    @property
    def pays(self) -> bool:
        """Whether bounds save time."""
        return self.seconds < self.plain


def _plain(n: int, d: int) -> float:
    return n * d / _PLAIN + n * 1e-9 + 1e-6  # n * 1e-9: writing n distances and selecting the best


def sketch_widths(most: int) -> NDArray[np.int64]:
    """Return the lengths of sketches to compare, up to `most`: multiples of _STEP, a quarter of an octave apart."""
    octaves = np.arange(4 * np.log2(most / _STEP)) / 4
    return _STEP * np.unique(np.rint(2.0**octaves).astype(np.int64))


def choose_axes(seen: Probe, axes: NDArray[np.float32], scan_rate: float, most_coarse: int) -> SketchChoice:
    """Choose how many coordinates the Euclidean bounds use; scan_rate: words of four codes per second and thread."""
    d, p = axes.shape
    grid = np.array([g - 1 for g in sketch_widths(most_coarse) if g - 1 < p] + [p])
    values = np.concatenate([seen.values[::2], seen.asked])
    coordinates, tails = pooled_product(values, axes), np.empty((len(values), len(grid)), np.float32)
    tail_norms(coordinates, np.einsum("ij,ij->i", values, values), grid, tails)
    counts = _survivors(seen, coordinates, tails, grid)  # (grid,)
    words = np.ceil((grid + 1) / 4)
    sketches = 2 * d * grid / _PLAIN  # of a query, and of a row
    cost = seen.n * words / scan_rate + counts * (LOOK + BYTE * d) + sketches
    cost[words * 4 > most_coarse] = np.inf
    a = int(cost.argmin())
    return SketchChoice(int(grid[a]), float(counts[a]), float(cost[a]), _plain(seen.n, d))


def _survivors(
    seen: Probe, coordinates: NDArray[np.float32], tails: NDArray[np.float32], grid: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the expected number of rows (grid,) within _WARM times the radius by the bound of each length.

    coordinates (s + a, p), and tails (s + a, grid), the norms of the remaining ones: of rows, then of queries.
    """
    n = len(coordinates) - len(seen.asked)
    limits = (_WARM * seen.radius) ** 2

    def count(part: slice) -> NDArray[np.int64]:
        counts, own = np.zeros(len(grid), np.int64), slice(n + part.start, n + part.stop)
        survivors(coordinates[:n], tails[:n], coordinates[own], tails[own], grid, limits[part], counts)
        return counts

    counts = np.add.reduce(pmap(count, shares(len(seen.asked))))
    return np.asarray(counts * (seen.n / (len(seen.asked) * n)))


def choose_groups(
    seen: Probe, groups: FeatureGroups, sizes: list[int], scan_rate: float, most_coarse: int
) -> SketchChoice | None:
    """Choose the features per group (`few`) of the Manhattan bounds; scan_rate: words of eight codes per second."""
    d, choices = seen.values.shape[1], []
    for size in sizes:
        width = -(-d // size)
        rows, asked = (np.empty((len(part), width), np.float32) for part in (seen.values, seen.asked))
        signed_sums(seen.values, *groups, size, rows)
        signed_sums(seen.asked, *groups, size, asked)
        bound = np.empty((len(asked), len(rows)), np.float32)
        nearness_l1(rows, asked, 0, bound)
        survivors = float((bound < _WARM * seen.radius[:, None]).mean()) * seen.n
        seconds = seen.n * -(-width // 8) / scan_rate + survivors * (LOOK + BYTE * d)
        if width <= most_coarse:
            choices.append(SketchChoice(size, survivors, seconds, _plain(seen.n, d)))
    return min(choices, key=lambda choice: choice.seconds, default=None)
