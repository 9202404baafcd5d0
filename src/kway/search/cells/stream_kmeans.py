"""k-means of rows that come in blocks (streams.py): no more than a block and a sample of them is ever in memory.

sample   A_CENTRE rows a centre, drawn from all blocks as they pass (each row equally likely: Vitter's algorithm R,
         a block at a time); it places the centres (kmeans.py)
passes   centres become the means of all their rows, sums in float64; a source that can be read only once, such as a
         generator, has no further passes, and its centres are those of the sample
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kway.compute.threads import at_most
from kway.data.gate import plain_rows
from kway.errors import InputError
from kway.search.cells.kmeans import A_CENTRE, nearest_centres, place_centres
from kway.search.codes.streams import blocks_of

_LEAST = 4096  # rows of the sample


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
        return _clustered(blocks, n_centres, passes, seed, n_jobs)


def _clustered(blocks: Any, n_centres: int, passes: int, seed: int, n_jobs: int | None) -> StreamClusters:
    rng = np.random.default_rng(seed)
    sample = _sampled(_blocks(blocks), max(A_CENTRE * n_centres, _LEAST), rng)
    if len(sample) < n_centres:
        raise InputError(f"{n_centres} centres need as many rows, got {len(sample)}; ask for fewer")
    centres = place_centres(sample, int(n_centres), rng, n_jobs)
    again = isinstance(blocks, str | Path | list | tuple) or hasattr(blocks, "shape")
    if not again or passes < 1:
        return _passed(iter([sample]), centres, n_jobs)._replace(centres=centres)
    found = _passed(_blocks(blocks), centres, n_jobs)
    for _ in range(passes - 1):
        found = _passed(_blocks(blocks), found.centres, n_jobs)
    return found


def _blocks(source: Any) -> Iterator[NDArray[np.float32]]:
    """Checked blocks, all of as many columns as the first."""
    width = None
    for block in blocks_of(source).each:
        rows = plain_rows(block, "rows").astype(np.float32, copy=False)
        width = rows.shape[1] if width is None else width
        if rows.shape[1] != width:
            raise InputError(f"a block has {rows.shape[1]} columns, the first had {width}; give all the same")
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


def _passed(blocks: Iterator[NDArray], centres: NDArray[np.float32], n_jobs: int | None) -> StreamClusters:
    """The means of the rows of each centre; one without rows stays where it is."""
    sums, sizes, total = np.zeros(centres.shape), np.zeros(len(centres), np.int64), 0.0
    for rows in blocks:
        near = nearest_centres(rows, centres, n_jobs)
        sizes += np.bincount(near.centres, minlength=len(centres))
        total += 2.0 * float(near.gaps.sum(dtype=np.float64))
        order = np.argsort(near.centres, kind="stable")
        present, starts = np.unique(near.centres[order], return_index=True)
        sums[present] += np.add.reduceat(rows[order], starts, axis=0, dtype=np.float64)
    means = np.where(sizes[:, None] > 0, sums / np.maximum(sizes, 1)[:, None], centres)
    return StreamClusters(means.astype(np.float32), sizes, max(0.0, total) / max(1, int(sizes.sum())))
