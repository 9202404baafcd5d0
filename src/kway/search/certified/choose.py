"""How many coordinates the scan should read: principal axes, and a choice by the expected time of a query.

Axes        (d, p) float32, nearly orthonormal columns, largest variance first. The bounds are valid for any orthonormal
            axes. They are tightest for principal axes, and nearly as tight for approximate ones.
Choice      Some rows serve as queries, with the distance of their k-th neighbor. On a sample of the other rows, the
            survivors of each bound are counted. Time per query = words scanned + survivors examined + rows measured +
            the sketch of the query and of one row (as many queries as rows are expected). Unless this is clearly less
            than a comparison with all rows, bounds do not save time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.kernels.certified.sketch import nearness_l1, signed_sums, survivors, tail_norms
from kway.rows.blocks import SAMPLE_ROWS
from kway.search.certified.manhattan import FeatureGroups
from kway.search.certified.sketches import Frame
from kway.search.distances import Distance
from kway.search.principal_axes import pooled_product
from kway.threads import pmap, shares, single_blas, spans


def flaw(axes: NDArray[np.float32]) -> float:
    """Return a bound of the distance (2-norm) from the axes to the nearest orthonormal ones: |V'V - I| in float64."""
    wide = axes.astype(np.float64)
    with single_blas():
        return float(np.linalg.norm(wide.T @ wide - np.eye(wide.shape[1]))) + 1e-12


def random_turn(width: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return a random rotation (width, width); rotated coordinates have similar ranges, so one step fits all."""
    return np.ascontiguousarray(np.linalg.qr(rng.standard_normal((width, width)))[0], np.float32)


NEIGHBORS = 10  # k for which the choice is made (T1, T2)
_ASKED = 128  # rows that serve as queries; more lead to the same choice (T1f)
_WARM = 1.04  # radius of the scan relative to the true one: codes are rounded, and thresholds not final (T1b)
LOOK, BYTE = 30e-9, 0.03e-9  # seconds per survivor of the scan on one thread, and per column (T1, T2)
_PLAIN = 42e9  # products (or differences) per second and thread of a plain search (T1, T2)
PAYS = 0.8  # bounds are built if they take less than this share of the plain time (T1b)
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


def probe(rows: NDArray, values: NDArray[np.float32], drawn: DrawnRows, frame: Frame, distance: Distance) -> Probe:
    """Measure the radius of the drawn queries; values (s, d) are the first of the other rows, in the frame."""
    asked = frame.place(rows[drawn.asked]).values
    near = np.empty((len(asked), len(drawn.others)), np.float32)
    squares = np.einsum("ij,ij->i", asked, asked)

    def work(part: slice) -> None:
        block = frame.place(rows[drawn.others[part]])
        if distance.product:
            near[:, part] = squares[:, None] + block.squares.astype(np.float32) - 2 * asked @ block.values.T
        else:
            nearness_l1(block.values, asked, part.start, near)

    pmap(work, spans(len(drawn.others), 1024))
    k = max(1, round(NEIGHBORS * len(drawn.others) / len(rows))) - 1
    radius = np.partition(near, k, axis=1)[:, k]
    if distance.product:
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
        return self.seconds < PAYS * self.plain


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
