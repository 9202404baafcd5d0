"""How much of a row the scan should see: chosen by the time a query is expected to take.

Some rows are taken as queries, with the distance of their k-th neighbour; on a sample of the other rows it is counted
how many would survive each bound. Time a query = words scanned + survivors looked at + rows measured + the query's own
sketch, and a row's (as many queries as rows are expected); where that is not clearly less than comparing with all
rows, pruning does not pay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.certified.sketch import nearness_l1, signed_sums, survivors, tail_norms
from kway.compute.threads import pmap, shares, spans
from kway.search.certified.axes import pooled_product
from kway.search.certified.frame import Frame
from kway.search.certified.groups import FeatureGroups
from kway.search.spaces.distances import Distance

NEIGHBOURS = 10  # k that the choice is made for
SAMPLE_ROWS = 4096  # rows that axes are found from
_COUNTED = 2048  # of these, rows that survivors are counted on
_ASKED = 128  # rows taken as queries
_WARM = 1.04  # the scan's radius over the true one: codes are rounded, and its thresholds are not final
LOOK, BYTE = 30e-9, 0.03e-9  # seconds for a survivor of the scan on one thread, and for each column of it
LOOK_L1 = 50e-9  # under Manhattan
ROWS_A_QUERY = 1  # as many queries as rows are expected
_PLAIN = 42e9  # products (or differences) a second and thread of a plain search
FIXED = 5e-6  # seconds a query that no choice changes: nearest cells, warm start
PAYS = 0.8  # of the plain time


class Probe(NamedTuple):
    """values (s, d), asked (a, d): rows in the frame; radius (a,): distance of asked to its k-th neighbour; n rows."""

    values: NDArray[np.float32]
    asked: NDArray[np.float32]
    radius: NDArray[np.float32]
    n: int


class DrawnRows(NamedTuple):
    """Row numbers: some to ask for, and others (SAMPLE_ROWS of them or more) to look for their neighbours in."""

    asked: NDArray[np.int64]
    others: NDArray[np.int64]


def draw_rows(n: int, rng: np.random.Generator) -> DrawnRows:
    """One row in NEIGHBOURS is enough of others: there the nearest stands for the k-th of all."""
    asked = min(_ASKED, n // 8)
    picked = rng.choice(n, min(n, asked + max(SAMPLE_ROWS, n // NEIGHBOURS)), replace=False)
    return DrawnRows(picked[:asked], picked[asked:])


def probe(
    rows: NDArray, values: NDArray[np.float32], drawn: DrawnRows, frame: Frame, distance: Distance, n_jobs: int | None
) -> Probe:
    """What rows are asked; values (s, d) are the first of the others, in the frame."""
    asked = frame.place(rows[drawn.asked]).values
    near = np.empty((len(asked), len(drawn.others)), np.float32)
    squares = np.einsum("ij,ij->i", asked, asked)

    def work(part: slice) -> None:
        block = frame.place(rows[drawn.others[part]])
        if distance.product:
            near[:, part] = squares[:, None] + block.squares.astype(np.float32) - 2 * asked @ block.values.T
        else:
            nearness_l1(block.values, asked, part.start, near)

    pmap(work, spans(len(drawn.others), 1024), n_jobs)
    k = max(1, round(NEIGHBOURS * len(drawn.others) / len(rows))) - 1
    radius = np.partition(near, k, axis=1)[:, k]
    if distance.product:
        radius = np.sqrt(np.maximum(radius, 0))
    return Probe(values, asked, radius, len(rows))


@dataclass(frozen=True)
class SketchChoice:
    """What was chosen, and what it promises: seconds a query on one thread, against a plain search's."""

    few: int
    survivors: float
    seconds: float
    plain: float

    @property
    def pays(self) -> bool:
        """Whether to prune at all."""
        return self.seconds < PAYS * self.plain


def _plain(n: int, d: int) -> float:
    return n * d / _PLAIN + n * 1e-9 + 1e-6  # the second: writing n distances and keeping the best


SKETCH_WIDTHS = (16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 1024)


def choose_axes(
    seen: Probe, axes: NDArray[np.float32], scan_rate: float, most_coarse: int, n_jobs: int | None
) -> SketchChoice:
    """How many coordinates for the Euclidean bounds; scan_rate: words of four codes a second and thread."""
    d, p = axes.shape
    grid = np.array([g - 1 for g in SKETCH_WIDTHS if g - 1 < p] + [p])
    counts = _survivors(seen, axes, grid, n_jobs)  # (grid,)
    words = np.ceil((grid + 1) / 4)
    cost = seen.n * words / scan_rate + counts * (LOOK + BYTE * d) + (1 + ROWS_A_QUERY) * d * grid / _PLAIN
    cost[words * 4 > most_coarse] = np.inf
    a = int(cost.argmin())
    return SketchChoice(int(grid[a]), float(counts[a]), float(cost[a]) + FIXED, _plain(seen.n, d))


def _survivors(
    seen: Probe, axes: NDArray[np.float32], grid: NDArray[np.int64], n_jobs: int | None
) -> NDArray[np.float64]:
    """Expected rows (grid,) within WARM times the radius under the bound of each length of the grid."""
    parts = [_with_tails(values, axes, grid, n_jobs) for values in (seen.values[:_COUNTED], seen.asked)]
    limits = (_WARM * seen.radius) ** 2

    def count(part: slice) -> NDArray[np.int64]:
        counts = np.zeros(len(grid), np.int64)
        own = slice(part.start, part.stop)
        survivors(*parts[0], *(array[own] for array in parts[1]), grid, limits[own], counts)
        return counts

    counts = np.add.reduce(pmap(count, shares(len(seen.asked), n_jobs), n_jobs))
    return np.asarray(counts * (seen.n / (len(seen.asked) * len(parts[0][0]))))


def _with_tails(
    values: NDArray[np.float32], axes: NDArray[np.float32], edges: NDArray[np.int64], n_jobs: int | None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Coordinates (s, p) of values and the norms (s, g) of what their leading ones leave out."""
    coordinates, tails = pooled_product(values, axes, n_jobs), np.empty((len(values), len(edges)), np.float32)
    tail_norms(coordinates, np.einsum("ij,ij->i", values, values), edges, tails)
    return coordinates, tails


def choose_groups(
    seen: Probe, groups: FeatureGroups, sizes: list[int], scan_rate: float, most_coarse: int
) -> SketchChoice | None:
    """Features a group for the Manhattan bounds (as `few`); scan_rate: words of eight codes a second and thread."""
    d, choices = seen.values.shape[1], []
    for size in sizes:
        width = -(-d // size)
        rows, asked = (np.empty((len(part), width), np.float32) for part in (seen.values, seen.asked))
        signed_sums(seen.values, *groups, size, rows)
        signed_sums(seen.asked, *groups, size, asked)
        bound = np.empty((len(asked), len(rows)), np.float32)
        nearness_l1(rows, asked, 0, bound)
        survivors = float((bound < _WARM * seen.radius[:, None]).mean()) * seen.n
        seconds = seen.n * -(-width // 8) / scan_rate + survivors * LOOK_L1 + FIXED
        if width <= most_coarse:
            choices.append(SketchChoice(size, survivors, seconds, _plain(seen.n, d)))
    return min(choices, key=lambda choice: choice.seconds, default=None)
