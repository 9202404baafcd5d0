"""k-means: centers (c, d) such that rows lie near their nearest one: rounds on a sample, then passes over all rows.

    assign   each row to argmin_c ||x - m_c||^2 = argmax_c (x . m_c - ||m_c||^2 / 2), one blocked matrix product
    update   each center to the mean of its rows; an empty one to a row far from its center

Seeding takes distinct random rows in two rounds: the second draws with probability growing with the distance to the
first (the idea of k-means++, without its one pass per center).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.errors import InputError
from kway.kernels.cells import nearest_centre
from kway.kernels.jit import frozen
from kway.labels import check_width
from kway.progress import Tell, silent
from kway.rows.gpu.device import Device
from kway.rows.gpu.tensor_rows import TensorRows
from kway.search.codecs.block_codes import iterate_blocks
from kway.threads import at_most, pmap, spans
from kway.validation import plain_rows

# recall of 24 probes of 60,000 rows, two sets: .9956, .9997 after 4, .9961, .9999 after 8; seeds vary by .001
ROUNDS = 4  # of the sample (T3)
A_CENTRE = 32  # rows of the sample for each center: they place it well, more only cost time (T3)
SAMPLE_ROWS = 4096  # rows that anything is learned from at least: centers, projections, hashes, bounds (T1f, T3)
TILE_PRODUCTS = 2**17  # products at a time: 512 kB, in the second cache (T3)


class ClusteredRows(Protocol):
    """Rows (n, d) that are clustered, wherever they lie."""

    def __len__(self) -> int: ...

    def take(self, which: NDArray[np.int64]) -> NDArray:
        """Some of the rows, here."""

    def reach(self) -> float:
        """Half the squared length of the longest."""

    def nearest(self, centres: NDArray) -> tuple[NDArray, NDArray]:
        """The nearest centre (n,) of each row, and half their squared distance (n,)."""

    def means(self, near: NDArray, centres: NDArray) -> NDArray:
        """The mean of the rows of each centre; a centre without any as it was."""


class NearestCentre(NamedTuple):
    """The nearest centre (n,) of each row, and half their squared distance (n,)."""

    centres: NDArray[np.int64]
    gaps: NDArray[np.float32]


def kmeans_sample(rows: Any, n_centres: int, rng: np.random.Generator) -> Any:
    """As many rows as place so many centres; where they are."""
    n, size = len(rows), max(A_CENTRE * n_centres, SAMPLE_ROWS)
    return rows[:] if n <= size else rows[np.sort(rng.choice(n, size, replace=False))]


def place_centres(
    sample: NDArray[np.float32] | TensorRows,
    n_centres: int,
    rng: np.random.Generator,
    *,
    rounds: int = ROUNDS,
    tell: Tell = silent,
    device: Device | None = None,
) -> NDArray[np.float32]:
    """Centres (n_centres, d) for rows like the sample (n, d) float32; on the device, where one is given.

    `tell` hears of each round.
    """
    held = _held(sample if isinstance(sample, TensorRows) else np.ascontiguousarray(sample), device)
    centres = _seeds(held, n_centres, rng)
    for done in range(rounds):
        tell(done, f"round {done + 1} of {rounds}")
        centres = _moved(held, centres, rng)
    return centres


@dataclass(frozen=True)
class HostSample:
    """Rows (n, d) float32 here."""

    rows: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: NDArray[np.int64]) -> NDArray:
        """A copy."""
        return self.rows[which]

    def reach(self) -> float:
        """In float32."""
        return float(half_squares(self.rows).max())

    def nearest(self, centres: NDArray) -> tuple[NDArray, NDArray]:
        """By threads."""
        return nearest_centres(self.rows, centres)

    def means(self, near: NDArray, centres: NDArray) -> NDArray:
        """Rows in the order of their centres, added run by run."""
        counts = np.bincount(near, minlength=len(centres))
        filled, starts = np.flatnonzero(counts), np.cumsum(counts) - counts
        new = centres.copy()
        sums = np.add.reduceat(self.rows[in_cell_order(near, len(centres))], starts[filled], axis=0)
        new[filled] = sums / counts[filled, None].astype(np.float32)
        return new


def _held(rows: NDArray | TensorRows, device: Device | None) -> ClusteredRows:
    """Rows where they are clustered."""
    if device is None:
        return HostSample(np.asarray(rows))
    from kway.rows.gpu.ivf_search import DeviceSample

    with device.room(f"k-means of {len(rows):,} rows x {rows.shape[1]} columns", rows.nbytes):
        return DeviceSample.build(device, rows)


def nearest_centres(rows: NDArray[np.float32], centres: NDArray[np.float32]) -> NearestCentre:
    """The nearest centre of each row (n, d); of equally near ones the first."""
    found = NearestCentre(np.empty(len(rows), np.int64), np.empty(len(rows), np.float32))

    def work(part: slice) -> None:
        assign_centres(rows[part], centres, found.centres[part], found.gaps[part])

    pmap(work, spans(len(rows), max(64, 2**17 // max(1, rows.shape[1]))))
    return found


def assign_centres(rows: NDArray, centres: NDArray, near: NDArray, gaps: NDArray) -> None:
    """`nearest_centres` of one thread, into near (n,) and gaps (n,)."""
    halves, half, tile = half_squares(rows), half_squares(centres), max(16, TILE_PRODUCTS // len(centres))
    room = np.empty((min(tile, len(rows)), len(centres)), np.float32)
    for part in spans(len(rows), tile):
        block = rows[part]
        products = np.matmul(block, centres.T, out=room[: len(block)])  # (m, c)
        nearest_centre(products, products.view(np.int32), half, halves[part], near[part], gaps[part])


def half_squares(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """||x||^2 / 2 of each row (n,)."""
    return frozen(0.5 * np.einsum("ij,ij->i", rows, rows))


def _seeds(held: ClusteredRows, n_centres: int, rng: np.random.Generator) -> NDArray[np.float32]:
    first = held.take(rng.choice(len(held), max(1, n_centres // 2), replace=False))
    wanted = n_centres - len(first)
    if not wanted:
        return first
    more = _distant_rows(held, held.nearest(first)[1], wanted, rng)
    if len(more) < wanted:  # few distinct rows: any will do
        more = held.take(rng.choice(len(held), wanted, replace=False))
    return np.concatenate([first, more])


def _moved(held: ClusteredRows, centres: NDArray, rng: np.random.Generator) -> NDArray[np.float32]:
    """One round: the means of the rows of each centre, and rows far from their centre where one has none."""
    near, gaps = held.nearest(centres)
    new = held.means(near, centres)
    empty = np.flatnonzero(np.bincount(near, minlength=len(centres)) == 0)
    if len(empty):
        far = _distant_rows(held, gaps, len(empty), rng)
        new[empty[: len(far)]] = far
    return new


def in_cell_order(cells: NDArray[np.int64], n_cells: int) -> NDArray[np.int64]:
    """Positions (n,) ordered by cell, then by position."""
    narrow = cells.astype(np.uint16) if n_cells <= 2**16 else cells  # 16 bits sort by radix, five times faster
    return np.argsort(narrow, kind="stable")


def _distant_rows(held: ClusteredRows, halves: NDArray, count: int, rng: np.random.Generator) -> NDArray:
    """Up to `count` rows, drawn with probability in proportion to their squared distance, of half of that (n,)."""
    gaps = 2.0 * halves.astype(np.float64)
    gaps[gaps <= 2e-6 * held.reach()] = 0.0  # rounding
    far = np.flatnonzero(gaps)
    if not len(far):
        return held.take(far)
    return held.take(rng.choice(far, min(count, len(far)), replace=False, p=gaps[far] / gaps[far].sum()))


class StreamClusters(NamedTuple):
    """Centres (c, d) float32, how many rows (c,) the last pass gave to each, and their mean squared distance to it.

    Of a source that was read once, the figures are those of the sample.
    """

    centres: NDArray[np.float32]
    sizes: NDArray[np.int64]
    spread: float


def cluster_blocks(
    blocks: Any, n_centres: int, *, passes: int = 2, seed: int = 0, n_jobs: int | None = None
) -> StreamClusters:
    """k-means over an array (n, d), perhaps a memory map, a folder of .npy files, or an iterable of blocks (m, d).

    `passes` over all rows follow the sample where the source can be read again (an array, a folder, a list).

    >>> rows = np.repeat(np.arange(4.0), 50)[:, None] * 10
    >>> cluster_blocks([rows[:100], rows[100:]], 4).sizes.tolist()
    [50, 50, 50, 50]
    """
    if not isinstance(n_centres, int | np.integer) or isinstance(n_centres, bool) or n_centres < 1:
        raise InputError(f"n_centres must be a whole number of at least 1, got {n_centres!r}")
    with at_most(n_jobs):
        return _clustered(blocks, n_centres, passes, seed)


def _clustered(blocks: Any, n_centres: int, passes: int, seed: int) -> StreamClusters:
    rng = np.random.default_rng(seed)
    sample = _sampled(_blocks(blocks), max(A_CENTRE * n_centres, SAMPLE_ROWS), rng)
    if len(sample) < n_centres:
        raise InputError(f"{n_centres} centres need as many rows, got {len(sample)}; ask for fewer")
    centres = place_centres(sample, int(n_centres), rng)
    again = isinstance(blocks, str | Path | list | tuple) or hasattr(blocks, "shape")
    if not again or passes < 1:
        return _passed(iter([sample]), centres)._replace(centres=centres)
    found = _passed(_blocks(blocks), centres)
    for _ in range(passes - 1):
        found = _passed(_blocks(blocks), found.centres)
    return found


def _blocks(source: Any) -> Iterator[NDArray[np.float32]]:
    """Checked blocks, all of as many columns as the first."""
    width = None
    for block in iterate_blocks(source).each:
        rows = plain_rows(block, "rows").astype(np.float32, copy=False)
        width = check_width(rows, width)
        yield rows
    if width is None:
        raise InputError("k-means needs at least one block of rows, got none")


def _sampled(blocks: Iterator[NDArray[np.float32]], size: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """`size` rows of all, or all: row i (from 0) comes in with chance size / (i + 1), in the place of one drawn."""
    held: NDArray[np.float32] | None = None
    seen = 0
    for rows in blocks:
        if held is None:
            held = np.empty((size, rows.shape[1]), np.float32)
        free = min(max(0, size - seen), len(rows))
        held[seen : seen + free] = rows[:free]
        places = rng.integers(0, seen + free + 1 + np.arange(len(rows) - free))
        inside = np.flatnonzero(places < size)
        held[places[inside]] = rows[free:][inside]  # of two in one place the later stays, as one by one
        seen += len(rows)
    assert held is not None
    return held[: min(seen, size)]


def _passed(blocks: Iterator[NDArray], centres: NDArray[np.float32]) -> StreamClusters:
    """The means of the rows of each centre; one without rows stays where it is."""
    sums, sizes, total = np.zeros(centres.shape), np.zeros(len(centres), np.int64), 0.0
    for rows in blocks:
        near = nearest_centres(rows, centres)
        sizes += np.bincount(near.centres, minlength=len(centres))
        total += 2.0 * float(near.gaps.sum(dtype=np.float64))
        order = np.argsort(near.centres, kind="stable")
        present, starts = np.unique(near.centres[order], return_index=True)
        sums[present] += np.add.reduceat(rows[order], starts, axis=0, dtype=np.float64)
    means = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return StreamClusters(means.astype(np.float32), sizes, max(0.0, total) / max(1, int(sizes.sum())))
