"""Landmark cells of rows that come as a stream of blocks (streams.py): no more than a block is ever in memory.

sample     landmarks are placed by rows drawn from everywhere, where the source is an array or a folder of them;
           a generator is read once, so its first block has to do: shuffle what it gives
code       each block: the nearest landmark of each row, and bits about it
order      at the end the codes are put into the order of cells, one array at a time, where they lie
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kway.compute.kernels.jit import frozen
from kway.data.gate import plain_rows
from kway.errors import InputError
from kway.search.cells.bit_cells import BitCells
from kway.search.cells.cell_table import ordered_by_cell
from kway.search.cells.kmeans import A_CENTRE
from kway.search.cells.projection import PROJECTION_SAMPLE, Projection
from kway.search.codes.streams import CODE_ARRAYS, Coder, code_parts, job_facts, part_arrays, refuse_other_job
from kway.search.stores.bits import BitRows, Bits
from kway.search.stores.centred_bits import CentredBits, residual_frame

if TYPE_CHECKING:
    from kway.search.landmarks import LandmarksIndex

_PLACED = ("mean", "basis", "length", "landmarks", "trained")


def fill_cells(index: LandmarksIndex, source: Any, folder: str | Path | None = None) -> int:
    """Place the landmarks of an empty index, code all blocks, and give it its table; how many rows they were."""
    store = index.recipe.store
    assert isinstance(store, Bits)
    learner = _Learner(index, store, _arrays_of(source))
    coder, held = code_parts(source, learner, index.metric, folder)
    assert isinstance(coder, _CellCoder)
    order, offsets = ordered_by_cell(held.take("cells"), index.n_landmarks)
    whole = {key: frozen(held.take(key, order)) for key in CODE_ARRAYS}
    codes = BitRows(residual_frame(store, coder.n_features), **whole)
    index._set(BitCells.ready(None, codes, frozen(order), offsets, coder.centres, index._ground()))
    return len(order)


@dataclass(frozen=True)
class _CellCoder:
    """Codes blocks by the landmarks of the index."""

    index: LandmarksIndex
    store: Bits
    centres: NDArray[np.float32]

    @property
    def n_features(self) -> int:
        return self.centres.shape[1]

    def facts(self) -> dict[str, NDArray]:
        index = self.index
        placed = (index._projection.mean, index._projection.basis, index._projection.length, index._landmarks)
        named = dict(zip(_PLACED, map(np.asarray, (*placed, index._trained))))
        return job_facts(self.store.bits, index.metric) | named

    def code(self, rows: NDArray) -> dict[str, NDArray]:
        cells = self.index._nearest_landmarks(rows)
        frame = residual_frame(self.store, rows.shape[1])
        codes = CentredBits.of(rows, frame, self.centres, cells, self.index.metric.distance).codes
        return part_arrays(codes) | {"cells": cells.astype(np.int32)}


@dataclass(frozen=True)
class _Learner:
    """Places landmarks by a sample of the arrays, or by the first block."""

    index: LandmarksIndex
    store: Bits
    arrays: tuple[NDArray, ...]

    def first(self, rows: NDArray) -> Coder:
        index, n = self.index, sum(map(len, self.arrays))
        if not n and index.recipe.n_landmarks == "auto":
            raise InputError(
                "n_landmarks='auto' needs the number of rows, which an iterable does not tell; give Landmarks("
                "n_landmarks=...), about twice the square root of the rows, or an array or a folder of .npy files"
            )
        wanted = 2.0 * n**0.5 if index.recipe.n_landmarks == "auto" else index.recipe.n_landmarks
        size = int(max(A_CENTRE * wanted, PROJECTION_SAMPLE, 6 * rows.shape[1]))
        sample = rows if not n else self._sample(size)
        index._place(sample, n or len(rows))
        return self._coder()

    def again(self, held: Mapping[str, NDArray], folder: str) -> Coder:
        refuse_other_job(held, self.store, self.index.metric, folder, "landmarks")
        index = self.index
        index._projection = Projection(held["mean"], frozen(held["basis"]), int(held["length"]))
        index._landmarks, index._trained = frozen(held["landmarks"]), int(held["trained"])
        return self._coder()

    def _coder(self) -> _CellCoder:
        return _CellCoder(self.index, self.store, self.index._ground().centres())

    def _sample(self, size: int) -> NDArray:
        """So many rows, drawn from all arrays."""
        ends = np.cumsum([len(a) for a in self.arrays])
        n, rng = int(ends[-1]), np.random.default_rng(self.index.recipe.seed)
        drawn = np.arange(n) if size >= n else np.sort(rng.choice(n, size, replace=False))
        cuts = np.searchsorted(drawn, ends[:-1])
        some = (a[at - start] for a, at, start in zip(self.arrays, np.split(drawn, cuts), [0, *ends[:-1]]))
        return np.asarray(self.index.metric.prepare(plain_rows(np.concatenate(list(some)), "rows")))


def _arrays_of(source: Any) -> tuple[NDArray, ...]:
    """The arrays that can be read anywhere; none of an iterable."""
    if isinstance(source, str | Path):
        return tuple(np.load(file, mmap_mode="r") for file in sorted(Path(source).glob("*.npy")))
    return (source,) if hasattr(source, "shape") else ()
