"""k-means: centres (c, d) such that rows lie near their nearest one. Lloyd's rounds on a sample, then one pass.

    assign   each row to argmin_c ||x - m_c||^2 = argmax_c (x . m_c - ||m_c||^2 / 2), one blocked matrix product
    update   each centre to the mean of its rows; an empty one to a row far from its centre

Seeding takes distinct random rows in two rounds: the second draws with probability growing with the distance to the
first (the idea of k-means++, without its one pass a centre).

Rows that a GPU holds (`device`) are assigned and averaged there (gpu/search/clusters.py); what is drawn at random is
drawn here, from the same numbers, so that centres differ from the CPU's by rounding alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from kway.compute.gpu.device import Device
from kway.compute.gpu.far_rows import FarRows
from kway.compute.kernels.cells import nearest_centre
from kway.compute.kernels.jit import frozen
from kway.compute.threads import pmap, spans
from kway.progress import Tell, silent

# recall of 24 probes of 60,000 rows, two sets: .9956, .9997 after 4, .9961, .9999 after 8; seeds vary by .001
ROUNDS = 4
A_CENTRE = 32  # rows of the sample for each centre: they place it well, more only cost time
_TILE = 2**17  # products at a time: 512 kB


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


def kmeans_sample(rows: Any, n_centres: int, rng: np.random.Generator, a_centre: int = A_CENTRE) -> Any:
    """As many rows as place so many centres; where they are."""
    n, size = len(rows), max(a_centre * n_centres, 4096)
    return rows[:] if n <= size else rows[np.sort(rng.choice(n, size, replace=False))]


def place_centres(
    sample: NDArray[np.float32] | FarRows,
    n_centres: int,
    rng: np.random.Generator,
    n_jobs: int | None = None,
    *,
    rounds: int = ROUNDS,
    tell: Tell = silent,
    device: Device | None = None,
) -> NDArray[np.float32]:
    """Centres (n_centres, d) for rows like the sample (n, d) float32; on the device, where one is given.

    `tell` hears of each round.
    """
    held = _held(sample if isinstance(sample, FarRows) else np.ascontiguousarray(sample), n_jobs, device)
    centres = _seeds(held, n_centres, rng)
    for done in range(rounds):
        tell(done, f"round {done + 1} of {rounds}")
        centres = _moved(held, centres, rng)
    return centres


@dataclass(frozen=True)
class HostSample:
    """Rows (n, d) float32 here."""

    rows: NDArray[np.float32]
    n_jobs: int | None = None

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
        return nearest_centres(self.rows, centres, self.n_jobs)

    def means(self, near: NDArray, centres: NDArray) -> NDArray:
        """Rows in the order of their centres, added run by run."""
        counts = np.bincount(near, minlength=len(centres))
        filled, starts = np.flatnonzero(counts), np.cumsum(counts) - counts
        new = centres.copy()
        sums = np.add.reduceat(self.rows[in_cell_order(near, len(centres))], starts[filled], axis=0)
        new[filled] = sums / counts[filled, None].astype(np.float32)
        return new


def _held(rows: NDArray | FarRows, n_jobs: int | None, device: Device | None) -> ClusteredRows:
    """Rows where they are clustered."""
    if device is None:
        return HostSample(np.asarray(rows), n_jobs)
    from kway.compute.gpu.search.clusters import DeviceSample

    with device.room(f"k-means of {len(rows):,} rows x {rows.shape[1]} columns", rows.nbytes):
        return DeviceSample.of(device, rows)


def nearest_centres(
    rows: NDArray[np.float32], centres: NDArray[np.float32], n_jobs: int | None = None
) -> NearestCentre:
    """The nearest centre of each row (n, d); of equally near ones the first."""
    found = NearestCentre(np.empty(len(rows), np.int64), np.empty(len(rows), np.float32))

    def work(part: slice) -> None:
        assign_centres(rows[part], centres, found.centres[part], found.gaps[part])

    pmap(work, spans(len(rows), max(64, 2**17 // max(1, rows.shape[1]))), n_jobs)
    return found


def assign_centres(rows: NDArray, centres: NDArray, near: NDArray, gaps: NDArray) -> None:
    """`nearest_centres` of one thread, into near (n,) and gaps (n,)."""
    halves, half, tile = half_squares(rows), half_squares(centres), max(16, _TILE // len(centres))
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
