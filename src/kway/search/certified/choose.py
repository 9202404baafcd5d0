"""How much of a row the scan should see: chosen by the time a query is expected to take.

Some rows are taken as queries, with their true k-th distance; on a sample of the rows it is counted how many would
survive each bound. Time a query = words scanned + survivors looked at + the query's own sketch; where that is not
clearly less than comparing with all rows, pruning does not pay and None comes back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.sketch import nearness_l1, signed_sums
from kway.compute.threads import pmap, spans
from kway.search.certified.axes import products
from kway.search.certified.frame import Frame
from kway.search.certified.groups import Groups

NEIGHBOURS = 10  # k that the choice is made for
WARM = 1.04  # the scan's radius over the true one: codes are rounded, and its thresholds are not final
LOOK = 50e-9  # seconds for a survivor of the scan, one thread
PLAIN = 42e9  # products (or differences) a second and thread of a plain search
FIXED = 5e-6  # seconds a query that no choice changes: nearest cells, warm start
WORTH = 0.7  # of a row: a longer fine part saves no time, and memory would pass that of the rows
PAYS = 0.8  # of the plain time


class Probe(NamedTuple):
    """values (s, d), asked (a, d): rows in the frame; radius (a,): distance of asked to its k-th neighbour; n rows."""

    values: NDArray[np.float32]
    asked: NDArray[np.float32]
    radius: NDArray[np.float32]
    n: int


def probe(rows: NDArray, frame: Frame, distance: str, rng: np.random.Generator, n_jobs: int | None) -> Probe:
    """A sample of the rows, and what they are asked."""
    n = len(rows)
    count = 64 if distance == "euclidean" else 32  # the latter costs more
    values = frame.place(rows[np.sort(rng.choice(n, min(n, 8192), replace=False))]).values
    asked = frame.place(rows[rng.choice(n, min(n, count), replace=False)]).values
    near = np.empty((len(asked), n), np.float32)
    squares = np.einsum("ij,ij->i", asked, asked)

    def work(part: slice) -> None:
        block = frame.place(rows[part])
        if distance == "manhattan":
            nearness_l1(block.values, asked, part.start, near)
        else:
            near[:, part] = squares[:, None] + block.squares.astype(np.float32) - 2 * asked @ block.values.T

    pmap(work, spans(n, 2048), n_jobs)
    k = min(NEIGHBOURS, n - 1)
    radius = np.partition(near, k, axis=1)[:, k]  # one of the neighbours is the row itself
    if distance == "euclidean":
        radius = np.sqrt(np.maximum(radius, 0))
    return Probe(values, asked, radius, n)


@dataclass(frozen=True)
class Choice:
    """What was chosen, and what it promises: seconds a query on one thread, against a plain search's."""

    few: int
    some: int
    most: int
    survivors: float
    seconds: float
    plain: float

    @property
    def pays(self) -> bool:
        """Whether to prune at all."""
        return self.seconds < PAYS * self.plain


def _plain(n: int, d: int) -> float:
    return n * d / PLAIN + n * 1e-9 + 1e-6  # the second: writing n distances and keeping the best


GRID = (16, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 1024)


def choose_axes(
    seen: Probe, axes: NDArray[np.float32], scan_rate: float, most_coarse: int, n_jobs: int | None
) -> Choice:
    """few, some, most coordinates for the Euclidean bounds; scan_rate: words of four codes a second and thread."""
    d, p = axes.shape
    grid = [g - 3 for g in GRID if g - 3 < p] + [p]
    counts = _survivors(seen, axes, grid, n_jobs)  # (grid, 2)
    words = np.ceil((np.array(grid) + 3) / 4)
    cost = seen.n * words / scan_rate + counts[:, 0] * LOOK
    cost[words * 4 > most_coarse] = np.inf
    a = int(cost.argmin())
    some, most = _finer(grid, counts, a, d)
    seconds = float(cost[a]) + d * most / PLAIN + FIXED
    return Choice(grid[a], some, most, float(counts[a, 0]), seconds, _plain(seen.n, d))


def _finer(grid: list[int], counts: NDArray[np.float64], a: int, d: int) -> tuple[int, int]:
    """Coordinates for the survivors of grid[a]: some, then most; (0, grid[a]) where the row itself is hardly longer."""
    room = [i for i in range(a, len(grid)) if _fill(grid[i], d) <= WORTH * d]
    b = next((i for i in room if counts[i, 1] <= 0.15 * counts[a, 0]), None)
    if b is None:
        return 0, grid[a]
    c = next((i for i in room if i >= b and (counts[i, 1] <= 2 * NEIGHBOURS or grid[i] >= 4 * grid[a])), room[-1])
    return _fill(grid[b], d), _fill(grid[c], d)


def _fill(count: int, limit: int) -> int:
    """Coordinates that with one norm fill whole cache lines of 16 floats."""
    return min(limit, -(-(count + 1) // 16) * 16 - 1)


def _survivors(seen: Probe, axes: NDArray[np.float32], grid: list[int], n_jobs: int | None) -> NDArray[np.float64]:
    """Expected rows within the radius (WARM times it, and just it) under the bound of each length of the grid."""
    rows, asked = products(seen.values, axes, n_jobs), seen.asked @ axes  # (s, p), (a, p)
    row_rest = np.einsum("ij,ij->i", seen.values, seen.values)
    asked_rest = np.einsum("ij,ij->i", seen.asked, seen.asked)
    lead = np.zeros((len(asked), len(rows)), np.float32)
    counts, a = [], 0
    for b in grid:
        x, q = rows[:, a:b], asked[:, a:b]
        x2, q2 = np.einsum("ij,ij->i", x, x), np.einsum("ij,ij->i", q, q)
        lead += x2 + q2[:, None] - 2 * q @ x.T
        row_rest, asked_rest, a = np.maximum(row_rest - x2, 0), np.maximum(asked_rest - q2, 0), b
        bound = np.sqrt(np.maximum(lead + (np.sqrt(row_rest) - np.sqrt(asked_rest)[:, None]) ** 2, 0))
        counts.append([(bound < f * seen.radius[:, None]).mean() * seen.n for f in (WARM, 1.0)])
    return np.array(counts)


def choose_groups(seen: Probe, groups: Groups, sizes: list[int], scan_rate: float, most_coarse: int) -> Choice | None:
    """Features a group for the Manhattan bounds (as `few`); scan_rate: words of eight codes a second and thread."""
    d, choices = seen.values.shape[1], []
    for size in sizes:
        width = -(-d // size)
        rows, asked = (np.empty((len(part), width), np.float32) for part in (seen.values, seen.asked))
        signed_sums(seen.values, *groups, size, rows)
        signed_sums(seen.asked, *groups, size, asked)
        bound = np.empty((len(asked), len(rows)), np.float32)
        nearness_l1(rows, asked, 0, bound)
        survivors = float((bound < WARM * seen.radius[:, None]).mean()) * seen.n
        seconds = seen.n * -(-width // 8) / scan_rate + survivors * LOOK + FIXED
        if width <= most_coarse:
            choices.append(Choice(size, size // 4, 0, survivors, seconds, _plain(seen.n, d)))
    return min(choices, key=lambda choice: choice.seconds, default=None)
