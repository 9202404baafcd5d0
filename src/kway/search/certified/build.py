"""`certify` builds the bounds of an exact search, or returns None if they do not save time.

The bounds hold for any axes and groups. How many numbers a sketch has decides the time of a search, so the time is
estimated for several lengths of the sketch. Some rows serve as queries, with the distance of their k-th neighbor. On a
sample of the other rows, the rows that survive each bound are counted. The time per query is the sum of the time to
scan all codes, to measure the survivors, and to compute the sketch of the query and of one row (as many queries as rows
are expected). No bounds are built unless this is less than the time of a comparison with all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified import tiles
from kway.kernels.certified.sketch import MAX_COLUMNS, signed_sums, survivors, tail_norms
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
    correlated_groups,
    euclidean_space,
    measure_frame,
    sketch_all,
    take_rows,
)
from kway.search.distances import MANHATTAN
from kway.search.principal_axes import leading_axes, pooled_product
from kway.threads import pmap, shares, single_blas, spans

# Decided by the search benchmarks T1 (MNIST, Euclidean), T1b (fewer rows), T1f (the time of a fit) and T2 (Manhattan).
MIN_ROWS = 1024  # with fewer rows, a plain scan is as fast (T1b)
_QUERIES = 128  # rows that serve as queries; more lead to the same choice (T1f)
NEIGHBORS = 10  # k for which the length of the sketch is chosen (T1, T2)
# Time on one thread to fetch a row that survives the scan of codes (T1, T2). It includes the rows that survive because
# codes are rounded and thresholds are not final, about 0.4 per expected survivor.
_SURVIVOR_SECONDS = 50e-9
_PRODUCTS_PER_SECOND = 42e9  # products, or differences, on one thread (T1, T2)
_STEP = 16  # length of the shortest sketch that is compared; other lengths are multiples (T1f)


class Sample(NamedTuple):
    """Values (s, d) of rows and queries (a, d) in the frame; radius (a,) to the k-th neighbor among all n rows."""

    values: NDArray[np.float32]
    queries: NDArray[np.float32]
    radius: NDArray[np.float32]
    n: int


class Job(NamedTuple):
    """The rows (n, d), the frame, some rows before scaling, and the sample of rows and queries in the frame."""

    rows: NDArray
    frame: Frame
    raw_sample: NDArray
    sample: Sample
    rng: np.random.Generator
    always: bool


class ChosenSpace(NamedTuple):
    """What computes the sketches, the instructions that scan their codes, and a sentence about the choice."""

    space: Space
    variant: int
    why: str


@dataclass(frozen=True)
class SketchChoice:
    """The chosen length of sketches, or the number of columns per group, with its estimated cost.

    survivors is the expected number of rows that survive the scan of codes; seconds and plain_seconds are the time per
    query and thread with bounds and of a plain search.
    """

    size: int
    survivors: float
    seconds: float
    plain_seconds: float

    @property
    def pays(self) -> bool:
        """Whether bounds save time."""
        return self.seconds < self.plain_seconds


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
    raw_sample = rows[np.sort(drawn.others[:SAMPLE_ROWS])]
    frame = measure_frame(raw_sample)
    if frame is None:
        return None
    with single_blas():
        sample = measure_sample(rows, frame.place(raw_sample).values, drawn, frame, scan.distance.product)
        choose_space = _euclidean if scan.distance.product else _manhattan
        chosen = choose_space(Job(rows, frame, raw_sample, sample, rng, always))
        if chosen is None:
            return None
        sketch = sketch_all(rows, chosen.space)
        cells = make_cells(sketch.coarse, rng)
        codes = chosen.space.encode(sketch.coarse, cells.ids, chosen.variant)
        sketch = sketch._replace(fine=take_rows(sketch.fine, cells.ids))
        return BoundedScan(scan, rows, chosen.space, cells, codes, sketch, chosen.why, always)


def _euclidean(job: Job) -> ChosenSpace | None:
    variant = best_variant(tiles.L2_VARIANTS)
    max_axes = min(job.rows.shape[1], tiles.MAX_DIMS)
    # all axes of few columns; else what is enough for most data, and the loop doubles it if not
    n_axes = max_axes if job.rows.shape[1] <= tiles.MAX_DIMS else tiles.MAX_DIMS // 3
    while True:
        axes = leading_axes(job.sample.values, n_axes, job.rng)
        choice = choose_axes(job.sample, axes, tiles.L2_VARIANTS[variant].words_per_second, tiles.MAX_DIMS)
        if n_axes == max_axes or choice.size < n_axes - 1:
            break
        n_axes = min(max_axes, 2 * n_axes)
    if not (choice.pays or job.always):
        return None
    axes = np.ascontiguousarray(axes[:, : choice.size])
    space = euclidean_space(job.frame, axes, job.raw_sample[:512], job.rng)
    n, d = job.rows.shape
    why = f"certified: {choice.size} of {d} dimensions scanned, about {choice.survivors:.0f} of {n} rows survive"
    return ChosenSpace(space, variant, why)


def _manhattan(job: Job) -> ChosenSpace | None:
    variant = best_variant(tiles.L1_VARIANTS)
    n, d = job.rows.shape
    levels, values = 4 if d >= 64 else 2, job.sample.values
    left, right = (values[job.rng.choice(len(values), 2000)] for _ in range(2))
    groups = correlated_groups(left - right, levels)
    sizes = [2**level for level in range(levels + 1) if d <= tiles.L1_MAX_DIMS * 2**level]
    if not sizes:
        return None
    choice = choose_groups(job.sample, groups, sizes, tiles.L1_VARIANTS[variant].words_per_second)
    if not (choice.pays or job.always):
        return None
    why = f"certified: sums of {choice.size} of {d} features scanned, about {choice.survivors:.0f} of {n} rows survive"
    return ChosenSpace(ManhattanSpace(job.frame, groups, choice.size), variant, why)


# ---- the sample


class DrawnRows(NamedTuple):
    """Positions of rows that serve as queries, and of other rows (at least SAMPLE_ROWS) that they search."""

    queries: NDArray[np.int64]
    others: NDArray[np.int64]


def draw_rows(n: int, rng: np.random.Generator) -> DrawnRows:
    """Draw rows. If one row in NEIGHBORS is drawn, the nearest drawn row is about as far as the k-th of all rows."""
    n_queries = min(_QUERIES, n // 8)
    drawn = rng.choice(n, min(n, n_queries + max(SAMPLE_ROWS, n // NEIGHBORS)), replace=False)
    return DrawnRows(drawn[:n_queries], drawn[n_queries:])


def measure_sample(
    rows: NDArray, values: NDArray[np.float32], drawn: DrawnRows, frame: Frame, euclidean: bool
) -> Sample:
    """Measure the radius of the drawn queries; values (s, d) are the first of the other rows, in the frame."""
    queries = frame.place(rows[drawn.queries]).values
    distances = np.empty((len(queries), len(drawn.others)), np.float32)  # squared if Euclidean
    squares = np.einsum("ij,ij->i", queries, queries)

    def work(part: slice) -> None:
        block = frame.place(rows[drawn.others[part]])
        if euclidean:
            products = queries @ block.values.T
            distances[:, part] = squares[:, None] + block.squares.astype(np.float32) - 2 * products
        else:
            distances[:, part] = MANHATTAN.tile(queries, block.values)

    pmap(work, spans(len(drawn.others), 1024))
    k = max(1, round(NEIGHBORS * len(drawn.others) / len(rows))) - 1
    radius = np.partition(distances, k, axis=1)[:, k]
    if euclidean:
        radius = np.sqrt(np.maximum(radius, 0))
    return Sample(values, queries, radius, len(rows))


# ---- the length of sketches


def _plain_seconds(n: int, d: int) -> float:
    """Return the time of a plain search; 1e-9 s are needed to write a distance and to compare it with the k-th."""
    return n * d / _PRODUCTS_PER_SECOND + n * 1e-9 + 1e-6


def _survivor_seconds(d: int) -> float:
    """Return the time to compare a survivor of the scan: to fetch its row, and to compute d differences."""
    return _SURVIVOR_SECONDS + d / _PRODUCTS_PER_SECOND


def sketch_widths(max_width: int) -> NDArray[np.int64]:
    """Return the lengths of sketches to compare: multiples of _STEP up to max_width, a quarter of an octave apart."""
    octaves = np.arange(4 * np.log2(max_width / _STEP)) / 4
    return _STEP * np.unique(np.rint(2.0**octaves).astype(np.int64))


def choose_axes(sample: Sample, axes: NDArray[np.float32], scan_rate: float, max_width: int) -> SketchChoice:
    """Choose how many of the axes (d, p) the Euclidean bounds use; scan_rate: words of four codes per second."""
    d, p = axes.shape
    sizes = np.array([width - 1 for width in sketch_widths(max_width) if width - 1 < p] + [p])
    values = np.concatenate([sample.values[::2], sample.queries])
    coordinates, tails = pooled_product(values, axes), np.empty((len(values), len(sizes)), np.float32)
    tail_norms(coordinates, np.einsum("ij,ij->i", values, values), sizes, tails)
    counts = _expected_survivors(sample, coordinates, tails, sizes)
    words = np.ceil((sizes + 1) / 4)
    sketch_seconds = 2 * d * sizes / _PRODUCTS_PER_SECOND  # of a query, and of a row
    seconds = sample.n * words / scan_rate + counts * _survivor_seconds(d) + sketch_seconds
    seconds[words * 4 > max_width] = np.inf
    best = int(seconds.argmin())
    return SketchChoice(int(sizes[best]), float(counts[best]), float(seconds[best]), _plain_seconds(sample.n, d))


def _expected_survivors(
    sample: Sample, coordinates: NDArray[np.float32], tails: NDArray[np.float32], sizes: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return the expected number of rows (g,) within the radius by the bound of each length.

    coordinates (s + a, p) are those of rows, then of queries; tails (s + a, g) are the norms of the remaining ones.
    """
    n = len(coordinates) - len(sample.queries)

    def count(part: slice) -> NDArray[np.int64]:
        counts, queries = np.zeros(len(sizes), np.int64), slice(n + part.start, n + part.stop)
        limits = sample.radius[part] ** 2
        survivors(coordinates[:n], tails[:n], coordinates[queries], tails[queries], sizes, limits, counts)
        return counts

    counts = np.add.reduce(pmap(count, shares(len(sample.queries))))
    return np.asarray(counts * (sample.n / (len(sample.queries) * n)))


def choose_groups(sample: Sample, groups: FeatureGroups, sizes: list[int], scan_rate: float) -> SketchChoice:
    """Choose the columns per group of the Manhattan bounds; scan_rate: words of eight codes per second."""
    d, choices = sample.values.shape[1], []
    for size in sizes:
        width = -(-d // size)
        rows, queries = (np.empty((len(values), width), np.float32) for values in (sample.values, sample.queries))
        signed_sums(sample.values, *groups, size, rows)
        signed_sums(sample.queries, *groups, size, queries)
        bounds = MANHATTAN.tile(queries, rows)
        count = float((bounds < sample.radius[:, None]).mean()) * sample.n
        seconds = sample.n * -(-width // 8) / scan_rate + count * _survivor_seconds(d)
        choices.append(SketchChoice(size, count, seconds, _plain_seconds(sample.n, d)))
    return min(choices, key=lambda choice: choice.seconds)
